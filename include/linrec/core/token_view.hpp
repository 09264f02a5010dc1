// TokenView: how linrec sees a tensor of the caller, [batch, token, head, dim].
#pragma once

#include <array>
#include <string>
#include <type_traits>

#include "linrec/core/types.hpp"

namespace linrec {

/// A tensor [B, T, H, D] that the caller owns: a pointer, four extents and three strides (in
/// elements, for batch, token and head). The stride inside D is 1 by type. Numbers that come once
/// a head, such as a step size or a gate, are a view with D = 1.
/// Nothing is owned or copied; the memory must outlive the view.
template <class Scalar>
class TokenView {
 public:
  using Value = std::remove_const_t<Scalar>;
  using Row =
      Eigen::Map<std::conditional_t<std::is_const_v<Scalar>, const Eigen::Matrix<Value, Eigen::Dynamic, 1>,
                                    Eigen::Matrix<Value, Eigen::Dynamic, 1>>>;
  using RowMajorMatrix = Eigen::Matrix<Value, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Matrix = Eigen::Map<std::conditional_t<std::is_const_v<Scalar>, const RowMajorMatrix, RowMajorMatrix>,
                            Eigen::Unaligned, Eigen::OuterStride<>>;

  TokenView() = default;

  /// Contiguous, in the order [B, T, H, D].
  TokenView(Scalar* data, Index batch, Index tokens, Index heads, Index dim = 1)
      : TokenView(data, {batch, tokens, heads, dim},
                  {checked_product({tokens, heads, dim}), checked_product({heads, dim}), dim}) {}

  /// Any strides, also 0 or negative ones.
  /// @throws ShapeError if an extent is negative or the size overflows, ValueError if there are elements but
  /// no data.
  TokenView(Scalar* data, std::array<Index, 4> extents, std::array<Index, 3> strides)
      : data_(data), extents_(extents), strides_(strides) {
    for (const Index extent : extents_)
      if (extent < 0) throw ShapeError(message("TokenView: expected extents of at least 0, got ", shape()));
    const Index elements = checked_product({batch(), tokens(), heads(), dim()});
    if (data == nullptr && elements > 0)
      throw ValueError(message("TokenView: expected data for the shape ", shape(), ", got a null pointer"));
  }

  /// A view of mutable data is one of constant data.
  operator TokenView<const Scalar>() const requires(!std::is_const_v<Scalar>) {
    return {data_, extents_, strides_};
  }

  Index batch() const { return extents_[0]; }
  Index tokens() const { return extents_[1]; }
  Index heads() const { return extents_[2]; }
  Index dim() const { return extents_[3]; }
  Index size() const { return batch() * tokens() * heads() * dim(); }
  const std::array<Index, 4>& extents() const { return extents_; }
  const std::array<Index, 3>& strides() const { return strides_; }

  /// First of the D numbers of token t, head h in row b.
  Scalar* data(Index b, Index t, Index h) const {
    return data_ + (b * strides_[0] + t * strides_[1] + h * strides_[2]);
  }
  /// The single number of a view with D = 1.
  Scalar& operator()(Index b, Index t, Index h) const { return *data(b, t, h); }

  /// [D]
  Row at(Index b, Index t, Index h) const { return Row(data(b, t, h), dim()); }
  /// [T, D], all tokens of one head.
  Matrix tokens(Index b, Index h) const {
    return Matrix(size() > 0 ? data(b, 0, h) : data_, tokens(), dim(), Eigen::OuterStride<>(strides_[1]));
  }
  /// [H, D], all heads of one token.
  Matrix heads(Index b, Index t) const {
    return Matrix(size() > 0 ? data(b, t, 0) : data_, heads(), dim(), Eigen::OuterStride<>(strides_[2]));
  }
  /// The tokens [first, first + count) of every row.
  TokenView slice(Index first, Index count) const {
    if (first < 0 || count < 0 || count > tokens() || first > tokens() - count)
      throw ShapeError(message("TokenView::slice: expected a part of ", tokens(), " tokens, got ", count,
                               " from ", first));
    TokenView part = *this;
    part.extents_[1] = count;
    if (part.size() > 0) part.data_ = data(0, first, 0);
    return part;
  }

  /// "[B, T, H, D]" as numbers, for messages.
  std::string shape() const { return shape_text(extents_); }

 private:
  Scalar* data_ = nullptr;
  std::array<Index, 4> extents_{};
  std::array<Index, 3> strides_{};
};

}  // namespace linrec
