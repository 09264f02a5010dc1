// Writing snapshots; the format is described in snapshot.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/checksum.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "linrec/io/snapshot_parts.hpp"

namespace linrec::io {

/// Collects states under names, and makes a snapshot of them.
class SnapshotWriter {
 public:
  SnapshotWriter() {
    set_metadata(std::string(detail::version_key), std::string(detail::snapshot_version));
    set_checksum();
  }

  /// Adds a copy of `state`.
  /// @throws ValueError if the name is taken or not UTF-8, or an earlier state has another scalar type;
  ///   nothing was added then.
  template <SnapshotState S>
  void add(const std::string& name, const S& state) {
    using Scalar = typename S::Scalar;
    detail::tensor_names(name, state, tensors_);
    const std::string scalar(name_of(*data_type_of<Scalar>()));
    const auto before = metadata_.find(std::string(detail::scalar_key));
    if (before != metadata_.end() && before->second != scalar)
      throw ValueError(message("state ", detail::in_quotes(name), ": expected numbers of type ",
                               before->second, ", as in the states before it, got ", scalar));

    set_metadata(name + ".shape", detail::kind_text(state));  // has all texts: sees what is not UTF-8
    set_metadata(std::string(detail::scalar_key), scalar);
    const auto add_part = [&]<class Number>(const detail::Part& part, std::type_identity<Number>,
                                            auto&& for_each_run) {
      std::vector<Number> numbers(static_cast<std::size_t>(*byte_count(part.shape, DataType::U8)));
      Number* to = numbers.data();
      for_each_run([&](const Number* from, Index count) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Number));
        to += count;
      });
      add_tensor(name, part, std::span<const Number>(numbers));
    };
    detail::visit_parts(state, add_part);
    set_checksum();
  }

  /// Says which model the states belong to.
  void set_model(const std::string& model) {
    set_metadata(std::string(detail::model_key), model);
    set_checksum();
  }

  /// The bytes of the file.
  std::vector<std::byte> bytes() const { return file_.bytes(); }

  /// Writes the file, or leaves an old one as it was.
  /// @throws Error, naming the path and the reason, if that fails.
  void write(const std::filesystem::path& path) const { file_.write(path); }

 private:
  void set_metadata(const std::string& key, const std::string& value) {
    file_.set_metadata(key, value);
    metadata_[key] = value;
  }
  void set_checksum() {
    file_.set_metadata(std::string(detail::checksum_key), detail::snapshot_checksum(metadata_, tensors_));
  }
  template <class Scalar>
  void add_tensor(const std::string& name, const detail::Part& part, std::span<const Scalar> numbers) {
    file_.add(name + part.suffix, part.shape, numbers);
    tensors_[name + part.suffix] = {*data_type_of<Scalar>(), part.shape, crc64(std::as_bytes(numbers))};
  }

  SafetensorsWriter file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, detail::TensorSummary> tensors_;
};

}  // namespace linrec::io
