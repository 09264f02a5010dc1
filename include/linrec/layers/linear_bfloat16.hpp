// y = W x + b with W of bfloat16, which halves what a single row has to read. The arithmetic is in Scalar.
//
// Each output is summed in one order, whatever is computed with it. The inputs come in blocks of 4 KiB of
// Scalar, and a block in groups of two packets. Each place in a group has a sum of its own over all groups;
// the sums of the second packet are added to those of the first, then these are added up; then the blocks,
// one by one. Two ways lead to the same sums:
// - A few rows: one load gives the numbers 0, 2, 4, ... and 1, 3, 5, ... of a group (core/bfloat16.hpp), which
//   meet inputs that were put into this order once, for all outputs.
// - More rows, or doubles: the weights of some outputs are widened once, for all rows.
// The copies are on the stack, at most 26 KiB, and nothing is allocated. Both ask for the weights of the next
// outputs while they compute, since rows of weights are too short for the machine to foresee where it goes
// on.
#pragma once

#include <algorithm>

#include "linrec/core/bfloat16.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec::detail {

/// Rows for which splitting costs less than widening.
inline constexpr Index few_rows = 2;

/// Inputs of a block.
template <class Scalar>
inline constexpr Index linear_block = static_cast<Index>(4096 / sizeof(Scalar));
/// Inputs of a group: two packets.
template <class Scalar>
inline constexpr Index linear_group = 2 * Lanes<Scalar>::packet_size;

/// n outputs of a row: y = sums + bias after the first block of inputs, y += sums after the others.
template <class Scalar>
void add_block(const Scalar* sums, Index n, bool first, const Scalar* bias, Scalar* y) noexcept {
  if (!first)
    for (Index k = 0; k < n; ++k) y[k] += sums[k];
  else if (bias != nullptr)
    for (Index k = 0; k < n; ++k) y[k] = sums[k] + bias[k];
  else
    std::copy_n(sums, n, y);
}

/// Each group's numbers 0, 2, 4, ... and then its numbers 1, 3, 5, ...; the last group is filled up with 0.
template <class Scalar>
void split_row(const Scalar* x, Index count, Scalar* split) noexcept {
  constexpr Index group = linear_group<Scalar>, half = group / 2;
  Index i = 0;
  for (; i + group <= count; i += group)
    for (Index j = 0; j < half; ++j) {
      split[i + j] = x[i + 2 * j];
      split[i + half + j] = x[i + 2 * j + 1];
    }
  if (i == count) return;
  std::fill_n(split + i, group, Scalar(0));
  for (Index j = 0; i + j < count; ++j) split[i + j % 2 * half + j / 2] = x[i + j];
}

/// The sums of the even and of the odd places of a group, added up.
template <class Packet>
EIGEN_ALWAYS_INLINE float add_up(const Packet& even, const Packet& odd) {
  using namespace Eigen::internal;
  constexpr int size = unpacket_traits<Packet>::size;
  float evens[std::size_t{size}], odds[std::size_t{size}], sums[std::size_t{2 * size}];
  pstoreu(evens, even);
  pstoreu(odds, odd);
  for (int j = 0; j < size; ++j) sums[2 * j] = evens[j], sums[2 * j + 1] = odds[j];
  return predux(padd(ploadu<Packet>(sums), ploadu<Packet>(sums + size)));
}

