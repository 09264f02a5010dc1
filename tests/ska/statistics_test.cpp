// The sums of SKA: what they are, and that segments merge to what one pass gives.
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/ska/attention.hpp"

namespace linrec::test::statistics_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();
constexpr KeyScale all_scales[] = {KeyScale::sequence_max, KeyScale::unit_norm, KeyScale::none};

TokenView<const double> view(const Tensor& x) { return {x.numbers.data(), x.extents, x.strides}; }

/// Adds the tokens [first, first + count) of the one row and head.
void add(SkaStatistics& statistics, const Tokens& tokens, Index first, Index count) {
  const auto weights = tokens.weighted()
                           ? std::span(tokens.weights.numbers)
                                 .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))
                           : std::span<const double>();
  statistics.add(view(tokens.k).slice(first, count), view(tokens.v).slice(first, count), weights);
}

SkaStatistics statistics_of(const Setup& setup, const Tokens& tokens, Index first, Index count) {
  SkaStatistics statistics(setup.key, setup.value, setup.key_scale);
  add(statistics, tokens, first, count);
  return statistics;
}
SkaStatistics statistics_of(const Setup& setup, const Tokens& tokens) {
  return statistics_of(setup, tokens, 0, tokens.count());
}

void add_one(SkaStatistics& statistics, const std::vector<double>& key, const std::vector<double>& value,
             double weight = 1) {
  statistics.add(std::span(key), std::span(value), weight);
}

enum class Tree { left, right, balanced };

/// Merges segments [first, end) in that grouping.
SkaStatistics merged(const std::vector<SkaStatistics>& segments, Tree tree, std::size_t first,
                     std::size_t end) {
  if (end - first == 1) return segments[first];
  const std::size_t middle = tree == Tree::left    ? end - 1
                             : tree == Tree::right ? first + 1
                                                   : (first + end) / 2;
  SkaStatistics result = merged(segments, tree, first, middle);
  result.merge(merged(segments, tree, middle, end));
  return result;
}

}  // namespace

TEST_CASE("statistics: the sums of the formulas, of one token and of many") {
  for (const auto& [r, P] : std::vector<std::array<Index, 2>>{{1, 1}, {2, 3}, {5, 1}, {8, 8}, {17, 9}})
    for (const KeyScale scale : all_scales)
      for (const Weights weights : {Weights::none, Weights::some}) {
        Setup setup(1, r, P);
        setup.key_scale = scale;
        INFO(setup.name());
        const Tokens tokens = random_tokens(setup, 1, 40, 1, weights);
        SkaStatistics one_by_one(r, P, scale);
        for (Index t = 0; t < 40; ++t) {
          CHECK(one_by_one.position() == t);
          add(one_by_one, tokens, t, 1);
          CHECK(difference(one_by_one, sums_of(setup, tokens, 0, 0, t + 1), 1e-13) == "");
        }
        const SkaStatistics at_once = statistics_of(setup, tokens);
        CHECK((at_once == one_by_one));
        CHECK(at_once.position() == 40);
        CHECK((at_once.G() == at_once.G().transpose()));
      }
}

TEST_CASE("statistics: floats are taken in as doubles") {
  const Setup setup(1, 3, 2);
  const Tokens tokens = random_tokens(setup, 1, 20, 2);
  const std::vector<float> k(tokens.k.numbers.begin(), tokens.k.numbers.end()),
      v(tokens.v.numbers.begin(), tokens.v.numbers.end());
  SkaStatistics statistics(3, 2), by_spans(3, 2);
  statistics.add(TokenView<const float>(k.data(), 1, 20, 1, 3),
                 TokenView<const float>(v.data(), 1, 20, 1, 2));
  CHECK((statistics == statistics_of(setup, tokens)));
  for (std::size_t t = 0; t < 20; ++t)
    by_spans.add(std::span(k).subspan(3 * t, 3), std::span(v).subspan(2 * t, 2));
  CHECK((statistics == by_spans));
}

