// Random weights for every kind of layer. A layer in float has those of the layer in double, rounded.
#pragma once

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "linrec/layers/rwkv7_channel_mix.hpp"
#include "tests/kernels/tensor.hpp"
#include "tests/layers/layer_spec.hpp"

namespace linrec::test {

template <class Scalar>
class RandomWeights {
 public:
  explicit RandomWeights(const LayerSpec& spec) : random_(spec.seed), matrices_(spec.matrices) {}

  /// The numbers begin one past the start of their memory: weights in a mapped file lie anywhere.
  Parameter<Scalar> tensor(std::vector<Index> shape, double low, double high) {
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    auto owner = std::make_shared<std::vector<Scalar>>(static_cast<std::size_t>(count + 1));
    for (Index i = 0; i < count; ++i)
      (*owner)[static_cast<std::size_t>(i + 1)] = static_cast<Scalar>(random_.uniform(low, high));
    return {owner->data() + 1, count, std::move(shape), owner};
  }
  /// Outputs of the size of the inputs.
  Parameter<Scalar> matrix(Index outputs, Index inputs) {
    const double bound = std::sqrt(3 / static_cast<double>(std::max<Index>(inputs, 1)));
    const Parameter<Scalar> plain = tensor({outputs, inputs}, -bound, bound);
    if (matrices_ == Matrices::plain) return plain;
    return matrices_ == Matrices::bfloat16 ? plain.narrowed() : plain.narrowed().widened();
  }
  Parameter<Scalar> vector(Index n, double low = -0.5, double high = 0.5) { return tensor({n}, low, high); }

  LowRankWeights<Scalar> low_rank(Index outputs, Index rank, Index inputs, bool bias) {
    LowRankWeights<Scalar> w;
    w.down = matrix(rank, inputs);
    w.up = matrix(outputs, rank);
    if (bias) w.bias = vector(outputs);
    return w;
  }
  void attention(Index width, Index queries, Index keys, Index values, Index taps, QKVWeights<Scalar>& w) {
    w.q_proj = matrix(queries, width), w.k_proj = matrix(keys, width), w.v_proj = matrix(values, width);
    if (taps == 0) return;
    w.q_conv1d = tensor({queries, 1, taps}, -0.6, 0.8), w.k_conv1d = tensor({keys, 1, taps}, -0.6, 0.8),
    w.v_conv1d = tensor({values, taps}, -0.6, 0.8);  // both forms are legal
  }
  void output(Index width, Index heads, Index value_dim, bool gate, bool norm, HeadOutputWeights<Scalar>& w) {
    if (gate) w.g_proj = matrix(heads * value_dim, width);
    if (norm) w.norm = vector(value_dim, 0.5, 1.5);
    w.o_proj = matrix(width, heads * value_dim);
  }

