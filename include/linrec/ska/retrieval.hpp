// Spectral Koopman attention: retrieval by streaming ridge regression (Echo, arXiv 2605.06997). For each
// head, with keys k_t = z_t [r], queries q_t = u_t [r], values v_t [P], weights m_t and the sums G, M, Cv of
// statistics.hpp,
//
//   G~ = G + eps m^2 I = L L^T          m: the key scale (KeyScale), 1 without one
//   A_w = L^-1 M L^-T                   the whitened Koopman operator, sigma = sigma_max(A_w)
//   A = g / max(1, sigma) A_w           g: gamma clamped to [1, 1.5]
//   y_t = eta Cv G~^-1 L A^K L^-1 u_t   K = 0: ridge regression
//
// Nothing but vectors goes through these matrices: O(K r^2 + r P) a query, and O(r^2 + r P) a token, as L is
// kept up to date (factor.hpp). All arithmetic is in double precision, whatever the inputs are: with keys
// that do not span the space and a small eps, single precision loses the answer.
//
// sigma is at most 1 wherever M is a shift inside G, so spectral normalisation cannot act on the whitened
// operator: with Z the keys times the roots of their weights, A_w = (L^-1 Z) N (L^-1 Z)^T, and neither
// |L^-1 Z| nor |N|, a shift times numbers in [0, 1], is above 1. It is estimated only for M G~^-1, and where
// M has a product that G has not (boundary_transition).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cmath>
#include <limits>
#include <string>

#include "linrec/core/executor.hpp"
#include "linrec/core/input_checks.hpp"
#include "linrec/core/prefill_options.hpp"
#include "linrec/ska/config.hpp"
#include "linrec/ska/state.hpp"

namespace linrec {

/// Views [B, T, H, ...].
template <class Scalar>
struct SpectralKoopmanAttentionInputs {
  TokenView<const Scalar> q = {}, k = {};  ///< queries and keys [B, T, H, r]
  TokenView<const Scalar> v = {};          ///< values [B, T, H, P]
  TokenView<const Scalar> weights = {};    ///< [B, T, 1], from 0 to 1; absent: all 1
};

/// Immutable, and may be used by any number of threads at once.
/// @tparam Scalar float or double, of inputs and outputs.
template <class Scalar_>
class SpectralKoopmanAttention {
 public:
  using Scalar = Scalar_;
  using Config = SpectralKoopmanAttentionConfig;
  using Inputs = SpectralKoopmanAttentionInputs<Scalar>;
  using State = SkaState;
  using Input = TokenView<const Scalar>;
  using Output = TokenView<Scalar>;

  /// @throws ValueError naming the field.
  explicit SpectralKoopmanAttention(const Config& config) : config_(detail::checked(config)) {
    gain_ = std::clamp(config.gamma, 1.0, 1.5);
    estimates_sigma_ = config.power > 0 && (config.koopman_operator == KoopmanOperator::unwhitened ||
                                            (sees_chunks() && config.boundary_transition));
  }

  const Config& config() const { return config_; }
  SkaShape state_shape() const {
    return {config_.heads, config_.key, config_.value, config_.key_scale, sees_chunks() ? config_.chunk : 0};
  }
  /// Empty states at position 0.
  State initial_state(Index sequences = 1) const { return State(state_shape(), sequences); }

  /// Checks what prefill checks, or, without outputs, what absorb checks. Changes nothing.
  /// @throws ShapeError, ValueError naming the tensor, what was expected and what came: shapes; NaN,
  ///   infinities and numbers above 1e140; weights that are not in [0, 1].
  void validate(const Inputs& inputs, const State& state, const SequenceLayout& layout = {}) const {
    const Index batch = inputs.k.batch(), tokens = inputs.k.tokens();
    check_shape("k", inputs.k, {batch, tokens, config_.heads, config_.key});
    check_shape("v", inputs.v, {batch, tokens, config_.heads, config_.value});
    if (has_weights(inputs)) check_shape("weights", inputs.weights, {batch, tokens, 1, 1});
    check_state(state, layout, batch, tokens);
    for_each_run(state, layout, tokens, [&](const TokenRun& run) {
      check_ska_numbers("k", inputs.k, run);
      check_ska_numbers("v", inputs.v, run);
      if (has_weights(inputs))
        check_each("weights", inputs.weights, run, "0 to 1", [](Scalar x) { return x >= 0 && x <= 1; });
    });
  }
  void validate(const Inputs& inputs, const State& state, const Output& y,
                const SequenceLayout& layout = {}) const {
    check_shape("q", inputs.q, {inputs.k.batch(), inputs.k.tokens(), config_.heads, config_.key});
    validate(inputs, state, layout);
    validate_read(inputs.q, state, y, layout);
  }

