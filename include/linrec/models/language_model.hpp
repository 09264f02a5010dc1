// LanguageModel: embedding, residual branches, final norm and head.
//   x = E[token]   [x = norm(x)]      x = x + f_i(norm_i(x)) for each branch      logits = W_head norm(x)
// All five architectures are such a list; io/load_model.hpp builds it from published files.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/input_checks.hpp"
#include "linrec/core/token_view.hpp"
#include "linrec/core/workspace.hpp"
#include "linrec/kernels/recurrence.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/norm.hpp"
#include "linrec/models/branch.hpp"
#include "linrec/models/model_state.hpp"
#include "linrec/models/token_batch.hpp"

namespace linrec {

template <class Scalar>
struct LanguageModelParts {
  struct Block {
    Norm<Scalar> norm;
    std::shared_ptr<const Branch<Scalar>> branch;
  };
  std::string architecture;                    ///< "rwkv7"; a state of another one is refused
  std::uint64_t fingerprint = 0;               ///< of the weights, if known; likewise
  Parameter<Scalar> embedding;                 ///< [V, D]; may be bfloat16
  std::optional<Norm<Scalar>> embedding_norm;  ///< of RWKV
  std::vector<Block> blocks;
  Norm<Scalar> final_norm;
  Parameter<Scalar> head;  ///< [V, D], likewise; absent: tied to the embedding
};

/// A language model. Immutable: any number of threads may use it at once. Copies share the weights.
template <class Scalar_>
class LanguageModel {
 public:
  using Scalar = Scalar_;
  using State = ModelState<Scalar>;
  using Parts = LanguageModelParts<Scalar>;
  /// [B T, V], row-major.
  using Logits = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  /// @throws ShapeError, naming the part, if the widths do not agree.
  explicit LanguageModel(Parts parts);

  const std::string& architecture() const { return parts_.architecture; }
  Index vocabulary() const { return parts_.embedding.shape()[0]; }
  /// D
  Index width() const { return parts_.embedding.shape()[1]; }
  const std::vector<typename Parts::Block>& blocks() const { return parts_.blocks; }

  /// Zero states at position 0.
  State initial_state(Index sequences = 1) const {
    return State(parts_.architecture, shapes_, sequences, buffers(std::min(sequences, chunk_rows)),
                 parts_.fingerprint);
  }

  /// Checks tokens and state as prefill does, and changes nothing.
  /// @throws ShapeError, ValueError naming what was expected and what came.
  void validate(std::span<const TokenId> tokens, const State& state,
                const SequenceLayout& layout = {}) const {
    checked(tokens, state, layout);
  }

  /// Runs many tokens [B, T] and writes the logits [B, T, 1, V] that follow each of them; padding gets zeros.
  /// B is the number of sequences of the state, or 1 for a packed batch. The mode is that of the
  /// recurrences (layers/layer.hpp); executors change no bit. Allocates only through the workspace.
  /// @throws ShapeError, ValueError before the state or a logit changes. If the executor itself throws, state
  /// and logits are unspecified.
  void prefill(std::span<const TokenId> tokens, State& state, const TokenView<Scalar>& logits,
               const PrefillOptions& options = {}, const ExecutorRef& executor = {}) const;
  /// The same as a matrix [B T, V].
  Logits prefill(std::span<const TokenId> tokens, State& state, const PrefillOptions& options = {},
                 const ExecutorRef& executor = {}) const {
    const TokenBatch batch = checked(tokens, state, options.layout);
    Logits logits(batch.batch * batch.tokens, vocabulary());
    prefill(tokens, state, {logits.data(), batch.batch, batch.tokens, 1, vocabulary()}, options, executor);
    return logits;
  }

  /// Runs many tokens, and gives the logits [S, 1, 1, V] after the last one of each sequence only, which
  /// spares the head for the others. A sequence without tokens gets zeros.
  /// @throws as prefill.
  void prefill_last(std::span<const TokenId> tokens, State& state, const TokenView<Scalar>& logits,
                    const PrefillOptions& options = {}, const ExecutorRef& executor = {}) const;
  /// The same as a matrix [S, V].
  Logits prefill_last(std::span<const TokenId> tokens, State& state, const PrefillOptions& options = {},
                      const ExecutorRef& executor = {}) const {
    Logits logits(state.sequences(), vocabulary());
    prefill_last(tokens, state, {logits.data(), state.sequences(), 1, 1, vocabulary()}, options, executor);
    return logits;
  }

