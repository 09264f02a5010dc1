// Mamba-2 models of state-spaces/mamba, of Hugging Face transformers, and of PoST: how their config.json
// becomes the config of our layers, with their own defaults, and what their blocks consist of.
#pragma once

#include <limits>
#include <string>
#include <tuple>

#include "linrec/io/model_loading.hpp"

namespace linrec::io {

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

namespace detail {

template <class Scalar>
LanguageModel<Scalar> load_state_spaces(const Checkpoint& checkpoint, WeightStorage storage,
                                        const ConfigReader& config) {
  const StateSpacesMamba2 m = state_spaces_mamba2(config);
  const Index layers = layer_count(checkpoint, config, "n_layer");
  ModelBuilder<Scalar> builder(checkpoint, storage, names::state_spaces, "mamba2", m.layer.width);
  builder.embedding(m.vocabulary, config.flag("tie_embeddings", true));
  const NormKind<Scalar> norm{m.rms_norm ? Norm<Scalar>::Kind::rms : Norm<Scalar>::Kind::layer, 1e-5,
                              !m.rms_norm};
  for (Index i = 0; i < layers; ++i) {
    add_mamba2(builder, i, m.layer, {m.projection_bias, m.conv_bias, m.wide_D}, norm,
               config.number("train_length", 2048.0));
    if (m.mlp_width == 0) continue;
    const auto mlp = read_mamba_mlp(builder.reader(), builder.mlp(i), m.layer.width, m.mlp_width);
    add_gated_mlp(builder, i, norm, m.layer.width, m.mlp_width, mlp);
  }
  builder.final_norm(norm);
  return builder.finish();
}

/// @param post PoST's, which shares the keys.
template <class Scalar>
LanguageModel<Scalar> load_transformers(const Checkpoint& checkpoint, WeightStorage storage,
                                        const ConfigReader& config, bool post) {
  const Mamba2LayerConfig layer = transformers_mamba2(config, post);
  const Index layers = layer_count(checkpoint, config, "num_hidden_layers");
  ModelNames theirs = post ? names::post_mamba2 : names::transformers;
  if (checkpoint.contains("backbone.embedding.weight")) theirs.embedding = "backbone.embedding";
  ModelBuilder<Scalar> builder(checkpoint, storage, theirs, "mamba2", layer.width);
  builder.embedding(config.size("vocab_size", 32768), tied(config));
  const NormKind<Scalar> norm{Norm<Scalar>::Kind::rms, post ? 1e-5 : layer.norm_eps, false};
  const Mamba2Tensors tensors{config.flag("use_bias", false), config.flag("use_conv_bias", true), false};
  for (Index i = 0; i < layers; ++i)
    add_mamba2(builder, i, layer, tensors, norm, config.number("train_length", 2048.0));
  builder.final_norm(norm);
  return builder.finish();
}

}  // namespace detail

}  // namespace linrec::io
