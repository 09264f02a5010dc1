// Strip: the same row of one or two neighbouring panels of a state, in registers.
#pragma once

#include "linrec/core/simd.hpp"

namespace linrec::detail {

/// Panels that are computed together where a panel is one register wide: they share the broadcasts of q and k,
/// which are otherwise half of the loads.
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
};

/// The two panels of a strip, or the one: rows of the next are `stride` numbers further.
template <class Scalar>
struct Panels {
  Scalar* first;
  Index key, stride;
};

}  // namespace linrec::detail
