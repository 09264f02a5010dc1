// QKVProjection: queries, keys and values of the layers that have them as three projections:
//   q = f(conv(W_q x))        k = f(conv(W_k x))        v = f_v(conv(W_v x))
// conv is a short convolution with silu (short_convolution.hpp), or absent; f and f_v are elementwise.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "linrec/layers/feature_map.hpp"
#include "linrec/layers/layer_checks.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/short_convolution.hpp"

namespace linrec {

/// The names are those of the published checkpoints.
template <class Scalar>
struct QKVWeights {
  Parameter<Scalar> q_proj, k_proj, v_proj;        ///< [heads K or V, D]
  Parameter<Scalar> q_conv1d, k_conv1d, v_conv1d;  ///< [heads K or V, 1, W]; absent without convolutions
};

struct QKVShape {
  Index width;                                ///< D
  Index query_heads, key_heads, value_heads;  ///< each may be another number
  Index key_dim, value_dim;                   ///< K, V
  Index conv_width;                           ///< W; 0: no convolutions
  FeatureMap query_key_map, value_map;        ///< f, f_v
};

template <class Scalar>
class QKVProjection {
 public:
  /// The results, heads side by side, and what is convolved.
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const QKVProjection& projection, Index rows)
        : q(arena.rows(rows, projection.q_.linear.outputs())),
          k(arena.rows(rows, projection.k_.linear.outputs())),
          v(arena.rows(rows, projection.v_.linear.outputs())),
          before(arena.rows(rows, projection.convolved() ? std::max({q.width, k.width, v.width}) : 0)) {}
    Rows<Scalar> q, k, v, before;
  };

  QKVProjection() = default;
  /// @throws ShapeError naming the parameter, ValueError naming the size.
  QKVProjection(const QKVShape& shape, const QKVWeights<Scalar>& weights)
      : conv_width_(shape.conv_width),
        q_("q", shape, checked_product({shape.query_heads, shape.key_dim}), shape.query_key_map,
           weights.q_proj, weights.q_conv1d),
        k_("k", shape, checked_product({shape.key_heads, shape.key_dim}), shape.query_key_map, weights.k_proj,
           weights.k_conv1d),
        v_("v", shape, checked_product({shape.value_heads, shape.value_dim}), shape.value_map, weights.v_proj,
           weights.v_conv1d) {}

  bool convolved() const { return conv_width_ > 0; }
  /// The first windows of a layer's state.
  std::vector<LayerStateShape::Window> windows() const {
    if (!convolved()) return {};
    return {{"q_conv", conv_width_, q_.linear.outputs()},
            {"k_conv", conv_width_, k_.linear.outputs()},
            {"v_conv", conv_width_, v_.linear.outputs()}};
  }

  /// From x [n, D].
  void apply(const PackedRows& rows, Rows<const Scalar> x, LayerState<Scalar>& state,
             const Buffers& b) const {
    Index window = 0;
    for (const auto& [part, y] : {std::pair(&q_, b.q), std::pair(&k_, b.k), std::pair(&v_, b.v)}) {
      if (convolved()) {
        const Rows<Scalar> before = b.before.columns(0, y.width);
        part->linear.apply(x, before, rows.executor);
        part->convolution.apply(rows, before, state.window(window++), y);
      } else {
        part->linear.apply(x, y, rows.executor);
      }
      apply_feature_map(part->map, y);
    }
  }

 private:
  struct Part {
    Part() = default;
    Part(const std::string& name, const QKVShape& shape, Index outputs, FeatureMap feature_map,
         const Parameter<Scalar>& weight, const Parameter<Scalar>& taps)
        : linear(name + "_proj", outputs, shape.width, weight), map(feature_map) {
      if (shape.conv_width < 0)
        throw ValueError(message("conv_width: expected at least 0, got ", shape.conv_width));
      if (shape.conv_width > 0)
        convolution = ShortConvolution<Scalar>(name + "_conv1d", outputs, shape.conv_width, taps);
      else
        check_absent(name + "_conv1d.weight", taps);
    }
    Linear<Scalar> linear;
    ShortConvolution<Scalar> convolution;
    FeatureMap map = FeatureMap::identity;
  };

  Index conv_width_ = 0;
  Part q_, k_, v_;
};

}  // namespace linrec
