// The panel scan: the law of law.hpp for a block of tokens and one or two panels of V, each a cache line
// wide.
//
// A panel [K, lanes] stays in the first-level cache while the tokens of the block pass over it. For the
// correction, the sweep that writes S_t also reads a_{t+1}^T S_t, so that each token passes over the panel
// once; the arithmetic of a token does not depend on what is fused with it, and a token alone gives the same
// bits as a token in a block.
#pragma once

#include <type_traits>
#include <utility>

#include "linrec/kernels/law.hpp"

namespace linrec::detail {

/// Panels that are scanned together where a panel is one register wide: they share the broadcasts of q and k,
/// which are otherwise half of the loads.
template <class Scalar>
inline constexpr Index strip_width = Lanes<Scalar>::packets == 1 ? 2 : 1;

/// The same row of `width` neighbouring panels.
template <class Scalar, Index width>
struct Strip {
  using L = Lanes<Scalar>;
  L part[static_cast<std::size_t>(width)];

  static EIGEN_ALWAYS_INLINE Strip zero() {
    Strip strip;
    for (L& p : strip.part) p = L::broadcast(0);
    return strip;
  }
  /// A row of the first panel, and those of the others, `stride` numbers further each.
  static EIGEN_ALWAYS_INLINE Strip load(const Scalar* row, Index stride) {
    Strip strip;
    for (Index j = 0; j < width; ++j) strip.part[j] = L::load(row + j * stride);
    return strip;
  }
  EIGEN_ALWAYS_INLINE void store(Scalar* row, Index stride) const {
    for (Index j = 0; j < width; ++j) part[j].store(row + j * stride);
  }
  /// From n numbers of the caller; the lanes beyond are 0.
  static EIGEN_ALWAYS_INLINE Strip load_columns(const Scalar* from, Index n) {
    if (n == width * L::size) return load(from, L::size);
    Strip strip;
    for (Index j = 0; j < width; ++j, n -= L::size)
      strip.part[j] = n >= L::size ? L::load(from + j * L::size) : L::load_part(from + j * L::size, n);
    return strip;
  }
  EIGEN_ALWAYS_INLINE void store_columns(Scalar* to, Index n) const {
    if (n == width * L::size) return store(to, L::size);
    for (Index j = 0; j < width; ++j, n -= L::size)
      n >= L::size ? part[j].store(to + j * L::size) : part[j].store_part(to + j * L::size, n);
  }

  friend EIGEN_ALWAYS_INLINE Strip operator+(const Strip& a, const Strip& b) {
    Strip sum;
    for (Index j = 0; j < width; ++j) sum.part[j] = a.part[j] + b.part[j];
    return sum;
  }
  friend EIGEN_ALWAYS_INLINE Strip operator*(const L& a, const Strip& b) {
    Strip product;
    for (Index j = 0; j < width; ++j) product.part[j] = a * b.part[j];
    return product;
  }
  friend EIGEN_ALWAYS_INLINE Strip multiply_add(const L& a, const Strip& b, const Strip& c) {
    Strip result;
    for (Index j = 0; j < width; ++j) result.part[j] = multiply_add(a, b.part[j], c.part[j]);
    return result;
  }
  friend EIGEN_ALWAYS_INLINE Strip multiply_add(const Strip& a, const Strip& b, const Strip& c) {
    Strip result;
    for (Index j = 0; j < width; ++j) result.part[j] = multiply_add(a.part[j], b.part[j], c.part[j]);
    return result;
  }
};

/// The two panels of a strip, or the one: rows of the next are `stride` numbers further.
template <class Scalar>
struct Panels {
  Scalar* first;
  Index key, stride;
};

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
  /// Calls f(row, part) for each row in [0, key). `part` is a constant, or the parts would not stay in
  /// registers.
  template <class F>
  static EIGEN_ALWAYS_INLINE void for_each_row(Index key, F&& f) {
    for_each_row(key, f, std::make_integer_sequence<Index, parts>());
  }

 private:
  template <class F, Index... u>
  static EIGEN_ALWAYS_INLINE void for_each_row(Index key, F& f, std::integer_sequence<Index, u...>) {
    Index i = 0;
    for (; i + parts <= key; i += parts) (f(i + u, std::integral_constant<Index, u>()), ...);
    ((i + u < key ? f(i + u, std::integral_constant<Index, u>()) : void()), ...);
  }
};

/// a^T S
template <class Scalar, Index width>
EIGEN_ALWAYS_INLINE Strip<Scalar, width> read(const Panels<Scalar>& panels, const Scalar* a) {
  using L = Lanes<Scalar>;
  Sum<Scalar, width> sum;
  const Panels<Scalar> p = panels;
  sum.for_each_row(p.key, [&](Index i, auto u) LINREC_INLINE_LAMBDA {
    const auto s = Strip<Scalar, width>::load(p.first + i * L::size, p.stride);
    sum.part[u] = multiply_add(L::broadcast(a[i]), s, sum.part[u]);
  });
  return sum.total();
}

