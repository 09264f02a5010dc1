// WeightReader: hands out the tensors of a checkpoint as parameters, and gathers all that is wrong.
#pragma once

#include <algorithm>
#include <concepts>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linrec/core/parameter.hpp"
#include "linrec/io/checkpoint.hpp"

namespace linrec::io {

/// How a project calls what we call `ours`, and whether it stores matrices as [inputs, outputs].
struct NameEntry {
  std::string_view ours, theirs;
  bool transposed = false;
};

/// The names of one layer's tensors: a prefix, and the entries whose names are not ours.
struct LayerNames {
  std::string prefix;
  std::span<const NameEntry> entries = {};

  NameEntry find(std::string_view ours) const {
    for (const NameEntry& entry : entries)
      if (entry.ours == ours) return entry;
    return {ours, ours, false};
  }
};

/// What the matrices of linear maps and the embedding are in memory. All else is in the model's scalar.
enum class WeightStorage {
  widened,    ///< numbers of the model's scalar
  as_stored,  ///< bfloat16 where the file has it, which is used in place; the model's scalar otherwise
  bfloat16,   ///< bfloat16, the nearest ones where the file has others
};

template <class Scalar>
class WeightReader {
 public:
  explicit WeightReader(const Checkpoint& checkpoint, WeightStorage storage = WeightStorage::widened)
      : checkpoint_(checkpoint), storage_(storage) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  bool has(const std::string& name) const { return checkpoint_.contains(name); }
  bool has(const LayerNames& names, std::string_view ours) const {
    return has(names.prefix + std::string(names.find(ours).theirs));
  }
  /// The outputs of a matrix [outputs, inputs], where only the file says how many; 0 if there is no such
  /// matrix.
  Index rows(const LayerNames& names, std::string_view ours) const {
    const auto [unused, theirs, transposed] = names.find(ours);
    const std::string name = names.prefix + std::string(theirs);
    if (!has(name) || checkpoint_.tensor(name).shape.size() != 2) return 0;
    return checkpoint_.tensor(name).shape[transposed ? 1 : 0];
  }

  /// The tensor as a parameter in Scalar of this shape: a view into the file where its type is Scalar, a copy
  /// in Scalar otherwise. Extents of 1 may be missing or extra, for [D] is stored as [1, 1, D] here and
  /// there. What does not fit is noted, and gives an absent parameter.
  Parameter<Scalar> get(const LayerNames& names, std::string_view ours, std::vector<Index> shape) {
    const auto [unused, theirs, transposed] = names.find(ours);
    return get(names.prefix + std::string(theirs), std::move(shape), transposed);
  }
  Parameter<Scalar> get(const std::string& name, std::vector<Index> shape, bool transposed = false) {
    return read(name, std::move(shape), transposed, WeightStorage::widened);
  }
  /// The same of a matrix of a linear map or an embedding, which is what the storage says.
  Parameter<Scalar> matrix(const LayerNames& names, std::string_view ours, std::vector<Index> shape) {
    const auto [unused, theirs, transposed] = names.find(ours);
    return read(names.prefix + std::string(theirs), std::move(shape), transposed, storage_);
  }
  Parameter<Scalar> matrix(const std::string& name, std::vector<Index> shape) {
    return read(name, std::move(shape), false, storage_);
  }

  /// A tensor that may be there and is not needed.
  void ignore(const std::string& name) { used_.insert(name); }
  /// All tensors whose names begin so are not this reader's business.
  void ignore_prefix(const std::string& prefix) { ignored_prefixes_.push_back(prefix); }
  /// Notes that something is wrong.
  template <class... Parts>
  void problem(const Parts&... parts) {
    problems_ += message("\n  ", parts...);
  }

  /// @throws FormatError that lists all that is missing, of another shape, or there and unknown.
  void finish() const {
    std::string problems = problems_;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      bool known = used_.contains(name);
      for (const std::string& prefix : ignored_prefixes_) known = known || name.starts_with(prefix);
      if (!known)
        problems += message("\n  unexpected: ", detail::in_quotes(name), " ", shape_text(tensor.shape));
    }
    if (!problems.empty())
      throw FormatError(message("checkpoint '", checkpoint_.name(),
                                "': the tensors are not those of the model:", problems));
  }

 private:
  Parameter<Scalar> read(const std::string& name, std::vector<Index> shape, bool transposed,
                         WeightStorage storage) {
    used_.insert(name);
    std::vector<Index> stored = shape;
    if (transposed) std::reverse(stored.begin(), stored.end());
    if (!has(name)) {
      problems_ += message("\n  missing: ", detail::in_quotes(name), " ", shape_text(stored));
      return {};
    }
    const Tensor& tensor = checkpoint_.tensor(name);
    if (!is_floating_point(tensor.type)) {  // integers are quantised weights, whose scale lies elsewhere
      problems_ += message("\n  wrong type: ", detail::in_quotes(name), ": expected floating point, got ",
                           name_of(tensor.type));
      return {};
    }
    const std::vector<Index> expected = squeezed(stored);
    std::vector<Index> got = squeezed(tensor.shape);
    if (got != expected) {
      std::reverse(got.begin(), got.end());
      problems_ += message("\n  wrong shape: ", detail::in_quotes(name), ": expected ", shape_text(stored),
                           ", got ", shape_text(tensor.shape), got == expected ? " (transposed)" : "");
      return {};
    }
    if (storage == WeightStorage::bfloat16 ||
        (storage == WeightStorage::as_stored && tensor.type == DataType::BF16))
      return as_parameter<BFloat16>(tensor, std::move(shape), transposed);
    return as_parameter<Scalar>(tensor, std::move(shape), transposed);
  }
  static std::vector<Index> squeezed(std::vector<Index> shape) {
    std::erase(shape, Index{1});
    return shape;
  }
  template <class Number>
  static Parameter<Scalar> as_parameter(const Tensor& tensor, std::vector<Index> shape, bool transposed) {
    constexpr bool narrow = std::same_as<Number, BFloat16>;
    if (const auto view = tensor.view<Number>(); view && !transposed) {
      const auto count = static_cast<Index>(view->size());
      if constexpr (narrow)
        return Parameter<Scalar>::from_bfloat16(view->data(), count, std::move(shape), tensor.owner);
      else
        return {view->data(), count, std::move(shape), tensor.owner};
    }
    std::vector<Number> numbers = tensor.to<Number>();
    if (transposed) numbers = transpose(numbers, shape[0], shape[1]);
    if constexpr (narrow)
      return Parameter<Scalar>::from_bfloat16(std::move(numbers), std::move(shape));
    else
      return {std::move(numbers), std::move(shape)};
  }
  /// From [columns, rows] to [rows, columns].
  template <class Number>
  static std::vector<Number> transpose(const std::vector<Number>& stored, Index rows, Index columns) {
    std::vector<Number> numbers(stored.size());
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        numbers[static_cast<std::size_t>(i * columns + j)] = stored[static_cast<std::size_t>(j * rows + i)];
    return numbers;
  }

  const Checkpoint& checkpoint_;
  WeightStorage storage_;
  std::set<std::string> used_;
  std::vector<std::string> ignored_prefixes_;
  std::string problems_;
};

}  // namespace linrec::io
