// Lanes: one cache line of numbers in registers, and elementwise maths on padded rows. Everything goes
// through Eigen's packets, so the same source serves SSE2, AVX, AVX-512 and NEON.
//
// Two rules make results reproducible. A product that is added to something is always an explicit
// multiply-add, so that no compiler fuses it in one place and not in another. And elementwise functions
// run on whole cache lines only, so that an element's result does not depend on its neighbours.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "linrec/core/aligned.hpp"
#include "linrec/core/types.hpp"

// Between the parameters and the body of a lambda in a hot loop: in a large translation unit the compiler may
// otherwise give up inlining it, and then keeps in memory what the loop should have in registers.
#if defined(__GNUC__) || defined(__clang__)
#define LINREC_INLINE_LAMBDA __attribute__((always_inline))
#else
#define LINREC_INLINE_LAMBDA
#endif

namespace linrec {

/// Calls f with the constants 0 to N - 1, so that what it indexes stays in registers.
template <Index N, class F>
EIGEN_ALWAYS_INLINE void repeat(F&& f) {
  [&]<Index... n>(std::integer_sequence<Index, n...>) LINREC_INLINE_LAMBDA {
    (f(std::integral_constant<Index, n>()), ...);
  }
  (std::make_integer_sequence<Index, N>());
}

template <class Scalar>
struct Lanes {
  static constexpr Index size = static_cast<Index>(cache_line / sizeof(Scalar));
  using Packet = typename Eigen::internal::find_best_packet<Scalar, static_cast<int>(size)>::type;
  static constexpr Index packet_size = Eigen::internal::unpacket_traits<Packet>::size;
  static constexpr Index packets = size / packet_size;

  Packet packet[static_cast<std::size_t>(packets)];

  static EIGEN_ALWAYS_INLINE Lanes broadcast(Scalar x) {
    Lanes lanes;
    for (Packet& p : lanes.packet) p = Eigen::internal::pset1<Packet>(x);
    return lanes;
  }
  /// From `size` numbers at any address.
  static EIGEN_ALWAYS_INLINE Lanes load(const Scalar* from) {
    Lanes lanes;
    for (Index j = 0; j < packets; ++j)
      lanes.packet[j] = Eigen::internal::ploadu<Packet>(from + j * packet_size);
    return lanes;
  }
  /// From the first n < size numbers; the other lanes are 0.
  static EIGEN_ALWAYS_INLINE Lanes load_part(const Scalar* from, Index n) {
    alignas(cache_line) Scalar part[cache_line / sizeof(Scalar)] = {};
    for (Index j = 0; j < std::min(n, size); ++j) part[j] = from[j];
    return load(part);
  }
  EIGEN_ALWAYS_INLINE void store(Scalar* to) const {
    for (Index j = 0; j < packets; ++j) Eigen::internal::pstoreu<Scalar>(to + j * packet_size, packet[j]);
  }
  EIGEN_ALWAYS_INLINE void store_part(Scalar* to, Index n) const {
    alignas(cache_line) Scalar part[cache_line / sizeof(Scalar)];
    store(part);
    for (Index j = 0; j < std::min(n, size); ++j) to[j] = part[j];
  }

  friend EIGEN_ALWAYS_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
    Lanes sum;
    for (Index j = 0; j < packets; ++j) sum.packet[j] = Eigen::internal::padd(a.packet[j], b.packet[j]);
    return sum;
  }
  friend EIGEN_ALWAYS_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
    Lanes product;
    for (Index j = 0; j < packets; ++j) product.packet[j] = Eigen::internal::pmul(a.packet[j], b.packet[j]);
    return product;
  }
  /// a b + c, fused where the machine can.
  friend EIGEN_ALWAYS_INLINE Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
    Lanes result;
    for (Index j = 0; j < packets; ++j)
      result.packet[j] = Eigen::internal::pmadd(a.packet[j], b.packet[j], c.packet[j]);
    return result;
  }
  friend EIGEN_ALWAYS_INLINE Lanes minimum(const Lanes& a, const Lanes& b) {
    Lanes result;
    for (Index j = 0; j < packets; ++j) result.packet[j] = Eigen::internal::pmin(a.packet[j], b.packet[j]);
    return result;
  }
  Scalar least() const {
    Packet smallest = packet[0];
    for (Index j = 1; j < packets; ++j) smallest = Eigen::internal::pmin(smallest, packet[j]);
    return Eigen::internal::predux_min(smallest);
  }
  friend EIGEN_ALWAYS_INLINE Lanes reciprocal(const Lanes& a) {
    Lanes result;
    for (Index j = 0; j < packets; ++j)
      result.packet[j] = Eigen::internal::pdiv(Eigen::internal::pset1<Packet>(Scalar(1)), a.packet[j]);
    return result;
  }
};

