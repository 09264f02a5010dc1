// Spectrum policies: N log-decay rates p_k from free parameters; the rates are lambda_k = exp(p_k).
//
//   FreeSpectrum   p_k are the parameters themselves (the plain baselines)
//   PostSpectrum   p_1 = theta,  p_k = p_{k-1} + softplus(delta_{k-1})        PoST, arXiv 2604.07658
//
// A spectrum policy is any type with `log_rates() const`, an Eigen::ArrayXd of N numbers. The tables
// are built once, in double; kernels read them when they are constructed.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

#include "linrec/core/activation.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

template <class Policy>
concept SpectrumPolicy = requires(const Policy& policy) {
  { policy.log_rates() } -> std::convertible_to<Eigen::ArrayXd>;
};

/// The rates without any structure. N >= 1.
class FreeSpectrum {
 public:
  /// @param log_rates p [N].
  /// -inf is a rate of 0: such a channel never decays.
  /// @throws ShapeError if it is empty, ValueError if an entry is NaN or +inf.
  explicit FreeSpectrum(Eigen::ArrayXd log_rates) : log_rates_(std::move(log_rates)) {
    if (log_rates_.size() < 1) throw ShapeError("log_rates: expected at least 1 rate, got 0");
    for (Index k = 0; k < log_rates_.size(); ++k)
      if (!(log_rates_[k] < std::numeric_limits<double>::infinity()))
        throw ValueError(
            message("log_rates[", k, "]: expected a number below infinity, got ", log_rates_[k]));
  }

  /// From the rates lambda [N], each finite and at least 0; for Mamba-2 these are -A.
  static FreeSpectrum from_rates(const Eigen::ArrayXd& rates) {
    for (Index k = 0; k < rates.size(); ++k)
      if (!(rates[k] >= 0) || !std::isfinite(rates[k]))
        throw ValueError(message("rates[", k, "]: expected a finite number of at least 0, got ", rates[k]));
    return FreeSpectrum(rates.unaryExpr([](double rate) { return std::log(rate); }));
  }

  /// All rates 1: a kernel whose log-decays are inputs leaves them as they come.
  static FreeSpectrum unit(Index channels) { return FreeSpectrum(Eigen::ArrayXd::Zero(channels)); }

  const Eigen::ArrayXd& log_rates() const { return log_rates_; }

 private:
  Eigen::ArrayXd log_rates_;
};

/// Rates that are ordered by construction: channel 1 is the slowest, and each gap is a softplus, which is
/// positive whatever an optimiser does to theta and delta (as far as the sum has digits for it) (arXiv
/// 2604.07658, spectral reparameterization).
class PostSpectrum {
 public:
  /// @param theta p_1.
  /// @param delta [N - 1], the gaps before softplus; empty for N = 1.
  /// @throws ValueError if a parameter is not finite.
  PostSpectrum(double theta, Eigen::ArrayXd delta) : theta_(theta), delta_(std::move(delta)) {
    if (!std::isfinite(theta_)) throw ValueError(message("theta: expected a finite number, got ", theta_));
    log_rates_.resize(delta_.size() + 1);
    log_rates_[0] = theta_;
    for (Index k = 0; k < delta_.size(); ++k) {
      if (!std::isfinite(delta_[k]))
        throw ValueError(message("delta[", k, "]: expected a finite number, got ", delta_[k]));
      log_rates_[k + 1] = log_rates_[k] + softplus(delta_[k]);
      if (!std::isfinite(log_rates_[k + 1]))
        throw ValueError(message("delta[", k, "]: expected a finite sum of gaps, got ", delta_[k]));
    }
  }

  /// The parameters that give the wanted log-rates p [N], which must increase strictly.
  /// @throws ShapeError if p is empty, ValueError if it does not increase.
  static PostSpectrum from_log_rates(const Eigen::ArrayXd& p) {
    return invert(p, [](double gap) { return softplus_inverse(gap); });
  }

  /// As from_log_rates, but with the inverse that the published code uses, log(e^gap - 1 + 1e-6).
  /// It misses the wanted rates by about 1e-6, and reproduces published initial weights.
  static PostSpectrum from_log_rates_as_released(const Eigen::ArrayXd& p) {
    return invert(p, [](double gap) { return std::log(std::exp(gap) - 1 + 1e-6); });
  }

  double theta() const { return theta_; }
  const Eigen::ArrayXd& delta() const { return delta_; }
  const Eigen::ArrayXd& log_rates() const { return log_rates_; }

 private:
  template <class Inverse>
  static PostSpectrum invert(const Eigen::ArrayXd& p, Inverse inverse) {
    if (p.size() < 1) throw ShapeError("log_rates: expected at least 1 rate, got 0");
    if (!std::isfinite(p[0])) throw ValueError(message("log_rates[0]: expected a finite number, got ", p[0]));
    Eigen::ArrayXd delta(p.size() - 1);
    for (Index k = 0; k + 1 < p.size(); ++k) {
      if (!(p[k + 1] > p[k]))
        throw ValueError(message("log_rates[", k + 1, "]: expected more than log_rates[", k, "] = ", p[k],
                                 ", got ", p[k + 1]));
      delta[k] = inverse(p[k + 1] - p[k]);
    }
    return PostSpectrum(p[0], std::move(delta));
  }

  double theta_;
  Eigen::ArrayXd delta_;
  Eigen::ArrayXd log_rates_;
};

/// The log-rates that a kernel uses; refuses what is no spectrum policy with a sentence.
template <class Policy>
Eigen::ArrayXd log_rates_of(const Policy& spectrum) {
  static_assert(
      SpectrumPolicy<Policy>,
      "linrec: a spectrum policy needs the member 'Eigen::ArrayXd log_rates() const', its log-decay "
      "rates p_k, one a channel (linrec/policy/spectrum.hpp)");
  if constexpr (SpectrumPolicy<Policy>) return spectrum.log_rates();
}

}  // namespace linrec
