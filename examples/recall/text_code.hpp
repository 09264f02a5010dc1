// Texts as vectors of unit length, the same on every machine: sums of signs, drawn from a hash of the bytes.
//
// whole    One row of signs / sqrt(n) from the hash of all bytes. Vectors of different texts are nearly
//          orthogonal (dot products of size 1 / sqrt(n)), however alike the texts are: keys do not get in
//          each other's way, and a key with a typing error is another key.
// ngrams   The sum of such rows over all runs of three bytes, in lower case, the ends marked; divided by its
//          length. The dot product of two texts is near the share of runs that they have in common: a key
//          with a typing error finds what was stored under the right one, and keys that look alike must be
//          told apart by what reads them.
//
// There is nothing to train, and nothing to store: a vector is computed from its text when it is needed.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "linrec/core/types.hpp"

namespace recall {

using linrec::Index;

enum class TextKind { whole, ngrams };

namespace detail {

/// A one-to-one map of 64-bit numbers in which every bit of the result depends on every bit of x. The
/// constants are the first bits of the golden ratio and of pi.
constexpr std::uint64_t mixed(std::uint64_t x) {
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 29)) * 0x243f6a8885a308d3;
  }
  return x ^ (x >> 32);
}

constexpr std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t h = mixed(seed + text.size());
  for (const char c : text) h = mixed(h ^ static_cast<unsigned char>(c));
  return h;
}

/// Numbers that look random, and are the same everywhere (the standard's distributions are not).
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(mixed(seed)) {}
  std::uint64_t next() { return mixed(seed_ + ++count_); }
  /// 0 to n - 1; the bias is below n / 2^64.
  std::uint64_t below(std::uint64_t n) { return next() % n; }

 private:
  std::uint64_t seed_, count_ = 0;
};

/// sum [n] += 1 or -1, by the bits that follow from h.
inline void add_signs(std::uint64_t h, Eigen::VectorXf& sum) {
  Random bits(h);
  std::uint64_t word = 0;
  for (Index i = 0; i < sum.size(); ++i, word >>= 1) {
    if (i % 64 == 0) word = bits.next();
    sum[i] += (word & 1) != 0 ? 1.0f : -1.0f;
  }
}

/// In lower case (ASCII), with marks that no key contains.
inline std::string marked(std::string_view text) {
  std::string result = "\x01\x01";
  for (const char c : text) result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result + "\x02\x02";
}

}  // namespace detail

class TextCode {
 public:
  /// @param size n, of the vectors. Another seed: other vectors, nearly orthogonal to these.
  TextCode(Index size, std::uint64_t seed, TextKind kind = TextKind::whole)
      : size_(size), seed_(detail::mixed(seed)), kind_(kind) {
    if (size < 1) throw linrec::ValueError(linrec::message("size: expected at least 1, got ", size));
  }

  Index size() const { return size_; }

  /// [n], of length 1. Any text, also an empty one.
  Eigen::VectorXf vector(std::string_view text) const {
    Eigen::VectorXf sum = Eigen::VectorXf::Zero(size_);
    if (kind_ == TextKind::ngrams) {
      const std::string all = detail::marked(text);
      for (std::size_t i = 0; i + 3 <= all.size(); ++i)
        detail::add_signs(detail::hash(std::string_view(all).substr(i, 3), seed_), sum);
    }
    if (sum.isZero(0)) detail::add_signs(detail::hash(text, seed_), sum);  // also where runs cancel
    return sum / std::sqrt(sum.squaredNorm());                             // sums of whole numbers: exact
  }

 private:
  Index size_;
  std::uint64_t seed_;
  TextKind kind_;
};

}  // namespace recall
