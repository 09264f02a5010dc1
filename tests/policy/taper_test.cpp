#include "linrec/policy/taper.hpp"

#include "linrec/policy/initial.hpp"
#include "linrec/policy/spectrum.hpp"
#include "tests/catch.hpp"

namespace linrec::test::taper_test {

using Eigen::ArrayXd;

namespace {

constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

struct NotATaper {
  double alpha = 1;
};

/// A spectrum with every channel moved to another place, and what must come out of a taper for it.
template <class Taper>
void check_ranks(const Taper& taper, const ArrayXd& sorted) {
  const Index n = sorted.size();
  ArrayXd p(n), expected(n);
  const ArrayXd alpha = taper.exponents(sorted);
  for (Index k = 0; k < n; ++k) {
    p[(k * 5 + 3) % n] = sorted[k];
    expected[(k * 5 + 3) % n] = alpha[k];
  }
  CHECK((taper.exponents(p) == expected).all());
}

}  // namespace

static_assert(TaperPolicy<NoTaper> && TaperPolicy<LinearTaper> && TaperPolicy<GapAwareTaper> &&
              TaperPolicy<LearnedTaper> && TaperPolicy<GivenTaper>);
static_assert(!TaperPolicy<NotATaper> && !TaperPolicy<double> && !TaperPolicy<FreeSpectrum>);

TEST_CASE("NoTaper: all 0") { CHECK((NoTaper().exponents(ArrayXd{{0, 1, 2}}) == ArrayXd::Zero(3)).all()); }

TEST_CASE("LinearTaper: (N-k)/(N-1)") {
  CHECK((LinearTaper().exponents(ArrayXd{{-3, 0, 1, 2, 9}}) == ArrayXd{{1, 0.75, 0.5, 0.25, 0}}).all());
  check_ranks(LinearTaper(), geometric_log_rates(12, 0.1, 1));
}

TEST_CASE("tapers go by speed: the slowest is 1, equal rates keep their order") {
  CHECK((LinearTaper().exponents(ArrayXd{{2, -3, 9, 0, 1}}) == ArrayXd{{0.25, 1, 0, 0.75, 0.5}}).all());
  CHECK((LinearTaper().exponents(ArrayXd{{5, 1, 5, 1, 5}}) == ArrayXd{{0.5, 1, 0.25, 0.75, 0}}).all());
}

TEST_CASE("N = 1 is never tapered") {
  const ArrayXd one{{-4.0}};
  CHECK(LinearTaper().exponents(one)[0] == 0);
  CHECK(GapAwareTaper(100).exponents(one)[0] == 0);
  CHECK(LearnedTaper(ArrayXd()).exponents(one)[0] == 0);
  CHECK(NoTaper().exponents(one)[0] == 0);
}

TEST_CASE("GapAwareTaper: the formula, in long double") {
  const double T = 2048;
  for (const ArrayXd& p :
       {geometric_log_rates(24, 1e-3, 1), linear_log_rates(24, 1e-3, 1), random_log_rates(24, 1e-3, 1, 1)}) {
    const ArrayXd alpha = GapAwareTaper(T).exponents(p);
    const long double n = 24;
    for (Index k = 1; k <= 24; ++k) {
      const long double c = static_cast<long double>(p[k - 1]) - p[0],
                        c_last = static_cast<long double>(p[23]) - p[0];
      const long double k_wide = static_cast<long double>(k);
      const long double exact = std::clamp((n - k_wide) / (n - 1) + (c - (k_wide - 1) * c_last / (n - 1)) /
                                                                        std::log(static_cast<long double>(T)),
                                           0.0L, 1.0L);
      CHECK(alpha[k - 1] == Approx(static_cast<double>(exact)).epsilon(1e-14).margin(1e-15));
    }
    CHECK(alpha[0] == 1);
    CHECK(alpha[23] == 0);
  }
}

TEST_CASE("GapAwareTaper: evenly spaced effective rates at T_ref where nothing is clamped") {
  const double T = 1e6;  // so long that no exponent leaves [0, 1]
  const ArrayXd p = linear_log_rates(24, 0.2, 1);
  const ArrayXd alpha = GapAwareTaper(T).exponents(p);
  REQUIRE((alpha.segment(1, 22) > 0).all());
  REQUIRE((alpha.segment(1, 22) < 1).all());
  const ArrayXd effective = p - alpha * std::log(T);
  const ArrayXd gaps = effective.tail(23) - effective.head(23);
  CHECK((gaps - gaps.mean()).abs().maxCoeff() < 1e-13);
  CHECK(gaps.mean() == Approx((p[23] - p[0] + std::log(T)) / 23).epsilon(1e-14));
}

TEST_CASE("GapAwareTaper: a geometric spectrum gives the linear taper; wild ones are clamped") {
  const ArrayXd p = geometric_log_rates(9, 1e-3, 1);
  CHECK((GapAwareTaper(64).exponents(p) - LinearTaper().exponents(p)).abs().maxCoeff() < 1e-15);
  const ArrayXd wild = GapAwareTaper(8).exponents(ArrayXd{{0, 50, 51, 100, 100.1, 180, 200}});
  CHECK((wild >= 0).all());
  CHECK((wild <= 1).all());
  CHECK(wild[1] == 1);
  CHECK(GapAwareTaper(8).exponents(ArrayXd{{0, 1, 2, 100}})[2] == 0);
  check_ranks(GapAwareTaper(500), random_log_rates(12, 1e-3, 1, 2));
  CHECK(GapAwareTaper(500).reference_length() == 500);
  // One rate for all: no gaps to be aware of.
  CHECK((GapAwareTaper(64).exponents(ArrayXd::Zero(3)) == ArrayXd{{1, 0.5, 0}}).all());
}

TEST_CASE("LearnedTaper: from 1 to 0 by the steps of a softmax") {
  const ArrayXd p = geometric_log_rates(6, 0.1, 1), logits{{0.3, -2, 1, 0, -0.5}};
  const ArrayXd alpha = LearnedTaper(logits).exponents(p);
  CHECK(alpha[0] == 1);
  CHECK(alpha[5] == 0);
  long double sum = 0, left = 1;
  for (const double x : logits) sum += std::exp(static_cast<long double>(x));
  for (Index k = 1; k < 5; ++k) {
    left -= std::exp(static_cast<long double>(logits[k - 1])) / sum;
    CHECK(alpha[k] == Approx(static_cast<double>(left)).epsilon(1e-14));
    CHECK(alpha[k] > 0);
    CHECK(alpha[k] < 1);
    CHECK(alpha[k] < alpha[k - 1]);
  }
  CHECK((LearnedTaper(ArrayXd::Constant(5, 7)).exponents(p) - LinearTaper().exponents(p)).abs().maxCoeff() <
        1e-15);
  CHECK((LearnedTaper(logits).logits() == logits).all());
  check_ranks(LearnedTaper(ArrayXd::LinSpaced(11, -1, 2)), geometric_log_rates(12, 0.1, 1));
}

TEST_CASE("LearnedTaper: logits that are far apart") {
  const ArrayXd alpha = LearnedTaper(ArrayXd{{1000, 0, -1000}}).exponents(ArrayXd{{0, 1, 2, 3}});
  CHECK(alpha.allFinite());
  CHECK(alpha[0] == 1);
  CHECK(alpha[3] == 0);
  // Small exponents keep their digits: 1 - cumsum would give 0.
  const ArrayXd small = LearnedTaper(ArrayXd{{0, -50, -60}}).exponents(ArrayXd{{0, 1, 2, 3}});
  CHECK(small[2] == Approx(std::exp(-60.0)).epsilon(1e-13).margin(0));
}

TEST_CASE("GivenTaper: as given") {
  const ArrayXd alpha{{0, 1, 0.5}};
  CHECK((GivenTaper(alpha).exponents(ArrayXd{{2, 1, 0}}) == alpha).all());
}

TEST_CASE("tapers: what they refuse") {
  for (const double length : {1.0, 0.0, -5.0, quiet_nan, infinity})
    REQUIRE_THROWS_MATCHES(
        GapAwareTaper(length), ValueError,
        message_contains(message("reference_length: expected a finite number > 1, got ", length)));
  for (const double p : {-infinity, infinity, quiet_nan})
    REQUIRE_THROWS_MATCHES(GapAwareTaper(64).exponents(ArrayXd{{0, p}}), ValueError,
                           message_contains(message("log_rates[1]: expected a finite number, got ", p)));
  REQUIRE_THROWS_MATCHES(LearnedTaper(ArrayXd{{0, quiet_nan}}), ValueError,
                         message_contains("alpha_logits[1]: expected a finite number, got nan"));
  REQUIRE_THROWS_MATCHES(LearnedTaper(ArrayXd::Zero(3)).exponents(ArrayXd::Zero(3)), ShapeError,
                         message_contains("alpha_logits: expected N - 1 = 2 entries, got 3"));
  for (const double alpha : {-0.1, 1.1, quiet_nan})
    REQUIRE_THROWS_MATCHES(GivenTaper(ArrayXd{{0.5, alpha}}), ValueError,
                           message_contains(message("alpha[1]: expected a number in [0, 1], got ", alpha)));
  REQUIRE_THROWS_MATCHES(GivenTaper(ArrayXd::Zero(3)).exponents(ArrayXd::Zero(2)), ShapeError,
                         message_contains("alpha: expected N = 2 entries, got 3"));
}

TEST_CASE("the factor t^-alpha, to a position of 10^12") {
  for (const double alpha : {0.0, 0.1, 0.5, 1.0})
    for (const double t : {1.0, 2.0, 1000.0, 1e12})
      CHECK(
          position_scale(alpha, t) ==
          Approx(static_cast<double>(std::pow(static_cast<long double>(t), -static_cast<long double>(alpha))))
              .epsilon(1e-14));
  CHECK(position_scale(1, 1) == 1);
}

TEST_CASE("RWKV-7's taper acts inside the sigmoid") {
  for (const double alpha : {0.0, 0.5, 1.0})
    for (const double t : {1.0, 50.0, 1e12})
      for (const double logit : {-8.0, 0.5, 40.0}) {
        const long double x = static_cast<long double>(logit) - alpha * std::log(static_cast<long double>(t));
        const long double exact = -std::exp(-0.5L) / (1 + std::exp(-x));
        CHECK(rwkv7_log_decay(logit, alpha, t) ==
              Approx(static_cast<double>(exact)).epsilon(1e-13).margin(0));
      }
  CHECK(rwkv7_log_decay(-infinity, 0, 1) == 0);
  CHECK(rwkv7_log_decay(infinity, 1, 10) == -std::exp(-0.5));
}

}  // namespace linrec::test::taper_test