  /// Takes in many tokens and writes what each retrieves, y [B, T, H, P]. However a sequence is split, every
  /// bit is the same. Allocates only through the workspace. y must not overlap the inputs.
  /// Returns whether there was an answer to every query: where a G~ is not positive definite in double
  /// precision, its ridge being too small for the keys, the outputs are 0; where it is not finite, which only
  /// unchecked inputs can bring about, they are NaN. The state counts both.
  /// @throws as validate, before the state or an output changes.
  template <Executor E = SerialExecutor>
  bool prefill(const Inputs& inputs, State& state, const Output& y, const PrefillOptions& options = {},
               const E& executor = {}) const {
    validate(inputs, state, y, options.layout);
    const ExecutorRef workers = executor;
    Workspace own;
    return run(inputs, state, y, options.layout, reserved(options, own, workers), workers);
  }

  /// The same for one token of each of B sequences, all tensors [B, 1, H, ...]. Allocates and checks nothing;
  /// call `validate` once on inputs that are new.
  bool step(const Inputs& inputs, State& state, const Output& y) const noexcept {
    assert(inputs.k.tokens() == 1 && state.sequences() == inputs.k.batch() &&
           state.shape() == state_shape() && "step: shapes do not fit; validate() says which");
    return run(inputs, state, y, {}, state.scratch());
  }

  /// As prefill, for callers whose tensors fit by construction, such as layers: checks nothing and allocates
  /// nothing.
  /// @param scratch scratch_size() numbers on a cache line for each worker of the executor.
  bool run(const Inputs& inputs, State& state, const Output& y, const SequenceLayout& layout, double* scratch,
           const ExecutorRef& executor = {}) const {
    const double cost = static_cast<double>(config_.key) *
                        static_cast<double>((12 + 4 * config_.power) * config_.key + 4 * config_.value);
    const bool answered = for_each_head(
        state, y.batch() * y.tokens(), cost, scratch, executor,
        [&](Index s, Index h, double* memory) { return run_head(inputs, state, y, layout, s, h, memory); });
    advance(state, layout, y.tokens());
    return answered;
  }
  Index scratch_size() const { return State::scratch_size(state_shape()); }

  /// Takes in tokens and reads nothing; inputs.q may be absent.
  /// @throws as validate, before the state changes.
  template <Executor E = SerialExecutor>
  void absorb(const Inputs& inputs, State& state, const PrefillOptions& options = {},
              const E& executor = {}) const {
    validate(inputs, state, options.layout);
    const double cost = 2.0 * static_cast<double>(config_.key * (2 * config_.key + config_.value));
    const ExecutorRef workers = executor;
    Workspace own;
    for_each_head(state, inputs.k.batch() * inputs.k.tokens(), cost, reserved(options, own, workers), workers,
                  [&](Index s, Index h, double* scratch) {
                    std::int64_t position = state.position(s);
                    options.layout.for_each_run(s, inputs.k.tokens(), [&](Index row, Index first, Index n) {
                      for (Index t = first; t < first + n; ++t)
                        absorb_token(inputs, row, t, h, position++, state, s, scratch);
                    });
                    return true;
                  });
    advance(state, options.layout, inputs.k.tokens());
  }

