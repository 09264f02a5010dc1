// The SKA layer of Echo (arXiv 2605.06997): spectral Koopman attention (ska/retrieval.hpp) between
// projections without biases,
//   z, u, v = W_key x, W_query x, W_value x                        [H, r], [H, r], [H, P]
//   out = W_out y,   y = SpectralKoopmanAttention(z, u, v)         [D]
// eta and gamma are numbers of the weights. The layer norm of x and the residual are the model's. Projections
// are in Scalar; statistics, factor and retrieval in double, whatever Scalar is.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "linrec/layers/layer.hpp"
#include "linrec/layers/layer_checks.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/ska/retrieval.hpp"

namespace linrec {

struct SKALayerConfig {
  Index width = 0;                           ///< D, of the layer's inputs and outputs
  SpectralKoopmanAttentionConfig attention;  ///< H, r, P, ...; eta and gamma are taken from the weights
};

/// The names are those of the published code.
template <class Scalar>
struct SKALayerWeights {
  Parameter<Scalar> key_proj, query_proj;  ///< [H r, D]
  Parameter<Scalar> value_proj;            ///< [H P, D]
  Parameter<Scalar> out_proj;              ///< [D, H P]
  Parameter<Scalar> eta, ssn_gamma;        ///< one number each, [] or [1]
};

/// Queries without an answer - a G~ that is not positive definite in double precision, or not finite - are
/// counted in state.ska().failures(); retrieval.hpp says what is put out for them.
///
/// @tparam Scalar float or double.
template <class Scalar>
class SKALayer : public Layer<SKALayer<Scalar>, Scalar> {
  friend typename SKALayer::Layer;

 public:
  using Config = SKALayerConfig;
  using Weights = SKALayerWeights<Scalar>;

  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError, naming the
  /// field or the number, for a bad config or an eta or gamma that is not finite.
  SKALayer(const Config& config, const Weights& weights)
      : config_(checked(config, weights)), attention_(config_.attention) {
    const Index keys = checked_product({attention().heads, attention().key});
    const Index values = checked_product({attention().heads, attention().value});
    key_ = Linear<Scalar>("key_proj", keys, config.width, weights.key_proj);
    query_ = Linear<Scalar>("query_proj", keys, config.width, weights.query_proj);
    value_ = Linear<Scalar>("value_proj", values, config.width, weights.value_proj);
    out_ = Linear<Scalar>("out_proj", config.width, values, weights.out_proj);
    this->describe(config.width, {"ska", {}, {}, attention_.state_shape()});
  }

  /// With the eta and gamma of the weights.
  const Config& config() const { return config_; }

  /// Raises the key scale of each head to that of tokens to come, x [B, T, 1, D]: the released training code
  /// measures keys by the longest of the whole sequence, where KeyScale::sequence_max takes the longest so
  /// far. To be called before prefill; takes no token in. Allocates.
  /// @throws ShapeError as validate, ValueError if a key is not finite; the state has not changed then.
  void look_ahead(const typename SKALayer::Input& x, LayerState<Scalar>& state,
                  const SequenceLayout& layout = {}) const;

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> y, LayerState<Scalar>& state,
               Scalar* scratch) const {
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, x.count);
    key_.apply(x, b.keys, rows.executor);
    query_.apply(x, b.queries, rows.executor);
    value_.apply(x, b.values, rows.executor);
    attention_.run({.q = as_heads<const Scalar>(b.queries, attention().heads),
                    .k = as_heads<const Scalar>(b.keys, attention().heads),
                    .v = as_heads<const Scalar>(b.values, attention().heads)},
                   state.ska(), as_heads(b.retrieved, attention().heads), rows.layout(), b.of_attention,
                   rows.executor);
    out_.apply(b.retrieved, y, rows.executor);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const SKALayer& layer, Index rows)
        : keys(arena.rows(rows, layer.key_.outputs())),
          queries(arena.rows(rows, layer.query_.outputs())),
          values(arena.rows(rows, layer.value_.outputs())),
          retrieved(arena.rows(rows, layer.out_.inputs())),
          of_attention(doubles(arena, arena.workers() * layer.attention_.scratch_size())) {}
    Rows<Scalar> keys, queries, values, retrieved;
    double* of_attention;
  };
  static double* doubles(Arena<Scalar>& arena, Index count) {
    return reinterpret_cast<double*>(arena.take(count * static_cast<Index>(sizeof(double) / sizeof(Scalar))));
  }

  const SpectralKoopmanAttentionConfig& attention() const { return config_.attention; }

  static Config checked(Config config, const Weights& weights) {
    check_size("width", config.width);
    config.attention.eta = number("eta", weights.eta);
    config.attention.gamma = number("ssn_gamma", weights.ssn_gamma);
    return config;
  }
  static double number(const char* name, const Parameter<Scalar>& parameter) {
    const std::vector<Index> none, one{1};
    parameter.check(name, parameter.shape() == one ? one : none);
    const double number = static_cast<double>(parameter.data()[0]);
    if (!(std::abs(number) <= std::numeric_limits<double>::max()))
      throw ValueError(message(name, ": expected a finite number, got ", number));
    return number;
  }

  Config config_;
  SpectralKoopmanAttention<Scalar> attention_;
  Linear<Scalar> key_, query_, value_, out_;
};

template <class Scalar>
void SKALayer<Scalar>::look_ahead(const typename SKALayer::Input& x, LayerState<Scalar>& state,
                                  const SequenceLayout& layout) const {
  this->check_input(x, layout);
  this->check_state(state, x.batch(), layout);
  const Index heads = attention().heads, r = attention().key;
  SkaState& ska = state.ska();
  Arena<Scalar> arena;
  const auto lay_out = [&](Index n) {
    return std::array{arena.rows(n, this->width()), arena.rows(n, key_.outputs())};
  };
  lay_out(chunk_rows);
  AlignedVector<Scalar> memory(static_cast<std::size_t>(arena.used()));
  AlignedVector<double> key(static_cast<std::size_t>(padded<double>(r)));
  std::vector<double> longest(static_cast<std::size_t>(ska.sequences() * heads), 0.0);
  state.packer().for_each_chunk(layout, x.tokens(), [&](const PackedRows& rows) {
    arena = Arena<Scalar>(memory.data(), 1);
    const auto [inputs, keys] = lay_out(rows.count());
    gather(rows, x, inputs);
    key_.apply(inputs, keys);
    for (Index s = 0; s < rows.sequences(); ++s)
      for (Index i = rows.first(s); i < rows.first(s) + rows.count(s); ++i)
        for (Index h = 0; h < heads; ++h) {
          ska.now(s, h).statistics().load_key(keys[i] + h * r, key.data());
          const double length = detail::length(key.data(), r);
          if (!(length <= std::numeric_limits<double>::max()))
            throw ValueError(message("x: expected numbers that make finite keys, got a key of length ",
                                     length, " for sequence ", s, ", head ", h));
          double& so_far = longest[static_cast<std::size_t>(s * heads + h)];
          so_far = std::max(so_far, length);
        }
  });
  for (Index s = 0; s < ska.sequences(); ++s)
    for (Index h = 0; h < heads; ++h)
      ska.raise_max_norm(s, h, longest[static_cast<std::size_t>(s * heads + h)]);
}

}  // namespace linrec
