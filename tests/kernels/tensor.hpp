// Tensors of the tests: owned, in double, in any memory order, with exact comparison.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "linrec/core/token_view.hpp"

namespace linrec::test {

/// Random numbers that are the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}

  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits_() >> 11) * 0x1p-53);
  }
  Index integer(Index low, Index high) {  // both included
    return low + static_cast<Index>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 bits_;
};

/// [B, T, H, D]. `numbers` may hold more than the tensor, between its rows.
struct Tensor {
  std::array<Index, 4> extents{};
  std::array<Index, 3> strides{};
  std::vector<double> numbers;

  Tensor() = default;
  explicit Tensor(std::array<Index, 4> e, double fill = 0)
      : extents(e), strides{e[1] * e[2] * e[3], e[2] * e[3], e[3]} {
    numbers.assign(static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3]), fill);
  }

  std::size_t offset(Index b, Index t, Index h, Index d) const {
    return static_cast<std::size_t>(b * strides[0] + t * strides[1] + h * strides[2] + d);
  }
  double& operator()(Index b, Index t, Index h, Index d = 0) { return numbers[offset(b, t, h, d)]; }
  double operator()(Index b, Index t, Index h, Index d = 0) const { return numbers[offset(b, t, h, d)]; }

  Eigen::VectorXd row(Index b, Index t, Index h) const {
    return Eigen::Map<const Eigen::VectorXd>(numbers.data() + offset(b, t, h, 0), extents[3]);
  }

  template <class F>  // f(b, t, h, d)
  void for_each(F&& f) const {
    for (Index b = 0; b < extents[0]; ++b)
      for (Index t = 0; t < extents[1]; ++t)
        for (Index h = 0; h < extents[2]; ++h)
          for (Index d = 0; d < extents[3]; ++d) f(b, t, h, d);
  }

  /// The same tensor with the heads outside of the tokens, [B, H, T, D] in memory, and `gap` numbers of
  /// something else (999) after each row of D.
  Tensor heads_outside(Index gap) const {
    Tensor other;
    const Index width = extents[3] + gap;
    other.extents = extents;
    other.strides = {extents[2] * extents[1] * width, width, extents[1] * width};
    other.numbers.assign(static_cast<std::size_t>(extents[0] * extents[1] * extents[2] * width), 999);
    for_each([&](Index b, Index t, Index h, Index d) { other(b, t, h, d) = (*this)(b, t, h, d); });
    return other;
  }

  /// A contiguous copy whose token i is the token {row, t} = tokens[i]; B = 1.
  Tensor gather(const std::vector<std::array<Index, 2>>& tokens) const {
    Tensor part({1, static_cast<Index>(tokens.size()), extents[2], extents[3]});
    part.for_each([&](Index b, Index t, Index h, Index d) {
      const auto& [row, token] = tokens[static_cast<std::size_t>(t)];
      part(b, t, h, d) = (*this)(row, token, h, d);
    });
    return part;
  }

  /// A contiguous copy of the tokens [first, first + count).
  Tensor slice(Index first, Index count) const {
    Tensor part({extents[0], count, extents[2], extents[3]});
    part.for_each(
        [&](Index b, Index t, Index h, Index d) { part(b, t, h, d) = (*this)(b, first + t, h, d); });
    return part;
  }
  void set_slice(Index first, const Tensor& part) {
    part.for_each(
        [&](Index b, Index t, Index h, Index d) { (*this)(b, first + t, h, d) = part(b, t, h, d); });
  }
};

inline bool same_bits(double x, double y) {
  return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}
inline bool same_bits(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() != y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!same_bits(x[i], y[i])) return false;
  return true;
}

/// Empty if `got` is `expected` up to tolerance times the largest number expected (and at least that of
/// `floor`); otherwise says where it is not. A tolerance of 0 asks for equal bits.
inline std::string difference(const Tensor& got, const Tensor& expected, double tolerance = 0,
                              double floor = 1e-300) {
  if (got.extents != expected.extents) return "shapes differ";
  double largest = floor;
  expected.for_each([&](auto... i) {
    if (std::isfinite(expected(i...))) largest = std::max(largest, std::abs(expected(i...)));
  });
  std::string text;
  got.for_each([&](Index b, Index t, Index h, Index d) {
    const double x = got(b, t, h, d), y = expected(b, t, h, d);
    const bool equal = same_bits(x, y) || (tolerance > 0 && std::abs(x - y) <= tolerance * largest);
    if (!equal && text.empty())
      text = message("[", b, ", ", t, ", ", h, ", ", d, "]: ", x, " instead of ", y);
  });
  return text;
}

}  // namespace linrec::test
