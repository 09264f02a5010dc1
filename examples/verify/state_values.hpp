// Recurrent states as the files have them.
#pragma once

#include "kernels.hpp"
#include "linrec/kernels/state.hpp"

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

}  // namespace linrec::verify
