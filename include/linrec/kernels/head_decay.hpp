// HeadDecay: a spectrum and a taper, made into one rate per head and token:
//   rate = lambda_h t^(-alpha_h) = exp(p_h - alpha_h log t).
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

#include "linrec/kernels/law.hpp"
#include "linrec/policy/spectrum.hpp"
#include "linrec/policy/taper.hpp"

namespace linrec {

/// A kernel whose decays are inputs can be made without naming its policies.
template <class Spectrum, class Taper>
concept DefaultPolicies = std::same_as<Spectrum, FreeSpectrum> && std::default_initializable<Taper>;

/// The table of rates of a kernel with one decay a head.
template <class Taper>
class HeadDecay {
 public:
  static constexpr bool tapered = !std::same_as<Taper, NoTaper>;

  /// @throws ShapeError if the spectrum does not have one channel a head.
  template <class Spectrum>
  HeadDecay(Index heads, const Spectrum& spectrum, const Taper& taper) : log_rates_(log_rates_of(spectrum)) {
    if (log_rates_.size() != heads)
      throw ShapeError(
          message("spectrum: expected one channel a head, ", heads, ", got ", log_rates_.size()));
    if constexpr (tapered) exponents_ = exponents_of(taper, log_rates_);
    rates_ = log_rates_.unaryExpr([](double p) { return std::min(std::exp(p), highest); });
  }

  /// Fills rates with the rate of each token of the segment.
  void fill(const Segment& segment, PerToken& rates) const noexcept {
    if constexpr (tapered) {
      using Line = Eigen::Array<double, static_cast<int>(Lanes<double>::size), 1>;
      const double p = log_rates_[segment.head], alpha = exponents_[segment.head];
      rates.transform(segment.count, [&](const auto&, Index i) {
        return p - alpha * Eigen::Map<const Line, Eigen::Aligned64>(segment.log_t + i);
      });
      exp_padded(rates.at, segment.count);
      rates.transform(segment.count, [](const auto& rate, Index) { return rate.min(highest); });
    } else {
      rates.fill(segment.count, rates_[segment.head]);
    }
  }

 private:
  /// A rate that overflows must not become NaN where the gate of a token is 0.
  static constexpr double highest = std::numeric_limits<double>::max();

  Eigen::ArrayXd log_rates_, exponents_, rates_;
};

}  // namespace linrec
