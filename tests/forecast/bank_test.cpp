#include "examples/forecast/bank.hpp"

#include <vector>

#include "helpers.hpp"
#include "tests/catch.hpp"

using forecast::bank_log_rates;
using forecast::Index;
using forecast::MemoryBank;
using forecast::Spread;
using linrec::LinearTaper;
using linrec::NoTaper;

namespace {

// The running mean at position t = x.size() by the definition: a loop over the past for each weight.
double naive_mean(const std::vector<double>& x, double log_rate, double alpha) {
  double weighted = 0, weights = 0;
  for (std::size_t s = 1; s <= x.size(); ++s) {
    double exponent = 0;
    for (std::size_t u = s + 1; u <= x.size(); ++u)
      exponent += std::exp(log_rate) * std::pow(static_cast<double>(u), -alpha);
    weighted += std::exp(-exponent) * x[s - 1];
    weights += std::exp(-exponent);
  }
  return weighted / weights;
}

template <class Taper>
void check_against_naive(const Taper& taper, Spread spread, Index memories) {
  const std::vector<double> x = forecast::test::autoregressive_series({0.9}, 5, 150, 7);
  const Eigen::ArrayXd log_rates = bank_log_rates<Taper>(spread, memories, 150, 3);
  const Eigen::ArrayXd alpha = taper.exponents(log_rates);
  MemoryBank<Taper> bank(log_rates, taper);
  std::vector<double> past;
  double worst = 0;
  for (const double value : x) {
    bank.absorb(value);
    past.push_back(value);
    for (Index k = 0; k < memories; ++k)
      worst = std::max(worst, std::abs(bank.means()[k] - naive_mean(past, log_rates[k], alpha[k])));
  }
  CHECK(worst < 1e-12);
}

}  // namespace

TEST_CASE("memories are running means by the definition") {
  for (const Spread spread : {Spread::random, Spread::linear, Spread::geometric}) {
    CAPTURE(name_of(spread));
    check_against_naive(NoTaper(), spread, 5);
    check_against_naive(LinearTaper(), spread, 5);
    check_against_naive(NoTaper(), spread, 1);
    check_against_naive(LinearTaper(), spread, 1);
  }
}

TEST_CASE("a bank in a copied state goes on alike") {
  MemoryBank<LinearTaper> bank(bank_log_rates<LinearTaper>(Spread::geometric, 8, 0, 0));
  for (int i = 0; i < 20; ++i) bank.absorb(i);
  MemoryBank<LinearTaper> fork = bank;
  bank.absorb(1);
  CHECK(fork.means() != bank.means());
  fork.absorb(1);
  CHECK(fork.means() == bank.means());
}

TEST_CASE("the tapered geometric bank has the rates of the static one for every length") {
  const Index memories = 24;
  const Eigen::ArrayXd base = bank_log_rates<LinearTaper>(Spread::geometric, memories, 0, 0);
  const Eigen::ArrayXd alpha = LinearTaper().exponents(base);
  for (const double t : {2.0, 100.0, 1e6}) {
    const Eigen::ArrayXd fixed = bank_log_rates<NoTaper>(Spread::geometric, memories, t, 0);
    CHECK((linrec::effective_log_rates(base, alpha, t) - fixed).abs().maxCoeff() < 1e-12);
    CHECK(linrec::channels_in_use(base, alpha, t) == memories);
  }
}
