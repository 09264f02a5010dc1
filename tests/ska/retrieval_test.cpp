// Retrieval against the reference, in every configuration; and what makes no difference: how a sequence is
// split, who runs it, what lies beside it.
#include <numeric>

#include "tests/catch.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/error_of.hpp"
#include "tests/ska/attention.hpp"

namespace linrec::test {

namespace {

template <class Scalar>
struct Typed {
  SpectralKoopmanAttention<Scalar> attention;
  std::vector<Scalar> q, k, v, weights;

  explicit Typed(const Setup& setup) : attention(setup) {}

  static TokenView<const Scalar> view(const Tensor& from, std::vector<Scalar>& to) {
    if (from.extents == std::array<Index, 4>{}) return {};
    to.clear();
    for (const double x : from.numbers) to.push_back(static_cast<Scalar>(x));
    return {to.data(), from.extents, from.strides};
  }
  SpectralKoopmanAttentionInputs<Scalar> inputs(const Tokens& tokens) {
    return {view(tokens.q, q), view(tokens.k, k), view(tokens.v, v), view(tokens.weights, weights)};
  }
};

template <class F>  // f(typed)
auto with_scalar(const Setup& setup, F&& f) {
  if (setup.single) return f(Typed<float>(setup));
  return f(Typed<double>(setup));
}

template <class Scalar, class F>  // f(y)
Tensor output(const Setup& setup, Index B, Index T, F&& f) {
  Tensor result({B, T, setup.heads, setup.value});
  std::vector<Scalar> y(result.numbers.size(), Scalar(777));
  f(TokenView<Scalar>(y.data(), B, T, setup.heads, setup.value));
  result.numbers.assign(y.begin(), y.end());
  return result;
}

void note(const CallOptions& options, bool answered) {
  if (options.answered != nullptr) *options.answered = answered;
}

/// All the sums of a state, to the last bit.
std::vector<double> numbers(const SkaState& state) {
  std::vector<double> all;
  for (Index s = 0; s < state.sequences(); ++s)
    for (Index h = 0; h < state.shape().heads; ++h) {
      const SkaStatistics& sums = state.statistics(s, h);
      for (const SkaStatistics::Matrix& part :
           {sums.G(), sums.M(), sums.Cv(), SkaStatistics::Matrix(sums.last_key()),
            SkaStatistics::Matrix(sums.first_key())})
        all.insert(all.end(), part.data(), part.data() + part.size());
      all.insert(all.end(), {sums.max_norm(), static_cast<double>(sums.position()),
                             static_cast<double>(state.position(s))});
    }
  return all;
}

/// Setups that between them have every mode.
std::vector<Setup> modes(Index H, Index r, Index P) {
  std::vector<Setup> all;
  for (const bool single : {false, true}) {
    const Setup plain(H, r, P, single);
    all.push_back(plain);
    for (const Visibility visibility : {Visibility::exclusive, Visibility::earlier_chunks}) {
      all.push_back(plain);
      all.back().visibility = visibility;
      all.back().chunk = 5;
    }
    all.push_back(all.back());
    all.back().boundary_transition = true;
    for (const KeyScale scale : {KeyScale::unit_norm, KeyScale::none}) {
      all.push_back(plain);
      all.back().key_scale = scale;
      all.back().koopman_operator = KoopmanOperator::unwhitened;
      all.back().power = 1;
    }
  }
  return all;
}

void check_against_reference(const Setup& setup, const Tokens& tokens) {
  INFO(setup.name());
  SkaState state = initial_state(setup, tokens.batch());
  bool answered = false;
  const Tensor y = prefill(setup, tokens, state, {.answered = &answered});
  CHECK(answered);
  CHECK(difference(y, reference(setup, tokens), setup.tolerance()) == "");
  for (Index b = 0; b < tokens.batch(); ++b) {
    CHECK(state.position(b) == tokens.count());
    for (Index h = 0; h < setup.heads; ++h) {
      CHECK(difference(state.statistics(b, h), sums_of(setup, tokens, b, h, tokens.count()), 1e-14) == "");
      CHECK(state.failures(b, h) == 0);
    }
  }
}

/// Feeds the sequence in random pieces, some by steps, some empty.
Tensor random_split(const Setup& setup, const Tokens& tokens, SkaState& state, std::uint64_t seed) {
  Random random(seed);
  const Index T = tokens.count();
  Tensor y({tokens.batch(), T, setup.heads, setup.value});
  for (Index first = 0; first < T;) {
    const Index n = std::min(T - first, random.integer(0, 12));
    const Tokens piece = tokens.slice(first, n);
    y.set_slice(first, random.integer(0, 1) == 0 ? prefill(setup, piece, state) : steps(setup, piece, state));
    first += n;
  }
  return y;
}

}  // namespace

std::string Setup::name() const {
  constexpr const char* scales[] = {"sequence_max", "unit_norm", "none"};
  constexpr const char* visibilities[] = {"inclusive", "exclusive", "earlier_chunks"};
  return message(single ? "float" : "double", ", H = ", heads, ", r = ", key, ", P = ", value,
                 ", K = ", power, ", eps = ", ridge, ", gamma = ", gamma, ", eta = ", eta, ", ",
                 scales[static_cast<int>(key_scale)], ", ", visibilities[static_cast<int>(visibility)], " ",
                 chunk, boundary_transition ? " with the boundary" : "",
                 koopman_operator == KoopmanOperator::whitened ? ", whitened" : ", unwhitened");
}

Tokens random_tokens(const Setup& setup, Index B, Index T, std::uint64_t seed, Weights weights) {
  Random random(seed);
  const auto fill = [&](Index H, Index D) {
    Tensor x({B, T, H, D});
    for (double& number : x.numbers) number = static_cast<float>(random.uniform(-1, 1));
    return x;
  };
  Tokens tokens{fill(setup.heads, setup.key), fill(setup.heads, setup.key), fill(setup.heads, setup.value)};
  if (weights == Weights::none) return tokens;
  tokens.weights = fill(1, 1);
  for (double& m : tokens.weights.numbers) m = m < -0.5 ? 0 : m > 0.5 ? 1 : static_cast<float>(m + 0.5);
  return tokens;
}

SkaState initial_state(const Setup& setup, Index sequences) {
  return with_scalar(setup, [&](auto typed) { return typed.attention.initial_state(sequences); });
}

template <class Scalar>
Tensor prefill(Typed<Scalar>& typed, const Setup& setup, const Tokens& tokens, SkaState& state,
               const CallOptions& options) {
  return output<Scalar>(setup, tokens.batch(), tokens.count(), [&](const TokenView<Scalar>& y) {
    note(options, typed.attention.prefill(typed.inputs(tokens), state, y,
                                          {.layout = options.layout, .workspace = options.workspace},
                                          ThreadExecutor{options.threads}));
  });
}
Tensor prefill(const Setup& setup, const Tokens& tokens, SkaState& state, const CallOptions& options) {
  return with_scalar(setup, [&](auto typed) { return prefill(typed, setup, tokens, state, options); });
}

template <class Scalar>
Tensor steps(Typed<Scalar>& typed, const Setup& setup, const Tokens& tokens, SkaState& state, bool checked) {
  return output<Scalar>(setup, tokens.batch(), tokens.count(), [&](const TokenView<Scalar>& y) {
    for (Index t = 0; t < tokens.count(); ++t) {
      const auto inputs = typed.inputs(tokens.slice(t, 1));
      if (checked) typed.attention.validate(inputs, state, y.slice(t, 1));
      typed.attention.step(inputs, state, y.slice(t, 1));
    }
  });
}
Tensor steps(const Setup& setup, const Tokens& tokens, SkaState& state) {
  return with_scalar(setup, [&](auto typed) { return steps(typed, setup, tokens, state, true); });
}
Tensor unchecked_steps(const Setup& setup, const Tokens& tokens, SkaState& state) {
  return with_scalar(setup, [&](auto typed) { return steps(typed, setup, tokens, state, false); });
}

void absorb(const Setup& setup, const Tokens& tokens, SkaState& state, const CallOptions& options) {
  with_scalar(setup, [&](auto typed) {
    auto inputs = typed.inputs(tokens);
    inputs.q = {};
    typed.attention.absorb(inputs, state, {.layout = options.layout, .workspace = options.workspace},
                           ThreadExecutor{options.threads});
  });
}

template <class Scalar>
Tensor retrieve(Typed<Scalar>& typed, const Setup& setup, const Tensor& q, SkaState& state,
                const CallOptions& options) {
  return output<Scalar>(setup, q.extents[0], q.extents[1], [&](const TokenView<Scalar>& y) {
    note(options, typed.attention.retrieve(typed.view(q, typed.q), state, y,
                                           {.layout = options.layout, .workspace = options.workspace},
                                           ThreadExecutor{options.threads}));
  });
}
Tensor retrieve(const Setup& setup, const Tensor& q, SkaState& state, const CallOptions& options) {
  return with_scalar(setup, [&](auto typed) { return retrieve(typed, setup, q, state, options); });
}

TEST_CASE("retrieval is the reference: every way of seeing, operator, scale and power") {
  for (const Visibility visibility :
       {Visibility::inclusive, Visibility::exclusive, Visibility::earlier_chunks})
    for (const KoopmanOperator form : {KoopmanOperator::whitened, KoopmanOperator::unwhitened})
      for (const KeyScale scale : {KeyScale::sequence_max, KeyScale::unit_norm, KeyScale::none})
        for (const Index power : {0, 1, 2, 3}) {
          Setup setup(1, 3, 2, power % 2 == 1);
          setup.visibility = visibility;
          setup.koopman_operator = form;
          setup.key_scale = scale;
          setup.power = power;
          setup.chunk = 4;
          const auto seed = static_cast<std::uint64_t>(power);
          check_against_reference(setup, random_tokens(setup, 1, 18, seed));
          check_against_reference(setup, random_tokens(setup, 1, 18, seed, Weights::some));
        }
}

TEST_CASE("retrieval is the reference: sizes") {
  struct Sizes {
    Index H, r, P, B, T;
  };
  for (const bool single : {false, true})
    for (const Sizes& n : std::vector<Sizes>{{1, 1, 1, 1, 12},
                                             {3, 2, 3, 2, 15},
                                             {2, 3, 64, 1, 12},
                                             {1, 5, 1, 3, 12},
                                             {2, 17, 3, 1, 40},
                                             {1, 48, 64, 1, 9},   // fewer tokens than r
                                             {1, 48, 3, 1, 60}})  // more
      for (const Visibility visibility : {Visibility::inclusive, Visibility::exclusive}) {
        if (n.T == 60 && (single || visibility == Visibility::exclusive)) continue;
        Setup setup(n.H, n.r, n.P, single);
        setup.visibility = visibility;
        check_against_reference(setup, random_tokens(setup, n.B, n.T, 1));
      }
}

TEST_CASE("retrieval is the reference: chunks of every size, with and without the boundary") {
  for (const Index chunk : {1, 2, 3, 5, 8, 64})
    for (const bool boundary : {false, true})
      for (const bool single : {false, true}) {
        Setup setup(2, 3, 2, single);
        setup.visibility = Visibility::earlier_chunks;
        setup.chunk = chunk;
        setup.boundary_transition = boundary;
        check_against_reference(setup, random_tokens(setup, 1, chunk == 64 ? 70 : 20, 2, Weights::some));
      }
}

TEST_CASE("retrieval is the reference: eta, and gamma clamped to [1, 1.5]") {
  for (const double gamma : {-1.0, 0.5, 1.2, 3.0}) {
    Setup setup(1, 3, 2);
    setup.gamma = gamma;
    setup.eta = -0.75;
    check_against_reference(setup, random_tokens(setup, 1, 12, 3));
    setup.koopman_operator = KoopmanOperator::unwhitened;
    check_against_reference(setup, random_tokens(setup, 1, 12, 3));
  }
}

TEST_CASE("the spectral norm of the boundary's M is normalised away") {
  // A growing key enters M before it enters G: without normalisation the outputs would be far larger.
  Setup setup(1, 2, 1);
  setup.visibility = Visibility::earlier_chunks;
  setup.chunk = 2;
  setup.boundary_transition = true;
  setup.power = 3;
  Tokens tokens = random_tokens(setup, 1, 3, 4);
  tokens.k.numbers = {0.5, 0.25, 0.25, 0.5, 64, 16};
  Sums sums = sums_of(setup, tokens, 0, 0, 2);
  sums.M = sums_of(setup, tokens, 0, 0, 3).M;
  REQUIRE(power_iteration(operator_of(setup, sums)) > 10);
  check_against_reference(setup, tokens);
}

TEST_CASE("one fit that all read: absorb, then retrieve") {
  for (const Setup& setup : modes(2, 3, 2))
    for (const Weights weights : {Weights::none, Weights::some}) {
      INFO(setup.name());
      const Tokens tokens = random_tokens(setup, 2, 23, 5, weights);
      SkaState state = initial_state(setup, 2), seen = initial_state(setup, 2);
      absorb(setup, tokens, state);
      prefill(setup, tokens, seen);
      CHECK(same_bits(numbers(state), numbers(seen)));
      CHECK((state == seen));
      bool answered = false;
      const Tensor y = retrieve(setup, tokens.q, state, {.answered = &answered});
      CHECK(answered);
      CHECK(difference(y, reference_of_all(setup, tokens, tokens.q), setup.tolerance()) == "");
      CHECK((state == seen));
      // Query by query, and once more, it is the same.
      for (Index t = 0; t < 23; ++t)
        CHECK(difference(retrieve(setup, tokens.q.slice(t, 1), state), y.slice(t, 1)) == "");
    }
}

TEST_CASE("absorb and retrieve in turn, and steps between them") {
  for (const Setup& setup : modes(1, 17, 2)) {
    INFO(setup.name());
    const Tokens tokens = random_tokens(setup, 1, 40, 6);
    SkaState state = initial_state(setup);
    const Tensor expected = reference(setup, tokens);
    Random random(7);
    for (Index first = 0; first < 40;) {
      const Index n = std::min(40 - first, random.integer(1, 4));
      const Tokens piece = tokens.slice(first, n);
      if (random.integer(0, 1) == 0) {
        absorb(setup, piece, state);
      } else {
        CHECK(difference(prefill(setup, piece, state), expected.slice(first, n), setup.tolerance(), 0.1) ==
              "");
      }
      first += n;
      if (random.integer(0, 1) == 0)
        CHECK(difference(retrieve(setup, piece.q, state),
                         reference_of_all(setup, tokens.slice(0, first), piece.q), setup.tolerance(),
                         0.1) == "");
    }
  }
}

TEST_CASE("prefill, steps and every split are equal bit for bit, in SKA too") {
  for (const Setup& setup : modes(2, 9, 3)) {
    INFO(setup.name());
    const Tokens tokens = random_tokens(setup, 2, 70, 8, Weights::some);
    SkaState at_once = initial_state(setup, 2), stepped = at_once;
    const Tensor expected = prefill(setup, tokens, at_once);
    CHECK(difference(steps(setup, tokens, stepped), expected) == "");
    CHECK(same_bits(numbers(stepped), numbers(at_once)));
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      SkaState state = initial_state(setup, 2);
      CHECK(difference(random_split(setup, tokens, state, seed), expected) == "");
      CHECK(same_bits(numbers(state), numbers(at_once)));
    }
  }
}

