// A layer is immutable: any number of threads may use one at once, each with its own state. And any number
// may share the work of one call.
#include "tests/catch.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/error_of.hpp"
#include "tests/layers/any_layer.hpp"

namespace linrec::test::threads_test {

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

namespace {

/// So wide that linear maps are split into many ranges, with rests.
std::vector<LayerSpec> wide_layers() {
  std::vector<LayerSpec> all;
  all.push_back(
      {"wide Mamba-2",
       Mamba2LayerConfig{.width = 75, .heads = 5, .head_dim = 20, .state_size = 9, .mlp_width = 33}});
  all.push_back({"wide RWKV-7", RWKV7TimeMixConfig{.width = 72, .heads = 6, .key = 12, .value = 12}});
  all.push_back({"wide channel mix", ChannelMixConfig{61, 250}});
  all.push_back({"wide Gated DeltaNet",
                 GatedDeltaNetLayerConfig{.width = 77, .heads = 3, .key_dim = 17, .value_dim = 33}});
  all.push_back({"wide GLA", GLALayerConfig{.width = 100, .heads = 5, .key_dim = 10, .value_dim = 20}});
  all.push_back({"wide RetNet", RetNetLayerConfig{.width = 90, .heads = 3, .key_dim = 14, .value_dim = 30}});
  all.push_back({"wide SKA", SKALayerConfig{.width = 66, .attention = {.heads = 4, .key = 7, .value = 13}}});
  for (LayerSpec& spec : all) spec.single = true;
  return all;
}

/// Runs the items backwards, as all its workers in turn, or throws.
struct OddExecutor {
  Index workers = 1;
  bool throws = false;

  Index concurrency() const { return workers; }
  template <class F>
  void for_each(Index n, double, F&& f) const {
    if (throws) throw std::runtime_error("no threads today");
    for (Index i = n - 1; i >= 0; --i) f(i, i % workers);
  }
};

}  // namespace

TEST_CASE("layers: threads within one call give the bits of one thread") {
  std::vector<LayerSpec> specs = all_layers();
  for (const LayerSpec& spec : wide_layers()) specs.push_back(spec);
  for (const LayerSpec& spec : specs) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, 3, 45, 1);
    const AnyLayerState initial = random_layer_state(layer, 3, 2);
    const std::vector<Index> lengths{45, 0, 30};  // more than one chunk, and a sequence without tokens
    for (const SequenceLayout& layout : {SequenceLayout(), SequenceLayout::with_lengths(lengths)}) {
      AnyLayerState serial = initial;
      const LayerOutputs expected = prefill(layer, inputs, serial, {.layout = layout});
      Workspace workspace;
      const auto check = [&](const ExecutorRef& executor) {
        AnyLayerState state = initial;
        const LayerOutputs outputs =
            prefill(layer, inputs, state, {.layout = layout, .workspace = &workspace, .executor = executor});
        CHECK(difference(outputs, expected) == "");
        CHECK(same_bits(state.numbers(), serial.numbers()));
      };
      for (const Index threads : {1, 2, 3, 7}) check(ThreadExecutor{threads});
      for (const Index workers : {1, 2, 100}) check(OddExecutor{workers});
    }
    // One token, as in a step.
    AnyLayerState stepped = initial, state = initial;
    const LayerOutputs expected = steps(layer, inputs.slice(0, 1), stepped);
    const ThreadExecutor three{3};
    CHECK(difference(prefill(layer, inputs.slice(0, 1), state, {.executor = three}), expected) == "");
    CHECK(same_bits(state.numbers(), stepped.numbers()));
  }
}

TEST_CASE("layers: what an executor throws reaches the caller, and the layer is as before") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs inputs = random_layer_inputs(layer, 2, 70, 1);
    AnyLayerState state = layer.initial_state(2), fresh = state;
    const LayerOutputs expected = prefill(layer, inputs, fresh);
    const OddExecutor broken{2, true}, none{0};
    CHECK_THROWS_AS(prefill(layer, inputs, state, {.executor = broken}), std::runtime_error);
    CHECK(error_of([&] { prefill(layer, inputs, state, {.executor = none}); }) ==
          "ValueError: executor: expected a concurrency of at least 1, got 0");
    for (Index s = 0; s < 2; ++s) state.reset(s);
    CHECK(difference(prefill(layer, inputs, state), expected) == "");
    CHECK(same_bits(state.numbers(), fresh.numbers()));
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

}  // namespace linrec::test::threads_test
