// What the paper proves of spectra, seen through the diagnostics (arXiv 2604.07658).
#include "linrec/policy/diagnostics.hpp"

#include <vector>

#include "linrec/policy/initial.hpp"
#include "linrec/policy/taper.hpp"
#include "tests/catch.hpp"

namespace linrec::test::diagnostics_test {

using Eigen::ArrayXd;

TEST_CASE("smallest_gap: sorted or not, and of one channel") {
  CHECK(smallest_gap(ArrayXd{{3, 1, 7}}) == 2);
  CHECK(smallest_gap(ArrayXd{{3, 1, 3}}) == 0);
  CHECK(smallest_gap(ArrayXd{{3.0}}) == std::numeric_limits<double>::infinity());
}

TEST_CASE("the smallest gap of a random spectrum is of order N^-2, of a geometric one of order 1/N") {
  const double range = std::log(1e3);
  for (const Index n : {16, 64, 256}) {
    double mean = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed)
      mean += smallest_gap(random_log_rates(n, 1e-3, 1, seed)) / 200;
    const double squared = static_cast<double>(n * n);
    CHECK(mean * squared / range == Approx(1).epsilon(0.25));
    CHECK(smallest_gap(geometric_log_rates(n, 1e-3, 1)) ==
          Approx(range / static_cast<double>(n - 1)).epsilon(1e-12));
  }
}

TEST_CASE("effective rates at a position") {
  const ArrayXd effective = effective_log_rates(ArrayXd{{0, 1, 2}}, ArrayXd{{1, 0.5, 0}}, 100);
  CHECK(effective[0] == -std::log(100.0));
  CHECK(effective[1] == 1 - 0.5 * std::log(100.0));
  CHECK(effective[2] == 2);
  REQUIRE_THROWS_MATCHES(effective_log_rates(ArrayXd::Zero(3), ArrayXd::Zero(2), 1), ShapeError,
                         message_contains("exponents: expected N = 3 entries, got 2"));
  REQUIRE_THROWS_MATCHES(effective_log_rates(ArrayXd::Zero(3), ArrayXd::Zero(3), 0.5), ValueError,
                         message_contains("t: expected a position of at least 1, got 0.5"));
  CHECK_THROWS_AS(
      effective_log_rates(ArrayXd::Zero(1), ArrayXd::Zero(1), std::numeric_limits<double>::quiet_NaN()),
      ValueError);
}

TEST_CASE("a static geometric spectrum has N log t / log T channels in use, a tapered one more") {
  constexpr Index n = 64;
  constexpr double T = 4096;
  const ArrayXd still = geometric_log_rates(n, 1 / T, 1), none = ArrayXd::Zero(n);
  // With the taper, rates of order 1 reach as far back as the position: the slowest has 1/t.
  const ArrayXd moving = geometric_log_rates(n, 1, 2), alpha = LinearTaper().exponents(moving);
  for (const double t : {4.0, 16.0, 64.0, 512.0}) {
    const Index in_use = channels_in_use(still, none, t);
    CHECK(std::abs(static_cast<double>(in_use) - n * std::log(t) / std::log(T)) <= 1);
    CHECK(channels_in_use(moving, alpha, t) == n);
    CHECK(channels_in_use(moving, alpha, t) > in_use);
  }
  CHECK(channels_in_use(still, none, T) == n);
  CHECK(channels_in_use(still, none, 1) == 1);
}

TEST_CASE("impulse response: static, and of position ratios alone at alpha = 1") {
  const ArrayXd p{{std::log(0.01), std::log(0.5)}};
  const ArrayXd fixed = impulse_response(p, ArrayXd::Zero(2), 10, 30);
  CHECK(fixed[0] == Approx(std::exp(-0.2)).epsilon(1e-13));
  CHECK(fixed[1] == Approx(std::exp(-10.0)).epsilon(1e-13));
  CHECK((impulse_response(p, ArrayXd::Zero(2), 5, 5) == 1).all());

  const ArrayXd one = ArrayXd::Ones(2), rates = p.exp();
  for (const std::int64_t s : {100, 1000, 10000}) {
    const ArrayXd response = impulse_response(p, one, s, 3 * s);
    for (Index k = 0; k < 2; ++k)
      CHECK(std::abs(response[k] - std::pow(3.0, -rates[k])) < 1 / static_cast<double>(s));
  }
  REQUIRE_THROWS_MATCHES(impulse_response(p, one, 0, 5), ValueError,
                         message_contains("s, t: expected 1 <= s <= t, got 0, 5"));
  REQUIRE_THROWS_MATCHES(impulse_response(p, one, 6, 5), ValueError, message_contains("got 6, 5"));
  CHECK_THROWS_AS(impulse_response(p, ArrayXd::Ones(3), 1, 5), ShapeError);
}

TEST_CASE("power laws: the error falls with N, and geometric beats linear and random") {
  constexpr double T = 1000;
  for (const double beta : {0.5, 1.0}) {
    double before = 1;
    for (const Index n : {2, 4, 8, 16, 32}) {
      const double geometric = power_law_error(geometric_log_rates(n, 1 / T, 1), beta, T);
      CHECK(geometric < before);
      before = geometric;
      if (n == 2) continue;  // two rates are the ends of the range for both
      CHECK(geometric < power_law_error(linear_log_rates(n, 1 / T, 1), beta, T) / 3);
      std::vector<double> random;
      for (std::uint64_t seed = 1; seed <= 9; ++seed)
        random.push_back(power_law_error(random_log_rates(n, 1 / T, 1, seed), beta, T));
      std::nth_element(random.begin(), random.begin() + 4, random.end());
      CHECK(geometric < random[4]);
    }
    CHECK(before < 2e-3);
  }
  // Exact where the target is among the functions: t^0 and a rate of nearly 0.
  CHECK(power_law_error(ArrayXd{{-40.0}}, 0, T) < 1e-12);
  REQUIRE_THROWS_MATCHES(power_law_error(ArrayXd{{0.0}}, 1, 1), ValueError,
                         message_contains("T: expected more than 1, got 1"));
}

}  // namespace linrec::test::diagnostics_test
