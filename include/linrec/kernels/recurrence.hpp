// Recurrence: prefill, step and validate for every kernel, written once.
//
// A kernel says how its inputs become the terms of the law (law.hpp). It derives from
// Recurrence<Kernel, Inputs, Scalar, Sizes, law>, with Inputs a struct of its tensors as TokenViews, and has
//   for_each_input(inputs, f) const                  calls f(name, view, dim, HeadSharing) for each tensor
//   check_values(inputs, run) const                  throws ValueError for decays that are none
//   prepare(inputs, segment, block) const noexcept   fills block[i] for the tokens of the segment
// and, where it applies,
//   static constexpr bool tapered                    true if prepare needs segment.log_t
//   skip(h) const                                    D of a head [V], padded to whole cache lines,
//                                                    for o + D x with x the value before its gain
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "linrec/core/executor.hpp"
#include "linrec/core/input_checks.hpp"
#include "linrec/core/prefill_options.hpp"
#include "linrec/kernels/chunk.hpp"
#include "linrec/kernels/state.hpp"

namespace linrec {

/// Whether an input has all H heads, or G that divide H: head h then reads group h / (H / G).
enum class HeadSharing { none, groups };

/// Base of all kernels. A kernel is immutable, and may be used by any number of threads at once.
/// Shapes: inputs and outputs are views [B, T, H, D], see the kernel; states S [K, V] a head.
template <class Kernel, class Inputs_, class Scalar_, class Sizes, Law law, class StateScalar = Scalar_>
class Recurrence {
 public:
  using Inputs = Inputs_;
  using Scalar = Scalar_;
  using State = linrec::State<Scalar, Sizes, StateScalar>;
  using Input = TokenView<const Scalar>;
  using Output = TokenView<Scalar>;

  static constexpr bool tapered = false;  ///< kernels with a taper say otherwise

  const Sizes& dims() const { return dims_; }
  /// The factor of the output, o = scale S^T q.
  Scalar scale() const { return scale_; }

  /// Zero states at position 0.
  State initial_state(Index sequences = 1) const { return State(dims_, sequences); }

  /// Checks inputs and state as `prefill` does, and changes nothing.
  /// @throws ShapeError, ValueError naming the tensor, what was expected and what came.
  void validate(const Inputs& inputs, const State& state, const SequenceLayout& layout = {}) const {
    const auto [batch, tokens] = check_shapes(inputs);
    layout.check(batch, tokens);
    if (!(state.dims() == dims_))
      throw ShapeError(message("state: expected [H, K, V] = ", text(dims_), ", got ", text(state.dims())));
    if (state.sequences() != layout.sequences(batch))
      throw ShapeError(
          message("state: expected ", layout.sequences(batch), " sequences, got ", state.sequences()));
    for (Index s = 0; s < state.sequences(); ++s)
      layout.for_each_run(s, tokens, [&](Index row, Index first, Index count) {
        kernel().check_values(inputs, TokenRun{row, first, count});
      });
  }
  /// Checks the outputs, too: their shape, and that no two of them share memory.
  void validate(const Inputs& inputs, const State& state, const Output& outputs,
                const SequenceLayout& layout = {}) const {
    validate(inputs, state, layout);
    const auto [batch, tokens] = check_shapes(inputs);
    check_shape("outputs", outputs, {batch, tokens, dims_.heads(), dims_.value()});
    check_no_overlap("outputs", outputs);
  }

