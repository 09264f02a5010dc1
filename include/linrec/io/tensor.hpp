// One tensor of a file, and how its elements become numbers.
//
// The data may begin at any address, odd ones too: elements are fetched with memcpy.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"

namespace linrec::io {

static_assert(std::endian::native == std::endian::little,
              "linrec/io reads and writes the little-endian data of safetensors files as it lies in memory");

/// One tensor of a file. It shares the file's bytes and keeps them alive: it, and what view() gives,
/// may outlive the SafetensorsFile, but a view does not outlive its Tensor.
struct Tensor {
  std::string name;
  DataType type{};
  std::vector<Index> shape;  // empty for a scalar
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  /// Number of elements.
  Index size() const { return static_cast<Index>(bytes.size()) / size_of(type); }

  /// The elements as T, row-major. Floats become T by the usual rounding (F64 becomes BFloat16 by way of
  /// float); BOOL becomes 0 or 1.
  /// @throws FormatError, naming the tensor and the element, if T is an integer type and cannot hold
  ///   the value exactly.
  template <Element T>
  std::vector<T> to() const;

  /// The elements in place, or nothing unless they are of type T exactly and suitably aligned.
  template <Element T>
  std::optional<std::span<const T>> view() const {
    if (data_type_of<T>() != type || reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0)
      return std::nullopt;
    return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  }
};

namespace detail {

// What lies in a file, each type with its own value().
template <class T>
struct Plain {
  T stored;
  T value() const { return stored; }
};
struct Half {
  std::uint16_t stored;
  float value() const { return half_to_float(stored); }
};
struct Boolean {
  std::uint8_t stored;
  std::uint8_t value() const { return stored != 0; }
};

/// Whether `to` became `from` exactly; always so for floats, which round instead.
template <class To, class From>
bool convert(From from, To& to) {
  if constexpr (std::same_as<To, BFloat16>) {
    to = BFloat16(static_cast<float>(from));
    return true;
  } else if constexpr (std::floating_point<To>) {
    static_assert(std::numeric_limits<To>::is_iec559);  // so that too large a value becomes infinite
    to = static_cast<To>(from);
    return true;
  } else if constexpr (std::floating_point<From>) {
    // Both limits are powers of two (or 0) and so exact; a NaN fails the comparisons.
    constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
    const From high = std::ldexp(From(1), std::numeric_limits<To>::digits);
    if (!(from >= low && from < high) || std::trunc(from) != from) return false;
    to = static_cast<To>(from);
    return true;
  } else {
    if (!std::in_range<To>(from)) return false;
    to = static_cast<To>(from);
    return true;
  }
}

template <class Stored, class T>
std::vector<T> convert_all(const Tensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < result.size(); ++i) {
    Stored element;
    std::memcpy(&element, tensor.bytes.data() + i * sizeof(Stored), sizeof(Stored));
    if (!convert(element.value(), result[i]))
      throw FormatError(message("tensor ", in_quotes(tensor.name), ": element ", i, " is ", +element.value(),
                                ", which an integer of ", sizeof(T), " bytes, ",
                                std::signed_integral<T> ? "signed" : "unsigned", ", cannot hold"));
  }
  return result;
}

}  // namespace detail

template <Element T>
std::vector<T> Tensor::to() const {
  switch (type) {
    case DataType::F64:
      return detail::convert_all<detail::Plain<double>, T>(*this);
    case DataType::F32:
      return detail::convert_all<detail::Plain<float>, T>(*this);
    case DataType::F16:
      return detail::convert_all<detail::Half, T>(*this);
    case DataType::BF16:
      return detail::convert_all<BFloat16, T>(*this);
    case DataType::I64:
      return detail::convert_all<detail::Plain<std::int64_t>, T>(*this);
    case DataType::I32:
      return detail::convert_all<detail::Plain<std::int32_t>, T>(*this);
    case DataType::U8:
      return detail::convert_all<detail::Plain<std::uint8_t>, T>(*this);
    case DataType::BOOL:
      return detail::convert_all<detail::Boolean, T>(*this);
  }
  throw ValueError(message("tensor ", detail::in_quotes(name), ": no such data type"));
}

}  // namespace linrec::io
