// The tensors of each layer, by the names that we and most projects give them, and the one table of those
// that go by other names elsewhere.
//
// Decay rates: a plain layer stores them as they are (A_log, w0); a PoST layer as A_log_base or w0_base and
// the gaps A_log_deltas, A_log_delta or w0_delta, and its taper is learned if there are alpha_logits and
// gap-aware otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "linrec/io/decay_parameters.hpp"
#include "linrec/io/weight_reader.hpp"
#include "linrec/layers/gated_delta_net_layer.hpp"
#include "linrec/layers/gated_mlp.hpp"
#include "linrec/layers/gla_layer.hpp"
#include "linrec/layers/mamba2_layer.hpp"
#include "linrec/layers/retnet_layer.hpp"
#include "linrec/layers/rwkv7_channel_mix.hpp"
#include "linrec/layers/rwkv7_time_mix.hpp"
#include "linrec/layers/ska_layer.hpp"
#include "linrec/layers/spectral_koopman_mlp.hpp"

namespace linrec::io {

/// What the published RWKV-7 models (BlinkDL's) call the tensors of their time mixing.
inline constexpr NameEntry rwkv7_published_names[] = {
    {"r_proj.weight", "receptance.weight"}, {"k_proj.weight", "key.weight"},
    {"v_proj.weight", "value.weight"},      {"o_proj.weight", "output.weight"},
    {"g_norm.weight", "ln_x.weight"},       {"g_norm.bias", "ln_x.bias"},
    {"w_lora.lora.0.weight", "w1", true},   {"w_lora.lora.2.weight", "w2", true},
    {"w_lora.lora.2.bias", "w0"},           {"a_lora.lora.0.weight", "a1", true},
    {"a_lora.lora.2.weight", "a2", true},   {"a_lora.lora.2.bias", "a0"},
    {"v_lora.lora.0.weight", "v1", true},   {"v_lora.lora.2.weight", "v2", true},
    {"v_lora.lora.2.bias", "v0"},           {"g_lora.lora.0.weight", "g1", true},
    {"g_lora.lora.2.weight", "g2", true},
};

/// Which optional tensors a Mamba-2 layer has.
struct Mamba2Tensors {
  bool projection_bias = false, conv_bias = true, wide_D = false;
};

template <class Scalar>
Mamba2LayerWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                        const Mamba2LayerConfig& config, const Mamba2Tensors& tensors) {
  const Index inner = config.inner(), channels = config.conv_channels();
  const Index rows = 2 * config.mlp_width + inner + channels + config.heads;
  Mamba2LayerWeights<Scalar> w;
  w.in_proj = reader.matrix(names, "in_proj.weight", {rows, config.width});
  w.conv1d = reader.get(names, "conv1d.weight", {channels, 1, config.conv_width});
  if (tensors.conv_bias) w.conv1d_bias = reader.get(names, "conv1d.bias", {channels});
  w.dt_bias = reader.get(names, "dt_bias", {config.heads});
  w.D = reader.get(names, "D", {tensors.wide_D ? inner : config.heads});
  if (config.gated_norm) w.norm = reader.get(names, "norm.weight", {inner});
  w.out_proj = reader.matrix(names, "out_proj.weight", {config.width, config.mlp_width + inner});
  if (tensors.projection_bias) {
    w.in_proj_bias = reader.get(names, "in_proj.bias", {rows});
    w.out_proj_bias = reader.get(names, "out_proj.bias", {config.width});
  }
  return w;
}

/// q, k, v and their convolutions, gate, norm and output projection.
template <class Scalar, class Weights>
void read_attention(WeightReader<Scalar>& reader, const LayerNames& names, Index width, Index queries,
                    Index keys, Index values, Index conv_width, Weights& w) {
  w.q_proj = reader.matrix(names, "q_proj.weight", {queries, width});
  w.k_proj = reader.matrix(names, "k_proj.weight", {keys, width});
  w.v_proj = reader.matrix(names, "v_proj.weight", {values, width});
  if (conv_width > 0) {
    w.q_conv1d = reader.get(names, "q_conv1d.weight", {queries, 1, conv_width});
    w.k_conv1d = reader.get(names, "k_conv1d.weight", {keys, 1, conv_width});
    w.v_conv1d = reader.get(names, "v_conv1d.weight", {values, 1, conv_width});
  }
}
template <class Scalar, class Weights>
void read_output(WeightReader<Scalar>& reader, const LayerNames& names, Index width, Index heads,
                 Index value_dim, bool gate, const std::string& norm, Weights& w) {
  if (gate) w.g_proj = reader.matrix(names, "g_proj.weight", {heads * value_dim, width});
  if (!norm.empty()) w.norm = reader.get(names, norm + ".weight", {value_dim});
  w.o_proj = reader.matrix(names, "o_proj.weight", {width, heads * value_dim});
}
/// GLA and RetNet call their norm after the code that computes it.
template <class Scalar>
std::string head_norm_name(const WeightReader<Scalar>& reader, const LayerNames& names, bool weight) {
  if (!weight) return "";
  return reader.has(names, "g_norm.weight") ? "g_norm" : "g_norm_swish_gate";
}

