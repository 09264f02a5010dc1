// How SKA measures keys, and which numbers it takes.
#pragma once

#include <cmath>

#include "linrec/core/input_checks.hpp"

namespace linrec {

/// What keys are measured by before they are taken in.
enum class KeyScale {
  /// The largest length m of a key so far. Only the ridge notices: raw sums with the ridge eps m^2 give what
  /// keys divided by m and the ridge eps give, so that a maximum that moves is exact.
  sequence_max,
  unit_norm,  ///< Each key and each query is divided by its own length.
  none,
};

/// Lengths below this do not count as scales.
inline constexpr double smallest_key_scale = 1e-6;

/// The largest number in a key, query or value: sums of squares stay finite.
inline constexpr double largest_ska_input = 1e140;

/// @throws ValueError at the first number of the run that is not finite, or too large.
template <class Scalar>
void check_ska_numbers(const char* name, const TokenView<const Scalar>& view, const TokenRun& run) {
  check_each(name, view, run, "a finite number of at most 1e140",
             [](Scalar x) { return std::abs(static_cast<double>(x)) <= largest_ska_input; });
}

}  // namespace linrec
