// Reading safetensors files: named, typed, dense tensors in row-major order.
//
// The format is described in safetensors_header.hpp. Everything is checked when a file is opened,
// before any tensor is handed out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/file_bytes.hpp"
#include "linrec/io/safetensors_header.hpp"
#include "linrec/io/tensor.hpp"

namespace linrec::io {

/// A safetensors file, opened for reading. Copies share the bytes; const use is safe from several threads.
/// The file must not be changed or truncated while it is open.
class SafetensorsFile {
 public:
  /// Maps the file into memory.
  /// @throws FormatError, naming the file, the tensor and the reason, if the file cannot be read or
  ///   any part of it is not as the format wants it.
  explicit SafetensorsFile(const std::filesystem::path& path)
      : SafetensorsFile(map_file(path), path.string()) {}

  /// The same from memory; `name` stands for the file in error texts.
  /// @throws FormatError likewise.
  static SafetensorsFile from_bytes(std::vector<std::byte> bytes, std::string name) {
    return {own_bytes(std::move(bytes)), std::move(name)};
  }

  /// The tensors' names, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : tensors_) result.push_back(name);
    return result;
  }

  bool contains(std::string_view name) const { return tensors_.contains(name); }

  /// @throws FormatError, naming the file and some of the tensors it has, if there is none of that name.
  Tensor tensor(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) refuse_missing(name);
    return found->second;
  }

  /// The texts under `__metadata__`; empty if there are none.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile(FileBytes file, std::string name);

  [[noreturn]] void refuse_missing(std::string_view name) const {
    std::string present;
    int listed = 0;
    for (const auto& [other, tensor] : tensors_) {
      if (++listed > 10) break;
      present += (listed == 1 ? ": " : ", ") + detail::excerpt(other);
    }
    throw FormatError(message("file '", file_, "': has no tensor ", detail::in_quotes(name), ", it has ",
                              tensors_.size(), present, listed > 10 ? ", ..." : ""));
  }

  std::string file_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

namespace detail {

// Lays the tensors over the data, in the order of their offsets: each must begin where the one
// before it ended.
inline void check_layout(const Header& header, std::uint64_t data_size, const std::string& file) {
  const auto refuse = [&](std::string_view name, const auto&... reason) {
    throw FormatError(message("file '", file, "': tensor ", in_quotes(name), ": ", reason...));
  };
  std::vector<std::pair<std::string_view, const TensorEntry*>> order;
  for (const auto& [name, entry] : header.tensors) {
    const auto& [type, shape, begin, end] = entry;
    const auto bytes = byte_count(shape, type);
    if (!bytes) refuse(name, "the shape has more elements than memory can have bytes");
    if (begin > end) refuse(name, "data_offsets [", begin, ", ", end, "] run backwards");
    if (end > data_size)
      refuse(name, "data_offsets [", begin, ", ", end, "] reach beyond the ", data_size, " bytes of data");
    if (static_cast<std::uint64_t>(*bytes) != end - begin)
      refuse(name, "shape and dtype ", name_of(type), " need ", *bytes, " bytes, data_offsets [", begin, ", ",
             end, "] give ", end - begin);
    order.emplace_back(name, &entry);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::uint64_t covered = 0;
  std::string_view last;
  for (const auto& [name, entry] : order) {
    if (entry->begin < covered)
      refuse(name, "overlaps tensor ", in_quotes(last), ", which ends at data byte ", covered);
    if (entry->begin > covered)
      refuse(name, "a hole of ", entry->begin - covered, " bytes lies before it, at data byte ", covered);
    covered = entry->end;
    last = name;
  }
  if (covered != data_size)
    throw FormatError(message("file '", file, "': ", data_size - covered,
                              " bytes of data belong to no tensor, from data byte ", covered));
}

/// Parses and checks all of a file but its elements; also gives where the data begins.
inline std::pair<Header, std::size_t> read_header(std::span<const std::byte> bytes, const std::string& file) {
  const auto refuse = [&](const auto&... reason) {
    throw FormatError(message("file '", file, "': ", reason...));
  };
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length))
    refuse("has ", bytes.size(), " bytes, too few for the 8 bytes of the header length");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > max_header_bytes)
    refuse("the header length ", length, " is above the limit of ", max_header_bytes, " bytes");
  if (length > bytes.size() - sizeof(length))
    refuse("the header length ", length, " reaches beyond the end of the file of ", bytes.size(), " bytes");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(length),
                              static_cast<std::size_t>(length));
  if (!text.starts_with('{')) refuse("the header is not a JSON object, it does not begin with '{'");
  // The parser would take a zero byte for the end of the text.
  if (text.find('\0') != text.npos)
    refuse("the header is not valid JSON, it has a zero byte at ", text.find('\0'));
  std::pair<Header, std::size_t> result{{}, sizeof(length) + text.size()};
  HeaderReader reader(file, result.first);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &reader);
  check_layout(result.first, bytes.size() - result.second, file);
  return result;
}

}  // namespace detail

inline SafetensorsFile::SafetensorsFile(FileBytes file, std::string name) : file_(std::move(name)) {
  auto [header, data_begin] = detail::read_header(file.bytes, file_);
  const auto data = file.bytes.subspan(data_begin);
  for (auto& [key, entry] : header.tensors) {
    const auto bytes = data.subspan(static_cast<std::size_t>(entry.begin),
                                    static_cast<std::size_t>(entry.end - entry.begin));
    tensors_.emplace(key, Tensor{key, entry.type, std::move(entry.shape), bytes, file.owner});
  }
  metadata_ = std::move(header.metadata);
}

}  // namespace linrec::io
