// bfloat16: the upper half of a float - 1 sign, 8 exponent, 7 mantissa bits - as numbers, and in packets.
//
// Widening is exact. Narrowing rounds to nearest, ties to even; what is too large becomes infinite and a NaN
// stays a NaN. Working on the bits keeps the results free of -ffast-math and of flush-to-zero modes.
//
// In packets, two bfloat16 are one 32-bit lane: `low` the lower half, which memory has first, and `high` the
// upper half. A packet of lanes widens to two packets of floats with one instruction each, on every machine
// that Eigen knows.
#pragma once

#include <Eigen/Core>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "linrec/core/types.hpp"

namespace linrec {

/// The value of a bfloat16, exactly.
constexpr float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The bfloat16 nearest to `value`.
constexpr std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN is made quiet: rounding could carry its mantissa into the exponent, and cutting could leave 0.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// What arrays of bfloat16 consist of.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  /// The nearest.
  explicit constexpr BFloat16(float value) : bits(float_to_bfloat16(value)) {}
  constexpr float value() const { return bfloat16_to_float(bits); }
  explicit constexpr operator float() const { return value(); }
};
static_assert(sizeof(BFloat16) == 2);

/// Whether two bfloat16 in a lane become packets of this type.
template <class Packet>
inline constexpr bool has_bfloat16_pairs =
    std::is_same_v<typename Eigen::internal::unpacket_traits<Packet>::type, float>&&
        Eigen::internal::unpacket_traits<Packet>::size > 1;

/// The pairs of bfloat16 that become two packets of floats.
template <class Packet>
using BFloat16Pairs = typename Eigen::internal::unpacket_traits<Packet>::integer_packet;

/// The numbers 0, 2, 4, ... of `from`, at any address, as `low`, and 1, 3, 5, ... as `high`.
template <class Packet>
EIGEN_ALWAYS_INLINE BFloat16Pairs<Packet> load_pairs(const BFloat16* from) {
  static_assert(std::endian::native == std::endian::little, "the first bfloat16 is the lower half of a lane");
  BFloat16Pairs<Packet> pairs;
  std::memcpy(static_cast<void*>(&pairs), static_cast<const void*>(from), sizeof(pairs));
  return pairs;
}

template <class Packet>
EIGEN_ALWAYS_INLINE void store_pairs(BFloat16* to, const BFloat16Pairs<Packet>& pairs) {
  static_assert(std::endian::native == std::endian::little, "the first bfloat16 is the lower half of a lane");
  std::memcpy(static_cast<void*>(to), static_cast<const void*>(&pairs), sizeof(pairs));
}

template <class Packet>
EIGEN_ALWAYS_INLINE Packet widen_low(const BFloat16Pairs<Packet>& pairs) {
  using namespace Eigen::internal;
  return preinterpret<Packet>(plogical_shift_left<16>(pairs));
}

template <class Packet>
EIGEN_ALWAYS_INLINE Packet widen_high(const BFloat16Pairs<Packet>& pairs) {
  using namespace Eigen::internal;
  return preinterpret<Packet>(pand(pairs, pset1<BFloat16Pairs<Packet>>(-0x10000)));
}

namespace detail {

/// Float bits whose upper halves are the nearest bfloat16; the lower halves are left over.
template <class Pairs>
EIGEN_ALWAYS_INLINE Pairs round_to_bfloat16(const Pairs& bits) {
  using namespace Eigen::internal;
  const Pairs one = pset1<Pairs>(1);
  // All ones where the number is no NaN: its magnitude is below that of the first NaN. No comparison, which
  // not every machine's packets have.
  const Pairs number =
      parithmetic_shift_right<31>(psub(pand(bits, pset1<Pairs>(0x7fffffff)), pset1<Pairs>(0x7f800001)));
  const Pairs to_even = pand(plogical_shift_right<16>(bits), one);
  const Pairs rounding = pand(padd(to_even, pset1<Pairs>(0x7fff)), number);
  const Pairs quiet = plogical_shift_left<22>(padd(number, one));  // of a NaN
  return por(padd(bits, rounding), quiet);
}

}  // namespace detail

/// The nearest bfloat16 of both, in pairs, with ties away from zero, in a fifth of the instructions of
/// `narrow`. A NaN must be one that arithmetic makes, or `quiet`: one whose mantissa ends in sixteen ones
/// would become a zero.
template <class Packet>
EIGEN_ALWAYS_INLINE BFloat16Pairs<Packet> narrow_quiet(const Packet& low, const Packet& high) {
  using namespace Eigen::internal;
  using Pairs = BFloat16Pairs<Packet>;
  const Pairs half = pset1<Pairs>(0x8000);
  return por(plogical_shift_right<16>(padd(preinterpret<Pairs>(low), half)),
             pand(padd(preinterpret<Pairs>(high), half), pset1<Pairs>(-0x10000)));
}

/// x, with one NaN in the place of all others.
template <class Packet>
EIGEN_ALWAYS_INLINE Packet quiet(const Packet& x) {
  using namespace Eigen::internal;
  using Scalar = typename unpacket_traits<Packet>::type;
  return pselect(pcmp_eq(x, x), x, pset1<Packet>(std::numeric_limits<Scalar>::quiet_NaN()));
}

/// The nearest bfloat16 of both, in pairs.
template <class Packet>
EIGEN_ALWAYS_INLINE BFloat16Pairs<Packet> narrow(const Packet& low, const Packet& high) {
  using namespace Eigen::internal;
  using Pairs = BFloat16Pairs<Packet>;
  return por(plogical_shift_right<16>(detail::round_to_bfloat16(preinterpret<Pairs>(low))),
             pand(detail::round_to_bfloat16(preinterpret<Pairs>(high)), pset1<Pairs>(-0x10000)));
}

}  // namespace linrec