/// sums[o] = sum_i x[i] w[o, i] of a block of a split row and O outputs, of which the first n are wanted.
template <Index O, class Scalar>
EIGEN_DONT_INLINE void split_tile(const Scalar* x, const BFloat16* w, Index w_stride, Index n, Index count,
                                  Scalar* sums) noexcept {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index group = linear_group<Scalar>;
  Packet even[static_cast<std::size_t>(O)], odd[static_cast<std::size_t>(O)];
  const BFloat16* rows[static_cast<std::size_t>(O)];
  repeat<O>([&](auto o) LINREC_INLINE_LAMBDA {
    even[o] = odd[o] = pset1<Packet>(Scalar(0));
    rows[o] = w + std::min<Index>(o, n - 1) * w_stride;
  });
  const auto accumulate = [&](Index i, const auto& load_w) LINREC_INLINE_LAMBDA {
    const Packet x_even = pload<Packet>(x + i), x_odd = pload<Packet>(x + i + group / 2);
    repeat<O>([&](auto o) LINREC_INLINE_LAMBDA {
      const auto pairs = load_w(o);
      prefetch_line(rows[o] + i, O * w_stride);  // of the next outputs; past the end it does nothing
      even[o] = pmadd(x_even, widen_low<Packet>(pairs), even[o]);
      odd[o] = pmadd(x_odd, widen_high<Packet>(pairs), odd[o]);
    });
  };
  Index i = 0;
  for (; i + group <= count; i += group)
    accumulate(i, [&](Index o) LINREC_INLINE_LAMBDA { return load_pairs<Packet>(rows[o] + i); });
  if (i < count)
    accumulate(i, [&](Index o) LINREC_INLINE_LAMBDA {
      BFloat16 part[static_cast<std::size_t>(group)];
      std::copy_n(rows[o] + i, count - i, part);
      return load_pairs<Packet>(part);
    });
  repeat<O>([&](auto o) LINREC_INLINE_LAMBDA { sums[o] = add_up(even[o], odd[o]); });
}

/// At most few_rows rows.
template <class Scalar>
void linear_split(Rows<const Scalar> x, const BFloat16* w, const Scalar* bias, Rows<Scalar> y) noexcept {
  constexpr Index O = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32 ? 8 : 4, block = linear_block<Scalar>;
  constexpr Index room = 4;  // for so many blocks
  alignas(cache_line) Scalar split[static_cast<std::size_t>(room * block)];
  Scalar sums[static_cast<std::size_t>(O)];
  const Index most = room / x.count * block;  // inputs of a row at once
  for (Index first = 0; first == 0 || first < x.width; first += most) {
    const Index end = std::min(first + most, x.width);
    for (Index r = 0; r < x.count; ++r) split_row(x[r] + first, end - first, split + r * most);
    for (Index o = 0; o < y.width; o += O) {
      const Index n = std::min(O, y.width - o);
      for (Index r = 0; r < x.count; ++r)
        for (Index i = first; i == 0 || i < end; i += block) {
          split_tile<O>(split + r * most + i - first, w + o * x.width + i, x.width, n,
                        std::min(block, end - i), sums);
          add_block(sums, n, i == 0, bias == nullptr ? nullptr : bias + o, y[r] + o);
        }
    }
  }
}

/// sums[r, o] = sum_i x[r, i] w[o, i] for R rows and O outputs, whose weights are filled up to whole groups.
template <Index R, Index O, class Scalar>
EIGEN_DONT_INLINE void widened_tile(const Scalar* x, Index x_stride, const Scalar* w, Index w_stride,
                                    Index count, Scalar* sums) noexcept {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index group = linear_group<Scalar>, size = group / 2;
  Packet firsts[static_cast<std::size_t>(R * O)], packets[static_cast<std::size_t>(R * O)];
  const auto accumulate = [&](Index i, const auto& load_x) LINREC_INLINE_LAMBDA {
    Packet xs[static_cast<std::size_t>(R)];
    repeat<R>([&](auto r) LINREC_INLINE_LAMBDA { xs[r] = load_x(r); });
    repeat<O>([&](auto o) LINREC_INLINE_LAMBDA {
      const Packet weight = pload<Packet>(w + o * w_stride + i);
      repeat<R>([&](auto r)
                    LINREC_INLINE_LAMBDA { packets[r * O + o] = pmadd(xs[r], weight, packets[r * O + o]); });
    });
  };
  for (Index first = 0; first < group; first += size) {  // the first packets of all groups, then the second
    repeat<R * O>([&](auto k) LINREC_INLINE_LAMBDA { packets[k] = pset1<Packet>(Scalar(0)); });
    Index i = first;
    for (; i + size <= count; i += group)
      accumulate(i, [&](Index r) LINREC_INLINE_LAMBDA { return ploadu<Packet>(x + r * x_stride + i); });
    if (i - first < count)
      accumulate(i, [&](Index r) LINREC_INLINE_LAMBDA {
        return load_part_packet(x + r * x_stride + std::min(i, count), count - i);
      });
    if (first == 0)
      repeat<R * O>([&](auto k) LINREC_INLINE_LAMBDA { firsts[k] = packets[k]; });
    else
      repeat<R * O>([&](auto k) LINREC_INLINE_LAMBDA { sums[k] = predux(padd(firsts[k], packets[k])); });
  }
}