TEST_CASE("statistics: a token of weight 0 is a gap in the products of keys") {
  SkaStatistics statistics(1, 1, KeyScale::none);
  add_one(statistics, {2}, {1});
  add_one(statistics, {100}, {100}, 0);
  CHECK(statistics.G()(0, 0) == 4);
  CHECK(statistics.Cv()(0, 0) == 2);
  CHECK(statistics.last_key()[0] == 0);
  CHECK(statistics.max_norm() == 2);
  CHECK(statistics.position() == 2);
  add_one(statistics, {3}, {1});
  CHECK(statistics.M()(0, 0) == 0);
  add_one(statistics, {5}, {1}, 0.25);
  CHECK(statistics.G()(0, 0) == 13 + 0.25 * 25);
  CHECK(statistics.M()(0, 0) == 0.25 * 15);
  CHECK(statistics.Cv()(0, 0) == 5 + 0.25 * 5);
  CHECK(statistics.last_key()[0] == 1.25);
  CHECK(statistics.max_norm() == 5);
  CHECK(statistics.first_key()[0] == 2);

  // The first key is that of the first token, whatever the position.
  SkaStatistics later(1, 1, KeyScale::none);
  later.set_position(100);
  add_one(later, {7}, {1});
  add_one(later, {8}, {1});
  CHECK(later.first_key()[0] == 7);
  CHECK(later.position() == 102);

  // At the start of a segment it is a gap, too.
  SkaStatistics gap(1, 1, KeyScale::none);
  add_one(gap, {7}, {1}, 0);
  add_one(gap, {7}, {1});
  CHECK(gap.first_key()[0] == 0);
  const double before = statistics.M()(0, 0);
  statistics.merge(gap);
  CHECK(statistics.M()(0, 0) == before);
}

TEST_CASE("statistics: merged segments are one pass, in any grouping") {
  for (const KeyScale scale : all_scales)
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Setup setup(1, seed % 2 == 0 ? 3 : 9, 4);
      setup.key_scale = scale;
      Random random(seed);
      const Index T = random.integer(1, 60);
      const Tokens tokens =
          random_tokens(setup, 1, T, seed, random.integer(0, 1) == 0 ? Weights::none : Weights::some);
      const SkaStatistics expected = statistics_of(setup, tokens);
      std::vector<SkaStatistics> segments;
      for (Index first = 0; first < T || segments.empty();) {
        const Index kind = random.integer(0, 3);  // empty, one token, more
        const Index n = std::min(T - first, kind < 2 ? kind : random.integer(2, 20));
        segments.push_back(statistics_of(setup, tokens, first, n));
        first += n;
      }
      for (const Tree tree : {Tree::left, Tree::right, Tree::balanced})
        CHECK(difference(merged(segments, tree, 0, segments.size()), expected, 1e-14) == "");

      // What was merged can be added to, and merged again.
      SkaStatistics twice = merged(segments, Tree::balanced, 0, segments.size());
      add(twice, tokens, 0, T);
      SkaStatistics again = expected;
      again.merge(expected);
      CHECK(difference(again, twice, 1e-14) == "");
    }
}

TEST_CASE("statistics: the product of keys across the seam of a merge") {
  SkaStatistics first(2, 1, KeyScale::none), second = first;
  add_one(first, {1, 0}, {1}, 0.25);
  add_one(second, {0, 3}, {1}, 0.25);
  first.merge(second);
  CHECK((first.M() == SkaStatistics::Matrix{{0, 0}, {0.1875, 0}}));
  CHECK((first.first_key() == Eigen::Vector2d(0.25, 0)));
  CHECK((first.last_key() == Eigen::Vector2d(0, 0.75)));
  CHECK(first.max_norm() == 3);
  CHECK(first.position() == 2);
}

