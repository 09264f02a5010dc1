// How a model's files are refused.
#pragma once

#include <string>

#include "tests/catch.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test {

/// The text with which files are refused, without the place where they lie.
inline std::string refusal(const Files& files) {
  const TemporaryDirectory folder;
  write_files(files, folder.path());
  std::string text = error_text<FormatError>([&] { load_double(io::Checkpoint(folder.path())); });
  const std::string path = folder.path().string();
  for (auto at = text.find(path); at != text.npos; at = text.find(path)) text.replace(at, path.size(), "DIR");
  return text;
}

}  // namespace linrec::test
