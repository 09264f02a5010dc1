// JSON files that people write around checkpoints: config.json and model.safetensors.index.json.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "linrec/core/errors.hpp"
#include "linrec/io/file_bytes.hpp"

namespace linrec::io::detail {

/// Python writes infinities and NaN as bare words, which JSON does not have: puts quotes around them.
inline std::string quote_bare_words(std::string_view text) {
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!in_string) {
      std::string_view found;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (found.empty() && text.substr(i).starts_with(word)) found = word;
      if (!found.empty()) {
        result.append("\"").append(found).append("\"");
        i += found.size();
        continue;
      }
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) result += text[i++];
    result += text[i++];
  }
  return result;
}

/// How deep arrays and objects lie in each other.
inline std::size_t json_depth(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\') ++i;
    if (in_string) continue;
    if (text[i] == '[' || text[i] == '{') deepest = std::max(deepest, ++depth);
    if ((text[i] == ']' || text[i] == '}') && depth > 0) --depth;
  }
  return deepest;
}

/// @throws FormatError, naming the file and the reason, if it is no JSON object.
inline nlohmann::json read_json_object(const std::filesystem::path& path) {
  constexpr std::size_t limit = std::size_t{1} << 28;
  const FileBytes file = read_file(path);
  if (file.bytes.size() > limit)
    throw FormatError(message("file '", path.string(), "': expected at most ", limit, " bytes of JSON, got ",
                              file.bytes.size()));
  const std::string text =
      quote_bare_words(std::string_view(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()));
  constexpr std::size_t deepest = 100;  // copying and printing JSON is recursive
  if (json_depth(text) > deepest)
    throw FormatError(message("file '", path.string(), "': expected JSON that is nested at most ", deepest,
                              " deep, got ", json_depth(text)));
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(message("file '", path.string(), "': is not valid JSON: ", error.what()));
  }
  if (!json.is_object()) throw FormatError(message("file '", path.string(), "': expected a JSON object"));
  return json;
}

}  // namespace linrec::io::detail
