// LowRank: a map through few dimensions, y = W_up f(W_down x) + b, as RWKV-7's gates are.
#pragma once

#include "linrec/layers/feature_map.hpp"
#include "linrec/layers/linear.hpp"

namespace linrec {

/// The rank is that of the weights. Checkpoints call the maps lora.0 and lora.2.
template <class Scalar>
struct LowRankWeights {
  Parameter<Scalar> down;  ///< [rank, inputs]
  Parameter<Scalar> up;    ///< [outputs, rank]
  Parameter<Scalar> bias;  ///< [outputs] or absent
};

template <class Scalar>
class LowRank {
 public:
  LowRank() = default;
  /// @throws ShapeError naming the parameter.
  LowRank(const std::string& name, Index outputs, Index inputs, const LowRankWeights<Scalar>& weights) {
    const Index rank = weights.down.present() && !weights.down.shape().empty() ? weights.down.shape()[0] : 0;
    down_ = Linear<Scalar>(name + ".lora.0", rank, inputs, weights.down);
    up_ = Linear<Scalar>(name + ".lora.2", outputs, rank, weights.up, weights.bias);
  }

  Index rank() const { return down_.outputs(); }

  /// @param middle scratch, [n, at least rank]
  void apply(Rows<const Scalar> x, FeatureMap f, Rows<Scalar> middle, Rows<Scalar> y,
             const ExecutorRef& executor = {}) const {
    middle = middle.columns(0, rank());
    down_.apply(x, middle, executor);
    apply_feature_map(f, middle);
    up_.apply(middle, y, executor);
  }

 private:
  Linear<Scalar> down_, up_;
};

}  // namespace linrec
