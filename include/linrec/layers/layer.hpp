// Layer: validate, prefill and step for every layer, written once.
//
// A layer derives from Layer<Derived, Scalar>, calls describe(width, state shape) when it is constructed, and
// has
//   struct Buffers { Buffers(arena, layer, rows); ... }   its scratch memory for that many rows, and for
//                                                         arena.workers()
//   void forward(rows, x, y, state, scratch) const        the tokens of a chunk: reads x [n, D], writes y
//                                                         [n, D] (may be x), moves the state on
// forward must treat every row by itself, so that any split of a sequence gives the same bits. It throws only
// what rows.executor throws.
#pragma once

#include <cassert>
#include <utility>

#include "linrec/core/input_checks.hpp"
#include "linrec/core/token_view.hpp"
#include "linrec/core/workspace.hpp"
#include "linrec/kernels/recurrence.hpp"
#include "linrec/layers/layer_state.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

/// The columns of a chunk as heads, [1, n, heads, dim].
template <class Scalar>
TokenView<Scalar> as_heads(const Rows<Scalar>& rows, Index heads) {
  return {rows.data, {1, rows.count, heads, rows.width / heads}, {0, rows.stride, rows.width / heads}};
}

/// The tokens of a chunk, from the batch and back.
template <class Scalar>
void gather(const PackedRows& rows, const TokenView<const Scalar>& x, const Rows<Scalar>& to) noexcept {
  for (Index i = 0; i < rows.count(); ++i)
    std::copy_n(x.data(rows.token(i) / x.tokens(), rows.token(i) % x.tokens(), 0), to.width, to[i]);
}
template <class Scalar>
void scatter(const PackedRows& rows, const Rows<Scalar>& from, const TokenView<Scalar>& y) noexcept {
  for (Index i = 0; i < rows.count(); ++i)
    std::copy_n(from[i], from.width, y.data(rows.token(i) / y.tokens(), rows.token(i) % y.tokens(), 0));
}

/// Base of all layers. A layer is immutable, and may be used by any number of threads at once. Inputs and
/// outputs are views [B, T, 1, D]; the outputs may be the inputs, but must not overlap them otherwise.
/// NaN follows the rules of IEEE arithmetic, and stays in its own sequence.
template <class Derived, class Scalar_>
class Layer {
 public:
  using Scalar = Scalar_;
  using State = LayerState<Scalar>;
  using Input = TokenView<const Scalar>;
  using Output = TokenView<Scalar>;

  /// D, of the inputs and outputs.
  Index width() const { return width_; }
  const LayerStateShape& state_shape() const { return shape_; }
  /// Numbers of scratch memory that forward needs.
  Index scratch_size(Index rows, Index workers = 1) const {
    Arena<Scalar> arena(workers);
    [[maybe_unused]] const typename Derived::Buffers buffers(arena, layer(), rows);
    return arena.used();
  }

  /// Zero states at position 0.
  State initial_state(Index sequences = 1) const {
    return State(shape_, sequences, buffer_size(std::min(sequences, chunk_rows)));
  }

  /// Checks what prefill checks, and that the state has the scratch memory of a step; changes nothing.
  /// @throws ShapeError naming the tensor, what was expected and what came.
  void validate(const Input& x, const State& state, const Output& y,
                const SequenceLayout& layout = {}) const {
    check(x, state, y, layout);
    if (!has_scratch(state))
      throw ShapeError(message("state: expected one from initial_state of ", shape_.layer,
                               ", got one without scratch memory"));
  }

  /// Runs many tokens. However a sequence is split, the result is the same: up to rounding, or in every bit
  /// with PrefillMode::reproducible. Whatever the executor, every bit is the same: the linear maps are split
  /// by outputs, the kernel by heads. Allocates only through the workspace.
  /// @throws as validate, and ValueError for an executor without workers, before the state or an output
  /// changes. If the executor itself throws, state and outputs are unspecified.
  void prefill(const Input& x, State& state, const Output& y, const PrefillOptions& options = {},
               const ExecutorRef& executor = {}) const {
    prefill_chunks(x, state, y, options, executor, forward_to(state));
  }

