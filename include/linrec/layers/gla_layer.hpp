// The GLA layer (arXiv 2312.06635, section 4.4), around the kernel of gla.hpp:
//   q, k, v = W_q x, W_k x, W_v x        each perhaps convolved (qkv_projection.hpp)
//   gk = max(log sigmoid(W_1 W_0 x + b) / 16, clamp_min)                        the low-rank gate, or
//   gk = -softplus(W_a x + dt_bias)                                             the gate of PoST's layer
//   y = W_o [norm(o_h) silu(W_g x)_h],   o = GLA(q, k, v, gk)                   (gated_head_output.hpp)
// The kernel multiplies gk by the rate of its head, exp(p_h), which is 1 unless a spectrum is given, and with
// a taper by t^-alpha_h: PoST's log-decay, -exp(A_log_h) softplus(...) t^-alpha_h (arXiv 2604.07658).
#pragma once

#include <cmath>
#include <limits>

#include "linrec/kernels/gla.hpp"
#include "linrec/layers/gated_head_output.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/qkv_projection.hpp"

namespace linrec {

struct GLALayerConfig {
  Index width = 0;                                ///< D, of the layer's inputs and outputs
  Index heads = 0;                                ///< H, of queries and outputs
  Index kv_heads = 0;                             ///< G, of keys, values and decays; 0: H
  Index key_dim = 0, value_dim = 0;               ///< K, V, of one head
  Index conv_width = 0;                           ///< W; 0: no convolutions
  FeatureMap feature_map = FeatureMap::identity;  ///< of queries and keys
  bool output_gate = true;                        ///< or none
  bool norm_weight = true;                        ///< whether the norm of the heads has a weight
  double norm_eps = 1e-6;
  double gate_logit_normalizer = 16;                            ///< divisor in the low-rank gate
  double clamp_min = -std::numeric_limits<double>::infinity();  ///< lowest gk of the low-rank gate

  Index groups() const { return kv_heads == 0 ? heads : kv_heads; }
};

/// The names are those of the published checkpoints. Either gk_proj or a_proj is present, and decides on the
/// gate. A_log is the spectrum of the layer, alpha_logits or train_length its taper.
template <class Scalar>
struct GLALayerWeights : QKVWeights<Scalar>, HeadOutputWeights<Scalar> {
  Parameter<Scalar> gk_proj_0;                  ///< [R, D], any rank R
  Parameter<Scalar> gk_proj_1, gk_proj_1_bias;  ///< [G K, R], [G K]
  Parameter<Scalar> a_proj, dt_bias;            ///< [G K, D], [G K]
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies, as for the kernel: one channel a head.
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper>
class GLALayer : public Layer<GLALayer<Scalar, Spectrum, Taper>, Scalar> {
  friend typename GLALayer::Layer;

 public:
  using Config = GLALayerConfig;
  using Weights = GLALayerWeights<Scalar>;

  /// As published: decays as the gate gives them.
  template <class Default = Spectrum>  // so that explicit instantiation of the class passes over it
  GLALayer(const Config& config, const Weights& weights) requires DefaultPolicies<Default, Taper>
      : GLALayer(config, weights, Default::unit(checked(config).heads())) {}
  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError, naming the
  /// field, for a bad config.
  GLALayer(const Config& config, const Weights& weights, const Spectrum& spectrum,
           const Taper& taper = Taper())
      : config_(config), kernel_(checked(config), spectrum, taper) {
    const Index groups = config.groups();
    qkv_ =
        QKVProjection<Scalar>({config.width, config.heads, groups, groups, config.key_dim, config.value_dim,
                               config.conv_width, config.feature_map, FeatureMap::identity},
                              weights);
    set_gate(weights, groups * config.key_dim);
    output_ = GatedHeadOutput<Scalar>("g_norm",
                                      {config.width, config.heads, config.value_dim, config.output_gate,
                                       config.norm_weight, config.norm_eps},
                                      weights);
    this->describe(config.width, {"gla", kernel_.dims(), qkv_.windows()});
  }

