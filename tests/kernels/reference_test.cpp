// The kernels against the naive reference, and against each other.
#include "linrec/kernels/gla.hpp"
#include "linrec/kernels/retnet.hpp"
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::reference_test {

namespace {

using enum Architecture;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Empty, or how prefill of random inputs differs from the reference.
std::string random_difference(const Config& config, Index B, Index T) {
  return reference_difference(config,
                              random_inputs(config, B, T, static_cast<std::uint64_t>(T + 100 * config.V)));
}

void check_against_reference(bool single) {
  for (const Index K : {1, 3, 8, 19})
    for (const Index V : {1, 5, 8, 16, 17, 33})
      for (const Config& config : all_configs(single, 2, 2, K, V))
        CHECK(random_difference(config, 1, 33) == "");
  for (const Index T : {0, 1, 2, 31, 32, 33, 70})
    for (const Config& config : all_configs(single, 4, 2, 3, 5)) CHECK(random_difference(config, 2, T) == "");
}

const Tensor& input(const Config& config, const Inputs& inputs, const char* name) {
  return inputs[field_index(config.architecture, name)];
}
Tensor& input(const Config& config, Inputs& inputs, const char* name) {
  return inputs[field_index(config.architecture, name)];
}
void fill(const Config& config, Inputs& inputs, const char* name, double x) {
  for (double& number : input(config, inputs, name).numbers) number = x;
}

/// Runs both on inputs of their own from the same state, and compares all that comes out.
void check_same(const Config& x, const Inputs& x_inputs, const Config& y, const Inputs& y_inputs,
                double tolerance) {
  const Index B = x_inputs[0].extents[0];
  const StatePointer x_state = random_state(x, B, 9), y_state = random_state(y, B, 9);
  CHECK(difference(prefill(x, x_inputs, *x_state), prefill(y, y_inputs, *y_state), tolerance) == "");
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < x.H; ++h)
      CHECK((x_state->matrix(b, h) - y_state->matrix(b, h)).cwiseAbs().maxCoeff() <= 4 * tolerance);
}

}  // namespace

TEST_CASE("double kernels equal the reference") { check_against_reference(false); }
TEST_CASE("float kernels equal the reference") { check_against_reference(true); }

TEST_CASE("RetNet is GLA with a constant gate") {
  for (const bool tapered : {false, true}) {
    Config ret = make_config(retnet, tapered, false, 3, 3), gated = make_config(gla, tapered, false, 3, 3);
    ret.log_rates = gated.log_rates = retention_spectrum(3).log_rates();
    const Inputs inputs = random_inputs(ret, 2, 40, 3);
    Inputs gated_inputs = random_inputs(gated, 2, 40, 3);
    for (std::size_t i = 0; i < 3; ++i) gated_inputs[i] = inputs[i];
    fill(gated, gated_inputs, "gk", -1);
    check_same(ret, inputs, gated, gated_inputs, 1e-14);
  }
}

TEST_CASE("GatedDeltaNet without decay is DeltaNet") {
  for (const bool single : {false, true}) {
    const Config gated = make_config(gated_delta_net, false, single),
                 plain = make_config(delta_net, false, single);
    Inputs gated_inputs = random_inputs(gated, 2, 40, 4);
    fill(gated, gated_inputs, "g", 0);
    Inputs inputs;
    for (const char* name : {"q", "k", "v", "beta"}) inputs.push_back(input(gated, gated_inputs, name));
    check_same(gated, gated_inputs, plain, inputs, tolerances(single).last_bits);
  }
}

TEST_CASE("DPLR with the terms of RWKV-7 is RWKV-7") {
  const Config rwkv = make_config(rwkv7, false, false), law = make_config(dplr, false, false);
  const Inputs inputs = random_inputs(rwkv, 2, 40, 5);
  const Tensor &kk = input(rwkv, inputs, "kk"), &iclr = input(rwkv, inputs, "iclr");
  Tensor a = kk, b = kk, log_w = input(rwkv, inputs, "w_logit");
  kk.for_each([&](Index row, Index t, Index h, Index i) {
    const double unit = kk(row, t, h, i) / kk.row(row, t, h).norm();
    a(row, t, h, i) = -unit;
    b(row, t, h, i) = unit * iclr(row, t, h, i);
    log_w(row, t, h, i) = -std::exp(-0.5) / (1 + std::exp(-log_w(row, t, h, i)));
  });
  check_same(rwkv, inputs, law, {inputs[0], inputs[1], inputs[2], a, b, log_w}, 1e-14);
}

