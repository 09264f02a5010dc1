// What is hard for retrieval: keys that do not span the space, that are huge or tiny, ridges that are lost,
// and very long streams.
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/ska/attention.hpp"

namespace linrec::test::stream_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

Tensor prefill_all(const Setup& setup, const Tokens& tokens) {
  SkaState state = initial_state(setup, tokens.batch());
  bool answered = false;
  const Tensor y = prefill(setup, tokens, state, {.answered = &answered});
  CHECK(answered);
  return y;
}

bool finite(const Tensor& x) {
  return std::all_of(x.numbers.begin(), x.numbers.end(), [](double y) { return std::isfinite(y); });
}

/// Keys and queries in the span of `rank` directions, as floats.
Tokens deficient_tokens(const Setup& setup, Index T, Index rank, std::uint64_t seed) {
  Tokens tokens = random_tokens(setup, 1, T, seed);
  Random random(seed + 1000);
  Eigen::MatrixXd basis(setup.key, rank);
  for (double& x : basis.reshaped()) x = static_cast<double>(random.integer(-8, 8)) / 8;
  for (Tensor* x : {&tokens.k, &tokens.q})
    for (Index t = 0; t < T; ++t) {
      Eigen::VectorXd along(rank);  // short enough that the floats hold the products
      for (double& a : along) a = static_cast<double>(random.integer(-1000, 1000)) / 1024;
      const Eigen::VectorXd key = basis * along;
      for (Index i = 0; i < setup.key; ++i) (*x)(0, t, 0, i) = key[i];
    }
  return tokens;
}

}  // namespace

TEST_CASE("SKA: zero keys, one token, keys that are all equal") {
  for (const bool single : {false, true})
    for (const KeyScale scale : {KeyScale::sequence_max, KeyScale::unit_norm, KeyScale::none})
      for (const KoopmanOperator form : {KoopmanOperator::whitened, KoopmanOperator::unwhitened}) {
        Setup setup(1, 5, 3, single);
        setup.key_scale = scale;
        setup.koopman_operator = form;
        INFO(setup.name());
        Tokens tokens = random_tokens(setup, 1, 12, 1);
        const Tokens one = tokens.slice(0, 1);
        CHECK(difference(prefill_all(setup, one), reference(setup, one), setup.tolerance()) == "");
        tokens.k.for_each([&](Index, Index t, Index, Index d) { tokens.k(0, t, 0, d) = one.k(0, 0, 0, d); });
        CHECK(difference(prefill_all(setup, tokens), reference(setup, tokens), setup.tolerance()) == "");
        for (double& x : tokens.k.numbers) x = 0;
        for (const double y : prefill_all(setup, tokens).numbers) CHECK(y == 0);
        for (double& x : tokens.q.numbers) x = 0;
        for (const double y : prefill_all(setup, tokens).numbers) CHECK(y == 0);
      }
}

TEST_CASE("SKA: zero keys among others") {
  for (const KeyScale scale : {KeyScale::sequence_max, KeyScale::unit_norm, KeyScale::none}) {
    Setup setup(1, 3, 2);
    setup.key_scale = scale;
    Tokens tokens = random_tokens(setup, 1, 12, 2);
    for (const Index t : {0, 4, 5})
      for (Index i = 0; i < 3; ++i) tokens.k(0, t, 0, i) = 0;
    CHECK(difference(prefill_all(setup, tokens), reference(setup, tokens), 1e-11) == "");
  }
}

TEST_CASE("SKA: tiny and huge keys") {
  for (const bool single : {false, true})
    for (const double size : {1e-20, 1e-9, 1e18})
      for (const KeyScale scale : {KeyScale::sequence_max, KeyScale::unit_norm, KeyScale::none}) {
        Setup setup(1, 3, 2, single);
        setup.key_scale = scale;
        // With the scale of the keys as it is, a ridge that they can feel.
        if (scale == KeyScale::none) setup.ridge = 1e-3 * size * size;
        INFO(setup.name() << ", " << size);
        Tokens tokens = random_tokens(setup, 1, 12, 3);
        for (Tensor* x : {&tokens.k, &tokens.q})
          for (double& number : x->numbers) number = static_cast<float>(size * number);
        const Tensor y = prefill_all(setup, tokens);
        CHECK(finite(y));
        const double smallest = single ? 1e-30 : 1e-300;  // outputs, also in the middle, underflow
        CHECK(difference(y, reference(setup, tokens), setup.tolerance(), smallest) == "");
      }
}

