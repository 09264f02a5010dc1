// The options of Mamba-2: the skip D, and step sizes as raw logits with bias, softplus and limits.
#include "linrec/core/activation.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::mamba2_options_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

Config plain(bool single = false) { return make_config(Architecture::mamba2, false, single, 2, 1, 3, 9); }

std::string refusal(const Config& config) {
  return error_of([&] { make_kernel(config); });
}

Tensor run(const Config& config, const Inputs& inputs) {
  const StatePointer state = random_state(config, 1, 1);
  return prefill(config, inputs, *state);
}

/// The same inputs with dt replaced by f(dt, head).
template <class F>
Inputs with_dt(Inputs inputs, F&& f) {
  inputs[1].for_each(
      [&](Index b, Index t, Index h, Index) { inputs[1](b, t, h) = f(inputs[1](b, t, h), h); });
  return inputs;
}

}  // namespace

TEST_CASE("Mamba2: D adds D x to the output, one number a head or one a channel") {
  for (const bool single : {false, true}) {
    const Config without = plain(single);
    Config per_head = without, per_channel = without;
    per_head.mamba2_options.D = Eigen::Vector2d(0.5, -2);
    per_channel.mamba2_options.D = Eigen::MatrixXd::Random(2, 9);
    const Inputs inputs = random_inputs(without, 1, 40, 2);
    Tensor expected = run(without, inputs), other = expected;
    expected.for_each([&](Index b, Index t, Index h, Index d) {
      expected(b, t, h, d) += per_head.mamba2_options.D(h, 0) * inputs[0](b, t, h, d);
      other(b, t, h, d) += per_channel.mamba2_options.D(h, d) * inputs[0](b, t, h, d);
    });
    CHECK(difference(run(per_head, inputs), expected, tolerances(single).last_bits) == "");
    CHECK(difference(run(per_channel, inputs), other, tolerances(single).last_bits) == "");
  }
}

TEST_CASE("Mamba2: the bias is added to dt, softplus and limits follow") {
  const Config given = plain();
  const Inputs logits = with_dt(random_inputs(given, 1, 40, 3), [](double x, Index) { return 6 * x - 4; });
  Config config = given;
  config.mamba2_options.dt_softplus = true;
  const auto check = [&](auto step_size) {
    CHECK(difference(run(config, logits), run(given, with_dt(logits, step_size)), 1e-14) == "");
  };
  check([](double x, Index) { return softplus(x); });
  config.mamba2_options.dt_bias = Eigen::Array2d(-1, 0.5);
  check([](double x, Index h) { return softplus(x + (h == 0 ? -1 : 0.5)); });
  config.mamba2_options.dt_min = 0.1;
  config.mamba2_options.dt_max = 0.7;
  check([](double x, Index h) { return std::clamp(softplus(x + (h == 0 ? -1 : 0.5)), 0.1, 0.7); });
  config.mamba2_options.dt_softplus = false;
  check([](double x, Index h) { return std::clamp(x + (h == 0 ? -1 : 0.5), 0.1, 0.7); });
}

TEST_CASE("Mamba2: limits that do not bind change nothing") {
  const Config given = plain();
  const Inputs inputs = random_inputs(given, 1, 40, 4);
  Config limited = given;
  limited.mamba2_options.dt_max = 1;
  CHECK(difference(run(limited, inputs), run(given, inputs)) == "");
}

TEST_CASE("Mamba2: softplus is exact in its tails") {
  // dt = softplus(logit) is the gain of the input into a fresh state.
  Config config{.architecture = Architecture::mamba2, .H = 1, .G = 1, .K = 1, .V = 1};
  config.log_rates = Eigen::ArrayXd::Zero(1);
  config.mamba2_options.dt_softplus = true;
  const Tensor one({1, 1, 1, 1}, 1);
  for (const double logit : {-700.0, -40.0, -1.0, 0.0, 30.0, 800.0, -infinity}) {
    const StatePointer state = make_kernel(config)->initial_state();
    prefill(config, {one, Tensor({1, 1, 1, 1}, logit), one, one}, *state);
    CHECK(state->matrix(0, 0)(0, 0) == Approx(softplus(logit)).epsilon(1e-14).margin(0));
  }
}

TEST_CASE("Mamba2: dt may be negative where limits or softplus make it legal, and NaN nowhere") {
  Config config = plain();
  const Inputs good = random_inputs(config, 1, 4, 5);
  const auto accepts = [&](double dt) {
    const StatePointer state = random_state(config, 1, 6);
    try {
      prefill(config, with_dt(good, [&](double, Index) { return dt; }), *state);
    } catch (const ValueError&) {
      return false;
    }
    return true;
  };
  CHECK(accepts(0));
  CHECK(!accepts(-0.5));
  CHECK(!accepts(nan));
  config.mamba2_options.dt_softplus = true;
  CHECK(accepts(-0.5));
  CHECK(!accepts(nan));
  config.mamba2_options.dt_softplus = false;
  config.mamba2_options.dt_min = 0.1;
  CHECK(accepts(-0.5));
  CHECK(!accepts(nan));
}

TEST_CASE("Mamba2: what its options may not be") {
  const auto with = [](auto change) {
    Config config = plain();
    change(config.mamba2_options);
    return refusal(config);
  };
  CHECK(with([](auto&) {}) == "nothing");
  CHECK(with([](auto& o) { o.D = Eigen::MatrixXd::Zero(2, 1); }) == "nothing");
  CHECK(with([](auto& o) { o.D = Eigen::MatrixXd::Zero(2, 9); }) == "nothing");
  CHECK(with([](auto& o) { o.D = Eigen::MatrixXd::Zero(3, 1); }) ==
        "ShapeError: D: expected [H, 1] or [H, P] = [2, 9], got [3, 1]");
  CHECK(with([](auto& o) { o.D = Eigen::MatrixXd::Zero(2, 8); }) ==
        "ShapeError: D: expected [H, 1] or [H, P] = [2, 9], got [2, 8]");
  CHECK(with([](auto& o) { o.D = Eigen::MatrixXd::Zero(1, 2); }) ==
        "ShapeError: D: expected [H, 1] or [H, P] = [2, 9], got [1, 2]");
  CHECK(with([](auto& o) { o.dt_bias = Eigen::ArrayXd::Zero(3); }) ==
        "ShapeError: dt_bias: expected H = 2 entries, got 3");
  const std::string limits = "ValueError: dt_min, dt_max: expected 0 <= dt_min <= dt_max, got ";
  CHECK(with([](auto& o) { o.dt_min = -0.5; }) == limits + "-0.5, inf");
  CHECK(with([](auto& o) { o.dt_min = 1, o.dt_max = 0.5; }) == limits + "1, 0.5");
  CHECK(with([](auto& o) { o.dt_min = nan; }) == limits + "nan, inf");
  CHECK(with([](auto& o) { o.dt_max = nan; }) == limits + "0, nan");
}

TEST_CASE("Mamba2: a bias that is NaN would be a NaN decay") {
  Config config = plain();
  config.mamba2_options.dt_bias = Eigen::Array2d(0, nan);
  CHECK(refusal(config).substr(0, 19) == "ValueError: dt_bias");
}

}  // namespace linrec::test::mamba2_options_test
