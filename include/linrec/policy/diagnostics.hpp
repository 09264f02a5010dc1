// What a decay spectrum can remember: gaps, channels in use, impulse response, power-law error.
// Arguments: log_rates p [N] of a spectrum policy, exponents alpha [N] of a taper policy (see
// spectrum.hpp, taper.hpp; NoTaper gives zeros), positions t = 1, 2, ...  Source: arXiv 2604.07658.
#pragma once

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "linrec/core/types.hpp"

namespace linrec {

/// The smallest distance between two log-rates; infinity for N = 1. Random spectra have it of order N^-2.
inline double smallest_gap(Eigen::ArrayXd log_rates) {
  std::sort(log_rates.begin(), log_rates.end());
  double gap = std::numeric_limits<double>::infinity();
  for (Index k = 1; k < log_rates.size(); ++k) gap = std::min(gap, log_rates[k] - log_rates[k - 1]);
  return gap;
}

/// p_k - alpha_k log t [N]: the logarithms of the rates in force at position t.
inline Eigen::ArrayXd effective_log_rates(const Eigen::ArrayXd& log_rates, const Eigen::ArrayXd& exponents,
                                          double t) {
  if (log_rates.size() != exponents.size())
    throw ShapeError(
        message("exponents: expected N = ", log_rates.size(), " entries, got ", exponents.size()));
  if (!(t >= 1)) throw ValueError(message("t: expected a position of at least 1, got ", t));
  return log_rates - exponents * std::log(t);
}

/// How many channels have a time constant 1/rate of at most t: the others have not yet forgotten
/// anything at position t, and cannot be told apart. A static geometric spectrum from 1/T to 1 has
/// N log t / log T of them.
inline Index channels_in_use(const Eigen::ArrayXd& log_rates, const Eigen::ArrayXd& exponents, double t) {
  // The end of a geometric range sits on the border; rounding must not decide.
  constexpr double slack = 1e-9;
  return (effective_log_rates(log_rates, exponents, t) + std::log(t) >= -slack).count();
}

/// What is left at position t of a token written at position s <= t, [N]: exp(-sum_{s < u <= t} rate_k(u)).
/// For alpha = 1 it is (s/t)^lambda up to terms of order 1/s. O(t - s).
inline Eigen::ArrayXd impulse_response(const Eigen::ArrayXd& log_rates, const Eigen::ArrayXd& exponents,
                                       std::int64_t s, std::int64_t t) {
  if (s < 1 || t < s) throw ValueError(message("s, t: expected 1 <= s <= t, got ", s, ", ", t));
  Eigen::ArrayXd decay = Eigen::ArrayXd::Zero(log_rates.size());
  for (std::int64_t u = s + 1; u <= t; ++u)
    decay += effective_log_rates(log_rates, exponents, static_cast<double>(u)).exp();
  return (-decay).exp();
}

/// Relative root mean square error of the best fit of t^-beta on [1, T] by a combination of the N
/// exponentials exp(-lambda_k t), over 64 points an e-fold, evenly spaced in log t.
template <class LogRates>
double power_law_error(const Eigen::ArrayBase<LogRates>& log_rates, double beta, double T) {
  if (!(T > 1)) throw ValueError(message("T: expected more than 1, got ", T));
  const Index points = std::max<Index>(2, static_cast<Index>(64 * std::log(T)));
  const Eigen::ArrayXd t = Eigen::ArrayXd::LinSpaced(points, 0, std::log(T)).exp();
  const Eigen::VectorXd weight = t.pow(beta).matrix();  // the relative error at each t
  Eigen::MatrixXd basis(points, log_rates.size());
  for (Index k = 0; k < log_rates.size(); ++k) basis.col(k) = (-t * std::exp(log_rates[k])).exp().matrix();
  basis = weight.asDiagonal() * basis;
  const Eigen::VectorXd target = Eigen::VectorXd::Ones(points);
  const Eigen::VectorXd residual = basis * basis.colPivHouseholderQr().solve(target) - target;
  return residual.norm() / std::sqrt(static_cast<double>(points));
}

}  // namespace linrec
