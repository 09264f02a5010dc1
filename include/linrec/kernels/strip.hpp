// Strip: the same row of one or two neighbouring panels of a state, in registers.
#pragma once

#include <type_traits>

#include "linrec/core/bfloat16.hpp"
#include "linrec/core/simd.hpp"

namespace linrec::detail {

/// Panels that are computed together where a panel is one register wide: they share the broadcasts of q and
/// k, which are otherwise half of the loads.
template <class Scalar>
inline constexpr Index strip_width = Lanes<Scalar>::packets == 1 ? 2 : 1;

template <class Scalar, Index width>
struct Strip {
  using L = Lanes<Scalar>;
  L part[static_cast<std::size_t>(width)];

  static EIGEN_ALWAYS_INLINE Strip zero() {
    Strip strip;
    for (L& p : strip.part) p = L::broadcast(0);
    return strip;
  }
  /// A row of the first panel, and those of the others, `stride` numbers further each.
  static EIGEN_ALWAYS_INLINE Strip load(const Scalar* row, Index stride) {
    Strip strip;
    for (Index j = 0; j < width; ++j) strip.part[j] = L::load(row + j * stride);
    return strip;
  }
  EIGEN_ALWAYS_INLINE void store(Scalar* row, Index stride) const {
    for (Index j = 0; j < width; ++j) part[j].store(row + j * stride);
  }
  /// From n numbers of the caller; the lanes beyond are 0.
  static EIGEN_ALWAYS_INLINE Strip load_columns(const Scalar* from, Index n) {
    if (n == width * L::size) return load(from, L::size);
    Strip strip;
    for (Index j = 0; j < width; ++j, n -= L::size)
      strip.part[j] = n >= L::size ? L::load(from + j * L::size) : L::load_part(from + j * L::size, n);
    return strip;
  }
  EIGEN_ALWAYS_INLINE void store_columns(Scalar* to, Index n) const {
    if (n == width * L::size) return store(to, L::size);
    for (Index j = 0; j < width; ++j, n -= L::size)
      n >= L::size ? part[j].store(to + j * L::size) : part[j].store_part(to + j * L::size, n);
  }

  friend EIGEN_ALWAYS_INLINE Strip operator+(const Strip& a, const Strip& b) {
    Strip sum;
    for (Index j = 0; j < width; ++j) sum.part[j] = a.part[j] + b.part[j];
    return sum;
  }
  friend EIGEN_ALWAYS_INLINE Strip operator*(const L& a, const Strip& b) {
    Strip product;
    for (Index j = 0; j < width; ++j) product.part[j] = a * b.part[j];
    return product;
  }
  friend EIGEN_ALWAYS_INLINE Strip multiply_add(const L& a, const Strip& b, const Strip& c) {
    Strip result;
    for (Index j = 0; j < width; ++j) result.part[j] = multiply_add(a, b.part[j], c.part[j]);
    return result;
  }
  friend EIGEN_ALWAYS_INLINE Strip multiply_add(const Strip& a, const Strip& b, const Strip& c) {
    Strip result;
    for (Index j = 0; j < width; ++j) result.part[j] = multiply_add(a.part[j], b.part[j], c.part[j]);
    return result;
  }
  friend EIGEN_ALWAYS_INLINE Strip quiet(const Strip& a) {
    Strip result;
    for (Index j = 0; j < width; ++j)
      for (Index n = 0; n < L::packets; ++n) result.part[j].packet[n] = linrec::quiet(a.part[j].packet[n]);
    return result;
  }
};

/// The two panels of a strip, or the one: rows of the next are `stride` numbers further.
template <class Number>
struct Panels {
  Number* first;
  Index key, stride;
};

/// Rows of a panel in memory: where numbers are halves, two rows share a line.
template <class Scalar, class StateScalar>
constexpr Index stored_rows(Index key) {
  return std::is_same_v<Scalar, StateScalar> ? key : (key + 1) / 2 * 2;
}

/// Two rows of a strip of panels.
template <class Scalar, Index width>
class RowPair {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  using Packet = typename L::Packet;

 public:
  S even, odd;

