// Ridge regression that learns one observation at a time, exactly: after t observations its weights are
//   w = argmin  sum_t (y_t - f_t . w)^2 + ridge |w|^2
//
// It keeps R [N, N], upper triangular, and z [N] with R^T R = sum f f^T + ridge I and R^T z = sum f y, and
// turns each new row (f, y) into them by N plane rotations. O(N^2) an observation, no allocation.
//
// Numerical notes. The running means of neighbouring memories are nearly equal, so sum f f^T is close to
// singular. The inverse that recursive least squares usually updates loses its symmetry and then its sign
// under such data; a rotation loses nothing, and R has only the square root of the condition number.
#pragma once

#include <Eigen/Core>
#include <cmath>

#include "linrec/core/types.hpp"

namespace forecast {

using linrec::Index;

class OnlineRidge {
 public:
  /// @throws linrec::ValueError unless ridge > 0 and finite, and there is at least one feature.
  OnlineRidge(Index features, double ridge) {
    if (features < 1)
      throw linrec::ValueError(linrec::message("features: expected at least 1, got ", features));
    if (!(ridge > 0) || !std::isfinite(ridge))
      throw linrec::ValueError(linrec::message("ridge: expected a finite number > 0, got ", ridge));
    factor_ = std::sqrt(ridge) * RowMajor::Identity(features, features);
    projected_ = weights_ = row_ = Eigen::VectorXd::Zero(features);
  }

  /// @param features f [N].
  /// @param target y.
  void learn(const Eigen::VectorXd& features, double target) noexcept {
    row_ = features;
    for (Index i = 0; i < row_.size(); ++i) rotate_in(i, target);
    for (Index i = row_.size(); i-- > 0;) {
      const Index rest = row_.size() - i - 1;
      const double explained = factor_.row(i).tail(rest).dot(weights_.tail(rest));
      weights_[i] = (projected_[i] - explained) / factor_(i, i);
    }
  }

  double predict(const Eigen::VectorXd& features) const noexcept { return weights_.dot(features); }
  const Eigen::VectorXd& weights() const { return weights_; }

 private:
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  /// Rotates row i of (R, z) against the new row so that the new row's entry i becomes zero.
  void rotate_in(Index i, double& target) noexcept {
    const Index rest = row_.size() - i - 1;
    const double length = std::hypot(factor_(i, i), row_[i]);  // > 0, for R starts with sqrt(ridge)
    const double c = factor_(i, i) / length, s = row_[i] / length;
    factor_(i, i) = length;
    double* kept = factor_.data() + i * row_.size() + i + 1;
    double* incoming = row_.data() + i + 1;
    for (Index j = 0; j < rest; ++j) {
      const double old = kept[j];
      kept[j] = c * old + s * incoming[j];
      incoming[j] = c * incoming[j] - s * old;
    }
    const double old = projected_[i];
    projected_[i] = c * old + s * target;
    target = c * target - s * old;
  }

  RowMajor factor_;                            // R [N, N]
  Eigen::VectorXd projected_, weights_, row_;  // z, w and the row under rotation, [N]
};

}  // namespace forecast