TEST_CASE("a copied state of SKA continues its sequence bit for bit, and alone") {
  for (const Setup& setup : modes(2, 9, 3)) {
    INFO(setup.name());
    const Tokens first = random_tokens(setup, 2, 13, 9), second = random_tokens(setup, 2, 12, 10);
    SkaState state = initial_state(setup, 2);
    prefill(setup, first, state);
    SkaState fork = state;
    const Tensor expected = prefill(setup, second, state);
    CHECK(!(fork == state));
    CHECK(difference(steps(setup, second, fork), expected) == "");
    CHECK((fork == state));
  }
}

TEST_CASE("threads give the same bits of SKA, also more threads than heads") {
  for (const Setup& setup : modes(3, 5, 2)) {
    INFO(setup.name());
    const Tokens tokens = random_tokens(setup, 2, 20, 11, Weights::some);
    SkaState serial = initial_state(setup, 2), absorbed = serial;
    const Tensor expected = prefill(setup, tokens, serial);
    absorb(setup, tokens, absorbed);
    const Tensor retrieved = retrieve(setup, tokens.q, absorbed);
    Workspace workspace;
    for (const Index threads : {1, 3, 8}) {
      const CallOptions options{.threads = threads, .workspace = &workspace};
      SkaState state = initial_state(setup, 2), other = state;
      CHECK(difference(prefill(setup, tokens, state, options), expected) == "");
      CHECK(same_bits(numbers(state), numbers(serial)));
      absorb(setup, tokens, other, options);
      CHECK(same_bits(numbers(other), numbers(absorbed)));
      CHECK(difference(retrieve(setup, tokens.q, other, options), retrieved) == "");
    }
  }
}

