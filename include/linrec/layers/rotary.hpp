// Rotary position embedding (arXiv 2104.09864), halves of a head as real and imaginary parts:
//   (x_i, x_{i+K/2})  rotated by the angle  p base^(-2i/K),   i = 0 ... K/2-1
// p is the number of tokens before this one: positions from 0. Angles are computed in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "linrec/core/errors.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

template <class Scalar>
class Rotary {
 public:
  Rotary() = default;
  /// @throws ValueError if K is odd or the base not a finite number > 0.
  explicit Rotary(Index key, double base = 10000) {
    if (key < 2 || key % 2 != 0)
      throw ValueError(message("rotary: expected an even key dimension, got ", key));
    if (!(base > 0) || !std::isfinite(base))
      throw ValueError(message("rotary: expected a base that is a finite number > 0, got ", base));
    frequencies_ = Eigen::ArrayXd::NullaryExpr(key / 2, [&](Index i) {
      return std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(key));
    });
  }

  /// Numbers of scratch memory that apply needs.
  Index scratch_size() const { return 3 * padded<Scalar>(frequencies_.size()); }

  /// Fills scratch with the cosines and sines of the token after `position` tokens.
  void prepare(std::int64_t position, Scalar* scratch) const noexcept {
    for (Index i = 0; i < frequencies_.size(); ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      scratch[i] = static_cast<Scalar>(std::cos(angle));
      scratch[padded<Scalar>(frequencies_.size()) + i] = static_cast<Scalar>(std::sin(angle));
    }
  }
  /// Rotates all heads of a row [heads K] in place, by the angles in scratch.
  void apply(Scalar* row, Index heads, Scalar* scratch) const noexcept {
    using namespace Eigen::internal;
    const Index half = frequencies_.size();
    const Scalar *cosine = scratch, *sine = scratch + padded<Scalar>(half);
    Scalar* real = scratch + 2 * padded<Scalar>(half);
    for (Index h = 0; h < heads; ++h) {
      Scalar *a = row + 2 * h * half, *b = a + half;
      map_packets(
          half, real,
          [](const auto& x, const auto& y, const auto& c, const auto& s)
              LINREC_INLINE_LAMBDA { return pmadd(pnegate(y), s, pmul(x, c)); },
          as_const(a), as_const(b), cosine, sine);
      map_packets(
          half, b,
          [](const auto& x, const auto& y, const auto& c, const auto& s)
              LINREC_INLINE_LAMBDA { return pmadd(y, c, pmul(x, s)); },
          as_const(a), as_const(b), cosine, sine);
      std::copy_n(real, half, a);
    }
  }

 private:
  static const Scalar* as_const(const Scalar* x) { return x; }

  Eigen::ArrayXd frequencies_;
};

}  // namespace linrec