template <class Scalar>
GatedDeltaNetLayerWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                               const GatedDeltaNetLayerConfig& config) {
  const Index heads = config.output_heads(), keys = config.heads * config.key_dim;
  GatedDeltaNetLayerWeights<Scalar> w;
  read_attention(reader, names, config.width, keys, keys, heads * config.value_dim, config.conv_width, w);
  w.a_proj = reader.matrix(names, "a_proj.weight", {heads, config.width});
  w.b_proj = reader.matrix(names, "b_proj.weight", {heads, config.width});
  w.dt_bias = reader.get(names, "dt_bias", {heads});
  read_output(reader, names, config.width, heads, config.value_dim, config.output_gate, "o_norm", w);
  return w;
}

/// The gate is PoST's if there is an a_proj.
template <class Scalar>
GLALayerWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                     const GLALayerConfig& config) {
  const Index keys = config.groups() * config.key_dim;
  GLALayerWeights<Scalar> w;
  read_attention(reader, names, config.width, config.heads * config.key_dim, keys,
                 config.groups() * config.value_dim, config.conv_width, w);
  if (reader.has(names, "a_proj.weight")) {
    w.a_proj = reader.matrix(names, "a_proj.weight", {keys, config.width});
    w.dt_bias = reader.get(names, "dt_bias", {keys});
  } else {
    const Index rank = reader.rows(names, "gk_proj.0.weight");
    w.gk_proj_0 = reader.matrix(names, "gk_proj.0.weight", {rank, config.width});
    w.gk_proj_1 = reader.matrix(names, "gk_proj.1.weight", {keys, rank});
    w.gk_proj_1_bias = reader.get(names, "gk_proj.1.bias", {keys});
  }
  read_output(reader, names, config.width, config.heads, config.value_dim, config.output_gate,
              head_norm_name(reader, names, config.norm_weight), w);
  return w;
}

template <class Scalar>
RetNetLayerWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                        const RetNetLayerConfig& config) {
  RetNetLayerWeights<Scalar> w;
  read_attention(reader, names, config.width, config.heads * config.key_dim, config.groups() * config.key_dim,
                 config.groups() * config.value_dim, config.conv_width, w);
  read_output(reader, names, config.width, config.heads, config.value_dim, config.output_gate,
              head_norm_name(reader, names, config.norm_weight), w);
  return w;
}

template <class Scalar>
LowRankWeights<Scalar> read_low_rank(WeightReader<Scalar>& reader, const LayerNames& names,
                                     const std::string& name, Index outputs, Index inputs, bool bias) {
  const Index rank = reader.rows(names, name + ".lora.0.weight");
  LowRankWeights<Scalar> w;
  w.down = reader.matrix(names, name + ".lora.0.weight", {rank, inputs});
  w.up = reader.matrix(names, name + ".lora.2.weight", {outputs, rank});
  if (bias) w.bias = reader.get(names, name + ".lora.2.bias", {outputs});
  return w;
}

