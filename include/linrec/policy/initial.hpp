// Initial log-rates p_1 <= ... <= p_N, the slowest channel first.
//
//   geometric   evenly spaced in p: the optimal spacing (arXiv 2604.07658)
//   linear      evenly spaced in lambda, as S4D-Real and HiPPO have it (arXiv 2206.11893)
//   random      log-uniform, sorted: for comparison; its smallest gap is of order N^-2
//
// and the starting points of the PoST models of the five architectures.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "linrec/core/activation.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

namespace detail {

inline void check_rate_range(Index channels, double slowest, double fastest) {
  if (channels < 1) throw ValueError(message("channels: expected at least 1, got ", channels));
  if (!(slowest > 0) || !std::isfinite(slowest))
    throw ValueError(message("slowest: expected a finite rate > 0, got ", slowest));
  if (!(fastest >= slowest) || !std::isfinite(fastest))
    throw ValueError(message("fastest: expected a finite rate of at least ", slowest, ", got ", fastest));
}

inline void check_positive(const char* name, double x) {
  if (!(x > 0) || !std::isfinite(x))
    throw ValueError(message(name, ": expected a finite number > 0, got ", x));
}

/// N numbers from first to last; N = 1 gives the first.
inline Eigen::ArrayXd evenly_spaced(Index n, double first, double last) {
  Eigen::ArrayXd x(n);
  for (Index k = 0; k < n; ++k)
    x[k] = k == 0 ? first : first + (last - first) * (static_cast<double>(k) / static_cast<double>(n - 1));
  return x;
}

}  // namespace detail

/// Log-rates evenly spaced from log(slowest) to log(fastest).
inline Eigen::ArrayXd geometric_log_rates(Index channels, double slowest, double fastest) {
  detail::check_rate_range(channels, slowest, fastest);
  return detail::evenly_spaced(channels, std::log(slowest), std::log(fastest));
}

/// Logarithms of rates evenly spaced from slowest to fastest.
inline Eigen::ArrayXd linear_log_rates(Index channels, double slowest, double fastest) {
  detail::check_rate_range(channels, slowest, fastest);
  return detail::evenly_spaced(channels, slowest, fastest).log();
}

/// Log-uniform draws from [slowest, fastest], sorted. The same seed gives the same rates everywhere.
inline Eigen::ArrayXd random_log_rates(Index channels, double slowest, double fastest, std::uint64_t seed) {
  detail::check_rate_range(channels, slowest, fastest);
  std::mt19937_64 bits(seed);  // the engine is portable, std's distributions are not
  Eigen::ArrayXd p(channels);
  for (Index k = 0; k < channels; ++k) {
    const double uniform = static_cast<double>(bits() >> 11) * 0x1p-53;
    p[k] = std::log(slowest) + uniform * (std::log(fastest) - std::log(slowest));
  }
  std::sort(p.begin(), p.end());
  return p;
}

/// PoST Mamba-2: log A from rates 1/(T dt) to 1/dt, so that dt A spans 1/T to 1.
inline Eigen::ArrayXd mamba2_initial_log_rates(Index heads, double train_length, double base_dt) {
  detail::check_positive("train_length", train_length);
  detail::check_positive("base_dt", base_dt);
  return geometric_log_rates(heads, 1 / (train_length * base_dt), 1 / base_dt);
}

/// PoST Gated DeltaNet: log A from rates 1 to T.
inline Eigen::ArrayXd gated_delta_net_initial_log_rates(Index heads, double train_length) {
  detail::check_positive("train_length", train_length);
  return geometric_log_rates(heads, 1, train_length);
}

/// PoST GLA: log A from rates 1 to 16.
inline Eigen::ArrayXd gla_initial_log_rates(Index heads) { return geometric_log_rates(heads, 1, 16); }

/// PoST RWKV-7: base logits w0 from the one whose log-decay is -1/T to 0.5.
inline Eigen::ArrayXd rwkv7_initial_logits(Index channels, double train_length) {
  const double slowest = 1 / (std::exp(-0.5) * train_length);
  if (!(slowest > 0 && slowest < 1))
    throw ValueError(message("train_length: expected a finite number > exp(1/2), got ", train_length));
  detail::check_rate_range(channels, slowest, 1);
  return detail::evenly_spaced(channels, std::log(slowest) - std::log1p(-slowest), 0.5);
}

/// The dt bias whose softplus is base_dt.
inline double dt_bias_for(double base_dt) {
  detail::check_positive("base_dt", base_dt);
  return softplus_inverse(base_dt);
}

}  // namespace linrec
