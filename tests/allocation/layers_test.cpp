// No layer touches the heap in `step`, nor in `prefill` with a workspace that is kept, at production sizes.
#include <vector>

#include "tests/allocation/allocation_guard.hpp"
#include "tests/catch.hpp"
#include "tests/layers/layer_spec.hpp"

namespace linrec::test::layers_test {

namespace {

/// Three workers, all in the calling thread.
struct ThreeWorkers {
  Index concurrency() const { return 3; }
  template <class F>
  void for_each(Index n, double, F&& f) const {
    for (Index i = 0; i < n; ++i) f(i, i % 3);
  }
};

/// Steps of B sequences, then prefills of T tokens each.
void check_allocates_nothing(const LayerOf<float>& layer, Index B, Index T) {
  INFO(B << " sequences, " << T << " tokens");
  const auto numbers = [&](Index width) {
    return std::vector<float>(static_cast<std::size_t>(B * T * width), 0.05f);
  };
  const Index width = layer.width(), values = layer.values();
  std::vector<float> x = numbers(width), v_first = numbers(values), y = numbers(width);
  LayerState<float> state = layer.initial_state(B);

  const TokenView<float> x1(x.data(), B, 1, 1, width), v1(v_first.data(), B, 1, 1, values),
      y1(y.data(), B, 1, 1, width);
  layer.validate(x1, v1, state, y1, {});
  const CountAllocations of_step;
  for (int i = 0; i < 3; ++i) layer.step(x1, v1, state, y1);
  const long by_step = of_step.count();
  CHECK(by_step == 0);

  const TokenView<float> all(x.data(), B, T, 1, width), all_v(v_first.data(), B, T, 1, values),
      all_y(y.data(), B, T, 1, width);
  Workspace workspace;
  const std::vector<Index> lengths(static_cast<std::size_t>(B), T - 1);
  const SequenceLayout ragged = SequenceLayout::with_lengths(lengths);
  const CountAllocations of_first;
  layer.prefill(all, all_v, state, all_y, {.workspace = &workspace});
  const long by_first = of_first.count();
  CHECK(by_first > 0);  // the workspace itself
  const CountAllocations of_prefill;
  layer.prefill(all, all_v, state, all_y, {.workspace = &workspace});
  layer.prefill(all, all_v, state, all_y, {ragged, &workspace});
  const long by_prefill = of_prefill.count();
  CHECK(by_prefill == 0);
  layer.prefill(all, all_v, state, all_y, {.workspace = &workspace}, ThreeWorkers());
  const CountAllocations of_workers;
  layer.prefill(all, all_v, state, all_y, {.workspace = &workspace}, ThreeWorkers());
  const long by_workers = of_workers.count();
  CHECK(by_workers == 0);

  // A state that is copied into one of the same shape takes its memory.
  LayerState<float> fork = state;
  layer.step(x1, v1, state, y1);
  const CountAllocations of_copy;
  fork = state;
  layer.step(x1, v1, fork, y1);
  const long by_copy = of_copy.count();
  CHECK(by_copy == 0);
}

void check(const LayerSpec& spec) {
  INFO(spec.name);
  const LayerPointerOf<float> layer = make_layer_of<float>(spec);
  check_allocates_nothing(*layer, 2, 70);  // chunks of both sequences
  check_allocates_nothing(*layer, 70, 2);  // more sequences than a chunk has rows
}

}  // namespace

TEST_CASE("Mamba-2 layer, width 768, 24 heads of 64 x 128") {
  const Mamba2LayerConfig config{.width = 768, .heads = 24, .head_dim = 64, .state_size = 128};
  for (const bool post : {false, true}) check({post ? "PoST" : "plain", config, post});
  Mamba2LayerConfig changed = config;
  changed.mlp_width = 300;
  changed.groups = changed.norm_groups = 8;
  changed.norm_before_gate = true;
  check({"with all options", changed, false, true});
  check({.name = "weights of bfloat16", .config = changed, .extras = true, .matrices = Matrices::bfloat16});
}

TEST_CASE("RWKV-7 layers, width 768, 12 heads of 64 x 64") {
  for (const bool first : {false, true})
    for (const bool post : {false, true})
      check({message(first ? "first" : "later", post ? ", PoST" : ""),
             RWKV7TimeMixConfig{.width = 768, .heads = 12, .key = 64, .value = 64, .first_layer = first},
             post});
  check({"channel mix", ChannelMixConfig{768, 3072}});
  check({.name = "channel mix, bfloat16",
         .config = ChannelMixConfig{768, 3072},
         .matrices = Matrices::bfloat16});
}

TEST_CASE("Gated DeltaNet layer, width 768, 6 heads of 128 x 128") {
  GatedDeltaNetLayerConfig config{.width = 768, .heads = 6, .key_dim = 128, .value_dim = 128};
  for (const bool post : {false, true}) check({post ? "PoST" : "plain", config, post});
  config.value_heads = 12;
  config.conv_width = 0;
  config.output_gate = false;
  check({"grouped values, no convolutions, no gate", config});
}

TEST_CASE("GLA layer, width 768, 4 heads of 96 x 192") {
  GLALayerConfig config{.width = 768, .heads = 4, .key_dim = 96, .value_dim = 192};
  for (const bool post : {false, true}) check({post ? "PoST" : "plain", config, post});
  config.kv_heads = 1;
  config.conv_width = 4;
  config.feature_map = FeatureMap::relu;
  check({"one key, convolutions", config});
}

TEST_CASE("RetNet layer, width 768, 3 heads of 256 x 512") {
  RetNetLayerConfig config{.width = 768, .heads = 3, .key_dim = 256, .value_dim = 512};
  for (const bool post : {false, true}) check({post ? "PoST" : "plain", config, post});
  config.kv_heads = 1;
  config.conv_width = 4;
  check({"one key, convolutions", config});
}

TEST_CASE("SKA layer, width 768, 12 heads of 48 x 64") {
  SKALayerConfig config{.width = 768, .attention = {.heads = 12, .key = 48, .value = 64}};
  check({"inclusive", config});
  config.attention.visibility = Visibility::exclusive;
  check({"exclusive", config});
  config.attention.visibility = Visibility::earlier_chunks;
  config.attention.koopman_operator = KoopmanOperator::unwhitened;
  config.attention.boundary_transition = true;
  check({"chunks, as released", config});
}

}  // namespace linrec::test::layers_test
