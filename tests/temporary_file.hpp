// A file that vanishes.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace linrec::test {

/// A file with the given bytes that is removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes = "", const std::string& name = "series.csv") {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("linrec-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + "-" + name);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace linrec::test
