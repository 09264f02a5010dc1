// LowRank: a map through few dimensions, y = W_up f(W_down x) + b, as RWKV-7's gates are.
#pragma once

#include "linrec/layers/linear.hpp"

namespace linrec {

/// The rank is that of the weights.
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
    down_ = Linear<Scalar>(name + ".down", rank, inputs, weights.down);
    up_ = Linear<Scalar>(name + ".up", outputs, rank, weights.up, weights.bias);
  }

  Index rank() const { return down_.outputs(); }

  /// @param f works on n numbers at x in place, between the two maps.
  /// @param middle scratch, [n, rank]
  template <class F>
  void apply(Rows<const Scalar> x, Rows<Scalar> middle, Rows<Scalar> y, F&& f) const noexcept {
    middle = middle.columns(0, rank());
    down_.apply(x, middle);
    for (Index i = 0; i < x.count; ++i) f(middle[i], rank());
    up_.apply(middle, y);
  }

 private:
  Linear<Scalar> down_, up_;
};

}  // namespace linrec