TEST_CASE("GLA that never forgets is linear attention") {
  const Config gated = make_config(gla, false, false), plain = make_config(linear_attention, false, false);
  Inputs inputs = random_inputs(gated, 2, 40, 6);
  fill(gated, inputs, "gk", 0);
  check_same(gated, inputs, plain, {inputs[0], inputs[1], inputs[2]}, 1e-15);
}

TEST_CASE("a taper of exponents 0 is no taper") {
  for (Config tapered : all_configs_of_both_scalars()) {
    if (!tapered.taper) continue;
    INFO(tapered.name());
    Config plain = tapered;
    tapered.taper = [](const Eigen::ArrayXd& p) {
      return GivenTaper(Eigen::ArrayXd::Zero(p.size())).exponents(p);
    };
    plain.taper = nullptr;
    const Inputs inputs = random_inputs(plain, 2, 40, 7);
    check_same(tapered, inputs, plain, inputs, 4 * tolerances(plain.single).last_bits);
  }
}

TEST_CASE("a unit spectrum leaves the decays as they come") {
  for (const Architecture architecture : {gla, gated_delta_net, rwkv7}) {
    Config plain = make_config(architecture, false, false), unit = plain;
    unit.log_rates = Eigen::ArrayXd::Zero(unit.channels());
    const Inputs inputs = random_inputs(plain, 2, 40, 8);
    check_same(plain, inputs, unit, inputs, 1e-15);
  }
}

namespace {

/// Kernels whose decay a test can set for every token, with the input that sets it.
struct Decaying {
  Architecture architecture;
  const char* decay;
};
constexpr Decaying decaying[] = {{gla, "gk"}, {gated_delta_net, "g"}, {dplr, "log_w"}};

}  // namespace

TEST_CASE("a log-decay of -inf resets the state to the token alone") {
  for (const bool single : {false, true})
    for (const auto& [architecture, decay] : decaying) {
      const Config config = make_config(architecture, false, single);
      INFO(config.name());
      Inputs inputs = random_inputs(config, 1, 1, 10);
      fill(config, inputs, decay, -infinity);
      if (architecture == dplr) fill(config, inputs, "b", 0);
      const StatePointer state = random_state(config, 1, 11), fresh = make_kernel(config)->initial_state();
      const Tensor outputs = prefill(config, inputs, *state);
      fresh->set_position(0, state->position(0) - 1);
      CHECK(difference(outputs, prefill(config, inputs, *fresh)) == "");
      CHECK(same_bits(state->numbers(), fresh->numbers()));
      // And with a key of zero nothing at all is left, not even a denormal number.
      fill(config, inputs, "k", 0);
      for (const double log_w : {-infinity, -3e7, -1e5}) {
        fill(config, inputs, decay, log_w);
        const StatePointer gone = random_state(config, 1, 11);
        prefill(config, inputs, *gone);
        CHECK(gone->matrix(0, 0).isZero(0));
        CHECK(gone->matrix(0, 1).isZero(0));
      }
    }
}

TEST_CASE("extreme decays: -inf, -3e7, -1e5, -0 and 0 among ordinary ones") {
  for (const bool single : {false, true})
    for (const auto& [architecture, decay] : decaying) {
      const Config config = make_config(architecture, false, single, 2, 2, 8, 9);
      INFO(config.name());
      Inputs inputs = random_inputs(config, 1, 64, 12);
      Tensor& decays = input(config, inputs, decay);
      constexpr double extreme[] = {-infinity, -3e7, -1e5, -0.0, 0, -0.1, -0.1, -0.1, -700, -100, -88};
      for (std::size_t i = 0; i < decays.numbers.size(); ++i)
        decays.numbers[i] = rounded(extreme[i * 7 % 11], single);
      const StatePointer state = random_state(config, 1, 13), initial = state->clone();
      const Tensor outputs = prefill(config, inputs, *state);
      const Expected expected = reference_run(config, inputs, *initial, Batch::dense(1, 64));
      CHECK(difference(outputs, expected.outputs, tolerances(single).reference) == "");
      CHECK(difference(*state, expected, tolerances(single).reference) == "");
    }
}