TEST_CASE("SKA: keys of all sizes in one stream") {
  Setup setup(1, 3, 2);
  for (const KeyScale scale : {KeyScale::sequence_max, KeyScale::unit_norm}) {
    setup.key_scale = scale;
    Tokens tokens = random_tokens(setup, 1, 30, 4);
    tokens.k.for_each([&](Index, Index t, Index, Index d) {
      tokens.k(0, t, 0, d) *= std::pow(10.0, static_cast<double>(t * 7 % 11 - 5));
    });
    CHECK(difference(prefill_all(setup, tokens), reference(setup, tokens), 1e-10) == "");
  }
}

TEST_CASE("SKA: floats that do not span the space, and a small ridge") {
  for (const bool single : {true, false})
    for (const Visibility visibility : {Visibility::inclusive, Visibility::exclusive})
      for (const Index rank : {1, 4}) {
        Setup setup(1, 16, 4, single);
        setup.ridge = 1e-6;
        setup.visibility = visibility;
        INFO(setup.name() << ", rank " << rank);
        const Tokens tokens = deficient_tokens(setup, 60, rank, 5);
        CHECK(difference(prefill_all(setup, tokens), reference(setup, tokens), single ? 1e-6 : 1e-8) == "");
      }
}

TEST_CASE("SKA: an operator that maps ones to zero is normalised all the same") {
  // As in the test of sigma: M G~^-1 = b a^T / (|a|^2 + ridge) has a norm above 10.
  Setup setup(1, 3, 2);
  setup.key_scale = KeyScale::none;
  setup.koopman_operator = KoopmanOperator::unwhitened;
  setup.power = 1;
  Tokens tokens = random_tokens(setup, 1, 2, 6);
  tokens.k.numbers = {0.0625, -0.0625, 0, 1, 1, -2};
  tokens.q.numbers = {0.0625, -0.0625, 0, 0.0625, -0.0625, 0};
  const RealMatrix a = operator_of(setup, sums_of(setup, tokens, 0, 0, 2));
  const Real sigma = std::sqrt(RealMatrix(a * a.transpose()).trace());  // of rank 1
  REQUIRE(sigma > 10);
  REQUIRE((a * RealVector::Ones(3)).norm() < 1e-12L);
  // By hand, without an estimate.
  const Sums sums = sums_of(setup, tokens, 0, 0, 2);
  const RealMatrix w = whitening(regularised(setup, sums));
  const RealVector expected =
      sums.Cv * (w.transpose() * (a / sigma * (w * tokens.q.row(0, 1, 0).cast<Real>())));
  const Tensor y = prefill_all(setup, tokens);
  for (Index p = 0; p < 2; ++p)
    CHECK(y(0, 1, 0, p) == Approx(static_cast<double>(expected[p])).epsilon(1e-11));
}

TEST_CASE("B53: a ridge below the rounding of floats is not lost") {
  for (const bool single : {true, false})
    for (const Visibility visibility : {Visibility::inclusive, Visibility::exclusive}) {
      Setup setup(1, 2, 1, single);
      setup.key_scale = KeyScale::none;
      setup.ridge = 1;
      setup.power = 0;
      setup.visibility = visibility;
      Tokens tokens = random_tokens(setup, 1, 2, 7);
      tokens.k.numbers = {1e4, 1e4, 0, 0};
      tokens.q.numbers = {1e4, 1e4, 1e4, 1e4};
      tokens.v.numbers = {1, 0};
      const Tensor y = prefill_all(setup, tokens);
      CHECK(y(0, 1, 0) == Approx(2e8 / (2e8 + 1)).epsilon(single ? 1e-7 : 1e-9));
      CHECK(y(0, 0, 0) == (visibility == Visibility::exclusive ? 0 : y(0, 1, 0)));
    }
}

