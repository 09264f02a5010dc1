// The yardsticks: persistence, and autoregressions
//   x_t  ~  a + sum_{i = 1..p} phi_i x_{t-i}
// fitted by least squares. The order p <= 30 is the one with the smallest AIC, n log(RSS / n) + 2 (p + 1);
// AIC and not BIC, for it is the one that aims at forecasts and not at the true order.
#pragma once

#include <Eigen/QR>
#include <algorithm>
#include <limits>
#include <vector>

#include "ridge.hpp"

namespace forecast {

/// The next value is the last one.
class Persistence {
 public:
  double predict() const noexcept { return last_; }
  void absorb(double x) noexcept { last_ = x; }

 private:
  double last_ = std::numeric_limits<double>::quiet_NaN();
};

/// Rows [1, x_{t-1}, ..., x_{t-p}] for first <= t < last; first >= p.
inline Eigen::MatrixXd lagged(const std::vector<double>& x, Index order, Index first, Index last) {
  Eigen::MatrixXd rows(last - first, order + 1);
  rows.col(0).setOnes();
  for (Index i = 1; i <= order; ++i)
    rows.col(i) = Eigen::Map<const Eigen::VectorXd>(x.data() + first - i, last - first);
  return rows;
}

/// An autoregression with fixed coefficients; it streams like the bank.
class Autoregression {
 public:
  static constexpr Index highest_order = 30;

  /// Fitted to the values [0, count), and to nothing after them.
  static Autoregression fit(const std::vector<double>& values, Index order, Index count) {
    return Autoregression(least_squares(values, order, order, count).coefficients);
  }

  /// The order with the smallest AIC on the values [0, count). All orders explain the same values, so that
  /// their sums of squares compare; on short series the order stays below a quarter of the values.
  static Index best_order(const std::vector<double>& values, Index count) {
    const Index highest = std::clamp<Index>(count / 4, 1, highest_order);
    const double n = static_cast<double>(count - highest);
    Index best = 1;
    double lowest = std::numeric_limits<double>::infinity();
    for (Index order = 1; order <= highest; ++order) {
      const double squares = least_squares(values, order, highest, count).squares;
      const double likelihood = n * std::log(std::max(squares / n, std::numeric_limits<double>::min()));
      const double aic = likelihood + 2 * static_cast<double>(order + 1);
      if (aic < lowest) {
        lowest = aic;
        best = order;
      }
    }
    return best;
  }

  Index order() const { return coefficients_.size() - 1; }
  /// a, phi_1, ..., phi_p
  const Eigen::VectorXd& coefficients() const { return coefficients_; }

  /// NaN before the first p values.
  double predict() const noexcept { return coefficients_[0] + coefficients_.tail(order()).dot(past_); }
  void absorb(double x) noexcept {
    for (Index i = order() - 1; i > 0; --i) past_[i] = past_[i - 1];
    past_[0] = x;
  }

 private:
  struct Fit {
    Eigen::VectorXd coefficients;
    double squares;
  };

  explicit Autoregression(Eigen::VectorXd coefficients) : coefficients_(std::move(coefficients)) {
    past_ = Eigen::VectorXd::Constant(order(), std::numeric_limits<double>::quiet_NaN());
  }

  /// Explains the values [first, last). Pivoting makes a constant series harmless.
  static Fit least_squares(const std::vector<double>& values, Index order, Index first, Index last) {
    const Eigen::MatrixXd rows = lagged(values, order, first, last);
    const Eigen::Map<const Eigen::VectorXd> targets(values.data() + first, last - first);
    Fit fit{rows.colPivHouseholderQr().solve(targets), 0};
    fit.squares = (targets - rows * fit.coefficients).squaredNorm();
    return fit;
  }

  Eigen::VectorXd coefficients_;
  Eigen::VectorXd past_;  // x_{t-1}, ..., x_{t-p}
};

/// An autoregression that goes on learning, as the bank does: least squares over all values so far, by the
/// online ridge with next to no ridge. It shows what of the bank's gain comes from learning on.
class OnlineAutoregression {
 public:
  /// @param unit a number of the size of the values, > 0; the ridge is small next to it.
  OnlineAutoregression(Index order, double unit) : readout_(order + 1, 1e-6), unit_(unit) {
    features_ = Eigen::VectorXd::Zero(order + 1);
    features_[0] = 1;
  }

  double predict() const noexcept { return unit_ * readout_.predict(features_); }
  void absorb(double x) noexcept {
    const Index order = features_.size() - 1;
    if (seen_ >= order) readout_.learn(features_, x / unit_);
    for (Index i = order; i > 1; --i) features_[i] = features_[i - 1];
    features_[1] = x / unit_;
    ++seen_;
  }

 private:
  OnlineRidge readout_;
  Eigen::VectorXd features_;  // 1 and x_{t-1}, ..., x_{t-p} over the unit
  double unit_;
  Index seen_ = 0;
};

}  // namespace forecast
