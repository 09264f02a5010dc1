#include "linrec/io/data_type.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/catch.hpp"

namespace linrec::test::data_type_test {

using namespace linrec::io;

namespace {

// The value by the definition of the format, exponent and mantissa being fields of the given widths.
double value_of(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1U << mantissa_bits) - 1U);
  const double sign = bits & 0x8000U ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

// Checks all 65536 values, and for each finite magnitude the way up to the next: the midpoint goes to
// the even one, its neighbours on the float line go to either side. `infinity` is the pattern of it;
// above the largest finite value, the next one counts as if the exponent went on.
template <class Widen, class Narrow>
void check_half_width(Widen widen, Narrow narrow, int exponent_bits, int mantissa_bits, unsigned infinity) {
  int wrong_values = 0, wrong_round_trips = 0, wrong_roundings = 0;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = widen(static_cast<std::uint16_t>(bits));
    const double right = value_of(bits, exponent_bits, mantissa_bits);
    if (std::isnan(right)) {
      wrong_values += !std::isnan(value);
      wrong_round_trips += !std::isnan(widen(narrow(value)));
      wrong_round_trips += (narrow(value) & 0x8000U) != (bits & 0x8000U);
      continue;
    }
    wrong_values += static_cast<double>(value) != right || std::signbit(value) != std::signbit(right);
    wrong_round_trips += narrow(value) != bits;
  }
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const double below = value_of(bits, exponent_bits, mantissa_bits);
    // The step above is a unit of the last place, also at the largest finite value.
    const double step = bits + 1 < infinity ? value_of(bits + 1, exponent_bits, mantissa_bits) - below
                                            : below - value_of(bits - 1, exponent_bits, mantissa_bits);
    const auto middle = static_cast<float>(below + step / 2);
    REQUIRE(static_cast<double>(middle) == below + step / 2);
    const float limit = std::numeric_limits<float>::infinity();
    for (const unsigned sign : {0U, 0x8000U}) {
      const auto narrowed = [&](float x) { return narrow(sign ? -x : x); };
      wrong_roundings += narrowed(std::nextafter(middle, 0.0F)) != (sign | bits);
      wrong_roundings += narrowed(middle) != (sign | (bits + (bits & 1U)));
      wrong_roundings += narrowed(std::nextafter(middle, limit)) != (sign | (bits + 1));
    }
  }
  CHECK(wrong_values == 0);
  CHECK(wrong_round_trips == 0);
  CHECK(wrong_roundings == 0);
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(narrow(inf) == infinity);
  CHECK(narrow(-inf) == (0x8000U | infinity));
  CHECK(narrow(std::numeric_limits<float>::max()) == infinity);
  CHECK(narrow(std::numeric_limits<float>::denorm_min()) == 0);
  // NaNs whose payload lies in the bits that are cut off, or is all ones
  for (const std::uint32_t nan : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffffffffU, 0x7fc00000U})
    CHECK(std::isnan(widen(narrow(std::bit_cast<float>(nan)))));
}

}  // namespace

TEST_CASE("F16 widens exactly and rounds to nearest even") {
  check_half_width(half_to_float, float_to_half, 5, 10, 0x7c00);
  CHECK(float_to_half(1.0F) == 0x3c00);
  CHECK(float_to_half(65504.0F) == 0x7bff);
  CHECK(half_to_float(0x0001) == 0x1p-24F);
}

TEST_CASE("BF16 widens exactly and rounds to nearest even") {
  check_half_width(bfloat16_to_float, float_to_bfloat16, 8, 7, 0x7f80);
  CHECK(float_to_bfloat16(1.0F) == 0x3f80);
  CHECK(bfloat16_to_float(0xc000) == -2.0F);
}

TEST_CASE("data types have the names and sizes of the format") {
  const std::pair<DataType, Index> sizes[] = {{DataType::F64, 8},  {DataType::F32, 4}, {DataType::F16, 2},
                                              {DataType::BF16, 2}, {DataType::I64, 8}, {DataType::I32, 4},
                                              {DataType::U8, 1},   {DataType::BOOL, 1}};
  const char* names[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL"};
  REQUIRE(all_data_types.size() == std::size(sizes));
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    INFO(names[i]);
    CHECK(name_of(sizes[i].first) == names[i]);
    CHECK(size_of(sizes[i].first) == sizes[i].second);
    CHECK(data_type_named(names[i]) == sizes[i].first);
    CHECK(all_data_types[i] == sizes[i].first);
  }
  for (const char* other : {"", "f32", "F32 ", "F8_E4M3", "I16"}) CHECK_FALSE(data_type_named(other));
  CHECK(data_type_of<double>() == DataType::F64);
  CHECK(data_type_of<std::int32_t>() == DataType::I32);
  CHECK(data_type_of<std::uint8_t>() == DataType::U8);
  CHECK_FALSE(data_type_of<std::int8_t>());
  CHECK_FALSE(data_type_of<std::uint32_t>());
}

TEST_CASE("byte counts of shapes do not overflow") {
  const auto count = [](std::vector<Index> shape, DataType type) { return byte_count(shape, type); };
  const Index large = Index(1) << 61;
  CHECK(count({}, DataType::F32) == 4);
  CHECK(count({2, 3}, DataType::F16) == 12);
  CHECK(count({0, 3}, DataType::F64) == 0);
  CHECK(count({large}, DataType::F16) == 2 * large);
  CHECK_FALSE(count({large}, DataType::F32));
  CHECK_FALSE(count({large, 4}, DataType::U8));
  CHECK_FALSE(count({0, large, 4}, DataType::U8));
  CHECK_FALSE(count({large, 4, 0}, DataType::U8));
  CHECK_FALSE(count({-1}, DataType::U8));
  CHECK_FALSE(count({0, -1}, DataType::U8));
}

}  // namespace linrec::test::data_type_test
