#include "examples/forecast/forecaster.hpp"

#include "examples/forecast/autoregression.hpp"
#include "helpers.hpp"
#include "tests/catch.hpp"

using forecast::bank_log_rates;
using forecast::Forecaster;
using forecast::rmse;
using forecast::Spread;
using forecast::stream;
using forecast::test::autoregressive_series;
using linrec::LinearTaper;
using linrec::NoTaper;

namespace {

template <class Taper>
Forecaster<Taper> forecaster(double length) {
  return Forecaster<Taper>(bank_log_rates<Taper>(Spread::geometric, 16, length, 1), Taper(), 1);
}

template <class Model>
void check_causal(const Model& model) {
  const std::vector<double> x = autoregressive_series({0.7}, 3, 300, 5);
  std::vector<double> other = x;
  for (std::size_t t = 200; t < other.size(); ++t) other[t] = -100 * x[t];
  const std::vector<double> forecasts = stream(model, x).forecasts, others = stream(model, other).forecasts;
  std::size_t equal = 1;  // the forecast of the very first value is NaN
  while (equal < x.size() && forecasts[equal] == others[equal]) ++equal;
  CHECK(equal == 201);  // the value 200 itself is forecast from the same past
}

}  // namespace

TEST_CASE("forecasts depend on the past alone") {
  check_causal(forecaster<NoTaper>(300));
  check_causal(forecaster<LinearTaper>(300));
  check_causal(forecast::Persistence());
  check_causal(forecast::OnlineAutoregression(1, 1));
}

TEST_CASE("the bank beats persistence on an autoregressive series") {
  const std::vector<double> x = autoregressive_series({0.5}, 10, 4000, 11);
  const double persistence = rmse(x, stream(forecast::Persistence(), x).forecasts, 2000);
  const double fixed = rmse(x, stream(forecaster<NoTaper>(4000), x).forecasts, 2000);
  const double tapered = rmse(x, stream(forecaster<LinearTaper>(4000), x).forecasts, 2000);
  // The noise has variance 1, and no forecast can be better; persistence has 2 / (1 + 0.5).
  CHECK(persistence == Approx(std::sqrt(4.0 / 3)).epsilon(0.05));
  CHECK(fixed < 0.92 * persistence);
  CHECK(tapered < 0.92 * persistence);
  CHECK(fixed > 0.95);
}

TEST_CASE("forecasts move with the level and the unit of a series") {
  const std::vector<double> x = autoregressive_series({0.8}, 0, 500, 2);
  std::vector<double> other = x;
  for (double& value : other) value = 1000 + 64 * value;
  const std::vector<double> forecasts = stream(forecaster<LinearTaper>(500), x).forecasts;
  const std::vector<double> others = stream(forecaster<LinearTaper>(500), other).forecasts;
  double worst = 0;
  for (std::size_t t = 1; t < x.size(); ++t)
    worst = std::max(worst, std::abs(1000 + 64 * forecasts[t] - others[t]));
  CHECK(worst < 1e-8);
}

TEST_CASE("a series that stands still is forecast without an error") {
  std::vector<double> x(300, 4.5);
  for (const double forecast : stream(forecaster<LinearTaper>(300), std::vector<double>(x)).forecasts)
    CHECK((std::isnan(forecast) || forecast == 4.5));
  x[200] = 5;  // and what moves later is learned from
  const std::vector<double> forecasts = stream(forecaster<NoTaper>(300), x).forecasts;
  CHECK(forecasts[200] == 4.5);
  CHECK(std::isfinite(forecasts[299]));
}

TEST_CASE("one memory and many") {
  const std::vector<double> x = autoregressive_series({0.5}, 0, 400, 3);
  for (const linrec::Index memories : {1, 2, 64}) {
    const Eigen::ArrayXd log_rates = bank_log_rates<LinearTaper>(Spread::geometric, memories, 400, 1);
    const Forecaster<LinearTaper> model(log_rates, LinearTaper(), 1);
    CHECK(rmse(x, stream(model, x).forecasts, 200) <
          rmse(x, stream(forecast::Persistence(), x).forecasts, 200));
  }
}