  /// Answers queries q [B, T, H, r] from all tokens that the state has seen, y [B, T, H, P]: after absorb,
  /// one fit that all read. The state changes only in what it caches. Returns as prefill does.
  /// @throws as validate.
  template <Executor E = SerialExecutor>
  bool retrieve(const Input& q, State& state, const Output& y, const PrefillOptions& options = {},
                const E& executor = {}) const {
    validate_read(q, state, y, options.layout);
    const double cost = 2.0 * static_cast<double>(config_.key) *
                        static_cast<double>((1 + 2 * config_.power) * config_.key + config_.value);
    const ExecutorRef workers = executor;
    Workspace own;
    return for_each_head(state, q.batch() * q.tokens(), cost, reserved(options, own, workers), workers,
                         [&](Index s, Index h, double* scratch) {
                           clear_padding(y, options.layout, s, h);
                           bool answered = true;
                           options.layout.for_each_run(s, q.tokens(), [&](Index row, Index first, Index n) {
                             for (Index t = first; t < first + n; ++t)
                               answered &= read(state.now(s, h), q.data(row, t, h), y.data(row, t, h), state,
                                                s, h, scratch);
                           });
                           return answered;
                         });
  }

 private:
  bool sees_chunks() const { return config_.visibility == Visibility::earlier_chunks; }
  static bool has_weights(const Inputs& inputs) { return inputs.weights.extents() != std::array<Index, 4>{}; }

  void check_state(const State& state, const SequenceLayout& layout, Index batch, Index tokens) const {
    layout.check(batch, tokens);
    if (!(state.shape() == state_shape()))
      throw ShapeError(
          message("state: expected one of ", state_shape().text(), ", got ", state.shape().text()));
    if (state.sequences() != layout.sequences(batch))
      throw ShapeError(
          message("state: expected ", layout.sequences(batch), " sequences, got ", state.sequences()));
  }
  void validate_read(const Input& q, const State& state, const Output& y,
                     const SequenceLayout& layout) const {
    check_shape("q", q, {q.batch(), q.tokens(), config_.heads, config_.key});
    check_shape("y", y, {q.batch(), q.tokens(), config_.heads, config_.value});
    check_no_overlap("y", y);
    check_state(state, layout, q.batch(), q.tokens());
    for_each_run(state, layout, q.tokens(), [&](const TokenRun& run) { check_ska_numbers("q", q, run); });
  }
  template <class F>
  static void for_each_run(const State& state, const SequenceLayout& layout, Index tokens, F&& f) {
    for (Index s = 0; s < state.sequences(); ++s)
      layout.for_each_run(s, tokens, [&](Index row, Index first, Index n) { f(TokenRun{row, first, n}); });
  }
  static void advance(State& state, const SequenceLayout& layout, Index tokens) noexcept {
    for (Index s = 0; s < state.sequences(); ++s)
      layout.for_each_run(s, tokens, [&](Index, Index, Index n) { state.advance(s, n); });
  }
  static void clear_padding(const Output& y, const SequenceLayout& layout, Index s, Index h) noexcept {
    layout.for_each_padding(s, y.tokens(), [&](Index row, Index first, Index n) {
      for (Index t = first; t < first + n; ++t) y.at(row, t, h).setZero();
    });
  }

  /// Scratch memory for all workers: of the caller's workspace, or else of `own`.
  double* reserved(const PrefillOptions& options, Workspace& own, const ExecutorRef& executor) const {
    Workspace& workspace = options.workspace != nullptr ? *options.workspace : own;
    const Index numbers = executor.concurrency() * scratch_size();
    workspace.reserve(1, sizeof(double) * static_cast<std::size_t>(numbers));
    return workspace.template block<double>(0);
  }
  /// f(sequence, head, the worker's scratch) for all of them; whether all returned true.
  template <class F>
  bool for_each_head(State& state, Index tokens, double cost, double* scratch, const ExecutorRef& executor,
                     F&& f) const {
    std::atomic<bool> answered = true;
    const Index sequences = std::max<Index>(1, state.sequences());
    executor.for_each(state.sequences() * config_.heads,
                      cost * static_cast<double>(tokens) / static_cast<double>(sequences),
                      [&](Index item, Index worker) {
                        if (!f(item / config_.heads, item % config_.heads, scratch + worker * scratch_size()))
                          answered.store(false, std::memory_order_relaxed);
                      });
    return answered.load(std::memory_order_relaxed);
  }

