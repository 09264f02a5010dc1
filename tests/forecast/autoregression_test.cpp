#include "examples/forecast/autoregression.hpp"

#include "examples/forecast/forecaster.hpp"
#include "helpers.hpp"
#include "tests/catch.hpp"

using forecast::Autoregression;
using forecast::OnlineAutoregression;
using forecast::stream;
using forecast::test::autoregressive_series;

TEST_CASE("an autoregression finds the coefficients of its process") {
  const std::vector<double> x = autoregressive_series({1.2, -0.5}, 7, 20000, 1);
  const Autoregression model = Autoregression::fit(x, 2, 20000);
  REQUIRE(model.order() == 2);
  CHECK(model.coefficients()[0] == Approx(7 * (1 - 1.2 + 0.5)).margin(0.1));
  CHECK(model.coefficients()[1] == Approx(1.2).margin(0.03));
  CHECK(model.coefficients()[2] == Approx(-0.5).margin(0.03));
  const forecast::Index order = Autoregression::best_order(x, 20000);
  CHECK(order >= 2);
  CHECK(order <= 8);  // AIC may add a few
}

TEST_CASE("a recurrence without noise is forecast exactly") {
  std::vector<double> x{1, 2};
  while (x.size() < 200) x.push_back(1 + 1.6 * x[x.size() - 1] - 0.98 * x[x.size() - 2]);
  const Autoregression model = Autoregression::fit(x, 2, 100);
  const std::vector<double> forecasts = stream(model, x).forecasts;
  CHECK(std::isnan(forecasts[1]));
  for (std::size_t t = 2; t < x.size(); ++t) CHECK(forecasts[t] == Approx(x[t]).margin(1e-8));
}

TEST_CASE("fit and order see nothing beyond the values they are given") {
  std::vector<double> x = autoregressive_series({0.6, 0.2}, 0, 1000, 4);
  const Autoregression model = Autoregression::fit(x, 3, 500);
  const forecast::Index order = Autoregression::best_order(x, 500);
  for (std::size_t t = 500; t < x.size(); ++t) x[t] = 1e6;
  CHECK(Autoregression::fit(x, 3, 500).coefficients() == model.coefficients());
  CHECK(Autoregression::best_order(x, 500) == order);
}

TEST_CASE("short and constant series do not break the autoregression") {
  const std::vector<double> x(100, 3.0);
  const forecast::Index order = Autoregression::best_order(x, 50);
  const std::vector<double> forecasts = stream(Autoregression::fit(x, order, 50), x).forecasts;
  CHECK(forecasts[99] == Approx(3.0));
  CHECK(Autoregression::best_order(autoregressive_series({0.5}, 0, 50, 1), 50) <= 12);
}

TEST_CASE("learning on is least squares over all values so far") {
  const std::vector<double> x = autoregressive_series({0.5, 0.2}, 2, 600, 6);
  OnlineAutoregression online(4, 2);
  Autoregression batch = Autoregression::fit(x, 4, 600);
  for (const double value : x) {
    online.absorb(value);
    batch.absorb(value);
  }
  CHECK(online.predict() == Approx(batch.predict()).epsilon(1e-6));
}
