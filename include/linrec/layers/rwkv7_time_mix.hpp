// Time mixing of RWKV-7 (arXiv 2503.14456, section 4), around the kernel of rwkv7.hpp, with
// x? = x_t + (x_{t-1} - x_t) mu_? :
//   r = W_r xr     k = W_k xk     v = W_v xv        w_logit = w0 + W_w2 tanh(W_w1 xw)
//   v = v + (v_first - v) sigmoid(v0 + W_v2 W_v1 xv)     unless this is the first layer, whose v is v_first
//   a = sigmoid(a0 + W_a2 W_a1 xa)                 g = W_g2 sigmoid(W_g1 xg)
//   kk = k k_k     k = k (1 + (a - 1) k_a)         o = kernel(r, w_logit, k, v, kk, a)
//   out = W_o ((group_norm(o) + (sum over a head of r k r_k) v) g)
#pragma once

#include "linrec/kernels/rwkv7.hpp"
#include "linrec/layers/feature_map.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/layer_checks.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/low_rank.hpp"
#include "linrec/layers/norm.hpp"
#include "linrec/layers/token_shift.hpp"

namespace linrec {

struct RWKV7TimeMixConfig {
  Index width = 0;                      ///< D, of the layer's inputs and outputs
  Index heads = 0, key = 0, value = 0;  ///< H, K, V; H K = D in the published models, and V = K
  bool first_layer = false;             ///< gives v_first instead of reading it
  double norm_eps = 64e-5;              ///< of the group norm
  double kk_eps = 0;                    ///< under the root of the norm of kk
};

/// Matrices are [outputs, inputs]. w0 is the spectrum of the layer, and not the bias of w_lora.
template <class Scalar>
struct RWKV7TimeMixWeights {
  Parameter<Scalar> x_r, x_w, x_k, x_v, x_a, x_g;  ///< mu, [D]
  Parameter<Scalar> r_proj, k_proj;                ///< [H K, D]
  Parameter<Scalar> v_proj, o_proj;                ///< [H V, D], [D, H V]
  LowRankWeights<Scalar> w_lora, a_lora;           ///< to [H K]
  LowRankWeights<Scalar> v_lora, g_lora;           ///< to [H V]; no v_lora in the first layer
  Parameter<Scalar> k_k, k_a;                      ///< [H K]
  Parameter<Scalar> r_k;                           ///< [H, K]
  Parameter<Scalar> g_norm, g_norm_bias;           ///< [H V]
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies, as for the kernel: one channel for each of the H K key channels, w0.
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper>
class RWKV7TimeMix : public Layer<RWKV7TimeMix<Scalar, Spectrum, Taper>, Scalar> {
  using Base = typename RWKV7TimeMix::Layer;
  friend Base;

 public:
  using Config = RWKV7TimeMixConfig;
  using Weights = RWKV7TimeMixWeights<Scalar>;

  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError for a bad
  /// config.
  RWKV7TimeMix(const Config& config, const Weights& weights, const Spectrum& spectrum,
               const Taper& taper = Taper());

  const Config& config() const { return config_; }

  /// As for every layer, with v_first [B, T, 1, H V]: the values of the first layer, which the first layer
  /// writes and the others read.
  /// @throws ShapeError naming the tensor.
  void validate(const typename Base::Input& x, const TokenView<Scalar>& v_first,
                const LayerState<Scalar>& state, const typename Base::Output& y,
                const SequenceLayout& layout = {}) const {
    Base::validate(x, state, y, layout);
    check_values(x, v_first);
  }
  void prefill(const typename Base::Input& x, const TokenView<Scalar>& v_first, LayerState<Scalar>& state,
               const typename Base::Output& y, const PrefillOptions& options = {},
               const ExecutorRef& executor = {}) const {
    this->check(x, state, y, options.layout);
    check_values(x, v_first);
    if (config_.first_layer)
      for (Index s = 0; s < state.sequences(); ++s)
        options.layout.for_each_padding(s, x.tokens(), [&](Index row, Index first, Index count) {
          for (Index t = first; t < first + count; ++t) v_first.at(row, t, 0).setZero();
        });
    this->prefill_chunks(x, state, y, options, executor, forward_to(state, v_first));
  }
  void step(const typename Base::Input& x, const TokenView<Scalar>& v_first, LayerState<Scalar>& state,
            const typename Base::Output& y) const noexcept {
    assert(v_first.extents() ==
           (std::array<Index, 4>{state.sequences(), 1, 1, config_.heads * config_.value}));
    this->step_chunks(x, state, y, forward_to(state, v_first));
  }

