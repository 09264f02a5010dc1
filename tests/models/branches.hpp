// One branch of a model by itself, and plain loops for what lies around the branches.
#pragma once

#include <cmath>
#include <vector>

#include "linrec/models/language_model.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test {

/// f(x) for whole sequences x [S, T, D], from zero states, with all that a model would do.
/// @param v_first [S, T, values], written by RWKV-7's first layer and read by the others.
inline std::vector<double> run_branch(const Branch<double>& branch, Index sequences,
                                      const std::vector<double>& x, std::vector<double>& v_first) {
  const Index width = branch.width(), values = branch.value_width();
  const Index tokens = static_cast<Index>(x.size()) / width / sequences;
  std::optional<LayerState<double>> state;
  if (branch.state_shape() != nullptr) state.emplace(*branch.state_shape(), sequences);
  v_first.resize(static_cast<std::size_t>(sequences * tokens * values));
  std::vector<double> y(x.size());
  AlignedVector<double> scratch(static_cast<std::size_t>(branch.scratch_size(chunk_rows, 1)));
  RowPacker(sequences).for_each_chunk({}, tokens, [&](const PackedRows& rows) {
    std::vector<double> in(static_cast<std::size_t>(rows.count() * width)),
        first(static_cast<std::size_t>(rows.count() * values));
    for (Index i = 0; i < rows.count(); ++i) {
      std::copy_n(x.data() + rows.token(i) * width, width, in.data() + i * width);
      std::copy_n(v_first.data() + rows.token(i) * values, values, first.data() + i * values);
    }
    branch.forward(rows, {in.data(), rows.count(), width, width},
                   {first.data(), rows.count(), values, values}, state ? &*state : nullptr, scratch.data());
    for (Index i = 0; i < rows.count(); ++i) {
      std::copy_n(in.data() + i * width, width, y.data() + rows.token(i) * width);
      std::copy_n(first.data() + i * values, values, v_first.data() + rows.token(i) * values);
    }
  });
  return y;
}

using Row = std::vector<double>;

inline Row row_of(const Files::Numbers& numbers, Index i, Index width) {
  const auto begin = numbers.values.begin() + i * width;
  return {begin, begin + width};
}

/// y = W x, from row `first` of W on.
inline Row product(const Files::Numbers& matrix, const Row& x, Index outputs, Index first = 0) {
  Row y;
  for (Index o = first; o < first + outputs; ++o) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      sum += static_cast<double>(matrix.values[static_cast<std::size_t>(o) * x.size() + i]) * x[i];
    y.push_back(sum);
  }
  return y;
}

inline double silu(double x) { return x / (1 + std::exp(-x)); }

/// RMSNorm or LayerNorm with the tensors name.weight and name.bias, if there is one.
inline Row normalised(const Files& files, const std::string& name, bool layer_norm, double eps, Row x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, square = 0;
  if (layer_norm)
    for (const double value : x) mean += value / n;
  for (double& value : x) value -= mean, square += value * value / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= static_cast<double>(files[name + ".weight"].values[i]) / std::sqrt(square + eps);
    if (files.tensors.contains(name + ".bias")) x[i] += static_cast<double>(files[name + ".bias"].values[i]);
  }
  return x;
}

inline double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

/// The largest difference, relative to the largest number.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& right) {
  if (got.size() != right.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - right[i]);
    if (!(error <= most)) most = error;  // a NaN, too
  }
  return most / largest(right);
}

}  // namespace linrec::test
