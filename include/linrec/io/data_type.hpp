// The element types of stored tensors, and the half-width floats in plain integer arithmetic.
//
//   F16   1 sign, 5 exponent, 10 mantissa bits (IEEE 754 binary16)
//   BF16  1 sign, 8 exponent,  7 mantissa bits (core/bfloat16.hpp)
//
// Widening is exact. Narrowing rounds to nearest, ties to even; what is too large becomes infinite
// and a NaN stays a NaN. Working on the bits keeps the results free of -ffast-math and of
// flush-to-zero modes.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "linrec/core/bfloat16.hpp"
#include "linrec/core/types.hpp"

namespace linrec::io {

enum class DataType { F64, F32, F16, BF16, I64, I32, U8, BOOL };

inline constexpr std::array all_data_types{DataType::F64, DataType::F32, DataType::F16, DataType::BF16,
                                           DataType::I64, DataType::I32, DataType::U8,  DataType::BOOL};

constexpr bool is_floating_point(DataType type) {
  return type == DataType::F64 || type == DataType::F32 || type == DataType::F16 || type == DataType::BF16;
}

/// The name that files use, "F32" for one.
constexpr std::string_view name_of(DataType type) {
  constexpr std::array<std::string_view, 8> names{"F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL"};
  return names[static_cast<std::size_t>(type)];
}

/// The type of that name, or nothing. Names are case-sensitive.
constexpr std::optional<DataType> data_type_named(std::string_view name) {
  for (const DataType type : all_data_types)
    if (name_of(type) == name) return type;
  return std::nullopt;
}

/// Bytes of one element.
constexpr Index size_of(DataType type) {
  constexpr std::array<Index, 8> sizes{8, 4, 2, 2, 8, 4, 1, 1};
  return sizes[static_cast<std::size_t>(type)];
}

/// The number types that tensors convert to and from: the floats, and integers that are no characters.
template <class T>
concept Number = std::floating_point<T> ||
    (std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
     !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>);

/// The types that tensors convert to.
template <class T>
concept Element = Number<T> || std::same_as<T, BFloat16>;

/// The data type whose elements are exactly T, or nothing. BOOL and F16 have no such T.
template <Element T>
constexpr std::optional<DataType> data_type_of() {
  if (std::same_as<T, BFloat16>) return DataType::BF16;
  if (std::same_as<T, double>) return DataType::F64;
  if (std::same_as<T, float>) return DataType::F32;
  if (std::signed_integral<T> && sizeof(T) == 8) return DataType::I64;
  if (std::signed_integral<T> && sizeof(T) == 4) return DataType::I32;
  if (std::unsigned_integral<T> && sizeof(T) == 1) return DataType::U8;
  return std::nullopt;
}

/// Bytes of a dense tensor, or nothing if an extent is negative or the product of the extents does
/// not fit. Extents of 0 do not excuse the others: strides are products that leave some out.
constexpr std::optional<Index> byte_count(std::span<const Index> shape, DataType type) {
  Index bytes = size_of(type);
  bool empty = false;
  for (const Index extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (bytes > std::numeric_limits<Index>::max() / extent) return std::nullopt;
    bytes *= extent;
  }
  return empty ? 0 : bytes;
}

/// The value of an F16, exactly.
constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16, exponent = (half >> 10) & 0x1fU;
  std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A subnormal, mantissa * 2^-24, is a normal float: move the leading one to bit 10.
  const auto shift = static_cast<std::uint32_t>(std::countl_zero(mantissa)) - 21U;
  mantissa = (mantissa << shift) & 0x3ffU;
  return std::bit_cast<float>(sign | ((113U - shift) << 23) | (mantissa << 13));
}

/// The F16 nearest to `value`.
constexpr std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {  // NaN: quiet, with the upper part of its payload
    half = 0x7e00U | ((magnitude >> 13) & 0x1ffU);
  } else if (magnitude >= 0x477ff000U) {  // 65520 and up round to infinity
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14 and up: normal, the exponent bias moves by 112
    const std::uint32_t shifted = magnitude - (112U << 23);
    half = (shifted + 0xfffU + ((shifted >> 13) & 1U)) >> 13;
  } else if (magnitude > 0x33000000U) {  // above 2^-25: a count of units of 2^-24
    const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U, shift = 126U - (magnitude >> 23);
    const std::uint32_t rest = mantissa & ((1U << shift) - 1U), tie = 1U << (shift - 1U);
    half = mantissa >> shift;
    if (rest > tie || (rest == tie && (half & 1U))) ++half;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace linrec::io
