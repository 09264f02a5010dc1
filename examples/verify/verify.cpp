#include "verify.hpp"

#include <algorithm>

namespace linrec::verify {

namespace {

const KernelEntry& kernel_of(const GoldenCase& file) {
  if (!file.has_option("kernel")) throw Unknown("option 'kernel' is missing");
  const std::string name = file.text("kernel");
  for (const KernelEntry& entry : kernel_table())
    if (entry.name == name) return entry;
  throw Unknown(message("kernel '", name, "'"));
}

void verify_case(GoldenCase& file, const Settings& settings, std::vector<Row>& rows) {
  const KernelEntry& kernel = kernel_of(file);
  for (const ScalarType scalar : settings.scalars) {
    const Run run = scalar == ScalarType::double_precision ? kernel.in_double : kernel.in_float;
    for (const WayResult& result : run(file, settings.request))
      rows.push_back(run_row(scalar, result.way, compare(file, kernel, result, scalar, settings.tolerances)));
  }
}

/// A list of tensors comes as a line for each.
std::string in_one_line(std::string text) {
  for (std::size_t at = 0; (at = text.find(":\n  ", at)) != text.npos;) text.replace(at, 4, ": ");
  for (std::size_t at = 0; (at = text.find("\n  ", at)) != text.npos;) text.replace(at, 3, "; ");
  return text;
}

}  // namespace

Row no_run(Verdict verdict, const std::filesystem::path& path, const std::string& reason) {
  const std::string where = "'" + path.string() + "': ";
  bool says_where = false;
  for (const char* what : {"file ", "folder ", "checkpoint "})
    says_where = says_where || reason.starts_with(what + where);
  return {verdict, "", "", {}, in_one_line(says_where ? reason : "file " + where + reason)};
}

Row run_row(ScalarType scalar, Way way, std::vector<Check> checks) {
  const bool ok = std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.ok(); });
  return {ok ? Verdict::ok : Verdict::fail, std::string(name_of(scalar)), std::string(name_of(way)),
          std::move(checks), ""};
}

std::vector<Row> verify_file(const std::filesystem::path& path, const Settings& settings) {
  std::vector<Row> rows;
  add_rows(rows, path, [&] {
    GoldenCase file(path);
    verify_case(file, settings, rows);
  });
  return rows;
}

}  // namespace linrec::verify
