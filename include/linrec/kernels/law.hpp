// The one law of linrec. For each head, with a state S [K, V]:
//
//   S_t = diag(w_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T
//   o_t = scale S_t^T q_t  [ + D v ]
//
// What differs between architectures is the shape of the decay and of the correction. Both are
// compile-time traits, so that what an architecture does not have costs nothing.
#pragma once

#include <cstdint>

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
  const Scalar* query = nullptr;   ///< q [K]
  const Scalar* key = nullptr;     ///< k [K]
  const Scalar* value = nullptr;   ///< x [V]; the law's v is value_gain x
  Scalar value_gain = 1;
  Scalar decay = 1;                ///< w, per head
  const Scalar* decays = nullptr;  ///< w [K], per channel
  const Scalar* a = nullptr;       ///< a [K]
  const Scalar* b = nullptr;       ///< b [K], rank one
  Scalar b_gain = 0;               ///< c in b = c k, along the key
};

/// Tokens that are prepared at a time: their rows should stay in the first-level cache.
inline constexpr Index block_tokens = 32;

/// A run of `count` tokens of one head in one sequence, as a kernel sees it.
struct Segment {
  Index row, head, first, count;  ///< tokens [first, first + count) of a row of the batch
  std::int64_t position;          ///< tokens that the sequence saw before
};

/// The terms of a block, and scratch rows of K numbers for those that have to be computed.
template <class Scalar>
class Block {
 public:
  Block(Scalar* scratch, Index rows, Index key)
      : scratch_(scratch), rows_(rows), key_(key), stride_(padded<Scalar>(key)) {}

  Terms<Scalar>& operator[](Index i) { return terms_[i]; }
  const Terms<Scalar>& operator[](Index i) const { return terms_[i]; }

  Index key() const { return key_; }
  /// Scratch row r of token i: cache-aligned, padded to whole cache lines.
  Scalar* row(Index i, Index r) { return scratch_ + (i * rows_ + r) * stride_; }
  /// A copy of x [K] in scratch row r of token i.
  Scalar* copy(Index i, Index r, const Scalar* x) {
    copy_padded(x, key_, row(i, r));
    return row(i, r);
  }

 private:
  Terms<Scalar> terms_[block_tokens];
  Scalar* scratch_;
  Index rows_, key_, stride_;
};

}  // namespace linrec
