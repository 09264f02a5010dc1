// Diagnostics of SKA: what the statistics of a head say about its keys, and about the dynamics that retrieval
// raises to a power. All cost O(r^3), and allocate; the hot path needs none of them.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <cmath>

#include "linrec/ska/state.hpp"

namespace linrec {

struct SkaDiagnostics {
  Eigen::VectorXcd eigenvalues;    ///< of A [r], the largest moduli first; the same for both forms of A
  double spectral_norm = 0;        ///< sigma_max of A_w = L^-1 M L^-T, at most 1 up to rounding
  double smallest_eigenvalue = 0;  ///< of G~ = G + eps m^2 I
  double condition = 0;            ///< largest eigenvalue of G~ / smallest
  /// Directions that the keys use, e^entropy of the eigenvalues of G as shares of their sum; 0 without keys.
  double effective_rank = 0;
  /// Share of the keys' sum of squares that the last key explains, 0 to 1: with B = M G~^-1, the regression
  /// of z_t on z_{t-1}, (2 tr(B M^T) - tr(B G B^T)) / tr(G). A_w moves keys along only as far as this goes.
  double explained = 0;
};

namespace detail {

/// L of G~ = L L^T.
/// @throws ValueError if G~ is not positive definite in double precision.
template <class Matrix>
Eigen::LLT<Matrix> ska_cholesky(const SkaStatistics& statistics, double eps) {
  if (!(eps > 0)) throw ValueError(message("eps: expected a number above 0, got ", eps));
  Matrix regularised = statistics.G();
  regularised.diagonal().array() += eps * statistics.ridge_scale();
  const Eigen::LLT<Matrix> cholesky(regularised);
  if (cholesky.info() != Eigen::Success)
    throw ValueError(
        message("eps: expected one that makes G~ positive definite in double precision, got ", eps));
  return cholesky;
}

}  // namespace detail

/// A [r, r]: L^-1 M L^-T or M G~^-1, as a matrix, without gamma and spectral normalisation.
/// @throws ValueError if G~ is not positive definite in double precision.
template <class Matrix = Eigen::MatrixXd>  // a template, so that Eigen's solvers are compiled only where used
Matrix koopman_matrix(const SkaStatistics& statistics, double eps, KoopmanOperator form) {
  const Eigen::LLT<Matrix> cholesky = detail::ska_cholesky<Matrix>(statistics, eps);
  const Matrix m = statistics.M();
  if (form == KoopmanOperator::unwhitened) return cholesky.solve(m.transpose()).transpose();
  const Matrix half = cholesky.matrixL().solve(m);
  return cholesky.matrixL().solve(half.transpose()).transpose();
}

/// sigma_max of a matrix, to rounding.
template <class Matrix>
double largest_singular_value(const Matrix& a) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> squares(a.transpose() * a, Eigen::EigenvaluesOnly);
  return std::sqrt(std::max(0.0, squares.eigenvalues().maxCoeff()));
}

/// @param eps of the ridge eps m^2.
/// @throws ValueError if G~ is not positive definite in double precision.
template <class Matrix = Eigen::MatrixXd>
SkaDiagnostics diagnose(const SkaStatistics& statistics, double eps) {
  SkaDiagnostics result;
  const Matrix whitened = koopman_matrix<Matrix>(statistics, eps, KoopmanOperator::whitened);
  result.spectral_norm = largest_singular_value(whitened);
  result.eigenvalues = Eigen::EigenSolver<Matrix>(whitened, false).eigenvalues();
  std::sort(result.eigenvalues.begin(), result.eigenvalues.end(),
            [](const auto& a, const auto& b) { return std::norm(a) > std::norm(b); });

  const Matrix g = statistics.G(), m = statistics.M();
  const Eigen::SelfAdjointEigenSolver<Matrix> spectrum(g, Eigen::EigenvaluesOnly);
  const Eigen::VectorXd values = spectrum.eigenvalues().cwiseMax(0.0);
  const double ridge = eps * statistics.ridge_scale(), sum = values.sum();
  result.smallest_eigenvalue = values.minCoeff() + ridge;
  result.condition = (values.maxCoeff() + ridge) / result.smallest_eigenvalue;
  if (!(sum > 0)) return result;
  double entropy = 0;
  for (const double value : values)
    if (value > 0) entropy -= value / sum * std::log(value / sum);
  result.effective_rank = std::exp(entropy);
  const Matrix b = koopman_matrix<Matrix>(statistics, eps, KoopmanOperator::unwhitened);
  result.explained = (2 * b.cwiseProduct(m).sum() - (b * g).cwiseProduct(b).sum()) / g.trace();
  return result;
}

}  // namespace linrec
