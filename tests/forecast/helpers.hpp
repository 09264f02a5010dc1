// What the forecast tests share: files that vanish, and series.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace forecast::test {

/// A file with the given bytes that is removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes = "", const std::string& name = "series.csv") {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("linrec-forecast-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + "-" + name);
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

/// Values of x_t = level + sum phi_i (x_{t-i} - level) + noise of variance 1.
inline std::vector<double> autoregressive_series(const std::vector<double>& phi, double level,
                                                 std::size_t count, unsigned seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> noise;
  std::vector<double> x(count, level);
  for (std::size_t t = phi.size(); t < count; ++t) {
    x[t] += noise(bits);
    for (std::size_t i = 0; i < phi.size(); ++i) x[t] += phi[i] * (x[t - i - 1] - level);
  }
  return x;
}

/// `count` lines "label,value" with the values 0, 1, 2, ... and the given line end.
inline std::string csv_lines(std::size_t count, const std::string& end = "\n") {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "y" + std::to_string(i) + "," + std::to_string(i) + end;
  return text;
}

}  // namespace forecast::test
