#include "memory_file.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include "linrec/io/safetensors.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "linrec/io/snapshot.hpp"

namespace recall {

namespace {

constexpr const char* version_key = "linrec.recall";

std::int64_t checksum(const std::vector<std::int64_t>& options, double ridge, const std::string& texts) {
  std::uint64_t h = detail::hash(texts, detail::hash(linrec::message(ridge), 1));
  for (const std::int64_t x : options) h = detail::mixed(h ^ static_cast<std::uint64_t>(x));
  return static_cast<std::int64_t>(h);
}

}  // namespace

void save_memory(const std::filesystem::path& path, const AssociativeMemory& memory) {
  const MemoryOptions& o = memory.options();
  const std::vector<std::int64_t> options{o.rank, o.value_dim, o.power, o.keys == TextKind::whole ? 0 : 1,
                                          static_cast<std::int64_t>(o.seed)};
  std::vector<std::int64_t> lengths;
  std::string texts;
  for (Index i = 0; i < memory.values().size(); ++i) {
    lengths.push_back(static_cast<std::int64_t>(memory.values().text(i).size()));
    texts += memory.values().text(i);
  }
  std::vector<std::int64_t> summed = options;
  summed.insert(summed.end(), lengths.begin(), lengths.end());
  const std::vector<std::byte> snapshot = linrec::io::snapshot_bytes(memory.state());
  const auto bytes = [](const auto& x) {
    return std::span(reinterpret_cast<const std::uint8_t*>(x.data()), x.size());
  };
  linrec::io::SafetensorsWriter file;
  file.add("snapshot", {static_cast<Index>(snapshot.size())}, bytes(snapshot));
  file.add("options", {5}, options);
  file.add("ridge", {1}, std::vector<double>{o.ridge});
  file.add("lengths", {static_cast<Index>(lengths.size())}, lengths);
  file.add("values", {static_cast<Index>(texts.size())}, bytes(texts));
  file.add("checksum", {1}, std::vector<std::int64_t>{checksum(summed, o.ridge, texts)});
  file.set_metadata(version_key, "1");
  file.write(path);
}

AssociativeMemory load_memory(const std::filesystem::path& path) {
  const linrec::io::SafetensorsFile file(path);
  const auto refuse = [&](const auto&... reason) {
    throw linrec::FormatError(linrec::message("file '", path.string(), "': ", reason...));
  };
  const auto version = file.metadata().find(version_key);
  if (version == file.metadata().end() || version->second != "1")
    refuse("expected a memory that --save of this version wrote");
  const auto options = file.tensor("options").to<std::int64_t>(),
             lengths = file.tensor("lengths").to<std::int64_t>(),
             sum = file.tensor("checksum").to<std::int64_t>();
  const auto ridge = file.tensor("ridge").to<double>();
  const auto values = file.tensor("values").bytes;
  const std::string texts(reinterpret_cast<const char*>(values.data()), values.size());
  std::vector<std::int64_t> summed(options.begin(), options.end());
  summed.insert(summed.end(), lengths.begin(), lengths.end());
  if (options.size() != 5 || ridge.size() != 1 || sum.size() != 1 ||
      sum[0] != checksum(summed, ridge[0], texts))
    refuse("the options or the values are damaged");
  // What a file may make us allocate: no more than it holds, G and Cv at least.
  const auto snapshot = file.tensor("snapshot").bytes;
  const double rank = static_cast<double>(options[0]), value_dim = static_cast<double>(options[1]);
  if (rank * (rank + value_dim) * sizeof(double) > static_cast<double>(snapshot.size()))
    refuse("a snapshot of ", snapshot.size(), " bytes is too short for its sizes");

  AssociativeMemory memory({.rank = options[0],
                            .value_dim = options[1],
                            .ridge = ridge[0],
                            .power = options[2],
                            .keys = options[3] == 0 ? TextKind::whole : TextKind::ngrams,
                            .seed = static_cast<std::uint64_t>(options[4])});
  std::size_t at = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0 || static_cast<std::size_t>(length) > texts.size() - at)
      refuse("the values are cut short");
    memory.values().add(std::string_view(texts).substr(at, static_cast<std::size_t>(length)));
    at += static_cast<std::size_t>(length);
  }
  try {
    linrec::io::load_snapshot_bytes({snapshot.begin(), snapshot.end()}, memory.state());
  } catch (const linrec::FormatError& error) {
    refuse("the snapshot in it: ", error.what());
  }
  return memory;
}

}  // namespace recall
