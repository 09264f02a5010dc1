// What a snapshot consists of: the tensors of a state, their names, and the checksum over all of them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/io/checksum.hpp"
#include "linrec/io/data_type.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/snapshot_ska.hpp"
#include "linrec/kernels/state.hpp"
#include "linrec/layers/layer_state.hpp"

namespace linrec::io {

namespace detail {

template <class S>
inline constexpr bool is_state = false;
template <std::floating_point Scalar, class Sizes, class StateScalar>
inline constexpr bool is_state<State<Scalar, Sizes, StateScalar>> = data_type_of<Scalar>().has_value();

template <class S>
inline constexpr bool is_layer_state = false;
template <std::floating_point Scalar>
inline constexpr bool is_layer_state<LayerState<Scalar>> = data_type_of<Scalar>().has_value();

}  // namespace detail

/// The states that a snapshot can hold: State and LayerState, of float or double, and SkaState.
template <class S>
concept SnapshotState = detail::is_state<S> || detail::is_layer_state<S> || std::same_as<S, SkaState>;

namespace detail {

inline constexpr std::string_view version_key = "linrec.snapshot", scalar_key = "linrec.scalar",
                                  checksum_key = "linrec.checksum", model_key = "linrec.model",
                                  snapshot_version = "1";

/// What kind of state it is, and its sizes but for the number of sequences.
template <SnapshotState S>
std::string kind_text(const S& state) {
  if constexpr (is_layer_state<S>)
    return state.shape().text();
  else if constexpr (std::same_as<S, SkaState>)
    return "ska_state " + state.shape().text();
  else
    return message("state [", state.dims().heads(), ", ", state.dims().key(), ", ", state.dims().value(),
                   "]");
}

// The visitors below call f(part, std::type_identity<Number>(), for_each_run) for tensors of a state.
// for_each_run(g) calls g(pointer, count) on one run of Numbers after the other, in row-major order: to be
// read if the state is const, and to be written if not. What a state refuses is then a ValueError.

template <class S, class F>
void visit_positions(S& state, F&& f) {
  const Part part{".position", "[S]", {state.sequences()}};
  f(part, std::type_identity<std::int64_t>(), [&](auto&& g) {
    for (Index s = 0; s < state.sequences(); ++s) {
      std::int64_t position = state.position(s);
      g(&position, 1);
      if constexpr (!std::is_const_v<S>) try {
          state.set_position(s, position);
        } catch (const ValueError& error) {
          throw ValueError(message("sequence ", s, ": ", error.what()));
        }
    }
  });
}

template <class S, class F>
void visit_matrices(S& state, F&& f) {
  const Index heads = state.dims().heads(), key = state.dims().key(), value = state.dims().value();
  const Part part{".recurrent", "[S, H, K, V]", {state.sequences(), heads, key, value}};
  f(part, std::type_identity<typename S::Scalar>(), [&](auto&& g) {
    for (Index b = 0; b < state.sequences(); ++b)
      for (Index h = 0; h < heads; ++h)
        for (Index k = 0; k < key; ++k)
          for (Index p = 0; p < state.panels(); ++p) {
            const Index count = std::min<Index>(state.lanes, value - p * state.lanes);
            if constexpr (std::same_as<typename S::Scalar, typename S::StateScalar>) {
              g(state.panel(b, h, p) + k * state.lanes, count);
            } else {
              typename S::Scalar row[static_cast<std::size_t>(S::lanes)];
              for (Index i = 0; i < count; ++i)
                row[i] = static_cast<typename S::Scalar>(state.panel(b, h, p)[S::place(k, i)]);
              g(row, count);
              if constexpr (!std::is_const_v<S>)
                for (Index i = 0; i < count; ++i)
                  state.panel(b, h, p)[S::place(k, i)] = typename S::StateScalar(row[i]);
            }
          }
  });
}

/// The tensors of what a state has taken in: matrices, windows and the sums of SKA.
template <class S, class F>
void visit_numbers(S& state, F&& f) {
  if constexpr (std::same_as<std::remove_const_t<S>, SkaState>) {
    visit_ska_sums(state, f);
  } else if constexpr (is_layer_state<std::remove_const_t<S>>) {
    const LayerStateShape& shape = state.shape();
    if (shape.recurrent) visit_matrices(state.recurrent(), f);
    if (shape.ska) visit_ska_sums(state.ska(), f);
    for (std::size_t i = 0; i < shape.windows.size(); ++i) {
      const auto& [name, rows, channels] = shape.windows[i];
      auto& window = state.window(static_cast<Index>(i));
      const Part part{".window." + name, "[S, rows, channels]", {state.sequences(), rows, channels}};
      f(part, std::type_identity<typename S::Scalar>(), [&, n = rows, count = channels](auto&& g) {
        for (Index s = 0; s < state.sequences() && count > 0; ++s)
          for (Index row = 0; row < n; ++row) g(window.row(s, row), count);
      });
    }
  } else {
    visit_matrices(state, f);
  }
}

/// All tensors.
template <class S, class F>
void visit_parts(S& state, F&& f) {
  visit_positions(state, f);
  visit_numbers(state, f);
  if constexpr (std::same_as<std::remove_const_t<S>, SkaState>) {
    visit_ska_records(state, f);
  } else if constexpr (is_layer_state<std::remove_const_t<S>>) {
    if (state.shape().ska) visit_ska_records(state.ska(), f);
  }
}

/// The names of all tensors of a state.
/// @param taken those of other states.
/// @throws ValueError if one of them is taken, or needed twice.
template <SnapshotState S, class Names>
std::set<std::string> tensor_names(const std::string& name, const S& state, const Names& taken) {
  std::set<std::string> names;
  const auto add = [&](const Part& part) {
    const std::string tensor = name + part.suffix;
    if (taken.contains(tensor) || !names.insert(tensor).second)
      throw ValueError(message("state ", in_quotes(name), ": expected names of its own, but tensor ",
                               in_quotes(tensor), " is there already"));
  };
  visit_parts(state, [&](const Part& part, auto&&...) { add(part); });
  return names;
}

/// All of a tensor that the checksum of a snapshot covers, but for its name.
struct TensorSummary {
  DataType type;
  std::vector<Index> shape;
  std::uint64_t checksum;  ///< of its bytes
};

/// CRC-64/XZ, in hexadecimal, of the metadata (but for the checksum itself), then the tensors, both sorted
/// by name. A text is its length and its bytes; a tensor is its name, type, rank, extents and the checksum of
/// its bytes; a number is eight bytes, little-endian; each list is preceded by its length. Where the tensors
/// lie in the file, and how the header is spaced, does not matter.
inline std::string snapshot_checksum(const std::map<std::string, std::string>& metadata,
                                     const std::map<std::string, TensorSummary>& tensors) {
  Crc64 crc;
  const auto number = [&](std::uint64_t x) { crc.update(std::as_bytes(std::span(&x, 1))); };
  const auto text = [&](std::string_view x) {
    number(x.size());
    crc.update(std::as_bytes(std::span(x)));
  };
  number(metadata.size() - metadata.count(std::string(checksum_key)));
  for (const auto& [key, value] : metadata) {
    if (key == checksum_key) continue;
    text(key);
    text(value);
  }
  number(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    text(name);
    text(name_of(tensor.type));
    number(tensor.shape.size());
    for (const Index extent : tensor.shape) number(static_cast<std::uint64_t>(extent));
    number(tensor.checksum);
  }
  std::string digits(16, '0');
  for (std::size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(crc.value() >> (60 - 4 * i)) & 0xfU];
  return digits;
}

}  // namespace detail

}  // namespace linrec::io