TEST_CASE("a thread's failure is not lost") {
  Setup setup(4, 2, 1);
  setup.key_scale = KeyScale::none;
  setup.ridge = 1;
  Tokens tokens = random_tokens(setup, 1, 3, 12);
  tokens.k(0, 0, 2, 0) = tokens.k(0, 0, 2, 1) = 1e9;
  for (const Index threads : {0, 2, 4}) {
    SkaState state = initial_state(setup);
    bool answered = true;
    const Tensor y = prefill(setup, tokens, state, {.threads = threads, .answered = &answered});
    CHECK(!answered);
    for (Index h = 0; h < 4; ++h) CHECK(state.failures(0, h) == (h == 2 ? 3 : 0));
    CHECK(y(0, 2, 2) == 0);
    CHECK(y(0, 2, 1) != 0);
    CHECK(state.status(0, 2) == FactorStatus::not_positive_definite);
    retrieve(setup, tokens.q, state, {.threads = threads, .answered = &answered});
    CHECK(!answered);
    CHECK(state.failures(0, 2) == 6);
  }
}

namespace {

/// Every sequence of the batch as if it were alone, whatever is in the padding; padding gives zeros.
void check_batch(const Setup& setup, const Batch& batch, double garbage) {
  INFO(setup.name());
  Tokens tokens = random_tokens(setup, batch.rows, batch.tokens, 13, Weights::some);
  const std::vector<bool> real = batch.real();
  for (Tensor* x : {&tokens.q, &tokens.k, &tokens.v, &tokens.weights})
    x->for_each([&](Index b, Index t, Index h, Index d) {
      if (!real[static_cast<std::size_t>(b * batch.tokens + t)]) (*x)(b, t, h, d) = garbage;
    });
  SkaState state = initial_state(setup, batch.count()), absorbed = state;
  for (Index s = 0; s < batch.count(); ++s) state.set_position(s, 10 * s);
  SkaState initial = state;
  const Tensor y = prefill(setup, tokens, state, {.layout = batch.layout()});
  absorb(setup, tokens, absorbed, {.layout = batch.layout()});
  const Tensor retrieved = retrieve(setup, tokens.q, absorbed, {.layout = batch.layout()});
  for (Index s = 0; s < batch.count(); ++s) {
    INFO("sequence " << s);
    const auto& places = batch.sequences[static_cast<std::size_t>(s)];
    const Tokens own = tokens.gather(places);
    SkaState one = initial_state(setup), other = one;
    one.set_position(0, 10 * s);
    CHECK(difference(y.gather(places), prefill(setup, own, one)) == "");
    absorb(setup, own, other);
    CHECK(difference(retrieved.gather(places), retrieve(setup, own.q, other)) == "");
    CHECK(state.position(s) == 10 * s + static_cast<Index>(places.size()));
    for (Index h = 0; h < setup.heads; ++h) {
      CHECK((state.statistics(s, h) == one.statistics(0, h)));
      CHECK((absorbed.statistics(s, h) == one.statistics(0, h)));
    }
  }
  for (const Tensor* outputs : {&y, &retrieved})
    outputs->for_each([&](Index b, Index t, Index h, Index d) {
      if (!real[static_cast<std::size_t>(b * batch.tokens + t)] && !same_bits((*outputs)(b, t, h, d), 0))
        FAIL_CHECK("padding gives " << (*outputs)(b, t, h, d));
    });
}

void check_batches(const Batch& batch) {
  for (const Setup& setup : modes(2, 3, 2))
    for (const double garbage : {1e3, std::numeric_limits<double>::quiet_NaN()})
      check_batch(setup, batch, garbage);
}

}  // namespace

