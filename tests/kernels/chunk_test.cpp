// Fast prefill: the chunked form at all sizes of its tiles, with decays and numbers that a careless one gets
// wrong.
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::chunk_test {

namespace {

using enum Architecture;
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor& input(const Config& config, Inputs& inputs, const char* name) {
  return inputs[field_index(config.architecture, name)];
}

/// The log-decay of a config, by name; null if it has none.
const char* decay_of(const Config& config) {
  return config.architecture == gla ? "gk" : config.architecture == gated_delta_net ? "g" : nullptr;
}

}  // namespace

TEST_CASE("fast prefill does go by chunks, where a law has them: sums in another order have other bits") {
  for (const Config& config : plain_configs(true, 2, 2, 32, 32)) {
    INFO(config.name());
    const bool scans = config.architecture == rwkv7 || config.architecture == dplr;
    const Inputs inputs = random_inputs(config, 1, 32, 4);
    const StatePointer fast = random_state(config, 1, 5), scanned = fast->clone();
    const Tensor outputs = prefill(config, inputs, *fast);
    const Tensor expected = prefill(config, inputs, *scanned, {.mode = PrefillMode::reproducible});
    CHECK((difference(outputs, expected) == "") == scans);
  }
}

TEST_CASE("chunks equal the reference for all remainders of K, V and T") {
  for (const bool single : {false, true})
    for (Index K = 16; K <= 34; K += K < 24 ? 1 : 2)
      for (const Config& config : all_configs(single, 1, 1, K, 16 + 7 * K % 33)) {
        if (config.architecture == rwkv7 || config.architecture == dplr) continue;  // have no chunks
        const Inputs inputs = random_inputs(config, 1, 40, static_cast<std::uint64_t>(K));
        for (const Index T : {4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 21, 40})
          CHECK(reference_difference(
                    config, each(inputs, [&](const Tensor& x) { return x.slice(40 - T, T); })) == "");
      }
}

TEST_CASE("chunks with decays of all strengths") {
  const double decays[] = {-0.1,  -3e7, -infinity, 0,         -1e-30, -1000.1, -5,
                           -1e-3, -80,  -infinity, -infinity, -0.1,   -1};
  for (const Config& config : all_configs_of_both_scalars(2, 2, 18, 21)) {
    const char* name = decay_of(config);
    if (name == nullptr) continue;
    for (const Index often : {1, 3, 17}) {  // every so many numbers one of these
      Inputs inputs = random_inputs(config, 1, 50, 3);
      Index i = 0;
      for (double& g : input(config, inputs, name).numbers)
        if (++i % often == 0) g = rounded(decays[i / often % 13], config.single);
      CHECK(reference_difference(config, inputs) == "");
    }
  }
}

TEST_CASE("B22 in a chunk: weak decays after an enormous one are not lost") {
  for (const Architecture architecture : {gated_delta_net, gla, mamba2}) {
    Config config = make_config(architecture, false, true, 1, 1, 16, 16);
    Inputs inputs = random_inputs(config, 1, 6, 1);
    const double log_decay[] = {-0.1, -3e7, -0.1, -0.1, -0.1, -0.1};
    const double expected[] = {1, 1, 1.904837, 2.723568, 3.464386, 4.134706};
    // Only the first channel of k and q is not 0; without a correction, where there is one.
    const bool ssd = architecture == mamba2;
    for (const char* name : {ssd ? "B" : "k", ssd ? "C" : "q"})
      input(config, inputs, name).for_each([&](Index b, Index t, Index h, Index d) {
        input(config, inputs, name)(b, t, h, d) = d == 0 ? 1 : 0;
      });
    for (double& v : input(config, inputs, ssd ? "x" : "v").numbers) v = 1;
    config.log_rates = Eigen::ArrayXd::Zero(1);
    config.scale = ssd ? 0 : 1;
    if (ssd) {
      input(config, inputs, "dt").for_each([&](Index b, Index t, Index h, Index d) {
        input(config, inputs, "dt")(b, t, h, d) = -log_decay[t];
        for (Index j = 0; j < 16; ++j) input(config, inputs, "x")(b, t, h, j) = -1 / log_decay[t];
      });
    } else {
      Tensor& g = input(config, inputs, decay_of(config));
      g.for_each([&](Index b, Index t, Index h, Index d) { g(b, t, h, d) = log_decay[t]; });
    }
    // The delta rule replaces what was stored under the one key: with beta 1 every output is 1.
    const bool replaces = architecture == gated_delta_net;
    if (replaces)
      for (double& beta : input(config, inputs, "beta").numbers) beta = 1;
    const StatePointer state = make_kernel(config)->initial_state();
    const Tensor outputs = prefill(config, inputs, *state);
    INFO(config.name());
    for (Index t = 0; t < 6; ++t)
      for (Index j = 0; j < 16; ++j)
        CHECK(std::abs(outputs(0, t, 0, j) - (replaces ? 1 : expected[t])) < 1e-5 * expected[t]);
  }
}

TEST_CASE("in a chunk what is no number reaches no earlier token") {
  constexpr Index T = 16;
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), infinity})
    for (const Config& config : all_configs_of_both_scalars(2, 2, 18, 19)) {
      const Inputs inputs = random_inputs(config, 1, T, 8);
      const StatePointer clean_state = random_state(config, 1, 9);
      const Tensor clean = prefill(config, inputs, *clean_state);
      for (const std::size_t field : {0u, 1u, 2u})  // contents, in all of them
        for (const Index at : {0, 3, 5, 6, 11, 15}) {
          if (fields(config.architecture)[field].kind == Kind::step_size) continue;
          Inputs poisoned = inputs;
          poisoned[field](0, at, 0, 7 % poisoned[field].extents[3]) = poison;
          const StatePointer state = random_state(config, 1, 9);
          const Tensor outputs = prefill(config, poisoned, *state);
          INFO(config.name() << " " << fields(config.architecture)[field].name << " of token " << at);
          bool earlier_same = true, other_head_same = true;
          outputs.for_each([&](Index b, Index t, Index h, Index d) {
            const bool same = same_bits(outputs(b, t, h, d), clean(b, t, h, d));
            if (t < at) earlier_same = earlier_same && same;
            if (h == 1) other_head_same = other_head_same && same;
          });
          CHECK(earlier_same);
          CHECK((other_head_same || poisoned[field].extents[2] == 1));
        }
    }
}

TEST_CASE("heads that share B and C give the bits of heads that have their own") {
  for (const bool single : {false, true}) {
    const Config shared = make_config(mamba2, true, single, 4, 2, 20, 18);
    Config own = shared;
    own.G = 4;
    const Inputs inputs = random_inputs(shared, 2, 45, 2);
    Inputs copied = inputs;
    for (const char* name : {"B", "C"}) {
      const Tensor& groups = inputs[field_index(mamba2, name)];
      Tensor heads({2, 45, 4, 20});
      heads.for_each([&](Index b, Index t, Index h, Index d) { heads(b, t, h, d) = groups(b, t, h / 2, d); });
      copied[field_index(mamba2, name)] = heads;
    }
    const StatePointer state = random_state(shared, 2, 3), other = random_state(own, 2, 3);
    CHECK(difference(prefill(shared, inputs, *state), prefill(own, copied, *other)) == "");
    CHECK(same_bits(state->numbers(), other->numbers()));
  }
}

}  // namespace linrec::test::chunk_test