  bool run_head(const Inputs& inputs, State& state, const Output& y, const SequenceLayout& layout, Index s,
                Index h, double* scratch) const noexcept {
    clear_padding(y, layout, s, h);
    std::int64_t position = state.position(s);
    bool answered = true;
    layout.for_each_run(s, y.tokens(), [&](Index row, Index first, Index n) {
      for (Index t = first; t < first + n; ++t)
        answered &= run_token(inputs, row, t, h, position++, state, s, y, scratch);
    });
    return answered;
  }

  /// Not inlined: step and prefill then run the very same instructions, and agree in every bit.
  EIGEN_DONT_INLINE bool run_token(const Inputs& inputs, Index row, Index t, Index h, std::int64_t position,
                                   State& state, Index s, const Output& y, double* scratch) const noexcept {
    const Scalar* q = inputs.q.data(row, t, h);
    Scalar* to = y.data(row, t, h);
    if (config_.visibility == Visibility::exclusive) {
      const bool answered = read(state.now(s, h), q, to, state, s, h, scratch);
      absorb_token(inputs, row, t, h, position, state, s, scratch);
      return answered;
    }
    absorb_token(inputs, row, t, h, position, state, s, scratch);
    return read(sees_chunks() ? state.past(s, h) : state.now(s, h), q, to, state, s, h, scratch);
  }

  EIGEN_DONT_INLINE void absorb_token(const Inputs& inputs, Index row, Index t, Index h,
                                      std::int64_t position, State& state, Index s,
                                      double* scratch) const noexcept {
    SkaFit& now = state.now(s, h);
    double *z = scratch, *v = z + padded<double>(config_.key), *rest = v + padded<double>(config_.value);
    now.statistics().load_key(inputs.k.data(row, t, h), z);
    SkaStatistics::load_padded(inputs.v.data(row, t, h), config_.value, v);
    const double weight = has_weights(inputs) ? static_cast<double>(inputs.weights(row, t, 0)) : 1.0;
    if (sees_chunks() && position % config_.chunk == 0) {
      SkaFit& past = state.past(s, h);
      past.statistics() = now.statistics();
      past.changed();
      if (config_.boundary_transition) past.statistics().add_transition(z, weight);
    }
    now.absorb(z, v, weight, rest);
  }

  /// y = eta Cv L^-T A^K L^-1 q
  EIGEN_DONT_INLINE bool read(SkaFit& fit, const Scalar* q, Scalar* y, State& state, Index s, Index h,
                              double* scratch) const noexcept {
    const Index r = config_.key, stride = padded<double>(r);
    double *x = scratch, *ax = x + stride, *rest = ax + stride, *out = rest + 3 * stride;
    if (!fit.prepare(config_.ridge, std::max(config_.ridge, config_.largest_ridge), rest)) {
      const bool nan = fit.factor().status() == FactorStatus::not_finite;
      std::fill_n(y, config_.value, nan ? std::numeric_limits<Scalar>::quiet_NaN() : Scalar(0));
      state.count_failure(s, h);
      return false;
    }
    const double gain =
        estimates_sigma_ ? gain_ / std::max(1.0, fit.sigma(config_.koopman_operator, rest)) : gain_;
    fit.statistics().load_key(q, ax);
    fit.factor().whiten(ax, x);
    for (Index k = 0; k < config_.power; ++k) {
      fit.apply(config_.koopman_operator, x, ax, rest);
      scale_padded(ax, r, gain);
      std::swap(x, ax);
    }
    fit.factor().whiten_transposed(x, ax);
    detail::multiply_transposed(fit.statistics().c(), r, config_.value, ax, out);
    for (Index i = 0; i < config_.value; ++i) y[i] = static_cast<Scalar>(config_.eta * out[i]);
    return true;
  }

  Config config_;
  double gain_ = 1;
  bool estimates_sigma_ = false;
};

}  // namespace linrec