TEST_CASE("B17: padding changes nothing, and its outputs are zero") {
  check_batches(Batch::with_lengths(5, {3, 5}));
  check_batches(Batch::with_lengths(20, {20, 0, 1, 13}));
}

TEST_CASE("B17: left-padded rows and holes") {
  std::vector<std::uint8_t> mask(3 * 20, 0);
  Random random(14);
  for (std::size_t t = 0; t < 60; ++t)
    mask[t] = static_cast<std::uint8_t>(t < 20 ? t >= 7 : t < 40 && random.integer(0, 2) > 0);
  check_batches(Batch::with_mask(20, mask));
}

TEST_CASE("B18: packed sequences, some of them empty") {
  check_batches(Batch::packed({0, 0, 3, 3, 20, 21, 21}));
  check_batches(Batch::packed({0, 0, 0}));
  check_batches(Batch::packed({0}));
  check_batches(Batch::dense(0, 5));
}

TEST_CASE("B01: every piece continues from the sums of the one before") {
  for (const std::vector<Index>& pieces :
       std::vector<std::vector<Index>>{{3, 4}, {1, 6}, {2, 2, 3}, {1, 1, 1, 1, 1, 1, 1}}) {
    // M of keys 1, 2, 3, ...: 1 2 + 2 3 + ... + 6 7 = 112.
    Setup setup(1, 1, 1);
    Tokens tokens = random_tokens(setup, 1, 7, 15);
    std::iota(tokens.k.numbers.begin(), tokens.k.numbers.end(), 1.0);
    SkaState state = initial_state(setup);
    Index first = 0;
    for (const Index n : pieces) {
      prefill(setup, tokens.slice(first, n), state);
      first += n;
    }
    CHECK(state.statistics(0, 0).M()(0, 0) == 112);
    CHECK(state.statistics(0, 0).G()(0, 0) == 140);
    CHECK(state.statistics(0, 0).max_norm() == 7);
    CHECK(state.position(0) == 7);
  }
}

