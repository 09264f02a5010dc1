// Batches: every sequence as if it were alone, whatever lies beside it.
#include "tests/catch.hpp"
#include "tests/layers/any_layer.hpp"

namespace linrec::test::batch_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::size_t index(Index i) { return static_cast<std::size_t>(i); }

/// A state with the sequence s of `all` alone.
AnyLayerState alone(const AnyLayer& layer, const AnyLayerState& all, Index s) {
  AnyLayerState one = layer.initial_state();
  one.set_sequence(0, all, s);
  return one;
}

/// Puts garbage on the padding: NaN, infinity and huge numbers.
LayerInputs with_garbage(const LayerInputs& inputs, const Batch& batch) {
  constexpr double garbage[] = {nan, 1e30, -1e30, std::numeric_limits<double>::infinity()};
  const std::vector<bool> real = batch.real();
  return inputs.each([&](Tensor x) {
    x.for_each([&](Index b, Index t, Index h, Index d) {
      if (!real[index(b * batch.tokens + t)]) x(b, t, h, d) = garbage[(t + d) % 4];
    });
    return x;
  });
}

bool padding_is_zero(const Tensor& tensor, const Batch& batch) {
  const std::vector<bool> real = batch.real();
  bool zero = true;
  tensor.for_each([&](Index b, Index t, Index h, Index d) {
    if (!real[index(b * batch.tokens + t)]) zero = zero && same_bits(tensor(b, t, h, d), 0);
  });
  return zero;
}

void check_batch(const LayerSpec& spec, const Batch& batch) {
  INFO(spec.name);
  const AnyLayer layer(spec);
  const LayerInputs inputs = with_garbage(random_layer_inputs(layer, batch.rows, batch.tokens, 1), batch);
  const AnyLayerState initial = random_layer_state(layer, batch.count(), 2);
  AnyLayerState state = initial;
  const LayerOutputs outputs = prefill(layer, inputs, state, {.layout = batch.layout()});
  CHECK(padding_is_zero(outputs.y, batch));
  if (layer.writes_values()) CHECK(padding_is_zero(outputs.v_first, batch));

  // And a token more for each sequence.
  const LayerInputs next = random_layer_inputs(layer, batch.count(), 1, 3);
  AnyLayerState after = state;
  const LayerOutputs decoded = steps(layer, next, after);
  for (Index s = 0; s < batch.count(); ++s) {
    INFO("sequence " << s);
    const auto& tokens = batch.sequences[index(s)];
    AnyLayerState one = alone(layer, initial, s);
    CHECK(difference(outputs.gather(tokens), prefill(layer, inputs.gather(tokens), one)) == "");
    CHECK(same_bits(state.numbers(s), one.numbers(0)));
    CHECK(state.position(s) == initial.position(s) + static_cast<Index>(tokens.size()));
    CHECK(difference(decoded.gather({{s, 0}}), steps(layer, next.gather({{s, 0}}), one)) == "");
    CHECK(same_bits(after.numbers(s), one.numbers(0)));
  }
}

void check_batches(const Batch& batch) {
  for (const LayerSpec& spec : all_layers()) check_batch(spec, batch);
}

}  // namespace

TEST_CASE("layers: dense batches of 0, 1 and 3 sequences") {
  check_batches(Batch::dense(0, 5));
  check_batches(Batch::dense(1, 40));
  check_batches(Batch::dense(3, 50));  // chunks end inside of rows
}

TEST_CASE("layers: a length for every row") {
  check_batches(Batch::with_lengths(40, {40, 0, 1, 33}));
  check_batches(Batch::with_lengths(70, {64, 64, 65, 63, 70}));  // chunks end with rows, and beside them
  check_batches(Batch::with_lengths(3, {0, 0}));
}

TEST_CASE("layers: left-padded rows with a mask") {
  std::vector<std::uint8_t> mask(4 * 40, 0);
  for (const auto& [row, padding] : std::vector<std::array<Index, 2>>{{0, 0}, {1, 3}, {2, 39}, {3, 40}})
    for (Index t = padding; t < 40; ++t) mask[index(row * 40 + t)] = 1;
  check_batches(Batch::with_mask(40, mask));
}

