// Gated DeltaNet, GLA and RetNet models of fla, and PoST's Gated DeltaNet: how their config.json becomes the
// configs of our layers, with their own defaults, and what their blocks consist of.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "linrec/io/model_loading.hpp"

namespace linrec::io {

inline FeatureMap feature_map(const ConfigReader& config) {
  return config.choice("feature_map", FeatureMap::identity,
                       {{"relu", FeatureMap::relu},
                        {"sigmoid", FeatureMap::sigmoid},
                        {"silu", FeatureMap::silu},
                        {"swish", FeatureMap::silu},
                        {"sqrelu", FeatureMap::squared_relu}});
}

/// Keys of fla's models that ask for what linrec does not have.
inline void check_fla_config(const ConfigReader& config) {
  config.require_text("hidden_act", {"swish", "silu"});
  config.require_absent("attn");
  config.require_absent("attnres_block_size");
}

/// Channels of fla's MLP.
inline Index fla_mlp_width(const ConfigReader& config, Index width, double ratio) {
  if (config.has("intermediate_size")) return config.size("intermediate_size");
  return round_up(scaled_size(config, "hidden_ratio", width, config.number("hidden_ratio", ratio) * 2 / 3),
                  256);
}

inline GatedDeltaNetLayerConfig fla_gated_delta_net(const ConfigReader& config) {
  check_fla_config(config);
  config.require_absent("norm_first");
  GatedDeltaNetLayerConfig layer;
  layer.width = config.size("hidden_size", 2048);
  layer.heads = config.size("num_heads", 6);
  layer.value_heads = config.size("num_v_heads", layer.heads);
  layer.key_dim = config.size("head_dim", 256);
  layer.value_dim = scaled_size(config, "expand_v", layer.key_dim, config.number("expand_v", 2.0));
  layer.conv_width = config.flag("use_short_conv", true) ? config.size("conv_size", 4) : 0;
  layer.allow_neg_eigval = config.flag("allow_neg_eigval", false);
  layer.output_gate = config.flag("use_gate", true);
  layer.norm_eps = config.number("norm_eps", 1e-6);
  return layer;
}

inline GatedDeltaNetLayerConfig post_gated_delta_net(const ConfigReader& config) {
  GatedDeltaNetLayerConfig layer;
  layer.width = config.size("d_model", 768);
  layer.heads = config.size("num_heads", 6);
  layer.key_dim = per_head(config, "num_heads", layer.width, layer.heads);
  layer.value_dim = scaled_size(config, "expand_v", layer.key_dim, config.number("expand_v", 2.0));
  layer.conv_width = config.flag("use_short_conv", true) ? config.size("conv_size", 4) : 0;
  layer.output_gate = config.flag("use_gate", true);
  layer.norm_eps = config.number("norm_eps", 1e-5);
  return layer;
}

/// What GLA and RetNet share.
template <class LayerConfig>
void fla_attention(const ConfigReader& config, double expand_k, double expand_v, Index heads,
                   LayerConfig& layer) {
  check_fla_config(config);
  layer.width = config.size("hidden_size", 2048);
  layer.heads = config.size("num_heads", heads);
  layer.kv_heads = config.size("num_kv_heads", layer.heads);
  layer.key_dim = per_head(config, "num_heads",
                           scaled_size(config, "expand_k", layer.width, config.number("expand_k", expand_k)),
                           layer.heads);
  layer.value_dim = per_head(
      config, "num_heads", scaled_size(config, "expand_v", layer.width, config.number("expand_v", expand_v)),
      layer.heads);
  layer.feature_map = feature_map(config);
  layer.output_gate = config.flag("use_output_gate", true);
  layer.norm_weight = config.flag("elementwise_affine", true);
  layer.norm_eps = config.number("norm_eps", 1e-6);
}

inline GLALayerConfig fla_gla(const ConfigReader& config) {
  GLALayerConfig layer;
  fla_attention(config, 0.5, 1.0, 4, layer);
  layer.conv_width = config.flag("use_short_conv", false) ? config.size("conv_size", 4) : 0;
  layer.clamp_min = config.number("clamp_min", -std::numeric_limits<double>::infinity());
  return layer;
}

inline RetNetLayerConfig fla_retnet(const ConfigReader& config) {
  RetNetLayerConfig layer;
  fla_attention(config, 1.0, 2.0, 8, layer);
  return layer;
}

namespace detail {

/// A model of mixers and MLPs; add(builder, i, norm) adds a mixer.
template <class Scalar, class Add>
LanguageModel<Scalar> load_fla(const Checkpoint& checkpoint, WeightStorage storage,
                               const ConfigReader& config, std::string architecture, Index width, Index depth,
                               double ratio, double eps, Add&& add) {
  const Index layers = layer_count(checkpoint, config, "num_hidden_layers", depth);
  ModelBuilder<Scalar> builder(checkpoint, storage, names::fla, std::move(architecture), width);
  builder.embedding(config.size("vocab_size", 32000), tied(config));
  const NormKind<Scalar> norm{Norm<Scalar>::Kind::rms, eps, false};
  const Index hidden = fla_mlp_width(config, width, ratio);
  for (Index i = 0; i < layers; ++i) {
    add(builder, i, norm);
    add_gated_mlp(builder, i, norm, width, hidden,
                  read_gated_mlp(builder.reader(), builder.mlp(i), width, hidden));
  }
  builder.final_norm(norm);
  return builder.finish();
}

template <class Scalar>
void add_gated_delta_net(ModelBuilder<Scalar>& builder, Index i, const GatedDeltaNetLayerConfig& layer,
                         const NormKind<Scalar>& norm, double train_length) {
  const LayerNames names = builder.mixer(i);
  builder.reader().ignore(names.prefix + "D");  // old files have it, and nobody reads it
  const auto weights = read_weights(builder.reader(), names, layer);
  const auto decay =
      read_decay(builder.reader(), names, head_decay_names, layer.output_heads(), train_length);
  builder.add_mixer(i, norm, [=] { return make_branch<GatedDeltaNetLayer, Scalar>(layer, weights, decay); });
}

template <class Scalar>
LanguageModel<Scalar> load_gated_delta_net(const Checkpoint& checkpoint, WeightStorage storage,
                                           const ConfigReader& config) {
  const GatedDeltaNetLayerConfig layer = fla_gated_delta_net(config);
  return load_fla<Scalar>(checkpoint, storage, config, "gated_delta_net", layer.width, 21, 4, layer.norm_eps,
                          [&](ModelBuilder<Scalar>& builder, Index i, const NormKind<Scalar>& norm) {
                            add_gated_delta_net(builder, i, layer, norm,
                                                config.number("train_length", 512.0));
                          });
}

template <class Scalar>
LanguageModel<Scalar> load_post_gated_delta_net(const Checkpoint& checkpoint, WeightStorage storage,
                                                const ConfigReader& config) {
  const GatedDeltaNetLayerConfig layer = post_gated_delta_net(config);
  const Index layers = layer_count(checkpoint, config, "n_layer", 24);
  ModelBuilder<Scalar> builder(checkpoint, storage, names::post, "gated_delta_net", layer.width);
  builder.embedding(round_up(config.size("vocab_size", 8192), config.size("pad_vocab_size_multiple", 16)),
                    tied(config, "tie_embeddings"));
  const NormKind<Scalar> norm{Norm<Scalar>::Kind::rms, 1e-5, false};
  for (Index i = 0; i < layers; ++i)
    add_gated_delta_net(builder, i, layer, norm, config.number("train_length", 512.0));
  builder.final_norm(norm);
  return builder.finish();
}

template <class Scalar>
LanguageModel<Scalar> load_gla(const Checkpoint& checkpoint, WeightStorage storage,
                               const ConfigReader& config) {
  const GLALayerConfig layer = fla_gla(config);
  return load_fla<Scalar>(
      checkpoint, storage, config, "gla", layer.width, 24, 4, layer.norm_eps,
      [&](ModelBuilder<Scalar>& builder, Index i, const NormKind<Scalar>& norm) {
        const LayerNames names = builder.mixer(i);
        const auto weights = read_weights(builder.reader(), names, layer);
        std::optional<DecayParameters> decay;
        if (builder.reader().has(names, "a_proj.weight"))
          decay = read_decay(builder.reader(), names, head_decay_names, layer.heads,
                             config.number("train_length", 512.0));
        builder.add_mixer(i, norm, [=] {
          if (decay) return make_branch<GLALayer, Scalar>(layer, weights, *decay);
          DecayParameters unit;  // made now, when the tensors have confirmed the number of heads
          unit.log_rates = Eigen::ArrayXd::Zero(layer.heads);
          return make_branch<GLALayer, Scalar>(layer, weights, unit);
        });
      });
}

template <class Scalar>
LanguageModel<Scalar> load_retnet(const Checkpoint& checkpoint, WeightStorage storage,
                                  const ConfigReader& config) {
  const RetNetLayerConfig layer = fla_retnet(config);
  return load_fla<Scalar>(checkpoint, storage, config, "retnet", layer.width, 24, 2, layer.norm_eps,
                          [&](ModelBuilder<Scalar>& builder, Index i, const NormKind<Scalar>& norm) {
                            const auto weights = read_weights(builder.reader(), builder.mixer(i), layer);
                            builder.add_mixer(i, norm,
                                              branch_of<LayerBranch, RetNetLayer<Scalar>>(layer, weights));
                          });
}

}  // namespace detail

}  // namespace linrec::io
