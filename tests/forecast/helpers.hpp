// What the forecast tests share.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "tests/temporary_file.hpp"

namespace forecast::test {

using linrec::test::TemporaryFile;

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
