// The micro-kernel: a tile of a product of two small matrices, kept in registers.
//
// A tile has some rows, and one strip of columns. Each step of the sum loads one strip of the right factor
// and broadcasts one number of the left factor for each row, so that the multiply-adds outnumber the loads:
// 12 to 8 for the 6 x 16 floats of AVX2. The number of rows follows from the registers of the machine.
#pragma once

#include <algorithm>

#include "linrec/kernels/strip.hpp"

namespace linrec::detail {

/// Rows of a tile: what leaves registers for the strip of the right factor and a broadcast.
template <class Scalar, Index width>
inline constexpr Index micro_rows = [] {
  constexpr Index packets = Lanes<Scalar>::packets * width;
  constexpr Index accumulators = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32 ? 24 : 12;
  return std::clamp<Index>(accumulators / packets, 1, 8);
}();

/// The left factor of a product: row r at step c of the sum is data[r * row + c * step].
template <class Scalar, class RowStride = Index>
struct Left {
  const Scalar* data;
  Index step;
  RowStride row = {};
};
/// Rows that are neighbours in memory.
template <class Scalar>
using PackedLeft = Left<Scalar, std::integral_constant<Index, 1>>;

/// The right factor: part p of its strip at step c of the sum begins at data[c * step + p * part].
template <class Scalar>
struct Right {
  const Scalar* data;
  Index step, part;
};

template <class Scalar, Index width, Index rows>
struct Tile {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  S row[static_cast<std::size_t>(rows)];

  /// Of the rows f(r).
  template <class F>
  static EIGEN_ALWAYS_INLINE Tile of(F&& f) {
    Tile tile;
    repeat<rows>([&](auto r) LINREC_INLINE_LAMBDA { tile.row[r] = f(r); });
    return tile;
  }
  static EIGEN_ALWAYS_INLINE Tile zero() {
    return of([](Index) LINREC_INLINE_LAMBDA { return S::zero(); });
  }
  /// Replaces each row by f(r, row).
  template <class F>
  EIGEN_ALWAYS_INLINE void transform(F&& f) {
    repeat<rows>([&](auto r) LINREC_INLINE_LAMBDA { row[r] = f(r, row[r]); });
  }
  /// += left right, a sum of `steps` terms.
  template <class RowStride>
  EIGEN_ALWAYS_INLINE void add_product(const Left<Scalar, RowStride>& left, const Right<Scalar>& right,
                                       Index steps) {
    const Scalar* a = left.data;
    const Scalar* b = right.data;
    for (Index c = 0; c < steps; ++c, a += left.step, b += right.step) {
      const S strip = S::load(b, right.part);
      repeat<rows>([&](auto r) LINREC_INLINE_LAMBDA {
        row[r] = multiply_add(L::broadcast(a[r * left.row]), strip, row[r]);
      });
    }
  }
};

/// Covers n rows by tiles of R rows, or of one or two less so that it comes out even; what is too few for
/// that is covered row by row. Calls f(rows, first) with `rows` a constant.
template <Index R, class F>
EIGEN_ALWAYS_INLINE void for_each_tile(Index n, F&& f) {
  Index first = 0;
  const auto cover = [&](auto rows, Index tiles) LINREC_INLINE_LAMBDA {
    if constexpr (rows > 0)
      for (; tiles > 0; --tiles, first += rows) f(rows, first);
  };
  using std::integral_constant;
  const Index tiles = (n + R - 1) / R;
  if (n >= tiles * (R - 2)) {
    // so many tiles have R rows; of the others as many as possible have one less
    const Index missing = tiles * R - n, shortest = std::max<Index>(0, missing - tiles);
    cover(integral_constant<Index, R>(), std::max<Index>(0, tiles - missing));
    cover(integral_constant<Index, R - 1>(), std::min(missing, tiles) - shortest);
    cover(integral_constant<Index, R - 2>(), shortest);
  } else {
    cover(integral_constant<Index, R>(), n / R);
  }
  if constexpr (R > 3) cover(integral_constant<Index, 1>(), n - first);
}

}  // namespace linrec::detail
