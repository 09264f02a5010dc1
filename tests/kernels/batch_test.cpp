// Batches: every sequence as if it were alone, whatever lies beside it.
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::batch_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::size_t index(Index i) { return static_cast<std::size_t>(i); }

/// A state with the sequence s of `all` alone.
StatePointer alone(const Config& config, const AnyState& all, Index s) {
  StatePointer one = make_kernel(config)->initial_state();
  one->set_position(0, all.position(s));
  for (Index h = 0; h < config.H; ++h) one->set_matrix(0, h, all.matrix(s, h));
  return one;
}

/// Puts garbage on the padding: NaN, infinity, huge numbers, and what is no legal decay.
Inputs with_garbage(Inputs inputs, const Batch& batch) {
  constexpr double garbage[] = {nan, 1e30, -1e30, std::numeric_limits<double>::infinity()};
  const std::vector<bool> real = batch.real();
  for (Tensor& x : inputs)
    x.for_each([&](Index b, Index t, Index h, Index d) {
      if (!real[index(b * batch.tokens + t)]) x(b, t, h, d) = garbage[(t + h + d) % 4];
    });
  return inputs;
}

void check_batch(const Config& config, const Batch& batch) {
  INFO(config.name());
  const Inputs inputs = with_garbage(random_inputs(config, batch.rows, batch.tokens, 1), batch);
  const StatePointer initial = random_state(config, batch.count(), 2), state = initial->clone();
  const Tensor outputs = prefill(config, inputs, *state, {.layout = batch.layout()});
  for (Index s = 0; s < batch.count(); ++s) {
    INFO("sequence " << s);
    const auto& tokens = batch.sequences[index(s)];
    const StatePointer one = alone(config, *initial, s);
    const Tensor expected =
        prefill(config, each(inputs, [&](const Tensor& x) { return x.gather(tokens); }), *one);
    CHECK(difference(outputs.gather(tokens), expected) == "");
    CHECK(same_bits(state->numbers(s), one->numbers(0)));
    CHECK(state->position(s) == initial->position(s) + static_cast<Index>(tokens.size()));
  }
  const std::vector<bool> real = batch.real();
  bool zero = true;
  outputs.for_each([&](Index b, Index t, Index h, Index d) {
    if (!real[index(b * batch.tokens + t)]) zero = zero && same_bits(outputs(b, t, h, d), 0);
  });
  CHECK(zero);
}

void check_batches(const Batch& batch) {
  for (const Config& config : all_configs_of_both_scalars()) check_batch(config, batch);
}

}  // namespace

TEST_CASE("dense batches of 0, 1 and 3 sequences") {
  check_batches(Batch::dense(0, 5));
  check_batches(Batch::dense(1, 40));
  check_batches(Batch::dense(3, 40));
}

TEST_CASE("a length for every row") { check_batches(Batch::with_lengths(40, {40, 0, 1, 33})); }

TEST_CASE("left-padded rows with a mask") {
  std::vector<std::uint8_t> mask(4 * 40, 0);
  for (const auto& [row, padding] : std::vector<std::array<Index, 2>>{{0, 0}, {1, 3}, {2, 39}, {3, 40}})
    for (Index t = padding; t < 40; ++t) mask[index(row * 40 + t)] = 1;
  check_batches(Batch::with_mask(40, mask));
}

TEST_CASE("a mask with holes") {
  std::vector<std::uint8_t> mask;
  Random random(3);
  for (Index t = 0; t < 2 * 70; ++t)
    mask.push_back(static_cast<std::uint8_t>(random.integer(0, 3)));  // any non-zero
  check_batches(Batch::with_mask(70, mask));
}

TEST_CASE("packed sequences, some of them empty") {
  check_batches(Batch::packed({0, 0, 3, 3, 36, 37, 37}));
  check_batches(Batch::packed({0, 0, 0}));
  check_batches(Batch::packed({0}));
}

TEST_CASE("positions restart for every packed sequence and continue from its state") {
  const Batch batch = Batch::packed({0, 4, 4, 10});
  for (const Config& config : all_configs_of_both_scalars()) {
    const KernelPointer kernel = make_kernel(config);
    const StatePointer state = kernel->initial_state(3);
    state->set_position(2, 1000);
    prefill(config, random_inputs(config, 1, 10, 4), *state, {.layout = batch.layout()});
    CHECK(state->position(0) == 4);
    CHECK(state->position(1) == 0);
    CHECK(state->position(2) == 1006);
  }
}

TEST_CASE("batches equal the reference") {
  const Batch batch = Batch::with_mask(6, {0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1});
  for (const Config& config : all_configs_of_both_scalars()) {
    const Inputs inputs = random_inputs(config, 2, 6, 5);
    const StatePointer initial = random_state(config, 2, 6), state = initial->clone();
    const Tensor outputs = prefill(config, inputs, *state, {.layout = batch.layout()});
    const Expected expected = reference_run(config, inputs, *initial, batch);
    CHECK(difference(outputs, expected.outputs, tolerances(config.single).reference) == "");
    CHECK(difference(*state, expected, tolerances(config.single).reference) == "");
  }
}