TEST_CASE("B53: a ridge below the rounding of doubles is a failure that is reported, or grows") {
  for (const bool single : {false, true}) {
    Setup setup(2, 2, 1, single);
    setup.key_scale = KeyScale::none;
    setup.ridge = 1;
    setup.power = 0;
    Tokens tokens = random_tokens(setup, 1, 3, 8);
    for (Index t = 0; t < 3; ++t)
      for (Index i = 0; i < 2; ++i) tokens.k(0, t, 0, i) = tokens.q(0, t, 0, i) = 1e9;
    for (double& v : tokens.v.numbers) v = 1;

    SkaState state = initial_state(setup);
    bool answered = true;
    const Tensor y = prefill(setup, tokens, state, {.answered = &answered});
    CHECK(!answered);
    for (Index t = 0; t < 3; ++t) {
      CHECK(same_bits(y(0, t, 0), 0));
      CHECK(y(0, t, 1) != 0);  // the other head does not notice
    }
    CHECK(state.failures(0, 0) == 3);
    CHECK(state.failures(0, 1) == 0);
    CHECK(state.status(0, 0) == FactorStatus::not_positive_definite);
    CHECK(state.status(0, 1) == FactorStatus::ready);
    state.reset(0);
    CHECK(state.failures(0, 0) == 0);
    CHECK(state.status(0, 0) == FactorStatus::stale);

    setup.largest_ridge = 1e6;
    state = initial_state(setup);
    const Tensor grown = prefill(setup, tokens, state, {.answered = &answered});
    CHECK(answered);
    CHECK(grown(0, 0, 0) == Approx(2e18 / (2e18 + 1000)).epsilon(1e-7));
    CHECK(state.failures(0, 0) == 0);
    CHECK(state.now(0, 0).factor().ridge() == 1000);
    CHECK(state.now(0, 1).factor().ridge() == 1);
  }
}

TEST_CASE("SKA: what validation would have refused fails, and says so") {
  for (const double bad : {nan, infinity}) {
    const Setup setup(2, 2, 1);
    Tokens tokens = random_tokens(setup, 1, 3, 9);
    tokens.k(0, 1, 0, 0) = bad;
    SkaState state = initial_state(setup);
    CHECK(error_of([&] { prefill(setup, tokens, state); }) ==
          message("ValueError: k[0, 1, 0, 0]: expected a finite number of at most 1e140, got ", bad));
    CHECK((state == initial_state(setup)));
    const Tensor y = unchecked_steps(setup, tokens, state);
    CHECK(std::isfinite(y(0, 0, 0)));
    CHECK(std::isnan(y(0, 1, 0)));
    CHECK(std::isnan(y(0, 2, 0)));
    CHECK(state.failures(0, 0) == 2);
    CHECK(state.status(0, 0) == FactorStatus::not_finite);
    CHECK(state.failures(0, 1) == 0);
    for (Index t = 0; t < 3; ++t) CHECK(std::isfinite(y(0, t, 1)));
    state.reset(0);
    CHECK(finite(prefill(setup, random_tokens(setup, 1, 3, 10), state)));
  }
}

TEST_CASE("SKA: the largest numbers that are legal have an answer") {
  Setup setup(1, 2, 1);
  setup.visibility = Visibility::exclusive;
  Tokens tokens = random_tokens(setup, 1, 6, 11);
  for (Tensor* x : {&tokens.k, &tokens.q})
    for (double& number : x->numbers) number *= 1e140;
  CHECK(difference(prefill_all(setup, tokens), reference(setup, tokens), 1e-11) == "");
}

namespace {

/// A stream of r = 8, P = 4 whose keys grow slowly and jump, in pieces, and the sums of all of it.
class LongStream {
 public:
  static constexpr Index r = 8, P = 4, piece = 10'000;

