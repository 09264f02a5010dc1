// The RetNet layer (arXiv 2307.08621, section 2.2, with RMSNorm for the heads), around the kernel of
// retnet.hpp:
//   q, k, v = rotary(W_q x), rotary(W_k x), W_v x       each perhaps convolved first (qkv_projection.hpp)
//   y = W_o [norm(o_h) silu(W_g x)_h],   o = RetNet(q, k, v)                    (gated_head_output.hpp)
// Rotary positions count from 0 and are those of the state (rotary.hpp). The decays of the heads are
// constants, those of the paper unless a spectrum is given; with a taper their logarithms are multiplied by
// t^-alpha_h.
#pragma once

#include "linrec/kernels/retnet.hpp"
#include "linrec/layers/gated_head_output.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/qkv_projection.hpp"
#include "linrec/layers/rotary.hpp"

namespace linrec {

struct RetNetLayerConfig {
  Index width = 0;                                ///< D, of the layer's inputs and outputs
  Index heads = 0;                                ///< H, of queries and outputs
  Index kv_heads = 0;                             ///< G, of keys and values; 0: H
  Index key_dim = 0, value_dim = 0;               ///< K, V, of one head
  Index conv_width = 0;                           ///< W; 0: no convolutions
  FeatureMap feature_map = FeatureMap::identity;  ///< of queries and keys, before the rotation
  bool rotary = true;                             ///< or no rotation
  double rotary_base = 10000;
  bool output_gate = true;  ///< or none
  bool norm_weight = true;  ///< whether the norm of the heads has a weight
  double norm_eps = 1e-6;

  Index groups() const { return kv_heads == 0 ? heads : kv_heads; }
};

template <class Scalar>
struct RetNetLayerWeights : QKVWeights<Scalar>, HeadOutputWeights<Scalar> {};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies, as for the kernel: one channel a head.
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper>
class RetNetLayer : public Layer<RetNetLayer<Scalar, Spectrum, Taper>, Scalar> {
  friend typename RetNetLayer::Layer;

 public:
  using Config = RetNetLayerConfig;
  using Weights = RetNetLayerWeights<Scalar>;

  /// As published, with the decays of retention_spectrum.
  template <class Default = Spectrum>  // so that explicit instantiation of the class passes over it
  RetNetLayer(const Config& config, const Weights& weights) requires DefaultPolicies<Default, Taper>
      : RetNetLayer(config, weights, Default(retention_spectrum(checked(config).heads()))) {}
  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError, naming the
  /// field, for a bad config.
  RetNetLayer(const Config& config, const Weights& weights, const Spectrum& spectrum,
              const Taper& taper = Taper())
      : config_(config), kernel_(checked(config), spectrum, taper) {
    const Index groups = config.groups();
    qkv_ =
        QKVProjection<Scalar>({config.width, config.heads, groups, groups, config.key_dim, config.value_dim,
                               config.conv_width, config.feature_map, FeatureMap::identity},
                              weights);
    if (config.rotary) rotary_ = Rotary<Scalar>(config.key_dim, config.rotary_base);
    output_ = GatedHeadOutput<Scalar>("g_norm",
                                      {config.width, config.heads, config.value_dim, config.output_gate,
                                       config.norm_weight, config.norm_eps},
                                      weights);
    this->describe(config.width, {"retnet", kernel_.dims(), qkv_.windows()});
  }

  const Config& config() const { return config_; }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> y, LayerState<Scalar>& state,
               Scalar* scratch) const {
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, x.count);
    qkv_.apply(rows, x, state, b.qkv);
    if (config_.rotary) rotate(rows, state, b);
    kernel_.run({.q = as_heads<const Scalar>(b.qkv.q, config_.heads),
                 .k = as_heads<const Scalar>(b.qkv.k, config_.groups()),
                 .v = as_heads<const Scalar>(b.qkv.v, config_.groups())},
                state.recurrent(), as_heads(b.output.heads, config_.heads), rows.layout(), b.kernel,
                rows.mode, rows.executor);
    output_.apply(x, b.output, y, rows.executor);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const RetNetLayer& layer, Index rows)
        : qkv(arena, layer.qkv_, rows),
          rotary(arena.take(layer.rotary_.scratch_size())),
          output(arena, layer.output_, rows),
          kernel(arena.take(arena.workers() * layer.kernel_.scratch_size())) {}
    typename QKVProjection<Scalar>::Buffers qkv;
    Scalar* rotary;
    typename GatedHeadOutput<Scalar>::Buffers output;
    Scalar* kernel;
  };

  static Dims<> checked(const Config& config) {
    check_size("width", config.width);
    check_size("heads", config.heads);
    check_groups("kv_heads", config.groups(), config.heads);
    check_size("key_dim", config.key_dim);
    check_size("value_dim", config.value_dim);
    return {config.heads, config.key_dim, config.value_dim};
  }

  /// Queries and keys, by the position of each token. The kernel has not moved the positions on yet.
  void rotate(const PackedRows& rows, const LayerState<Scalar>& state, const Buffers& b) const noexcept {
    for (Index s = 0; s < rows.sequences(); ++s)
      for (Index t = 0; t < rows.count(s); ++t) {
        const Index i = rows.first(s) + t;
        rotary_.prepare(state.position(s) + t, b.rotary);
        rotary_.apply(b.qkv.q[i], config_.heads, b.rotary);
        rotary_.apply(b.qkv.k[i], config_.groups(), b.rotary);
      }
  }

  Config config_;
  RetNet<Scalar, Spectrum, Taper> kernel_;
  QKVProjection<Scalar> qkv_;
  Rotary<Scalar> rotary_;
  GatedHeadOutput<Scalar> output_;
};

}  // namespace linrec
