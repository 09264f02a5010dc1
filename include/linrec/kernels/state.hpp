// State: all that a recurrence remembers of the sequences of a batch, and how far each has come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "linrec/core/aligned.hpp"
#include "linrec/core/simd.hpp"
#include "linrec/core/types.hpp"
#include "linrec/kernels/law.hpp"
#include "linrec/kernels/strip.hpp"

namespace linrec {

/// The states S [K, V] of H heads for each of several sequences, with the position of each sequence:
/// the number of tokens it has seen. A value: copy it to fork, keep it to roll back. Zero at the start.
///
/// S is key-major: S = sum k v^T. Mamba-2's h and RWKV-7's S are the transpose of it; `matrix(b, h)`
/// and `set_matrix(b, h, S)` convert at the boundary, and are the only way that callers should use.
/// Storage: for each head, panels of one cache line of V, each [K, lanes] and contiguous; lanes beyond V
/// are padding. The layout is the same for every instruction set, but it is not part of the interface.
///
/// @tparam StateScalar what is stored: the scalar of the arithmetic, or BFloat16 for float. That halves the
/// memory, and makes `step` faster where states do not fit the caches; the arithmetic stays in float, and what
/// is written is rounded to 8 bits of mantissa. Do not use it where
///  - a decay is so near to 1 that a token changes a state by less than 1/256 of it: what is added is then
///    rounded, below 1/512 to nothing, and a sum stops growing (slow heads of RetNet and Mamba-2, and no decay);
///  - what was stored is to be replaced exactly: the delta rules keep an error of some 2^-9 of what they hold.
/// Contents that decay are safe at any length: errors decay with them.
template <class Scalar_, class Sizes = Dims<>, class StateScalar_ = Scalar_>
class State {
 public:
  using Scalar = Scalar_;
  using StateScalar = StateScalar_;
  static_assert(
      std::is_same_v<Scalar, StateScalar> ||
          (std::is_same_v<Scalar, float> && std::is_same_v<StateScalar, BFloat16>),
      "linrec: a state is stored in the scalar of its kernel, or in BFloat16 for a kernel of float");
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  static constexpr Index lanes = Lanes<Scalar>::size;

  /// @throws ValueError if `sequences` is negative, ShapeError if the size overflows. 0 sequences are legal.
  explicit State(Sizes dims, Index sequences = 1) : dims_(dims) {
    if (sequences < 0) throw ValueError(message("sequences: expected at least 0, got ", sequences));
    positions_.assign(static_cast<std::size_t>(sequences), 0);
    numbers_.assign(static_cast<std::size_t>(
                        checked_product({sequences, dims_.heads(), rows(), padded<Scalar>(dims_.value())})),
                    StateScalar());
    scratch_.assign(static_cast<std::size_t>(Block<Scalar>::scratch_size(1, dims_.key())), Scalar(0));
  }

  const Sizes& dims() const { return dims_; }
  Index sequences() const { return static_cast<Index>(positions_.size()); }
  Index panels() const { return padded<Scalar>(dims_.value()) / lanes; }

  /// Tokens that sequence b has seen; its next token has the position t = position(b) + 1.
  std::int64_t position(Index b) const { return positions_[checked_sequence(b)]; }
  /// @throws ValueError if the position is not in [0, 2^53]: beyond, t is not exact in double.
  void set_position(Index b, std::int64_t position) {
    const std::size_t i = checked_sequence(b);
    check_position(position);
    positions_[i] = position;
  }

  /// A copy of S [K, V] of one head.
  Matrix matrix(Index b, Index h) const {
    check_head(b, h);
    Matrix s(dims_.key(), dims_.value());
    for (Index j = 0; j < s.cols(); ++j)
      for (Index i = 0; i < s.rows(); ++i)
        s(i, j) = static_cast<Scalar>(panel(b, h, j / lanes)[place(i, j % lanes)]);
    return s;
  }
  /// Replaces S [K, V] of one head; where less is stored, by the nearest numbers.
  /// @throws ShapeError if S has another shape.
  template <class Derived>
  void set_matrix(Index b, Index h, const Eigen::MatrixBase<Derived>& s) {
    check_head(b, h);
    if (s.rows() != dims_.key() || s.cols() != dims_.value())
      throw ShapeError(message("S: expected [K, V] = [", dims_.key(), ", ", dims_.value(), "], got [",
                               s.rows(), ", ", s.cols(), "]"));
    const Matrix values = s.template cast<Scalar>();
    for (Index j = 0; j < values.cols(); ++j)
      for (Index i = 0; i < values.rows(); ++i)
        panel(b, h, j / lanes)[place(i, j % lanes)] = StateScalar(values(i, j));
  }

  /// Sequence b starts afresh: all zero, position 0.
  void reset(Index b) {
    positions_[checked_sequence(b)] = 0;
    std::fill_n(panel(b, 0, 0), dims_.heads() * head_size(), StateScalar());
  }

  /// Same sizes, positions and numbers, bit for bit but for the sign of zero; NaN equals nothing.
  friend bool operator==(const State& x, const State& y) {
    if (!(x.dims_ == y.dims_) || x.positions_ != y.positions_) return false;
    for (Index b = 0; b < x.sequences(); ++b)
      for (Index h = 0; h < x.dims_.heads(); ++h)
        if (x.matrix(b, h) != y.matrix(b, h)) return false;
    return true;
  }

  /// For kernels: panel p of head h, [K, lanes]; of BFloat16 with the rows 2i and 2i + 1 in turn, lane by
  /// lane.
  StateScalar* panel(Index b, Index h, Index p) { return numbers_.data() + offset(b, h, p); }
  const StateScalar* panel(Index b, Index h, Index p) const { return numbers_.data() + offset(b, h, p); }
  /// Where a panel has row i of a lane.
  static Index place(Index i, Index lane) {
    if constexpr (std::is_same_v<Scalar, StateScalar>)
      return i * lanes + lane;
    else
      return i / 2 * 2 * lanes + 2 * lane + i % 2;
  }
  /// For kernels: the scratch of a block of one token, so that a step needs no allocation.
  Scalar* scratch() { return scratch_.data(); }
  /// For kernels: moves on by `tokens`.
  void advance(Index b, Index tokens) noexcept { positions_[static_cast<std::size_t>(b)] += tokens; }

 private:
  Index rows() const { return detail::stored_rows<Scalar, StateScalar>(dims_.key()); }
  Index head_size() const { return rows() * padded<Scalar>(dims_.value()); }
  Index offset(Index b, Index h, Index p) const {
    return (b * dims_.heads() + h) * head_size() + p * rows() * lanes;
  }
  std::size_t checked_sequence(Index b) const {
    if (b < 0 || b >= sequences())
      throw ValueError(message("sequence: expected one of ", sequences(), " counted from 0, got ", b));
    return static_cast<std::size_t>(b);
  }
  void check_head(Index b, Index h) const {
    checked_sequence(b);
    if (h < 0 || h >= dims_.heads())
      throw ValueError(message("head: expected 0 to ", dims_.heads() - 1, ", got ", h));
  }

  Sizes dims_;
  std::vector<std::int64_t> positions_;
  AlignedVector<StateScalar> numbers_;
  AlignedVector<Scalar> scratch_;
};

}  // namespace linrec