TEST_CASE("a state of SKA: zero at the start, at position 0") {
  const Setup setup(2, 3, 4);
  const SkaState state = initial_state(setup, 3);
  CHECK(state.sequences() == 3);
  CHECK(state.shape().text() == "[2, 3, 4] sequence_max");
  CHECK(state.bytes_per_sequence() == 2 * (2 * 9 + 12 + 6 + 1) * 8 + 8);
  for (Index s = 0; s < 3; ++s) {
    CHECK(state.position(s) == 0);
    for (Index h = 0; h < 2; ++h) {
      CHECK((state.statistics(s, h) == SkaStatistics(3, 4)));
      CHECK(state.failures(s, h) == 0);
      CHECK(state.status(s, h) == FactorStatus::stale);
    }
  }
  CHECK(initial_state(setup, 0).sequences() == 0);
}

TEST_CASE("a state of SKA: resetting one sequence leaves the others") {
  for (const Setup& setup : modes(2, 3, 2)) {
    INFO(setup.name());
    const Tokens tokens = random_tokens(setup, 2, 12, 16);
    SkaState state = initial_state(setup, 2), fresh = state;
    const Tensor expected = prefill(setup, tokens, fresh);
    prefill(setup, tokens, state);
    state.reset(0);
    CHECK(state.position(0) == 0);
    CHECK(state.position(1) == 12);
    CHECK((state.statistics(0, 1) == SkaStatistics(3, 2, setup.key_scale)));
    CHECK((state.statistics(1, 1) == fresh.statistics(1, 1)));
    // The sequence that was reset gives what it gave at first, bit for bit.
    const Tensor again = prefill(setup, tokens, state);
    const Tensor first = again.gather({{0, 0}, {0, 3}, {0, 11}});
    CHECK(difference(first, expected.gather({{0, 0}, {0, 3}, {0, 11}})) == "");
    CHECK(state.position(1) == 24);
  }
}

TEST_CASE("a state of SKA: restored by its parts, it continues") {
  for (const Setup& setup : modes(2, 3, 2)) {
    if (setup.visibility == Visibility::earlier_chunks) continue;  // its past is not among the parts
    INFO(setup.name());
    const Tokens tokens = random_tokens(setup, 1, 30, 17);
    SkaState state = initial_state(setup), restored = state;
    prefill(setup, tokens.slice(0, 15), state);
    restored.set_position(0, state.position(0));
    for (Index h = 0; h < 2; ++h) restored.set_statistics(0, h, state.statistics(0, h));
    CHECK((restored == state));
    CHECK(difference(prefill(setup, tokens.slice(15, 15), restored), reference(setup, tokens).slice(15, 15),
                     setup.tolerance()) == "");
  }
}

TEST_CASE("a state of SKA: positions say where chunks begin") {
  Setup setup(1, 3, 2);
  setup.visibility = Visibility::earlier_chunks;
  setup.chunk = 4;
  const Tokens tokens = random_tokens(setup, 1, 9, 18);
  SkaState state = initial_state(setup);
  state.set_position(0, 3);  // the first token ends a chunk
  const Tensor y = prefill(setup, tokens, state);
  CHECK(y.row(0, 0, 0).isZero(0));
  for (Index t = 1; t < 9; ++t) {
    const Tensor expected = reference_of_all(setup, tokens.slice(0, t < 5 ? 1 : 5), tokens.q.slice(t, 1));
    CHECK(difference(y.slice(t, 1), expected, 1e-11) == "");
  }
  CHECK(state.position(0) == 12);
}

TEST_CASE("a state of SKA: a largest norm that is known beforehand") {
  Setup setup(1, 3, 2);
  Tokens tokens = random_tokens(setup, 1, 12, 19), longer = tokens;
  SkaState state = initial_state(setup);
  state.raise_max_norm(0, 0, 10);
  const Tensor y = prefill(setup, tokens, state);
  // The same as keys and queries divided by 10, and the ridge as it is.
  setup.key_scale = KeyScale::none;
  for (Tensor* x : {&tokens.q, &tokens.k})
    for (double& number : x->numbers) number /= 10;
  CHECK(difference(y, reference(setup, tokens), 1e-11) == "");
  // It may rise in the middle of a sequence, after a read.
  setup.key_scale = KeyScale::sequence_max;
  SkaState later = initial_state(setup);
  prefill(setup, longer, later);
  later.raise_max_norm(0, 0, 10);
  CHECK(difference(retrieve(setup, longer.q, later), retrieve(setup, longer.q, state), 1e-11) == "");
}

