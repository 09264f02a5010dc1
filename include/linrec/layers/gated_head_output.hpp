// GatedHeadOutput: from the outputs of a kernel's heads to those of its layer:
//   y = W_o [norm(o_h) w silu(W_g x)_h  for all heads h]
// norm(o) = o / sqrt(mean(o^2) + eps) over the V numbers of a head, which share one w [V]. The gate may be
// absent, and so may w.
#pragma once

#include <string>

#include "linrec/layers/layer_checks.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/norm.hpp"

namespace linrec {

/// The names are those of the published checkpoints, but for `norm`, which they call o_norm, g_norm or
/// g_norm_swish_gate.
template <class Scalar>
struct HeadOutputWeights {
  Parameter<Scalar> g_proj;  ///< [H V, D]; absent without a gate
  Parameter<Scalar> norm;    ///< [V]; absent if the norm has no weight
  Parameter<Scalar> o_proj;  ///< [D, H V]
};

struct HeadOutputShape {
  Index width;             ///< D
  Index heads, value_dim;  ///< H, V
  bool gated;
  bool norm_weight;  ///< whether the norm has a weight
  double norm_eps;
};

template <class Scalar>
class GatedHeadOutput {
 public:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const GatedHeadOutput& output, Index rows)
        : heads(arena.rows(rows, output.to_output_.inputs())), gate(arena.rows(rows, output.gate_size())) {}
    Rows<Scalar> heads;  ///< o [n, H V], for the kernel to fill
    Rows<Scalar> gate;
  };

  GatedHeadOutput() = default;
  /// @param norm_name what errors call the norm.
  /// @throws ShapeError naming the parameter, ValueError naming the norm.
  GatedHeadOutput(const std::string& norm_name, const HeadOutputShape& shape,
                  const HeadOutputWeights<Scalar>& weights)
      : gated_(shape.gated) {
    const Index inner = checked_product({shape.heads, shape.value_dim});
    if (shape.norm_weight)
      weights.norm.check(norm_name + ".weight", {shape.value_dim});
    else
      check_absent(norm_name + ".weight", weights.norm);
    norm_ = Norm<Scalar>(norm_name, Norm<Scalar>::Kind::rms, inner, shape.value_dim, shape.norm_eps,
                         weights.norm);
    if (gated_)
      to_gate_ = Linear<Scalar>("g_proj", inner, shape.width, weights.g_proj);
    else
      check_absent("g_proj.weight", weights.g_proj);
    to_output_ = Linear<Scalar>("o_proj", shape.width, inner, weights.o_proj);
  }

  /// y [n, D] from the layer's inputs x [n, D], and from the heads, which it overwrites. y may be x.
  void apply(Rows<const Scalar> x, const Buffers& b, Rows<Scalar> y, const ExecutorRef& executor = {}) const {
    norm_.apply(b.heads, b.heads);
    if (gated_) {
      to_gate_.apply(x, b.gate, executor);
      gate_with_silu<Scalar>(b.heads, b.gate, b.heads);
    }
    to_output_.apply(b.heads, y, executor);
  }

 private:
  Index gate_size() const { return gated_ ? to_output_.inputs() : 0; }

  bool gated_ = true;
  Norm<Scalar> norm_;
  Linear<Scalar> to_gate_, to_output_;
};

}  // namespace linrec
