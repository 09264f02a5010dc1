// Taper policies: exponents alpha_k in [0, 1] that stretch a decay with the position t = 1, 2, ...
//
//   log w_eff = log w * t^(-alpha_k)                       PoST, arXiv 2604.07658, position-adaptive scaling
//
//   NoTaper        alpha_k = 0, and costs nothing
//   LinearTaper    alpha_k = (N-k)/(N-1)
//   GapAwareTaper  alpha_k = clamp((N-k)/(N-1) + (c_k - (k-1) c_N/(N-1)) / log T_ref, 0, 1),  c_k = p_k - p_1
//   LearnedTaper   alpha_1 = 1,  alpha_{k+1} = 1 - cumsum(softmax(logits))_k
//   GivenTaper     alpha_k as given
//
// k counts the channels from the slowest (k = 1) to the fastest (k = N); equal rates keep their order.
// So spectra that are not sorted, like RetNet's default, are tapered by speed and not by index.
// N = 1 has alpha = 0. A taper policy is any type with `exponents(const Eigen::ArrayXd& log_rates) const`,
// which gets p [N] and returns alpha [N], both in the order of the channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <numeric>
#include <utility>
#include <vector>

#include "linrec/core/activation.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

template <class Policy>
concept TaperPolicy = requires(const Policy& policy, const Eigen::ArrayXd& log_rates) {
  { policy.exponents(log_rates) } -> std::convertible_to<Eigen::ArrayXd>;
};

namespace detail {

/// Calls alpha(rank, p_sorted) for every channel by rank, and returns the results by channel.
template <class Alpha>
Eigen::ArrayXd exponents_by_rank(const Eigen::ArrayXd& p, Alpha alpha) {
  std::vector<Index> order(static_cast<std::size_t>(p.size()));
  std::iota(order.begin(), order.end(), Index(0));
  std::stable_sort(order.begin(), order.end(), [&](Index i, Index j) { return p[i] < p[j]; });
  Eigen::ArrayXd sorted(p.size()), exponents(p.size());
  for (Index k = 0; k < p.size(); ++k) sorted[k] = p[order[static_cast<std::size_t>(k)]];
  for (Index k = 0; k < p.size(); ++k) exponents[order[static_cast<std::size_t>(k)]] = alpha(k, sorted);
  return exponents;
}

}  // namespace detail

/// The plain baselines: static decays.
struct NoTaper {
  Eigen::ArrayXd exponents(const Eigen::ArrayXd& log_rates) const {
    return Eigen::ArrayXd::Zero(log_rates.size());
  }
};

/// The slowest channel is stretched in proportion to t, the fastest is left alone.
struct LinearTaper {
  Eigen::ArrayXd exponents(const Eigen::ArrayXd& log_rates) const {
    return detail::exponents_by_rank(log_rates, [](Index k, const Eigen::ArrayXd& p) {
      const Index n = p.size();
      return n == 1 ? 0.0 : static_cast<double>(n - 1 - k) / static_cast<double>(n - 1);
    });
  }
};

/// Follows the spectrum as it is learned: at t = T_ref the effective log-rates are evenly spaced
/// wherever the clamp does not act ("analytical" in the published code).
class GapAwareTaper {
 public:
  /// @param reference_length T_ref > 1, the training length in tokens.
  explicit GapAwareTaper(double reference_length) : reference_length_(reference_length) {
    if (!(reference_length > 1) || !std::isfinite(reference_length))
      throw ValueError(message("reference_length: expected a finite number > 1, got ", reference_length));
  }

  /// @throws ValueError if a log-rate is not finite.
  Eigen::ArrayXd exponents(const Eigen::ArrayXd& log_rates) const {
    for (Index k = 0; k < log_rates.size(); ++k)
      if (!std::isfinite(log_rates[k]))
        throw ValueError(message("log_rates[", k, "]: expected a finite number, got ", log_rates[k]));
    return detail::exponents_by_rank(log_rates, [this](Index k, const Eigen::ArrayXd& p) {
      const Index n = p.size();
      if (n == 1) return 0.0;
      const double part = static_cast<double>(k) / static_cast<double>(n - 1);
      const double excess = (p[k] - p[0]) - part * (p[n - 1] - p[0]);
      return std::clamp(1 - part + excess / std::log(reference_length_), 0.0, 1.0);
    });
  }

