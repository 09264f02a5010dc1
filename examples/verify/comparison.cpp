#include "comparison.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "relative_error.hpp"

namespace linrec::verify {

namespace {

double bar_of(const GoldenCase& file, const std::string& output, ScalarType scalar,
              const Tolerances& tolerances) {
  const bool hard = file.has_option("ridge_eps") && file.number("ridge_eps") < easy_ridge;
  if (scalar == ScalarType::double_precision)
    return tolerances.in_double.value_or(hard ? double_bar_of_hard_ridge : double_bar);
  if (tolerances.in_float) return *tolerances.in_float;
  // A cache is as hard half way as at the end.
  const std::string key = output.starts_with(cache_mid_prefix)
                              ? "f32.cache." + output.substr(cache_mid_prefix.size())
                              : "f32." + output;
  if (!file.has_option(key)) return float_bar_by_default;
  const double plain = file.number(key);
  if (!(plain >= 0) || !std::isfinite(plain))
    throw FormatError(message("option '", key, "': expected a finite number of at least 0, got ", plain));
  const double bar = float_factor * std::max(plain, float_floor);
  return hard ? std::min(bar, float_bar_of_hard_ridge) : bar;
}

Check check(const std::string& output, std::span<const double> right, const WayResult& result, double bar) {
  Check check{output, true, 0, bar};
  for (const Outputs& outputs : result.runs) check.add(outputs, right, relative_error);
  return check;
}

}  // namespace

void Check::add(const Outputs& outputs, std::span<const double> right, Measure measure) {
  const auto found = outputs.find(output);
  if (found == outputs.end())
    computed = false;
  else
    error = std::max(error, measure(found->second.numbers, right));
}

std::string_view name_of(ScalarType scalar) {
  return scalar == ScalarType::double_precision ? "double" : "float";
}

std::vector<Check> compare(const GoldenCase& file, const KernelEntry& kernel, const WayResult& result,
                           ScalarType scalar, const Tolerances& tolerances) {
  std::vector<Check> checks;
  for (const std::string& name : file.output_names()) {
    for (const Outputs& outputs : result.runs)
      if (outputs.contains(name)) file.check_output_shape(name, outputs.at(name).shape);
    checks.push_back(
        check(name, file.output(name).to<double>(), result, bar_of(file, name, scalar, tolerances)));
  }
  if (checks.empty()) throw FormatError("there is no out.* tensor to compare with");
  if (const char* option = kernel.option_as_output; option != nullptr && file.has_option(option)) {
    const double right = file.number(option);
    checks.push_back(check(option, std::span(&right, 1), result, bar_of(file, option, scalar, tolerances)));
  }
  return checks;
}

}  // namespace linrec::verify
