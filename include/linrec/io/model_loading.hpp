// What the loaders of all projects share.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/model_builder.hpp"
#include "linrec/io/model_names.hpp"

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

namespace detail {

/// The number of layers, which the tensors must be enough for.
inline Index layer_count(const Checkpoint& checkpoint, const ConfigReader& config, std::string_view key,
                         std::optional<Index> fallback = {}) {
  const Index layers = config.size(key, fallback);
  const Index most = static_cast<Index>(checkpoint.tensors().size());
  if (layers > most)
    throw FormatError(message("file '", config.name(), "': key ", in_quotes(key),
                              ": expected no more layers than the ", most, " tensors of the checkpoint, got ",
                              layers));
  return layers;
}

inline std::optional<bool> tied(const ConfigReader& config, std::string_view key = "tie_word_embeddings") {
  return config.has(key) ? std::optional(config.flag(key)) : std::nullopt;
}

template <class Scalar>
using NormKind = typename ModelBuilder<Scalar>::NormKind;

template <class Scalar>
void add_mamba2(ModelBuilder<Scalar>& builder, Index i, const Mamba2LayerConfig& layer,
                const Mamba2Tensors& tensors, const NormKind<Scalar>& norm, double train_length) {
  const LayerNames names = builder.mixer(i);
  const auto weights = read_weights(builder.reader(), names, layer, tensors);
  const auto decay = read_decay(builder.reader(), names, mamba2_decay_names, layer.heads, train_length);
  builder.add_mixer(i, norm, [=] { return make_branch<Mamba2Layer, Scalar>(layer, weights, decay); });
}

template <class Scalar>
void add_gated_mlp(ModelBuilder<Scalar>& builder, Index i, const NormKind<Scalar>& norm, Index width,
                   Index hidden, const GatedMLPWeights<Scalar>& weights) {
  builder.add_mlp(i, norm, branch_of<MLPBranch, GatedMLP<Scalar>>(width, hidden, weights));
}

}  // namespace detail

}  // namespace linrec::io
