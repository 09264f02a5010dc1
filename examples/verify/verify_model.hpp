// From a model and its right answers to the rows of the table.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "verify.hpp"

namespace linrec::verify {

/// A case of an expected file. A row about the file as a whole has an empty name.
struct NamedRows {
  std::string name;
  std::vector<Row> rows;
};

/// Runs the model on all cases of the expected file, in all scalars and ways that are asked for. Does not
/// throw because of the files.
std::vector<NamedRows> verify_model(const std::filesystem::path& model, const std::filesystem::path& expected,
                                    const Settings& settings);

}  // namespace linrec::verify
