// HeadDecay: a spectrum and a taper, made into one rate per head and token:
//   rate = lambda_h t^(-alpha_h) = exp(p_h - alpha_h log t).
#pragma once

#include <cmath>
#include <concepts>

#include "linrec/kernels/law.hpp"
#include "linrec/policy/spectrum.hpp"
#include "linrec/policy/taper.hpp"

namespace linrec {

/// Numbers of a block, one a token, as whole cache lines.
struct alignas(cache_line) PerToken {
  double at[block_tokens];
  double& operator[](Index i) { return at[i]; }
  double operator[](Index i) const { return at[i]; }

  /// Replaces x by f(x, offset) for the first n tokens; x is an Eigen array of fixed size.
  template <class F>
  void transform(Index n, F&& f) {
    transform_padded(at, n, f);
  }
};

/// log t of the tokens of a segment, computed in double.
inline void log_positions(const Segment& segment, PerToken& log_t) noexcept {
  for (Index i = 0; i < padded<double>(segment.count); ++i)
    log_t[i] = static_cast<double>(segment.position + 1 + i);
  log_t.transform(segment.count, [](const auto& t, Index) { return t.log(); });
}

/// The table of rates of a kernel with one decay a head.
template <class Taper>
class HeadDecay {
 public:
  static constexpr bool tapered = !std::same_as<Taper, NoTaper>;

  /// @throws ShapeError if the spectrum does not have one channel a head.
  template <class Spectrum>
  HeadDecay(Index heads, const Spectrum& spectrum, const Taper& taper) : log_rates_(spectrum.log_rates()) {
    require_spectrum_policy<Spectrum>();
    require_taper_policy<Taper>();
    if (log_rates_.size() != heads)
      throw ShapeError(message("spectrum: expected one channel a head, ", heads, ", got ", log_rates_.size()));
    if constexpr (tapered) exponents_ = checked_exponents(taper, log_rates_);
    rates_ = log_rates_.exp();
  }

  /// Fills rates with the rate of each token of the segment.
  void fill(const Segment& segment, PerToken& rates) const noexcept {
    if constexpr (tapered) {
      log_positions(segment, rates);
      const double p = log_rates_[segment.head], alpha = exponents_[segment.head];
      rates.transform(segment.count, [&](const auto& log_t, Index) { return (p - alpha * log_t).exp(); });
    } else {
      for (Index i = 0; i < padded<double>(segment.count); ++i) rates[i] = rates_[segment.head];
    }
  }

 private:
  Eigen::ArrayXd log_rates_, exponents_, rates_;
};

}  // namespace linrec
