// The panel scan: the law of law.hpp for a block of tokens and one or two panels of V, each a cache line
// wide.
//
// A panel [K, lanes] stays in the first-level cache while the tokens of the block pass over it. For the
// correction, the sweep that writes S_t also reads a_{t+1}^T S_t, so that each token passes over the panel
// once; the arithmetic of a token does not depend on what is fused with it, and a token alone gives the same
// bits as a token in a block.
#pragma once

#include <algorithm>
#include <type_traits>

#include "linrec/kernels/law.hpp"
#include "linrec/kernels/strip.hpp"

namespace linrec::detail {

/// A sum over K in several accumulators, to hide the latency of the multiply-add.
template <class Scalar, Index width>
struct Sum {
  static constexpr Index registers = Lanes<Scalar>::packets * width;
  static constexpr Index parts = registers >= 4 ? 1 : 4 / registers;
  Strip<Scalar, width> part[static_cast<std::size_t>(parts)];

  EIGEN_ALWAYS_INLINE Sum() {
    for (auto& p : part) p = Strip<Scalar, width>::zero();
  }
  EIGEN_ALWAYS_INLINE Strip<Scalar, width> total() const {
    Strip<Scalar, width> sum = part[0];
    for (Index u = 1; u < parts; ++u) sum = sum + part[u];
    return sum;
  }
  /// Calls f(i, part of row i, part of row i + 1, whole) for the pairs of rows in [0, key), `whole` false for
  /// the last row of an odd number. Parts are constants, or they would not stay in registers.
  template <class F>
  static EIGEN_ALWAYS_INLINE void for_each_pair(Index key, F&& f) {
    constexpr Index group = std::max<Index>(parts, 2);
    using std::integral_constant;
    Index i = 0;
    const auto pair = [&](auto u, auto whole) LINREC_INLINE_LAMBDA {
      f(i + u, integral_constant<Index, u % parts>(), integral_constant<Index, (u + 1) % parts>(), whole);
    };
    for (; i + group <= key; i += group)
      repeat<group / 2>(
          [&](auto n) LINREC_INLINE_LAMBDA { pair(integral_constant<Index, 2 * n>(), std::true_type()); });
    repeat<group / 2>([&](auto n) LINREC_INLINE_LAMBDA {
      constexpr integral_constant<Index, 2 * n> u;
      if (i + u + 1 < key)
        pair(u, std::true_type());
      else if (i + u < key)
        pair(u, std::false_type());
    });
  }
};

/// How many cache lines of its state ahead a token asks for if it is alone: its state comes from memory, and the
/// processor's own prefetching stops at each page. A block finds its state near.
constexpr Index lines_ahead(Index tokens) { return tokens == 1 ? 128 : 0; }

/// a^T S. Asks for the state `ahead` cache lines further.
template <class Scalar, Index width, class StateScalar>
EIGEN_ALWAYS_INLINE Strip<Scalar, width> read(const Panels<StateScalar>& panels, const Scalar* a,
                                              Index ahead) {
  using L = Lanes<Scalar>;
  using Pair = RowPair<Scalar, width>;
  Sum<Scalar, width> sum;
  const Panels<StateScalar> p = panels;
  sum.for_each_pair(p.key, [&](Index i, auto even, auto odd, auto whole) LINREC_INLINE_LAMBDA {
    const Pair s = whole ? Pair::load(p, i) : Pair::load_last(p, i);
    Pair::prefetch(p, i, ahead);
    sum.part[even] = multiply_add(L::broadcast(a[i]), s.even, sum.part[even]);
    if constexpr (whole) sum.part[odd] = multiply_add(L::broadcast(a[i + 1]), s.odd, sum.part[odd]);
  });
  return sum.total();
}

/// S = diag(w) S + b r^T + k u^T in place; returns S^T q and, with `read_next`, `next_read` = S^T next_a. Asks for
/// the state `ahead` cache lines further if it has not been read before.
template <Law law, bool read_next, class Scalar, Index width, class StateScalar>
EIGEN_ALWAYS_INLINE Strip<Scalar, width> sweep(const Panels<StateScalar>& panels, const Terms<Scalar>& t,
                                               const Strip<Scalar, width>& u, const Strip<Scalar, width>& r,
                                               const Scalar* next_a, Strip<Scalar, width>& next_read,
                                               Index ahead) {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  using Pair = RowPair<Scalar, width>;
  Sum<Scalar, width> output, next;
  const L decay = L::broadcast(t.decay);
  const Panels<StateScalar> p = panels;  // copies, out of reach
  const Scalar *const w = t.decays, *const b = t.b, *const k = t.key, *const q = t.query;  // of the stores
  const auto update = [&](Index i, S& s, auto part) LINREC_INLINE_LAMBDA {
    if constexpr (law.decay == Decay::per_head) s = decay * s;
    if constexpr (law.decay == Decay::per_channel) s = L::broadcast(w[i]) * s;
    if constexpr (law.correction == Correction::rank_one) s = multiply_add(L::broadcast(b[i]), r, s);
    s = multiply_add(L::broadcast(k[i]), u, s);
    output.part[part] = multiply_add(L::broadcast(q[i]), s, output.part[part]);
    if constexpr (read_next) next.part[part] = multiply_add(L::broadcast(next_a[i]), s, next.part[part]);
  };
  output.for_each_pair(p.key, [&](Index i, auto even, auto odd, auto whole) LINREC_INLINE_LAMBDA {
    Pair s = whole ? Pair::load(p, i) : Pair::load_last(p, i);
    if constexpr (law.correction == Correction::none) Pair::prefetch(p, i, ahead);  // else it has been read
    update(i, s.even, even);
    if constexpr (whole) {
      update(i + 1, s.odd, odd);
      s.store_quiet(p, i);
    } else {
      s.store_last_quiet(p, i);
    }
  });
  if constexpr (read_next) next_read = next.total();
  return output.total();
}

/// Rows of the caller's tensors that will be needed next. They are asked for little by little while others are
/// computed: the rows of one head lie too far apart for the hardware to foresee them, and asking for many
/// at once would wait for memory.
class Ahead {
 public:
  explicit Ahead(Index tokens) : tokens_(tokens) {}

