// Faults that such libraries have had, each with the right answer.
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::known_faults_test {

namespace {

using enum Architecture;
const double ln2 = std::log(2.0);

/// A [1, T, 1, 1] tensor.
Tensor scalars(std::vector<double> numbers) {
  Tensor tensor({1, static_cast<Index>(numbers.size()), 1, 1});
  tensor.numbers = std::move(numbers);
  return tensor;
}
Tensor scalars(Index T, double x) { return Tensor({1, T, 1, 1}, x); }

/// Mamba-2 with H = N = P = 1, dt = 1 and A = -ln 2: the state halves with every token.
Config halving_ssd(bool single = false) {
  Config config{.architecture = mamba2, .H = 1, .G = 1, .K = 1, .V = 1, .single = single};
  config.log_rates = Eigen::ArrayXd::Constant(1, std::log(ln2));
  return config;
}
Inputs ssd_inputs(const Tensor& x) {
  Tensor ones = x;
  for (double& number : ones.numbers) number = 1;
  return {x, ones, ones, ones};
}

Config scalar_gla(bool single = false) {
  return {.architecture = gla, .H = 1, .G = 1, .K = 1, .V = 1, .single = single, .scale = 1};
}
Inputs gla_inputs(const Tensor& gk) {
  const Tensor ones(gk.extents, 1);
  return {ones, ones, ones, gk};
}

double state_of(const AnyState& state, Index b = 0) { return state.matrix(b, 0)(0, 0); }
StatePointer states(const Config& config, const std::vector<double>& h0) {
  StatePointer state = make_kernel(config)->initial_state(static_cast<Index>(h0.size()));
  for (std::size_t b = 0; b < h0.size(); ++b)
    state->set_matrix(static_cast<Index>(b), 0, Eigen::MatrixXd::Constant(1, 1, h0[b]));
  return state;
}

/// Empty, or the first number that is off by more than the tolerance.
std::string off(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  if (got.size() != expected.size()) return message(got.size(), " numbers instead of ", expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - expected[i]) <= tolerance * std::abs(expected[i])))
      return message("[", i, "]: ", got[i], " instead of ", expected[i]);
  return "";
}

}  // namespace

TEST_CASE("B01: every piece of a sequence continues from the state") {
  const std::vector<double> expected{1, 1.5, 1.75, 1.875, 1.9375, 1.96875, 1.984375};
  for (const bool single : {false, true})
    for (const std::vector<Index>& pieces :
         std::vector<std::vector<Index>>{{7}, {3, 4}, {1, 6}, {2, 2, 3}, {1, 1, 1, 1, 1, 1, 1}}) {
      const Config config = halving_ssd(single);
      const StatePointer state = make_kernel(config)->initial_state();
      std::vector<double> outputs;
      for (const Index count : pieces) {
        const Tensor part = prefill(config, ssd_inputs(scalars(count, 1)), *state);
        outputs.insert(outputs.end(), part.numbers.begin(), part.numbers.end());
      }
      CHECK(outputs == expected);
      CHECK(state_of(*state) == 1.984375);
    }
}

TEST_CASE("B01: the same for all kernels with random inputs") {
  for (const Config& config : all_configs_of_both_scalars(2, 2, 3, 5)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, 1, 13, 1);
    const StatePointer whole = make_kernel(config)->initial_state();
    const Tensor expected = prefill(config, inputs, *whole);
    for (const Index first : {1, 3, 12}) {
      const StatePointer state = make_kernel(config)->initial_state();
      Tensor outputs =
          prefill(config, each(inputs, [&](const Tensor& x) { return x.slice(0, first); }), *state);
      CHECK(difference(outputs, expected.slice(0, first)) == "");
      outputs =
          prefill(config, each(inputs, [&](const Tensor& x) { return x.slice(first, 13 - first); }), *state);
      CHECK(difference(outputs, expected.slice(first, 13 - first)) == "");
      CHECK(same_bits(state->numbers(), whole->numbers()));
    }
  }
}

