// Text that came out of a file, made fit for error messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace linrec::io::detail {

/// Text from a file, fit for a message: no control characters, and short.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t limit = 80;
  const bool cut = text.size() > limit;
  if (cut) {
    std::size_t end = limit;  // not inside a UTF-8 sequence
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
    text = text.substr(0, end);
  }
  std::string shown(text);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return cut ? shown + "..." : shown;
}

inline std::string in_quotes(std::string_view text) { return "'" + excerpt(text) + "'"; }

}  // namespace linrec::io::detail
