// Comparing what was computed with what is right.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels.hpp"

namespace linrec::verify {

enum class ScalarType { double_precision, float_precision };
std::string_view name_of(ScalarType scalar);

/// The bars that results are held against.
struct Tolerances {
  std::optional<double> in_double, in_float;  ///< instead of what the file leads to
};

inline constexpr double double_bar = 1e-11;
/// A float kernel may be off by this many times what the straightforward float program is off.
inline constexpr double float_factor = 4;
/// That program can be right by luck; the bar is never below that many times half a unit in the last place.
inline constexpr double float_floor = 0x1p-24;
/// Where the file does not say how far that program is off. No golden case exceeds a quarter of it.
inline constexpr double float_bar_by_default = 2e-6;

/// relative_error or absolute_error.
using Measure = double (*)(std::span<const double> x, std::span<const double> right);

/// A ridge below this leaves a matrix that is singular but for a millionth, and a plain float program wrong
/// by several percent: then the bar in double is wider, and that in float is no multiple of what such a
/// program is off.
inline constexpr double easy_ridge = 1e-4;
inline constexpr double double_bar_of_hard_ridge = 1e-8;
inline constexpr double float_bar_of_hard_ridge = 1e-4;

/// One output against its bar.
struct Check {
  std::string output;
  bool computed;      ///< or it is in the file, but the kernel gives no such thing
  double error, bar;  ///< the worst over all runs of the way
  bool ok() const { return computed && error <= bar; }
  /// Takes in what one more run gave. Its shape must be the right one.
  void add(const Outputs& outputs, std::span<const double> right, Measure measure);
};

/// Checks all outputs that the file has.
/// @throws FormatError if it has none, or one of another shape.
std::vector<Check> compare(const GoldenCase& file, const KernelEntry& kernel, const WayResult& result,
                           ScalarType scalar, const Tolerances& tolerances);

}  // namespace linrec::verify
