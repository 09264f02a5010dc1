#include "linrec/policy/spectrum.hpp"

#include "linrec/policy/initial.hpp"
#include "tests/catch.hpp"

namespace linrec::test::spectrum_test {

using Eigen::ArrayXd;

namespace {

constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

struct NotASpectrum {
  double rate = 1;
};

}  // namespace

static_assert(SpectrumPolicy<FreeSpectrum> && SpectrumPolicy<PostSpectrum>);
static_assert(!SpectrumPolicy<NotASpectrum> && !SpectrumPolicy<double>);

TEST_CASE("FreeSpectrum: the parameters themselves") {
  const ArrayXd p{{0.5, -1, 3}};
  CHECK((FreeSpectrum(p).log_rates() == p).all());
  CHECK((FreeSpectrum::from_rates(ArrayXd{{1, 0.5, 16}}).log_rates() ==
         ArrayXd{{0, std::log(0.5), std::log(16.0)}})
            .all());
  CHECK((FreeSpectrum::unit(3).log_rates() == ArrayXd::Zero(3)).all());
  CHECK(FreeSpectrum(ArrayXd{{-2.0}}).log_rates().size() == 1);
}

TEST_CASE("FreeSpectrum: a rate of 0 is a log-rate of -inf") {
  CHECK(FreeSpectrum(ArrayXd{{-infinity, 0}}).log_rates()[0] == -infinity);
  CHECK(FreeSpectrum::from_rates(ArrayXd{{0, 1}}).log_rates()[0] == -infinity);
}

TEST_CASE("FreeSpectrum: what it refuses") {
  REQUIRE_THROWS_MATCHES(FreeSpectrum(ArrayXd()), ShapeError,
                         message_contains("log_rates: expected at least 1 rate, got 0"));
  for (const double p : {quiet_nan, infinity})
    REQUIRE_THROWS_MATCHES(
        FreeSpectrum(ArrayXd{{0, p}}), ValueError,
        message_contains(message("log_rates[1]: expected a number below infinity, got ", p)));
  for (const double rate : {-1.0, -1e-300, quiet_nan, infinity})
    REQUIRE_THROWS_MATCHES(
        FreeSpectrum::from_rates(ArrayXd{{1, rate}}), ValueError,
        message_contains(message("rates[1]: expected a finite number of at least 0, got ", rate)));
  CHECK_THROWS_AS(FreeSpectrum::from_rates(ArrayXd()), ShapeError);
}

TEST_CASE("PostSpectrum: p_k = theta + the sum of softplus(delta)") {
  const ArrayXd delta{{-30, -2, 0, 1.5, 40}};
  const PostSpectrum spectrum(-3, delta);
  REQUIRE(spectrum.log_rates().size() == 6);
  long double p = -3;
  CHECK(spectrum.log_rates()[0] == -3);
  for (Index k = 0; k < 5; ++k) {
    p += std::log1p(std::exp(static_cast<long double>(delta[k])));
    CHECK(spectrum.log_rates()[k + 1] == Approx(static_cast<double>(p)).epsilon(1e-15));
    CHECK(spectrum.log_rates()[k + 1] > spectrum.log_rates()[k]);
  }
  CHECK(spectrum.theta() == -3);
  CHECK((spectrum.delta() == delta).all());
}

TEST_CASE("PostSpectrum: ordered, whatever an optimiser does") {
  for (const double scale : {1e-3, 1.0, 30.0, 1000.0}) {
    const PostSpectrum spectrum(2, scale * ArrayXd::Random(50));
    for (Index k = 0; k < 50; ++k) CHECK(spectrum.log_rates()[k + 1] >= spectrum.log_rates()[k]);
  }
}

TEST_CASE("PostSpectrum: N = 1") {
  CHECK(PostSpectrum(-2, ArrayXd()).log_rates().size() == 1);
  CHECK(PostSpectrum(-2, ArrayXd()).log_rates()[0] == -2);
  const PostSpectrum one = PostSpectrum::from_log_rates(ArrayXd{{0.25}});
  CHECK(one.theta() == 0.25);
  CHECK(one.delta().size() == 0);
}

TEST_CASE("PostSpectrum: the inverse gives the wanted rates") {
  for (const ArrayXd& p : {geometric_log_rates(64, 1e-4, 1), linear_log_rates(64, 1e-4, 1),
                           random_log_rates(64, 1e-4, 1, 3), ArrayXd{{-500, -1e-9, 1e-9, 700}}}) {
    const PostSpectrum spectrum = PostSpectrum::from_log_rates(p);
    CHECK((spectrum.log_rates() - p).abs().maxCoeff() <= 1e-13 * p.abs().maxCoeff());
  }
  // Gaps far below the rounding of expm1: softplus(delta) = gap to all digits.
  const PostSpectrum tight = PostSpectrum::from_log_rates(ArrayXd{{0, 1e-300}});
  CHECK(tight.delta()[0] == Approx(std::log(1e-300)).epsilon(1e-14));
  CHECK(tight.log_rates()[1] == Approx(1e-300).epsilon(1e-12).margin(0));
}

TEST_CASE("PostSpectrum: the released inverse is about 1e-6 off") {
  const ArrayXd p = geometric_log_rates(24, 1e-3, 1);
  const PostSpectrum released = PostSpectrum::from_log_rates_as_released(p);
  CHECK(released.delta()[0] == Approx(std::log(std::exp(p[1] - p[0]) - 1 + 1e-6)).epsilon(1e-14));
  const ArrayXd gaps = released.log_rates().tail(23) - released.log_rates().head(23);
  for (Index k = 0; k < 23; ++k) {
    CHECK(std::abs(gaps[k] - (p[k + 1] - p[k])) > 1e-7);
    CHECK(std::abs(gaps[k] - (p[k + 1] - p[k])) < 1e-6);
  }
}

TEST_CASE("PostSpectrum: what it refuses") {
  REQUIRE_THROWS_MATCHES(PostSpectrum(quiet_nan, ArrayXd()), ValueError,
                         message_contains("theta: expected a finite number, got nan"));
  REQUIRE_THROWS_MATCHES(PostSpectrum(0, ArrayXd{{0, infinity}}), ValueError,
                         message_contains("delta[1]: expected a finite number, got inf"));
  REQUIRE_THROWS_MATCHES(PostSpectrum::from_log_rates(ArrayXd()), ShapeError,
                         message_contains("log_rates: expected at least 1 rate, got 0"));
  REQUIRE_THROWS_MATCHES(PostSpectrum::from_log_rates(ArrayXd{{0, 1, 1}}), ValueError,
                         message_contains("log_rates[2]: expected more than log_rates[1] = 1, got 1"));
  CHECK_THROWS_AS(PostSpectrum::from_log_rates(ArrayXd{{0, quiet_nan}}), ValueError);
  CHECK_THROWS_AS(PostSpectrum::from_log_rates(ArrayXd{{0, infinity}}), ValueError);
  CHECK_THROWS_AS(PostSpectrum::from_log_rates_as_released(ArrayXd{{1, 0}}), ValueError);
}

}  // namespace linrec::test::spectrum_test
