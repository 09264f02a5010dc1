// The one measure of error.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace linrec::verify {

/// max|x - right| / max|right|; the absolute error where all of `right` is 0. Infinite or NaN numbers
/// count as right where they are the same, as an infinite error elsewhere.
inline double relative_error(std::span<const double> x, std::span<const double> right) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (std::isfinite(right[i])) largest = std::max(largest, std::abs(right[i]));
    if (x[i] == right[i] || (std::isnan(x[i]) && std::isnan(right[i]))) continue;
    const double error = std::abs(x[i] - right[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace linrec::verify