  /// Runs many tokens: reads the inputs [B, T, ...], moves the states on and writes the outputs [B, T, H, V].
  /// Equal to `step` token by token, however a sequence is split: up to rounding, or in every bit with
  /// PrefillMode::reproducible. Allocates only through the workspace. Outputs must not overlap inputs.
  /// @throws as validate, before any state or output changes. If the executor itself throws, state and
  /// outputs are unspecified.
  template <Executor E = SerialExecutor>
  void prefill(const Inputs& inputs, State& state, const Output& outputs, const PrefillOptions& options = {},
               const E& executor = {}) const {
    validate(inputs, state, outputs, options.layout);
    Workspace own;
    Workspace& workspace = options.workspace != nullptr ? *options.workspace : own;
    const ExecutorRef workers = executor;
    const Index numbers = workers.concurrency() * scratch_size();
    workspace.reserve(1, sizeof(Scalar) * static_cast<std::size_t>(numbers));
    run(inputs, state, outputs, options.layout, workspace.template block<Scalar>(0), options.mode, workers);
  }

  /// Numbers of scratch memory that `run` needs, on a cache line.
  Index scratch_size() const {
    return Block<Scalar>::scratch_size(block_tokens, dims_.key()) +
           (detail::has_chunks(law) ? detail::Chunk<law, Scalar, StateScalar>::memory_size(dims_.key()) : 0);
  }
  /// As prefill, for callers whose tensors fit by construction, such as layers: checks nothing and allocates
  /// nothing. Decays that prefill would refuse follow the rules of IEEE arithmetic.
  /// @param scratch that many numbers for each worker of the executor.
  void run(const Inputs& inputs, State& state, const Output& outputs, const SequenceLayout& layout,
           Scalar* scratch, PrefillMode mode, const ExecutorRef& executor = {}) const {
    const Index heads = dims_.heads(), groups = head_groups(state, layout, outputs.tokens(), executor);
    const double flops = law.correction == Correction::none ? 4 : 8;
    const double cost = flops * static_cast<double>(dims_.key() * dims_.value()) *
                        static_cast<double>(outputs.batch() * outputs.tokens() * heads) /
                        static_cast<double>(std::max<Index>(1, state.sequences()) * groups);
    executor.for_each(state.sequences() * groups, cost, [&](Index item, Index worker) {
      const Index sequence = item / groups, group = item % groups;
      run_heads(inputs, state, outputs, {.layout = layout, .mode = mode}, sequence, group * heads / groups,
                (group + 1) * heads / groups, scratch + worker * scratch_size());
    });
    for (Index s = 0; s < state.sequences(); ++s)
      layout.for_each_run(s, outputs.tokens(), [&](Index, Index, Index count) { state.advance(s, count); });
  }

  /// Runs one token of each of B sequences: inputs [B, 1, ...], outputs [B, 1, H, V]. Allocates and
  /// checks nothing; call `validate` once on inputs that are new.
  void step(const Inputs& inputs, State& state, const Output& outputs) const noexcept {
    assert(fits_step(inputs, state, outputs) && "step: shapes do not fit; validate() says which");
    for (Index b = 0; b < state.sequences(); ++b) {
      const Segment segment{.row = b, .count = 1, .position = state.position(b), .end_head = dims_.heads()};
      run_tokens(inputs, segment, b, state, outputs, state.scratch(), PrefillMode::reproducible);
      state.advance(b, 1);
    }
  }

 protected:
  /// @param scale none: K^-1/2.
  Recurrence(Sizes dims, std::optional<double> scale)
      : dims_(dims),
        scale_(static_cast<Scalar>(scale ? *scale : 1 / std::sqrt(static_cast<double>(dims.key())))) {
    if (!std::isfinite(scale_)) throw ValueError(message("scale: expected a finite number, got ", scale_));
  }

  /// What the head of the segment reads of `view`, whose heads may be groups, for its token i.
  const Scalar* at(const Input& view, const Segment& s, Index i) const {
    const Index group = s.head / (dims_.heads() / view.heads());
    return view.data(s.row, s.first + i, group);
  }
  /// q, k and v as they are, for kernels that call them so.
  template <class QKV>
  void set_qkv(Block<Scalar>& block, const QKV& in, const Segment& s, Index i) const {
    block[i].query = block.near(i, Row::query, at(in.q, s, i));
    block[i].key = block.near(i, Row::key, at(in.k, s, i));
    block[i].value = at(in.v, s, i);
  }
  template <class QKV, class F>
  void for_each_qkv(const QKV& in, F&& f) const {
    f("q", in.q, dims_.key(), HeadSharing::groups);
    f("k", in.k, dims_.key(), HeadSharing::groups);
    f("v", in.v, dims_.value(), HeadSharing::groups);
  }