  /// One row a token, of `bytes` bytes, `stride` bytes apart.
  void add(const void* first, Index stride, Index bytes) {
    if (size_ < capacity)
      tensors_[size_++] = {static_cast<const char*>(first), stride, (bytes + line - 1) / line};
  }
  /// Spreads the requests over so much work, of at least 1. All rows have been added.
  void spread(Index work) {
    Index lines = 0;
    for (Index i = 0; i < size_; ++i) lines += tokens_ * tensors_[i].lines;
    rate_ = (lines * one + work - 1) / work;
    enter(0);
  }
  /// Asks for the share of so much work.
  EIGEN_ALWAYS_INLINE void advance(Index work) {
    if (tensor_ == size_) return;
    credit_ += work * rate_;
    if (credit_ < one) return;
    ask(credit_ / one);
    credit_ %= one;
  }

 private:
  struct Tensor {
    const char* first;
    Index stride, lines;
  };

  EIGEN_DONT_INLINE void ask(Index lines) {
    while (lines > 0 && tensor_ < size_) {
      const Tensor& tensor = tensors_[tensor_];
      const Index n = std::min(lines, tensor.lines - asked_);
      const char* next = row_ + asked_ * line;
      for (Index i = 0; i < n; ++i) prefetch_line(next + i * line);
      lines -= n;
      if ((asked_ += n) < tensor.lines) return;
      if (++token_ == tokens_) {
        enter(tensor_ + 1);
      } else {
        row_ += tensor.stride;
        asked_ = 0;
      }
    }
  }
  void enter(Index tensor) {
    tensor_ = tensor;
    token_ = asked_ = 0;
    if (tensor < size_) row_ = tensors_[tensor].first;
  }

  static constexpr Index capacity = 8, line = static_cast<Index>(cache_line);
  static constexpr Index one = 1024;  // credit for one request
  Tensor tensors_[static_cast<std::size_t>(capacity)];
  Index size_ = 0, tokens_, rate_ = 0, credit_ = 0;
  Index tensor_ = 0, token_ = 0, asked_ = 0;  // lines of the row of the token were asked for
  const char* row_ = nullptr;
};

/// How the results of a strip reach the caller: o = scale S^T q + skip x.
template <class Scalar>
struct Output {
  Scalar scale;
  const Scalar* skip;  ///< D at this strip's columns, padded to whole cache lines; or null
  Scalar* data;        ///< first token's o, at this strip's columns
  Index stride;        ///< from token to token
  Index columns;       ///< of this strip
};

/// The state of one head, and the outputs of a block of its tokens.
template <class Scalar, class StateScalar>
struct Head {
  StateScalar* state;
  Index key, value;
  Output<Scalar> out;

