// Parameter: a tensor of weights that nobody changes, and what keeps it alive.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/types.hpp"

namespace linrec {

/// Row-major numbers with a shape, read-only. Copies share the numbers, which may lie in a mapped file; a
/// default-constructed parameter is absent. Matrices of weights are [outputs, inputs], as in PyTorch.
template <class Scalar>
class Parameter {
 public:
  Parameter() = default;

  /// Takes the numbers over.
  /// @throws ShapeError if the shape does not have as many elements.
  Parameter(std::vector<Scalar> numbers, std::vector<Index> shape) {
    auto owned = std::make_shared<const std::vector<Scalar>>(std::move(numbers));
    *this = Parameter(owned->data(), static_cast<Index>(owned->size()), std::move(shape), owned);
  }

  /// Numbers that lie elsewhere, `count` of them. `owner` keeps them alive; none: the caller does.
  /// @throws ShapeError likewise.
  Parameter(const Scalar* data, Index count, std::vector<Index> shape,
            std::shared_ptr<const void> owner = nullptr)
      : data_(data), shape_(std::move(shape)), owner_(std::move(owner)), present_(true) {
    Index size = 1;
    bool negative = false;
    for (const Index extent : shape_) size = checked_product({size, extent}), negative |= extent < 0;
    if (size != count || negative)
      throw ShapeError(message("parameter: expected as many numbers as the shape ", shape_text(shape_),
                               " has elements, got ", count));
  }

  bool present() const { return present_; }
  const Scalar* data() const { return data_; }
  const std::vector<Index>& shape() const { return shape_; }
  /// Number of elements; 0 if absent.
  Index size() const {
    Index size = present_ ? 1 : 0;
    for (const Index extent : shape_) size *= extent;
    return size;
  }

  /// Rows [first, first + count) of a matrix [outputs, inputs], or entries of a vector.
  /// @throws ShapeError if there are fewer.
  Parameter rows(Index first, Index count) const {
    const Index all = shape_.empty() ? 0 : shape_[0];
    if (first < 0 || count < 0 || first > all - count)
      throw ShapeError(message("rows: expected a part of ", all, " rows, got ", count, " from ", first));
    Parameter part = *this;
    part.shape_[0] = count;
    if (all > 0) part.data_ += first * (size() / all);
    return part;
  }

  /// The same numbers with another shape.
  /// @throws ShapeError if it has another number of elements.
  Parameter reshaped(std::vector<Index> shape) const { return {data_, size(), std::move(shape), owner_}; }

  /// The numbers in double, for tables that are built once.
  Eigen::ArrayXd to_double() const {
    Eigen::ArrayXd numbers(size());
    for (Index i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(data_[i]);
    return numbers;
  }

  /// @throws ShapeError, naming the parameter, if it is absent or has another shape.
  void check(const std::string& name, const std::vector<Index>& shape) const {
    if (!present_) throw ShapeError(message(name, ": expected ", shape_text(shape), ", got no tensor"));
    if (shape_ != shape)
      throw ShapeError(message(name, ": expected ", shape_text(shape), ", got ", shape_text(shape_)));
  }

 private:
  const Scalar* data_ = nullptr;
  std::vector<Index> shape_;
  std::shared_ptr<const void> owner_;
  bool present_ = false;
};

}  // namespace linrec