  /// No skip term, unless the kernel has its own.
  const Scalar* skip(Index) const { return nullptr; }

 private:
  struct Extents {
    Index batch, tokens;
  };

  using Chunk = detail::Chunk<law, Scalar, StateScalar>;

  const Kernel& kernel() const { return static_cast<const Kernel&>(*this); }
  static std::string text(const Sizes& d) {
    return message("[", d.heads(), ", ", d.key(), ", ", d.value(), "]");
  }

  /// All inputs must have the batch and the tokens of the first.
  Extents check_shapes(const Inputs& inputs) const {
    Extents extents{-1, -1};
    kernel().for_each_input(inputs, [&](const char* name, const Input& view, Index dim, HeadSharing sharing) {
      if (extents.batch < 0) extents = {view.batch(), view.tokens()};
      const bool groups =
          sharing == HeadSharing::groups && view.heads() > 0 && dims_.heads() % view.heads() == 0;
      const Index heads = groups ? view.heads() : dims_.heads();
      check_shape(name, view, {extents.batch, extents.tokens, heads, dim},
                  sharing == HeadSharing::groups ? " (or a number of heads that divides H)" : "");
    });
    return extents;
  }
  /// Whether one step may be taken, for debug builds.
  bool fits_step(const Inputs& inputs, const State& state, const Output& outputs) const noexcept {
    const std::array<Index, 4> expected{state.sequences(), 1, dims_.heads(), dims_.value()};
    bool fits = state.dims() == dims_ && outputs.extents() == expected;
    kernel().for_each_input(inputs, [&](const char*, const Input& view, Index dim, HeadSharing sharing) {
      const bool heads = sharing == HeadSharing::none ? view.heads() == dims_.heads()
                                                      : view.heads() > 0 && dims_.heads() % view.heads() == 0;
      fits = fits && heads && view.batch() == state.sequences() && view.tokens() == 1 && view.dim() == dim;
    });
    return fits;
  }

  /// Into how many groups the heads of a sequence are split: few, for neighbouring heads share cache lines
  /// and pages, but so many that all workers are busy, whatever the lengths of the sequences.
  Index head_groups(const State& state, const SequenceLayout& layout, Index tokens,
                    const ExecutorRef& executor) const {
    const Index workers = executor.concurrency();
    if (workers == 1) return 1;
    Index busy = 0;  // sequences that have tokens
    for (Index s = 0; s < state.sequences(); ++s) {
      Index runs = 0;
      layout.for_each_run(s, tokens, [&](Index, Index, Index) { ++runs; });
      busy += std::min<Index>(runs, 1);
    }
    return busy < 4 * workers ? std::min(dims_.heads(), workers) : 1;
  }

  /// Heads [begin, end) of one sequence, block by block.
  void run_heads(const Inputs& inputs, State& state, const Output& outputs, const PrefillOptions& options,
                 Index sequence, Index begin, Index end, Scalar* scratch) const noexcept {
    options.layout.for_each_padding(sequence, outputs.tokens(), [&](Index row, Index first, Index count) {
      for (Index t = first; t < first + count; ++t)
        for (Index h = begin; h < end; ++h) outputs.at(row, t, h).setZero();
    });
    std::int64_t position = state.position(sequence);
    options.layout.for_each_run(sequence, outputs.tokens(), [&](Index row, Index first, Index count) {
      for (Index done = 0; done < count; done += block_tokens) {
        const Index n = std::min(block_tokens, count - done);
        const Index following = std::min(block_tokens, count - done - n);
        const Segment segment{.row = row,
                              .first = first + done,
                              .count = n,
                              .position = position,
                              .following = following,
                              .first_head = begin,
                              .end_head = end};
        run_tokens(inputs, segment, sequence, state, outputs, scratch, options.mode);
        position += n;
      }
    });
  }