TEST_CASE("B08: the final state, whatever the length of the last chunk") {
  struct Case {
    Index tokens;
    double state, next;
  };
  for (const bool single : {false, true}) {
    for (const Case& c : {Case{5, 1.9375, 1.96875}, Case{7, 1.984375, 1.9921875}}) {
      const Config config = scalar_gla(single);
      const StatePointer state = make_kernel(config)->initial_state();
      const double g = rounded(-ln2, single), tolerance = single ? 1e-7 : 1e-15;
      prefill(config, gla_inputs(scalars(c.tokens, g)), *state);
      CHECK(off({state_of(*state)}, {c.state}, tolerance) == "");
      CHECK(off(steps(config, gla_inputs(scalars(1, g)), *state).numbers, {c.next}, tolerance) == "");
    }
    // Gated DeltaNet with beta = 1 and k = 1 holds the last value; the decay acts on what is not written
    // over.
    Config config{
        .architecture = gated_delta_net, .H = 1, .G = 1, .K = 1, .V = 1, .single = single, .scale = 1};
    const StatePointer state = states(config, {64});
    const Tensor zeros = scalars(5, 0), ones = scalars(5, 1), g = scalars(5, rounded(-ln2, single));
    prefill(config, {ones, zeros, ones, g, ones}, *state);
    CHECK(off({state_of(*state)}, {2}, single ? 1e-6 : 1e-14) == "");
    prefill(config, {ones, ones, ones, g, ones}, *state);
    CHECK(off({state_of(*state)}, {1}, single ? 1e-6 : 1e-14) == "");
  }
}

TEST_CASE("B10: the decay of a packed sequence starts with the sequence") {
  const Config config = halving_ssd();
  const StatePointer state = states(config, {0, 8});
  const Batch batch = Batch::packed({0, 3, 8});
  const Tensor outputs =
      prefill(config, ssd_inputs(scalars({1, 1, 1, 0, 0, 0, 0, 0})), *state, {.layout = batch.layout()});
  CHECK(outputs.numbers == std::vector<double>{1, 1.5, 1.75, 4, 2, 1, 0.5, 0.25});
  CHECK(state_of(*state, 0) == 1.75);
  CHECK(state_of(*state, 1) == 0.25);

  const Batch pieces = Batch::packed({0, 1, 2, 3, 8});
  const StatePointer four = states(config, {0, 2, 4, 8});
  CHECK(prefill(config, ssd_inputs(scalars({1, 1, 1, 0, 0, 0, 0, 0})), *four, {.layout = pieces.layout()})
            .numbers == std::vector<double>{1, 2, 3, 4, 2, 1, 0.5, 0.25});
}

TEST_CASE("B17: padding neither decays the state nor moves the position") {
  const Config config = halving_ssd();
  const Batch batch = Batch::with_lengths(5, {3, 5});
  const KernelPointer kernel = make_kernel(config);
  Tensor x({2, 5, 1, 1}, 1);
  x(0, 3, 0) = x(0, 4, 0) = 1e3;
  Inputs inputs = ssd_inputs(x);
  for (Tensor& tensor : inputs) tensor(0, 3, 0) = tensor(0, 4, 0) = 1e3;
  const StatePointer state = kernel->initial_state(2);
  const Tensor outputs = prefill(config, inputs, *state, {.layout = batch.layout()});
  CHECK(outputs.numbers == std::vector<double>{1, 1.5, 1.75, 0, 0, 1, 1.5, 1.75, 1.875, 1.9375});
  CHECK(state_of(*state, 0) == 1.75);
  CHECK(state_of(*state, 1) == 1.9375);
  CHECK(state->position(0) == 3);
  CHECK(state->position(1) == 5);
  const Tensor next = steps(config, ssd_inputs(Tensor({2, 1, 1, 1}, 1)), *state);
  CHECK(next.numbers == std::vector<double>{1.875, 1.96875});
  CHECK(state->position(0) == 4);
}