/// S = diag(w) S + b r^T + k u^T in place; returns S^T q and, with `read_next`, `next_read` = S^T next_a.
template <Law law, bool read_next, class Scalar, Index width>
EIGEN_ALWAYS_INLINE Strip<Scalar, width> sweep(const Panels<Scalar>& panels, const Terms<Scalar>& t,
                                               const Strip<Scalar, width>& u, const Strip<Scalar, width>& r,
                                               const Scalar* next_a, Strip<Scalar, width>& next_read) {
  using L = Lanes<Scalar>;
  Sum<Scalar, width> output, next;
  const L decay = L::broadcast(t.decay);
  const Panels<Scalar> p = panels;  // copies, out of reach
  const Scalar *const w = t.decays, *const b = t.b, *const k = t.key, *const q = t.query;  // of the stores
  output.for_each_row(p.key, [&](Index i, auto part) LINREC_INLINE_LAMBDA {
    Scalar* row = p.first + i * L::size;
    auto s = Strip<Scalar, width>::load(row, p.stride);
    if constexpr (law.decay == Decay::per_head) s = decay * s;
    if constexpr (law.decay == Decay::per_channel) s = L::broadcast(w[i]) * s;
    if constexpr (law.correction == Correction::rank_one) s = multiply_add(L::broadcast(b[i]), r, s);
    s = multiply_add(L::broadcast(k[i]), u, s);
    s.store(row, p.stride);
    output.part[part] = multiply_add(L::broadcast(q[i]), s, output.part[part]);
    if constexpr (read_next) next.part[part] = multiply_add(L::broadcast(next_a[i]), s, next.part[part]);
  });
  if constexpr (read_next) next_read = next.total();
  return output.total();
}

/// Rows of the caller's tensors that the next block will need. They are asked for little by little while this
/// block runs: the rows of one head lie too far apart for the hardware to foresee them.
class Ahead {
 public:
  void set_tokens(Index tokens) { tokens_ = tokens; }
  /// One row a token, of `bytes` bytes, `stride` bytes apart.
  void add(const void* first, Index stride, Index bytes) {
    if (size_ < capacity) rows_[size_++] = {static_cast<const char*>(first), stride, bytes};
  }
  /// Asks for the share of strip p of `strips` in the rows of token i.
  EIGEN_ALWAYS_INLINE void fetch(Index i, Index p, Index strips) const {
    if (i >= tokens_) return;
    constexpr Index line = static_cast<Index>(cache_line);
    for (Index r = 0; r < size_; ++r)
      for (Index offset = p * line; offset < rows_[r].bytes; offset += strips * line)
        prefetch_line(rows_[r].first + i * rows_[r].stride + offset);
  }

 private:
  struct Rows {
    const char* first;
    Index stride, bytes;
  };
  static constexpr Index capacity = 8;
  Rows rows_[static_cast<std::size_t>(capacity)];
  Index size_ = 0, tokens_ = 0;
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

/// Runs the `count` tokens of a block over a strip of panels, whose first column is `column`.
template <Law law, Index width, class Scalar>
EIGEN_ALWAYS_INLINE void scan_strip(const Panels<Scalar>& panels, const Block<Scalar>& block, Index count,
                                    Index column, const Output<Scalar>& out, const Ahead& ahead, Index strip,
                                    Index strips) {
  using L = Lanes<Scalar>;
  using S = Strip<Scalar, width>;
  constexpr bool corrected = law.correction != Correction::none;
  S r = S::zero();
  if constexpr (corrected) r = read<Scalar, width>(panels, block[0].a);
  for (Index i = 0; i < count; ++i) {
    ahead.fetch(i, strip, strips);
    const Terms<Scalar>& t = block[i];
    const S x = S::load_columns(t.value + column, out.columns);
    S u = L::broadcast(t.value_gain) * x;
    if constexpr (law.correction == Correction::along_key) u = multiply_add(L::broadcast(t.b_gain), r, u);
    S o, next;
    if (corrected && i + 1 < count) {
      o = sweep<law, corrected>(panels, t, u, r, block[i + 1].a, next);
      r = next;
    } else {
      o = sweep<law, false>(panels, t, u, r, static_cast<const Scalar*>(nullptr), next);
    }
    o = L::broadcast(out.scale) * o;
    if (out.skip != nullptr) o = multiply_add(S::load(out.skip, L::size), x, o);
    o.store_columns(out.data + i * out.stride, out.columns);
  }
}

}  // namespace linrec::detail
