// Recurrent states, and the statistics of SKA, as the files have them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "linrec/kernels/state.hpp"
#include "linrec/ska/state.hpp"

namespace linrec::verify {

/// How a file writes a state: as linrec does, or transposed.
enum class Orientation { key_value, value_key };

/// [B, H, K, V] or [B, H, V, K]
template <class Scalar, class Sizes>
Values state_values(const State<Scalar, Sizes>& state, Orientation orientation) {
  const Sizes& dims = state.dims();
  const bool transposed = orientation == Orientation::value_key;
  Values values{{state.sequences(), dims.heads(), transposed ? dims.value() : dims.key(),
                 transposed ? dims.key() : dims.value()},
                {}};
  for (Index b = 0; b < state.sequences(); ++b)
    for (Index h = 0; h < dims.heads(); ++h) {
      typename State<Scalar, Sizes>::Matrix s = state.matrix(b, h);
      if (transposed) s = s.transpose().eval();
      values.numbers.insert(values.numbers.end(), s.data(), s.data() + s.size());
    }
  return values;
}

/// G and M [B, H, r, r], C [B, H, P, r], z_last [B, H, r] and max_norm [B, H], each behind the prefix.
inline void add_sums(const SkaState& state, const std::string& prefix, Outputs& outputs) {
  const Index b = state.sequences(), h = state.shape().heads, r = state.shape().key, p = state.shape().value;
  const auto add = [&](const char* name, std::vector<Index> shape, auto&& numbers_of) {
    Values values{std::move(shape), {}};
    for (Index s = 0; s < b; ++s)
      for (Index head = 0; head < h; ++head) {
        const SkaStatistics::Matrix numbers = numbers_of(state.statistics(s, head));
        values.numbers.insert(values.numbers.end(), numbers.data(), numbers.data() + numbers.size());
      }
    outputs[prefix + name] = std::move(values);
  };
  add("G", {b, h, r, r}, [](const SkaStatistics& s) { return s.G(); });
  add("M", {b, h, r, r}, [](const SkaStatistics& s) { return s.M(); });
  add("C", {b, h, p, r}, [](const SkaStatistics& s) { return s.Cv(); });
  add("z_last", {b, h, r}, [](const SkaStatistics& s) { return s.last_key(); });
  add("max_norm", {b, h}, [](const SkaStatistics& s) { return Eigen::Matrix<double, 1, 1>(s.max_norm()); });
}

}  // namespace linrec::verify
