// The header of a safetensors file: parsed, and checked until nothing in it can mislead a reader.
//
//   [8 bytes] N, little-endian   [N bytes] JSON, spaces at the end allowed   [the rest] data
//   {"__metadata__": {"key": "text", ...},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// data_offsets count from the END of the header, that is from byte 8 + N of the file. The tensors
// tile the data: no overlaps, no holes, nothing behind the last one.
// Source: the format section of the safetensors README (github.com/huggingface/safetensors).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"

namespace linrec::io::detail {

/// Longest JSON header, the limit of the reference implementation.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

inline constexpr std::string_view metadata_name = "__metadata__";

struct TensorEntry {
  DataType type{};
  std::vector<Index> shape;
  std::uint64_t begin = 0, end = 0;
};

struct Header {
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

/// Receives the JSON piece by piece and accepts the grammar above, nothing else: no tree is built,
/// duplicate keys are seen, and nesting ends at the first bracket that has no place.
class HeaderReader {
 public:
  HeaderReader(std::string file, Header& header) : file_(std::move(file)), header_(header) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool value) { return unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return unexpected(text); }
  bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if ((place_ != Place::shape && place_ != Place::offsets) ||
        value > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
      return unexpected(std::to_string(value));
    if (place_ == Place::shape) {
      entry_->shape.push_back(static_cast<Index>(value));
      return true;
    }
    if (offsets_ == 2) refuse("expected two numbers, got more");
    (offsets_++ == 0 ? entry_->begin : entry_->end) = value;
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata) {
      header_.metadata[field_] = std::move(value);
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("the string " + in_quotes(value));
    const auto type = data_type_named(value);
    if (!type) refuse("unknown data type " + in_quotes(value) + ", known are " + known_types());
    entry_->type = *type;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::outside)
      place_ = Place::top;
    else if (place_ == Place::top)
      place_ = name_ == metadata_name ? Place::metadata : Place::tensor;
    else
      return unexpected("an object");
    fields_.clear();
    return true;
  }

  bool key(std::string& text) {
    if (place_ == Place::top) {
      name_ = text;
      field_.clear();
      if (name_ == metadata_name) {
        if (std::exchange(has_metadata_, true)) refuse("is given twice");
      } else {
        const auto [where, is_new] = header_.tensors.try_emplace(text);
        if (!is_new) refuse("is given twice");
        entry_ = &where->second;
      }
      return true;
    }
    field_ = text;
    if (place_ == Place::metadata) {
      if (header_.metadata.contains(text)) refuse("is given twice");
      return true;
    }
    if (text != "dtype" && text != "shape" && text != "data_offsets")
      refuse("unknown key, known are dtype, shape, data_offsets");
    if (std::find(fields_.begin(), fields_.end(), text) != fields_.end()) refuse("is given twice");
    fields_.push_back(text);
    return true;
  }

  bool end_object() {
    field_.clear();
    if (place_ == Place::tensor)
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (std::find(fields_.begin(), fields_.end(), field) == fields_.end())
          refuse(message("the key '", field, "' is missing"));
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_ != 2) refuse(message("expected two numbers, got ", offsets_));
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last, const nlohmann::json::exception&) {
    std::string shown = excerpt(last);  // it may hold the very bytes that are no UTF-8
    for (char& c : shown)
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    throw FormatError(message("file '", file_, "': the header is not valid JSON in UTF-8, at byte ", position,
                              " of it, after '", shown, "'"));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  static std::string known_types() {
    std::string names;
    for (const DataType type : all_data_types) names.append(names.empty() ? "" : ", ").append(name_of(type));
    return names;
  }

  const char* expected() const {
    switch (place_) {
      case Place::outside:
      case Place::top:
        return "a JSON object";
      case Place::metadata:
        return "a string";
      case Place::tensor:
        return field_ == "dtype" ? "a string" : "an array";
      default:
        return "whole numbers from 0 to 2^63 - 1";
    }
  }

  bool unexpected(std::string_view got) const {
    refuse(message("expected ", expected(), ", got ", excerpt(got)));
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    std::string where = "header";
    if (place_ != Place::outside) where = (name_ == metadata_name ? "" : "tensor ") + in_quotes(name_);
    if (place_ != Place::outside && !field_.empty()) where += ": " + in_quotes(field_);
    throw FormatError(message("file '", file_, "': ", where, ": ", reason));
  }

  std::string file_;
  Header& header_;
  Place place_ = Place::outside;
  bool has_metadata_ = false;
  std::string name_, field_;         // the keys we are under
  std::vector<std::string> fields_;  // keys of this tensor so far
  TensorEntry* entry_ = nullptr;
  int offsets_ = 0;
};

}  // namespace linrec::io::detail