TEST_CASE("B18: packed sequences may be empty, one or all of them") {
  for (const bool single : {false, true}) {
    const Config config = halving_ssd(single);
    const Batch batch = Batch::packed({0, 0, 3, 3, 5, 5});
    const StatePointer state = states(config, {7, 0, 9, 0, 11});
    const Tensor outputs = prefill(config, ssd_inputs(scalars(5, 1)), *state, {.layout = batch.layout()});
    CHECK(outputs.numbers == std::vector<double>{1, 1.5, 1.75, 1, 1.5});
    const std::vector<double> expected{7, 1.75, 9, 1.5, 11};
    for (Index s = 0; s < 5; ++s) CHECK(state_of(*state, s) == expected[static_cast<std::size_t>(s)]);

    const Batch empty = Batch::packed({0, 0, 0});
    const StatePointer two = states(config, {7, 9});
    CHECK(prefill(config, ssd_inputs(scalars(0, 1)), *two, {.layout = empty.layout()}).numbers.empty());
    CHECK(state_of(*two, 0) == 7);
    CHECK(state_of(*two, 1) == 9);
    // Without states of one's own they are zero.
    const StatePointer fresh = make_kernel(config)->initial_state(2);
    prefill(config, ssd_inputs(scalars(0, 1)), *fresh, {.layout = empty.layout()});
    CHECK(state_of(*fresh, 0) == 0);
    CHECK(state_of(*fresh, 1) == 0);
  }
}

TEST_CASE("B22: small decays survive a hard reset before them") {
  const std::vector<double> decays{-0.1, -3e7, -0.1, -0.1, -0.1, -0.1};
  const std::vector<double> expected{1, 1, 1.904837, 2.723568, 3.464386, 4.134706};
  const auto run = [](Config config, const std::vector<double>& log_w) {
    Inputs inputs = gla_inputs(scalars(log_w));
    const Tensor zeros(inputs[0].extents, 0);
    if (config.architecture == dplr) inputs = {inputs[0], inputs[1], inputs[2], zeros, zeros, inputs[3]};
    if (config.architecture == mamba2) {
      // A = -1, so dt is the decay; x = 1/dt makes the input 1.
      Tensor dt = inputs[3], x = inputs[3];
      for (double& number : dt.numbers) number = -number;
      for (double& number : x.numbers) number = -1 / number;
      inputs = {x, dt, inputs[0], inputs[0]};
    }
    const StatePointer state = make_kernel(config)->initial_state();
    return prefill(config, inputs, *state).numbers;
  };
  for (const bool single : {true, false})
    for (const Architecture architecture : {gla, dplr, mamba2}) {
      Config config = scalar_gla(single);
      config.architecture = architecture;
      config.log_rates = Eigen::ArrayXd::Zero(architecture == mamba2 ? 1 : 0);
      INFO(config.name());
      CHECK(off(run(config, decays), expected, 1e-5) == "");
      for (const double constant : {-1000.1, -3e7})
        CHECK(off(run(config, std::vector<double>(64, constant)), std::vector<double>(64, 1), 1e-6) == "");
    }
}

TEST_CASE("B29: where the epsilon of a normalisation stands") {
  const Eigen::Vector2d under_the_root(0.268328157, 0.357770876);
  for (const bool single : {false, true}) {
    const double tolerance = single ? 1e-7 : 1e-9;
    const Config gated{.architecture = gated_delta_net,
                       .H = 1,
                       .G = 1,
                       .K = 2,
                       .V = 1,
                       .single = single,
                       .scale = 1,
                       .qk_l2norm = true};
    Tensor key({1, 1, 1, 2});
    key.numbers = {rounded(3e-4, single), rounded(4e-4, single)};
    const Tensor one = scalars(1, 1), zero = scalars(1, 0);
    const StatePointer state = make_kernel(gated)->initial_state();
    const Tensor output = prefill(gated, {key, key, one, zero, one}, *state);
    CHECK((state->matrix(0, 0) - under_the_root).cwiseAbs().maxCoeff() < tolerance);
    CHECK(output.numbers[0] == Approx(under_the_root.squaredNorm()).epsilon(1e-6));
    // A zero key stays exactly zero, and the state changes by its decay alone.
    const Tensor zero_key({1, 1, 1, 2});
    state->set_matrix(0, 0, Eigen::Vector2d(1, 2));
    CHECK(prefill(gated, {zero_key, zero_key, one, scalars(1, rounded(-ln2, single)), one}, *state)
              .numbers[0] == 0);
    CHECK((state->matrix(0, 0) - Eigen::Vector2d(0.5, 1)).cwiseAbs().maxCoeff() < tolerance);

    // RWKV-7's removal key: a floor. With decay 1: S - kk (kk^T S), S = (1, 0).
    const Config rwkv{.architecture = rwkv7, .H = 1, .G = 1, .K = 2, .V = 1, .single = single};
    Tensor ones = key, no_decay = key;
    ones.numbers = {1, 1};
    no_decay.numbers = {-1e30, -1e30};
    const StatePointer removed = make_kernel(rwkv)->initial_state();
    removed->set_matrix(0, 0, Eigen::Vector2d(1, 0));
    prefill(rwkv, {zero_key, zero_key, zero, key, ones, no_decay}, *removed);
    CHECK((removed->matrix(0, 0) - Eigen::Vector2d(1 - 0.36, -0.48)).cwiseAbs().maxCoeff() < tolerance);
    const Eigen::MatrixXd before = removed->matrix(0, 0);
    prefill(rwkv, {zero_key, zero_key, zero, zero_key, ones, no_decay}, *removed);
    CHECK((removed->matrix(0, 0) == before));
  }
}

