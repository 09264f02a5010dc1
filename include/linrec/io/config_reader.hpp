// ConfigReader: the keys of a config.json, each checked when it is read.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/excerpt.hpp"

namespace linrec::io {

/// A JSON object. Keys that hold null count as missing. Errors name the file, the key, what was expected and
/// what came.
class ConfigReader {
 public:
  /// Sizes above are refused, so that products of a few of them fit an Index.
  static constexpr Index largest_size = Index{1} << 24;

  ConfigReader(std::string name, nlohmann::json object)
      : name_(std::move(name)), object_(std::move(object)) {}

  /// The file, and the path of the object in it, for error texts.
  const std::string& name() const { return name_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // All throw FormatError. Without a fallback, a missing key is an error.

  /// An integer from `least` to largest_size.
  Index size(std::string_view key, std::optional<Index> fallback = {}, Index least = 1) const {
    const nlohmann::json* value = find(key, fallback.has_value());
    if (value == nullptr) return *fallback;
    const std::string expected = message("an integer from ", least, " to ", largest_size);
    if (!value->is_number_integer()) refuse(key, expected, *value);
    const bool fits = value->is_number_unsigned() ? value->get<std::uint64_t>() <= std::uint64_t{largest_size}
                                                  : value->get<std::int64_t>() <= largest_size;
    if (!fits || value->get<std::int64_t>() < least) refuse(key, expected, *value);
    return static_cast<Index>(value->get<std::int64_t>());
  }
  /// The same of entry i, where the key may also hold one integer for all.
  Index size_of_entry(std::string_view key, std::size_t i, Index fallback) const {
    const nlohmann::json* value = find(key, true);
    if (value == nullptr || !value->is_array()) return size(key, fallback);
    if (i >= value->size()) refuse(key, message("more than ", i, " entries"), *value);
    return ConfigReader(name_, {{std::string(key), (*value)[i]}}).size(key);
  }
  /// An array of integers, each from `least` to largest_size.
  std::vector<Index> sizes(std::string_view key, std::vector<Index> fallback, Index least = 1) const {
    const nlohmann::json* value = find(key, true);
    if (value == nullptr) return fallback;
    if (!value->is_array()) refuse(key, "an array of integers", *value);
    fallback.clear();
    for (const nlohmann::json& entry : *value)
      fallback.push_back(ConfigReader(name_, {{std::string(key), entry}}).size(key, {}, least));
    return fallback;
  }
  /// A number; "Infinity", which Python writes, counts as one.
  double number(std::string_view key, std::optional<double> fallback = {}) const {
    const nlohmann::json* value = find(key, fallback.has_value());
    return value == nullptr ? *fallback : as_number(key, *value);
  }
  /// An array of two numbers.
  std::pair<double, double> range(std::string_view key, std::pair<double, double> fallback) const {
    const nlohmann::json* value = find(key, true);
    if (value == nullptr) return fallback;
    if (!value->is_array() || value->size() != 2) refuse(key, "an array of two numbers", *value);
    return {as_number(key, (*value)[0]), as_number(key, (*value)[1])};
  }
  bool flag(std::string_view key, std::optional<bool> fallback = {}) const {
    const nlohmann::json* value = find(key, fallback.has_value());
    if (value == nullptr) return *fallback;
    if (!value->is_boolean()) refuse(key, "true or false", *value);
    return value->get<bool>();
  }
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const {
    const nlohmann::json* value = find(key, fallback.has_value());
    if (value == nullptr) return *fallback;
    if (!value->is_string()) refuse(key, "a text", *value);
    return value->get<std::string>();
  }
  /// What one of the known texts stands for.
  template <class Value>
  Value choice(std::string_view key, Value fallback,
               std::initializer_list<std::pair<std::string_view, Value>> known) const {
    if (!has(key)) return fallback;
    std::string all;
    for (const auto& [one, value] : known) {
      if (text(key) == one) return value;
      all += (all.empty() ? "'" : " or '") + std::string(one) + "'";
    }
    refuse(key, all, *find(key));
  }
  /// An object inside, empty if missing.
  ConfigReader object(std::string_view key) const {
    const nlohmann::json* value = find(key, true);
    if (value == nullptr) return {name_ + ": " + std::string(key), nlohmann::json::object()};
    if (!value->is_object()) refuse(key, "an object", *value);
    return {name_ + ": " + std::string(key), *value};
  }

  /// Refuses a config whose key holds something that is not implemented: anything but null, false, empty, or
  /// one of the known texts.
  void require_absent(std::string_view key) const {
    const nlohmann::json* value = find(key, true);
    if (value == nullptr || *value == false || ((value->is_array() || value->is_object()) && value->empty()))
      return;
    refuse(key, "nothing, for linrec does not implement it", *value);
  }
  void require_text(std::string_view key, std::initializer_list<std::string_view> known) const {
    if (!has(key)) return;
    std::string all;
    for (const std::string_view one : known) {
      if (text(key) == one) return;
      all += (all.empty() ? "'" : " or '") + std::string(one) + "'";
    }
    refuse(key, all, *find(key));
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& expected,
                           const nlohmann::json& got) const {
    throw FormatError(
        message("file '", name_, "': key ", detail::in_quotes(key), ": expected ", expected, ", got ",
                detail::excerpt(got.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))));
  }

 private:
  const nlohmann::json* find(std::string_view key, bool optional = true) const {
    const auto found = object_.find(key);
    if (found != object_.end() && !found->is_null()) return &*found;
    if (!optional)
      throw FormatError(message("file '", name_, "': expected a key ", detail::in_quotes(key), ", got none"));
    return nullptr;
  }
  double as_number(std::string_view key, const nlohmann::json& value) const {
    const nlohmann::json& inner =
        value.is_object() && value.contains("__float__") ? value["__float__"] : value;
    double number = std::numeric_limits<double>::quiet_NaN();
    if (inner.is_number()) number = inner.get<double>();
    if (inner == "Infinity") number = std::numeric_limits<double>::infinity();
    if (inner == "-Infinity") number = -std::numeric_limits<double>::infinity();
    if (std::isnan(number)) refuse(key, "a number", value);
    return number;
  }

  std::string name_;
  nlohmann::json object_;
};

}  // namespace linrec::io