/// Asks for the cache line of the n-th number behind `from` to come into the second-level cache. There need be no
/// such number, nor memory.
template <class Number>
EIGEN_ALWAYS_INLINE void prefetch_line(const Number* from, Index n = 0) {
  const auto bytes = static_cast<std::uintptr_t>(n) * sizeof(Number);
  const auto* address = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + bytes);
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(address, 0, 2);
#else
  Eigen::internal::prefetch(static_cast<const char*>(address));
#endif
}

/// n rounded up to whole cache lines.
template <class Scalar>
constexpr Index padded(Index n) {
  constexpr Index line = static_cast<Index>(cache_line / sizeof(Scalar));
  return (n + line - 1) / line * line;
}

/// The first n numbers of a packet, which may be none or all; the others are 0.
template <class Scalar>
inline typename Lanes<Scalar>::Packet load_part_packet(const Scalar* from, Index n) {
  constexpr Index size = Lanes<Scalar>::packet_size;
  Scalar numbers[static_cast<std::size_t>(size)] = {};
  for (Index j = 0; j < std::min(n, size); ++j) numbers[j] = from[j];
  return Eigen::internal::ploadu<typename Lanes<Scalar>::Packet>(numbers);
}

/// row = f(x, offset) for n numbers at any address, packet by packet, to a cache-aligned row that is filled
/// up to whole cache lines with f(0).
template <class Scalar, class F>
EIGEN_ALWAYS_INLINE void map_padded(const Scalar* x, Index n, Scalar* row, F&& f) {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index size = Lanes<Scalar>::packet_size;
  Index i = 0;
  for (; i + size <= n; i += size) pstore(row + i, f(ploadu<Packet>(x + i), i));
  for (; i < padded<Scalar>(n); i += size) pstore(row + i, f(load_part_packet(x + i, n - i), i));
}

/// Replaces each cache line of the padded rows by f(line, offset); `line` is an Eigen array of fixed size.
template <class Scalar, class F>
EIGEN_ALWAYS_INLINE void transform_padded(Scalar* row, Index n, F&& f) {
  using Line = Eigen::Array<Scalar, static_cast<int>(Lanes<Scalar>::size), 1>;
  for (Index i = 0; i < n; i += Lanes<Scalar>::size) {
    Eigen::Map<Line, Eigen::Aligned64> line(row + i);
    line = f(line, i);
  }
}

/// The sum of squares of n numbers at any address, always in the same order.
template <class Scalar>
inline Scalar squared_norm(const Scalar* x, Index n) {
  using L = Lanes<Scalar>;
  L sum = L::broadcast(0);
  for (Index i = 0; i < n; i += L::size) {
    const L line = i + L::size <= n ? L::load(x + i) : L::load_part(x + i, n - i);
    sum = multiply_add(line, line, sum);
  }
  auto total = sum.packet[0];
  for (Index j = 1; j < L::packets; ++j) total = Eigen::internal::padd(total, sum.packet[j]);
  return Eigen::internal::predux(total);
}

/// Replaces each packet of a padded row by f(packet, offset).
template <class Scalar, class F>
EIGEN_ALWAYS_INLINE void transform_packets(Scalar* row, Index n, F&& f) {
  using Packet = typename Lanes<Scalar>::Packet;
  for (Index i = 0; i < padded<Scalar>(n); i += Lanes<Scalar>::packet_size)
    Eigen::internal::pstore(row + i, f(Eigen::internal::pload<Packet>(row + i), i));
}

