// Writing a file so that nobody ever sees half of it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include "linrec/core/errors.hpp"

namespace linrec::io::detail {

/// A file under a fresh name that is removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(target) {
    std::random_device random;
    for (int attempt = 0; attempt < 16 && file_ == nullptr; ++attempt) {
      path_ = target_.parent_path() / (".linrec-" + std::to_string(random()) + ".tmp");
      file_ = std::fopen(path_.string().c_str(), "wbx");  // x: never somebody else's file
      if (file_ == nullptr && errno != EEXIST) break;
    }
    if (file_ == nullptr) fail(errno);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    if (!renamed_) std::filesystem::remove(path_, ignored);
  }

  bool write(std::span<const std::byte> piece) {
    return piece.empty() || std::fwrite(piece.data(), 1, piece.size(), file_) == piece.size();
  }

  /// Everything on the disk first, the name second: a crash leaves the old file or the new one.
  void rename_to_target() {
    bool done = std::fflush(file_) == 0;
#if __has_include(<unistd.h>)
    done = done && ::fsync(::fileno(file_)) == 0;
#endif
    if (!done) fail(errno);
    if (std::fclose(std::exchange(file_, nullptr)) != 0) fail(errno);
    std::error_code error;
    std::filesystem::rename(path_, target_, error);
    if (error) fail(error.value());
    renamed_ = true;
  }

  [[noreturn]] void fail(int error) const {
    throw Error(message("file '", target_.string(),
                        "': cannot be written: ", std::generic_category().message(error)));
  }

 private:
  std::filesystem::path target_, path_;
  std::FILE* file_ = nullptr;
  bool renamed_ = false;
};

}  // namespace linrec::io::detail
