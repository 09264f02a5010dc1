// Where pairs come from: a file of lines "key<TAB>value", or the doc comments of C++ headers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../common/text.hpp"
#include "linrec/core/errors.hpp"

namespace recall {

struct Pair {
  std::string key, value;
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// Lines are no longer than this many bytes: what is longer is no file of pairs.
inline constexpr std::size_t longest_line = 10000;

namespace detail {

inline std::ifstream opened(const std::string& path, const char* expected) {
  if (std::filesystem::is_directory(path))
    throw linrec::FormatError(linrec::message(path, ": expected ", expected, ", got a directory"));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw linrec::FormatError(linrec::message(path, ": expected ", expected, ", cannot open it"));
  return file;
}

/// @throws linrec::FormatError that names file and line.
inline Pair pair_of(std::string_view line, const std::string& path, std::size_t number) {
  const auto refuse = [&](const auto&... got) {
    throw linrec::FormatError(
        linrec::message(path, ", line ", number, ": expected KEY<TAB>VALUE, got ", got...));
  };
  if (line.size() > longest_line) refuse("a line of ", line.size(), " bytes");
  const std::size_t tab = line.find('\t');
  if (tab == line.npos) refuse("no tab in ", text::in_quotes(line));
  Pair pair{std::string(text::trimmed(line.substr(0, tab))),
            std::string(text::trimmed(line.substr(tab + 1)))};
  if (pair.key.empty()) refuse("no key before ", text::in_quotes(pair.value));
  if (pair.value.empty()) refuse("no value after ", text::in_quotes(pair.key));
  for (const std::string* text : {&pair.key, &pair.value})
    for (const char c : *text)
      if (c == '\t')
        refuse("more than one tab in ", text::in_quotes(line));
      else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        refuse("a control character in ", text::in_quotes(*text));
  return pair;
}

}  // namespace detail

/// Reads lines "key<TAB>value"; blanks around both do not count. LF and CRLF line ends, a byte-order mark and
/// blank lines are fine. Keys may come more than once.
/// @throws linrec::FormatError that names the file, and the line where there is one.
inline std::vector<Pair> read_pairs(const std::string& path) {
  std::ifstream file = detail::opened(path, "a file of pairs");
  std::vector<Pair> pairs;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    std::string_view text = line;
    if (number == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (!text::trimmed(text).empty()) pairs.push_back(detail::pair_of(text, path, number));
  }
  if (file.bad())
    throw linrec::FormatError(linrec::message(path, ": expected a file of pairs, cannot read it"));
  if (pairs.empty())
    throw linrec::FormatError(linrec::message(path, ": expected at least one pair, got none"));
  return pairs;
}

namespace detail {

/// The name that a line of C++ declares: the last word before its first bracket, brace, '=' or ';'.
inline std::string declared_name(std::string_view line) {
  const std::string_view head = text::trimmed(line.substr(0, line.find_first_of("({;=")));
  std::size_t start = head.size();
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  while (start > 0 && in_word(head[start - 1])) --start;
  return std::string(head.substr(start));
}

/// What the doc comments (///) of a header say, by their first lines, under "FILE NAME".
inline void add_glossary(const std::string& path, const std::string& file, std::vector<Pair>& pairs) {
  std::ifstream header = opened(path, "a header");
  std::string line, comment;
  while (std::getline(header, line)) {
    const std::string_view text = text::trimmed(line);
    if (text.starts_with("///")) {
      if (comment.empty()) comment = text::trimmed(text.substr(3));
    } else if (!text.starts_with("template")) {  // the name is on the next line
      const std::string name = declared_name(text);
      if (!comment.empty() && !comment.starts_with('@') && !name.empty())
        pairs.push_back({file + ' ' + name, comment});
      comment.clear();
    }
  }
}

}  // namespace detail

/// A glossary of the headers in a folder: keys "kernels/state matrix", values the first line of the doc
/// comment. Of names that a file declares more than once, the first one.
/// @throws linrec::FormatError that names what cannot be read.
inline std::vector<Pair> glossary(const std::string& folder) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(folder))
    throw linrec::FormatError(linrec::message(folder, ": expected a folder of headers, found none"));
  std::vector<std::string> files;  // the order of a directory is anything
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".hpp")
      files.push_back(fs::relative(entry.path(), folder).generic_string());
  std::sort(files.begin(), files.end());
  std::vector<Pair> all, pairs;
  for (const std::string& file : files)
    detail::add_glossary(folder + '/' + file, file.substr(0, file.size() - 4), all);
  std::unordered_set<std::string> seen;
  for (Pair& pair : all)
    if (seen.insert(pair.key).second) pairs.push_back(std::move(pair));
  if (pairs.empty())
    throw linrec::FormatError(linrec::message(folder, ": expected headers with doc comments, found none"));
  return pairs;
}

}  // namespace recall