  LongStream() : setup_(1, r, P), sums_(r, P) {}

  const Setup& setup() const { return setup_; }
  const Sums& sums() const { return sums_; }

  Tokens next() {
    Tokens tokens{Tensor({1, piece, 1, r}), Tensor({1, piece, 1, r}), Tensor({1, piece, 1, P})};
    RealVector z(r), v(P);
    for (Index t = 0; t < piece; ++t, ++token_) {
      size_ *= random_.integer(0, 9'999) == 0 ? 1.3 : 1 + 2e-6;
      for (Index i = 0; i < r; ++i) {
        // A key that remembers the last one, and is nearly confined to six directions.
        key_[i] = 0.5 * key_[(i + 1) % r] + random_.uniform(-1, 1) * (i < 6 ? 1 : 1e-2);
        tokens.k(0, t, 0, i) = size_ * key_[i];
        tokens.q(0, t, 0, i) = size_ * key_[i] * (i % 2 == 0 ? 1 : -1);
      }
      for (Index p = 0; p < P; ++p) tokens.v(0, t, 0, p) = key_[p] + random_.uniform(-1, 1);
      // What the sums get, entry by entry: as Sums::add, without its copies.
      for (Index i = 0; i < r; ++i) z[i] = tokens.k(0, t, 0, i);
      for (Index p = 0; p < P; ++p) v[p] = tokens.v(0, t, 0, p);
      sums_.add(z, v, 1);
    }
    return tokens;
  }

 private:
  Setup setup_;
  Sums sums_;
  Random random_{12};
  Index token_ = 0;
  double size_ = 1;
  Eigen::Vector<double, r> key_ = Eigen::Vector<double, r>::Zero();
};

std::string last_difference(const LongStream& stream, const Tokens& tokens, const Tensor& y) {
  const Index last = tokens.count() - 1;
  const RealVector expected = answer(stream.setup(), stream.sums(), tokens.q.row(0, last, 0).cast<Real>());
  Tensor right({1, 1, 1, LongStream::P});
  for (Index p = 0; p < LongStream::P; ++p) right(0, 0, 0, p) = static_cast<double>(expected[p]);
  return difference(y.slice(last, 1), right, 1e-9);
}

}  // namespace

TEST_CASE("SKA: a million tokens, whose largest key moves often, are a fit from scratch") {
  LongStream stream;
  SkaState state = initial_state(stream.setup());
  std::vector<SkaState> segments;
  Tokens tokens;
  constexpr Index pieces = 1'000'000 / LongStream::piece / fewer;
  double largest = 0;
  Index moves = 0;
  for (Index i = 0; i < pieces; ++i) {
    tokens = stream.next();
    const Tensor y = prefill(stream.setup(), tokens, state);
    moves += state.statistics(0, 0).max_norm() > largest;
    largest = state.statistics(0, 0).max_norm();
    if (i % 9 == 0 || i == pieces - 1) CHECK(last_difference(stream, tokens, y) == "");
    segments.push_back(initial_state(stream.setup()));
    absorb(stream.setup(), tokens, segments.back());
  }
  CHECK(moves > pieces / 2);
  CHECK(state.position(0) == 1'000'000 / fewer);
  CHECK(state.failures(0, 0) == 0);

  // Merged from the left, from the right, and in pairs.
  const auto merged = [](auto&& self, std::span<const SkaState> all, int kind) -> SkaState {
    if (all.size() == 1) return all[0];
    const std::size_t middle = kind == 0 ? all.size() - 1 : kind == 1 ? 1 : all.size() / 2;
    SkaState first = self(self, all.first(middle), kind);
    first.merge(0, self(self, all.subspan(middle), kind), 0);
    return first;
  };
  for (const int kind : {0, 1, 2}) {
    SkaState whole = merged(merged, segments, kind);
    CHECK(difference(whole.statistics(0, 0), stream.sums(), 1e-12) == "");
    CHECK(last_difference(stream, tokens, retrieve(stream.setup(), tokens.q, whole)) == "");
  }
}

}  // namespace linrec::test::stream_test
