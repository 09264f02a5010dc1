// The chunked form of the law: a few tokens at once, as small matrix products.
//
// Let S_0 be the state before the chunk, W_i the product of the decays of its tokens 1 to i, and b_i = c_i
// k_i or 0. With u_i = v_i + c_i S_{i-1}^T a_i the law of law.hpp, unrolled, says
//
//   u_i = v_i + c_i (W_{i-1} a_i)^T S_0 + sum_{j<i} (c_i a_i^T W_{i-1}/W_j k_j) u_j
//   o_i =           (W_i q_i)^T S_0     + sum_{j<=i} (q_i^T W_i/W_j k_j) u_j
//   S_C =            W_C S_0            + sum_j (W_C/W_j k_j) u_j^T
//
// The numbers in brackets do not depend on the panel: they are computed once for a head. The first line is
// solved by forward substitution (arXiv 2406.06484, section 3, without its matrices W and U). A correction of
// rank one has no such form that pays: it doubles the sums, and the panel scan is faster on all machines that
// were tried.
//
// Ratios of decays. Per head they are products of the decays between two tokens, never quotients or
// differences of sums, so that hard resets and enormous decays are exact. Per channel they are factored as
// W_i times 1/W_j, which is as accurate as long as 1/W_C stays far from overflow; a chunk with stronger
// decays is left to the panel scan.
#pragma once

#include "linrec/kernels/chunk_operands.hpp"
#include "linrec/kernels/micro_kernel.hpp"
#include "linrec/kernels/panel_scan.hpp"

namespace linrec::detail {

/// Runs a chunk over one strip of panels.
template <Law law, Index width, class Scalar, class StateScalar>
class ChunkStrip {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  static constexpr Index rows = micro_rows<Scalar, width>, line = width * L::size;
  static constexpr bool per_head = law.decay == Decay::per_head;
  static constexpr bool corrected = law.correction != Correction::none;
  using Operands = Chunk<law, Scalar, StateScalar>;

 public:
  EIGEN_ALWAYS_INLINE ChunkStrip(const Operands& chunk, const Panels<Scalar>& panels, Index column,
                                 const Output<Scalar>& out, Ahead& ahead)
      : chunk_(chunk), panels_(panels), column_(column), out_(out), ahead_(ahead), values_(chunk.values) {}

  EIGEN_ALWAYS_INLINE void run() {
    for (Index i = 0; i < chunk_.count(); ++i)
      (L::broadcast(chunk_[i].value_gain) * value(i)).store(values_ + i * line, L::size);
    if constexpr (corrected) substitute();
    write_outputs();
    update();
  }

 private:
  EIGEN_ALWAYS_INLINE S value(Index i) const {
    return S::load_columns(chunk_[i].value + column_, out_.columns);
  }
  EIGEN_ALWAYS_INLINE S row(Index i) const { return S::load(values_ + i * line, L::size); }
  EIGEN_ALWAYS_INLINE Right<Scalar> state() const { return {panels_.first, L::size, panels_.stride}; }
  EIGEN_ALWAYS_INLINE Right<Scalar> values() const { return {values_, line, L::size}; }
  /// sum += factor x
  EIGEN_ALWAYS_INLINE static void add(S& sum, Scalar factor, const S& x) {
    sum = multiply_add(L::broadcast(factor), x, sum);
  }

