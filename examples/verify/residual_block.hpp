// x + f(norm(x)), what a model makes of a layer or an MLP, as a layer: so that it goes through its tokens as
// layers do.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "layer_case.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/norm.hpp"
#include "linrec/models/branch.hpp"

namespace linrec::verify {

/// The weights norm.weight and norm.bias [D] of a layer norm; eps is the option layer_norm_eps (1e-5).
template <class Scalar>
Norm<Scalar> read_layer_norm(LayerCase<Scalar>& in) {
  const Index width = in.width();
  const auto weight = in.reader().get("norm.weight", {width}), bias = in.reader().get("norm.bias", {width});
  return {
      "norm", Norm<Scalar>::Kind::layer, width, width, in.file().number_or("layer_norm_eps", 1e-5), weight,
      bias};
}

/// @tparam F LayerBranch or MLPBranch.
template <class Scalar, class F>
class ResidualBlock : public Layer<ResidualBlock<Scalar, F>, Scalar> {
  friend typename ResidualBlock::Layer;

 public:
  /// @param looks_ahead whether look_ahead does anything.
  template <class SequenceLayer>
  ResidualBlock(Norm<Scalar> norm, SequenceLayer layer, bool looks_ahead = false)
      : norm_(std::move(norm)),
        branch_(std::make_shared<const F>(std::move(layer))),
        looks_ahead_(looks_ahead) {
    const LayerStateShape* shape = branch_->state_shape();
    this->describe(branch_->width(), shape != nullptr ? *shape : LayerStateShape{"mlp", {}, {}});
  }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> out, LayerState<Scalar>& state,
               Scalar* scratch) const {
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, x.count);
    norm_.apply(x, b.normed);
    branch_->forward(rows, b.normed, {}, &state, b.of_branch);
    if (branch_->state_shape() == nullptr) state.advance(rows);
    add_rows<Scalar>(x, b.normed);
    for (Index i = 0; i < x.count; ++i) std::copy_n(b.normed[i], x.width, out[i]);
  }

  /// x lies in one piece.
  void look_ahead(const TokenView<const Scalar>& x, LayerState<Scalar>& state) const {
    if constexpr (requires { branch_->layer().look_ahead(x, state); }) {
      if (!looks_ahead_) return;
      const Index count = x.batch() * x.tokens(), width = this->width();
      std::vector<Scalar> normed(static_cast<std::size_t>(count * width));
      norm_.apply(Rows<const Scalar>{x.data(0, 0, 0), count, width, width},
                  {normed.data(), count, width, width});
      branch_->layer().look_ahead(TokenView<const Scalar>(normed.data(), x.batch(), x.tokens(), 1, width),
                                  state);
    }
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const ResidualBlock& block, Index rows)
        : normed(arena.rows(rows, block.width())),
          of_branch(arena.take(block.branch_->scratch_size(rows, arena.workers()))) {}
    Rows<Scalar> normed;
    Scalar* of_branch;
  };

  Norm<Scalar> norm_;
  std::shared_ptr<const F> branch_;
  bool looks_ahead_;
};

}  // namespace linrec::verify
