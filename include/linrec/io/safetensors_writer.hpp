// Writing safetensors files, so that every tensor is aligned and no reader sees half a file.
//
// The header is padded with spaces to a multiple of 8 bytes, and tensors lie in order of descending
// element size, then name: each begins at a multiple of its element size. The bytes depend on nothing
// but what was added. The format is described in safetensors_header.hpp.
#pragma once

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/safetensors_header.hpp"
#include "linrec/io/temporary_file.hpp"

namespace linrec::io {

/// Collects tensors and writes them as one file.
class SafetensorsWriter {
 public:
  /// Adds a copy of `values` (vector, array, span) as a tensor of the type that the elements have:
  /// double F64, float F32, int64_t I64, int32_t I32, uint8_t U8.
  /// @throws ShapeError if the shape does not have as many elements as `values`.
  /// @throws ValueError if the name is taken, reserved or not UTF-8.
  template <std::ranges::contiguous_range Values>
  void add(std::string name, std::vector<Index> shape, const Values& values) {
    constexpr auto type = data_type_of<std::ranges::range_value_t<Values>>();
    static_assert(type.has_value(), "values must be of type double, float, int64_t, int32_t or uint8_t");
    add(std::move(name), std::move(shape), values, *type);
  }

  /// The same with a stored type of your choice: float also as F16 or BF16 (rounded to nearest, ties
  /// to even), uint8_t also as BOOL.
  /// @throws ShapeError, ValueError as above.
  /// @throws ValueError if the elements are not stored as that type, or a BOOL is neither 0 nor 1.
  template <std::ranges::contiguous_range Values>
  void add(std::string name, std::vector<Index> shape, const Values& values, DataType type) {
    const std::span elements(std::ranges::data(values), std::ranges::size(values));
    check_name(name);
    check_shape(name, shape, elements.size(), type);
    auto bytes = encode(name, elements, type);
    tensors_.emplace(std::move(name), Stored{type, std::move(shape), std::move(bytes)});
  }

  /// Sets a text under `__metadata__`; the last of the same key counts.
  /// @throws ValueError if one of the two is not UTF-8.
  void set_metadata(std::string key, std::string value) {
    json_text("metadata key", key);
    json_text("metadata value", value);
    metadata_[std::move(key)] = std::move(value);
  }

  /// The bytes of the file.
  /// @throws ValueError if the header would be longer than readers accept.
  std::vector<std::byte> bytes() const {
    std::size_t size = 0;
    for (const auto& [name, tensor] : tensors_) size += tensor.bytes.size();
    std::vector<std::byte> result;
    result.reserve(size + 4096);  // and the header
    for_each_piece([&](std::span<const std::byte> piece) {
      result.insert(result.end(), piece.begin(), piece.end());
      return true;
    });
    return result;
  }

  /// Writes the file under a temporary name beside `path`, then renames it, replacing what was there
  /// (a symbolic link too: the link, not what it points to).
  /// @throws Error, naming the path and the reason, if that fails; an old file is then as it was,
  ///   and the temporary file is gone.
  void write(const std::filesystem::path& path) const;

 private:
  struct Stored {
    DataType type;
    std::vector<Index> shape;
    std::vector<std::byte> bytes;
  };

  // As a JSON string, quotes and all.
  static std::string json_text(const char* what, const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      throw ValueError(message(what, " ", detail::in_quotes(text), ": not valid UTF-8"));
    }
  }

  void check_name(const std::string& name) const {
    json_text("tensor name", name);
    if (name == detail::metadata_name)
      throw ValueError(message("tensor ", detail::in_quotes(name), ": the name is reserved"));
    if (tensors_.contains(name))
      throw ValueError(message("tensor ", detail::in_quotes(name), ": added twice"));
  }

  static void check_shape(const std::string& name, std::span<const Index> shape, std::size_t count,
                          DataType type) {
    const auto bytes = byte_count(shape, type);
    if (bytes && static_cast<std::size_t>(*bytes / size_of(type)) == count) return;
    throw ShapeError(message("tensor ", detail::in_quotes(name), ": expected as many values as the shape ",
                             shape_text(shape), " has elements, got ", count));
  }