TEST_CASE("decays are exact but for their last bits, and never above 1") {
  constexpr Index n = 4096;
  for (const bool single : {false, true})
    for (const auto& [architecture, decay] : decaying) {
      // A decay for each channel of one head, or for each of many heads.
      const bool per_head = architecture == gated_delta_net;
      const Config config =
          make_config(architecture, false, single, per_head ? n : 1, per_head ? n : 1, per_head ? 1 : n, 1);
      INFO(config.name());
      Inputs inputs = random_inputs(config, 1, 1, 20);
      fill(config, inputs, "k", 0);
      if (architecture == dplr) fill(config, inputs, "b", 0);
      std::vector<double>& decays = input(config, inputs, decay).numbers;
      Random random(21);
      for (std::size_t i = 0; i < decays.size(); ++i)
        decays[i] = rounded(i % 2 == 0 ? random.uniform(-87, 0) : -std::exp(random.uniform(-30, 1)), single);
      const StatePointer state = make_kernel(config)->initial_state();
      for (Index h = 0; h < config.H; ++h) state->set_matrix(0, h, Eigen::MatrixXd::Ones(config.K, 1));
      prefill(config, inputs, *state);
      std::vector<double> w = state->numbers();
      w.resize(n);  // without the position
      double worst = 0;
      for (std::size_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(w[i] / std::exp(decays[i]) - 1));
      CHECK(worst < tolerances(single).last_bits);
      CHECK(*std::max_element(w.begin(), w.end()) <= 1);
    }
}

TEST_CASE("extreme rates, step sizes and logits") {
  for (const bool single : {false, true}) {
    Config ret = make_config(retnet, false, single);
    ret.log_rates = Eigen::ArrayXd{{std::log(1e5), -700}};
    Config mamba = make_config(mamba2, false, single);
    mamba.log_rates = ret.log_rates;
    Config rwkv = make_config(rwkv7, false, single);
    for (const Config& config : {ret, mamba, rwkv}) {
      INFO(config.name());
      Inputs inputs = random_inputs(config, 1, 40, 14);
      if (config.architecture == rwkv7)
        for (std::size_t i = 0; i < inputs[5].numbers.size(); ++i)
          inputs[5].numbers[i] = (i % 4 == 0 ? infinity : i % 4 == 1 ? -infinity : i % 4 == 2 ? 1e30 : -80);
      if (config.architecture == mamba2)
        for (std::size_t i = 0; i < inputs[1].numbers.size(); i += 3)
          inputs[1].numbers[i] = i % 2 == 0 ? 0 : 1000;
      const StatePointer state = random_state(config, 1, 15), initial = state->clone();
      const Tensor outputs = prefill(config, inputs, *state);
      const Expected expected = reference_run(config, inputs, *initial, Batch::dense(1, 40));
      CHECK(difference(outputs, expected.outputs, tolerances(single).reference) == "");
      CHECK(difference(*state, expected, tolerances(single).reference) == "");
    }
  }
}

TEST_CASE("zero keys write nothing") {
  for (const Config& config : all_configs_of_both_scalars()) {
    INFO(config.name());
    Inputs inputs = random_inputs(config, 1, 40, 16);
    for (const char* name : {"k", "B", "kk", "b"})
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (fields(config.architecture)[i].name == std::string(name)) fill(config, inputs, name, 0);
    const StatePointer fresh = make_kernel(config)->initial_state();
    const Tensor outputs = prefill(config, inputs, *fresh);
    if (config.architecture != mamba2 || config.mamba2_options.D.size() == 0)
      for (const double x : outputs.numbers) CHECK(x == 0);
    CHECK(fresh->matrix(0, 1).isZero(0));
    // What is there decays, but is not corrected.
    const StatePointer state = random_state(config, 1, 17), initial = state->clone();
    prefill(config, inputs, *state);
    CHECK(difference(*state, reference_run(config, inputs, *initial, Batch::dense(1, 40)),
                     tolerances(config.single).reference) == "");
    CHECK((state->matrix(0, 1).array().abs() <= initial->matrix(0, 1).array().abs()).all());
  }
}

TEST_CASE("beta = 0 keeps the state, up to its decay") {
  for (const Architecture architecture : {delta_net, gated_delta_net}) {
    const Config config = make_config(architecture, false, false);
    Inputs inputs = random_inputs(config, 1, 40, 18);
    fill(config, inputs, "beta", 0);
    if (architecture == gated_delta_net) fill(config, inputs, "g", 0);
    const StatePointer state = random_state(config, 1, 19), initial = state->clone();
    prefill(config, inputs, *state);
    CHECK((state->matrix(0, 0) == initial->matrix(0, 0)));
  }
}

}  // namespace linrec::test::reference_test