TEST_CASE("states of SKA that were made in parallel merge to what one pass gives") {
  for (const Setup& setup : modes(2, 3, 2)) {
    INFO(setup.name());
    const bool chunks = setup.visibility == Visibility::earlier_chunks;
    const Tokens tokens = random_tokens(setup, 2, 60, 20, Weights::some);
    SkaState expected = initial_state(setup, 2);
    const Tensor y = prefill(setup, tokens, expected);
    // Sequence 1 of a batch, in four segments that end with chunks.
    const std::vector<Index> ends =
        chunks ? std::vector<Index>{5, 20, 35, 40} : std::vector<Index>{1, 18, 31, 40};
    std::vector<SkaState> segments;
    for (Index first = 0; const Index end : ends) {
      segments.push_back(initial_state(setup, 2));
      if (first == 0) {
        prefill(setup, tokens.slice(0, end), segments.back());  // and has a factor that is up to date
      } else {
        absorb(setup, tokens.slice(first, end - first), segments.back());
      }
      first = end;
    }
    SkaState from_left = segments[0], right = segments[2], from_right = segments[0];
    for (const std::size_t i : {1u, 2u, 3u}) from_left.merge(1, segments[i], 1);
    right.merge(1, segments[3], 1);
    from_right.merge(1, segments[1], 1);
    from_right.merge(1, right, 1);
    for (SkaState* state : {&from_left, &from_right}) {
      CHECK(state->position(1) == 40);
      const Tensor rest = prefill(setup, tokens.slice(40, 20), *state);
      for (Index t = 0; t < 20; ++t)
        CHECK(difference(rest.gather({{1, t}}), y.gather({{1, 40 + t}}), setup.tolerance(), 0.1) == "");
      for (Index h = 0; h < 2; ++h)
        CHECK(difference(state->statistics(1, h), expected.statistics(1, h), 1e-14) == "");
      CHECK(state->position(0) == ends[0] + 20);  // sequence 0 was not merged
    }
  }
}

TEST_CASE("a state of SKA merges with itself, and with an empty one") {
  const Setup setup(2, 3, 2);
  const Tokens tokens = random_tokens(setup, 1, 10, 21);
  SkaState state = initial_state(setup), twice = state;
  const SkaState empty = state;
  absorb(setup, tokens, state);
  absorb(setup, tokens, twice);
  state.merge(0, empty, 0);
  CHECK((state == twice));
  absorb(setup, tokens, twice);
  state.merge(0, state, 0);
  for (Index h = 0; h < 2; ++h)
    CHECK(difference(state.statistics(0, h), twice.statistics(0, h), 1e-14) == "");
  CHECK(state.position(0) == 20);
}

TEST_CASE("a state of SKA: equal are shape, positions and sums") {
  const Setup setup(1, 3, 2);
  SkaState state = initial_state(setup, 2);
  absorb(setup, random_tokens(setup, 2, 5, 22), state);
  SkaState other = state;
  CHECK((other == state));
  other.set_position(1, 6);
  CHECK(!(other == state));
  other = state;
  other.set_statistics(1, 0, SkaStatistics(3, 2));
  CHECK(!(other == state));
  CHECK(!(initial_state(setup, 1) == initial_state(setup, 2)));
  Setup chunks = setup;
  chunks.visibility = Visibility::earlier_chunks;
  CHECK(!(initial_state(setup) == initial_state(chunks)));
}

TEST_CASE("a state of SKA: what it refuses") {
  Setup setup(2, 3, 4);
  SkaState state = initial_state(setup, 2);
  absorb(setup, random_tokens(setup, 2, 5, 23), state);
  const SkaState before = state;
  const std::string sequence = "ValueError: sequence: expected one of 2 counted from 0, got ",
                    head = "ValueError: head: expected 0 to 1, got ";
  CHECK(error_of([&] { state.position(2); }) == sequence + "2");
  CHECK(error_of([&] { state.position(-1); }) == sequence + "-1");
  CHECK(error_of([&] { state.set_position(2, 0); }) == sequence + "2");
  CHECK(error_of([&] { state.set_position(0, -1); }) == "ValueError: position: expected 0 to 2^53, got -1");
  CHECK(error_of([&] { state.reset(2); }) == sequence + "2");
  CHECK(error_of([&] { state.statistics(0, 2); }) == head + "2");
  CHECK(error_of([&] { state.statistics(2, 0); }) == sequence + "2");
  CHECK(error_of([&] { state.failures(0, -1); }) == head + "-1");
  CHECK(error_of([&] { state.status(0, 2); }) == head + "2");
  CHECK(error_of([&] { state.raise_max_norm(0, 2, 1); }) == head + "2");
  CHECK(error_of([&] { state.raise_max_norm(0, 0, -1); }) ==
        "ValueError: max_norm: expected a finite number of at least 0, got -1");
  CHECK(error_of([&] { state.set_statistics(0, 2, SkaStatistics(3, 4)); }) == head + "2");
  CHECK(error_of([&] { state.set_statistics(0, 0, SkaStatistics(2, 4)); }) ==
        "ShapeError: statistics: expected statistics of r = 3, P = 4 and the same scale, got r = 2, P = 4");
  CHECK(error_of([&] { state.set_statistics(0, 0, SkaStatistics(3, 4, KeyScale::none)); }) ==
        "ShapeError: statistics: expected statistics of r = 3, P = 4 and the same scale, got r = 3, P = 4, "
        "another "
        "scale");
  CHECK(error_of([&] { state.merge(2, before, 0); }) == sequence + "2");
  CHECK(error_of([&] { state.merge(0, before, 2); }) == sequence + "2");
  CHECK(error_of([&] { state.merge(0, initial_state(Setup(1, 3, 4)), 0); }) ==
        "ShapeError: later: expected a state of [2, 3, 4] sequence_max, got [1, 3, 4] sequence_max");
  CHECK((state == before));

  SkaState far = state;
  far.set_position(0, std::int64_t{1} << 53);
  CHECK(error_of([&] { state.merge(0, far, 0); }) ==
        "ValueError: position: expected 0 to 2^53, got 9007199254740997");
  CHECK((state == before));

  setup.visibility = Visibility::earlier_chunks;
  setup.chunk = 4;
  SkaState chunks = initial_state(setup), more = chunks;
  absorb(setup, random_tokens(setup, 1, 8, 24), chunks);
  absorb(setup, random_tokens(setup, 1, 6, 25), more);
  const SkaState kept = chunks;
  CHECK(error_of([&] { chunks.merge(0, more, 0); }) ==
        "ValueError: later: expected tokens up to a multiple of the chunk 4, got a position of 14");
  CHECK(error_of([&] { chunks.merge(0, before, 0); }) ==
        "ShapeError: later: expected a state of [2, 3, 4] sequence_max chunk 4, got [2, 3, 4] sequence_max");
  CHECK((chunks == kept));

  const auto construction = [](const SkaShape& shape, Index sequences) {
    return error_of([&] { SkaState(shape, sequences); });
  };
  CHECK(construction({1, 2, 3}, -1) == "ValueError: sequences: expected at least 0, got -1");
  CHECK(construction({0, 2, 3}, 1) == "ValueError: heads: expected at least 1, got 0");
  CHECK(construction({1, 0, 3}, 1) == "ValueError: key: expected at least 1, got 0");
  CHECK(construction({1, 2, 0}, 1) == "ValueError: value: expected at least 1, got 0");
  CHECK(construction({1, 2, 3, KeyScale::none, -1}, 1) == "ValueError: chunk: expected at least 0, got -1");
}

