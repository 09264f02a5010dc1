// Drawing tokens: what is never drawn, how often the rest is, and which settings are refused.
#include "examples/generate/sampling.hpp"

#include <map>
#include <set>

#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"

using generate::Sampler;
using generate::Sampling;
using linrec::TokenId;
using linrec::ValueError;
using linrec::test::error_text;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// p = 0.1, 0.4, 0.2, 0.3, but for a constant
const std::vector<float> logits{std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(3.0f)};

std::map<TokenId, double> frequencies(const Sampling& sampling, const std::vector<float>& z = logits) {
  constexpr int count = 40000;
  Sampler sampler(sampling, 5);
  std::map<TokenId, double> result;
  for (int i = 0; i < count; ++i) result[sampler.next(z)] += 1.0 / count;
  return result;
}

/// Within four standard deviations.
void check_near(double got, double p) { CHECK(std::abs(got - p) < 4 * std::sqrt(p * (1 - p) / 40000)); }

}  // namespace

TEST_CASE("temperature 0 takes the largest logit, the first of equal ones, and draws nothing") {
  Sampler sampler(Sampling{});
  CHECK(sampler.next(logits) == 1);
  CHECK(sampler.next(std::vector<float>{-3, 2, 2, -infinity}) == 1);
  CHECK(sampler.next(std::vector<float>{-infinity, -infinity, -1e30f}) == 2);
  CHECK(sampler.next(std::vector<float>{0}) == 0);
  CHECK(sampler.draws() == 0);
}

TEST_CASE("temperature 1 draws with the probabilities of the model") {
  auto f = frequencies({.temperature = 1});
  check_near(f[0], 0.1);
  check_near(f[1], 0.4);
  check_near(f[2], 0.2);
  check_near(f[3], 0.3);
}

TEST_CASE("the temperature is an exponent of the probabilities") {
  auto f = frequencies({.temperature = 0.5});  // 1, 16, 4, 9
  check_near(f[1], 16.0 / 30);
  check_near(f[3], 9.0 / 30);
  f = frequencies({.temperature = 1e300});
  check_near(f[0], 0.25);
  f = frequencies({.temperature = 1e-300});
  CHECK(f[1] == Approx(1));
}

TEST_CASE("logits of any size are no danger") {
  auto f = frequencies({.temperature = 1}, {3e38f, -3e38f, 3e38f, -infinity});
  check_near(f[0], 0.5);
  CHECK(f.count(1) == 0);
  CHECK(f.count(3) == 0);
}

TEST_CASE("top-k keeps the k likeliest") {
  CHECK(frequencies({.temperature = 1, .top_k = 1}) == frequencies({.temperature = 0}));
  auto f = frequencies({.temperature = 1, .top_k = 2});
  CHECK(f.size() == 2);
  check_near(f[1], 4.0 / 7);
  check_near(f[3], 3.0 / 7);
  CHECK(frequencies({.temperature = 1, .top_k = 4}) == frequencies({.temperature = 1}));
  CHECK(frequencies({.temperature = 1, .top_k = 1000}) == frequencies({.temperature = 1}));
  CHECK(frequencies({.temperature = 1, .top_k = 1}, {2, 2, 2}).count(0) == 1);  // equal: the lowest id
}

TEST_CASE("top-p keeps the fewest that reach p, at least one") {
  CHECK(frequencies({.temperature = 1, .top_p = 1e-9}).size() == 1);
  CHECK(frequencies({.temperature = 1, .top_p = 0.39}).size() == 1);
  CHECK(frequencies({.temperature = 1, .top_p = 0.41}).size() == 2);
  auto f = frequencies({.temperature = 1, .top_p = 0.69});
  CHECK(f.size() == 2);
  check_near(f[1], 4.0 / 7);
  CHECK(frequencies({.temperature = 1, .top_p = 0.89}).size() == 3);
  CHECK(frequencies({.temperature = 1, .top_p = 0.91}).size() == 4);
  // Of what top-k leaves, 4 / 7 and 3 / 7.
  CHECK(frequencies({.temperature = 1, .top_k = 2, .top_p = 0.5}).size() == 1);
  CHECK(frequencies({.temperature = 1, .top_k = 2, .top_p = 0.6}).size() == 2);
}

TEST_CASE("a seed gives the same tokens everywhere") {
  Sampler sampler({.temperature = 1}, 5489);  // whose first number the standard library's authors all know
  std::vector<TokenId> tokens;
  for (int i = 0; i < 8; ++i) tokens.push_back(sampler.next(logits));
  // u = 14514284786278117030 / 2^64 = 0.786..., of the likeliest first: 0.4, 0.7, 0.9, 1
  CHECK(tokens[0] == 2);
  std::mt19937_64 bits(5489);
  for (const TokenId token : tokens) {
    const double u = static_cast<double>(bits()) * 0x1p-64;
    CHECK(token == (u < 0.4 ? 1 : u < 0.7 ? 3 : u < 0.9 ? 2 : 0));
  }
}

TEST_CASE("a sampler goes on where another stopped") {
  Sampler whole({.temperature = 1}, 3), first({.temperature = 1}, 3);
  for (int i = 0; i < 7; ++i) CHECK(whole.next(logits) == first.next(logits));
  CHECK(first.seed() == 3);
  CHECK(first.draws() == 7);
  Sampler second({.temperature = 1}, first.seed(), first.draws());
  CHECK(second.draws() == 7);
  for (int i = 0; i < 50; ++i) CHECK(whole.next(logits) == second.next(logits));
  std::set<std::vector<TokenId>> texts;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Sampler sampler({.temperature = 1}, seed);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 30; ++i) tokens.push_back(sampler.next(logits));
    texts.insert(tokens);
  }
  CHECK(texts.size() == 10);
}

TEST_CASE("settings that make no sense are refused") {
  const auto refused = [](const Sampling& sampling) {
    return error_text<ValueError>([&] { Sampler{sampling}; });
  };
  const double nan = std::nan("");
  CHECK(refused({.temperature = -1}) == "temperature: expected a finite number of at least 0, got -1");
  CHECK_THAT(refused({.temperature = nan}), contains("got nan"));
  CHECK_THAT(refused({.temperature = HUGE_VAL}), contains("got inf"));
  CHECK(refused({.temperature = 1, .top_k = -1}) == "top-k: expected at least 0, got -1");
  for (const double p : {0.0, -0.5, 1.5, nan})
    CHECK_THAT(refused({.temperature = 1, .top_p = p}),
               contains("top-p: expected a number above 0 and at most 1, got "));
  CHECK_THAT(refused({.top_k = 3}), contains("expected a temperature above 0"));
  CHECK_THAT(refused({.top_p = 0.5}), contains("expected a temperature above 0"));
}

TEST_CASE("logits that are no numbers are refused") {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    const auto refused = [&](const std::vector<float>& z) {
      return error_text<ValueError>([&] { sampler.next(z); });
    };
    CHECK(refused({0, std::nanf(""), 1}) == "logits: expected finite numbers, got nan for token 1");
    CHECK(refused({std::nanf("")}) == "logits: expected finite numbers, got nan for token 0");
    CHECK(refused({0, 1, infinity}) == "logits: expected finite numbers, got inf for token 2");
    CHECK(refused({-infinity, -infinity}) == "logits: expected a finite number, got none among 2");
    CHECK(refused({}) == "logits: expected a finite number, got none among 0");
  }
}
