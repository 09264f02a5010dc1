// A bank of N exponential memories: the running means of a series x_1, x_2, ... over N horizons.
//   m_k(t) = sum_s w_ks x_s / sum_s w_ks        w_ks = exp(-sum_{s < u <= t} rate_k(u))
//   rate_k(u) = exp(p_k) u^(-alpha_k)
//
// It is a retention kernel with N heads and q = k = 1 for each: S_t = w S_{t-1} + v_t^T. The value has two
// numbers, v = (x, 1), so that the second one sums the weights, which depend on the position under a taper.
//
// The range of rates. A memory of rate r looks back 1/r steps. The fastest rate is e: 7 % of a value is left
// after one step. The slowest one sees the whole past: 1/T for a series of length T. That is all a static
// bank needs, but it must know T, and at an early position t most of its memories have not yet forgotten
// anything and hold the same mean. A tapered bank starts from the range for T = 1, rates from 1 to e; with
// exponents that fall evenly from 1 to 0 its rates at position t span 1/t to e, and if they are geometric at
// first they are exactly those of the static geometric bank made for a series of length t, at every t.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>

#include "linrec/kernels/retnet.hpp"
#include "linrec/policy/diagnostics.hpp"
#include "linrec/policy/initial.hpp"
#include "linrec/policy/spectrum.hpp"
#include "linrec/policy/taper.hpp"

namespace forecast {

using linrec::Index;

inline constexpr double fastest_rate = std::numbers::e;

/// How the initial rates are spread.
enum class Spread { random, linear, geometric };

inline const char* name_of(Spread spread) {
  return spread == Spread::random ? "random" : spread == Spread::linear ? "linear" : "geometric";
}

/// The log-rates p [N] of a bank, by the rule above; `length` counts for static banks only.
template <linrec::TaperPolicy Taper>
Eigen::ArrayXd bank_log_rates(Spread spread, Index memories, double length, std::uint64_t seed) {
  const double slowest = std::same_as<Taper, linrec::NoTaper> ? 1 / length : 1;
  if (spread == Spread::random) return linrec::random_log_rates(memories, slowest, fastest_rate, seed);
  if (spread == Spread::linear) return linrec::linear_log_rates(memories, slowest, fastest_rate);
  return linrec::geometric_log_rates(memories, slowest, fastest_rate);
}

template <linrec::TaperPolicy Taper>
class MemoryBank {
 public:
  /// @param log_rates p [N], strictly increasing.
  explicit MemoryBank(const Eigen::ArrayXd& log_rates, const Taper& taper = Taper())
      : kernel_({log_rates.size(), 1, 2}, linrec::PostSpectrum::from_log_rates(log_rates), taper),
        state_(kernel_.initial_state()),
        sums_(2, log_rates.size()),
        means_(Eigen::VectorXd::Zero(log_rates.size())) {
    kernel_.validate(inputs(value_), state_);
  }

  /// Moves on by one value of the series.
  void absorb(double x) noexcept {
    value_[0] = x;
    kernel_.step(inputs(value_), state_, {sums_.data(), 1, 1, sums_.cols(), 2});
    means_ = sums_.row(0).cwiseQuotient(sums_.row(1)).transpose();
  }

  /// m [N] at the current position; zeros before the first value.
  const Eigen::VectorXd& means() const { return means_; }

 private:
  using Kernel = linrec::RetNet<double, linrec::PostSpectrum, Taper, linrec::Dims<linrec::Dynamic, 1, 2>>;

  /// All heads share one query, one key and one value.
  static typename Kernel::Inputs inputs(const double* value) {
    static constexpr double one = 1;
    return {{&one, 1, 1, 1, 1}, {&one, 1, 1, 1, 1}, {value, 1, 1, 1, 2}};
  }

  Kernel kernel_;
  typename Kernel::State state_;
  double value_[2] = {0, 1};
  Eigen::Matrix<double, 2, Eigen::Dynamic> sums_;  // of w x and of w, [2, N]: the kernel's outputs
  Eigen::VectorXd means_;
};

}  // namespace forecast
