// What this machine can do, measured in this process: multiply-adds in registers, and a stream over memory.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "linrec/core/simd.hpp"

namespace linrec::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Ten independent chains of multiply-adds: enough for two units of latency 4 or 5.
template <class Packet, std::size_t... chain>
auto multiply_add_chains(long rounds, std::index_sequence<chain...>) {
  using Scalar = typename Eigen::internal::unpacket_traits<Packet>::type;
  const Packet m = Eigen::internal::pset1<Packet>(Scalar(0.999)),
               d = Eigen::internal::pset1<Packet>(Scalar(1e-4));
  Packet x[] = {
      Eigen::internal::pset1<Packet>(Scalar(chain))...};  // all different: equal chains would be merged
  const auto advance = [&](Packet& y) {
    y = Eigen::internal::pmadd(y, m, d);
    EIGEN_OPTIMIZATION_BARRIER(y)
  };
  for (long i = 0; i < rounds; ++i) (advance(x[chain]), ...);
  return (Eigen::internal::predux(x[chain]) + ...);
}

/// FMA peak of one core in GFLOP/s, best of 5 short runs, measured anew at each call: neighbours on the machine
/// change the clock.
template <class Scalar>
double peak_gflops() {
  using L = Lanes<Scalar>;
  constexpr long rounds = 100000;
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const double start = now();
    volatile Scalar used = multiply_add_chains<typename L::Packet>(rounds, std::make_index_sequence<10>());
    static_cast<void>(used);
    best = std::max(best, static_cast<double>(rounds) * 10 * 2 * static_cast<double>(L::packet_size) /
                              (now() - start) * 1e-9);
  }
  return best;
}

/// How many bytes a second x = c x reads and writes back in a buffer of about `bytes`: best of 5 runs,
/// measured anew at each call, since neighbours on the machine change it. Lines far ahead are asked for: the
/// processor's own prefetching stops at each page.
template <class Scalar>
double stream_bytes_per_second(double bytes) {
  using L = Lanes<Scalar>;
  constexpr Index block = 4 * L::size, ahead = 64 * L::size;
  const Index n = (static_cast<Index>(bytes / sizeof(Scalar)) + block - 1) / block * block;
  static AlignedVector<Scalar> x;  // kept, as its pages are
  x.assign(static_cast<std::size_t>(n), Scalar(1));
  const L factor = L::broadcast(static_cast<Scalar>(0.9999999));
  const Index sweeps = std::max<Index>(1, static_cast<Index>(1e7 / bytes));
  const double bytes_of_a_run = static_cast<double>(sweeps * n) * sizeof(Scalar);
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const double start = now();
    for (Index s = 0; s < sweeps; ++s) {
      for (Index i = 0; i < n; i += block)
        for (Scalar* line = x.data() + i; line != x.data() + i + block; line += L::size) {
          Eigen::internal::prefetch(line + ahead);
          (L::load(line) * factor).store(line);
        }
      benchmark::ClobberMemory();  // or else the compiler makes one sweep of several
    }
    best = std::max(best, bytes_of_a_run / (now() - start));
  }
  return best;
}

}  // namespace linrec::bench
