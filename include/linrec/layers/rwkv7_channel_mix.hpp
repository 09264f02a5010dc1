// Channel mixing of RWKV-7 (arXiv 2503.14456, section 4):
//   out = W_v max(0, W_k xk)^2,    xk = x_t + (x_{t-1} - x_t) mu
#pragma once

#include "linrec/layers/feature_map.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/token_shift.hpp"

namespace linrec {

template <class Scalar>
struct RWKV7ChannelMixWeights {
  Parameter<Scalar> x_k;    ///< mu, [D]
  Parameter<Scalar> key;    ///< [hidden, D]
  Parameter<Scalar> value;  ///< [D, hidden]
};

/// Its state is the last token.
/// @tparam Scalar float or double.
template <class Scalar>
class RWKV7ChannelMix : public Layer<RWKV7ChannelMix<Scalar>, Scalar> {
  friend typename RWKV7ChannelMix::Layer;

 public:
  using Weights = RWKV7ChannelMixWeights<Scalar>;

  /// @param width D, of the layer's inputs and outputs.
  /// @param hidden channels between the two maps.
  /// @throws ShapeError, naming the parameter, if the weights do not fit.
  RWKV7ChannelMix(Index width, Index hidden, const Weights& weights)
      : x_k_(weights.x_k),
        key_("key", hidden, width, weights.key),
        value_("value", width, hidden, weights.value) {
    x_k_.check("x_k", {width});
    this->describe(width, {"rwkv7.channel_mix", {}, {{"shift", 1, width}}});
  }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> out, LayerState<Scalar>& state,
               Scalar* scratch) const {
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, x.count);
    token_shift(rows, x, state.window(0), b.delta);
    mix_tokens<Scalar>(x, b.delta, x_k_, b.mixed);
    key_.apply(b.mixed, b.hidden, rows.executor);
    apply_feature_map(FeatureMap::squared_relu, b.hidden);
    value_.apply(b.hidden, out, rows.executor);
    state.advance(rows);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const RWKV7ChannelMix& layer, Index rows)
        : delta(arena.rows(rows, layer.width())),
          mixed(arena.rows(rows, layer.width())),
          hidden(arena.rows(rows, layer.key_.outputs())) {}
    Rows<Scalar> delta, mixed, hidden;
  };

  Parameter<Scalar> x_k_;
  Linear<Scalar> key_, value_;
};

}  // namespace linrec
