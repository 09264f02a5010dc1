// Activations against long double, above all in the tails.
#include "linrec/core/activation.hpp"

#include <limits>

#include "tests/catch.hpp"

namespace linrec::test::activation_test {

namespace {

/// |x - exact| in units of the rounding of `exact`, where that is a normal number.
template <class Scalar>
double ulps(Scalar x, long double exact) {
  if (static_cast<long double>(x) == exact) return 0;
  const long double unit = std::max(std::abs(exact) * std::numeric_limits<Scalar>::epsilon(),
                                    static_cast<long double>(std::numeric_limits<Scalar>::denorm_min()));
  return static_cast<double>(std::abs(x - exact) / unit);
}

long double exact_softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x))); }
long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEMPLATE_TEST_CASE("softplus", "", float, double) {
  constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
  for (const double x : {-80.0, -40.0, -20.0, -1.0, -1e-3, 0.0, 0.5, 1.0, 20.0, 40.0, 80.0, 800.0})
    CHECK(ulps(softplus(static_cast<TestType>(x)), exact_softplus(static_cast<TestType>(x))) <= 2);
  CHECK(softplus(TestType(-40)) == Approx(4.248354255291589e-18).epsilon(1e-6).margin(0));
  CHECK(softplus(TestType(0)) == Approx(std::log(2.0)).epsilon(1e-7));
  CHECK(softplus(TestType(800)) == 800);
  CHECK(softplus(infinity) == infinity);
  CHECK(softplus(-infinity) == 0);
  CHECK(std::isnan(softplus(std::numeric_limits<TestType>::quiet_NaN())));
}

TEMPLATE_TEST_CASE("softplus_inverse", "", float, double) {
  for (const double y : {1e-30, 1e-10, 1e-3, 0.5, 1.0, 3.0, 20.0, 80.0, 800.0}) {
    const TestType given = static_cast<TestType>(y);
    const long double wide = given;
    const TestType x = softplus_inverse(given);
    const double room = 4 * std::max(1.0, std::abs(static_cast<double>(x)));  // of the round trip
    CHECK(std::abs(x - (wide + std::log(-std::expm1(-wide)))) <=
          room * std::numeric_limits<TestType>::epsilon());
    CHECK(ulps(softplus(x), wide) <= room);
  }
  CHECK(softplus_inverse(TestType(800)) == 800);
  CHECK(softplus_inverse(TestType(0)) == -std::numeric_limits<TestType>::infinity());
  CHECK(ulps(softplus_inverse(TestType(1e-10)),
             std::log(static_cast<long double>(TestType(1e-10))) + 5e-11L) <= 2);
}

TEST_CASE("softplus_inverse of 1e-300") {
  CHECK(ulps(softplus_inverse(1e-300), std::log(1e-300L)) <= 2);
  CHECK(softplus(softplus_inverse(1e-300)) == Approx(1e-300).epsilon(1e-12).margin(0));
}

TEMPLATE_TEST_CASE("sigmoid and log_sigmoid", "", float, double) {
  constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
  for (const double x : {-80.0, -40.0, -1.0, 0.0, 1.0, 40.0, 80.0}) {
    CHECK(ulps(sigmoid(static_cast<TestType>(x)), exact_sigmoid(x)) <= 3);
    CHECK(ulps(log_sigmoid(static_cast<TestType>(x)), -exact_softplus(-x)) <= 2);
  }
  CHECK(sigmoid(infinity) == 1);
  CHECK(sigmoid(-infinity) == 0);
  CHECK(log_sigmoid(TestType(-800)) == -800);
  CHECK(log_sigmoid(TestType(800)) == 0);
  CHECK(log_sigmoid(infinity) == 0);
  CHECK(log_sigmoid(-infinity) == -infinity);
}

TEMPLATE_TEST_CASE("silu", "", float, double) {
  constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
  for (const double x : {-80.0, -40.0, -1.0, -0.25, 0.0, 1.0, 40.0, 800.0})
    CHECK(ulps(silu(static_cast<TestType>(x)), static_cast<long double>(x) * exact_sigmoid(x)) <= 4);
  CHECK(silu(-infinity) == 0);
  CHECK(silu(std::numeric_limits<TestType>::lowest()) == 0);
  CHECK(silu(infinity) == infinity);
  CHECK(std::isnan(silu(std::numeric_limits<TestType>::quiet_NaN())));
}

}  // namespace linrec::test::activation_test