TEST_CASE("statistics: merging with an empty segment, and with itself") {
  const Setup setup(1, 3, 2);
  const Tokens tokens = random_tokens(setup, 1, 10, 3);
  const SkaStatistics filled = statistics_of(setup, tokens), empty(3, 2);
  SkaStatistics left = empty, right = filled, both = empty;
  left.merge(filled);
  CHECK((left == filled));
  right.merge(empty);
  CHECK((right == filled));
  both.merge(empty);
  CHECK((both == empty));
  // An empty segment may know the largest norm.
  SkaStatistics norm = empty;
  norm.raise_max_norm(100);
  right.merge(norm);
  CHECK(right.max_norm() == 100);
  CHECK((right.last_key() == filled.last_key()));

  SkaStatistics itself = filled, twice = filled;
  itself.merge(itself);
  add(twice, tokens, 0, 10);
  CHECK(difference(itself, twice, 1e-14) == "");
}

TEST_CASE("statistics: a reset, a copy") {
  const Setup setup(1, 3, 2);
  const Tokens tokens = random_tokens(setup, 1, 10, 4);
  const SkaStatistics kept = statistics_of(setup, tokens);
  SkaStatistics statistics = kept, fresh(3, 2);
  add(statistics, tokens, 0, 5);
  CHECK(!(statistics == kept));
  CHECK((kept == statistics_of(setup, tokens)));  // the copy did not see it
  statistics.reset();
  CHECK((statistics == fresh));
  CHECK(statistics.empty());
  CHECK(statistics.max_norm() == 0);
  add(statistics, tokens, 0, 10);
  CHECK((statistics == kept));
  CHECK((statistics.first_key() == kept.first_key()));
}

TEST_CASE("statistics: equal are sizes, scale, position, norm and every sum") {
  const Setup setup(1, 3, 2);
  const SkaStatistics statistics = statistics_of(setup, random_tokens(setup, 1, 10, 5));
  SkaStatistics other = statistics;
  other.set_position(11);
  CHECK(!(other == statistics));
  other = statistics;
  other.raise_max_norm(100);
  CHECK(!(other == statistics));
  for (const Index i : {0, 1, 2}) {
    other = statistics;
    (i == 0 ? other.g() : i == 1 ? other.m() : other.c())[0] += 1e-9;
    CHECK(!(other == statistics));
  }
  CHECK(!(SkaStatistics(3, 2) == SkaStatistics(2, 2)));
  CHECK(!(SkaStatistics(3, 2) == SkaStatistics(3, 3)));
  CHECK(!(SkaStatistics(3, 2) == SkaStatistics(3, 2, KeyScale::none)));
}

TEST_CASE("statistics: keys of unit norm, whatever their length; zero keys stay zero") {
  for (const double size : {1.0, 1e-20, 1e-300, 1e-310, 5e-324, 1e139}) {
    INFO(size);
    SkaStatistics statistics(2, 1, KeyScale::unit_norm);
    add_one(statistics, {3 * size, -4 * size}, {1});
    // 5e-324 is the smallest number above 0.
    CHECK(statistics.last_key()[0] == Approx(0.6).epsilon(1e-14));
    CHECK(statistics.last_key()[1] == Approx(-0.8).epsilon(1e-14));
    CHECK(statistics.G()(0, 0) == Approx(0.36).epsilon(1e-14));
    CHECK(statistics.max_norm() == Approx(1).epsilon(1e-15));
    CHECK(statistics.ridge_scale() == 1);
  }
  SkaStatistics zero(2, 1, KeyScale::unit_norm);
  add_one(zero, {0, 0}, {1});
  CHECK(zero.G().isZero(0));
  CHECK(zero.max_norm() == 0);
}