  const Config& config() const { return config_; }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> y, LayerState<Scalar>& state,
               Scalar* scratch) const {
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, x.count);
    qkv_.apply(rows, x, state, b.qkv);
    fill_log_decays(x, b, rows.executor);
    kernel_.run({.q = as_heads<const Scalar>(b.qkv.q, config_.heads),
                 .k = as_heads<const Scalar>(b.qkv.k, config_.groups()),
                 .v = as_heads<const Scalar>(b.qkv.v, config_.groups()),
                 .gk = as_heads<const Scalar>(b.gk, config_.groups())},
                state.recurrent(), as_heads(b.output.heads, config_.heads), rows.layout(), b.kernel,
                rows.mode, rows.executor);
    output_.apply(x, b.output, y, rows.executor);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const GLALayer& layer, Index rows)
        : qkv(arena, layer.qkv_, rows),
          low_rank(arena.rows(rows, layer.to_low_rank_.outputs())),
          gk(arena.rows(rows, layer.to_gk_.outputs())),
          output(arena, layer.output_, rows),
          kernel(arena.take(arena.workers() * layer.kernel_.scratch_size())) {}
    typename QKVProjection<Scalar>::Buffers qkv;
    Rows<Scalar> low_rank, gk;
    typename GatedHeadOutput<Scalar>::Buffers output;
    Scalar* kernel;
  };

  static Dims<> checked(const Config& config) {
    check_size("width", config.width);
    check_size("heads", config.heads);
    check_groups("kv_heads", config.groups(), config.heads);
    check_size("key_dim", config.key_dim);
    check_size("value_dim", config.value_dim);
    if (!(config.gate_logit_normalizer > 0) || !std::isfinite(config.gate_logit_normalizer))
      throw ValueError(
          message("gate_logit_normalizer: expected a finite number > 0, got ", config.gate_logit_normalizer));
    if (!(config.clamp_min <= 0))
      throw ValueError(message("clamp_min: expected at most 0, got ", config.clamp_min));
    return {config.heads, config.key_dim, config.value_dim};
  }

  void set_gate(const Weights& weights, Index channels) {
    low_rank_ = !weights.a_proj.present();
    if (low_rank_) {
      check_absent("dt_bias", weights.dt_bias);
      constexpr Index published_rank = 16;  // for the message about what is missing
      const bool matrix = weights.gk_proj_0.shape().size() == 2;
      const Index rank = matrix ? weights.gk_proj_0.shape()[0] : published_rank;
      to_low_rank_ = Linear<Scalar>("gk_proj.0", rank, config_.width, weights.gk_proj_0);
      weights.gk_proj_1_bias.check("gk_proj.1.bias", {channels});
      to_gk_ = Linear<Scalar>("gk_proj.1", channels, rank, weights.gk_proj_1, weights.gk_proj_1_bias);
    } else {
      check_absent("gk_proj.0.weight", weights.gk_proj_0);
      check_absent("gk_proj.1.weight", weights.gk_proj_1);
      check_absent("gk_proj.1.bias", weights.gk_proj_1_bias);
      weights.dt_bias.check("dt_bias", {channels});
      to_gk_ = Linear<Scalar>("a_proj", channels, config_.width, weights.a_proj, weights.dt_bias);
    }
  }

  void fill_log_decays(Rows<const Scalar> x, const Buffers& b, const ExecutorRef& executor) const {
    using namespace Eigen::internal;
    using Packet = typename Lanes<Scalar>::Packet;
    if (!low_rank_) {
      to_gk_.apply(x, b.gk, executor);
      map_rows(b.gk, [](const Packet& a) LINREC_INLINE_LAMBDA { return log_sigmoid_packet(pnegate(a)); });
      return;
    }
    to_low_rank_.apply(x, b.low_rank, executor);
    to_gk_.apply(b.low_rank, b.gk, executor);
    const Packet normalizer = pset1<Packet>(static_cast<Scalar>(config_.gate_logit_normalizer));
    const Packet lowest = pset1<Packet>(static_cast<Scalar>(config_.clamp_min));
    map_rows(b.gk, [&](const Packet& a) LINREC_INLINE_LAMBDA {
      return pmax(pdiv(log_sigmoid_packet(a), normalizer), lowest);
    });
  }

  Config config_;
  GLA<Scalar, Spectrum, Taper> kernel_;
  QKVProjection<Scalar> qkv_;
  bool low_rank_ = true;
  Linear<Scalar> to_low_rank_, to_gk_;  // to_gk_: from the low rank, or a_proj
  GatedHeadOutput<Scalar> output_;
};

}  // namespace linrec
