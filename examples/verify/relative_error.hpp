// The measures of error.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace linrec::verify {

/// max|x - right|. Infinite or NaN numbers count as right where they are the same, as an infinite error
/// elsewhere.
inline double absolute_error(std::span<const double> x, std::span<const double> right) {
  double worst = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (x[i] == right[i] || (std::isnan(x[i]) && std::isnan(right[i]))) continue;
    const double error = std::abs(x[i] - right[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

/// max|x - right| / max|right|, finite numbers of `right` only; the absolute error where all of them are 0.
inline double relative_error(std::span<const double> x, std::span<const double> right) {
  double largest = 0;
  for (const double number : right)
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  const double worst = absolute_error(x, right);
  return largest > 0 ? worst / largest : worst;
}

}  // namespace linrec::verify