TEST_CASE("statistics: the scale of the ridge") {
  SkaStatistics largest(2, 1), none(2, 1, KeyScale::none);
  CHECK(largest.ridge_scale() == 1e-12);
  for (const double size : {1e-20, 1e-7, 2.0, 0.5, 3.0}) {
    add_one(largest, {0, size}, {1});
    add_one(none, {0, size}, {1});
  }
  CHECK(largest.ridge_scale() == 9);
  CHECK(none.ridge_scale() == 1);
  CHECK(none.max_norm() == 3);
  // A maximum that is known beforehand; it is never lowered.
  largest.raise_max_norm(2);
  CHECK(largest.max_norm() == 3);
  largest.raise_max_norm(10);
  CHECK(largest.ridge_scale() == 100);
  add_one(largest, {5, 0}, {1});
  CHECK(largest.max_norm() == 10);
  for (const double bad : {-1.0, nan, infinity})
    CHECK(error_of([&] { largest.raise_max_norm(bad); }) ==
          message("ValueError: max_norm: expected a finite number of at least 0, got ", bad));
  CHECK(largest.max_norm() == 10);
}

TEST_CASE("statistics: what is set continues, and has no product across a seam before it") {
  const Setup setup(1, 3, 2);
  const Tokens tokens = random_tokens(setup, 1, 20, 6);
  const SkaStatistics half = statistics_of(setup, tokens, 0, 10);
  SkaStatistics restored(3, 2), expected = half;
  restored.set(half.G(), half.M(), half.Cv(), half.last_key(), half.max_norm(), half.position());
  CHECK(restored.first_key().isZero(0));
  add(restored, tokens, 10, 10);
  add(expected, tokens, 10, 10);
  CHECK((restored.G() == expected.G()));
  CHECK((restored.M() == expected.M()));
  CHECK((restored.Cv() == expected.Cv()));
  CHECK(restored.max_norm() == expected.max_norm());
  CHECK(restored.position() == 20);
  CHECK(restored.first_key().isZero(0));

  SkaStatistics before = half;
  before.merge(restored);
  CHECK((before.M() == half.M() + restored.M()));
  CHECK((before.last_key() == restored.last_key()));

  // Sums of no position count as well.
  SkaStatistics unknown(3, 2);
  unknown.set(half.G(), half.M(), half.Cv(), half.last_key(), half.max_norm(), 0);
  SkaStatistics sum = half;
  sum.merge(unknown);
  CHECK((sum.G() == 2 * half.G()));
}

TEST_CASE("statistics: what set refuses") {
  using Matrix = SkaStatistics::Matrix;
  const Matrix square = Matrix::Identity(3, 3), wide = Matrix::Ones(2, 3);
  const Eigen::VectorXd last = Eigen::VectorXd::Ones(3);
  const Setup setup(1, 3, 2);
  SkaStatistics statistics = statistics_of(setup, random_tokens(setup, 1, 10, 7));
  const SkaStatistics before = statistics;
  const auto refusal = [&](const Matrix& G, const Matrix& M, const Matrix& Cv, const Eigen::VectorXd& key,
                           double norm, std::int64_t position) {
    return error_of([&] { statistics.set(G, M, Cv, key, norm, position); });
  };
  CHECK(refusal(wide, square, wide, last, 1, 1) == "ShapeError: G: expected [3, 3], got [2, 3]");
  CHECK(refusal(square, wide, wide, last, 1, 1) == "ShapeError: M: expected [3, 3], got [2, 3]");
  CHECK(refusal(square, square, square, last, 1, 1) == "ShapeError: Cv: expected [2, 3], got [3, 3]");
  CHECK(refusal(square, square, wide, last.head(2), 1, 1) ==
        "ShapeError: last_key: expected [3, 1], got [2, 1]");
  CHECK(refusal(square * nan, square, wide, last, 1, 1) == "ValueError: G: expected finite numbers, got nan");
  CHECK(refusal(square, square, wide * infinity, last, 1, 1) ==
        "ValueError: Cv: expected finite numbers, got inf");
  CHECK(refusal(square, square, wide, last, -1, 1) ==
        "ValueError: max_norm: expected a finite number of at least 0, got -1");
  CHECK(refusal(square, square, wide, last, 1, -1) == "ValueError: position: expected 0 to 2^53, got -1");
  CHECK((statistics == before));
  CHECK(refusal(square, square, wide, last, 1, 1) == "nothing");
}

