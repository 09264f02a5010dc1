// Echo models (arXiv 2605.06997) of the published project, Koopman_Mamba: Mamba-2 layers with SKA in the
// place of some, a Koopman MLP after each. The project writes torch files: a checkpoint is its state dict
// converted to safetensors, and a config.json with the fields of its KoopmanLMConfig, whose names and
// defaults these are:
//
//   d_model 768, n_layers 24, vocab_size 32000, tie_embeddings true
//   d_state 128, d_conv 4, mamba_expand 2, mamba_headdim 64
//   ska_layer_indices        counted from 0; those of [4, 8, 12, 16, 20, 23] that there are, unless told. Any
//                            layer may be SKA: the paper excepts the first and last, the project's configs
//                            do not
//   ska_n_heads 12, ska_rank 48, ska_ridge 1e-3, ska_power_K 2, ska_chunk_size 64
//   mlp_expand 2.667, mlp_gated false, mlp_spectral_norm true
//   norm_type "layernorm" or "rmsnorm", norm_eps 1e-5
//
// and keys of our own, where the paper and the released code differ:
//
//   ska_operator             "minv": M G~^-1, as the released code; "whitened": as the paper
//   ska_visibility           "chunk": earlier chunks, as the released code trains; "inclusive": tokens up to
//                            and with the reader, as it decodes, and the paper; "exclusive": without it
//   ska_boundary_transition  true: the first key of a chunk is in the M that the chunk sees, as in the
//                            released code; false. Only "chunk" can have it
//   ska_key_scale            "sequence_max", as the released code; "unit_norm"; "none"
//   mlp_modulus              of the eigenvalues (KoopmanModulus): "disk"; "circle"; "free", as the released
//                            code if mlp_spectral_norm is false
//
// The first of each is what holds unless told. "sequence_max" is the longest key so far, exactly, at every
// token. The released training code takes that of the whole sequence, tokens to come included, and the
// released decoder keeps that of the prompt: outputs differ from theirs by as much as the ridge matters.
// (SKALayer::look_ahead gives the former.) A state serves one visibility only: released models, trained by
// chunks and decoding inclusively, are two models here, of one file and two configs.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "linrec/io/model_loading.hpp"

namespace linrec::io {

struct EchoConfig {
  Index width = 0, layers = 0, vocabulary = 0;
  bool tied = true, rms_norm = false;
  double norm_eps = 1e-5;
  Mamba2LayerConfig mamba2;
  SKALayerConfig ska;
  SpectralKoopmanMLPConfig mlp;
  std::vector<Index> ska_layers;

