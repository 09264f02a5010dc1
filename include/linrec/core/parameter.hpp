// Parameter: a tensor of weights that nobody changes, and what keeps it alive.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/bfloat16.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

/// Row-major numbers with a shape, read-only. Copies share the numbers, which may lie in a mapped file; a
/// default-constructed parameter is absent. Matrices of weights are [outputs, inputs], as in PyTorch.
///
/// The numbers are of type Scalar, or bfloat16: matrices of linear maps and embeddings may be, which are what
/// a model has most of, and are computed with in Scalar all the same.
template <class Scalar>
class Parameter {
 public:
  Parameter() = default;

  /// Takes the numbers over.
  /// @throws ShapeError if the shape does not have as many elements.
  Parameter(std::vector<Scalar> numbers, std::vector<Index> shape)
      : Parameter(owned(std::move(numbers), std::move(shape))) {}

  /// Numbers that lie elsewhere, `count` of them. `owner` keeps them alive; none: the caller does.
  /// @throws ShapeError likewise.
  Parameter(const Scalar* data, Index count, std::vector<Index> shape,
            std::shared_ptr<const void> owner = nullptr)
      : Parameter(data, false, count, std::move(shape), std::move(owner)) {}

  /// The same two of bfloat16.
  static Parameter from_bfloat16(std::vector<BFloat16> numbers, std::vector<Index> shape) {
    return owned(std::move(numbers), std::move(shape));
  }
  static Parameter from_bfloat16(const BFloat16* data, Index count, std::vector<Index> shape,
                                 std::shared_ptr<const void> owner = nullptr) {
    return {data, true, count, std::move(shape), std::move(owner)};
  }

  bool present() const { return present_; }
  bool is_bfloat16() const { return bfloat16_; }
  /// @throws ValueError if the numbers are bfloat16; widened() has what this asks for.
  const Scalar* data() const {
    if (bfloat16_) refuse_bfloat16("parameter");
    return static_cast<const Scalar*>(data_);
  }
  /// Null unless the numbers are bfloat16.
  const BFloat16* bfloat16_data() const { return bfloat16_ ? static_cast<const BFloat16*>(data_) : nullptr; }
  const std::vector<Index>& shape() const { return shape_; }
  /// Number of elements; 0 if absent.
  Index size() const { return present_ ? elements(shape_) : 0; }

  /// Rows [first, first + count) of a matrix [outputs, inputs], or entries of a vector.
  /// @throws ShapeError if there are fewer.
  Parameter rows(Index first, Index count) const {
    const Index all = shape_.empty() ? 0 : shape_[0];
    if (first < 0 || count < 0 || first > all - count)
      throw ShapeError(message("rows: expected a part of ", all, " rows, got ", count, " from ", first));
    Parameter part = *this;
    part.shape_[0] = count;
    if (all == 0) return part;
    const Index offset = first * (size() / all);
    if (bfloat16_)
      part.data_ = bfloat16_data() + offset;
    else
      part.data_ = data() + offset;
    return part;
  }

  /// The same numbers with another shape.
  /// @throws ShapeError if it has another number of elements.
  Parameter reshaped(std::vector<Index> shape) const {
    return {data_, bfloat16_, size(), std::move(shape), owner_};
  }

  /// Copies the numbers [first, first + count) as Scalar.
  void copy(Index first, Index count, Scalar* to) const {
    if (bfloat16_)
      std::transform(bfloat16_data() + first, bfloat16_data() + first + count, to,
                     [](BFloat16 x) { return static_cast<Scalar>(x.value()); });
    else
      std::copy_n(data() + first, count, to);
  }
  /// The same numbers as Scalar, a copy if they are bfloat16.
  Parameter widened() const {
    if (!bfloat16_) return *this;
    std::vector<Scalar> numbers(static_cast<std::size_t>(size()));
    copy(0, size(), numbers.data());
    return {std::move(numbers), shape_};
  }
  /// The nearest bfloat16 to the numbers (of a double: to the nearest float), a copy unless they are
  /// bfloat16.
  Parameter narrowed() const {
    if (!present_ || bfloat16_) return *this;
    std::vector<BFloat16> numbers(static_cast<std::size_t>(size()));
    std::transform(data(), data() + size(), numbers.begin(),
                   [](Scalar x) { return BFloat16(static_cast<float>(x)); });
    return from_bfloat16(std::move(numbers), shape_);
  }

  /// The numbers in double, for tables that are built once.
  Eigen::ArrayXd to_double() const {
    Eigen::ArrayXd numbers(size());
    for (Index i = 0; i < numbers.size(); ++i)
      numbers[i] =
          bfloat16_ ? static_cast<double>(bfloat16_data()[i].value()) : static_cast<double>(data()[i]);
    return numbers;
  }

  /// @throws ShapeError, naming the parameter, if it is absent or has another shape; ValueError if its numbers
  ///   are bfloat16.
  void check(const std::string& name, const std::vector<Index>& shape) const {
    check_matrix(name, shape);
    if (bfloat16_) refuse_bfloat16(name);
  }
  /// The same for what may be bfloat16.
  void check_matrix(const std::string& name, const std::vector<Index>& shape) const {
    if (!present_) throw ShapeError(message(name, ": expected ", shape_text(shape), ", got no tensor"));
    if (shape_ != shape)
      throw ShapeError(message(name, ": expected ", shape_text(shape), ", got ", shape_text(shape_)));
  }

 private:
  Parameter(const void* data, bool bfloat16, Index count, std::vector<Index> shape,
            std::shared_ptr<const void> owner)
      : data_(data), shape_(std::move(shape)), owner_(std::move(owner)), present_(true), bfloat16_(bfloat16) {
    Index size = 1;
    bool negative = false;
    for (const Index extent : shape_) size = checked_product({size, extent}), negative |= extent < 0;
    if (size != count || negative)
      throw ShapeError(message("parameter: expected as many numbers as the shape ", shape_text(shape_),
                               " has elements, got ", count));
  }

  template <class Number>
  static Parameter owned(std::vector<Number> numbers, std::vector<Index> shape) {
    auto owner = std::make_shared<const std::vector<Number>>(std::move(numbers));
    return {owner->data(), std::is_same_v<Number, BFloat16>, static_cast<Index>(owner->size()),
            std::move(shape), owner};
  }
  static Index elements(const std::vector<Index>& shape) {
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    return size;
  }
  [[noreturn]] static void refuse_bfloat16(const std::string& name) {
    throw ValueError(
        message(name, ": expected ", sizeof(Scalar) == 4 ? "float" : "double",
                " numbers, got bfloat16, which only matrices of linear maps and embeddings may be"));
  }

  const void* data_ = nullptr;
  std::vector<Index> shape_;
  std::shared_ptr<const void> owner_;
  bool present_ = false, bfloat16_ = false;
};

}  // namespace linrec
