// What the program does once its options are known.
#pragma once

#include "options.hpp"

namespace generate {

/// Prints tokens to standard output, and figures to standard error.
/// @throws linrec::Error with a text for the user.
void run(const Options& options);

}  // namespace generate
