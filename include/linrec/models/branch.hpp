// Branch: one residual branch of a model, x += f(norm(x)), with f a layer of any kind.
#pragma once

#include <type_traits>
#include <utility>

#include "linrec/layers/layer_state.hpp"
#include "linrec/layers/packed_rows.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

/// What a model needs of f. Immutable, as layers are.
template <class Scalar>
class Branch {
 public:
  Branch() = default;
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;
  virtual ~Branch() = default;

  /// D
  virtual Index width() const = 0;
  /// What f remembers; null: nothing.
  virtual const LayerStateShape* state_shape() const = 0;
  /// Of the values of the first layer that RWKV-7 hands on; 0: none.
  virtual Index value_width() const = 0;
  /// Numbers of scratch memory for that many rows and workers.
  virtual Index scratch_size(Index rows, Index workers) const = 0;
  /// x [n, D] = f(x). `state` is one of state_shape(), or null. Throws only what rows.executor throws.
  virtual void forward(const PackedRows& rows, Rows<Scalar> x, Rows<Scalar> v_first,
                       LayerState<Scalar>* state, Scalar* scratch) const = 0;
};

/// A layer with a state.
template <class SequenceLayer>
class LayerBranch final : public Branch<typename SequenceLayer::Scalar> {
  using Scalar = typename SequenceLayer::Scalar;
  static constexpr bool hands_values_on =
      requires(const SequenceLayer& layer, const PackedRows& rows, Rows<Scalar> x, LayerState<Scalar>& state,
               Scalar* scratch) {
    layer.forward(rows, x, x, x, state, scratch);
  };

 public:
  explicit LayerBranch(SequenceLayer layer) : layer_(std::move(layer)) {}

  const SequenceLayer& layer() const { return layer_; }
  Index width() const override { return layer_.width(); }
  const LayerStateShape* state_shape() const override { return &layer_.state_shape(); }
  Index value_width() const override {
    if constexpr (hands_values_on) return layer_.config().heads * layer_.config().value;
    return 0;
  }
  Index scratch_size(Index rows, Index workers) const override { return layer_.scratch_size(rows, workers); }
  void forward(const PackedRows& rows, Rows<Scalar> x, Rows<Scalar> v_first, LayerState<Scalar>* state,
               Scalar* scratch) const override {
    if constexpr (hands_values_on)
      layer_.forward(rows, x, v_first, x, *state, scratch);
    else
      layer_.forward(rows, x, x, *state, scratch);
  }

 private:
  SequenceLayer layer_;
};

/// What remembers nothing: GatedMLP, SpectralKoopmanMLP.
template <class MLP>
class MLPBranch final : public Branch<typename MLP::Scalar> {
  using Scalar = typename MLP::Scalar;

 public:
  explicit MLPBranch(MLP mlp) : mlp_(std::move(mlp)) {}

  Index width() const override { return mlp_.width(); }
  const LayerStateShape* state_shape() const override { return nullptr; }
  Index value_width() const override { return 0; }
  Index scratch_size(Index rows, Index) const override { return mlp_.scratch_size(rows); }
  void forward(const PackedRows& rows, Rows<Scalar> x, Rows<Scalar>, LayerState<Scalar>*,
               Scalar* scratch) const override {
    mlp_.apply(x, x, scratch, rows.executor);
  }

 private:
  MLP mlp_;
};

}  // namespace linrec