/// The first n of O rows of weights as Scalar, filled up to whole groups; the others repeat the last.
template <Index O, class Scalar>
void widen_rows(const BFloat16* w, Index w_stride, Index n, Index count, Scalar* to, Index stride) noexcept {
  constexpr Index group = linear_group<Scalar>;
  for (Index o = 0; o < O; ++o) {
    const BFloat16* from = w + std::min(o, n - 1) * w_stride;
    Scalar* row = to + o * stride;
    for (Index j = 0; j < count; ++j) row[j] = static_cast<Scalar>(from[j].value());
    std::fill(row + count, row + (count + group - 1) / group * group, Scalar(0));
  }
}

/// Any number of rows, R at a time.
template <Index R, Index O, class Scalar>
void linear_widened(Rows<const Scalar> x, const BFloat16* w, const Scalar* bias, Rows<Scalar> y) noexcept {
  constexpr Index block = linear_block<Scalar>;
  constexpr Index line = static_cast<Index>(cache_line / sizeof(BFloat16));
  // Rows of weights a power of two apart would evict each other from the first-level cache.
  constexpr Index stride = block + Lanes<Scalar>::size;
  alignas(cache_line) Scalar widened[static_cast<std::size_t>(O * stride)];
  Scalar sums[static_cast<std::size_t>(R * O)];
  for (Index o = 0; o < y.width; o += O)
    for (Index i = 0; i == 0 || i < x.width; i += block) {
      const Index n = std::min(O, y.width - o), count = std::min(block, x.width - i);
      const BFloat16* weights = w + o * x.width + i;
      widen_rows<O>(weights, x.width, n, count, widened, stride);
      // What comes next, a part of it for each tile of rows.
      const Index lines = (count + line - 1) / line;
      const Index next = i + block < x.width ? block : O * x.width - i;
      for (Index r = 0, rows = 0; r < x.count; r += rows) {
        rows = r + R <= x.count ? R : 1;
        const Index begin = r * lines / x.count, end = (r + rows) * lines / x.count;
        for (Index k = 0; k < n; ++k)
          for (Index l = begin; l < end; ++l) prefetch_line(weights, next + k * x.width + l * line);
        if (rows == R)
          widened_tile<R, O>(x[r] + i, x.stride, widened, stride, count, sums);
        else
          widened_tile<1, O>(x[r] + i, x.stride, widened, stride, count, sums);
        for (Index k = 0; k < rows; ++k)
          add_block(sums + k * O, n, i == 0, bias == nullptr ? nullptr : bias + o, y[r + k] + o);
      }
    }
}

/// y = W x + b; tiles have R rows and, where weights are widened, O outputs.
template <Index R, Index O, class Scalar>
void linear_bfloat16(Rows<const Scalar> x, const BFloat16* w, const Scalar* bias, Rows<Scalar> y) noexcept {
  if constexpr (has_bfloat16_pairs<typename Lanes<Scalar>::Packet>) {
    if (x.count > 0 && x.count <= few_rows) return linear_split(x, w, bias, y);
  }
  linear_widened<R, O>(x, w, bias, y);
}

}  // namespace linrec::detail