  /// u_i in the place of v_i: forward substitution, by tiles and inside of them.
  EIGEN_ALWAYS_INLINE void substitute() {
    for_each_tile<rows>(chunk_.count(), [&](auto size, Index i) LINREC_INLINE_LAMBDA {
      const Index column = Operands::a_column + i;
      auto tile = Tile<Scalar, width, size>::zero();
      ahead_.advance(chunk_.key());
      tile.add_product(chunk_.reading(column), state(), chunk_.key());
      tile.transform([&](auto r, S u) LINREC_INLINE_LAMBDA {
        if constexpr (per_head) u = L::broadcast(chunk_.before(i + r)) * u;
        return row(i + r) + u;
      });
      const PackedLeft<Scalar> factors = chunk_.factors(column);
      tile.add_product(factors, values(), i);
      const Scalar* own = factors.data + i * Operands::columns;
      repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
        tile.row[j].store(values_ + (i + j) * line, L::size);
        repeat<size - j - 1>([&](auto d) LINREC_INLINE_LAMBDA {
          add(tile.row[j + d + 1], own[j * Operands::columns + j + d + 1], tile.row[j]);
        });
      });
    });
  }

  EIGEN_ALWAYS_INLINE void write_outputs() {
    for_each_tile<rows>(chunk_.count(), [&](auto size, Index i) LINREC_INLINE_LAMBDA {
      auto tile = Tile<Scalar, width, size>::zero();
      ahead_.advance(chunk_.key());
      tile.add_product(chunk_.reading(i), state(), chunk_.key());
      if constexpr (per_head)
        tile.transform([&](auto r, const S& o)
                           LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.from_start(i + r)) * o; });
      const PackedLeft<Scalar> factors = chunk_.factors(i);
      tile.add_product(factors, values(), i);
      const Scalar* own = factors.data + i * Operands::columns;
      repeat<size>([&](auto j) LINREC_INLINE_LAMBDA {
        const S u = row(i + j);
        repeat<size - j>([&](auto d) LINREC_INLINE_LAMBDA {
          add(tile.row[j + d], own[j * Operands::columns + j + d], u);
        });
      });
      repeat<size>([&](auto r) LINREC_INLINE_LAMBDA {
        S o = L::broadcast(out_.scale) * tile.row[r];
        if (out_.skip != nullptr) o = multiply_add(S::load(out_.skip, L::size), value(i + r), o);
        o.store_columns(out_.data + (i + r) * out_.stride, out_.columns);
      });
    });
  }
  EIGEN_ALWAYS_INLINE void update() {
    if constexpr (per_head)
      for (Index i = 0; i < chunk_.count(); ++i)
        (L::broadcast(chunk_.to_end(i)) * row(i)).store(values_ + i * line, L::size);
    for_each_tile<rows>(chunk_.key(), [&](auto size, Index c) LINREC_INLINE_LAMBDA {
      Scalar* first = panels_.first + c * L::size;
      ahead_.advance(chunk_.count());
      auto tile = Tile<Scalar, width, size>::of([&](auto r) LINREC_INLINE_LAMBDA {
        const S s = S::load(first + r * L::size, panels_.stride);
        if constexpr (per_head)
          return L::broadcast(chunk_.whole()) * s;
        else
          return s;
      });
      tile.add_product(chunk_.keys(c), values(), chunk_.count());
      if constexpr (law.decay == Decay::per_channel)
        tile.transform([&](auto r, const S& s)
                           LINREC_INLINE_LAMBDA { return L::broadcast(chunk_.whole(c + r)) * s; });
      repeat<size>([&](auto r)
                       LINREC_INLINE_LAMBDA { tile.row[r].store(first + r * L::size, panels_.stride); });
    });
  }

  const Operands& chunk_;
  const Panels<Scalar> panels_;
  const Index column_;
  const Output<Scalar> out_;
  Ahead& ahead_;
  Scalar* const values_;
};

/// Whether there are chunks for this law.
constexpr bool has_chunks(Law law) { return law.correction != Correction::rank_one; }

/// Whether they pay for `tokens` tokens of a head of this size; else the panel scan is as fast.
constexpr bool chunks_pay(Index tokens, Index key, Index value) {
  return tokens >= 4 && key >= block_tokens && value >= block_tokens;
}

/// Copies a strip of a state between scalars.
template <class Scalar, Index width, class From, class To>
EIGEN_ALWAYS_INLINE void convert(const Panels<From>& from, const Panels<To>& to) {
  using Pair = RowPair<Scalar, width>;
  Index i = 0;
  for (; i + 1 < to.key; i += 2) Pair::load(from, i).store(to, i);
  if (i < to.key) Pair::load_last(from, i).store_last(to, i);
}

/// Runs `count` tokens of a block, as one chunk, over all panels of a head.
template <Law law, class Scalar, class StateScalar>
EIGEN_DONT_INLINE void run_chunks(Chunk<law, Scalar, StateScalar>& chunk,
                                  const Head<Scalar, StateScalar>& head, Block<Scalar>& block, Index count,
                                  Ahead& ahead) noexcept {
  constexpr Index rows = micro_rows<Scalar, strip_width<Scalar>>;
  constexpr Index sides = law.correction == Correction::none ? 1 : 2;
  ahead.spread(head.strips() * head.key * (sides * ((count + rows - 1) / rows) + count / rows + 1));
  if (!chunk.prepare(block, count)) {
    if constexpr (!std::is_same_v<Scalar, StateScalar>) block.make_quiet(law);
    return scan<law, Dynamic, Dynamic>(head, &block[0], 0, count, ahead);
  }
  head.for_each_strip([&](auto width, Index column) LINREC_INLINE_LAMBDA {
    const auto run = [&](const Panels<Scalar>& panels) LINREC_INLINE_LAMBDA {
      ChunkStrip<law, width, Scalar, StateScalar>(chunk, panels, column, head.output(0, column, width), ahead)
          .run();
    };
    if constexpr (!std::is_same_v<Scalar, StateScalar>) {
      const Panels<Scalar> panels{chunk.state, head.key, head.key * Lanes<Scalar>::size};
      convert<Scalar, width>(head.panels(column), panels);
      run(panels);
      convert<Scalar, width>(panels, head.panels(column));
    } else {
      run(head.panels(column));
    }
  });
}

}  // namespace linrec::detail