TEST_CASE("statistics: what add refuses, before anything changes") {
  const Setup setup(1, 3, 2);
  const Tokens good = random_tokens(setup, 1, 4, 8, Weights::some);
  SkaStatistics statistics = statistics_of(setup, good);
  const SkaStatistics before = statistics;
  const auto refusal = [&](const Tokens& tokens) {
    const std::string text = error_of([&] { add(statistics, tokens, 0, tokens.count()); });
    return statistics == before ? text : "something has changed; " + text;
  };
  for (const auto& [number, text] :
       std::vector<std::pair<double, std::string>>{{nan, "nan"}, {-infinity, "-inf"}}) {
    Tokens bad = good;
    bad.k(0, 3, 0, 1) = number;
    CHECK(refusal(bad) ==
          "ValueError: keys[0, 3, 0, 1]: expected a finite number of at most 1e140, got " + text);
    bad = good;
    bad.v(0, 2, 0, 0) = number;
    CHECK(refusal(bad) ==
          "ValueError: values[0, 2, 0, 0]: expected a finite number of at most 1e140, got " + text);
  }
  Tokens bad = good;
  bad.k(0, 0, 0, 0) = -1e200;
  CHECK(refusal(bad) ==
        message("ValueError: keys[0, 0, 0, 0]: expected a finite number of at most 1e140, got ", -1e200));
  for (const double weight : {-0.1, 1.5, nan}) {
    bad = good;
    bad.weights(0, 3, 0) = weight;
    CHECK(refusal(bad) == message("ValueError: weights[3]: expected 0 to 1, got ", weight));
    CHECK(error_of([&] {
            add_one(statistics, {1, 1, 1}, {1, 1}, weight);
          }) == message("ValueError: weights[0]: expected 0 to 1, got ", weight));
  }
  CHECK(refusal({good.q, random_tokens(Setup(1, 2, 2), 1, 4, 9).k, good.v}) ==
        "ShapeError: keys: expected [B, T, H, D] = [1, 4, 1, 3], got [1, 4, 1, 2]");
  CHECK(refusal({good.q, good.k, good.k}) ==
        "ShapeError: values: expected [B, T, H, D] = [1, 4, 1, 2], got [1, 4, 1, 3]");
  CHECK(refusal({good.q, random_tokens(Setup(2, 3, 2), 1, 4, 9).k, good.v}) ==
        "ShapeError: keys: expected [B, T, H, D] = [1, 4, 1, 3], got [1, 4, 2, 3]");
  const std::vector<double> three(3, 0.5);
  CHECK(error_of([&] { statistics.add(view(good.k), view(good.v), three); }) ==
        "ShapeError: weights: expected T = 4 numbers, got 3");
  CHECK(error_of([&] {
          add_one(statistics, {}, {1, 1});
        }) == "ShapeError: keys: expected [B, T, H, D] = [1, 1, 1, 3], got [1, 1, 1, 0]");
  CHECK((statistics == before));
}

