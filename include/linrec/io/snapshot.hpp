// Snapshots: states as bytes or files, and back, bit for bit. For S sequences, a state NAME is
//
//   NAME.position       I64 [S]                  tokens that each sequence has seen, 0 to 2^53
//   NAME.recurrent      F32 or F64 [S, H, K, V]  key-major, as State::matrix; if there is a recurrent part
//   NAME.window.WINDOW  ... [S, rows, channels]  for each window, oldest row first
//
// and, for each state with statistics of SKA, of H heads with keys [r] and values [P] (ska/statistics.hpp),
//
//   NAME.ska.G, .M, .Cv        F64 [S, H, r (r + 1) / 2], [S, H, r, r], [S, H, P, r]: of G the lower triangle
//   NAME.ska.last_key, .first_key, .max_norm   F64 [S, H, r], [S, H, r], [S, H]
//   NAME.ska.tokens, .empty    I64 [S, H]  tokens taken in; 1 if the next counts as the first
//   NAME.ska.factor.W          F64 [S, H, r (r + 1) / 2]  L^-1, lower triangle; 0 unless the status is 1
//   NAME.ska.factor.status     I64 [S, H]  0 to 3, a FactorStatus
//   NAME.ska.factor.eps, .ridge, .residual     F64 [S, H]  what W was made with, and how exact it was
//   NAME.ska.factor.updates, .unread           I64 [S, H]  updates of W since it was made, and since a read
//   NAME.ska.failures          I64 [S, H]  queries without an answer
//   NAME.ska.past.*            likewise but for failures, of earlier chunks, if chunks are told apart
//
// F64 whatever the scalar of the state is, and with the factor as it is: made anew, it would differ in
// rounding.
//
// It is a safetensors file with the metadata "linrec.snapshot": "1" (the version), "linrec.scalar": "F32" or
// "F64", "linrec.checksum" (see snapshot_checksum) and for each state "NAME.shape", its kind and sizes. There
// is nothing else. All of it is checked against the states that are to be filled before one of them changes,
// so that neither damage nor the state of another model passes for a state.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/io/snapshot_parts.hpp"
#include "linrec/io/snapshot_reader.hpp"
#include "linrec/io/snapshot_writer.hpp"
#include "linrec/models/model_state.hpp"

namespace linrec::io {

/// Several states, those of the layers of a model for one: a vector, an array, a span.
template <class States>
concept SnapshotStates = std::ranges::random_access_range<States> && std::ranges::sized_range<States> &&
    SnapshotState<std::ranges::range_value_t<States>>;

namespace detail {

inline constexpr const char* name_of_only_state = "state";

/// Adds each of several states under its name to a writer or a reader.
template <class WriterOrReader, SnapshotStates States>
WriterOrReader with_all(WriterOrReader all, States& states, const std::vector<std::string>& names) {
  const auto count = static_cast<std::size_t>(std::ranges::size(states));
  if (names.size() != count)
    throw ValueError(message("names: expected ", count, ", one for each state, got ", names.size()));
  auto state = std::ranges::begin(states);
  for (const std::string& name : names) all.add(name, *state++);
  return all;
}

template <class WriterOrReader, class S>
WriterOrReader with_one(WriterOrReader all, S& state) {
  all.add(name_of_only_state, state);
  return all;
}

}  // namespace detail

/// Writes a state to a file; it is replaced whole, or not at all.
/// @throws Error, naming the path and the reason, if it cannot be written.
template <SnapshotState S>
void save_snapshot(const std::filesystem::path& path, const S& state) {
  detail::with_one(SnapshotWriter(), state).write(path);
}

/// Fills a state, made by the same layer for as many sequences, from a file that save_snapshot wrote.
/// @throws FormatError, naming the file, the tensor, what was expected and what came, if the file cannot be
///   read, is damaged or does not fit the state; the state has not changed then.
template <SnapshotState S>
void load_snapshot(const std::filesystem::path& path, S& state) {
  detail::with_one(SnapshotReader(path), state).load();
}

/// The same in memory.
template <SnapshotState S>
std::vector<std::byte> snapshot_bytes(const S& state) {
  return detail::with_one(SnapshotWriter(), state).bytes();
}
/// @throws FormatError likewise; the file is called "(memory)".
template <SnapshotState S>
void load_snapshot_bytes(std::vector<std::byte> bytes, S& state) {
  detail::with_one(SnapshotReader::from_bytes(std::move(bytes)), state).load();
}

/// Writes several states, each under its name.
/// @throws Error likewise, ValueError if names are not one for each state, different, and UTF-8.
template <SnapshotStates States>
void save_snapshot(const std::filesystem::path& path, const States& states,
                   const std::vector<std::string>& names) {
  detail::with_all(SnapshotWriter(), states, names).write(path);
}

/// Fills several states, all or none, from a file that has these names and no others.
/// @throws FormatError, ValueError likewise.
template <SnapshotStates States>
void load_snapshot(const std::filesystem::path& path, States&& states,
                   const std::vector<std::string>& names) {
  detail::with_all(SnapshotReader(path), states, names).load();
}

/// The same in memory.
template <SnapshotStates States>
std::vector<std::byte> snapshot_bytes(const States& states, const std::vector<std::string>& names) {
  return detail::with_all(SnapshotWriter(), states, names).bytes();
}
template <SnapshotStates States>
void load_snapshot_bytes(std::vector<std::byte> bytes, States&& states,
                         const std::vector<std::string>& names) {
  detail::with_all(SnapshotReader::from_bytes(std::move(bytes)), states, names).load();
}

namespace detail {

template <class Scalar>
std::vector<std::string> layer_names(const ModelState<Scalar>& state) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < state.layers().size(); ++i) names.push_back("layer." + std::to_string(i));
  return names;
}

template <class Scalar>
SnapshotWriter with_model(const ModelState<Scalar>& state) {
  SnapshotWriter writer;
  writer.set_model(state.model());
  return with_all(std::move(writer), state.layers(), layer_names(state));
}
template <class Scalar>
void load_model_state(SnapshotReader reader, ModelState<Scalar>& state) {
  reader.expect_model(state.model());
  with_all(std::move(reader), state.layers(), layer_names(state)).load();
}

}  // namespace detail

/// The state of a model: its layers' states, called layer.0 and so on, and the metadata "linrec.model", its
/// architecture and fingerprint.
/// @throws as above.
template <class Scalar>
void save_snapshot(const std::filesystem::path& path, const ModelState<Scalar>& state) {
  detail::with_model(state).write(path);
}
template <class Scalar>
void load_snapshot(const std::filesystem::path& path, ModelState<Scalar>& state) {
  detail::load_model_state(SnapshotReader(path), state);
}
template <class Scalar>
std::vector<std::byte> snapshot_bytes(const ModelState<Scalar>& state) {
  return detail::with_model(state).bytes();
}
template <class Scalar>
void load_snapshot_bytes(std::vector<std::byte> bytes, ModelState<Scalar>& state) {
  detail::load_model_state(SnapshotReader::from_bytes(std::move(bytes)), state);
}

}  // namespace linrec::io
