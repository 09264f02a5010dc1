// From a file to the rows of the table.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comparison.hpp"

namespace linrec::verify {

struct Settings {
  std::vector<ScalarType> scalars;
  Request request;
  Tolerances tolerances;
};

enum class Verdict {
  ok,
  fail,     ///< an output is not right
  unknown,  ///< the case asks for something that this tool does not know
  error,    ///< the case cannot be read or contradicts itself
};

struct Row {
  Verdict verdict;
  std::string scalar, way;    ///< empty if it came to no run
  std::vector<Check> checks;  ///< of a run
  std::string reason;         ///< of unknown and error
};

/// Runs a case in all scalars and ways that are asked for. Does not throw because of the file.
std::vector<Row> verify_file(const std::filesystem::path& path, const Settings& settings);

}  // namespace linrec::verify
