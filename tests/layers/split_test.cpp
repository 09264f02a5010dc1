// However a sequence is split, and whoever's memory it runs in, every bit is the same.
#include "tests/catch.hpp"
#include "tests/layers/any_layer.hpp"

namespace linrec::test::split_test {

namespace {

/// Feeds the sequence in random pieces, some by steps, some empty, some longer than a chunk.
LayerOutputs random_split(const AnyLayer& layer, const LayerInputs& inputs, AnyLayerState& state,
                          Random& random) {
  const Index T = inputs.x.extents[1];
  constexpr Index longest[] = {3, 20, 100};
  LayerOutputs outputs = empty_layer_outputs(layer, inputs);
  for (Index first = 0; first < T;) {
    const Index count = std::min(T - first, random.integer(0, longest[random.integer(0, 2)]));
    const LayerInputs piece = inputs.slice(first, count);
    outputs.set_slice(first,
                      random.integer(0, 2) == 0 ? steps(layer, piece, state) : prefill(layer, piece, state));
    first += count;
  }
  return outputs;
}

}  // namespace

TEST_CASE("layers: prefill, steps and every split are equal bit for bit") {
  constexpr Index B = 2, T = 150;  // more than two chunks
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, B, T, 1);
    for (const AnyLayerState& initial : {layer.initial_state(B), random_layer_state(layer, B, 2)}) {
      AnyLayerState at_once = initial, stepped = initial;
      const LayerOutputs expected = prefill(layer, inputs, at_once);
      CHECK(difference(steps(layer, inputs, stepped), expected) == "");
      CHECK(same_bits(stepped.numbers(), at_once.numbers()));
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        Random random(seed);
        AnyLayerState state = initial;
        CHECK(difference(random_split(layer, inputs, state, random), expected) == "");
        CHECK(same_bits(state.numbers(), at_once.numbers()));
      }
    }
  }
}

namespace {

/// Of the outputs, as a part of the largest one.
double largest_difference(const LayerOutputs& got, const LayerOutputs& expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.y.numbers.size(); ++i) {
    const double each = std::abs(got.y.numbers[i] - expected.y.numbers[i]);
    difference = std::isnan(each) ? each : std::max(difference, each);
    largest = std::max(largest, std::abs(expected.y.numbers[i]));
  }
  return difference / largest;
}

}  // namespace

// Products are the same and sums are not, so that layers differ by roundings: some dozens of them, and in
// SKA, which solves with matrices that the ridge makes regular, some thousands.
TEST_CASE("layers: weights of bfloat16 do what numbers of the same values do") {
  constexpr Index B = 2, T = 70;
  for (LayerSpec spec : all_layers()) {
    INFO(spec.name);
    spec.matrices = Matrices::widened;
    const AnyLayer wide(spec);
    spec.matrices = Matrices::bfloat16;
    const AnyLayer narrow(spec);
    const LayerInputs inputs = random_layer_inputs(wide, B, T, 12);
    AnyLayerState wide_state = wide.initial_state(B), at_once = narrow.initial_state(B), stepped = at_once;
    const LayerOutputs expected = prefill(wide, inputs, wide_state), got = prefill(narrow, inputs, at_once);
    const double roundings = std::holds_alternative<SKALayerConfig>(spec.config) ? 5000 : 50;
    CHECK(largest_difference(got, expected) <= roundings * (spec.single ? 1.2e-7 : 2.2e-16));
    CHECK(difference(steps(narrow, inputs, stepped), got) == "");
    CHECK(same_bits(stepped.numbers(), at_once.numbers()));
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Random random(seed);
      AnyLayerState state = narrow.initial_state(B);
      CHECK(difference(random_split(narrow, inputs, state, random), got) == "");
      CHECK(same_bits(state.numbers(), at_once.numbers()));
    }
  }
}

TEST_CASE("layers: sequences shorter than the window of a convolution") {
  for (const LayerSpec& spec : all_layers()) {
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, 1, 9, 3);
    AnyLayerState whole = layer.initial_state();
    const LayerOutputs expected = prefill(layer, inputs, whole);
    // Pieces of 1, 2 or 3 tokens each leave older tokens in the window.
    for (const Index piece : {1, 2, 3, 4, 5}) {
      INFO(spec.name << ", pieces of " << piece);
      AnyLayerState state = layer.initial_state();
      for (Index first = 0; first < 9; first += piece) {
        const Index count = std::min<Index>(piece, 9 - first);
        CHECK(difference(prefill(layer, inputs.slice(first, count), state), expected.slice(first, count)) ==
              "");
        CHECK(state.position(0) == first + count);
      }
      CHECK(same_bits(state.numbers(), whole.numbers()));
    }
  }
}

TEST_CASE("layers: no tokens leave the state alone") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    AnyLayerState state = random_layer_state(layer, 2, 4);
    const std::vector<double> before = state.numbers();
    prefill(layer, random_layer_inputs(layer, 2, 0, 4), state);
    CHECK(same_bits(state.numbers(), before));
    AnyLayerState none = layer.initial_state(0);
    prefill(layer, random_layer_inputs(layer, 0, 5, 4), none);
    steps(layer, random_layer_inputs(layer, 0, 5, 4), none);
    CHECK(none.sequences() == 0);
  }
}

