// Models from published checkpoints.
//
//   project                     told by                                          architecture
//   BlinkDL's RWKV-7            the tensor blocks.0.att.r_k; no config.json      rwkv7
//   state-spaces/mamba          "ssm_cfg": {"layer": "Mamba2"}                   mamba2
//   Hugging Face transformers   "model_type": "mamba2"                           mamba2
//   fla                         "gated_deltanet"; "gla"; "retnet"; "rwkv7"       gated_delta_net; as told
//   PoST                        "mamba2_post"; "rwkv7_post"                      mamba2; rwkv7
//                               "post_gated_deltanet"                            gated_delta_net
//
// In each of them a block whose rates are PoST's (A_log_base, w0_base) becomes a PoST layer.
#pragma once

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/model_builder.hpp"
#include "linrec/io/model_configs.hpp"
#include "linrec/io/model_names.hpp"

namespace linrec::io {

namespace detail {

/// Each function below makes the model of one project.
template <class Scalar>
class ModelLoader {
  using Builder = ModelBuilder<Scalar>;
  using NormKind = typename Builder::NormKind;
  static constexpr auto rms = Norm<Scalar>::Kind::rms, layer_norm = Norm<Scalar>::Kind::layer;

 public:
  explicit ModelLoader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  LanguageModel<Scalar> load() const {
    if (checkpoint_.contains("blocks.0.att.r_k")) return blinkdl();
    if (!checkpoint_.config())
      throw FormatError(
          message("checkpoint '", checkpoint_.name(),
                  "': expected a config.json beside it, or the tensor 'blocks.0.att.r_k' of RWKV-7, "
                  "found neither"));
    const ConfigReader& config = *checkpoint_.config();
    const std::string type = config.text("model_type", config.has("ssm_cfg") ? "state-spaces" : "");
    if (type == "state-spaces") return state_spaces(config);
    if (type == "mamba2") return transformers(config, names::transformers, false);
    if (type == "mamba2_post") return transformers(config, names::post_mamba2, true);
    if (type == "gated_deltanet") return gated_delta_net(config);
    if (type == "post_gated_deltanet") return post_gated_delta_net_model(config);
    if (type == "gla") return gla(config);
    if (type == "retnet") return retnet(config);
    if (type == "rwkv7") return fla_rwkv7(config);
    if (type == "rwkv7_post") return post_rwkv7(config);
    throw FormatError(
        message("file '", config.name(),
                "': key 'model_type': expected one of mamba2, mamba2_post, gated_deltanet, "
                "post_gated_deltanet, gla, retnet, rwkv7, rwkv7_post, or the key 'ssm_cfg', got ",
                in_quotes(type)));
  }

 private:
  Index layers(const ConfigReader& config, std::string_view key, std::optional<Index> fallback = {}) const {
    const Index layers = config.size(key, fallback);
    const Index most = static_cast<Index>(checkpoint_.tensors().size());
    if (layers > most)
      throw FormatError(message("file '", config.name(), "': key ", in_quotes(key),
                                ": expected no more layers than the ", most,
                                " tensors of the checkpoint, got ", layers));
    return layers;
  }
  static std::optional<bool> tied(const ConfigReader& config, std::string_view key = "tie_word_embeddings") {
    return config.has(key) ? std::optional(config.flag(key)) : std::nullopt;
  }

  void add_mamba2(Builder& builder, Index i, const Mamba2LayerConfig& layer, const Mamba2Tensors& tensors,
                  const NormKind& norm, double train_length) const {
    const LayerNames names = builder.mixer(i);
    const auto weights = read_weights(builder.reader(), names, layer, tensors);
    const auto decay = read_decay(builder.reader(), names, mamba2_decay_names, layer.heads, train_length);
    builder.add_mixer(i, norm, [=] { return make_branch<Mamba2Layer, Scalar>(layer, weights, decay); });
  }

  LanguageModel<Scalar> state_spaces(const ConfigReader& config) const {
    const StateSpacesMamba2 m = state_spaces_mamba2(config);
    Builder builder(checkpoint_, names::state_spaces, "mamba2", m.layer.width);
    builder.embedding(m.vocabulary, config.flag("tie_embeddings", true));
    const NormKind norm{m.rms_norm ? rms : layer_norm, 1e-5, !m.rms_norm};
    for (Index i = 0; i < layers(config, "n_layer"); ++i) {
      add_mamba2(builder, i, m.layer, {m.projection_bias, m.conv_bias, m.wide_D}, norm,
                 config.number("train_length", 2048.0));
      if (m.mlp_width == 0) continue;
      const auto mlp = read_mamba_mlp(builder.reader(), builder.mlp(i), m.layer.width, m.mlp_width);
      builder.add_mlp(i, norm, mlp_branch(m.layer.width, m.mlp_width, mlp));
    }
    builder.final_norm(norm);
    return builder.finish();
  }

