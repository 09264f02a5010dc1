// bfloat16 in packets gives the same bits as the scalar functions, which tests/io/data_type_test.cpp holds
// against the definition of the format.
#include "linrec/core/bfloat16.hpp"

#include <bit>
#include <cstddef>
#include <random>
#include <vector>

#include "linrec/core/simd.hpp"
#include "tests/catch.hpp"

namespace linrec::test::bfloat16_test {

namespace {

// What follows is a template of the packet, for without vectorisation there are no packets of pairs.

// How many of all bfloat16 values packets widen to other bits.
template <class Packet>
std::size_t widened_otherwise(std::size_t offset) {
  std::size_t wrong = 0;
  if constexpr (has_bfloat16_pairs<Packet>) {
    constexpr std::size_t size = Lanes<float>::packet_size;
    std::vector<BFloat16> numbers(0x10000 + offset);
    for (std::size_t i = 0; i < 0x10000; ++i) numbers[i + offset].bits = static_cast<std::uint16_t>(i);
    float low[size], high[size];
    for (std::size_t i = 0; i < 0x10000; i += 2 * size) {
      const auto pairs = load_pairs<Packet>(numbers.data() + offset + i);
      Eigen::internal::pstoreu(low, widen_low<Packet>(pairs));
      Eigen::internal::pstoreu(high, widen_high<Packet>(pairs));
      for (std::size_t j = 0; j < size; ++j) {
        wrong += std::bit_cast<std::uint32_t>(low[j]) != (i + 2 * j) << 16;
        wrong += std::bit_cast<std::uint32_t>(high[j]) != (i + 2 * j + 1) << 16;
      }
    }
  }
  return wrong;
}

// How many of the floats packets narrow to other bits than the scalar function does, as low or as high
// halves.
template <class Packet>
std::size_t narrowed_otherwise(const std::vector<std::uint32_t>& floats) {
  std::size_t wrong = 0;
  if constexpr (has_bfloat16_pairs<Packet>) {
    constexpr std::size_t size = Lanes<float>::packet_size;
    float low[size], high[size];
    BFloat16 narrowed[2 * size];
    for (std::size_t i = 0; i + 2 * size <= floats.size(); i += size) {
      for (std::size_t j = 0; j < size; ++j) {
        low[j] = std::bit_cast<float>(floats[i + j]);
        high[j] = std::bit_cast<float>(floats[i + size + j]);
      }
      using Eigen::internal::ploadu;
      store_pairs<Packet>(narrowed, narrow(ploadu<Packet>(low), ploadu<Packet>(high)));
      for (std::size_t j = 0; j < size; ++j) {
        wrong += narrowed[2 * j].bits != float_to_bfloat16(low[j]);
        wrong += narrowed[2 * j + 1].bits != float_to_bfloat16(high[j]);
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("bfloat16: packets widen all values exactly, at any address") {
  for (const std::size_t offset : {0U, 1U}) CHECK(widened_otherwise<Lanes<float>::Packet>(offset) == 0);
}

TEST_CASE("bfloat16: packets narrow as single numbers do") {
  std::vector<std::uint32_t> floats;
  // Each upper half with lower halves around the tie; infinities, and NaNs with all kinds of payloads, too
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      floats.push_back(upper << 16 | lower);
  std::mt19937 bits(1);
  for (int i = 0; i < 1 << 20; ++i) floats.push_back(static_cast<std::uint32_t>(bits()));
  CHECK(narrowed_otherwise<Lanes<float>::Packet>(floats) == 0);
}

TEST_CASE("bfloat16: the number type widens and narrows") {
  CHECK(BFloat16(1.0F).bits == 0x3f80);
  CHECK(BFloat16(-2.5F).value() == -2.5F);
  CHECK(BFloat16().value() == 0.0F);
}

}  // namespace linrec::test::bfloat16_test