  /// The tokens of a segment, for all its heads.
  void run_tokens(const Inputs& inputs, Segment segment, Index sequence, State& state, const Output& outputs,
                  Scalar* scratch, PrefillMode mode) const noexcept {
    [[maybe_unused]] PerToken log_t;
    if constexpr (Kernel::tapered) log_positions(segment.position, segment.count, log_t);
    segment.log_t = log_t.at;
    const auto run_all = [&](Chunk* chunk) {
      for (segment.head = segment.first_head; segment.head < segment.end_head; ++segment.head)
        run_block(inputs, segment, sequence, state, outputs, scratch, chunk);
    };
    if constexpr (detail::has_chunks(law))
      if (mode == PrefillMode::fast && detail::chunks_pay(segment.count, dims_.key(), dims_.value())) {
        Chunk chunk(scratch + Block<Scalar>::scratch_size(block_tokens, dims_.key()), dims_.key());
        return run_all(&chunk);
      }
    run_all(nullptr);
  }

  /// One head. Not inlined: step and prefill then run the very same instructions, and agree in every bit.
  EIGEN_DONT_INLINE void run_block(const Inputs& inputs, const Segment& segment, Index sequence, State& state,
                                   const Output& outputs, Scalar* scratch, Chunk* chunk) const noexcept {
    Block<Scalar> block(scratch, segment.count, dims_.key(), segment.count > 1 && chunk == nullptr);
    kernel().prepare(inputs, segment, block);
    Scalar* output = outputs.data(segment.row, segment.first, segment.head);
    const Index stride =
        segment.count > 1 ? outputs.data(segment.row, segment.first + 1, segment.head) - output : 0;
    const detail::Head<Scalar, StateScalar> head{
        state.panel(sequence, segment.head, 0),
        dims_.key(),
        dims_.value(),
        {scale_, kernel().skip(segment.head), output, stride, dims_.value()}};
    detail::Ahead ahead = rows_ahead(inputs, segment, outputs);
    if constexpr (detail::has_chunks(law))
      if (chunk != nullptr) return detail::run_chunks(*chunk, head, block, segment.count, ahead);
    if constexpr (!std::is_same_v<Scalar, StateScalar>) block.make_quiet(law);
    ahead.spread(head.strips() * segment.count);
    detail::scan<law, Sizes::fixed_key, Sizes::fixed_value>(head, &block[0], 0, segment.count, ahead);
  }

  /// What the next segment will touch. One head ahead is soon enough, and what is asked for does not wait in the
  /// cache while other heads pass. Rows that heads share, and numbers that come once a head, are there already. A
  /// token alone needs too little for this.
  detail::Ahead rows_ahead(const Inputs& inputs, const Segment& segment,
                           const Output& outputs) const noexcept {
    const Segment next = segment.next();
    if (segment.count == 1 || next.count == 0) return detail::Ahead(0);
    detail::Ahead ahead(next.count);
    constexpr Index bytes = static_cast<Index>(sizeof(Scalar));
    const auto line = [](const Scalar* x) { return reinterpret_cast<std::uintptr_t>(x) / cache_line; };
    kernel().for_each_input(inputs, [&](const char*, const Input& view, Index, HeadSharing) {
      const Scalar* first = at(view, next, 0);
      if (line(first) == line(at(view, segment, 0))) return;
      ahead.add(first, view.strides()[1] * bytes, view.dim() * bytes);
    });
    ahead.add(outputs.data(next.row, next.first, next.head), outputs.strides()[1] * bytes,
              outputs.dim() * bytes);
    return ahead;
  }

  Sizes dims_;
  Scalar scale_;
};

}  // namespace linrec
