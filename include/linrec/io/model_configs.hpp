// How each project's config.json becomes the configs of our layers. Defaults are the projects' own.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "linrec/io/config_reader.hpp"
#include "linrec/layers/gated_delta_net_layer.hpp"
#include "linrec/layers/gla_layer.hpp"
#include "linrec/layers/mamba2_layer.hpp"
#include "linrec/layers/retnet_layer.hpp"
#include "linrec/layers/rwkv7_time_mix.hpp"

namespace linrec::io {

/// a multiple of b, at least a
inline Index round_up(Index a, Index b) { return (a + b - 1) / b * b; }

/// Integers that Python computes as int(size * factor).
inline Index scaled_size(const ConfigReader& config, std::string_view key, Index size, double factor) {
  const double scaled = std::trunc(static_cast<double>(size) * factor);
  if (!(scaled >= 1 && scaled <= static_cast<double>(ConfigReader::largest_size)))
    throw FormatError(message("file '", config.name(), "': key ", detail::in_quotes(key),
                              ": expected a factor that gives 1 to ", ConfigReader::largest_size,
                              " channels of ", size, ", got ", factor));
  return static_cast<Index>(scaled);
}
/// `size` channels for `heads` heads.
inline Index per_head(const ConfigReader& config, std::string_view key, Index size, Index heads) {
  if (size % heads != 0)
    throw FormatError(message("file '", config.name(), "': key ", detail::in_quotes(key),
                              ": expected a number of heads that divides ", size, " channels, got ", heads));
  return size / heads;
}

/// What state-spaces/mamba's models have beside the layers.
struct StateSpacesMamba2 {
  Mamba2LayerConfig layer;
  bool conv_bias, projection_bias, wide_D, rms_norm;
  Index vocabulary, layers, mlp_width;
};

inline StateSpacesMamba2 state_spaces_mamba2(const ConfigReader& config) {
  const ConfigReader layer = config.object("ssm_cfg");
  if (layer.text("layer", "Mamba1") != "Mamba2")
    throw FormatError(message("file '", layer.name(), "': key 'layer': expected 'Mamba2', got '",
                              layer.text("layer", "Mamba1"), "'"));
  config.require_absent("attn_layer_idx");
  StateSpacesMamba2 m{};
  m.layer.width = config.size("d_model");
  const Index inner = scaled_size(layer, "expand", m.layer.width, layer.number("expand", 2.0));
  const Index kernel = layer.size("d_ssm", inner);
  if (kernel > inner)
    throw FormatError(
        message("file '", layer.name(), "': key 'd_ssm': expected at most ", inner, ", got ", kernel));
  m.layer.head_dim = layer.size("headdim", 64);
  m.layer.heads = per_head(layer, "headdim", kernel, m.layer.head_dim);
  m.layer.mlp_width = inner - kernel;
  m.layer.state_size = layer.size("d_state", 128);
  m.layer.groups = m.layer.norm_groups = layer.size("ngroups", 1);
  m.layer.conv_width = layer.size("d_conv", 4);
  m.layer.gated_norm = layer.flag("rmsnorm", true);
  m.layer.norm_before_gate = layer.flag("norm_before_gate", false);
  std::tie(m.layer.dt_min, m.layer.dt_max) =
      layer.range("dt_limit", {0, std::numeric_limits<double>::infinity()});
  m.conv_bias = layer.flag("conv_bias", true);
  m.projection_bias = layer.flag("bias", false);
  m.wide_D = layer.flag("D_has_hdim", false);
  m.rms_norm = config.flag("rms_norm", true);
  m.layers = config.size("n_layer");
  m.vocabulary = round_up(config.size("vocab_size"), config.size("pad_vocab_size_multiple", 8));
  const Index mlp = config.size("d_intermediate", 0, 0);
  m.mlp_width = mlp == 0 ? 0 : round_up(mlp, 128);
  return m;
}

/// Hugging Face's Mamba-2, and PoST's, which share their keys. The gated norm is by groups, as the models are
/// trained, although some inference code normalises all channels together.
inline Mamba2LayerConfig transformers_mamba2(const ConfigReader& config, bool post) {
  config.require_text("hidden_act", {"silu", "swish"});
  Mamba2LayerConfig layer;
  layer.width = config.size("hidden_size");
  const Index inner = scaled_size(config, "expand", layer.width, config.number("expand", 2.0));
  layer.head_dim = config.size("head_dim", 64);
  layer.heads = per_head(config, "head_dim", inner, layer.head_dim);
  if (config.size("num_heads", layer.heads) != layer.heads)
    throw FormatError(message("file '", config.name(),
                              "': key 'num_heads': expected expand hidden_size / head_dim = ", layer.heads,
                              ", got ", config.size("num_heads")));
  layer.state_size = config.size("state_size", 128);
  layer.groups = config.size("n_groups", post ? 1 : 8);
  layer.norm_groups = post ? 1 : layer.groups;
  layer.conv_width = config.size("conv_kernel", 4);
  layer.norm_eps = config.number("layer_norm_epsilon", config.number("norm_eps", 1e-5));
  std::tie(layer.dt_min, layer.dt_max) =
      config.range("time_step_limit", {0, std::numeric_limits<double>::infinity()});
  return layer;
}

inline FeatureMap feature_map(const ConfigReader& config) {
  if (!config.has("feature_map")) return FeatureMap::identity;
  config.require_text("feature_map", {"relu", "sigmoid", "silu", "swish", "sqrelu"});
  const std::string name = config.text("feature_map");
  if (name == "relu") return FeatureMap::relu;
  if (name == "sigmoid") return FeatureMap::sigmoid;
  if (name == "sqrelu") return FeatureMap::squared_relu;
  return FeatureMap::silu;
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

/// RWKV-7 in fla, and PoST's, whose keys differ.
struct RWKV7Sizes {
  Index width, key, layers, vocabulary, hidden;
  double norm_eps;
};
inline RWKV7Sizes fla_rwkv7_sizes(const ConfigReader& config) {
  config.require_text("hidden_act", {"sqrelu"});
  config.require_absent("attn");
  RWKV7Sizes m{};
  m.width = config.size("hidden_size", 2048);
  m.key = config.has("head_dim") || !config.has("num_heads")
              ? config.size("head_dim", 64)
              : per_head(config, "num_heads", m.width, config.size("num_heads"));
  m.layers = config.size("num_hidden_layers", 24);
  m.vocabulary = config.size("vocab_size", 32000);
  m.hidden = config.size(
      "intermediate_size",
      round_up(scaled_size(config, "hidden_ratio", m.width, config.number("hidden_ratio", 4.0)), 32));
  m.norm_eps = config.number("norm_eps", 1e-5);
  return m;
}
inline RWKV7Sizes post_rwkv7_sizes(const ConfigReader& config) {
  RWKV7Sizes m{};
  m.width = config.size("d_model", 64);
  m.key = config.size("head_dim", 64);
  m.layers = config.size("n_layer", 2);
  m.vocabulary = round_up(config.size("vocab_size", 8192), config.size("pad_vocab_size_multiple", 16));
  m.hidden = config.size(
      "dim_ffn",
      round_up(scaled_size(config, "hidden_ratio", m.width, config.number("hidden_ratio", 4.0)), 32));
  m.norm_eps = config.number("norm_eps", 1e-5);
  return m;
}
/// The time mixing of layer i.
inline RWKV7TimeMixConfig rwkv7_time_mix(const ConfigReader& config, const RWKV7Sizes& m, Index i,
                                         double kk_eps) {
  RWKV7TimeMixConfig layer;
  layer.width = m.width;
  layer.key = m.key;
  layer.heads = per_head(config, "head_dim", m.width, m.key);
  layer.value =
      per_head(config, "value_dim", config.size_of_entry("value_dim", static_cast<std::size_t>(i), m.width),
               layer.heads);
  layer.first_layer = i == 0;
  layer.norm_eps = static_cast<double>(m.key) * m.norm_eps;
  layer.kk_eps = kk_eps;
  return layer;
}

}  // namespace linrec::io
