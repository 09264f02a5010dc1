// The description of the case files, for --help.
#pragma once

#include <string>

namespace linrec::verify {

std::string file_format_text();

}  // namespace linrec::verify
