// The few matrix operations that SKA is made of, on small row-major matrices of doubles. Rows are padded with
// zeros to whole cache lines. Each function always adds in the same order, and none allocates.
#pragma once

#include <cmath>

#include "linrec/core/simd.hpp"

namespace linrec::detail {

/// Cache lines of a row that are kept in registers at a time.
inline constexpr Index ska_strip = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS / 2 / Lanes<double>::packets;

/// Calls f(first, lines) for strips of columns [first, first + 8 lines); `lines` is a constant.
template <class F>
EIGEN_ALWAYS_INLINE void for_each_strip(Index width, F&& f) {
  Index lines = padded<double>(width) / Lanes<double>::size, first = 0;
  const auto strips = [&](auto n) LINREC_INLINE_LAMBDA {
    for (; lines >= n; lines -= n, first += n * Lanes<double>::size) f(first, n);
  };
  strips(std::integral_constant<Index, ska_strip>());
  if constexpr (ska_strip > 2) strips(std::integral_constant<Index, 2>());
  if constexpr (ska_strip > 1) strips(std::integral_constant<Index, 1>());
}

/// Whether row i of a matrix ends at its diagonal.
enum class Shape { full, lower };

/// y [width] = A^T x, A [n, width] and x [n]: the sum of the rows x_i A_i. y must not be x.
template <Shape shape = Shape::full>
EIGEN_DONT_INLINE void multiply_transposed(const double* a, Index n, Index width, const double* x,
                                           double* y) noexcept {
  const Index stride = padded<double>(width);
  for_each_strip(width, [&](Index first, auto lines) LINREC_INLINE_LAMBDA {
    Lanes<double> sums[static_cast<std::size_t>(lines)];
    for (Lanes<double>& sum : sums) sum = Lanes<double>::broadcast(0);
    for (Index i = shape == Shape::lower ? first : 0; i < n; ++i) {
      const Lanes<double> factor = Lanes<double>::broadcast(x[i]);
      for (Index j = 0; j < lines; ++j)
        sums[j] = multiply_add(factor, Lanes<double>::load(a + i * stride + first + j * Lanes<double>::size),
                               sums[j]);
    }
    for (Index j = 0; j < lines; ++j) sums[j].store(y + first + j * Lanes<double>::size);
  });
}

inline double sum_of(const Lanes<double>& lanes) {
  auto total = lanes.packet[0];
  for (Index j = 1; j < Lanes<double>::packets; ++j) total = Eigen::internal::padd(total, lanes.packet[j]);
  return Eigen::internal::predux(total);
}

/// y [n] = A x, A [n, width] and x [width]. y is padded with zeros, and must not be x.
template <Shape shape = Shape::full>
EIGEN_DONT_INLINE void multiply(const double* a, Index n, Index width, const double* x, double* y) noexcept {
  const Index stride = padded<double>(width);
  constexpr Index together = 4;
  Index i = 0;
  const auto dot = [&](auto rows) LINREC_INLINE_LAMBDA {
    Lanes<double> sums[static_cast<std::size_t>(rows)];
    for (Lanes<double>& sum : sums) sum = Lanes<double>::broadcast(0);
    const Index end = shape == Shape::lower ? std::min(stride, padded<double>(i + rows)) : stride;
    for (Index j = 0; j < end; j += Lanes<double>::size) {
      const Lanes<double> part = Lanes<double>::load(x + j);
      for (Index k = 0; k < rows; ++k)
        sums[k] = multiply_add(part, Lanes<double>::load(a + (i + k) * stride + j), sums[k]);
    }
    for (Index k = 0; k < rows; ++k) y[i + k] = sum_of(sums[k]);
  };
  for (; i + together <= n; i += together) dot(std::integral_constant<Index, together>());
  for (; i < n; ++i) dot(std::integral_constant<Index, 1>());
  for (; i < padded<double>(n); ++i) y[i] = 0;
}

/// A += x y^T, A [n, width]. Of a lower matrix, entries beyond the diagonal may change within a cache line.
template <Shape shape = Shape::full>
EIGEN_DONT_INLINE void add_outer(double* a, Index n, Index width, const double* x, const double* y) noexcept {
  const Index stride = padded<double>(width);
  for (Index i = 0; i < n; ++i) {
    const Lanes<double> factor = Lanes<double>::broadcast(x[i]);
    double* row = a + i * stride;
    const Index end = shape == Shape::lower ? i + 1 : stride;
    for (Index j = 0; j < end; j += Lanes<double>::size)
      multiply_add(factor, Lanes<double>::load(y + j), Lanes<double>::load(row + j)).store(row + j);
  }
}

/// The length of a padded row.
inline double length(const double* x, Index n) noexcept { return std::sqrt(squared_norm_padded(x, n)); }

}  // namespace linrec::detail
