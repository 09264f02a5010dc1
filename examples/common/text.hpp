// Texts from files, as programs read them and show them.
#pragma once

#include <string>
#include <string_view>

namespace text {

/// The text in quotes, cut short; control characters become '?', so that no file can steer a terminal.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string shown = "\"";
  for (const char c : text.substr(0, longest)) {
    const auto code = static_cast<unsigned char>(c);
    shown += code < 0x20 || code == 0x7f ? '?' : c;
  }
  return shown + (text.size() > longest ? "...\"" : "\"");
}

/// Without blanks at both ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

}  // namespace text
