// State: all that a recurrence remembers of the sequences of a batch, and how far each has come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "linrec/core/aligned.hpp"
#include "linrec/core/simd.hpp"
#include "linrec/core/types.hpp"
#include "linrec/kernels/law.hpp"

namespace linrec {

/// The states S [K, V] of H heads for each of several sequences, with the position of each sequence:
/// the number of tokens it has seen. A value: copy it to fork, keep it to roll back. Zero at the start.
///
/// S is key-major: S = sum k v^T. Mamba-2's h and RWKV-7's S are the transpose of it; `matrix(b, h)`
/// and `set_matrix(b, h, S)` convert at the boundary, and are the only way that callers should use.
/// Storage: for each head, panels of one cache line of V, each [K, lanes] and contiguous; lanes beyond V
/// are padding. The layout is the same for every instruction set, but it is not part of the interface.
template <class Scalar_, class Sizes = Dims<>>
class State {
 public:
  using Scalar = Scalar_;
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  static constexpr Index lanes = Lanes<Scalar>::size;

  /// @throws ValueError if `sequences` is negative, ShapeError if the size overflows. 0 sequences are legal.
  explicit State(Sizes dims, Index sequences = 1) : dims_(dims) {
    if (sequences < 0) throw ValueError(message("sequences: expected at least 0, got ", sequences));
    positions_.assign(static_cast<std::size_t>(sequences), 0);
    numbers_.assign(static_cast<std::size_t>(checked_product(
                        {sequences, dims_.heads(), dims_.key(), padded<Scalar>(dims_.value())})),
                    Scalar(0));
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
      for (Index i = 0; i < s.rows(); ++i) s(i, j) = panel(b, h, j / lanes)[i * lanes + j % lanes];
    return s;
  }
  /// Replaces S [K, V] of one head.
  /// @throws ShapeError if S has another shape.
  template <class Derived>
  void set_matrix(Index b, Index h, const Eigen::MatrixBase<Derived>& s) {
    check_head(b, h);
    if (s.rows() != dims_.key() || s.cols() != dims_.value())
      throw ShapeError(message("S: expected [K, V] = [", dims_.key(), ", ", dims_.value(), "], got [",
                               s.rows(), ", ", s.cols(), "]"));
    const Matrix values = s.template cast<Scalar>();
    for (Index j = 0; j < values.cols(); ++j)
      for (Index i = 0; i < values.rows(); ++i) panel(b, h, j / lanes)[i * lanes + j % lanes] = values(i, j);
  }

  /// Sequence b starts afresh: all zero, position 0.
  void reset(Index b) {
    positions_[checked_sequence(b)] = 0;
    std::fill_n(panel(b, 0, 0), dims_.heads() * head_size(), Scalar(0));
  }

  /// Same sizes, positions and numbers, bit for bit but for the sign of zero; NaN equals nothing.
  friend bool operator==(const State& x, const State& y) {
    if (!(x.dims_ == y.dims_) || x.positions_ != y.positions_) return false;
    for (Index b = 0; b < x.sequences(); ++b)
      for (Index h = 0; h < x.dims_.heads(); ++h)
        if (x.matrix(b, h) != y.matrix(b, h)) return false;
    return true;
  }

  /// For kernels: panel p of head h, [K, lanes].
  Scalar* panel(Index b, Index h, Index p) { return numbers_.data() + offset(b, h, p); }
  const Scalar* panel(Index b, Index h, Index p) const { return numbers_.data() + offset(b, h, p); }
  /// For kernels: the scratch of a block of one token, so that a step needs no allocation.
  Scalar* scratch() { return scratch_.data(); }
  /// For kernels: moves on by `tokens`.
  void advance(Index b, Index tokens) noexcept { positions_[static_cast<std::size_t>(b)] += tokens; }

 private:
  Index head_size() const { return dims_.key() * padded<Scalar>(dims_.value()); }
  Index offset(Index b, Index h, Index p) const {
    return (b * dims_.heads() + h) * head_size() + p * dims_.key() * lanes;
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
  AlignedVector<Scalar> numbers_;
  AlignedVector<Scalar> scratch_;
};

}  // namespace linrec
