// The bits of a state, states with bits of all sorts, and snapshots that are taken apart.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "linrec/io/snapshot.hpp"
#include "linrec/kernels/state.hpp"
#include "linrec/layers/layer_state.hpp"
#include "tests/io/safetensors_helpers.hpp"

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

/// A snapshot taken apart, to be changed and sealed again with the right checksum.
struct Contents {
  struct Numbers {
    io::DataType type;
    std::vector<Index> shape;
    std::vector<double> values;
  };
  std::map<std::string, std::string> metadata;
  std::map<std::string, Numbers> tensors;
};

inline Contents contents_of(const Bytes& bytes) {
  const auto file = io::SafetensorsFile::from_bytes(bytes, "f");
  Contents contents{file.metadata(), {}};
  for (const std::string& name : file.names()) {
    const io::Tensor tensor = file.tensor(name);
    contents.tensors[name] = {tensor.type, tensor.shape, tensor.to<double>()};
  }
  return contents;
}

inline Bytes sealed(const Contents& contents) {
  io::SafetensorsWriter writer;
  std::map<std::string, io::detail::TensorSummary> summaries;
  const auto add = [&]<class T>(const std::string& name, const Contents::Numbers& tensor, T) {
    std::vector<T> values;
    for (const double value : tensor.values) values.push_back(static_cast<T>(value));
    writer.add(name, tensor.shape, values);
    summaries[name] = {tensor.type, tensor.shape, io::crc64(std::as_bytes(std::span(values)))};
  };
  for (const auto& [name, tensor] : contents.tensors) {
    if (tensor.type == io::DataType::F32) add(name, tensor, float{});
    if (tensor.type == io::DataType::F64) add(name, tensor, double{});
    if (tensor.type == io::DataType::I64) add(name, tensor, std::int64_t{});
  }
  for (const auto& [key, value] : contents.metadata) writer.set_metadata(key, value);
  writer.set_metadata("linrec.checksum", io::detail::snapshot_checksum(contents.metadata, summaries));
  return writer.bytes();
}

}  // namespace linrec::test