  template <class T, std::size_t Extent>
  static std::vector<std::byte> encode(const std::string& name, std::span<const T, Extent> values,
                                       DataType type) {
    if (type == data_type_of<T>()) {
      const auto bytes = std::as_bytes(values);
      return {bytes.begin(), bytes.end()};
    }
    std::vector<std::byte> result;
    if constexpr (std::same_as<T, float>) {
      if (type == DataType::F16 || type == DataType::BF16) {
        result.reserve(2 * values.size());
        for (const float value : values) {
          const unsigned bits = type == DataType::F16 ? float_to_half(value) : float_to_bfloat16(value);
          result.push_back(static_cast<std::byte>(bits & 0xffU));
          result.push_back(static_cast<std::byte>(bits >> 8));
        }
        return result;
      }
    }
    if constexpr (std::same_as<T, std::uint8_t>) {
      if (type == DataType::BOOL) {
        for (const std::uint8_t value : values) {
          if (value > 1)
            throw ValueError(message("tensor ", detail::in_quotes(name),
                                     ": expected BOOL values 0 or 1, got ", static_cast<int>(value)));
          result.push_back(static_cast<std::byte>(value));
        }
        return result;
      }
    }
    throw ValueError(message("tensor ", detail::in_quotes(name), ": values of this type are not stored as ",
                             name_of(type)));
  }

  using Item = std::map<std::string, Stored>::value_type;

  std::vector<const Item*> in_file_order() const {
    std::vector<const Item*> order;
    for (const Item& item : tensors_) order.push_back(&item);
    std::stable_sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
      return size_of(a->second.type) > size_of(b->second.type);
    });
    return order;
  }

  // Length, JSON and padding: all that precedes the data.
  std::string header(std::span<const Item* const> order) const {
    std::string json = "{", comma;  // the comma is empty until there is something to part
    if (!metadata_.empty()) {
      json += "\"__metadata__\":{";
      for (const auto& [key, value] : metadata_) {
        json += std::exchange(comma, ",") + json_text("metadata key", key) + ":" +
                json_text("metadata value", value);
      }
      json += "}";
    }
    std::size_t offset = 0;
    for (const Item* item : order) {
      const auto& [name, tensor] = *item;
      json += std::exchange(comma, ",") + json_text("tensor name", name) + ":{\"dtype\":\"";
      json.append(name_of(tensor.type)).append("\",\"shape\":[");
      std::string inner_comma;
      for (const Index extent : tensor.shape)
        json += std::exchange(inner_comma, ",") + std::to_string(extent);
      json += "],\"data_offsets\":[" + std::to_string(offset) + ",";
      json += std::to_string(offset += tensor.bytes.size()) + "]}";
    }
    json += "}";
    json.resize((json.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = json.size();
    if (length > detail::max_header_bytes)
      throw ValueError(message("the safetensors header has ", length, " bytes, readers accept ",
                               detail::max_header_bytes));
    std::string prefix(sizeof(length), '\0');
    std::memcpy(prefix.data(), &length, sizeof(length));
    return prefix + json;
  }

  // Hands out the file piece by piece; f returns whether to go on, and so does this.
  template <class F>
  bool for_each_piece(F&& f) const {
    const auto order = in_file_order();
    const std::string first = header(order);
    if (!f(std::as_bytes(std::span(first)))) return false;
    return std::ranges::all_of(order, [&](const Item* item) { return f(std::span(item->second.bytes)); });
  }

  std::map<std::string, Stored> tensors_;  // sorted by name, which in_file_order() relies on
  std::map<std::string, std::string> metadata_;
};

inline void SafetensorsWriter::write(const std::filesystem::path& path) const {
  detail::TemporaryFile file(path);
  if (!for_each_piece([&](std::span<const std::byte> piece) { return file.write(piece); })) file.fail(errno);
  file.rename_to_target();
}

}  // namespace linrec::io
