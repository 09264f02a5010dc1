// The specification: every architecture as it stands in its paper, one token of one head at a time, naive
// and in double. The tests hold the kernels to it; so can you, with kernels of your own.
//
//   S_t = diag(w_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T        o_t = scale S_t^T q_t        S [K, V]
//
// Log-decays are effective ones: a taper's factor t^-alpha is already in them.
#pragma once

#include <Eigen/Core>
#include <cmath>

#include "linrec/core/activation.hpp"

namespace linrec::reference {

using Vector = Eigen::VectorXd;

/// The terms of one token: w, a, b, k, q [K] and v [V].
struct Token {
  Vector w, a, b, k, v, q;
};

/// Moves S on by one token and returns o [V].
inline Vector step(Eigen::MatrixXd& S, const Token& t, double scale) {
  const Eigen::RowVectorXd read = t.a.transpose() * S;
  S = (t.w.asDiagonal() * S).eval() + t.b * read + t.k * t.v.transpose();
  return scale * (S.transpose() * t.q);
}

/// The terms of a token without correction.
inline Token uncorrected(const Vector& w, const Vector& k, const Vector& v, const Vector& q) {
  const Vector none = Vector::Zero(k.size());
  return {w, none, none, k, v, q};
}

/// Linear attention (arXiv 2006.16236).
inline Token linear_attention(const Vector& q, const Vector& k, const Vector& v) {
  return uncorrected(Vector::Ones(k.size()), k, v, q);
}

/// RetNet (arXiv 2307.08621).
inline Token retention(const Vector& q, const Vector& k, const Vector& v, double log_gamma) {
  return uncorrected(Vector::Constant(k.size(), std::exp(log_gamma)), k, v, q);
}

/// GLA (arXiv 2312.06635); log_w [K].
inline Token gla(const Vector& q, const Vector& k, const Vector& v, const Vector& log_w) {
  return uncorrected(log_w.array().exp().matrix(), k, v, q);
}

/// Mamba-2 (arXiv 2405.21060), without the skip D x; log_w = A dt.
inline Token mamba2(const Vector& x, double dt, const Vector& B, const Vector& C, double log_w) {
  return uncorrected(Vector::Constant(B.size(), std::exp(log_w)), B, dt * x, C);
}

/// Gated DeltaNet (arXiv 2412.06464); DeltaNet (arXiv 2406.06484) with g = 0.
inline Token gated_delta_net(const Vector& q, const Vector& k, const Vector& v, double g, double beta) {
  const double w = std::exp(g);
  return {Vector::Constant(k.size(), w), k, -beta * w * k, k, beta * v, q};
}

/// x / sqrt(sum x^2 + eps), Gated DeltaNet's l2 normalisation.
inline Vector l2norm(const Vector& x, double eps = 1e-6) { return x / std::sqrt(x.squaredNorm() + eps); }

/// RWKV-7 (arXiv 2503.14456); kk before its normalisation, logit the whole decay logit [K].
inline Token rwkv7(const Vector& r, const Vector& k, const Vector& v, const Vector& kk, const Vector& iclr,
                   const Vector& logit) {
  const Vector unit = kk / std::max(kk.norm(), 1e-12);
  const Vector w = logit.unaryExpr([](double x) { return std::exp(-std::exp(-0.5) * sigmoid(x)); });
  return {w, -unit, unit.cwiseProduct(iclr), k, v, r};
}

}  // namespace linrec::reference