TEST_CASE("SKA refuses configurations, naming the field") {
  const auto refusal = [](auto&& change) {
    SpectralKoopmanAttentionConfig config = Setup(1, 2, 3);
    change(config);
    return error_of([&] { SpectralKoopmanAttention<double>{config}; });
  };
  using Config = SpectralKoopmanAttentionConfig;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                   infinity = std::numeric_limits<double>::infinity();
  CHECK(refusal([](Config&) {}) == "nothing");
  CHECK(refusal([](Config& c) { c.heads = 0; }) == "ValueError: heads: expected at least 1, got 0");
  CHECK(refusal([](Config& c) { c.key = 0; }) == "ValueError: key: expected at least 1, got 0");
  CHECK(refusal([](Config& c) { c.value = -2; }) == "ValueError: value: expected at least 1, got -2");
  CHECK(refusal([](Config& c) { c.power = -1; }) == "ValueError: power: expected 0 to 1000, got -1");
  for (const double bad : {0.0, -1.0, nan, infinity})
    CHECK(refusal([&](Config& c) { c.ridge = bad; }) ==
          message("ValueError: ridge: expected a number above 0, at most 1e+20, got ", bad));
  for (const double bad : {-1.0, nan, infinity})
    CHECK(refusal([&](Config& c) { c.largest_ridge = bad; }) ==
          message("ValueError: largest_ridge: expected 0 to 1e+20, got ", bad));
  for (const double bad : {nan, infinity, -infinity}) {
    CHECK(refusal([&](Config& c) { c.eta = bad; }) ==
          message("ValueError: eta: expected a finite number, got ", bad));
    CHECK(refusal([&](Config& c) { c.gamma = bad; }) ==
          message("ValueError: gamma: expected a finite number, got ", bad));
  }
  CHECK(refusal([](Config& c) { c.chunk = 0; }) == "nothing");  // not used
  CHECK(refusal([](Config& c) { c.chunk = 0, c.visibility = Visibility::earlier_chunks; }) ==
        "ValueError: chunk: expected at least 1, got 0");
}

