// A million tokens through one layer of each of two architectures: memory is flat, the outputs are finite,
// and a restart from a snapshot taken half-way gives the same bits.
#include <fstream>
#include <optional>

#include "tests/catch.hpp"
#include "tests/layers/any_layer.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LINREC_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LINREC_TEST_SANITIZED 1
#endif
#endif

namespace linrec::test::million_tokens_test {

namespace {

#if defined(LINREC_TEST_SANITIZED) || !defined(NDEBUG)
constexpr Index all_tokens = 100'000;  // slow there
#else
constexpr Index all_tokens = 1'000'000;
#endif
constexpr Index chunk = 1'000;

/// Pages of memory that the process has, where the system says so. A sanitizer keeps what is freed.
std::optional<long> resident_pages() {
#if !defined(LINREC_TEST_SANITIZED)
  std::ifstream file("/proc/self/statm");
  long all = 0, resident = 0, of_files = 0;  // the program's own code is one of these
  if (file >> all >> resident >> of_files) return resident - of_files;
#endif
  return {};
}

/// The inputs of the tokens [first, first + chunk): a congruential generator that starts from the position.
void fill_inputs(Index first, LayerInputs& inputs) {
  std::uint32_t bits = static_cast<std::uint32_t>(first) * 2654435761u + 1;
  const auto fill = [&](Tensor& tensor) {
    for (double& x : tensor.numbers) {
      bits = bits * 1664525u + 1013904223u;
      x = static_cast<double>(bits >> 8) * 0x1p-23 - 1;
    }
  };
  fill(inputs.x);
  fill(inputs.v_first);
}

struct Stream {
  const AnyLayer& layer;
  AnyLayerState state;
  LayerInputs inputs = random_layer_inputs(layer, 1, chunk, 1);
  Tensor outputs = Tensor({1, chunk, 1, layer.width()});
  Workspace workspace = {};
  bool finite = true;

  void run_chunk() {
    fill_inputs(state.position(0), inputs);
    layer.prefill(inputs.x, inputs.v_first, state, outputs, {.workspace = &workspace});
    for (const double y : outputs.numbers) finite = finite && std::isfinite(y);
  }
};

void check_stream(const LayerSpec& spec) {
  INFO(spec.name);
  const AnyLayer layer(spec);
  Stream stream{layer, layer.initial_state()};
  std::vector<std::byte> half_way;
  Tensor behind_it;  // the outputs that follow the snapshot; at the end all of it may be forgotten
  std::optional<long> pages;
  while (stream.state.position(0) < all_tokens) {
    if (stream.state.position(0) == all_tokens / 10) pages = resident_pages();
    if (stream.state.position(0) == all_tokens / 2) half_way = stream.state.snapshot();
    stream.run_chunk();
    if (stream.state.position(0) == all_tokens / 2 + chunk) behind_it = stream.outputs;
  }
  const std::optional<long> pages_at_end = resident_pages();
  CHECK(stream.finite);
  CHECK(stream.state.position(0) == all_tokens);
  // 64 pages of at least 4 KiB: all inputs would be more than a hundred times that.
  if (pages && pages_at_end) CHECK(*pages_at_end - *pages < 64);

  const AnyLayer fresh_layer(spec);
  Stream again{fresh_layer, fresh_layer.initial_state()};
  again.state.load_snapshot(std::move(half_way));
  REQUIRE(again.state.position(0) == all_tokens / 2);
  again.run_chunk();
  CHECK(same_bits(again.outputs.numbers, behind_it.numbers));
  while (again.state.position(0) < all_tokens) again.run_chunk();
  CHECK(same_bits(again.outputs.numbers, stream.outputs.numbers));
  CHECK(same_bits(again.state.numbers(), stream.state.numbers()));
  // The numbers still change: it is no state in which nothing happens any more.
  const std::vector<double> before = stream.state.numbers();
  stream.run_chunk();
  CHECK(!same_bits(stream.state.numbers(), before));
}

}  // namespace

TEST_CASE("a million tokens through a Mamba-2 layer") {
  check_stream({"Mamba-2, PoST", Mamba2LayerConfig{.width = 8, .heads = 2, .head_dim = 4, .state_size = 4},
                true, false, true});
}

TEST_CASE("a million tokens through the time mixing of RWKV-7") {
  check_stream(
      {"RWKV-7", RWKV7TimeMixConfig{.width = 8, .heads = 2, .key = 4, .value = 4}, false, false, true});
}

}  // namespace linrec::test::million_tokens_test