  LanguageModel<Scalar> transformers(const ConfigReader& config, ModelNames names, bool post) const {
    const Mamba2LayerConfig layer = transformers_mamba2(config, post);
    if (checkpoint_.contains("backbone.embedding.weight")) names.embedding = "backbone.embedding";
    Builder builder(checkpoint_, names, "mamba2", layer.width);
    builder.embedding(config.size("vocab_size", 32768), tied(config));
    const NormKind norm{rms, post ? 1e-5 : layer.norm_eps, false};
    const Mamba2Tensors tensors{config.flag("use_bias", false), config.flag("use_conv_bias", true), false};
    for (Index i = 0; i < layers(config, "num_hidden_layers"); ++i)
      add_mamba2(builder, i, layer, tensors, norm, config.number("train_length", 2048.0));
    builder.final_norm(norm);
    return builder.finish();
  }

  static auto mlp_branch(Index width, Index hidden, const GatedMLPWeights<Scalar>& weights) {
    return [=]() -> std::shared_ptr<const Branch<Scalar>> {
      return std::make_shared<const MLPBranch<GatedMLP<Scalar>>>(GatedMLP<Scalar>(width, hidden, weights));
    };
  }

  /// fla's models of mixer and MLP; add(builder, i, norm) adds a mixer.
  template <class Add>
  LanguageModel<Scalar> fla(const ConfigReader& config, std::string architecture, Index width, Index depth,
                            double ratio, double eps, Add&& add) const {
    Builder builder(checkpoint_, names::fla, std::move(architecture), width);
    builder.embedding(config.size("vocab_size", 32000), tied(config));
    const NormKind norm{rms, eps, false};
    const Index hidden = fla_mlp_width(config, width, ratio);
    for (Index i = 0; i < layers(config, "num_hidden_layers", depth); ++i) {
      add(builder, i, norm);
      builder.add_mlp(
          i, norm,
          mlp_branch(width, hidden, read_gated_mlp(builder.reader(), builder.mlp(i), width, hidden)));
    }
    builder.final_norm(norm);
    return builder.finish();
  }

  void add_gated_delta_net(Builder& builder, Index i, const GatedDeltaNetLayerConfig& layer,
                           const NormKind& norm, double train_length) const {
    const LayerNames names = builder.mixer(i);
    builder.reader().ignore(names.prefix + "D");  // old files have it, and nobody reads it
    const auto weights = read_weights(builder.reader(), names, layer);
    const auto decay =
        read_decay(builder.reader(), names, head_decay_names, layer.output_heads(), train_length);
    builder.add_mixer(i, norm,
                      [=] { return make_branch<GatedDeltaNetLayer, Scalar>(layer, weights, decay); });
  }
  LanguageModel<Scalar> gated_delta_net(const ConfigReader& config) const {
    const GatedDeltaNetLayerConfig layer = fla_gated_delta_net(config);
    return fla(config, "gated_delta_net", layer.width, 21, 4, layer.norm_eps,
               [&](Builder& builder, Index i, const NormKind& norm) {
                 add_gated_delta_net(builder, i, layer, norm, config.number("train_length", 512.0));
               });
  }
  LanguageModel<Scalar> post_gated_delta_net_model(const ConfigReader& config) const {
    const GatedDeltaNetLayerConfig layer = post_gated_delta_net(config);
    Builder builder(checkpoint_, names::post, "gated_delta_net", layer.width);
    builder.embedding(round_up(config.size("vocab_size", 8192), config.size("pad_vocab_size_multiple", 16)),
                      tied(config, "tie_embeddings"));
    const NormKind norm{rms, 1e-5, false};
    for (Index i = 0; i < layers(config, "n_layer", 24); ++i)
      add_gated_delta_net(builder, i, layer, norm, config.number("train_length", 512.0));
    builder.final_norm(norm);
    return builder.finish();
  }