 private:
  Random random_;
  Matrices matrices_;
};

template <class Scalar>
Mamba2LayerWeights<Scalar> weights_of(const LayerSpec& spec, const Mamba2LayerConfig& c) {
  RandomWeights<Scalar> random(spec);
  const Index rows = 2 * c.mlp_width + c.inner() + c.conv_channels() + c.heads;
  Mamba2LayerWeights<Scalar> w;
  w.in_proj = random.matrix(rows, c.width);
  w.conv1d = random.tensor({c.conv_channels(), 1, c.conv_width}, -0.6, 0.8);
  w.conv1d_bias = random.vector(c.conv_channels());
  w.dt_bias = random.vector(c.heads, -2, 1);
  w.D = random.vector(spec.extras ? c.inner() : c.heads);
  if (c.gated_norm) w.norm = random.vector(c.inner(), 0.5, 1.5);
  w.out_proj = random.matrix(c.width, c.mlp_width + c.inner());
  if (spec.extras) w.in_proj_bias = random.vector(rows), w.out_proj_bias = random.vector(c.width);
  return w;
}

template <class Scalar>
RWKV7TimeMixWeights<Scalar> weights_of(const LayerSpec& spec, const RWKV7TimeMixConfig& c) {
  RandomWeights<Scalar> random(spec);
  const Index keys = c.heads * c.key, values = c.heads * c.value;
  RWKV7TimeMixWeights<Scalar> w;
  for (Parameter<Scalar>* mu : {&w.x_r, &w.x_w, &w.x_k, &w.x_v, &w.x_a, &w.x_g})
    *mu = random.vector(c.width, 0, 1);
  w.r_proj = random.matrix(keys, c.width), w.k_proj = random.matrix(keys, c.width);
  w.v_proj = random.matrix(values, c.width), w.o_proj = random.matrix(c.width, values);
  w.w_lora = random.low_rank(keys, 4, c.width, spec.post), w.a_lora = random.low_rank(keys, 3, c.width, true);
  w.g_lora = random.low_rank(values, 6, c.width, false);
  if (!c.first_layer) w.v_lora = random.low_rank(values, 5, c.width, true);
  w.k_k = random.vector(keys, 0.5, 1.5), w.k_a = random.vector(keys, 0, 1);
  w.r_k = random.tensor({c.heads, c.key}, -0.5, 0.5);
  w.g_norm = random.vector(values, 0.5, 1.5), w.g_norm_bias = random.vector(values);
  return w;
}

template <class Scalar>
RWKV7ChannelMixWeights<Scalar> weights_of(const LayerSpec& spec, const ChannelMixConfig& c) {
  RandomWeights<Scalar> random(spec);
  return {random.vector(c.width, 0, 1), random.matrix(c.hidden, c.width), random.matrix(c.width, c.hidden)};
}

template <class Scalar>
GatedDeltaNetLayerWeights<Scalar> weights_of(const LayerSpec& spec, const GatedDeltaNetLayerConfig& c) {
  RandomWeights<Scalar> random(spec);
  const Index heads = c.output_heads(), keys = c.heads * c.key_dim;
  GatedDeltaNetLayerWeights<Scalar> w;
  random.attention(c.width, keys, keys, heads * c.value_dim, c.conv_width, w);
  w.a_proj = random.matrix(heads, c.width), w.dt_bias = random.vector(heads, -2, 1);
  w.b_proj = random.matrix(heads, c.width);
  random.output(c.width, heads, c.value_dim, c.output_gate, true, w);
  return w;
}

template <class Scalar>
GLALayerWeights<Scalar> weights_of(const LayerSpec& spec, const GLALayerConfig& c) {
  RandomWeights<Scalar> random(spec);
  const Index keys = c.groups() * c.key_dim;
  GLALayerWeights<Scalar> w;
  random.attention(c.width, c.heads * c.key_dim, keys, c.groups() * c.value_dim, c.conv_width, w);
  if (spec.post) {
    w.a_proj = random.matrix(keys, c.width), w.dt_bias = random.vector(keys, -2, 1);
  } else {
    w.gk_proj_0 = random.matrix(3, c.width);
    w.gk_proj_1 = random.matrix(keys, 3), w.gk_proj_1_bias = random.vector(keys, -3, 1);
  }
  random.output(c.width, c.heads, c.value_dim, c.output_gate, c.norm_weight, w);
  return w;
}

template <class Scalar>
RetNetLayerWeights<Scalar> weights_of(const LayerSpec& spec, const RetNetLayerConfig& c) {
  RandomWeights<Scalar> random(spec);
  RetNetLayerWeights<Scalar> w;
  random.attention(c.width, c.heads * c.key_dim, c.groups() * c.key_dim, c.groups() * c.value_dim,
                   c.conv_width, w);
  random.output(c.width, c.heads, c.value_dim, c.output_gate, c.norm_weight, w);
  return w;
}

template <class Scalar>
SKALayerWeights<Scalar> weights_of(const LayerSpec& spec, const SKALayerConfig& c) {
  RandomWeights<Scalar> random(spec);
  const Index keys = c.attention.heads * c.attention.key, values = c.attention.heads * c.attention.value;
  SKALayerWeights<Scalar> w;
  w.key_proj = random.matrix(keys, c.width), w.query_proj = random.matrix(keys, c.width);
  w.value_proj = random.matrix(values, c.width), w.out_proj = random.matrix(c.width, values);
  w.eta = random.tensor({}, 1, 1.5), w.ssn_gamma = random.tensor({1}, 0.9, 1.2);  // both forms are legal
  return w;
}

/// Increasing: the log-rates of Mamba-2, Gated DeltaNet, GLA and RetNet, or the logits w0 of RWKV-7.
inline Eigen::ArrayXd log_rates_of_layer(Index channels, double low = -2, double high = 1) {
  Random random(static_cast<std::uint64_t>(channels));
  const double gap = (high - low) / static_cast<double>(channels);
  Eigen::ArrayXd rates(channels);
  for (Index k = 0; k < channels; ++k)
    rates[k] = low + gap * (static_cast<double>(k) + random.uniform(0.1, 0.9));
  return rates;
}

}  // namespace linrec::test