  /// Runs one token of each sequence and writes the logits [S, 1, 1, V], in the calling thread. Allocates
  /// nothing, but for a state that is not of this model's making, once. A model whose weights are megabytes
  /// gains by threads here, too: call prefill with these tokens, an executor and a workspace that is kept.
  /// @throws as prefill.
  void step(std::span<const TokenId> tokens, State& state, const TokenView<Scalar>& logits) const {
    state.check(parts_.architecture, parts_.fingerprint, shapes_);
    if (static_cast<Index>(tokens.size()) != state.sequences())
      throw ShapeError(message("tokens: expected one for each of the ", state.sequences(),
                               " sequences of the state, got ", tokens.size()));
    const TokenBatch batch(tokens, {}, state.sequences(), vocabulary());
    check_shape("logits", logits, {state.sequences(), 1, 1, vocabulary()});
    check_no_overlap("logits", logits);
    const auto most = static_cast<std::size_t>(std::min(state.sequences(), chunk_rows));
    run(batch, state, PrefillMode::reproducible, {}, state.scratch(step_buffers_[most]),
        [&](const PackedRows& rows, Rows<Scalar> x) { write_logits(rows, x, logits); });
  }
  /// The same as a matrix [S, V].
  Logits step(std::span<const TokenId> tokens, State& state) const {
    Logits logits(state.sequences(), vocabulary());
    step(tokens, state, {logits.data(), state.sequences(), 1, 1, vocabulary()});
    return logits;
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const LanguageModel& model, Index rows)
        : x(arena.rows(rows, model.width())),
          branch(arena.rows(rows, model.width())),
          v_first(arena.rows(rows, model.value_width_)) {
      Index most = 0;
      for (const auto& block : model.parts_.blocks)
        most = std::max(most, block.branch->scratch_size(rows, arena.workers()));
      scratch = arena.take(most);
    }
    Rows<Scalar> x, branch, v_first;
    Scalar* scratch;
  };

  Index buffers(Index rows, Index workers = 1) const {
    Arena<Scalar> arena(workers);
    Buffers(arena, *this, rows);
    return arena.used();
  }

  TokenBatch checked(std::span<const TokenId> tokens, const State& state,
                     const SequenceLayout& layout) const {
    state.check(parts_.architecture, parts_.fingerprint, shapes_);
    return {tokens, layout, state.sequences(), vocabulary()};
  }

  /// All real tokens chunk by chunk; calls f(rows, x) with what the head reads.
  template <class F>
  void run(const TokenBatch& batch, State& state, PrefillMode mode, const ExecutorRef& executor,
           Scalar* memory, F&& f) const;
  void write_logits(const PackedRows& rows, Rows<const Scalar> x, const TokenView<Scalar>& logits) const;

  Parts parts_;
  Linear<Scalar> head_;
  std::vector<LayerStateShape> shapes_;
  Index value_width_ = 0;
  std::array<Index, static_cast<std::size_t>(chunk_rows) + 1> step_buffers_{};  // buffers(rows)
};

template <class Scalar>
LanguageModel<Scalar>::LanguageModel(Parts parts) : parts_(std::move(parts)) {
  const auto& shape = parts_.embedding.shape();
  if (!parts_.embedding.present() || shape.size() != 2)
    throw ShapeError(message("embedding: expected [V, D], got ",
                             parts_.embedding.present() ? shape_text(shape) : std::string("no tensor")));
  const auto check_width = [&](const std::string& name, Index given) {
    if (given != width())
      throw ShapeError(message(name, ": expected the width D = ", width(), ", got ", given));
  };
  if (parts_.embedding_norm) check_width("embedding norm", parts_.embedding_norm->width());
  for (std::size_t i = 0; i < parts_.blocks.size(); ++i) {
    const auto& [norm, branch] = parts_.blocks[i];
    if (branch == nullptr) throw ValueError(message("block ", i, ": expected a branch, got null"));
    check_width(message("block ", i, ", norm"), norm.width());
    check_width(message("block ", i), branch->width());
    if (branch->state_shape() != nullptr) shapes_.push_back(*branch->state_shape());
    const Index values = branch->value_width();
    if (values > 0 && value_width_ > 0 && values != value_width_)
      throw ShapeError(
          message("block ", i, ": expected v_first with ", value_width_, " channels, got ", values));
    value_width_ = std::max(value_width_, values);
  }
  if (shapes_.empty()) throw ShapeError("model: expected at least 1 layer with a state, got 0");
  check_width("final norm", parts_.final_norm.width());
  if (!parts_.head.present()) parts_.head = parts_.embedding;
  head_ = Linear<Scalar>("head", vocabulary(), width(), parts_.head);
  for (Index rows = 0; rows <= chunk_rows; ++rows)
    step_buffers_[static_cast<std::size_t>(rows)] = buffers(rows);
}