  double reference_length() const { return reference_length_; }

 private:
  double reference_length_;
};

/// Exponents that fall from 1 to 0 by learned steps.
class LearnedTaper {
 public:
  /// @param logits [N - 1]; empty for N = 1.
  explicit LearnedTaper(Eigen::ArrayXd logits) : logits_(std::move(logits)) {
    for (Index k = 0; k < logits_.size(); ++k)
      if (!std::isfinite(logits_[k]))
        throw ValueError(message("alpha_logits[", k, "]: expected a finite number, got ", logits_[k]));
  }

  /// @throws ShapeError if the spectrum does not have one channel more than there are logits.
  Eigen::ArrayXd exponents(const Eigen::ArrayXd& log_rates) const {
    const Index n = log_rates.size();
    if (n != logits_.size() + 1)
      throw ShapeError(message("alpha_logits: expected N - 1 = ", n - 1, " entries, got ", logits_.size()));
    if (n == 1) return Eigen::ArrayXd::Zero(1);
    // Sums from the fast end, so that small exponents keep their relative accuracy.
    const Eigen::ArrayXd weight = (logits_ - logits_.maxCoeff()).exp();
    Eigen::ArrayXd by_rank(n);
    by_rank[n - 1] = 0;
    for (Index k = n - 1; k-- > 0;) by_rank[k] = by_rank[k + 1] + weight[k];
    by_rank /= double(by_rank[0]);
    return detail::exponents_by_rank(log_rates, [&](Index k, const Eigen::ArrayXd&) { return by_rank[k]; });
  }

  const Eigen::ArrayXd& logits() const { return logits_; }

 private:
  Eigen::ArrayXd logits_;
};

/// Exponents that come from elsewhere, one a channel.
class GivenTaper {
 public:
  /// @param exponents alpha [N], each in [0, 1].
  explicit GivenTaper(Eigen::ArrayXd exponents) : exponents_(std::move(exponents)) {
    for (Index k = 0; k < exponents_.size(); ++k)
      if (!(exponents_[k] >= 0 && exponents_[k] <= 1))
        throw ValueError(message("alpha[", k, "]: expected a number in [0, 1], got ", exponents_[k]));
  }

  /// @throws ShapeError if the spectrum has another number of channels.
  Eigen::ArrayXd exponents(const Eigen::ArrayXd& log_rates) const {
    if (log_rates.size() != exponents_.size())
      throw ShapeError(
          message("alpha: expected N = ", log_rates.size(), " entries, got ", exponents_.size()));
    return exponents_;
  }

 private:
  Eigen::ArrayXd exponents_;
};

/// The exponents that a kernel uses; refuses what is no taper policy with a sentence.
/// @throws ShapeError if the taper does not give one exponent a channel, ValueError if one is not in [0, 1].
template <class Policy>
Eigen::ArrayXd exponents_of(const Policy& taper, const Eigen::ArrayXd& log_rates) {
  static_assert(
      TaperPolicy<Policy>,
      "linrec: a taper policy needs the member 'Eigen::ArrayXd exponents(const Eigen::ArrayXd& "
      "log_rates) const', the exponents alpha_k in [0, 1], one a channel (linrec/policy/taper.hpp)");
  if constexpr (TaperPolicy<Policy>) {
    Eigen::ArrayXd exponents = taper.exponents(log_rates);
    if (exponents.size() != log_rates.size())
      throw ShapeError(
          message("taper: expected one exponent a channel, ", log_rates.size(), ", got ", exponents.size()));
    return GivenTaper(std::move(exponents)).exponents(log_rates);
  }
}

/// t^(-alpha), the factor on a log-decay at position t >= 1.
inline double position_scale(double alpha, double t) { return std::exp(-alpha * std::log(t)); }

/// RWKV-7's form of the taper, inside the sigmoid:
///   log w_eff = -exp(-1/2) sigmoid(logit - alpha log t),   logit = w0 + content,
/// with alpha taken from the log-rates p_k = log_sigmoid(w0_k).
inline double rwkv7_log_decay(double logit, double alpha, double t) {
  return -std::exp(-0.5) * sigmoid(logit - alpha * std::log(t));
}

}  // namespace linrec