  bool is_ska(Index i) const {
    return std::find(ska_layers.begin(), ska_layers.end(), i) != ska_layers.end();
  }
};

namespace detail {

/// Keys of the project's later models that ask for what linrec does not have.
inline void check_echo_config(const ConfigReader& config) {
  config.require_text("ska_chunk_strategy", {"standard"});
  config.require_text("ska_mode", {"replace"});
  config.require_text("mlp_type", {"auto", "koopman", "koopman_gated"});
  config.require_text("mlp_rotation_param", {"legacy"});
  config.require_text("mlp_pair_mixer", {"none"});
  for (const char* key : {"ska_beta_policy", "ska_layerscale", "ska_short_conv", "ska_exact_intrachunk",
                          "ska_inverse_cholesky", "ska_prefix_scan", "ska_norm_clip", "ska_eta_bounds",
                          "ska_gamma_bounds", "mlp_norm_preserving", "mlp_row_norm_lift"})
    config.require_absent(key);
  const auto [least, most] = config.range("ska_gamma_clamp", {1, 1.5});
  if (least != 1 || most != 1.5)
    throw FormatError(message("file '", config.name(), "': key 'ska_gamma_clamp': expected [1, 1.5], got [",
                              least, ", ", most, "]"));
}

inline SpectralKoopmanAttentionConfig echo_attention(const ConfigReader& config, Index width) {
  SpectralKoopmanAttentionConfig ska;
  ska.heads = config.size("ska_n_heads", 12);
  ska.key = config.size("ska_rank", 48);
  ska.value = per_head(config, "ska_n_heads", width, ska.heads);
  ska.ridge = config.number("ska_ridge", 1e-3);
  ska.largest_ridge = ska.ridge + 1e-4;  // as the released code, where a factorisation fails
  ska.power = config.size("ska_power_K", 2, 0);
  ska.chunk = config.size("ska_chunk_size", 64);
  ska.koopman_operator =
      config.choice("ska_operator", KoopmanOperator::unwhitened,
                    {{"minv", KoopmanOperator::unwhitened}, {"whitened", KoopmanOperator::whitened}});
  ska.visibility = config.choice("ska_visibility", Visibility::earlier_chunks,
                                 {{"chunk", Visibility::earlier_chunks},
                                  {"inclusive", Visibility::inclusive},
                                  {"exclusive", Visibility::exclusive}});
  ska.key_scale = config.choice("ska_key_scale", KeyScale::sequence_max,
                                {{"sequence_max", KeyScale::sequence_max},
                                 {"unit_norm", KeyScale::unit_norm},
                                 {"none", KeyScale::none}});
  const bool chunks = ska.visibility == Visibility::earlier_chunks;
  ska.boundary_transition = config.flag("ska_boundary_transition", chunks);
  if (ska.boundary_transition && !chunks)
    throw FormatError(message("file '", config.name(),
                              "': key 'ska_boundary_transition': expected false, as the key "
                              "'ska_visibility' is not 'chunk', got true"));
  return ska;
}

inline std::vector<Index> echo_ska_indices(const ConfigReader& config, Index layers) {
  std::vector<Index> indices = config.sizes("ska_layer_indices", {4, 8, 12, 16, 20, 23}, 0);
  if (!config.has("ska_layer_indices")) std::erase_if(indices, [&](Index i) { return i >= layers; });
  for (const Index i : indices)
    if (i >= layers)
      throw FormatError(message("file '", config.name(),
                                "': key 'ska_layer_indices': expected layers from 0 to ", layers - 1,
                                ", got ", i));
  return indices;
}

}  // namespace detail

/// @throws FormatError, naming the file and the key.
inline EchoConfig echo_config(const ConfigReader& config) {
  detail::check_echo_config(config);
  EchoConfig m;
  m.width = m.mamba2.width = m.ska.width = m.mlp.width = config.size("d_model", 768);
  m.layers = config.size("n_layers", 24);
  m.vocabulary = config.size("vocab_size", 32000);
  m.tied = config.flag("tie_embeddings", true);
  m.rms_norm = config.choice("norm_type", false, {{"layernorm", false}, {"rmsnorm", true}});
  m.norm_eps = config.number("norm_eps", 1e-5);

  m.mamba2.head_dim = config.size("mamba_headdim", 64);
  m.mamba2.heads = per_head(config, "mamba_headdim",
                            scaled_size(config, "mamba_expand", m.width, config.number("mamba_expand", 2.0)),
                            m.mamba2.head_dim);
  m.mamba2.state_size = config.size("d_state", 128);
  m.mamba2.conv_width = config.size("d_conv", 4);

  m.ska.attention = detail::echo_attention(config, m.width);
  m.ska_layers = detail::echo_ska_indices(config, m.layers);

  m.mlp.hidden = round_up(scaled_size(config, "mlp_expand", m.width, config.number("mlp_expand", 2.667)), 64);
  const bool gated = config.flag("mlp_gated", false);
  m.mlp.gated =
      config.choice("mlp_type", gated, {{"auto", gated}, {"koopman", false}, {"koopman_gated", true}});
  const bool limited = config.flag("mlp_spectral_norm", true);
  m.mlp.modulus = config.choice(
      "mlp_modulus", limited ? KoopmanModulus::disk : KoopmanModulus::free,
      {{"disk", KoopmanModulus::disk}, {"circle", KoopmanModulus::circle}, {"free", KoopmanModulus::free}});
  return m;
}

namespace detail {

/// A tensor's name without what torch.compile adds to it; empty for the aliases that the released training
/// code leaves in a file, whose numbers are those of key_proj, query_proj and value_proj.
inline std::string echo_tensor_name(std::string name) {
  if (name.ends_with("_proj._fused_proj.weight")) return "";
  constexpr std::string_view wrapper = "_orig_mod.";
  for (auto at = name.find(wrapper); at != name.npos; at = name.find(wrapper, at)) {
    if (at == 0 || name[at - 1] == '.')
      name.erase(at, wrapper.size());
    else
      at += wrapper.size();
  }
  return name;
}

/// Parts of the names of tensors that only other models of the project have.
struct OtherEchoModel {
  std::string_view part, what;
};
inline constexpr OtherEchoModel other_echo_models[] = {
    {".ska.beta_proj.", "a later one, whose SKA weighs each token by a learned gate and normalises each key"},
    {".ska.beta_logit", "a later one, whose SKA weighs tokens by a learned number and normalises each key"},
    {".ska.eta_raw", "a later one, whose eta and gamma are kept within bounds by a sigmoid"},
    {".ska.layerscale_gate", "a later one, whose SKA has a learned scale for each channel of its outputs"},
    {".short_conv", "a later one, with a short convolution beside SKA"},
    {".mamba.mamba.", "a later one, with Mamba-2 and SKA side by side in a block"},
    {".theta", "a later one, whose Koopman MLP has angles in the place of gamma and omega"},
    {".lift_v", "a later one, whose Koopman MLP normalises the rows of its lift"},
    {".mixer.", "a later one, whose Koopman MLP mixes its pairs"},
    {".qkv.", "a baseline, with attention layers"},
    {".w1.", "one with SwiGLU in the place of Koopman MLPs"}};

inline void check_echo_tensors(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors())
    for (const auto& [part, what] : other_echo_models)
      if (name.find(part) != name.npos)
        throw FormatError(message("checkpoint '", checkpoint.name(), "': tensor ", in_quotes(name),
                                  ": expected a model as Echo's first release has it, got ", what,
                                  ", which linrec does not implement"));
}

inline bool has_layer(const Checkpoint& checkpoint, const std::string& prefix) {
  const auto first = checkpoint.tensors().lower_bound(prefix);
  return first != checkpoint.tensors().end() && first->first.starts_with(prefix);
}

/// Mamba-2 or SKA; the config and the tensors must agree which.
template <class Scalar>
void add_echo_sequence_layer(ModelBuilder<Scalar>& builder, Index i, const EchoConfig& m,
                             const NormKind<Scalar>& norm, double train_length) {
  const std::string block = message("seq_layers.", i);
  const std::string mamba2 = block + ".mamba.", ska = block + ".ska.";
  const bool is_ska = m.is_ska(i);
  auto& reader = builder.reader();
  if (has_layer(reader.checkpoint(), is_ska ? mamba2 : ska) &&
      !has_layer(reader.checkpoint(), is_ska ? ska : mamba2)) {
    reader.ignore_prefix(block + ".");
    return reader.problem("other layer: ", in_quotes(block), ": expected ", is_ska ? "SKA" : "Mamba-2",
                          " by the config's 'ska_layer_indices', got ", is_ska ? "Mamba-2" : "SKA");
  }
  if (!is_ska) return add_mamba2(builder, i, m.mamba2, {}, norm, train_length);
  const auto weights = read_weights(reader, LayerNames{ska}, m.ska);
  builder.add(block + ".ska", block + ".norm", norm,
              branch_of<LayerBranch, SKALayer<Scalar>>(m.ska, weights));
}

template <class Scalar>
LanguageModel<Scalar> load_echo(const Checkpoint& file, WeightStorage storage, const ConfigReader& config) {
  const Checkpoint checkpoint = file.renamed(echo_tensor_name);
  check_echo_tensors(checkpoint);
  const EchoConfig m = echo_config(config);
  const Index layers = layer_count(checkpoint, config, "n_layers", m.layers);
  ModelBuilder<Scalar> builder(checkpoint, storage, names::echo, "echo", m.width);
  builder.embedding(m.vocabulary, m.tied);
  const NormKind<Scalar> norm{m.rms_norm ? Norm<Scalar>::Kind::rms : Norm<Scalar>::Kind::layer, m.norm_eps,
                              !m.rms_norm};
  for (Index i = 0; i < layers; ++i) {
    add_echo_sequence_layer(builder, i, m, norm, config.number("train_length", 2048.0));
    const std::string mlp = message("mlp_layers.", i);
    const auto weights = read_weights(builder.reader(), LayerNames{mlp + "."}, m.mlp);
    builder.add(mlp, mlp + ".norm", norm, branch_of<MLPBranch, SpectralKoopmanMLP<Scalar>>(m.mlp, weights));
  }
  builder.final_norm(norm);
  return builder.finish();
}

}  // namespace detail

}  // namespace linrec::io
