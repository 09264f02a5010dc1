// CRC-64/XZ, against its published check value and against a division bit by bit.
#include "linrec/io/checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"

namespace linrec::test::checksum_test {

namespace {

std::uint64_t by_bits(std::span<const std::byte> bytes) {
  std::uint64_t rest = ~std::uint64_t{0};
  for (const std::byte byte : bytes) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      const bool divides = ((rest ^ (static_cast<std::uint64_t>(byte) >> bit)) & 1U) != 0;
      rest = (rest >> 1) ^ (divides ? 0xc96c5795d7870f42U : 0U);
    }
  }
  return ~rest;
}

}  // namespace

TEST_CASE("CRC-64/XZ: the check value, and the empty message") {
  CHECK(io::crc64(std::as_bytes(std::span(std::string_view("123456789")))) == 0x995dc9bbdf1939faU);
  CHECK(io::crc64({}) == 0);
}

TEST_CASE("CRC-64/XZ: any length, any cut, any flipped bit") {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(67);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    const std::span message(bytes.data(), length);
    const std::uint64_t expected = by_bits(message);
    REQUIRE(io::crc64(message) == expected);
    for (std::size_t cut = 0; cut <= length; ++cut) {
      io::Crc64 crc;
      crc.update(message.first(cut));
      crc.update(message.subspan(cut));
      REQUIRE(crc.value() == expected);
    }
  }
  const std::uint64_t whole = io::crc64(bytes);
  for (std::byte& byte : bytes) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      byte ^= std::byte{1} << bit;
      REQUIRE(io::crc64(bytes) != whole);
      byte ^= std::byte{1} << bit;
    }
  }
}

}  // namespace linrec::test::checksum_test