TEST_CASE("layers: a workspace that is kept gives the same bits") {
  Workspace workspace;  // one for all, with what another layer left in it
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, 2, 70, 5);
    const AnyLayerState initial = random_layer_state(layer, 2, 6);
    AnyLayerState fresh = initial;
    const LayerOutputs expected = prefill(layer, inputs, fresh);
    for (int again = 0; again < 2; ++again) {
      AnyLayerState kept = initial;
      CHECK(difference(prefill(layer, inputs, kept, {.workspace = &workspace}), expected) == "");
      CHECK(same_bits(kept.numbers(), fresh.numbers()));
    }
  }
}

TEST_CASE("layers: the outputs may be the inputs") {
  const Batch batch = Batch::with_lengths(80, {80, 0, 33});
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, 3, 80, 7);
    const AnyLayerState initial = random_layer_state(layer, 3, 8);
    for (const SequenceLayout& layout : {SequenceLayout(), batch.layout()}) {
      AnyLayerState apart = initial, in_place = initial;
      const LayerOutputs expected = prefill(layer, inputs, apart, {.layout = layout});
      LayerOutputs got{inputs.x, inputs.v_first};
      layer.prefill(got.y, got.v_first, in_place, got.y, {.layout = layout});
      CHECK(difference(got, expected) == "");
      CHECK(same_bits(in_place.numbers(), apart.numbers()));
    }
    AnyLayerState apart = initial, in_place = initial;
    const LayerInputs token = inputs.slice(0, 1);
    const LayerOutputs expected = steps(layer, token, apart);
    LayerOutputs got{token.x, token.v_first};
    layer.step(got.y, got.v_first, in_place, got.y);
    CHECK(difference(got, expected) == "");
    CHECK(same_bits(in_place.numbers(), apart.numbers()));
  }
}

namespace {

/// The same tensor with tokens outside of the batch, and `gap` numbers of something else (999) after each
/// row.
Tensor tokens_outside(const Tensor& tensor, Index gap) {
  Tensor other;
  const Index width = tensor.extents[3] + gap;
  other.extents = tensor.extents;
  other.strides = {width, tensor.extents[0] * width, width};
  other.numbers.assign(static_cast<std::size_t>(tensor.extents[0] * tensor.extents[1] * width), 999);
  tensor.for_each([&](Index b, Index t, Index h, Index d) { other(b, t, h, d) = tensor(b, t, h, d); });
  return other;
}
/// What lies in the gaps.
std::vector<double> gaps(const Tensor& tensor, Index gap) {
  std::vector<double> all;
  const std::size_t width = static_cast<std::size_t>(tensor.extents[3] + gap);
  for (std::size_t i = 0; i < tensor.numbers.size(); ++i)
    if (i % width >= static_cast<std::size_t>(tensor.extents[3])) all.push_back(tensor.numbers[i]);
  return all;
}

}  // namespace

TEST_CASE("layers: any strides, and nothing is written between the rows") {
  constexpr Index B = 3, T = 30, gap = 5;
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, B, T, 9);
    const AnyLayerState initial = random_layer_state(layer, B, 10);
    AnyLayerState plain = initial, strange = initial;
    const LayerOutputs expected = prefill(layer, inputs, plain);

    const LayerInputs outside = inputs.each([](const Tensor& tensor) { return tokens_outside(tensor, gap); });
    LayerOutputs got{tokens_outside(expected.y, gap), outside.v_first};
    layer.prefill(outside.x, got.v_first, strange, got.y);
    CHECK(difference(got, expected) == "");
    CHECK(same_bits(strange.numbers(), plain.numbers()));
    CHECK(gaps(got.y, gap) == std::vector<double>(B * T * gap, 999));
    if (layer.values() > 0) CHECK(gaps(got.v_first, gap) == std::vector<double>(B * T * gap, 999));
  }
}

TEST_CASE("layers: inputs and outputs may run backwards") {
  constexpr Index T = 7;
  const AnyLayer layer(layer_named("Mamba-2"));
  const LayerInputs inputs = random_layer_inputs(layer, 1, T, 11);
  AnyLayerState plain = layer.initial_state();
  const LayerOutputs expected = prefill(layer, inputs, plain);
  const auto typed = make_layer_of<double>(layer_named("Mamba-2"));
  const Index width = layer.width();
  std::vector<double> x(static_cast<std::size_t>(T * width)), y(x.size());
  for (Index t = 0; t < T; ++t)
    std::copy_n(inputs.x.numbers.begin() + t * width, width, x.begin() + (T - 1 - t) * width);
  const std::array<Index, 4> extents{1, T, 1, width};
  const std::array<Index, 3> strides{0, -width, 0};
  LayerState<double> state = typed->initial_state(1);
  typed->prefill({x.data() + (T - 1) * width, extents, strides}, {}, state,
                 {y.data() + (T - 1) * width, extents, strides}, {});
  for (Index t = 0; t < T; ++t)
    for (Index d = 0; d < width; ++d)
      CHECK(same_bits(y[static_cast<std::size_t>((T - 1 - t) * width + d)], expected.y(0, t, 0, d)));
}

}  // namespace linrec::test::split_test