TEST_CASE("layers: a mask with holes") {
  std::vector<std::uint8_t> mask;
  Random random(3);
  for (Index t = 0; t < 2 * 120; ++t)
    mask.push_back(static_cast<std::uint8_t>(random.integer(0, 3)));  // any non-zero
  check_batches(Batch::with_mask(120, mask));
}

TEST_CASE("layers: packed sequences, some of them empty") {
  check_batches(Batch::packed({0, 0, 3, 3, 67, 68, 68}));
  check_batches(Batch::packed({0, 64, 64, 128}));
  check_batches(Batch::packed({0, 0, 0}));
  check_batches(Batch::packed({0}));
}

TEST_CASE("layers: more sequences than a chunk has rows") {
  constexpr Index B = 150;
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, B, 2, 4);
    const AnyLayerState initial = random_layer_state(layer, B, 5);
    AnyLayerState stepped = initial, at_once = initial;
    const LayerOutputs outputs = steps(layer, inputs, stepped);
    CHECK(difference(prefill(layer, inputs, at_once), outputs) == "");
    CHECK(same_bits(at_once.numbers(), stepped.numbers()));
    for (Index s = 0; s < B; ++s) {
      INFO("sequence " << s);
      const std::vector<std::array<Index, 2>> tokens{{s, 0}, {s, 1}};
      AnyLayerState one = alone(layer, initial, s);
      const std::string text = difference(outputs.gather(tokens), steps(layer, inputs.gather(tokens), one));
      if (!text.empty() || !same_bits(stepped.numbers(s), one.numbers(0))) CHECK(text == "nothing");
    }
  }
}

TEST_CASE("layers: NaN stays in its sequence, and is seen there") {
  constexpr Index B = 4, T = 33;
  const auto check = [&](const AnyLayer& layer, const LayerInputs& inputs, const Batch& batch) {
    const AnyLayerState initial = random_layer_state(layer, batch.count(), 7);
    AnyLayerState clean = initial, dirty = initial;
    const LayerOutputs expected = prefill(layer, inputs, clean, {.layout = batch.layout()});
    LayerInputs bad = inputs;
    const auto [row, token] = batch.sequences[1][10];
    bad.x(row, token, 0, 0) = nan;
    const LayerOutputs outputs = prefill(layer, bad, dirty, {.layout = batch.layout()});
    for (Index s = 0; s < batch.count(); ++s) {
      if (s == 1) continue;
      CHECK(difference(outputs.gather(batch.sequences[index(s)]),
                       expected.gather(batch.sequences[index(s)])) == "");
      CHECK(same_bits(dirty.numbers(s), clean.numbers(s)));
    }
    // What came before it is untouched, and it is not swallowed.
    const std::vector<std::array<Index, 2>> before(batch.sequences[1].begin(),
                                                   batch.sequences[1].begin() + 10);
    CHECK(difference(outputs.gather(before), expected.gather(before)) == "");
    bool seen = true;
    for (Index d = 0; d < layer.width(); ++d) seen = seen && std::isnan(outputs.y(row, token, 0, d));
    CHECK(seen);
    // Nor does it stay in a chunk's memory: the sequence starts afresh.
    dirty.reset(1);
    AnyLayerState fresh = layer.initial_state(1);
    const LayerInputs again = random_layer_inputs(layer, batch.count(), 1, 8);
    CHECK(difference(steps(layer, again, dirty).gather({{1, 0}}),
                     steps(layer, again.gather({{1, 0}}), fresh)) == "");
  };
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    check(layer, random_layer_inputs(layer, B, T, 6), Batch::dense(B, T));
    check(layer, random_layer_inputs(layer, 1, 90, 6), Batch::packed({0, 20, 60, 60, 90}));
  }
}

}  // namespace linrec::test::batch_test
