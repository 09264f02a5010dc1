// Draws with gnuplot, if it is installed. A script goes to gnuplot through a pipe, data included; the command
// line is a constant. Texts stand in single quotes, where gnuplot expands nothing, and outputs are absolute
// paths, which cannot be taken for a command ("|...") or a home directory.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "linrec/core/errors.hpp"

namespace gnuplot {

/// Text between gnuplot's single quotes.
inline std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20;
    result += c == '\'' ? "''" : control ? "?" : std::string(1, c);
  }
  return result + "'";
}

/// The path of a picture as a script has it.
inline std::string output_path(const std::filesystem::path& output) {
  return single_quoted(std::filesystem::absolute(output).string());
}

inline bool is_installed() {
  return std::system("command -v gnuplot > /dev/null 2>&1") == 0;  // a constant: no name gets near the shell
}

/// Runs a script that draws `output`.
/// @throws linrec::Error if gnuplot cannot draw it, for want of a writable file mostly.
inline void run(const std::string& script, const std::filesystem::path& output) {
  std::signal(SIGPIPE, SIG_IGN);  // a gnuplot that dies is reported, and does not take us along
  std::FILE* pipe = ::popen("gnuplot -d", "w");
  if (pipe == nullptr) throw linrec::Error("gnuplot: cannot start it");
  const bool written = std::fwrite(script.data(), 1, script.size(), pipe) == script.size();
  if (::pclose(pipe) != 0 || !written)
    throw linrec::Error(linrec::message(output.string(), ": gnuplot could not draw it"));
}

}  // namespace gnuplot