  /// @param v_first [n, H V], written by the first layer and read by the others.
  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> v_first, Rows<Scalar> out,
               LayerState<Scalar>& state, Scalar* scratch) const;

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const RWKV7TimeMix& layer, Index rows)
        : delta(arena.rows(rows, layer.config_.width)),
          mixed(arena.rows(rows, layer.config_.width)),
          r(arena.rows(rows, layer.keys())),
          k(arena.rows(rows, layer.keys())),
          kk(arena.rows(rows, layer.keys())),
          w(arena.rows(rows, layer.keys())),
          a(arena.rows(rows, layer.keys())),
          v(arena.rows(rows, layer.values())),
          v_first(arena.rows(rows, layer.values())),
          g(arena.rows(rows, layer.values())),
          o(arena.rows(rows, layer.values())),
          middle(arena.rows(rows, std::max(std::max(layer.w_lora_.rank(), layer.a_lora_.rank()),
                                           std::max(layer.v_lora_.rank(), layer.g_lora_.rank())))),
          kernel(arena.take(arena.workers() * layer.kernel_.scratch_size())) {}
    Rows<Scalar> delta, mixed, r, k, kk, w, a, v, v_first, g, o, middle;
    Scalar* kernel;
  };

  void check_values(const typename Base::Input& x, const TokenView<Scalar>& v_first) const {
    check_shape("v_first", v_first, {x.batch(), x.tokens(), 1, values()});
    if (config_.first_layer) check_no_overlap("v_first", v_first);
  }

  static Dims<> checked(const Config& config) {
    check_size("width", config.width);
    check_size("heads", config.heads);
    check_size("key", config.key);
    check_size("value", config.value);
    return {config.heads, config.key, config.value};
  }

  Index keys() const { return config_.heads * config_.key; }
  Index values() const { return config_.heads * config_.value; }

  auto forward_to(LayerState<Scalar>& state, const TokenView<Scalar>& v_first) const {
    return [this, &state, v_first](const PackedRows& rows, const Rows<Scalar>& x, const Rows<Scalar>& y,
                                   Scalar* scratch) {
      Arena<Scalar> arena(scratch, rows.executor.concurrency());
      const Rows<Scalar> values = Buffers(arena, *this, x.count).v_first;
      if (!config_.first_layer) gather<Scalar>(rows, v_first, values);
      forward(rows, x, values, y, state, scratch);
      if (config_.first_layer) scatter(rows, values, v_first);
    };
  }

  void mix_values(Rows<Scalar> v_first, const Buffers& b) const noexcept;
  void mix_keys(const Buffers& b) const noexcept;
  void add_bonus(const Buffers& b) const noexcept;

  Config config_;
  Weights weights_;  // the vectors that are read in place
  RWKV7<Scalar, Spectrum, Taper> kernel_;
  Linear<Scalar> to_r_, to_k_, to_v_, out_;
  LowRank<Scalar> w_lora_, a_lora_, v_lora_, g_lora_;
  Norm<Scalar> norm_;
};

template <class Scalar, class Spectrum, class Taper>
RWKV7TimeMix<Scalar, Spectrum, Taper>::RWKV7TimeMix(const Config& config, const Weights& weights,
                                                    const Spectrum& spectrum, const Taper& taper)
    : config_(config),
      weights_(weights),
      kernel_(checked(config), spectrum, taper, {.kk_eps = config.kk_eps}) {
  const Index width = config.width;
  const auto check = [](const char* name, const Parameter<Scalar>& parameter, Index n) {
    parameter.check(name, {n});
  };
  check("x_r", weights.x_r, width), check("x_w", weights.x_w, width), check("x_k", weights.x_k, width);
  check("x_v", weights.x_v, width), check("x_a", weights.x_a, width), check("x_g", weights.x_g, width);
  check("k_k", weights.k_k, keys()), check("k_a", weights.k_a, keys());
  weights.r_k.check("r_k", {config.heads, config.key});
  to_r_ = Linear<Scalar>("r_proj", keys(), width, weights.r_proj);
  to_k_ = Linear<Scalar>("k_proj", keys(), width, weights.k_proj);
  to_v_ = Linear<Scalar>("v_proj", values(), width, weights.v_proj);
  out_ = Linear<Scalar>("o_proj", width, values(), weights.o_proj);
  w_lora_ = LowRank<Scalar>("w_lora", keys(), width, weights.w_lora);
  a_lora_ = LowRank<Scalar>("a_lora", keys(), width, weights.a_lora);
  if (!config.first_layer) v_lora_ = LowRank<Scalar>("v_lora", values(), width, weights.v_lora);
  g_lora_ = LowRank<Scalar>("g_lora", values(), width, weights.g_lora);
  check("g_norm.weight", weights.g_norm, values()), check("g_norm.bias", weights.g_norm_bias, values());
  norm_ = Norm<Scalar>("g_norm", Norm<Scalar>::Kind::layer, values(), config.value, config.norm_eps,
                       weights.g_norm, weights.g_norm_bias);
  this->describe(config.width, {"rwkv7.time_mix", kernel_.dims(), {{"shift", 1, width}}});
}

