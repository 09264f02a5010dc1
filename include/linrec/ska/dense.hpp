// The few matrix operations that SKA is made of, on small row-major matrices of doubles. Rows are padded with
// zeros to whole cache lines. Each function always adds in the same order, and none allocates.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "linrec/core/simd.hpp"

namespace linrec::detail {

/// Calls f(first, lines) for strips of columns [first, first + 8 lines) that are as wide as possible, and
/// about as wide as each other. `lines` is a constant: what f keeps for a strip takes `share` of the
/// registers.
template <Index share_in_quarters, class F>
EIGEN_ALWAYS_INLINE void for_each_strip(Index width, F&& f) {
  constexpr Index packets = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS * share_in_quarters / 4;
  constexpr Index most = std::min<Index>(8, packets / Lanes<double>::packets);
  const Index lines = padded<double>(width) / Lanes<double>::size, strips = (lines + most - 1) / most;
  for (Index strip = 0; strip < strips; ++strip) {
    const Index begin = strip * lines / strips, count = (strip + 1) * lines / strips - begin;
    [&]<Index... n>(std::integer_sequence<Index, n...>) LINREC_INLINE_LAMBDA {
      static_cast<void>(
          ((count == n + 1 ? (f(begin * Lanes<double>::size, std::integral_constant<Index, n + 1>()), true)
                           : false) ||
           ...));
    }
    (std::make_integer_sequence<Index, most>());
  }
}

/// Whether row i of a matrix ends at its diagonal.
enum class Shape { full, lower };

/// y [width] = A^T x, A [n, width] and x [n]: the sum of the rows x_i A_i. y must not be x.
template <Shape shape = Shape::full>
EIGEN_DONT_INLINE void multiply_transposed(const double* a, Index n, Index width, const double* x,
                                           double* y) noexcept {
  using Line = Lanes<double>;
  const Index stride = padded<double>(width);
  for_each_strip<3>(width, [&](Index first, auto lines) LINREC_INLINE_LAMBDA {
    // Narrow strips take several rows at a time, so that enough sums are under way.
    constexpr Index rows = std::max<Index>(1, 8 / (lines * Line::packets));
    Line sums[static_cast<std::size_t>(rows)][static_cast<std::size_t>(lines)];
    for (auto& row : sums)
      for (Line& sum : row) sum = Line::broadcast(0);
    const auto add = [&](Index i, Index row) LINREC_INLINE_LAMBDA {
      const Line factor = Line::broadcast(x[i]);
      for (Index j = 0; j < lines; ++j)
        sums[row][j] =
            multiply_add(factor, Line::load(a + i * stride + first + j * Line::size), sums[row][j]);
    };
    Index i = shape == Shape::lower ? first : 0;
    for (; i + rows <= n; i += rows)
      for (Index row = 0; row < rows; ++row) add(i + row, row);
    for (; i < n; ++i) add(i, 0);
    for (Index row = 1; row < rows; ++row)
      for (Index j = 0; j < lines; ++j) sums[0][j] = sums[0][j] + sums[row][j];
    for (Index j = 0; j < lines; ++j) sums[0][j].store(y + first + j * Line::size);
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
inline double length(const double* x, Index n) noexcept { return std::sqrt(squared_norm(x, n)); }

}  // namespace linrec::detail