TEST_CASE("B32: the position is a part of the state") {
  Config config{.architecture = retnet, .H = 1, .G = 1, .K = 1, .V = 1, .scale = 1};
  config.log_rates = Eigen::ArrayXd::Constant(1, std::log(std::log(16.0)));
  config.taper = [](const Eigen::ArrayXd&) { return Eigen::ArrayXd::Ones(1).eval(); };
  const StatePointer state = make_kernel(config)->initial_state();
  const Tensor zeros = scalars(3, 0), zero = scalars(1, 0), one = scalars(1, 1);
  prefill(config, {zeros, zeros, zeros}, *state);
  CHECK(state->position(0) == 3);
  state->set_matrix(0, 0, Eigen::MatrixXd::Constant(1, 1, 8));
  // Its parts, into a fresh state of a fresh kernel.
  const StatePointer restored = make_kernel(config)->initial_state();
  restored->set_matrix(0, 0, state->matrix(0, 0));
  restored->set_position(0, state->position(0));
  CHECK(same_bits(restored->numbers(), state->numbers()));
  for (const auto& h : {state->clone(), restored->clone()}) {
    CHECK(off(steps(config, {one, zero, zero}, *h).numbers, {4}, 1e-15) == "");
    CHECK(h->position(0) == 4);
  }
}

TEST_CASE("B46: head h of H reads group h / (H / G)") {
  struct Case {
    Index H;
    std::vector<double> groups, expected;
  };
  for (const Case& c : {Case{4, {1, 10}, {1, 1, 10, 10}}, Case{6, {1, 10, 100}, {1, 1, 10, 10, 100, 100}}}) {
    const Index G = static_cast<Index>(c.groups.size());
    Tensor of_groups({1, 1, G, 1});
    of_groups.numbers = c.groups;
    const Tensor of_heads({1, 1, c.H, 1}, 1), ones({1, 1, G, 1}, 1), zeros({1, 1, c.H, 1}, 0);

    Config ssd{.architecture = mamba2, .H = c.H, .G = G, .K = 1, .V = 1};
    ssd.log_rates = Eigen::ArrayXd::Zero(c.H);
    const StatePointer state = make_kernel(ssd)->initial_state();
    CHECK(prefill(ssd, {of_heads, of_heads, of_groups, ones}, *state).numbers == c.expected);
    const StatePointer other = make_kernel(ssd)->initial_state();
    CHECK(prefill(ssd, {of_heads, of_heads, ones, of_groups}, *other).numbers == c.expected);

    const Config gated{.architecture = gated_delta_net, .H = c.H, .G = G, .K = 1, .V = 1, .scale = 1};
    const StatePointer delta = make_kernel(gated)->initial_state();
    CHECK(prefill(gated, {ones, of_groups, of_heads, zeros, of_heads}, *delta).numbers == c.expected);
    CHECK(delta->matrix(0, 1)(0, 0) == c.groups[0]);
  }
}

}  // namespace linrec::test::known_faults_test
