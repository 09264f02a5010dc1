// The bytes of a file, mapped into memory where the system can, read otherwise.
#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#if __has_include(<sys/mman.h>) && __has_include(<unistd.h>)
#define LINREC_HAS_MMAP 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define LINREC_HAS_MMAP 0
#endif

#include "linrec/core/errors.hpp"

namespace linrec::io {

/// Bytes that nobody changes, and what keeps them alive. Copies share the bytes.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

inline FileBytes own_bytes(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {std::span(owner->data(), owner->size()), owner};
}

namespace detail {

[[noreturn]] inline void refuse_file(const std::filesystem::path& path, const std::string& reason) {
  throw FormatError(message("file '", path.string(), "': ", reason));
}

// Directories open and FIFOs block, so look before opening.
inline void check_regular_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) refuse_file(path, "no such file");
  if (error) refuse_file(path, "cannot be opened: " + error.message());
  if (std::filesystem::is_directory(status)) refuse_file(path, "is a directory");
  if (!std::filesystem::is_regular_file(status)) refuse_file(path, "is not a regular file");
}

}  // namespace detail

/// Reads a whole file.
/// @throws FormatError, naming the path and the reason, if that fails.
inline FileBytes read_file(const std::filesystem::path& path) {
  detail::check_regular_file(path);
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream) detail::refuse_file(path, "cannot be opened");
  const std::streamoff size = stream.tellg();
  if (size < 0) detail::refuse_file(path, "cannot be read");
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  stream.seekg(0);
  if (size > 0 && !stream.read(reinterpret_cast<char*>(bytes.data()), size))
    detail::refuse_file(path, "cannot be read");
  return own_bytes(std::move(bytes));
}

/// Maps a whole file, read-only; reads it where files cannot be mapped.
/// @throws FormatError, naming the path and the reason, if neither works.
inline FileBytes map_file(const std::filesystem::path& path) {
#if LINREC_HAS_MMAP
  detail::check_regular_file(path);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) detail::refuse_file(path, "cannot be opened: " + std::generic_category().message(errno));
  struct stat status {};
  void* address = MAP_FAILED;
  if (::fstat(file, &status) == 0 && status.st_size > 0)
    address = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);  // the mapping stays
  if (address != MAP_FAILED) {
    const auto size = static_cast<std::size_t>(status.st_size);
    std::shared_ptr<const void> owner(address, [size](void* mapped) { ::munmap(mapped, size); });
    return {std::span(static_cast<const std::byte*>(address), size), std::move(owner)};
  }
#endif
  return read_file(path);  // also what is empty, or lies on a file system without mappings
}

}  // namespace linrec::io
