// The largest singular value of a matrix that is only known by its products, estimated by power iteration.
#pragma once

#include "linrec/ska/dense.hpp"

namespace linrec {

/// Steps that the published code takes. Its estimate, not the limit, is what released models were trained
/// with.
inline constexpr int spectral_norm_steps = 6;

/// sigma_max(A), A [size, size], from below: the length of A v after that many steps v <- A^T A v from
/// ones / sqrt(size), lengths below 1e-8 counting as that. Where this finds nothing - the start may lie in
/// the null space - it starts from a row of A, which A does not map to zero. Deterministic; 0 for a zero
/// matrix.
/// @param apply(x, y), apply_transposed(x, y) set y = A x and y = A^T x, [size] padded with zeros.
/// @param scratch 2 padded(size) numbers on a cache line.
template <class Apply, class ApplyTransposed>
double estimate_spectral_norm(Index size, double* scratch, Apply&& apply,
                              ApplyTransposed&& apply_transposed) noexcept {
  const double floor = 1e-8;
  double *v = scratch, *av = v + padded<double>(size);
  const auto normalise = [&](double* x) {
    scale_padded(x, size, 1 / std::max(detail::length(x, size), floor));
  };
  const auto iterate = [&] {
    for (int step = 0; step < spectral_norm_steps; ++step) {
      apply(v, av);
      normalise(av);
      apply_transposed(av, v);
      normalise(v);
    }
    apply(v, av);
    return detail::length(av, size);
  };
  std::fill_n(scratch, 2 * padded<double>(size), 0.0);
  std::fill_n(v, size, 1 / std::sqrt(static_cast<double>(size)));
  const double sigma = iterate();
  if (!(sigma <= floor)) return sigma;
  for (Index row = 0; row < size; ++row) {
    std::fill_n(av, padded<double>(size), 0.0);
    av[row] = 1;
    apply_transposed(av, v);
    if (detail::length(v, size) <= floor) continue;
    normalise(v);
    return iterate();
  }
  return sigma;
}

}  // namespace linrec