TEST_CASE("statistics: what construction, merge and set_position refuse") {
  CHECK(error_of([] { SkaStatistics(0, 1); }) == "ValueError: key: expected at least 1, got 0");
  CHECK(error_of([] { SkaStatistics(1, -1); }) == "ValueError: value: expected at least 1, got -1");
  const Index huge = Index{1} << 40;
  REQUIRE_THROWS_MATCHES(SkaStatistics(huge, 1), ShapeError, message_contains("below 2^63"));

  SkaStatistics statistics(3, 2);
  const SkaStatistics before = statistics;
  const auto refusal = [&](const SkaStatistics& later) { return error_of([&] { statistics.merge(later); }); };
  CHECK(refusal(SkaStatistics(2, 2)) ==
        "ShapeError: later: expected statistics of r = 3, P = 2 and the same scale, got r = 2, P = 2");
  CHECK(refusal(SkaStatistics(3, 1)) ==
        "ShapeError: later: expected statistics of r = 3, P = 2 and the same scale, got r = 3, P = 1");
  CHECK(refusal(SkaStatistics(3, 2, KeyScale::none)) ==
        "ShapeError: later: expected statistics of r = 3, P = 2 and the same scale, got r = 3, P = 2, "
        "another scale");
  CHECK(error_of([&] { statistics.set_position(-1); }) == "ValueError: position: expected 0 to 2^53, got -1");
  CHECK((statistics == before));
  statistics.set_position(1'000'000'000'000'000);
  CHECK(statistics.position() == 1'000'000'000'000'000);
}

TEST_CASE("statistics: the sums of ten million tokens do not drift") {
  constexpr Index block = 10'000, blocks = 1'000 / fewer, r = 3;
  std::uint64_t bits = 10;
  const auto number = [&bits] {  // quick, from 0 to 1
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(bits >> 40) * 0x1p-24f;
  };
  std::vector<float> k(block * r), v(block);
  SkaStatistics statistics(r, 1);
  std::array<Real, r * r> g{}, m{};
  std::array<Real, r> c{}, last{};
  for (Index i = 0; i < blocks; ++i) {
    std::generate(k.begin(), k.end(), number);
    std::generate(v.begin(), v.end(), number);
    statistics.add(TokenView<const float>(k.data(), 1, block, 1, r),
                   TokenView<const float>(v.data(), 1, block, 1, 1));
    for (std::size_t t = 0; t < block; ++t)
      for (std::size_t a = 0; a < r; ++a) {
        const Real z = k[t * r + a];
        for (std::size_t b = 0; b < r; ++b) {
          g[a * r + b] += z * k[t * r + b];
          m[a * r + b] += z * last[b];
        }
        c[a] += z * v[t];
        if (a == r - 1) std::copy_n(k.data() + t * r, r, last.begin());
      }
  }
  CHECK(statistics.position() == block * blocks);
  const SkaStatistics::Matrix G = statistics.G(), M = statistics.M(), Cv = statistics.Cv();
  for (std::size_t a = 0; a < r; ++a) {
    const auto i = static_cast<Index>(a);
    for (std::size_t b = 0; b < r; ++b) {
      const auto j = static_cast<Index>(b);
      // The last bits of squares are not random, and what rounds them leans to one side.
      CHECK(G(i, j) == Approx(static_cast<double>(g[a * r + b])).epsilon(i == j ? 4e-12 : 1e-12));
      CHECK(M(i, j) == Approx(static_cast<double>(m[a * r + b])).epsilon(1e-12));
    }
    CHECK(Cv(0, i) == Approx(static_cast<double>(c[a])).epsilon(1e-12));
  }
}

TEST_CASE("statistics: one token, ten million times, is right to nine digits") {
  // The worst case: all is rounded to the same side.
  constexpr Index block = 10'000, blocks = 1'000 / fewer;
  const std::vector<float> numbers(block, 0.1f);
  SkaStatistics statistics(1, 1);
  for (Index i = 0; i < blocks; ++i) {
    const TokenView<const float> view(numbers.data(), 1, block, 1, 1);
    statistics.add(view, view);
  }
  const double product = static_cast<double>(0.1f) * static_cast<double>(0.1f),
               tokens = static_cast<double>(block * blocks);
  CHECK(statistics.G()(0, 0) == Approx(tokens * product).epsilon(1e-9));
  CHECK(statistics.Cv()(0, 0) == Approx(tokens * product).epsilon(1e-9));
  CHECK(statistics.M()(0, 0) == Approx((tokens - 1) * product).epsilon(1e-9));
}

}  // namespace linrec::test::statistics_test
