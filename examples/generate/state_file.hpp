// Where a run stopped, as a file: a snapshot of the model's state, and what the next token depends on
// besides.
//
//   snapshot    U8 [n]    of linrec/io/snapshot.hpp
//   last_token  I64 [1]   the last token, which the state has not seen: its logits are still to come
//   metadata    linrec.generate "1" (the version); seed and draws, the state of the random numbers
//
// a safetensors file. The snapshot is whole in itself, with its checksum, for a snapshot holds states and
// nothing else.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "linrec/io/safetensors.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "linrec/io/snapshot.hpp"
#include "linrec/models/language_model.hpp"

namespace generate {

/// What a run needs to go on, besides the state.
struct Resume {
  linrec::TokenId last_token = 0;
  std::uint64_t seed = 0, draws = 0;
};

namespace detail {

inline constexpr const char* version_key = "linrec.generate";

}  // namespace detail

/// Writes the file, or leaves an old one as it was.
/// @throws linrec::Error, naming the path and the reason, if that fails.
inline void save_state(const std::filesystem::path& path, const linrec::ModelState<float>& state,
                       const Resume& resume) {
  const std::vector<std::byte> bytes = linrec::io::snapshot_bytes(state);
  const std::vector<std::int64_t> last{resume.last_token};
  linrec::io::SafetensorsWriter file;
  file.add("snapshot", {static_cast<linrec::Index>(bytes.size())},
           std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
  file.add("last_token", {1}, last);
  file.set_metadata(detail::version_key, "1");
  file.set_metadata("seed", std::to_string(resume.seed));
  file.set_metadata("draws", std::to_string(resume.draws));
  file.write(path);
}

/// Fills a fresh state of the model.
/// @throws linrec::FormatError, naming the file and the reason, if it cannot be read, is damaged, or belongs
///   to another model; the state has not changed then.
inline Resume load_state(const std::filesystem::path& path, linrec::Index vocabulary,
                         linrec::ModelState<float>& state) {
  const linrec::io::SafetensorsFile file(path);
  const auto refuse = [&](const auto&... reason) {
    throw linrec::FormatError(linrec::message("file '", path.string(), "': ", reason...));
  };
  const auto text = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  const auto number = [&](const std::string& key) {
    const std::string digits = text(key);
    std::uint64_t x = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), x);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
      refuse("metadata '", key, "': expected a whole number of at least 0");
    return x;
  };
  if (text(detail::version_key) != "1") refuse("expected a state that --save-state of this version wrote");
  Resume resume{0, number("seed"), number("draws")};
  const auto last = file.tensor("last_token").to<std::int64_t>();
  if (last.size() != 1 || last[0] < 0 || last[0] >= vocabulary)
    refuse("tensor 'last_token': expected one token from 0 to ", vocabulary - 1);
  resume.last_token = static_cast<linrec::TokenId>(last[0]);

  const auto snapshot = file.tensor("snapshot");
  auto loaded = state;
  try {
    linrec::io::load_snapshot_bytes({snapshot.bytes.begin(), snapshot.bytes.end()}, loaded);
  } catch (const linrec::FormatError& error) {
    refuse("the snapshot in it: ", error.what());
  }
  // Every draw was for a token that the state has seen, but for the last; passing over them takes time.
  if (resume.draws > static_cast<std::uint64_t>(loaded.position(0)) + 1)
    refuse("metadata 'draws': expected no more than tokens, got ", resume.draws);
  state = std::move(loaded);
  return resume;
}

}  // namespace generate
