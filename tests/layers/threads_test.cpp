// A layer is immutable: any number of threads may use one at once, each with its own state.
#include "tests/catch.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/layers/any_layer.hpp"

namespace linrec::test {

TEST_CASE("layers: many threads at one layer give the bits of one") {
  constexpr Index workers = 4, rounds = 3;
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    std::vector<LayerInputs> inputs;
    std::vector<AnyLayerState> expected_states;
    std::vector<LayerOutputs> expected, decoded;
    for (Index i = 0; i < workers; ++i) {
      inputs.push_back(random_layer_inputs(layer, 2, 70, static_cast<std::uint64_t>(i)));
      expected_states.push_back(random_layer_state(layer, 2, static_cast<std::uint64_t>(i)));
      expected.push_back(prefill(layer, inputs.back(), expected_states.back()));
      decoded.push_back(steps(layer, inputs.back().slice(0, 9), expected_states.back()));
    }
    std::array<bool, workers * rounds> same{};  // Catch's macros are for one thread
    ThreadExecutor{workers}.for_each(workers * rounds, 0, [&](Index item, Index) {
      const auto i = static_cast<std::size_t>(item % workers);
      AnyLayerState state = random_layer_state(layer, 2, i);
      same[static_cast<std::size_t>(item)] =
          difference(prefill(layer, inputs[i], state), expected[i]).empty() &&
          difference(steps(layer, inputs[i].slice(0, 9), state), decoded[i]).empty() &&
          same_bits(state.numbers(), expected_states[i].numbers());
    });
    for (const bool equal : same) CHECK(equal);
  }
}

TEST_CASE("layers: states move between threads") {
  const AnyLayer layer(layer_named("Mamba-2, PoST"));
  const LayerInputs inputs = random_layer_inputs(layer, 1, 40, 1);
  AnyLayerState here = layer.initial_state(), wandering = here;
  const LayerOutputs expected = prefill(layer, inputs, here);
  for (Index t = 0; t < 40; t += 10) {
    std::string text;
    std::thread([&] {
      text = difference(prefill(layer, inputs.slice(t, 10), wandering), expected.slice(t, 10));
    }).join();
    CHECK(text == "");
  }
  CHECK(wandering == here);
}

}  // namespace linrec::test
