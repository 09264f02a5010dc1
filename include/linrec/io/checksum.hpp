// CRC-64/XZ: the remainder of a message, as a polynomial over GF(2), on division by
//   x^64 + x^62 + x^57 + x^55 + x^54 + x^53 + x^52 + x^47 + ... + x^4 + x + 1       (ECMA-182)
// with the bits of each byte taken from the lowest up, and register and result inverted. The check value, of
// the nine bytes "123456789", is 995dc9bbdf1939fa. It sees every single flipped bit and every burst of up to
// 64 bits; of other damage 1 in 2^64 passes. It is no signature: who wants to can forge it.
//
// Eight bytes at a time: table j has the remainders of one byte with j zero bytes behind it, and remainders
// add.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace linrec::io {

namespace detail {

using Crc64Tables = std::array<std::array<std::uint64_t, 256>, 8>;

constexpr Crc64Tables make_crc64_tables() {
  constexpr std::uint64_t polynomial = 0xc96c5795d7870f42U;  // x^63 is bit 0
  Crc64Tables tables{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::uint64_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1U) != 0 ? polynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t j = 1; j < tables.size(); ++j)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint64_t rest = tables[j - 1][byte];
      tables[j][byte] = (rest >> 8) ^ tables[0][rest & 0xffU];
    }
  return tables;
}

inline constexpr Crc64Tables crc64_tables = make_crc64_tables();

}  // namespace detail

/// The checksum of bytes that come in pieces; how they are cut does not matter.
class Crc64 {
 public:
  void update(std::span<const std::byte> bytes) noexcept {
    static_assert(std::endian::native == std::endian::little);
    const auto& tables = detail::crc64_tables;
    std::uint64_t rest = register_;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      std::uint64_t next;
      std::memcpy(&next, bytes.data(), sizeof(next));
      next ^= rest;
      rest = tables[7][next & 0xffU] ^ tables[6][(next >> 8) & 0xffU] ^ tables[5][(next >> 16) & 0xffU] ^
             tables[4][(next >> 24) & 0xffU] ^ tables[3][(next >> 32) & 0xffU] ^
             tables[2][(next >> 40) & 0xffU] ^ tables[1][(next >> 48) & 0xffU] ^ tables[0][next >> 56];
    }
    for (const std::byte byte : bytes)
      rest = (rest >> 8) ^ tables[0][(rest ^ static_cast<std::uint64_t>(byte)) & 0xffU];
    register_ = rest;
  }

  /// Of all bytes so far.
  std::uint64_t value() const noexcept { return ~register_; }

 private:
  std::uint64_t register_ = ~std::uint64_t{0};
};

inline std::uint64_t crc64(std::span<const std::byte> bytes) noexcept {
  Crc64 crc;
  crc.update(bytes);
  return crc.value();
}

}  // namespace linrec::io