TEST_CASE("strides: heads outside of tokens, and views into something bigger") {
  for (const Config& config : all_configs_of_both_scalars(4, 2, 8, 9)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, 2, 40, 7);
    const StatePointer initial = random_state(config, 2, 8), state = initial->clone();
    const Tensor expected = prefill(config, inputs, *state);
    for (const Index gap : {0, 3}) {
      const Inputs strided = each(inputs, [&](const Tensor& x) { return x.heads_outside(gap); });
      const StatePointer other = initial->clone();
      const Tensor before = empty_outputs(config, 2, 40).heads_outside(gap);
      Tensor outputs = before;
      make_kernel(config)->prefill(strided, *other, outputs);
      CHECK(difference(outputs, expected) == "");
      CHECK(same_bits(other->numbers(), state->numbers()));
      // Nothing between the rows is touched.
      Tensor nowhere = outputs;
      nowhere.for_each([&](Index b, Index t, Index h, Index d) { nowhere(b, t, h, d) = nan; });
      CHECK(same_bits(nowhere.numbers, before.numbers));
    }
  }
}

TEST_CASE("strides of 0: one row for all heads and sequences") {
  for (const Config& config : all_configs_of_both_scalars()) {
    INFO(config.name());
    Inputs inputs = random_inputs(config, 2, 40, 9), repeated = inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].strides[0] = inputs[i].strides[2] = 0;
      repeated[i].for_each(
          [&](Index b, Index t, Index h, Index d) { repeated[i](b, t, h, d) = inputs[i](b, t, h, d); });
    }
    const StatePointer state = random_state(config, 2, 10), other = state->clone();
    CHECK(difference(prefill(config, inputs, *state), prefill(config, repeated, *other)) == "");
    CHECK(same_bits(state->numbers(), other->numbers()));
  }
}

TEST_CASE("groups of heads are repeated heads") {
  for (const Index G : {1, 2, 3})
    for (const Config& grouped : all_configs_of_both_scalars(6, G)) {
      INFO(grouped.name());
      Config whole = grouped;
      whole.G = 6;
      const Inputs inputs = random_inputs(grouped, 1, 40, 11);
      Inputs repeated = random_inputs(whole, 1, 40, 11);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Index per_group = 6 / inputs[i].extents[2];
        repeated[i].for_each([&](Index b, Index t, Index h, Index d) {
          repeated[i](b, t, h, d) = inputs[i](b, t, h / per_group, d);
        });
      }
      const StatePointer state = random_state(grouped, 1, 12), other = state->clone();
      CHECK(difference(prefill(grouped, inputs, *state), prefill(whole, repeated, *other)) == "");
      CHECK(same_bits(state->numbers(), other->numbers()));
    }
}

TEST_CASE("a NaN in q, k or v stays in its head and its sequence") {
  constexpr Index B = 3, T = 40, bad_row = 1, bad_head = 1, bad_token = 5;
  for (const Config& config : all_configs_of_both_scalars(3, 3, 3, 9)) {
    const Inputs clean = random_inputs(config, B, T, 13);
    const StatePointer initial = random_state(config, B, 14), state = initial->clone();
    const Tensor expected = prefill(config, clean, *state);
    for (std::size_t i = 0; i < clean.size(); ++i) {
      const Field& field = fields(config.architecture)[i];
      if (field.kind != Kind::content && field.kind != Kind::small) continue;
      INFO(config.name() << ", " << field.name);
      Inputs inputs = clean;
      inputs[i](bad_row, bad_token, bad_head, 0) = nan;
      const StatePointer other = initial->clone();
      Tensor outputs = prefill(config, inputs, *other);
      bool seen = false;
      for (Index d = 0; d < config.V; ++d)
        seen = seen || std::isnan(outputs(bad_row, bad_token, bad_head, d));
      CHECK(seen);
      // All but the rest of this head must be as it was.
      for (Index t = bad_token; t < T; ++t)
        for (Index d = 0; d < config.V; ++d)
          outputs(bad_row, t, bad_head, d) = expected(bad_row, t, bad_head, d);
      CHECK(difference(outputs, expected) == "");
      for (Index b = 0; b < B; ++b)
        for (Index h = 0; h < config.H; ++h)
          if (b != bad_row || h != bad_head) CHECK((other->matrix(b, h) == state->matrix(b, h)));
      CHECK(other->position(bad_row) == state->position(bad_row));
    }
  }
}

TEST_CASE("a NaN is gone with the state that held it") {
  for (const Config& config : all_configs_of_both_scalars()) {
    INFO(config.name());
    Inputs inputs = random_inputs(config, 1, 3, 15);
    inputs[0](0, 0, 0, 0) = nan;
    const StatePointer state = make_kernel(config)->initial_state();
    prefill(config, inputs, *state);
    for (Index h = 0; h < config.H; ++h) state->set_matrix(0, h, Eigen::MatrixXd::Zero(config.K, config.V));
    state->set_position(0, 0);
    const StatePointer fresh = make_kernel(config)->initial_state();
    const Inputs next = random_inputs(config, 1, 3, 16);
    CHECK(difference(prefill(config, next, *state), prefill(config, next, *fresh)) == "");
  }
}

}  // namespace linrec::test::batch_test
