// step = prefill = every split of a sequence, bit for bit where that is asked for; who runs it, and on which
// memory, makes no difference.
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::split_test {

namespace {

constexpr PrefillMode both_modes[] = {PrefillMode::fast, PrefillMode::reproducible};

/// Feeds the sequence in random pieces, some by steps, some empty.
Tensor random_split(const Config& config, const Inputs& inputs, AnyState& state, PrefillMode mode,
                    Random& random) {
  const Index B = inputs[0].extents[0], T = inputs[0].extents[1];
  Tensor outputs = empty_outputs(config, B, T);
  for (Index first = 0; first < T;) {
    const Index count =
        std::min(T - first, random.integer(0, 1) == 0 ? random.integer(0, 5) : random.integer(0, 40));
    const Inputs piece = each(inputs, [&](const Tensor& x) { return x.slice(first, count); });
    outputs.set_slice(first, random.integer(0, 1) == 0 ? prefill(config, piece, state, {.mode = mode})
                                                       : steps(config, piece, state));
    first += count;
  }
  return outputs;
}

}  // namespace

TEST_CASE("reproducible prefill, steps and every split are equal bit for bit") {
  for (const Config& config : all_configs_of_both_scalars(2, 2, 19, 17)) {
    INFO(config.name());
    constexpr Index B = 2, T = 70;
    const Inputs inputs = random_inputs(config, B, T, 1);
    const StatePointer initial = random_state(config, B, 2), at_once = initial->clone(),
                       stepped = initial->clone();
    const Tensor expected = prefill(config, inputs, *at_once, {.mode = PrefillMode::reproducible});
    CHECK(difference(steps(config, inputs, *stepped), expected) == "");
    CHECK(same_bits(stepped->numbers(), at_once->numbers()));
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      Random random(seed);
      const StatePointer state = initial->clone();
      CHECK(difference(random_split(config, inputs, *state, PrefillMode::reproducible, random), expected) ==
            "");
      CHECK(same_bits(state->numbers(), at_once->numbers()));
    }
  }
}

TEST_CASE("fast prefill, steps and every split are equal up to rounding") {
  for (const Config& config : all_configs_of_both_scalars(2, 1, 19, 17)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, 1, 70, 1);
    const StatePointer initial = random_state(config, 1, 2), stepped = initial->clone();
    const Tensor expected = steps(config, inputs, *stepped);
    const double tolerance = tolerances(config.single).reference;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      Random random(seed);
      const StatePointer state = initial->clone();
      CHECK(difference(random_split(config, inputs, *state, PrefillMode::fast, random), expected, tolerance,
                       1) == "");
      for (Index h = 0; h < config.H; ++h)
        CHECK((state->matrix(0, h) - stepped->matrix(0, h)).norm() <=
              tolerance * stepped->matrix(0, h).norm());
    }
  }
}

TEST_CASE("no tokens leave the state alone") {
  for (const Config& config : all_configs_of_both_scalars()) {
    const StatePointer state = random_state(config, 2, 3);
    const std::vector<double> before = state->numbers();
    prefill(config, random_inputs(config, 2, 0, 3), *state);
    CHECK(same_bits(state->numbers(), before));
  }
}

TEST_CASE("threads give the same bits, also more threads than heads") {
  for (const PrefillMode mode : both_modes)
    for (const Config& config : all_configs_of_both_scalars(4, 2, 16, 17)) {
      INFO(config.name());
      const Inputs inputs = random_inputs(config, 3, 40, 4);
      const StatePointer serial = random_state(config, 3, 5);
      const Tensor expected = prefill(config, inputs, *serial, {.mode = mode});
      for (const Index threads : {1, 2, 3, 7, 20}) {
        const StatePointer state = random_state(config, 3, 5);
        CHECK(difference(prefill(config, inputs, *state, {.threads = threads, .mode = mode}), expected) ==
              "");
        CHECK(same_bits(state->numbers(), serial->numbers()));
      }
    }
}

TEST_CASE("a workspace that is kept gives the same bits") {
  Workspace workspace;
  for (const PrefillMode mode : both_modes)
    for (const Config& config : all_configs_of_both_scalars(2, 2, 19, 17)) {
      INFO(config.name());
      const Inputs inputs = random_inputs(config, 2, 40, 6);
      const StatePointer fresh = random_state(config, 2, 7), kept = fresh->clone();
      const Tensor expected = prefill(config, inputs, *fresh, {.mode = mode});
      const Run run{.workspace = &workspace, .mode = mode};
      CHECK(difference(prefill(config, inputs, *kept, run), expected) == "");
      CHECK(same_bits(kept->numbers(), fresh->numbers()));
      // Another time, with threads, and with what the last call left in it.
      const StatePointer again = random_state(config, 2, 7);
      const Run threaded{.workspace = &workspace, .threads = 3, .mode = mode};
      CHECK(difference(prefill(config, inputs, *again, threaded), expected) == "");
    }
}

}  // namespace linrec::test::split_test
