// The bits of a state, and states with bits of all sorts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "linrec/kernels/state.hpp"
#include "linrec/layers/layer_state.hpp"

namespace linrec::test {

template <class Scalar>
using BitsOf = std::conditional_t<sizeof(Scalar) == 4, std::uint32_t, std::uint64_t>;

/// NaNs with payloads, quiet and signalling, zeros of both signs, infinities, subnormals, and plain numbers.
template <class Scalar>
Scalar one_of_all_sorts(std::size_t i) {
  using Bits = BitsOf<Scalar>;
  constexpr int digits = std::numeric_limits<Scalar>::digits - 1;
  constexpr Bits sign = Bits{1} << (8 * sizeof(Scalar) - 1), infinity = (sign - 1) >> digits << digits;
  const std::array<Bits, 9> sorts{infinity | 1,
                                  sign,
                                  infinity | (Bits{1} << (digits - 1)) | 0x5a5a,
                                  sign | infinity | 0x1234,
                                  infinity,
                                  sign | infinity,
                                  1,
                                  sign | 77,
                                  0};
  if (i % 10 == 9) return static_cast<Scalar>(i) / 7;
  return std::bit_cast<Scalar>(sorts[i % 10]);
}

template <class Scalar, class Sizes>
void fill_with_all_sorts(State<Scalar, Sizes>& state) {
  std::size_t i = 0;
  for (Index b = 0; b < state.sequences(); ++b) {
    state.set_position(b, b == 1 ? std::int64_t{1} << 53 : 1000 + b);
    for (Index h = 0; h < state.dims().heads(); ++h) {
      typename State<Scalar, Sizes>::Matrix matrix(state.dims().key(), state.dims().value());
      std::generate_n(matrix.data(), matrix.size(), [&] { return one_of_all_sorts<Scalar>(i++); });
      state.set_matrix(b, h, matrix);
    }
  }
}

template <class Scalar>
void fill_with_all_sorts(LayerState<Scalar>& state) {
  if (state.shape().recurrent) fill_with_all_sorts(state.recurrent());
  for (Index b = 0; b < state.sequences(); ++b) {
    if (!state.shape().recurrent) state.set_position(b, 2000 + b);
    std::size_t i = 0;
    for (Index w = 0; w < static_cast<Index>(state.shape().windows.size()); ++w)
      for (Index row = 0; row < state.window(w).rows(); ++row)
        std::generate_n(state.window(w).row(b, row), state.window(w).channels(),
                        [&] { return one_of_all_sorts<Scalar>(i++ + static_cast<std::size_t>(b)); });
  }
}

/// Sizes, positions and the bits of all numbers.
template <class Scalar, class Sizes>
std::vector<std::uint64_t> bits_of(const State<Scalar, Sizes>& state) {
  std::vector<std::uint64_t> bits;
  for (Index b = 0; b < state.sequences(); ++b) {
    bits.push_back(static_cast<std::uint64_t>(state.position(b)));
    for (Index h = 0; h < state.dims().heads(); ++h) {
      const auto matrix = state.matrix(b, h);
      for (Index i = 0; i < matrix.size(); ++i)
        bits.push_back(std::bit_cast<BitsOf<Scalar>>(matrix.data()[i]));
    }
  }
  return bits;
}

template <class Scalar>
std::vector<std::uint64_t> bits_of(const LayerState<Scalar>& state) {
  std::vector<std::uint64_t> bits;
  if (state.shape().recurrent) bits = bits_of(state.recurrent());
  for (Index b = 0; b < state.sequences(); ++b) {
    bits.push_back(static_cast<std::uint64_t>(state.position(b)));
    for (Index w = 0; w < static_cast<Index>(state.shape().windows.size()); ++w)
      for (Index row = 0; row < state.window(w).rows(); ++row)
        for (Index c = 0; c < state.window(w).channels(); ++c)
          bits.push_back(std::bit_cast<BitsOf<Scalar>>(state.window(w).row(b, row)[c]));
  }
  return bits;
}

}  // namespace linrec::test
