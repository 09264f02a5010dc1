// GatedMLP, the feed-forward layer of many models:   out = W_down (silu(W_gate x) (W_up x))
#pragma once

#include "linrec/layers/linear.hpp"
#include "linrec/layers/norm.hpp"

namespace linrec {

template <class Scalar>
struct GatedMLPWeights {
  Parameter<Scalar> gate, up;  ///< [hidden, D]
  Parameter<Scalar> down;      ///< [D, hidden]
};

/// Remembers nothing, and so is no Layer; a row of its outputs [n, D] depends on one row of its inputs [n,
/// D].
template <class Scalar_>
class GatedMLP {
 public:
  using Scalar = Scalar_;
  using Weights = GatedMLPWeights<Scalar>;

  /// @param width D.
  /// @param hidden channels in the middle.
  /// @throws ShapeError, naming the parameter, if the weights do not fit.
  GatedMLP(Index width, Index hidden, const Weights& weights)
      : gate_("gate_proj", hidden, width, weights.gate),
        up_("up_proj", hidden, width, weights.up),
        down_("down_proj", width, hidden, weights.down) {}

  Index width() const { return down_.outputs(); }
  Index scratch_size(Index rows) const {
    Arena<Scalar> arena;
    arena.rows(rows, gate_.outputs());
    arena.rows(rows, gate_.outputs());
    return arena.used();
  }

  /// y may be x.
  void apply(Rows<const Scalar> x, Rows<Scalar> y, Scalar* scratch, const ExecutorRef& executor = {}) const {
    Arena<Scalar> arena(scratch, 1);
    const Rows<Scalar> gate = arena.rows(x.count, gate_.outputs()), up = arena.rows(x.count, gate_.outputs());
    gate_.apply(x, gate, executor);
    up_.apply(x, up, executor);
    gate_with_silu<Scalar>(up, gate, up);
    down_.apply(up, y, executor);
  }

 private:
  Linear<Scalar> gate_, up_, down_;
};

}  // namespace linrec
