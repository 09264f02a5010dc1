// From a file to the rows of the table.
#pragma once

#include <exception>
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

/// The one row of what came to no run. The reason gets the path, unless it begins with it.
Row no_run(Verdict verdict, const std::filesystem::path& path, const std::string& reason);
/// The verdict on checks, as a row.
Row run_row(ScalarType scalar, Way way, std::vector<Check> checks);
/// Calls f(), which adds rows, and adds one of no run if it throws.
template <class F>
void add_rows(std::vector<Row>& rows, const std::filesystem::path& path, F&& f) {
  try {
    f();
  } catch (const Unknown& unknown) {
    rows.push_back(no_run(Verdict::unknown, path, unknown.what()));
  } catch (const std::exception& error) {
    rows.push_back(no_run(Verdict::error, path, error.what()));
  }
}

/// Runs a case in all scalars and ways that are asked for. Does not throw because of the file.
std::vector<Row> verify_file(const std::filesystem::path& path, const Settings& settings);

}  // namespace linrec::verify