template <class Scalar, class Spectrum, class Taper>
void RWKV7TimeMix<Scalar, Spectrum, Taper>::forward(const PackedRows& rows, Rows<const Scalar> x,
                                                    Rows<Scalar> v_first, Rows<Scalar> out,
                                                    LayerState<Scalar>& state, Scalar* scratch) const {
  Arena<Scalar> arena(scratch, rows.executor.concurrency());
  const Buffers b(arena, *this, x.count);
  const auto mixed = [&](const Parameter<Scalar>& mu) {
    mix_tokens<Scalar>(x, b.delta, mu, b.mixed);
    return b.mixed;
  };
  token_shift(rows, x, state.window(0), b.delta);
  to_r_.apply(mixed(weights_.x_r), b.r, rows.executor);
  w_lora_.apply(mixed(weights_.x_w), FeatureMap::tanh, b.middle, b.w, rows.executor);
  to_k_.apply(mixed(weights_.x_k), b.k, rows.executor);
  to_v_.apply(mixed(weights_.x_v), b.v, rows.executor);
  if (!config_.first_layer) v_lora_.apply(b.mixed, FeatureMap::identity, b.middle, b.o, rows.executor);
  mix_values(v_first, b);
  a_lora_.apply(mixed(weights_.x_a), FeatureMap::identity, b.middle, b.a, rows.executor);
  apply_feature_map(FeatureMap::sigmoid, b.a);
  g_lora_.apply(mixed(weights_.x_g), FeatureMap::sigmoid, b.middle, b.g, rows.executor);
  mix_keys(b);
  const Index heads = config_.heads;
  kernel_.run({.r = as_heads(b.r, heads),
               .k = as_heads(b.k, heads),
               .v = as_heads(b.v, heads),
               .kk = as_heads(b.kk, heads),
               .iclr = as_heads(b.a, heads),
               .w_logit = as_heads(b.w, heads)},
              state.recurrent(), as_heads(b.o, heads), rows.layout(), b.kernel, rows.mode, rows.executor);
  norm_.apply(b.o, b.o);
  add_bonus(b);
  out_.apply(b.o, out, rows.executor);
}

/// v towards v_first; the gate's logits are in o.
template <class Scalar, class Spectrum, class Taper>
void RWKV7TimeMix<Scalar, Spectrum, Taper>::mix_values(Rows<Scalar> v_first,
                                                       const Buffers& b) const noexcept {
  using namespace Eigen::internal;
  for (Index i = 0; i < b.v.count; ++i) {
    if (config_.first_layer)
      std::copy_n(b.v[i], values(), v_first[i]);
    else
      map_packets(
          values(), b.v[i],
          [](const auto& v, const auto& first, const auto& logit)
              LINREC_INLINE_LAMBDA { return pmadd(psub(first, v), sigmoid_packet(logit), v); },
          static_cast<const Scalar*>(b.v[i]), static_cast<const Scalar*>(v_first[i]),
          static_cast<const Scalar*>(b.o[i]));
  }
}

/// kk = k k_k, then k = k (1 + (a - 1) k_a).
template <class Scalar, class Spectrum, class Taper>
void RWKV7TimeMix<Scalar, Spectrum, Taper>::mix_keys(const Buffers& b) const noexcept {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  const Packet one = pset1<Packet>(Scalar(1));
  for (Index i = 0; i < b.k.count; ++i) {
    const Scalar *k = b.k[i], *a = b.a[i];
    map_packets(
        keys(), b.kk[i],
        [](const Packet& key, const Packet& factor) LINREC_INLINE_LAMBDA { return pmul(key, factor); }, k,
        weights_.k_k.data());
    map_packets(
        keys(), b.k[i],
        [&](const Packet& key, const Packet& rate, const Packet& factor)
            LINREC_INLINE_LAMBDA { return pmul(key, pmadd(psub(rate, one), factor, one)); },
        k, a, weights_.k_a.data());
  }
}

/// o = (o + (sum over a head of r k r_k) v) g
template <class Scalar, class Spectrum, class Taper>
void RWKV7TimeMix<Scalar, Spectrum, Taper>::add_bonus(const Buffers& b) const noexcept {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  for (Index i = 0; i < b.o.count; ++i) {
    const Scalar *r = b.r[i], *k = b.k[i];
    map_packets(
        keys(), b.kk[i], [](const Packet& x, const Packet& y) LINREC_INLINE_LAMBDA { return pmul(x, y); }, r,
        k);
    for (Index h = 0; h < config_.heads; ++h) {
      const Index key = h * config_.key, value = h * config_.value;
      const Scalar sum = dot_packets<Scalar>(config_.key, b.kk[i] + key, weights_.r_k.data() + key);
      const Packet bonus = pset1<Packet>(sum);
      const Scalar *o = b.o[i] + value, *v = b.v[i] + value, *g = b.g[i] + value;
      map_packets(
          config_.value, b.o[i] + value,
          [&](const Packet& out, const Packet& val, const Packet& gate)
              LINREC_INLINE_LAMBDA { return pmul(pmadd(bonus, val, out), gate); },
          o, v, g);
    }
  }
}

}  // namespace linrec