  /// Rows i and i + 1, i even.
  static EIGEN_ALWAYS_INLINE RowPair load(const Panels<Scalar>& p, Index i) {
    const Scalar* row = p.first + i * L::size;
    return {S::load(row, p.stride), S::load(row + L::size, p.stride)};
  }
  /// Asks for what lies so many cache lines behind the rows i and i + 1.
  template <class Number>
  static EIGEN_ALWAYS_INLINE void prefetch(const Panels<Number>& p, Index i, Index ahead) {
    constexpr Index line = static_cast<Index>(cache_line / sizeof(Number));
    constexpr Index lines = std::is_same_v<Number, Scalar> ? 2 : 1;
    for (Index j = 0; j < width; ++j)
      for (Index n = 0; n < lines; ++n)
        prefetch_line(p.first + i * L::size + j * p.stride, (n + ahead) * line);
  }
  EIGEN_ALWAYS_INLINE void store(const Panels<Scalar>& p, Index i) const {
    Scalar* row = p.first + i * L::size;
    even.store(row, p.stride);
    odd.store(row + L::size, p.stride);
  }
  /// Row i, the last of an odd number; `odd` is not touched.
  static EIGEN_ALWAYS_INLINE RowPair load_last(const Panels<Scalar>& p, Index i) {
    return {S::load(p.first + i * L::size, p.stride), S::zero()};
  }
  EIGEN_ALWAYS_INLINE void store_last(const Panels<Scalar>& p, Index i) const {
    even.store(p.first + i * L::size, p.stride);
  }

  /// Of bfloat16: pairs of an even and an odd row.
  static EIGEN_ALWAYS_INLINE RowPair load(const Panels<BFloat16>& p, Index i) {
    RowPair pair;
    for (Index j = 0; j < width; ++j)
      for (Index n = 0; n < L::packets; ++n) {
        const BFloat16* from = p.first + i * L::size + j * p.stride + 2 * n * L::packet_size;
        if constexpr (has_bfloat16_pairs<Packet>) {
          const auto halves = load_pairs<Packet>(from);
          pair.even.part[j].packet[n] = widen_low<Packet>(halves);
          pair.odd.part[j].packet[n] = widen_high<Packet>(halves);
        } else {
          pair.even.part[j].packet[n] = from[0].value();
          pair.odd.part[j].packet[n] = from[1].value();
        }
      }
    return pair;
  }
  EIGEN_ALWAYS_INLINE void store(const Panels<BFloat16>& p, Index i) const {
    store_with(p, i,
               [](const auto& low, const auto& high) LINREC_INLINE_LAMBDA { return narrow(low, high); });
  }
  static EIGEN_ALWAYS_INLINE RowPair load_last(const Panels<BFloat16>& p, Index i) { return load(p, i); }
  EIGEN_ALWAYS_INLINE void store_last(const Panels<BFloat16>& p, Index i) const { store(p, i); }

  /// As store, where each NaN is quiet.
  EIGEN_ALWAYS_INLINE void store_quiet(const Panels<Scalar>& p, Index i) const { store(p, i); }
  EIGEN_ALWAYS_INLINE void store_last_quiet(const Panels<Scalar>& p, Index i) const { store_last(p, i); }
  EIGEN_ALWAYS_INLINE void store_last_quiet(const Panels<BFloat16>& p, Index i) const { store_quiet(p, i); }
  EIGEN_ALWAYS_INLINE void store_quiet(const Panels<BFloat16>& p, Index i) const {
    store_with(
        p, i, [](const auto& low, const auto& high) LINREC_INLINE_LAMBDA { return narrow_quiet(low, high); });
  }

 private:
  template <class Narrow>
  EIGEN_ALWAYS_INLINE void store_with(const Panels<BFloat16>& p, Index i, Narrow narrow_pair) const {
    for (Index j = 0; j < width; ++j)
      for (Index n = 0; n < L::packets; ++n) {
        BFloat16* to = p.first + i * L::size + j * p.stride + 2 * n * L::packet_size;
        const Packet &low = even.part[j].packet[n], &high = odd.part[j].packet[n];
        if constexpr (has_bfloat16_pairs<Packet>)
          store_pairs<Packet>(to, narrow_pair(low, high));
        else
          to[0] = BFloat16(low), to[1] = BFloat16(high);
      }
  }
};

}  // namespace linrec::detail
