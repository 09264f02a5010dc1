// The Gated DeltaNet layer (arXiv 2412.06464, section 3.4), around the kernel of gated_delta_net.hpp:
//   q, k, v = silu(conv(W_q x)), silu(conv(W_k x)), silu(conv(W_v x))           (qkv_projection.hpp)
//   g = -softplus(W_a x + dt_bias)        beta = sigmoid(W_b x), or twice that
//   y = W_o [norm(o_h) silu(W_g x)_h],   o = GatedDeltaNet(q/|q|, k/|k|, v, g, beta)
//                                                                               (gated_head_output.hpp)
// The kernel multiplies g by the rate of its head, exp(A_log_h), and with a taper by t^-alpha_h (PoST, arXiv
// 2604.07658). Without convolutions q, k, v are silu of the projections.
#pragma once

#include "linrec/kernels/gated_delta_net.hpp"
#include "linrec/layers/gated_head_output.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/qkv_projection.hpp"

namespace linrec {

struct GatedDeltaNetLayerConfig {
  Index width = 0;                   ///< D, of the layer's inputs and outputs
  Index heads = 0;                   ///< G, of queries and keys
  Index value_heads = 0;             ///< H, of values, decays and outputs, a multiple of G; 0: G
  Index key_dim = 0, value_dim = 0;  ///< K, V, of one head
  Index conv_width = 4;              ///< W; 0: no convolutions
  bool allow_neg_eigval = false;     ///< beta in [0, 2] in place of [0, 1]
  bool output_gate = true;           ///< or none
  double norm_eps = 1e-6;

  Index output_heads() const { return value_heads == 0 ? heads : value_heads; }
};

/// The names are those of the published checkpoints. A_log is the spectrum of the layer.
template <class Scalar>
struct GatedDeltaNetLayerWeights : QKVWeights<Scalar>, HeadOutputWeights<Scalar> {
  Parameter<Scalar> a_proj, dt_bias;  ///< [H, D], [H]
  Parameter<Scalar> b_proj;           ///< [H, D]
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies, as for the kernel: one channel a value head, the log-rates are A_log.
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper>
class GatedDeltaNetLayer : public Layer<GatedDeltaNetLayer<Scalar, Spectrum, Taper>, Scalar> {
  friend typename GatedDeltaNetLayer::Layer;

 public:
  using Config = GatedDeltaNetLayerConfig;
  using Weights = GatedDeltaNetLayerWeights<Scalar>;

  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError, naming the
  /// field, for a bad config.
  GatedDeltaNetLayer(const Config& config, const Weights& weights, const Spectrum& spectrum,
                     const Taper& taper = Taper())
      : config_(config), kernel_(checked(config), spectrum, taper, {.qk_l2norm = true}) {
    const Index heads = config.output_heads();
    const FeatureMap map = config.conv_width == 0 ? FeatureMap::silu : FeatureMap::identity;
    qkv_ = QKVProjection<Scalar>({config.width, config.heads, config.heads, heads, config.key_dim,
                                  config.value_dim, config.conv_width, map, map},
                                 weights);
    weights.dt_bias.check("dt_bias", {heads});
    to_g_ = Linear<Scalar>("a_proj", heads, config.width, weights.a_proj, weights.dt_bias);
    to_beta_ = Linear<Scalar>("b_proj", heads, config.width, weights.b_proj);
    output_ = GatedHeadOutput<Scalar>(
        "o_norm", {config.width, heads, config.value_dim, config.output_gate, true, config.norm_eps},
        weights);
    this->describe(config.width, {"gated_delta_net", kernel_.dims(), qkv_.windows()});
  }

  const Config& config() const { return config_; }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> y, LayerState<Scalar>& state,
               Scalar* scratch) const {
    using Packet = typename Lanes<Scalar>::Packet;
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, x.count);
    const Index heads = kernel_.dims().heads();
    qkv_.apply(rows, x, state, b.qkv);
    to_g_.apply(x, b.g, rows.executor);
    map_rows(b.g, [](const Packet& a)
                      LINREC_INLINE_LAMBDA { return log_sigmoid_packet(Eigen::internal::pnegate(a)); });
    to_beta_.apply(x, b.beta, rows.executor);
    const Packet largest = Eigen::internal::pset1<Packet>(Scalar(config_.allow_neg_eigval ? 2 : 1));
    map_rows(b.beta, [&](const Packet& a)
                         LINREC_INLINE_LAMBDA { return Eigen::internal::pmul(largest, sigmoid_packet(a)); });
    kernel_.run({.q = as_heads<const Scalar>(b.qkv.q, config_.heads),
                 .k = as_heads<const Scalar>(b.qkv.k, config_.heads),
                 .v = as_heads<const Scalar>(b.qkv.v, heads),
                 .g = as_heads<const Scalar>(b.g, heads),
                 .beta = as_heads<const Scalar>(b.beta, heads)},
                state.recurrent(), as_heads(b.output.heads, heads), rows.layout(), b.kernel, rows.mode,
                rows.executor);
    output_.apply(x, b.output, y, rows.executor);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const GatedDeltaNetLayer& layer, Index rows)
        : qkv(arena, layer.qkv_, rows),
          g(arena.rows(rows, layer.to_g_.outputs())),
          beta(arena.rows(rows, layer.to_beta_.outputs())),
          output(arena, layer.output_, rows),
          kernel(arena.take(arena.workers() * layer.kernel_.scratch_size())) {}
    typename QKVProjection<Scalar>::Buffers qkv;
    Rows<Scalar> g, beta;
    typename GatedHeadOutput<Scalar>::Buffers output;
    Scalar* kernel;
  };

  static Dims<> checked(const Config& config) {
    check_size("width", config.width);
    check_size("heads", config.heads);
    check_size("key_dim", config.key_dim);
    check_size("value_dim", config.value_dim);
    const Index heads = config.output_heads();
    if (heads < 1 || heads % config.heads != 0)
      throw ValueError(
          message("value_heads: expected a multiple of heads = ", config.heads, ", got ", heads));
    return {heads, config.key_dim, config.value_dim};
  }

  Config config_;
  GatedDeltaNet<Scalar, Spectrum, Taper> kernel_;
  QKVProjection<Scalar> qkv_;
  Linear<Scalar> to_g_, to_beta_;
  GatedHeadOutput<Scalar> output_;
};

}  // namespace linrec
