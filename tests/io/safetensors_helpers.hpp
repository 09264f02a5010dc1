// Files built byte by byte, and a directory to put them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linrec/core/errors.hpp"

namespace linrec::test {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& bytes, std::string_view text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

/// A safetensors file of this header and data, with `length` written before them.
inline Bytes raw_file(std::string_view header, std::string_view data, std::uint64_t length) {
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>((length >> (8 * i)) & 0xffU));
  append(bytes, header);
  append(bytes, data);
  return bytes;
}

inline Bytes raw_file(std::string_view header, std::string_view data) {
  return raw_file(header, data, header.size());
}

/// The same file with `spaces` more in its header, so that the data begins somewhere else.
inline Bytes shifted(const Bytes& file, std::size_t spaces) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return raw_file(std::string(text.substr(8, length)) + std::string(spaces, ' '), text.substr(8 + length));
}

inline void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline Bytes file_contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  Bytes bytes;
  for (char c; stream.get(c);) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

/// A new empty directory, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::random_device random;
    do path_ = std::filesystem::temp_directory_path() / ("linrec-test-" + std::to_string(random()));
    while (!std::filesystem::create_directory(path_));
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      result.push_back(entry.path().filename().string());
    return result;
  }

 private:
  std::filesystem::path path_;
};

/// The text of the ExpectedError that `f` throws; other exceptions pass through. Says so if none comes.
template <class ExpectedError, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const ExpectedError& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace linrec::test
