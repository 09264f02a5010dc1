// Spectral Koopman MLP, the feed-forward layer of Echo (arXiv 2605.06997): channels are lifted to d_k
// observables, which a block-diagonal Koopman operator moves in pairs.
//   u = silu(W_lift x)                                                [d_k]
//   z_{2i}   = gamma_i u_{2i}   + omega_i u_{2i+1}
//   z_{2i+1} = gamma_i u_{2i+1} - omega_i u_{2i}                      i = 0 ... d_k/2 - 1
//   z = z sigmoid(W_gate x)                                           if gated
//   out = W_readout z                                                 [D]
// With u_{2i} + i u_{2i+1} as a complex number, z is u times gamma_i - i omega_i: a pair is turned and scaled
// by the modulus sqrt(gamma_i^2 + omega_i^2), which is limited once, in double, when the layer is made. The
// residual and the layer norm of x are the model's, as for every MLP here.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>

#include "linrec/core/aligned.hpp"
#include "linrec/layers/layer_checks.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/norm.hpp"

namespace linrec {

/// What the modulus of a pair, sqrt(gamma^2 + omega^2), may be.
enum class KoopmanModulus {
  disk,    ///< at most 1, as published: no pair grows
  circle,  ///< exactly 1: pairs are only turned, and keep their norm
  free     ///< as the parameters have it
};

/// gamma + i omega within the limits of the modulus. The direction stays; 0, which has none, becomes 1 on
/// the circle. Holds for all finite parameters, however large or small.
inline std::complex<double> koopman_eigenvalue(KoopmanModulus modulus, double gamma, double omega) {
  const bool as_it_is =
      modulus == KoopmanModulus::free || (modulus == KoopmanModulus::disk && !(std::hypot(gamma, omega) > 1));
  if (as_it_is) return {gamma, omega};
  const double largest = std::max(std::abs(gamma), std::abs(omega));
  if (largest == 0) return 1;
  gamma /= largest, omega /= largest;  // so that the modulus neither overflows nor loses digits
  const double length = std::hypot(gamma, omega);
  return {gamma / length, omega / length};
}

/// The d_k of the published models: 8/3 D, rounded up to a multiple of 64.
constexpr Index koopman_hidden_width(Index width) { return (width + 23) / 24 * 64; }

struct SpectralKoopmanMLPConfig {
  Index width = 0;     ///< D, of the layer's inputs and outputs
  Index hidden = 0;    ///< d_k, even
  bool gated = false;  ///< whether there is a gate before the readout
  KoopmanModulus modulus = KoopmanModulus::disk;
};

template <class Scalar>
struct SpectralKoopmanMLPWeights {
  Parameter<Scalar> lift;          ///< [d_k, D]
  Parameter<Scalar> gamma, omega;  ///< [d_k / 2]
  Parameter<Scalar> readout;       ///< [D, d_k]
  Parameter<Scalar> gate;          ///< [d_k, D], of a gated layer
};

/// Remembers nothing, and so is no Layer: a row of its outputs [n, D] depends on one row of its inputs.
///
/// @tparam Scalar_ float or double.
template <class Scalar_>
class SpectralKoopmanMLP {
 public:
  using Scalar = Scalar_;
  using Config = SpectralKoopmanMLPConfig;
  using Weights = SpectralKoopmanMLPWeights<Scalar>;

  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError, naming the
  /// field or the number, for a bad config or a gamma or omega that is not finite.
  SpectralKoopmanMLP(const Config& config, const Weights& weights)
      : config_(checked(config)),
        lift_("lift", config.hidden, config.width, weights.lift),
        readout_("readout", config.width, config.hidden, weights.readout) {
    if (config.gated)
      gate_ = Linear<Scalar>("gate", config.hidden, config.width, weights.gate);
    else
      check_absent("gate.weight", weights.gate);
    const Eigen::ArrayXd gamma = numbers("gamma", weights.gamma), omega = numbers("omega", weights.omega);
    for (Index i = 0; i < config.hidden / 2; ++i)
      factors_.push_back(
          std::complex<Scalar>(std::conj(koopman_eigenvalue(config.modulus, gamma[i], omega[i]))));
  }

  const Config& config() const { return config_; }
  Index width() const { return config_.width; }
  Index scratch_size(Index rows) const {
    Arena<Scalar> arena;
    [[maybe_unused]] const Buffers buffers(arena, *this, rows);
    return arena.used();
  }

  /// y may be x.
  void apply(Rows<const Scalar> x, Rows<Scalar> y, Scalar* scratch, const ExecutorRef& executor = {}) const {
    Arena<Scalar> arena(scratch, 1);
    const Buffers b(arena, *this, x.count);
    lift_.apply(x, b.hidden, executor);
    map_rows(b.hidden, [](const auto& u) LINREC_INLINE_LAMBDA { return silu_packet(u); });
    rotate(b.hidden);
    if (config_.gated) {
      gate_.apply(x, b.gate, executor);
      multiply_by_sigmoid(b.gate, b.hidden);
    }
    readout_.apply(b.hidden, y, executor);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const SpectralKoopmanMLP& mlp, Index rows)
        : hidden(arena.rows(rows, mlp.config_.hidden)),
          gate(mlp.config_.gated ? arena.rows(rows, mlp.config_.hidden) : Rows<Scalar>()) {}
    Rows<Scalar> hidden, gate;
  };

  static const Config& checked(const Config& config) {
    check_size("width", config.width);
    if (config.hidden < 2 || config.hidden % 2 != 0)
      throw ValueError(message("hidden: expected an even number of at least 2, got ", config.hidden));
    return config;
  }
  Eigen::ArrayXd numbers(const std::string& name, const Parameter<Scalar>& parameter) const {
    parameter.check(name, {config_.hidden / 2});
    const Eigen::ArrayXd numbers = parameter.to_double();
    for (Index i = 0; i < numbers.size(); ++i)
      if (!std::isfinite(numbers[i]))
        throw ValueError(message(name, "[", i, "]: expected a finite number, got ", numbers[i]));
    return numbers;
  }

  /// Pairs of neighbours as complex numbers, which packets multiply as such. One body for all callers, for
  /// their products are not explicit multiply-adds.
  EIGEN_DONT_INLINE void rotate(Rows<Scalar> u) const noexcept {
    using Complex = std::complex<Scalar>;
    for (Index i = 0; i < u.count; ++i) {
      Complex* const pairs = reinterpret_cast<Complex*>(u[i]);
      map_packets(
          u.width / 2, pairs,
          [](const auto& a, const auto& b) LINREC_INLINE_LAMBDA { return Eigen::internal::pmul(a, b); },
          static_cast<const Complex*>(pairs), factors_.data());
    }
  }

  /// z = z sigmoid(g)
  static void multiply_by_sigmoid(Rows<const Scalar> g, Rows<Scalar> z) noexcept {
    for (Index i = 0; i < z.count; ++i)
      map_packets(
          z.width, z[i],
          [](const auto& a, const auto& b)
              LINREC_INLINE_LAMBDA { return Eigen::internal::pmul(a, sigmoid_packet(b)); },
          static_cast<const Scalar*>(z[i]), g[i]);
  }

  Config config_;
  Linear<Scalar> lift_, gate_, readout_;
  AlignedVector<std::complex<Scalar>> factors_;  ///< gamma - i omega
};

}  // namespace linrec
