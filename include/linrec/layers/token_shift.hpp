// TokenShift: the difference to the token before, which RWKV mixes into its inputs (arXiv 2503.14456, eq. 3):
//   delta_t = x_{t-1} - x_t,    mixed_t = x_t + delta_t mu        (elementwise, x_0 = 0)
#pragma once

#include "linrec/core/parameter.hpp"
#include "linrec/layers/layer_state.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

/// delta [n, D] from x [n, D] and the last token before the chunk, which `window` (one row) has and is moved
/// on. delta must not overlap x.
template <class Scalar>
void token_shift(const PackedRows& chunk, Rows<const Scalar> x, Window<Scalar>& window,
                 Rows<Scalar> delta) noexcept {
  for (Index s = 0; s < chunk.sequences(); ++s)
    for (Index t = 0; t < chunk.count(s); ++t) {
      const Index i = chunk.first(s) + t;
      map_packets(
          x.width, delta[i],
          [](const auto& before, const auto& now)
              LINREC_INLINE_LAMBDA { return Eigen::internal::psub(before, now); },
          t > 0 ? x[i - 1] : static_cast<const Scalar*>(window.row(s, 0)), x[i]);
    }
  window.push(chunk, x);
}

/// y = x + delta mu, mu [D]
template <class Scalar>
void mix_tokens(Rows<const Scalar> x, Rows<const Scalar> delta, const Parameter<Scalar>& mu,
                Rows<Scalar> y) noexcept {
  for (Index i = 0; i < x.count; ++i)
    map_packets(
        x.width, y[i],
        [](const auto& now, const auto& d, const auto& m)
            LINREC_INLINE_LAMBDA { return Eigen::internal::pmadd(d, m, now); },
        x[i], delta[i], mu.data());
}

}  // namespace linrec