template <class Scalar>
template <class F>
void LanguageModel<Scalar>::run(const TokenBatch& batch, State& state, PrefillMode mode,
                                const ExecutorRef& executor, Scalar* memory, F&& f) const {
  state.packer().for_each_chunk(batch.layout, batch.tokens, [&](PackedRows rows) {
    rows.executor = executor;
    rows.mode = mode;
    Arena<Scalar> arena(memory, executor.concurrency());
    const Buffers b(arena, *this, rows.count());
    for (Index i = 0; i < rows.count(); ++i)
      parts_.embedding.copy(batch.at(rows.token(i)) * width(), width(), b.x[i]);
    if (parts_.embedding_norm) parts_.embedding_norm->apply(b.x, b.x);
    auto layer = state.layers().begin();
    for (const auto& [norm, branch] : parts_.blocks) {
      LayerState<Scalar>* layer_state = branch->state_shape() != nullptr ? &*layer++ : nullptr;
      norm.apply(b.x, b.branch);
      branch->forward(rows, b.branch, b.v_first, layer_state, b.scratch);
      add_rows<Scalar>(b.branch, b.x);
    }
    parts_.final_norm.apply(b.x, b.x);
    f(rows, b.x);
  });
}

/// Rows whose logits lie evenly spaced are one product, so that the head is read once.
template <class Scalar>
void LanguageModel<Scalar>::write_logits(const PackedRows& rows, Rows<const Scalar> x,
                                         const TokenView<Scalar>& logits) const {
  const auto at = [&](Index i) {
    return logits.data(rows.token(i) / logits.tokens(), rows.token(i) % logits.tokens(), 0);
  };
  for (Index i = 0, end = 0; i < rows.count(); i = end) {
    end = i + 1;
    const Index stride = end < rows.count() ? at(end) - at(i) : 0;
    while (end < rows.count() && at(end) - at(end - 1) == stride) ++end;
    head_.apply({x[i], end - i, x.width, x.stride}, {at(i), end - i, vocabulary(), stride}, rows.executor);
  }
}

template <class Scalar>
void LanguageModel<Scalar>::prefill(std::span<const TokenId> tokens, State& state,
                                    const TokenView<Scalar>& logits, const PrefillOptions& options,
                                    const ExecutorRef& executor) const {
  const TokenBatch batch = checked(tokens, state, options.layout);
  check_shape("logits", logits, {batch.batch, batch.tokens, 1, vocabulary()});
  check_no_overlap("logits", logits);
  Workspace own;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : own;
  const Index numbers = buffers(chunk_rows, executor.concurrency());
  workspace.reserve(1, sizeof(Scalar) * static_cast<std::size_t>(numbers));
  for (Index s = 0; s < state.sequences(); ++s)
    batch.layout.for_each_padding(s, batch.tokens, [&](Index row, Index first, Index n) {
      for (Index t = first; t < first + n; ++t) logits.at(row, t, 0).setZero();
    });
  run(batch, state, options.mode, executor, workspace.template block<Scalar>(0),
      [&](const PackedRows& rows, Rows<Scalar> x) { write_logits(rows, x, logits); });
}

template <class Scalar>
void LanguageModel<Scalar>::prefill_last(std::span<const TokenId> tokens, State& state,
                                         const TokenView<Scalar>& logits, const PrefillOptions& options,
                                         const ExecutorRef& executor) const {
  const TokenBatch batch = checked(tokens, state, options.layout);
  const Index sequences = state.sequences();
  check_shape("logits", logits, {sequences, 1, 1, vocabulary()});
  check_no_overlap("logits", logits);
  Workspace own;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : own;
  Arena<Scalar> sizes;
  sizes.rows(sequences, width());
  const Index numbers = sizes.used() + buffers(chunk_rows, executor.concurrency());
  workspace.reserve(1, sizeof(Scalar) * static_cast<std::size_t>(numbers));
  Scalar* memory = workspace.template block<Scalar>(0);
  Arena<Scalar> arena(memory, 1);
  const Rows<Scalar> last = arena.rows(sequences, width());
  for (Index s = 0; s < sequences; ++s) std::fill_n(last[s], width(), Scalar(0));
  run(batch, state, options.mode, executor, memory + arena.used(),
      [&](const PackedRows& rows, Rows<Scalar> x) {
        for (Index s = 0; s < sequences; ++s)
          if (rows.count(s) > 0) std::copy_n(x[rows.first(s + 1) - 1], width(), last[s]);
      });
  head_.apply(last, {logits.data(0, 0, 0), sequences, vocabulary(), logits.strides()[0]}, executor);
}

}  // namespace linrec
