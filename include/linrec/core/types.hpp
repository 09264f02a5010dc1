// Sizes of a layer: H heads, each with a K x V state.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "linrec/core/errors.hpp"

namespace linrec {

/// Signed size type of every extent, stride and offset.
using Index = Eigen::Index;

/// Marks a size that is only known at run time.
inline constexpr int Dynamic = Eigen::Dynamic;

/// A shape as text, "[32, 64]".
inline std::string shape_text(std::span<const Index> extents) {
  std::string text;
  for (const Index extent : extents) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

/// The product of extents of at least 0.
/// @throws ShapeError if it is no Index.
inline Index checked_product(std::initializer_list<Index> extents) {
  Index product = 1;
  for (const Index extent : extents) {
    if (extent < 0) return 0;  // refused where the extents are checked
    if (extent > 0 && product > std::numeric_limits<Index>::max() / extent)
      throw ShapeError(
          message("extents: expected a number of elements below 2^63, got more, at extent ", extent));
    product *= extent;
  }
  return product;
}

/// @throws ValueError if a position is not in [0, 2^53]: beyond, t is not exact in double.
inline void check_position(std::int64_t position) {
  if (position < 0 || position > (std::int64_t{1} << 53))
    throw ValueError(message("position: expected 0 to 2^53, got ", position));
}

/// Whether `size` agrees with the compile-time size `fixed`.
constexpr bool fits(int fixed, Index size) { return fixed == Dynamic || fixed == size; }

/// The sizes of a layer: `heads()` H, `key()` K (rows of the state), `value()` V (columns).
/// Mamba-2 calls K the state size N and V the head dimension P.
/// Sizes given as template arguments are constants, so that inner loops have known bounds.
/// @throws ValueError if a size is below 1 or contradicts its template argument.
template <int Heads = Dynamic, int Key = Dynamic, int Value = Dynamic>
class Dims {
  static_assert((Heads == Dynamic || Heads >= 1) && (Key == Dynamic || Key >= 1) &&
                    (Value == Dynamic || Value >= 1),
                "linrec: Dims needs sizes of at least 1, or linrec::Dynamic");

 public:
  static constexpr int fixed_key = Key, fixed_value = Value;

  constexpr Dims() requires(Heads != Dynamic && Key != Dynamic && Value != Dynamic) = default;

  Dims(Index heads, Index key, Index value) : heads_(heads), key_(key), value_(value) {
    check("heads", Heads, heads);
    check("key", Key, key);
    check("value", Value, value);
  }

  constexpr Index heads() const { return Heads != Dynamic ? Heads : heads_; }
  constexpr Index key() const { return Key != Dynamic ? Key : key_; }
  constexpr Index value() const { return Value != Dynamic ? Value : value_; }

  friend bool operator==(const Dims&, const Dims&) = default;

 private:
  static void check(const char* name, int fixed, Index size) {
    if (size < 1) throw ValueError(message("Dims: ", name, " expected at least 1, got ", size));
    if (!fits(fixed, size))
      throw ValueError(message("Dims: ", name, " expected ", fixed, " (fixed by the type), got ", size));
  }

  Index heads_ = Heads, key_ = Key, value_ = Value;
};

}  // namespace linrec
