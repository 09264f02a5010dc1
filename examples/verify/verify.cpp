#include "verify.hpp"

#include <algorithm>
#include <exception>

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
    for (const WayResult& result : run(file, settings.request)) {
      std::vector<Check> checks = compare(file, kernel, result, scalar, settings.tolerances);
      const bool ok = std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.ok(); });
      rows.push_back({ok ? Verdict::ok : Verdict::fail, std::string(name_of(scalar)),
                      std::string(name_of(result.way)), std::move(checks), ""});
    }
  }
}

}  // namespace

std::vector<Row> verify_file(const std::filesystem::path& path, const Settings& settings) {
  std::vector<Row> rows;
  const auto no_run = [&](Verdict verdict, std::string reason) {
    const std::string file = "file '" + path.string() + "': ";
    rows.push_back({verdict, "", "", {}, reason.starts_with(file) ? reason : file + reason});
  };
  try {
    GoldenCase file(path);
    verify_case(file, settings, rows);
  } catch (const Unknown& unknown) {
    no_run(Verdict::unknown, unknown.what());
  } catch (const std::exception& error) {
    no_run(Verdict::error, error.what());
  }
  return rows;
}

}  // namespace linrec::verify