  static constexpr Index lanes = Lanes<Scalar>::size;

  Index strips() const {
    constexpr Index line = strip_width<Scalar> * lanes;
    return (value + line - 1) / line;
  }
  Panels<StateScalar> panels(Index column) const {
    const Index rows = stored_rows<Scalar, StateScalar>(key);
    return {state + column * rows, key, rows * lanes};
  }
  /// The outputs of the tokens from `first` on, `width` panels from `column` on.
  Output<Scalar> output(Index first, Index column, Index width) const {
    return {out.scale, out.skip == nullptr ? nullptr : out.skip + column,
            out.data + first * out.stride + column, out.stride, std::min(width * lanes, value - column)};
  }
  /// Calls f(width, column) for each strip, with `width` a constant: its panels.
  template <class F>
  EIGEN_ALWAYS_INLINE void for_each_strip(F&& f) const {
    constexpr Index width = strip_width<Scalar>;
    Index column = 0;
    // A strip of two panels may end in lanes that are padding, but not in a panel that is.
    for (; column + (width - 1) * lanes < value; column += width * lanes)
      f(std::integral_constant<Index, width>(), column);
    if constexpr (width > 1)
      if (column < value) f(std::integral_constant<Index, 1>(), column);
  }
};

/// Runs `count` tokens over a strip of panels. For a state of BFloat16 each NaN in what reaches it must be
/// quiet.
template <Law law, Index width, class Scalar, class StateScalar>
EIGEN_ALWAYS_INLINE void scan_strip(const Panels<StateScalar>& panels, const Terms<Scalar>* terms,
                                    Index count, Index column, const Output<Scalar>& out, Ahead& ahead) {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  constexpr bool corrected = law.correction != Correction::none;
  // A state that is rounded when it is written is read as it was written.
  constexpr bool reads_next = corrected && std::is_same_v<Scalar, StateScalar>;
  const Index state_ahead = lines_ahead(count);
  S r = S::zero();
  if constexpr (corrected) r = read<Scalar, width>(panels, terms[0].a, state_ahead);
  for (Index i = 0; i < count; ++i) {
    ahead.advance(1);
    const Terms<Scalar>& t = terms[i];
    const S x = S::load_columns(t.value + column, out.columns);
    S u = L::broadcast(t.value_gain) * x;
    if constexpr (law.correction == Correction::along_key) u = multiply_add(L::broadcast(t.b_gain), r, u);
    if constexpr (!std::is_same_v<Scalar, StateScalar>) u = quiet(u), r = quiet(r);
    S o, next;
    if (reads_next && i + 1 < count) {
      o = sweep<law, reads_next>(panels, t, u, r, terms[i + 1].a, next, state_ahead);
      r = next;
    } else {
      o = sweep<law, false>(panels, t, u, r, static_cast<const Scalar*>(nullptr), next, state_ahead);
      if constexpr (corrected && !reads_next)
        if (i + 1 < count) r = read<Scalar, width>(panels, terms[i + 1].a, state_ahead);
    }
    o = L::broadcast(out.scale) * o;
    if (out.skip != nullptr) o = multiply_add(S::load(out.skip, L::size), x, o);
    o.store_columns(out.data + i * out.stride, out.columns);
  }
}

/// Runs the tokens [first, first + count) of a block, one after the other, over all panels of a head.
/// Not inlined: step and prefill then run the very same instructions, and agree in every bit. Sizes that are
/// fixed are constants of the loops.
template <Law law, int fixed_key, int fixed_value, class Scalar, class StateScalar>
EIGEN_DONT_INLINE void scan(Head<Scalar, StateScalar> head, const Terms<Scalar>* terms, Index first,
                            Index count, Ahead& ahead) noexcept {
  if constexpr (fixed_key != Dynamic) head.key = fixed_key;
  if constexpr (fixed_value != Dynamic) head.value = fixed_value;
  head.for_each_strip([&](auto width, Index column) LINREC_INLINE_LAMBDA {
    scan_strip<law, width>(head.panels(column), terms + first, count, column,
                           head.output(first, column, width), ahead);
  });
}

}  // namespace linrec::detail
