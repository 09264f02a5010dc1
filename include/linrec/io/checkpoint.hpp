// Checkpoint: the tensors of a model, in one safetensors file or in several, and its config.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/io/checksum.hpp"
#include "linrec/io/config_reader.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/json_text.hpp"
#include "linrec/io/safetensors.hpp"

namespace linrec::io {

/// Tensors whose names begin so are a checkpoint's own test (self_test.hpp).
inline constexpr const char* self_test_prefix = "linrec.test.";

/// Copies share the mapped files, which must not be changed while they are open.
class Checkpoint {
 public:
  /// @param path a safetensors file; or a folder with model.safetensors, or with the shards that its
  ///   model.safetensors.index.json names. A config.json in the same folder belongs to it.
  /// @throws FormatError, naming the file, the tensors and the reason.
  explicit Checkpoint(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path, ignored);
    if (!folder) {
      add_all(SafetensorsFile(path), name_);
    } else if (std::filesystem::exists(path / "model.safetensors", ignored)) {
      add_all(SafetensorsFile(path / "model.safetensors"), "model.safetensors");
    } else if (std::filesystem::exists(path / index_name, ignored)) {
      add_shards(path);
    } else {
      throw FormatError(
          message("folder '", name_, "': expected model.safetensors or ", index_name, ", found neither"));
    }
    const std::filesystem::path config = (folder ? path : path.parent_path()) / "config.json";
    if (std::filesystem::exists(config, ignored))
      config_ = ConfigReader(config.string(), detail::read_json_object(config));
  }

  /// From one file that is open.
  Checkpoint(const SafetensorsFile& file, std::string name) : name_(std::move(name)) { add_all(file, name_); }

  /// The path, for error texts.
  const std::string& name() const { return name_; }
  /// The contents of config.json, if there is one.
  const std::optional<ConfigReader>& config() const { return config_; }
  /// The texts under `__metadata__` of all files.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  /// @throws FormatError, naming the checkpoint, if there is none of that name.
  const Tensor& tensor(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      throw FormatError(message("checkpoint '", name_, "': has no tensor ", detail::in_quotes(name)));
    return found->second;
  }

  /// The same tensors by the names that rename(name) gives them, but for those that get an empty one.
  /// @throws FormatError, naming the checkpoint and the tensor, if two would have one name.
  template <class Rename>
  Checkpoint renamed(Rename&& rename) const {
    Checkpoint result = *this;
    result.tensors_.clear();
    for (const auto& [name, tensor] : tensors_) {
      const std::string other = rename(name);
      if (!other.empty() && !result.tensors_.emplace(other, tensor).second)
        throw FormatError(message("checkpoint '", name_, "': tensor ", detail::in_quotes(name),
                                  ": expected the only one that means ", detail::in_quotes(other),
                                  ", got a second one"));
    }
    return result;
  }

  /// Tells models apart: a checksum of the names, types and shapes of all tensors and of some bytes of each,
  /// but for the checkpoint's own test.
  std::uint64_t fingerprint() const {
    constexpr std::size_t sample = 4096;
    Crc64 crc;
    for (const auto& [name, tensor] : tensors_) {
      if (name.starts_with(self_test_prefix)) continue;
      const std::string text = message(name, " ", name_of(tensor.type), " ", shape_text(tensor.shape), ";");
      crc.update(std::as_bytes(std::span(text)));
      crc.update(tensor.bytes.first(std::min(sample, tensor.bytes.size())));
      crc.update(tensor.bytes.last(std::min(sample, tensor.bytes.size())));
    }
    return crc.value();
  }

 private:
  static constexpr const char* index_name = "model.safetensors.index.json";

  void add_all(const SafetensorsFile& file, const std::string& file_name) {
    for (const std::string& tensor : file.names())
      if (!tensors_.emplace(tensor, file.tensor(tensor)).second)
        throw FormatError(message("checkpoint '", name_, "': tensor ", detail::in_quotes(tensor), " is in '",
                                  detail::excerpt(file_name), "' and in another file"));
    metadata_.insert(file.metadata().begin(), file.metadata().end());
  }

  /// The index says which file has which tensor. All tensors of these files belong to the checkpoint.
  void add_shards(const std::filesystem::path& folder) {
    const nlohmann::json index = detail::read_json_object(folder / index_name);
    const auto refuse = [&](const auto&... reason) {
      throw FormatError(message("file '", (folder / index_name).string(), "': ", reason...));
    };
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object()) refuse("expected an object 'weight_map'");
    std::map<std::string, std::vector<std::string>> tensors_of;  // by file
    for (const auto& [tensor, file] : map->items()) {
      if (!file.is_string()) refuse("weight_map: expected a file name for ", detail::in_quotes(tensor));
      tensors_of[file.get<std::string>()].push_back(tensor);
    }
    std::string missing;
    for (const auto& [file_name, tensors] : tensors_of) {
      const std::filesystem::path relative(file_name);
      if (file_name.empty() || relative.filename() != relative || relative == "..")
        refuse("weight_map: expected the name of a file in the same folder, got ",
               detail::in_quotes(file_name));
      const SafetensorsFile file(folder / relative);
      add_all(file, file_name);
      for (const std::string& tensor : tensors)
        if (!file.contains(tensor))
          missing +=
              message("\n  ", detail::in_quotes(file_name), " has no tensor ", detail::in_quotes(tensor));
    }
    if (!missing.empty()) refuse("does not agree with the files:", missing);
  }

  std::string name_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
  std::optional<ConfigReader> config_;
};

}  // namespace linrec::io