  LanguageModel<Scalar> gla(const ConfigReader& config) const {
    const GLALayerConfig layer = fla_gla(config);
    return fla(config, "gla", layer.width, 24, 4, layer.norm_eps,
               [&](Builder& builder, Index i, const NormKind& norm) {
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

  LanguageModel<Scalar> retnet(const ConfigReader& config) const {
    const RetNetLayerConfig layer = fla_retnet(config);
    return fla(config, "retnet", layer.width, 24, 2, layer.norm_eps,
               [&](Builder& builder, Index i, const NormKind& norm) {
                 const auto weights = read_weights(builder.reader(), builder.mixer(i), layer);
                 builder.add_mixer(i, norm, [=]() -> std::shared_ptr<const Branch<Scalar>> {
                   return std::make_shared<const LayerBranch<RetNetLayer<Scalar>>>(
                       RetNetLayer<Scalar>(layer, weights));
                 });
               });
  }

  void add_rwkv7(Builder& builder, Index i, const RWKV7TimeMixConfig& layer, Index hidden,
                 const NormKind& norm, std::span<const NameEntry> entries, double train_length) const {
    const LayerNames names = builder.mixer(i, entries);
    const auto weights = read_weights(builder.reader(), names, layer);
    const auto decay =
        read_decay(builder.reader(), names, rwkv7_decay_names, layer.heads * layer.key, train_length);
    builder.add_mixer(i, norm, [=] { return make_branch<RWKV7TimeMix, Scalar>(layer, weights, decay); });
    const auto mlp = read_channel_mix(builder.reader(), builder.mlp(i), layer.width, hidden);
    builder.add_mlp(i, norm, [=]() -> std::shared_ptr<const Branch<Scalar>> {
      using Layer = RWKV7ChannelMix<Scalar>;
      return std::make_shared<const LayerBranch<Layer>>(Layer(layer.width, hidden, mlp));
    });
  }

  LanguageModel<Scalar> fla_rwkv7(const ConfigReader& config) const {
    const RWKV7Sizes m = fla_rwkv7_sizes(config);
    const NormKind norm{layer_norm, m.norm_eps, config.flag("norm_bias", true)};
    Builder builder(checkpoint_, names::fla_rwkv7, "rwkv7", m.width);
    builder.embedding(m.vocabulary, tied(config));
    if (config.flag("norm_first", true)) builder.embedding_norm(norm);
    for (Index i = 0; i < layers(config, "num_hidden_layers", m.layers); ++i)
      add_rwkv7(builder, i, rwkv7_time_mix(config, m, i, config.flag("fuse_norm", true) ? 1e-6 : 0), m.hidden,
                norm, {}, config.number("train_length", 512.0));
    builder.final_norm(norm);
    return builder.finish();
  }

  LanguageModel<Scalar> post_rwkv7(const ConfigReader& config) const {
    const RWKV7Sizes m = post_rwkv7_sizes(config);
    const NormKind norm{layer_norm, m.norm_eps, true};
    Builder builder(checkpoint_, names::post, "rwkv7", m.width);
    builder.embedding(m.vocabulary, tied(config, "tie_embeddings"));
    builder.embedding_norm(norm);
    for (Index i = 0; i < layers(config, "n_layer", m.layers); ++i)
      add_rwkv7(builder, i, rwkv7_time_mix(config, m, i, 0), m.hidden, norm, {},
                config.number("train_length", 512.0));
    builder.final_norm(norm);
    return builder.finish();
  }

  /// All sizes come from the tensors.
  LanguageModel<Scalar> blinkdl() const {
    const auto extent = [&](std::string_view name, std::size_t i) {
      const Tensor& tensor = checkpoint_.tensor(name);
      if (tensor.shape.size() != 2 || tensor.shape[i] < 1 || tensor.shape[i] > ConfigReader::largest_size)
        throw FormatError(message("checkpoint '", checkpoint_.name(), "': tensor ", in_quotes(name),
                                  ": expected a matrix with extents from 1 to ", ConfigReader::largest_size,
                                  ", got ", shape_text(tensor.shape)));
      return tensor.shape[i];
    };
    RWKV7TimeMixConfig layer;
    layer.width = extent("emb.weight", 1);
    layer.heads = extent("blocks.0.att.r_k", 0);
    layer.key = layer.value = extent("blocks.0.att.r_k", 1);
    const NormKind norm{layer_norm, 1e-5, true};
    Builder builder(checkpoint_, names::blinkdl, "rwkv7", layer.width);
    builder.embedding(extent("emb.weight", 0), false);
    builder.embedding_norm(norm);
    const Index hidden = extent("blocks.0.ffn.key.weight", 0);
    for (Index i = 0; i < count_blocks(); ++i) {
      layer.first_layer = i == 0;
      add_rwkv7(builder, i, layer, hidden, norm, rwkv7_published_names, 512);
    }
    builder.final_norm(norm);
    return builder.finish();
  }
  /// Blocks are numbered from 0; a gap shows as missing tensors.
  Index count_blocks() const {
    Index count = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      constexpr std::string_view prefix = "blocks.";
      Index i = 0;
      if (!name.starts_with(prefix)) continue;
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), i);
      if (i < static_cast<Index>(checkpoint_.tensors().size())) count = std::max(count, i + 1);
    }
    return count;
  }

  const Checkpoint& checkpoint_;
};

}  // namespace detail

/// Builds the model of a checkpoint, with all arithmetic in Scalar. Weights stored as Scalar are read where
/// they lie in the mapped file; others are converted once.
/// @throws FormatError, naming the file and the key of its config, or the checkpoint and all tensors that are
///   missing, unexpected or of another shape at once. Nothing is half-loaded.
template <class Scalar>
LanguageModel<Scalar> load_model(const Checkpoint& checkpoint) {
  return detail::ModelLoader<Scalar>(checkpoint).load();
}
template <class Scalar>
LanguageModel<Scalar> load_model(const std::filesystem::path& path) {
  return load_model<Scalar>(Checkpoint(path));
}

}  // namespace linrec::io