/// row *= factor
template <class Scalar>
inline void scale_padded(Scalar* row, Index n, Scalar factor) {
  using Packet = typename Lanes<Scalar>::Packet;
  const Packet f = Eigen::internal::pset1<Packet>(factor);
  transform_packets(row, n,
                    [&](const Packet& x, Index) LINREC_INLINE_LAMBDA { return Eigen::internal::pmul(x, f); });
}

/// Whether a packet holds several floats, for which the exponential here takes a third of the instructions of
/// Eigen's, which serves doubles.
template <class Packet>
inline constexpr bool several_floats =
    std::is_same_v<typename Eigen::internal::unpacket_traits<Packet>::type, float>&&
        Eigen::internal::unpacket_traits<Packet>::size > 1;

template <class Packet>
EIGEN_ALWAYS_INLINE Packet constant(double value) {
  return Eigen::internal::pset1<Packet>(
      static_cast<typename Eigen::internal::unpacket_traits<Packet>::type>(value));
}

/// e^r for |r| <= log(2)/2. In single precision its Taylor polynomial of degree 7 (truncation 5e-9).
template <class Packet>
EIGEN_ALWAYS_INLINE Packet exp_near_zero(const Packet& r) {
  using namespace Eigen::internal;
  if constexpr (several_floats<Packet>) {
    Packet y = pmadd(r, constant<Packet>(1.0 / 5040), constant<Packet>(1.0 / 720));
    y = pmadd(y, r, constant<Packet>(1.0 / 120));
    y = pmadd(y, r, constant<Packet>(1.0 / 24));
    y = pmadd(y, r, constant<Packet>(1.0 / 6));
    y = pmadd(y, r, constant<Packet>(0.5));
    return pmadd(y, pmul(r, r), padd(r, constant<Packet>(1.0)));
  } else {
    return pexp(r);
  }
}

/// e^x, with x limited to what gives normal numbers. NaN stays NaN.
///
/// In single precision x = n log 2 + r with |r| <= log(2)/2. Adding 1.5 2^23 + 127 to x / log 2 leaves n +
/// 127, the exponent field of 2^n, in the low bits of the sum.
template <class Packet>
EIGEN_ALWAYS_INLINE Packet exp_normal(Packet x) {
  using namespace Eigen::internal;
  if constexpr (several_floats<Packet>) {
    using Integers = typename unpacket_traits<Packet>::integer_packet;
    x = pmin(pmax(x, constant<Packet>(-87.3)), constant<Packet>(88.3));
    const Packet magic = constant<Packet>(12582912.0 + 127.0);
    Packet n = pmadd(x, constant<Packet>(1.4426950408889634), magic);
    const Packet two_to_n = preinterpret<Packet>(plogical_shift_left<23>(preinterpret<Integers>(n)));
    EIGEN_OPTIMIZATION_BARRIER(n)  // -ffast-math would cancel the sum
    n = psub(n, magic);
    Packet r =
        pmadd(n, constant<Packet>(-0.693145751953125), x);  // log 2 in two parts, the first exact in n r
    r = pmadd(n, constant<Packet>(-1.42860682030941723212e-6), r);
    return pmul(exp_near_zero(r), two_to_n);
  } else {
    return pexp(x);
  }
}

/// e^x; below the smallest normal number exactly 0, so that a log-decay of -inf is a hard reset. NaN stays
/// NaN.
template <class Packet>
EIGEN_ALWAYS_INLINE Packet exp_or_zero(const Packet& x) {
  using Scalar = typename Eigen::internal::unpacket_traits<Packet>::type;
  const Packet lowest = Eigen::internal::pset1<Packet>(std::log(std::numeric_limits<Scalar>::min()));
  return Eigen::internal::pandnot(exp_normal(x), Eigen::internal::pcmp_lt(x, lowest));
}

/// row = e^row, or zero
template <class Scalar>
inline void exp_padded(Scalar* row, Index n) {
  transform_packets(row, n, [](const auto& x, Index) LINREC_INLINE_LAMBDA { return exp_or_zero(x); });
}

}  // namespace linrec
