// Activations that keep full relative accuracy in both tails.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>

namespace linrec {

/// log(1 + e^x) = max(x, 0) + log1p(e^-|x|).
template <std::floating_point Scalar>
Scalar softplus(Scalar x) {
  using std::abs, std::exp, std::log1p;
  return std::max(x, Scalar(0)) + log1p(exp(-abs(x)));
}

/// The x with softplus(x) = y, for y > 0:  y + log(1 - e^-y).  0 gives -inf.
template <std::floating_point Scalar>
Scalar softplus_inverse(Scalar y) {
  using std::expm1, std::log;
  return y + log(-expm1(-y));
}

/// 1 / (1 + e^-x); only e^-|x| is formed, so it never overflows.
template <std::floating_point Scalar>
Scalar sigmoid(Scalar x) {
  using std::abs, std::exp;
  const Scalar e = exp(-abs(x));
  return (x < 0 ? e : Scalar(1)) / (1 + e);
}

/// log(sigmoid(x)) = -softplus(-x).
template <std::floating_point Scalar>
Scalar log_sigmoid(Scalar x) {
  return -softplus(-x);
}

/// x sigmoid(x), the swish activation; its limit 0 at -inf.
template <std::floating_point Scalar>
Scalar silu(Scalar x) {
  const Scalar s = sigmoid(x);
  return s == 0 ? Scalar(0) : x * s;
}

}  // namespace linrec