  /// Runs one token of each of B sequences, x and y [B, 1, 1, D], in the calling thread. Allocates and checks
  /// nothing; call `validate` once on what is new. A layer whose weights are megabytes gains by threads here,
  /// too: call prefill with that one token.
  void step(const Input& x, State& state, const Output& y) const noexcept {
    step_chunks(x, state, y, forward_to(state));
  }

 protected:
  void describe(Index width, LayerStateShape shape) {
    width_ = width;
    shape_ = std::move(shape);
  }

  void check(const Input& x, const State& state, const Output& y, const SequenceLayout& layout) const {
    check_input(x, layout);
    check_shape("y", y, {x.batch(), x.tokens(), 1, width_});
    check_no_overlap("y", y);
    check_state(state, x.batch(), layout);
  }
  void check_input(const Input& x, const SequenceLayout& layout) const {
    check_shape("x", x, {x.batch(), x.tokens(), 1, width_});
    layout.check(x.batch(), x.tokens());
  }
  void check_state(const State& state, Index batch, const SequenceLayout& layout) const {
    if (!(state.shape() == shape_))
      throw ShapeError(
          message("state: expected that of ", shape_.text(), ", got that of ", state.shape().text()));
    if (state.sequences() != layout.sequences(batch))
      throw ShapeError(
          message("state: expected ", layout.sequences(batch), " sequences, got ", state.sequences()));
  }

  /// prefill and step, with f(rows, x, y, scratch) in the place of forward.
  template <class F>
  void prefill_chunks(const Input& x, State& state, const Output& y, const PrefillOptions& options,
                      const ExecutorRef& executor, F&& f) const {
    check(x, state, y, options.layout);
    Workspace own;
    Workspace& workspace = options.workspace != nullptr ? *options.workspace : own;
    const Index numbers = buffer_size(chunk_rows, executor.concurrency());
    workspace.reserve(1, sizeof(Scalar) * static_cast<std::size_t>(numbers));
    run(x, state, y, options.layout, options.mode, executor, workspace.template block<Scalar>(0), f);
  }
  template <class F>
  void step_chunks(const Input& x, State& state, const Output& y, F&& f) const noexcept {
    assert(x.extents() == (std::array<Index, 4>{state.sequences(), 1, 1, width_}) &&
           y.extents() == x.extents() && state.shape() == shape_ && has_scratch(state) &&
           "step: shapes do not fit; validate() says which");
    run(x, state, y, {}, PrefillMode::reproducible, {}, state.scratch(), f);
  }

 private:
  const Derived& layer() const { return static_cast<const Derived&>(*this); }
  auto forward_to(State& state) const {
    return [this, &state](const PackedRows& rows, const Rows<Scalar>& x, const Rows<Scalar>& y,
                          Scalar* scratch) { layer().forward(rows, x, y, state, scratch); };
  }

  bool has_scratch(const State& state) const {
    return state.scratch_size() >= buffer_size(std::min(state.sequences(), chunk_rows));
  }
  /// The gathered inputs, then what forward needs.
  Index buffer_size(Index rows, Index workers = 1) const {
    Arena<Scalar> arena;
    arena.rows(rows, width_);
    return arena.used() + scratch_size(rows, workers);
  }

  template <class F>
  void run(const Input& x, State& state, const Output& y, const SequenceLayout& layout, PrefillMode mode,
           const ExecutorRef& executor, Scalar* memory, F& f) const {
    const Index tokens = x.tokens();
    for (Index s = 0; s < state.sequences(); ++s)
      layout.for_each_padding(s, tokens, [&](Index row, Index first, Index count) {
        for (Index t = first; t < first + count; ++t) y.at(row, t, 0).setZero();
      });
    state.packer().for_each_chunk(layout, tokens, [&](PackedRows rows) {
      rows.executor = executor;
      rows.mode = mode;
      Arena<Scalar> arena(memory, 1);
      const Rows<Scalar> buffer = arena.rows(rows.count(), width_);
      gather(rows, x, buffer);
      f(rows, buffer, buffer, memory + arena.used());
      scatter(rows, buffer, y);
    });
  }

  Index width_ = 0;
  LayerStateShape shape_;
};

}  // namespace linrec
