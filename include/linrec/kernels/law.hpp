// The one law of linrec. For each head, with a state S [K, V]:
//
//   S_t = diag(w_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T
//   o_t = scale S_t^T q_t  [ + D x ]
//
// What differs between architectures is the shape of the decay and of the correction. Both are
// compile-time traits, so that what an architecture does not have costs nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "linrec/core/bfloat16.hpp"
#include "linrec/core/simd.hpp"

namespace linrec {

enum class Decay {
  none,         ///< w = 1
  per_head,     ///< one number
  per_channel,  ///< a vector [K]
};

enum class Correction {
  none,       ///< b = 0
  along_key,  ///< b = c k with a number c: the delta rules, whose two rank-one terms become one
  rank_one,   ///< any a, b
};

struct Law {
  Decay decay = Decay::none;
  Correction correction = Correction::none;
};

/// What the law needs of one token of one head. Vectors over K are pointers to K numbers, `value` one to V.
template <class Scalar>
struct Terms {
  const Scalar* query;   ///< q [K]
  const Scalar* key;     ///< k [K]
  const Scalar* value;   ///< x [V]; the law's v is value_gain x
  Scalar value_gain;     ///< 1 unless set
  Scalar decay;          ///< w, per head; 1 unless set
  const Scalar* decays;  ///< w [K], per channel
  const Scalar* a;       ///< a [K], where there is a correction
  const Scalar* b;       ///< b [K], rank one
  Scalar b_gain;         ///< c in b = c k, along the key
};

/// Tokens that are prepared at a time: their rows and a panel of the state share the first-level cache.
inline constexpr Index block_tokens = 16;

/// A run of `count` tokens of one head in one sequence, as a kernel sees it.
struct Segment {
  Index row = 0, head = 0, first = 0, count = 0;  ///< tokens [first, first + count) of a row of the batch
  std::int64_t position = 0;                      ///< tokens that the sequence saw before
  const double* log_t = nullptr;       ///< log of the position of each token, for kernels with a taper
  Index following = 0;                 ///< tokens of the block that comes next, to be fetched meanwhile
  Index first_head = 0, end_head = 0;  ///< the heads that take this block in turn

  /// What comes after it: the same tokens of the next head, or the next tokens of the first head, perhaps none.
  Segment next() const {
    Segment next = *this;
    if (++next.head < end_head) return next;
    next.head = first_head;
    next.first += count;
    next.count = following;
    return next;
  }
};

/// Numbers of a block, one a token, as whole cache lines.
struct alignas(cache_line) PerToken {
  double at[block_tokens] = {};
  double& operator[](Index i) { return at[i]; }
  double operator[](Index i) const { return at[i]; }

  /// Sets the first n tokens, and the rest of their cache lines.
  void fill(Index n, double x) { std::fill_n(at, padded<double>(n), x); }
  /// Replaces x by f(x, offset) for the first n tokens; x is an Eigen array of fixed size.
  template <class F>
  void transform(Index n, F&& f) {
    transform_padded(at, n, f);
  }
};

/// log t of `count` tokens after `position`, in double. Not inlined: the same bits wherever it is called.
EIGEN_DONT_INLINE inline void log_positions(std::int64_t position, Index count, PerToken& log_t) noexcept {
  for (Index i = 0; i < padded<double>(count); ++i) log_t[i] = static_cast<double>(position + 1 + i);
  log_t.transform(count, [](const auto& t, Index) { return t.log(); });
}

/// The rows of K numbers that a token may need in scratch memory.
enum class Row : int { query, key, decays, a, b };
inline constexpr Index scratch_rows = 5;

/// The terms of a block of tokens, and their scratch rows.
template <class Scalar>
class Block {
 public:
  /// @param copies whether `near` is to copy.
  Block(Scalar* scratch, Index tokens, Index key, bool copies)
      : scratch_(scratch), tokens_(tokens), key_(key), stride_(padded<Scalar>(key)), copies_(copies) {
    constexpr Terms<Scalar> plain{nullptr, nullptr, nullptr, 1, 1, nullptr, nullptr, nullptr, 0};
    for (Index i = 0; i < tokens; ++i) terms_[i] = plain;
  }

  /// Numbers of scratch that a block of `tokens` tokens needs.
  static Index scratch_size(Index tokens, Index key) { return tokens * scratch_rows * padded<Scalar>(key); }

  Terms<Scalar>& operator[](Index i) { return terms_[i]; }
  const Terms<Scalar>& operator[](Index i) const { return terms_[i]; }

  Index key() const { return key_; }
  /// f(x, offset) of x [K], packet by packet, in a scratch row of token i: cache-aligned, and padded to whole
  /// cache lines with f(0).
  template <class F>
  Scalar* map(Index i, Row r, const Scalar* x, F&& f) {
    Scalar* row = scratch_ + (i * scratch_rows + static_cast<Index>(r)) * stride_;
    map_padded(x, key_, row, f);
    return row;
  }
  /// A copy of x, likewise.
  Scalar* copy(Index i, Row r, const Scalar* x) {
    return map(i, r, x, [](const auto& packet, Index) LINREC_INLINE_LAMBDA { return packet; });
  }
  /// x times a factor, likewise.
  Scalar* scaled(Index i, Row r, const Scalar* x, Scalar factor) {
    using Packet = typename Lanes<Scalar>::Packet;
    const Packet f = Eigen::internal::pset1<Packet>(factor);
    return map(i, r, x, [&](const Packet& packet, Index) LINREC_INLINE_LAMBDA {
      return Eigen::internal::pmul(packet, f);
    });
  }
  /// x [K] where the panels read it fast. Rows of a tensor are often a power of two apart and evict each
  /// other from the cache, so the panel scan has them copied. A single token is read where it lies, and
  /// chunks are packed anyway.
  const Scalar* near(Index i, Row r, const Scalar* x) { return copies_ ? copy(i, r, x) : x; }
  /// Makes each NaN in what is written to a state quiet.
  void make_quiet(Law law) {
    const auto rewrite = [&](Index i, Row r, const Scalar*& x) {
      x = map(i, r, x, [](const auto& packet, Index) LINREC_INLINE_LAMBDA { return quiet(packet); });
    };
    for (Index i = 0; i < tokens_; ++i) {
      Terms<Scalar>& t = terms_[i];
      const bool same = t.a == t.key;
      rewrite(i, Row::key, t.key);
      if (same) t.a = t.key;
      if (law.decay == Decay::per_channel) rewrite(i, Row::decays, t.decays);
      if (law.correction == Correction::rank_one) rewrite(i, Row::b, t.b);
    }
  }
  /// Whether a row is in this scratch memory.
  bool owns(const Scalar* row) const {
    return !std::less<>()(row, scratch_) && std::less<>()(row, scratch_ + scratch_size(tokens_, key_));
  }

 private:
  Terms<Scalar> terms_[block_tokens];
  Scalar* scratch_;
  Index tokens_, key_, stride_;
  bool copies_;
};

}  // namespace linrec
