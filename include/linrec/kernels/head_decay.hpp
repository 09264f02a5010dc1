// HeadDecay: a spectrum and a taper, made into one rate per head and token:
//   rate = lambda_h t^(-alpha_h) = exp(p_h - alpha_h log t).
#pragma once

#include <cmath>
#include <concepts>

#include "linrec/kernels/law.hpp"
#include "linrec/policy/spectrum.hpp"
#include "linrec/policy/taper.hpp"

namespace linrec {

/// The table of rates of a kernel with one decay a head.
template <class Taper>
class HeadDecay {
 public:
  static constexpr bool tapered = !std::same_as<Taper, NoTaper>;

  /// @throws ShapeError if the spectrum does not have one channel a head.
  template <class Spectrum>
  HeadDecay(Index heads, const Spectrum& spectrum, const Taper& taper) : log_rates_(log_rates_of(spectrum)) {
    if (log_rates_.size() != heads)
      throw ShapeError(message("spectrum: expected one channel a head, ", heads, ", got ", log_rates_.size()));
    if constexpr (tapered) exponents_ = exponents_of(taper, log_rates_);
    rates_ = log_rates_.exp();
  }

  /// Fills rates with the rate of each token of the segment.
  void fill(const Segment& segment, PerToken& rates) const noexcept {
    if constexpr (tapered) {
      using Line = Eigen::Array<double, static_cast<int>(Lanes<double>::size), 1>;
      const double p = log_rates_[segment.head], alpha = exponents_[segment.head];
      rates.transform(segment.count, [&](const auto&, Index i) {
        return (p - alpha * Eigen::Map<const Line, Eigen::Aligned64>(segment.log_t + i)).exp();
      });
    } else {
      for (Index i = 0; i < padded<double>(segment.count); ++i) rates[i] = rates_[segment.head];
    }
  }

 private:
  Eigen::ArrayXd log_rates_, exponents_, rates_;
};

}  // namespace linrec
