// RWKV-7 models of BlinkDL, of fla, and of PoST: how their config.json becomes the config of our layers, with
// their own defaults, and what their blocks consist of. BlinkDL's have no config: the tensors say it all.
#pragma once

#include <algorithm>
#include <charconv>
#include <span>
#include <string>

#include "linrec/io/model_loading.hpp"

namespace linrec::io {

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

namespace detail {

template <class Scalar>
void add_rwkv7(ModelBuilder<Scalar>& builder, Index i, const RWKV7TimeMixConfig& layer, Index hidden,
               const NormKind<Scalar>& norm, std::span<const NameEntry> entries, double train_length) {
  const LayerNames names = builder.mixer(i, entries);
  const auto weights = read_weights(builder.reader(), names, layer);
  const auto decay =
      read_decay(builder.reader(), names, rwkv7_decay_names, layer.heads * layer.key, train_length);
  builder.add_mixer(i, norm, [=] { return make_branch<RWKV7TimeMix, Scalar>(layer, weights, decay); });
  const auto mlp = read_channel_mix(builder.reader(), builder.mlp(i), layer.width, hidden);
  builder.add_mlp(i, norm, branch_of<LayerBranch, RWKV7ChannelMix<Scalar>>(layer.width, hidden, mlp));
}

template <class Scalar>
LanguageModel<Scalar> load_fla_rwkv7(const Checkpoint& checkpoint, WeightStorage storage,
                                     const ConfigReader& config) {
  const RWKV7Sizes m = fla_rwkv7_sizes(config);
  const Index layers = layer_count(checkpoint, config, "num_hidden_layers", m.layers);
  const NormKind<Scalar> norm{Norm<Scalar>::Kind::layer, m.norm_eps, config.flag("norm_bias", true)};
  ModelBuilder<Scalar> builder(checkpoint, storage, names::fla_rwkv7, "rwkv7", m.width);
  builder.embedding(m.vocabulary, tied(config));
  if (config.flag("norm_first", true)) builder.embedding_norm(norm);
  for (Index i = 0; i < layers; ++i)
    add_rwkv7(builder, i, rwkv7_time_mix(config, m, i, config.flag("fuse_norm", true) ? 1e-6 : 0), m.hidden,
              norm, {}, config.number("train_length", 512.0));
  builder.final_norm(norm);
  return builder.finish();
}

template <class Scalar>
LanguageModel<Scalar> load_post_rwkv7(const Checkpoint& checkpoint, WeightStorage storage,
                                      const ConfigReader& config) {
  const RWKV7Sizes m = post_rwkv7_sizes(config);
  const Index layers = layer_count(checkpoint, config, "n_layer", m.layers);
  const NormKind<Scalar> norm{Norm<Scalar>::Kind::layer, m.norm_eps, true};
  ModelBuilder<Scalar> builder(checkpoint, storage, names::post, "rwkv7", m.width);
  builder.embedding(m.vocabulary, tied(config, "tie_embeddings"));
  builder.embedding_norm(norm);
  for (Index i = 0; i < layers; ++i)
    add_rwkv7(builder, i, rwkv7_time_mix(config, m, i, 0), m.hidden, norm, {},
              config.number("train_length", 512.0));
  builder.final_norm(norm);
  return builder.finish();
}

/// Blocks are numbered from 0; a gap shows as missing tensors.
inline Index count_blocks(const Checkpoint& checkpoint) {
  Index count = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    constexpr std::string_view prefix = "blocks.";
    Index i = 0;
    if (!name.starts_with(prefix)) continue;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), i);
    if (i < static_cast<Index>(checkpoint.tensors().size())) count = std::max(count, i + 1);
  }
  return count;
}

template <class Scalar>
LanguageModel<Scalar> load_blinkdl_rwkv7(const Checkpoint& checkpoint, WeightStorage storage) {
  const auto extent = [&](std::string_view name, std::size_t i) {
    const Tensor& tensor = checkpoint.tensor(name);
    if (tensor.shape.size() != 2 || tensor.shape[i] < 1 || tensor.shape[i] > ConfigReader::largest_size)
      throw FormatError(message("checkpoint '", checkpoint.name(), "': tensor ", in_quotes(name),
                                ": expected a matrix with extents from 1 to ", ConfigReader::largest_size,
                                ", got ", shape_text(tensor.shape)));
    return tensor.shape[i];
  };
  RWKV7TimeMixConfig layer;
  layer.width = extent("emb.weight", 1);
  layer.heads = extent("blocks.0.att.r_k", 0);
  layer.key = layer.value = extent("blocks.0.att.r_k", 1);
  const NormKind<Scalar> norm{Norm<Scalar>::Kind::layer, 1e-5, true};
  ModelBuilder<Scalar> builder(checkpoint, storage, names::blinkdl, "rwkv7", layer.width);
  builder.embedding(extent("emb.weight", 0), false);
  builder.embedding_norm(norm);
  const Index hidden = extent("blocks.0.ffn.key.weight", 0), layers = count_blocks(checkpoint);
  for (Index i = 0; i < layers; ++i) {
    layer.first_layer = i == 0;
    add_rwkv7(builder, i, layer, hidden, norm, rwkv7_published_names, 512);
  }
  builder.final_norm(norm);
  return builder.finish();
}

}  // namespace detail

}  // namespace linrec::io