/// Also the form in which fla once kept the six mu in one tensor x_x.
template <class Scalar>
RWKV7TimeMixWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                         const RWKV7TimeMixConfig& config) {
  const Index width = config.width, keys = config.heads * config.key, values = config.heads * config.value;
  RWKV7TimeMixWeights<Scalar> w;
  Parameter<Scalar>* mu[] = {&w.x_r, &w.x_w, &w.x_k, &w.x_v, &w.x_a, &w.x_g};
  if (reader.has(names, "x_x")) {
    const Parameter<Scalar> all = reader.get(names, "x_x", {6, width});
    if (all.present())
      for (Index i = 0; i < 6; ++i) *mu[i] = all.rows(i, 1).reshaped({width});
  } else {
    for (Index i = 0; i < 6; ++i) *mu[i] = reader.get(names, std::string("x_") + "rwkvag" [i], { width });
  }
  w.r_proj = reader.matrix(names, "r_proj.weight", {keys, width});
  w.k_proj = reader.matrix(names, "k_proj.weight", {keys, width});
  w.v_proj = reader.matrix(names, "v_proj.weight", {values, width});
  w.o_proj = reader.matrix(names, "o_proj.weight", {width, values});
  // Of a plain layer the bias of w_lora is the spectrum; PoST has both.
  w.w_lora = read_low_rank(reader, names, "w_lora", keys, width, reader.has(names, rwkv7_decay_names.base));
  w.a_lora = read_low_rank(reader, names, "a_lora", keys, width, true);
  w.g_lora = read_low_rank(reader, names, "g_lora", values, width, false);
  if (!config.first_layer) {
    w.v_lora = read_low_rank(reader, names, "v_lora", values, width, true);
  } else {  // trainers write them for the first layer, too, and nobody reads them
    for (const char* name : {"v_lora.lora.0.weight", "v_lora.lora.2.weight", "v_lora.lora.2.bias"})
      reader.ignore(names.prefix + std::string(names.find(name).theirs));
  }
  w.k_k = reader.get(names, "k_k", {keys});
  w.k_a = reader.get(names, "k_a", {keys});
  w.r_k = reader.get(names, "r_k", {config.heads, config.key});
  w.g_norm = reader.get(names, "g_norm.weight", {values});
  w.g_norm_bias = reader.get(names, "g_norm.bias", {values});
  return w;
}
template <class Scalar>
RWKV7ChannelMixWeights<Scalar> read_channel_mix(WeightReader<Scalar>& reader, const LayerNames& names,
                                                Index width, Index hidden) {
  RWKV7ChannelMixWeights<Scalar> w;
  w.x_k = reader.get(names, "x_k", {width});
  w.key = reader.matrix(names, "key.weight", {hidden, width});
  w.value = reader.matrix(names, "value.weight", {width, hidden});
  return w;
}

/// Also the form in which fla once kept gate and up in one tensor.
template <class Scalar>
GatedMLPWeights<Scalar> read_gated_mlp(WeightReader<Scalar>& reader, const LayerNames& names, Index width,
                                       Index hidden) {
  GatedMLPWeights<Scalar> w;
  if (reader.has(names, "gate_proj.weight") && !reader.has(names, "up_proj.weight")) {
    const Parameter<Scalar> both = reader.matrix(names, "gate_proj.weight", {2 * hidden, width});
    if (both.present()) w.gate = both.rows(0, hidden), w.up = both.rows(hidden, hidden);
  } else {
    w.gate = reader.matrix(names, "gate_proj.weight", {hidden, width});
    w.up = reader.matrix(names, "up_proj.weight", {hidden, width});
  }
  w.down = reader.matrix(names, "down_proj.weight", {width, hidden});
  return w;
}
/// The MLP of state-spaces/mamba, whose first map gives the values and then the gates.
template <class Scalar>
GatedMLPWeights<Scalar> read_mamba_mlp(WeightReader<Scalar>& reader, const LayerNames& names, Index width,
                                       Index hidden) {
  GatedMLPWeights<Scalar> w;
  const Parameter<Scalar> both = reader.matrix(names, "fc1.weight", {2 * hidden, width});
  if (both.present()) w.up = both.rows(0, hidden), w.gate = both.rows(hidden, hidden);
  w.down = reader.matrix(names, "fc2.weight", {width, hidden});
  return w;
}

/// eta and ssn_gamma may be [] or [1].
template <class Scalar>
SKALayerWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                     const SKALayerConfig& config) {
  const Index width = config.width, heads = config.attention.heads;
  const Index keys = heads * config.attention.key, values = heads * config.attention.value;
  SKALayerWeights<Scalar> w;
  w.key_proj = reader.matrix(names, "key_proj.weight", {keys, width});
  w.query_proj = reader.matrix(names, "query_proj.weight", {keys, width});
  w.value_proj = reader.matrix(names, "value_proj.weight", {values, width});
  w.out_proj = reader.matrix(names, "out_proj.weight", {width, values});
  w.eta = reader.get(names, "eta", {});
  w.ssn_gamma = reader.get(names, "ssn_gamma", {});
  return w;
}

template <class Scalar>
SpectralKoopmanMLPWeights<Scalar> read_weights(WeightReader<Scalar>& reader, const LayerNames& names,
                                               const SpectralKoopmanMLPConfig& config) {
  SpectralKoopmanMLPWeights<Scalar> w;
  w.lift = reader.matrix(names, "lift.weight", {config.hidden, config.width});
  w.gamma = reader.get(names, "gamma", {config.hidden / 2});
  w.omega = reader.get(names, "omega", {config.hidden / 2});
  w.readout = reader.matrix(names, "readout.weight", {config.width, config.hidden});
  if (config.gated) w.gate = reader.matrix(names, "gate.weight", {config.hidden, config.width});
  return w;
}

}  // namespace linrec::io
