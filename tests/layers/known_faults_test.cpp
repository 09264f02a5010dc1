// Faults that such libraries have had, in whole layers. The kernels' own are in tests/kernels.
#include "tests/catch.hpp"
#include "tests/layers/any_layer.hpp"
#include "tests/layers/random_weights.hpp"

namespace linrec::test::known_faults_test {

TEST_CASE("layers, B01: every piece of a sequence continues from the state") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, 1, 13, 1);
    AnyLayerState whole = layer.initial_state();
    const LayerOutputs expected = prefill(layer, inputs, whole);
    for (const std::vector<Index>& pieces : std::vector<std::vector<Index>>{
             {3, 10}, {1, 12}, {12, 1}, {2, 2, 9}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
      AnyLayerState state = layer.initial_state();
      Index first = 0;
      for (const Index count : pieces) {
        CHECK(difference(prefill(layer, inputs.slice(first, count), state), expected.slice(first, count)) ==
              "");
        first += count;
      }
      CHECK(same_bits(state.numbers(), whole.numbers()));
    }
    // And a restart would have been seen.
    AnyLayerState restarted = layer.initial_state();
    CHECK(difference(prefill(layer, inputs.slice(3, 10), restarted), expected.slice(3, 10)) != "");
  }
}

TEST_CASE("layers, B17: padding leaves no trace in state, windows and position") {
  const Batch batch = Batch::with_lengths(5, {3, 5});
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    LayerInputs inputs = random_layer_inputs(layer, 2, 5, 2);
    for (const Index t : {3, 4})
      for (Index d = 0; d < layer.width(); ++d) inputs.x(0, t, 0, d) = 1e3;
    AnyLayerState padded = layer.initial_state(2), real = layer.initial_state();
    prefill(layer, inputs, padded, {.layout = batch.layout()});
    const LayerInputs first_three = inputs.gather({{0, 0}, {0, 1}, {0, 2}});
    prefill(layer, first_three, real);

    CHECK(padded.position(0) == 3);
    CHECK(padded.position(1) == 5);
    CHECK(same_bits(padded.numbers(0), real.numbers(0)));
    const LayerInputs next = random_layer_inputs(layer, 2, 1, 3);
    const LayerOutputs decoded = steps(layer, next, padded);
    CHECK(difference(decoded.gather({{0, 0}}), steps(layer, next.gather({{0, 0}}), real)) == "");
    CHECK(padded.position(0) == 4);
    CHECK(same_bits(padded.numbers(0), real.numbers(0)));
  }
}

TEST_CASE("layers, B17: a window holds the last real inputs of its convolution, oldest first") {
  const LayerSpec spec = layer_named("Mamba-2");
  const auto& config = std::get<Mamba2LayerConfig>(spec.config);
  const Index W = config.conv_width, channels = config.conv_channels(), D = config.width;
  REQUIRE(W == 4);
  const Parameter<double> in_proj =
      weights_of<double>(spec, config).in_proj.rows(config.inner(), channels);  // behind z
  const AnyLayer layer(spec);
  LayerInputs inputs = random_layer_inputs(layer, 2, 5, 4);
  for (const Index t : {3, 4})
    for (Index d = 0; d < D; ++d) inputs.x(0, t, 0, d) = 1e3;
  AnyLayerState state = layer.initial_state(2);
  prefill(layer, inputs, state, {.layout = Batch::with_lengths(5, {3, 5}).layout()});
  for (const auto& [s, length] : std::vector<std::array<Index, 2>>{{0, 3}, {1, 5}}) {
    const Eigen::MatrixXd window = state.window(s, 0);
    double error = 0;
    for (Index back = 1; back < W; ++back)
      for (Index c = 0; c < channels; ++c) {
        double input = 0;
        for (Index d = 0; d < D; ++d) input += in_proj.data()[c * D + d] * inputs.x(s, length - back, 0, d);
        error = std::max(error, std::abs(window(W - back, c) - input));
      }
    CHECK(error < 1e-14);
  }
}

TEST_CASE("layers, B18: sequences may be empty, one or all of them, also after earlier content") {
  const Batch batch = Batch::packed({0, 0, 3, 3, 5, 5}), nothing = Batch::packed({0, 0, 0, 0, 0, 0});
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    AnyLayerState state = layer.initial_state(5);
    prefill(layer, random_layer_inputs(layer, 1, 12, 4), state,
            {.layout = Batch::packed({0, 4, 5, 8, 9, 12}).layout()});
    const AnyLayerState before = state;
    prefill(layer, random_layer_inputs(layer, 1, 5, 5), state, {.layout = batch.layout()});
    for (const Index s : {0, 2, 4}) CHECK(same_bits(state.numbers(s), before.numbers(s)));
    for (const Index s : {1, 3}) CHECK(!same_bits(state.numbers(s), before.numbers(s)));
    const AnyLayerState after = state;
    CHECK(prefill(layer, random_layer_inputs(layer, 1, 0, 6), state, {.layout = nothing.layout()})
              .y.numbers.empty());
    CHECK(same_bits(state.numbers(), after.numbers()));
    // Without earlier content they are as at the start.
    AnyLayerState fresh = layer.initial_state(5);
    prefill(layer, random_layer_inputs(layer, 1, 0, 6), fresh, {.layout = nothing.layout()});
    CHECK(same_bits(fresh.numbers(), layer.initial_state(5).numbers()));
  }
}

TEST_CASE("layers, B32: the position is a part of the state") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    AnyLayerState state = layer.initial_state();
    prefill(layer, random_layer_inputs(layer, 1, 23, 7), state);

    // Its parts, into a fresh state of a fresh layer.
    const AnyLayer fresh(spec);
    AnyLayerState restored = fresh.initial_state();
    restored.set_sequence(0, state, 0);
    CHECK(restored.position(0) == 23);
    AnyLayerState moved = restored;
    moved.set_position(0, 5);
    const LayerInputs next = random_layer_inputs(layer, 1, 70, 8);
    const LayerOutputs expected = prefill(layer, next, state);
    CHECK(difference(prefill(fresh, next, restored), expected) == "");
    CHECK(restored == state);
    // Another position is another answer, where there is a taper or a rotation, or chunks are told apart.
    const bool matters = spec.post || spec.name.starts_with("RetNet") || spec.name.starts_with("SKA, chunks");
    CHECK((difference(prefill(fresh, next, moved), expected) != "") == matters);
  }
}

TEST_CASE("layers, B32: from bytes, 64-bit positions included") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    AnyLayerState state = random_layer_state(layer, 3, 9);
    state.set_position(1, (std::int64_t{1} << 40) + 1);
    AnyLayerState restored = AnyLayer(spec).initial_state(3);
    restored.load_snapshot(state.snapshot());
    CHECK(restored == state);
    const LayerInputs next = random_layer_inputs(layer, 3, 3, 10);
    const LayerOutputs expected = prefill(layer, next, state);
    CHECK(difference(prefill(layer, next, restored), expected) == "");
    CHECK(same_bits(restored.numbers(), state.numbers()));
  }
}

}  // namespace linrec::test::known_faults_test
