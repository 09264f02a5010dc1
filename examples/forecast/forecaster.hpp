// The forecaster: a bank of memories m_1 .. m_N, read out by online ridge regression.
//   x_{t+1} - x_t  ~  a + sum_k b_k (m_k(t) - x_t)
//
// In this form a constant added to the series is added to the forecasts, so nothing needs centring, and all
// weights zero is persistence, which is where the ridge pulls. Both sides are divided by one number, the root
// mean square of the first changes, so the units of the series do not matter either, and a ridge of 1 weighs
// as much as one observation. That number is fixed before the readout learns, so that nothing looks ahead.
#pragma once

#include <chrono>
#include <limits>
#include <vector>

#include "bank.hpp"
#include "ridge.hpp"

namespace forecast {

template <linrec::TaperPolicy Taper>
class Forecaster {
 public:
  /// Changes that are seen before the readout starts; until then the forecast is persistence.
  static constexpr Index warm_up = 32;

  Forecaster(const Eigen::ArrayXd& log_rates, const Taper& taper, double ridge)
      : bank_(log_rates, taper), readout_(log_rates.size() + 1, ridge), features_(log_rates.size() + 1) {
    features_.setZero();
  }

  /// What the next value will be; NaN before the first one.
  double predict() const noexcept { return last_ + (scale_ > 0 ? scale_ * readout_.predict(features_) : 0); }

  /// Learns from the next value, and moves on.
  void absorb(double x) noexcept {
    const double change = x - last_;
    if (scale_ > 0)
      readout_.learn(features_, change / scale_);
    else if (std::isfinite(last_))
      measure(change);
    bank_.absorb(x);
    last_ = x;
    if (scale_ > 0) {
      features_[0] = 1;
      features_.tail(features_.size() - 1) = (bank_.means().array() - x) / scale_;
    }
  }

 private:
  /// A series that stands still at first has no scale yet: the warm-up then goes on.
  void measure(double change) noexcept {
    squares_ += change * change;
    if (++changes_ >= warm_up && squares_ > 0) scale_ = std::sqrt(squares_ / static_cast<double>(changes_));
  }

  MemoryBank<Taper> bank_;
  OnlineRidge readout_;
  Eigen::VectorXd features_;  // 1 and the m_k - x over the scale, [N + 1]
  double last_ = std::numeric_limits<double>::quiet_NaN();
  double scale_ = 0, squares_ = 0;
  Index changes_ = 0;
};

/// One-step forecasts of a series, forecasts[t] from the values before t, and the seconds they took.
struct Run {
  std::vector<double> forecasts;
  double seconds = 0;
};

/// Streams a series through anything with predict() and absorb(x).
template <class Model>
Run stream(Model model, const std::vector<double>& values) {
  Run run{std::vector<double>(values.size()), 0};
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t t = 0; t < values.size(); ++t) {
    run.forecasts[t] = model.predict();
    model.absorb(values[t]);
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

/// Root mean square of the forecast errors from `first` on.
inline double rmse(const std::vector<double>& values, const std::vector<double>& forecasts,
                   std::size_t first) {
  double sum = 0;
  for (std::size_t t = first; t < values.size(); ++t)
    sum += (values[t] - forecasts[t]) * (values[t] - forecasts[t]);
  return std::sqrt(sum / static_cast<double>(values.size() - first));
}

}  // namespace forecast
