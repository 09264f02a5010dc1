// The panel scan: the law of law.hpp for a block of tokens and one panel of V, a cache line wide.
//
// The panel [K, lanes] stays in the first-level cache while the tokens of the block pass over it. For
// the correction, the sweep that writes S_t also reads a_{t+1}^T S_t, so that each token passes over
// the panel once; the arithmetic of a token does not depend on what is fused with it, and a token alone
// gives the same bits as a token in a block.
#pragma once

#include "linrec/kernels/law.hpp"

namespace linrec::detail {

/// Sums over K are kept in several accumulators, to hide the latency of the multiply-add.
template <class Scalar>
inline constexpr Index accumulators = Lanes<Scalar>::packets >= 4 ? 1 : 4 / Lanes<Scalar>::packets;

template <class Scalar>
struct Sum {
  Lanes<Scalar> part[accumulators<Scalar>];

  EIGEN_ALWAYS_INLINE Sum() {
    for (Lanes<Scalar>& p : part) p = Lanes<Scalar>::broadcast(0);
  }
  EIGEN_ALWAYS_INLINE Lanes<Scalar> total() const {
    Lanes<Scalar> sum = part[0];
    for (Index u = 1; u < accumulators<Scalar>; ++u) sum = sum + part[u];
    return sum;
  }
};

/// Calls f(row, accumulator) for each row in [0, key).
template <class Scalar, class F>
EIGEN_ALWAYS_INLINE void for_each_row(Index key, F&& f) {
  constexpr Index unroll = accumulators<Scalar>;
  Index i = 0;
  for (; i + unroll <= key; i += unroll)
    for (Index u = 0; u < unroll; ++u) f(i + u, u);
  for (Index u = 0; i + u < key; ++u) f(i + u, u);
}

/// a^T S
template <class Scalar>
EIGEN_ALWAYS_INLINE Lanes<Scalar> read(const Scalar* panel, Index key, const Scalar* a) {
  Sum<Scalar> sum;
  for_each_row<Scalar>(key, [&](Index i, Index u) {
    const Lanes<Scalar> s = Lanes<Scalar>::load(panel + i * Lanes<Scalar>::size);
    sum.part[u] = multiply_add(Lanes<Scalar>::broadcast(a[i]), s, sum.part[u]);
  });
  return sum.total();
}

/// S = diag(w) S + b r^T + k u^T in place; returns S^T q and, with `read_next`, `next_read` = S^T next_a.
template <Law law, bool read_next, class Scalar>
EIGEN_ALWAYS_INLINE Lanes<Scalar> sweep(Scalar* panel, Index key, const Terms<Scalar>& t, const Lanes<Scalar>& u,
                                        const Lanes<Scalar>& r, const Scalar* next_a, Lanes<Scalar>& next_read) {
  using L = Lanes<Scalar>;
  Sum<Scalar> output, next;
  const L decay = L::broadcast(t.decay);
  const Scalar *const w = t.decays, *const b = t.b, *const k = t.key, *const q = t.query;  // out of reach of stores
  for_each_row<Scalar>(key, [&](Index i, Index part) {
    L s = L::load(panel + i * L::size);
    if constexpr (law.decay == Decay::per_head) s = decay * s;
    if constexpr (law.decay == Decay::per_channel) s = L::broadcast(w[i]) * s;
    if constexpr (law.correction == Correction::rank_one) s = multiply_add(L::broadcast(b[i]), r, s);
    s = multiply_add(L::broadcast(k[i]), u, s);
    s.store(panel + i * L::size);
    output.part[part] = multiply_add(L::broadcast(q[i]), s, output.part[part]);
    if constexpr (read_next) next.part[part] = multiply_add(L::broadcast(next_a[i]), s, next.part[part]);
  });
  if constexpr (read_next) next_read = next.total();
  return output.total();
}

/// How a panel's results reach the caller: o = scale S^T q + skip x.
template <class Scalar>
struct Output {
  Scalar scale;
  const Scalar* skip;   ///< D [lanes] of this panel, or null
  Scalar* data;         ///< first token's o, at this panel's columns
  Index stride;         ///< from token to token
  Index columns;        ///< of this panel, at most a cache line
};

/// Runs the `count` tokens of a block over one panel, whose first column is `column`.
template <Law law, class Scalar>
inline void scan_panel(Scalar* panel, Index key, const Block<Scalar>& block, Index count, Index column,
                       const Output<Scalar>& out) {
  using L = Lanes<Scalar>;
  constexpr bool corrected = law.correction != Correction::none;
  const bool whole = out.columns == L::size;
  L r = L::broadcast(0);
  if constexpr (corrected) r = read(panel, key, block[0].a);
  for (Index i = 0; i < count; ++i) {
    const Terms<Scalar>& t = block[i];
    const L x = whole ? L::load(t.value + column) : L::load_part(t.value + column, out.columns);
    L u = L::broadcast(t.value_gain) * x;
    if constexpr (law.correction == Correction::along_key) u = multiply_add(L::broadcast(t.b_gain), r, u);
    L o, next;
    if (corrected && i + 1 < count) {
      o = sweep<law, corrected>(panel, key, t, u, r, block[i + 1].a, next);
      r = next;
    } else {
      o = sweep<law, false>(panel, key, t, u, r, static_cast<const Scalar*>(nullptr), next);
    }
    o = L::broadcast(out.scale) * o;
    if (out.skip != nullptr) o = multiply_add(L::load(out.skip), x, o);
    Scalar* to = out.data + i * out.stride;
    whole ? o.store(to) : o.store_part(to, out.columns);
  }
}

}  // namespace linrec::detail
