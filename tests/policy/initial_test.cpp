#include "linrec/policy/initial.hpp"

#include "tests/catch.hpp"

namespace linrec::test::initial_test {

using Eigen::ArrayXd;

namespace {

constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

bool increases(const ArrayXd& p) { return (p.tail(p.size() - 1) > p.head(p.size() - 1)).all(); }

using Rates = ArrayXd (*)(Index, double, double);
ArrayXd random_of_seed_1(Index n, double slowest, double fastest) {
  return random_log_rates(n, slowest, fastest, 1);
}
constexpr Rates all[] = {geometric_log_rates, linear_log_rates, random_of_seed_1};

}  // namespace

TEST_CASE("geometric rates are evenly spaced in p") {
  const ArrayXd p = geometric_log_rates(4, 1e-3, 1);
  for (Index k = 0; k < 4; ++k)
    CHECK(p[k] == Approx(std::log(std::pow(10.0, -3.0 + static_cast<double>(k)))).margin(1e-14));
  CHECK(p[0] == std::log(1e-3));
}

TEST_CASE("linear rates are evenly spaced in lambda") {
  const ArrayXd rates = linear_log_rates(5, 1, 16).exp();
  const ArrayXd expected{{1, 4.75, 8.5, 12.25, 16}};
  CHECK((rates - expected).abs().maxCoeff() < 1e-14 * 16);
}

TEST_CASE("random rates: the same everywhere for a seed") {
  const ArrayXd p = random_log_rates(4, 1e-3, 1, 42);
  const double expected[] = {-5.9664169292391076, -2.4934827946470373, -1.7121202979538772,
                             -1.6913256597628514};
  for (Index k = 0; k < 4; ++k) CHECK(p[k] == Approx(expected[k]).epsilon(1e-15));
  CHECK((random_log_rates(4, 1e-3, 1, 42) == p).all());
  CHECK((random_log_rates(4, 1e-3, 1, 43) != p).any());
  // Log-uniform: the mean of p is in the middle of the range.
  CHECK(random_log_rates(10000, 1e-3, 1, 1).mean() == Approx(std::log(1e-3) / 2).epsilon(0.02));
}

TEST_CASE("all rates are sorted and within their range; N = 1 is one rate in it") {
  for (const Rates rates : all) {
    const ArrayXd p = rates(100, 1e-4, 2);
    REQUIRE(p.size() == 100);
    CHECK(increases(p));
    CHECK(p.minCoeff() >= std::log(1e-4) * (1 + 1e-15));
    CHECK(p.maxCoeff() <= std::log(2.0) * (1 + 1e-15));
    const ArrayXd one = rates(1, 0.5, 2);
    REQUIRE(one.size() == 1);
    CHECK(one[0] >= std::log(0.5));
    CHECK(one[0] <= std::log(2.0));
    CHECK(rates(3, 0.5, 0.5).isConstant(std::log(0.5), 1e-15));
  }
  CHECK(geometric_log_rates(1, 0.5, 2)[0] == std::log(0.5));
  CHECK(linear_log_rates(1, 0.5, 2)[0] == std::log(0.5));
}

TEST_CASE("rates: what they refuse") {
  for (const Rates rates : all) {
    REQUIRE_THROWS_MATCHES(rates(0, 0.1, 1), ValueError,
                           message_contains("channels: expected at least 1, got 0"));
    for (const double slowest : {0.0, -1.0, quiet_nan, infinity})
      REQUIRE_THROWS_MATCHES(rates(3, slowest, 1), ValueError,
                             message_contains(message("slowest: expected a finite rate > 0, got ", slowest)));
    for (const double fastest : {0.25, quiet_nan, infinity})
      REQUIRE_THROWS_MATCHES(
          rates(3, 0.5, fastest), ValueError,
          message_contains(message("fastest: expected a finite rate of at least 0.5, got ", fastest)));
  }
}

TEST_CASE("the starting points of the PoST models") {
  const ArrayXd mamba = mamba2_initial_log_rates(8, 1024, 0.01);
  CHECK(std::exp(mamba[0]) * 0.01 == Approx(1.0 / 1024).epsilon(1e-13));  // dt A from 1/T to 1
  CHECK(std::exp(mamba[7]) * 0.01 == Approx(1).epsilon(1e-13));
  const ArrayXd gdn = gated_delta_net_initial_log_rates(8, 1024);
  CHECK(gdn[0] == 0);
  CHECK(gdn[7] == Approx(std::log(1024.0)).epsilon(1e-14));
  const ArrayXd gla = gla_initial_log_rates(8);
  CHECK(gla[0] == 0);
  CHECK(gla[7] == Approx(std::log(16.0)).epsilon(1e-14));
  const ArrayXd rwkv = rwkv7_initial_logits(64, 1024);
  CHECK(std::exp(-0.5) * sigmoid(rwkv[0]) == Approx(1.0 / 1024).epsilon(1e-13));
  CHECK(rwkv[63] == Approx(0.5).epsilon(1e-14));
  for (const ArrayXd& p : {mamba, gdn, gla, rwkv}) CHECK(increases(p));
  for (const double dt : {1e-4, 0.01, 1.0, 40.0})
    CHECK(softplus(dt_bias_for(dt)) == Approx(dt).epsilon(1e-14));
  for (const double length : {1.0, std::exp(0.5), 0.0, quiet_nan})
    REQUIRE_THROWS_MATCHES(rwkv7_initial_logits(4, length), ValueError,
                           message_contains("train_length: expected a finite number > exp(1/2), got "));
  CHECK_THROWS_AS(rwkv7_initial_logits(0, 100), ValueError);
  CHECK_THROWS_AS(mamba2_initial_log_rates(4, 0.5, 0.01), ValueError);
  CHECK_THROWS_AS(gated_delta_net_initial_log_rates(4, quiet_nan), ValueError);
}

}  // namespace linrec::test::initial_test