TEST_CASE("SKA refuses inputs and states, naming the tensor, before anything changes") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                   infinity = std::numeric_limits<double>::infinity();
  const Setup setup(2, 3, 4);
  const Tokens good = random_tokens(setup, 2, 5, 26, Weights::some);
  SkaState state = initial_state(setup, 2);
  prefill(setup, good, state);
  Typed<double> typed(setup);
  std::array<Index, 4> extents{2, 5, 2, 4};
  // prefill, absorb where the queries do not matter, and validate, which must all say the same.
  const auto refusal = [&](const Tokens& tokens, SkaState& given, const SequenceLayout& layout = {},
                           bool absorbed = true) {
    const SkaState before = given;
    Tensor y(extents, 777);
    const TokenView<double> to(y.numbers.data(), y.extents, y.strides);
    const auto inputs = typed.inputs(tokens);
    const std::string text =
        error_of([&] { typed.attention.prefill(inputs, given, to, {.layout = layout}); });
    CHECK(error_of([&] { typed.attention.validate(inputs, given, to, layout); }) == text);
    if (absorbed) {
      CHECK(error_of([&] { typed.attention.absorb(inputs, given, {.layout = layout}); }) == text);
      CHECK(error_of([&] { typed.attention.validate(inputs, given, layout); }) == text);
    } else {
      CHECK(error_of([&] { typed.attention.retrieve(inputs.q, given, to, {.layout = layout}); }) == text);
    }
    if (text == "nothing") return text;
    if (!(given == before)) return "the state has changed; " + text;
    for (const double x : y.numbers)
      if (x != 777) return "the outputs have changed; " + text;
    return text;
  };
  CHECK(refusal({good.q, random_tokens(Setup(2, 2, 4), 2, 5, 1).k, good.v}, state) ==
        "ShapeError: k: expected [B, T, H, D] = [2, 5, 2, 3], got [2, 5, 2, 2]");
  CHECK(refusal({good.q, good.k, good.k}, state) ==
        "ShapeError: v: expected [B, T, H, D] = [2, 5, 2, 4], got [2, 5, 2, 3]");
  CHECK(refusal({good.q, good.k, good.v.slice(0, 4)}, state) ==
        "ShapeError: v: expected [B, T, H, D] = [2, 5, 2, 4], got [2, 4, 2, 4]");
  CHECK(refusal({good.q, good.k, good.v, Tensor({2, 5, 2, 1}, 1)}, state) ==
        "ShapeError: weights: expected [B, T, H, D] = [2, 5, 1, 1], got [2, 5, 2, 1]");
  for (const double bad : {nan, infinity, 1e200}) {
    Tokens tokens = good;
    tokens.k(1, 3, 1, 2) = bad;
    CHECK(refusal(tokens, state) ==
          message("ValueError: k[1, 3, 1, 2]: expected a finite number of at most 1e140, got ", bad));
    tokens = good;
    tokens.v(0, 4, 0, 3) = bad;
    CHECK(refusal(tokens, state) ==
          message("ValueError: v[0, 4, 0, 3]: expected a finite number of at most 1e140, got ", bad));
    tokens = good;
    tokens.q(0, 4, 0, 2) = bad;
    CHECK(refusal(tokens, state, {}, false) ==
          message("ValueError: q[0, 4, 0, 2]: expected a finite number of at most 1e140, got ", bad));
  }
  for (const double bad : {-0.1, 1.5, nan}) {
    Tokens tokens = good;
    tokens.weights(1, 0, 0) = bad;
    CHECK(refusal(tokens, state) == message("ValueError: weights[1, 0, 0, 0]: expected 0 to 1, got ", bad));
  }
  CHECK(refusal(good, state, SequenceLayout::with_lengths(std::vector<Index>{5})) ==
        "ShapeError: lengths: expected B = 2 entries, got 1");
  SkaState one = initial_state(setup), other = initial_state(Setup(2, 3, 5), 2);
  CHECK(refusal(good, one) == "ShapeError: state: expected 2 sequences, got 1");
  CHECK(refusal(good, other) ==
        "ShapeError: state: expected one of [2, 3, 4] sequence_max, got [2, 3, 5] sequence_max");
  for (const KeyScale scale : {KeyScale::unit_norm, KeyScale::none}) {
    Setup scaled = setup;
    scaled.key_scale = scale;
    other = initial_state(scaled, 2);
    CHECK(refusal(good, other) ==
          message("ShapeError: state: expected one of [2, 3, 4] sequence_max, got [2, 3, 4] ",
                  scale == KeyScale::none ? "none" : "unit_norm"));
  }
  Setup chunks = setup;
  chunks.visibility = Visibility::earlier_chunks;
  other = initial_state(chunks, 2);
  CHECK(refusal(good, other) ==
        "ShapeError: state: expected one of [2, 3, 4] sequence_max, got [2, 3, 4] sequence_max chunk 64");
  extents = {2, 5, 2, 3};
  CHECK(refusal(good, state, {}, false) ==
        "ShapeError: y: expected [B, T, H, D] = [2, 5, 2, 4], got [2, 5, 2, 3]");

  // What only prefill can see: queries of other extents than keys, outputs that overlap.
  std::vector<double> y(2 * 5 * 2 * 4, 777);
  const TokenView<double> to(y.data(), 2, 5, 2, 4), overlapping(y.data(), {2, 5, 2, 4}, {40, 8, 3});
  Tokens tokens = good;
  tokens.q = good.q.slice(0, 4);
  CHECK(error_of([&] { typed.attention.prefill(typed.inputs(tokens), state, to); }) ==
        "ShapeError: q: expected [B, T, H, D] = [2, 5, 2, 3], got [2, 4, 2, 3]");
  CHECK(error_of([&] { typed.attention.prefill(typed.inputs(good), state, overlapping); }) ==
        "ShapeError: y: expected strides without overlap, got 40, 8, 3 for the shape [2, 5, 2, 4]");
  struct NoWorkers : SerialExecutor {
    Index concurrency() const { return 0; }
  };
  const SkaState before = state;
  CHECK(error_of([&] { typed.attention.prefill(typed.inputs(good), state, to, {}, NoWorkers()); }) ==
        "ValueError: executor: expected a concurrency of at least 1, got 0");
  CHECK((state == before));
  CHECK(y == std::vector<double>(y.size(), 777));
}

TEST_CASE(
    "strides of SKA's tensors: heads outside of tokens, views into something bigger, heads that share") {
  const Setup setup(3, 5, 2);
  const Tokens tokens = random_tokens(setup, 2, 12, 27);
  SkaState state = initial_state(setup, 2), strided = state, shared = state, repeated = state;
  const Tensor expected = prefill(setup, tokens, state);
  CHECK(difference(
            prefill(setup, {tokens.q.heads_outside(3), tokens.k.heads_outside(0), tokens.v.heads_outside(1)},
                    strided),
            expected) == "");
  CHECK((strided == state));
  Tokens one = tokens, all = tokens;
  one.k.strides[2] = 0;
  all.k.for_each([&](Index b, Index t, Index h, Index d) { all.k(b, t, h, d) = one.k(b, t, h, d); });
  CHECK(difference(prefill(setup, one, shared), prefill(setup, all, repeated)) == "");
  CHECK((shared == repeated));
}

}  // namespace linrec::test
