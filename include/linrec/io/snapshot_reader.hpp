// Reading snapshots; the format is described in snapshot.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/checksum.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/safetensors.hpp"
#include "linrec/io/snapshot_parts.hpp"
#include "linrec/io/tensor.hpp"

namespace linrec::io {

/// Fills states from a snapshot: add all of them, then load.
class SnapshotReader {
 public:
  /// @throws FormatError, naming the file and the reason, if it cannot be read, is no whole snapshot of a
  ///   version that is known here, or has another checksum than it says. The file must not change while
  ///   the reader lives.
  explicit SnapshotReader(const std::filesystem::path& path)
      : SnapshotReader(SafetensorsFile(path), path.string()) {}

  /// The same from memory; `name` stands for the file in error texts.
  static SnapshotReader from_bytes(std::vector<std::byte> bytes, const std::string& name = "(memory)") {
    return {SafetensorsFile::from_bytes(std::move(bytes), name), name};
  }

  /// Checks the state `name` of the snapshot against `target`, which changes in load() only and must live
  /// until then.
  /// @throws FormatError, naming the file, the tensor, what was expected and what came, if there is no such
  ///   state, or one of another kind, scalar type, size or number of sequences, or a number that no state can
  ///   have.
  /// @throws ValueError if a state of that name, or with the same tensors, has been added already.
  template <SnapshotState S>
  void add(const std::string& name, S& target);

  /// @throws FormatError, naming both, if the states belong to another model.
  void expect_model(std::string_view model) {
    expect_metadata(detail::model_key, model);
    known_metadata_.emplace(detail::model_key);
  }

  /// Fills all states that were added: all, or none if this throws.
  /// @throws FormatError, naming the file and the tensor, if the snapshot has more than these states.
  void load() {
    for (const std::string& name : file_.names())
      if (!known_tensors_.contains(name))
        refuse(name, "belongs to none of the ", fills_.size(), " expected states");
    for (const auto& [key, value] : file_.metadata())
      if (!known_metadata_.contains(key))
        throw FormatError(message("file '", name_, "': metadata ", detail::in_quotes(key),
                                  ": belongs to none of the ", fills_.size(), " expected states"));
    for (const auto& fill : std::exchange(fills_, {})) fill();
  }

 private:
  SnapshotReader(SafetensorsFile file, std::string name);

  template <class... Reason>
  [[noreturn]] void refuse(const std::string& tensor, const Reason&... reason) const {
    throw FormatError(message("file '", name_, "': tensor ", detail::in_quotes(tensor), ": ", reason...));
  }
  void expect_metadata(std::string_view key, std::string_view expected, std::string_view note = "") const {
    const auto found = file_.metadata().find(std::string(key));
    if (found != file_.metadata().end() && found->second == expected) return;
    throw FormatError(message("file '", name_, "': metadata ", detail::in_quotes(key), ": expected '",
                              expected, "'", note, ", got ",
                              found == file_.metadata().end() ? "none" : detail::in_quotes(found->second)));
  }
  Tensor expect_tensor(const std::string& name, const detail::Part& part, DataType type) const {
    const Tensor tensor = file_.tensor(name);
    if (tensor.type != type || tensor.shape != part.shape)
      refuse(name, "expected ", name_of(type), " ", part.letters, " = ", shape_text(part.shape), ", got ",
             name_of(tensor.type), " ", shape_text(tensor.shape));
    return tensor;
  }
  SafetensorsFile file_;
  std::string name_;
  std::set<std::string> known_tensors_, known_metadata_;
  std::vector<std::function<void()>> fills_;  // none of them throws
};

inline SnapshotReader::SnapshotReader(SafetensorsFile file, std::string name)
    : file_(std::move(file)), name_(std::move(name)) {
  // The version first: what a checksum is, is up to it.
  expect_metadata(detail::version_key, detail::snapshot_version, ", the only version that is read here");
  std::map<std::string, detail::TensorSummary> tensors;
  for (const std::string& each : file_.names()) {
    const Tensor tensor = file_.tensor(each);
    tensors[each] = {tensor.type, tensor.shape, crc64(tensor.bytes)};
  }
  expect_metadata(detail::checksum_key, detail::snapshot_checksum(file_.metadata(), tensors),
                  " for what the file holds");
  for (const auto key : {detail::version_key, detail::scalar_key, detail::checksum_key})
    known_metadata_.emplace(key);
}

template <SnapshotState S>
void SnapshotReader::add(const std::string& name, S& target) {
  using Scalar = typename S::Scalar;
  static_assert(std::is_nothrow_move_assignable_v<S>);
  std::set<std::string> tensors = detail::tensor_names(name, target, known_tensors_);
  expect_metadata(detail::scalar_key, name_of(*data_type_of<Scalar>()));
  expect_metadata(name + ".shape", detail::kind_text(target));

  const auto copy = std::make_shared<S>(target);
  for (Index s = 0; s < copy->sequences(); ++s) copy->reset(s);
  const auto fill = [&]<class Number>(const detail::Part& part, std::type_identity<Number>,
                                      auto&& for_each_run) {
    const Tensor tensor = expect_tensor(name + part.suffix, part, *data_type_of<Number>());
    const std::byte* from = tensor.bytes.data();
    try {
      for_each_run([&](Number* to, Index count) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Number));
        from += static_cast<std::size_t>(count) * sizeof(Number);
      });
    } catch (const ValueError& error) {
      refuse(name + part.suffix, error.what());
    }
  };
  detail::visit_parts(*copy, fill);
  fills_.emplace_back([&target, copy] { target = std::move(*copy); });
  known_metadata_.insert(name + ".shape");
  known_tensors_.merge(tensors);
}

}  // namespace linrec::io
