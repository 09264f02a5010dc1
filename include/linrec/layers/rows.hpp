// Rows: the tokens of a chunk as a matrix in scratch memory, and elementwise maths on its rows.
//
// Everything here treats one row like any other, whatever lies beside it, so that a token's result does not
// depend on the tokens that are processed with it: step and prefill agree in every bit.
#pragma once

#include <array>
#include <utility>

#include "linrec/core/simd.hpp"

namespace linrec {

/// `count` rows of `width` numbers, `stride` apart, in memory of somebody else.
template <class Scalar>
struct Rows {
  Scalar* data = nullptr;
  Index count = 0, width = 0, stride = 0;

  Scalar* operator[](Index i) const { return data + i * stride; }
  /// The columns [first, first + width) of all rows.
  Rows columns(Index first, Index columns) const {
    return {data == nullptr ? nullptr : data + first, count, columns, stride};
  }
  operator Rows<const Scalar>() const requires(!std::is_const_v<Scalar>) {
    return {data, count, width, stride};
  }
};

/// Hands out parts of a block of scratch memory, each on a cache line. Without memory it only counts, so that
/// the same code that lays out buffers tells how much they need. `workers` may need scratch of their own.
template <class Scalar>
class Arena {
 public:
  explicit Arena(Index workers = 1) : workers_(workers) {}
  Arena(Scalar* memory, Index workers) : memory_(memory), workers_(workers) {}

  Index workers() const { return workers_; }

  Scalar* take(Index count) {
    Scalar* part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += padded<Scalar>(count);
    return part;
  }
  Rows<Scalar> rows(Index count, Index width) {
    constexpr Index line = Lanes<Scalar>::size;
    // Rows that are a power of two apart would evict each other from the first-level cache.
    const Index stride = padded<Scalar>(width) + (padded<Scalar>(width) % (8 * line) == 0 ? line : 0);
    return {take(count * stride), count, width, stride};
  }
  Index used() const { return used_; }

 private:
  Scalar* memory_ = nullptr;
  Index workers_, used_ = 0;
};

/// y[i] = f(x[i]...) for n numbers at any address, packet by packet; the last packet is filled up with 0.
/// y may be one of the x.
template <class Scalar, class F, class... Inputs>
EIGEN_ALWAYS_INLINE void map_packets(Index n, Scalar* y, F&& f, const Inputs*... x) {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index size = Lanes<Scalar>::packet_size;
  Index i = 0;
  for (; i + size <= n; i += size) pstoreu(y + i, f(ploadu<Packet>(x + i)...));
  if (i == n) return;
  Scalar numbers[static_cast<std::size_t>(size)];
  pstoreu(numbers, f(load_part_packet(x + i, n - i)...));
  for (Index j = 0; i + j < n; ++j) y[i + j] = numbers[j];
}

/// x = f(x) for all rows, packet by packet.
template <class Scalar, class F>
EIGEN_ALWAYS_INLINE void map_rows(Rows<Scalar> x, F&& f) {
  for (Index i = 0; i < x.count; ++i) map_packets(x.width, x[i], f, static_cast<const Scalar*>(x[i]));
}

/// sum_i x[i] y[i] of n numbers at any address, always in the same order.
template <class Scalar>
inline Scalar dot_packets(Index n, const Scalar* x, const Scalar* y) {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index size = Lanes<Scalar>::packet_size;
  Packet sum = pset1<Packet>(Scalar(0));
  Index i = 0;
  for (; i + size <= n; i += size) sum = pmadd(ploadu<Packet>(x + i), ploadu<Packet>(y + i), sum);
  if (i < n) sum = pmadd(load_part_packet(x + i, n - i), load_part_packet(y + i, n - i), sum);
  return predux(sum);
}

/// sum_i x[i], likewise.
template <class Scalar>
inline Scalar sum_packets(Index n, const Scalar* x) {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index size = Lanes<Scalar>::packet_size;
  Packet sum = pset1<Packet>(Scalar(0));
  Index i = 0;
  for (; i + size <= n; i += size) sum = padd(sum, ploadu<Packet>(x + i));
  if (i < n) sum = padd(sum, load_part_packet(x + i, n - i));
  return predux(sum);
}

/// 1 / (1 + e^-x)
template <class Packet>
EIGEN_ALWAYS_INLINE Packet sigmoid_packet(const Packet& x) {
  using namespace Eigen::internal;
  const Packet one = pset1<Packet>(typename unpacket_traits<Packet>::type(1));
  return pdiv(one, padd(one, exp_normal(pnegate(x))));
}

/// x sigmoid(x)
template <class Packet>
EIGEN_ALWAYS_INLINE Packet silu_packet(const Packet& x) {
  return Eigen::internal::pmul(x, sigmoid_packet(x));
}

/// log(1 / (1 + e^-x)) = min(x, 0) - log(1 + e), e = e^-|x|, to rounding in both tails; -softplus(-x).
///
/// log(1 + e) = 2 artanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...) with s = e / (2 + e) <= 1/3. Nothing cancels, and
/// a small e keeps all its digits; from s^16 (double: s^32) on, the series is below rounding. e below the
/// smallest normal number is 0, as in exp_padded.
template <class Packet>
EIGEN_ALWAYS_INLINE Packet log_sigmoid_packet(const Packet& x) {
  using namespace Eigen::internal;
  using Scalar = typename unpacket_traits<Packet>::type;
  constexpr int terms = std::is_same_v<Scalar, float> ? 7 : 15;
  const auto c = [](double value) { return pset1<Packet>(static_cast<Scalar>(value)); };
  const Packet magnitude = pnegate(pabs(x));
  const Packet lowest = pset1<Packet>(std::log(std::numeric_limits<Scalar>::min()));
  const Packet e = pandnot(exp_normal(magnitude), pcmp_lt(magnitude, lowest));
  const Packet s = pdiv(e, padd(c(2), e)), square = pmul(s, s);
  Packet sum = c(1.0 / (2 * terms + 1));
  [&]<int... k>(std::integer_sequence<int, k...>) LINREC_INLINE_LAMBDA {
    ((sum = pmadd(sum, square, c(1.0 / (2 * (terms - k) - 1)))), ...);
  }
  (std::make_integer_sequence<int, terms>());
  return pmadd(pmul(c(-2), s), sum, pmin(x, c(0)));
}

}  // namespace linrec
