// What the position does to the decays: arXiv 2604.07658, position-adaptive scaling.
#include "linrec/policy/taper.hpp"

#include "linrec/kernels/gla.hpp"
#include "linrec/kernels/rwkv7.hpp"
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::taper_test {

namespace {

using enum Architecture;

/// One head, K = V = 1, alpha as given, and inputs under which the state does nothing but decay at
/// the rate lambda t^-alpha (RWKV-7: nearly so, for small rates).
struct Decay {
  Config config;
  Inputs inputs(Index T) const {
    Inputs in;
    for (const Field& field : fields(config.architecture)) {
      const double x = field.kind == Kind::decay ? -1 : field.kind == Kind::step_size ? 1 : 0;
      in.push_back(Tensor({1, T, 1, 1}, x));
    }
    return in;
  }
};

std::vector<Decay> decays(double lambda, double alpha, bool single = false) {
  std::vector<Decay> all;
  for (const Architecture a : {retnet, gla, mamba2, gated_delta_net}) {
    Config c{.architecture = a, .H = 1, .G = 1, .K = 1, .V = 1, .single = single};
    c.log_rates = Eigen::ArrayXd::Constant(1, std::log(lambda) + (a == rwkv7 ? 0.5 : 0));
    c.taper = [alpha](const Eigen::ArrayXd&) { return Eigen::ArrayXd::Constant(1, alpha).eval(); };
    all.push_back({c});
  }
  return all;
}

/// What is left at position t of a state 1 at position s.
double left(const Decay& decay, std::int64_t s, std::int64_t t) {
  const StatePointer state = make_kernel(decay.config)->initial_state();
  state->set_matrix(0, 0, Eigen::MatrixXd::Ones(1, 1));
  state->set_position(0, s);
  prefill(decay.config, decay.inputs(t - s), *state);
  return state->matrix(0, 0)(0, 0);
}

}  // namespace

TEST_CASE("the decay at position t is exp(-lambda t^-alpha)") {
  for (const double alpha : {0.0, 0.25, 1.0})
    for (const Decay& decay : decays(0.7, alpha)) {
      INFO(decay.config.name());
      for (const std::int64_t t : {1, 2, 3, 10, 1000}) {
        const double rate = 0.7 * std::pow(static_cast<double>(t), -alpha);
        const double log_w = decay.config.architecture == rwkv7
                                 ? rwkv7_log_decay(std::log(0.7) + 0.5, alpha, static_cast<double>(t))
                                 : -rate;
        CHECK(left(decay, t - 1, t) == Approx(std::exp(log_w)).epsilon(1e-14));
      }
    }
}

TEST_CASE("at alpha = 1 the impulse response depends on the ratio of positions alone") {
  for (const Decay& decay : decays(0.7, 1)) {
    INFO(decay.config.name());
    const double exact = std::pow(0.5, 0.7);
    const double early = left(decay, 100, 200), middle = left(decay, 1000, 2000),
                 late = left(decay, 10000, 20000);
    CHECK(std::abs(early - exact) < 1e-2);
    CHECK(std::abs(middle - exact) < 1e-3);
    CHECK(std::abs(late - exact) < 1e-4);
    CHECK(std::abs(late - middle) < 1e-3);
    // The deviation falls as 1/s.
    CHECK(std::abs(middle - exact) / std::abs(early - exact) == Approx(0.1).epsilon(0.1));
    CHECK(std::abs(late - exact) / std::abs(middle - exact) == Approx(0.1).epsilon(0.1));
  }
  // Without the taper nothing is left.
  for (const Decay& decay : decays(0.7, 0)) CHECK(left(decay, 1000, 2000) < 1e-30);
}

TEST_CASE("a rate of 0 never decays, whatever the taper, and is no trouble for its neighbours") {
  using Taper = std::function<Eigen::ArrayXd(const Eigen::ArrayXd&)>;
  const Taper tapers[] = {
      nullptr, [](const Eigen::ArrayXd& p) { return LinearTaper().exponents(p); },
      [](const Eigen::ArrayXd& p) { return LearnedTaper(Eigen::ArrayXd::Zero(p.size() - 1)).exponents(p); }};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const bool single : {false, true})
    for (const Architecture a : {retnet, gla, mamba2, gated_delta_net})
      for (const Taper& taper : tapers) {
        Config config{.architecture = a, .H = 3, .G = 3, .K = 1, .V = 1, .single = single};
        config.log_rates = Eigen::ArrayXd{{0, -infinity, 1}};
        config.taper = taper;
        INFO(config.name());
        Inputs inputs;
        for (const Field& field : fields(a)) {
          const double x = field.kind == Kind::decay ? -1 : field.kind == Kind::step_size ? 1 : 0;
          inputs.push_back(Tensor({1, 40, 3, 1}, x));
        }
        for (const double decay : {-1.0, -infinity}) {
          // A hard reset is no reset of what has the rate 0.
          for (std::size_t i = 0; i < inputs.size(); ++i)
            if (fields(a)[i].kind == Kind::decay) inputs[i](0, 39, 1) = decay;
          const StatePointer state = make_kernel(config)->initial_state();
          for (Index h = 0; h < 3; ++h) state->set_matrix(0, h, Eigen::MatrixXd::Ones(1, 1));
          prefill(config, inputs, *state);
          CHECK(state->matrix(0, 1)(0, 0) == 1);
          CHECK(state->matrix(0, 0)(0, 0) < 1);
          CHECK(state->matrix(0, 0)(0, 0) >= 0);
        }
      }
}

TEST_CASE("a base logit of RWKV-7 is finite") {
  for (const double w0 : {-std::numeric_limits<double>::infinity(), 1e39, -1e39}) {
    const FreeSpectrum spectrum(Eigen::ArrayXd{{0, w0}});
    CHECK_THROWS_AS(RWKV7<float>(Dims<>(2, 1, 1), spectrum), ValueError);
  }
  CHECK_NOTHROW(RWKV7<double>(Dims<>(2, 1, 1), FreeSpectrum(Eigen::ArrayXd{{0, -1e39}})));
}

TEST_CASE("a hard reset is one at a rate of 1e-37") {
  std::vector<float> zero(1, 0.f), one(1, 1.f), reset(1, -std::numeric_limits<float>::infinity()), o(1);
  const auto view = [](const std::vector<float>& x) { return TokenView<const float>(x.data(), 1, 1, 1, 1); };
  const GLA<float> kernel(Dims<>(1, 1, 1), FreeSpectrum::from_rates(Eigen::ArrayXd::Constant(1, 1e-37)));
  auto state = kernel.initial_state();
  state.set_matrix(0, 0, Eigen::MatrixXd::Constant(1, 1, 1e20));
  kernel.prefill({.q = view(one), .k = view(zero), .v = view(one), .gk = view(reset)}, state,
                 {o.data(), 1, 1, 1, 1});
  CHECK(state.matrix(0, 0)(0, 0) == 0);
}

TEST_CASE("a rate beyond the range of the scalar is no NaN where the gate is 0") {
  for (const bool single : {false, true})
    for (const Decay& decay : decays(1, 0, single)) {
      if (decay.config.architecture == retnet || decay.config.architecture == rwkv7) continue;
      Config config = decay.config;
      config.log_rates = Eigen::ArrayXd::Constant(1, single ? 100 : 800);
      config.taper = nullptr;
      INFO(config.name());
      const StatePointer state = make_kernel(config)->initial_state();
      state->set_matrix(0, 0, Eigen::MatrixXd::Ones(1, 1));
      Inputs inputs = decay.inputs(1);
      for (Tensor& x : inputs) x.numbers[0] = 0;
      prefill(config, inputs, *state);
      CHECK(state->matrix(0, 0)(0, 0) == 1);
      prefill(config, decay.inputs(1), *state);
      CHECK(state->matrix(0, 0)(0, 0) == 0);
    }
}

TEST_CASE("only the decay is scaled, not the inputs") {
  // At the first token of a fresh state nothing can decay, whatever the position.
  for (const Config& config : all_configs(false)) {
    if (!config.taper) continue;
    INFO(config.name());
    const Inputs inputs = random_inputs(config, 1, 1, 1);
    const StatePointer early = make_kernel(config)->initial_state(), late = early->clone();
    late->set_position(0, 1000000);
    CHECK(difference(prefill(config, inputs, *early), prefill(config, inputs, *late)) == "");
    CHECK((early->matrix(0, 0) == late->matrix(0, 0)));
  }
}

TEST_CASE("a position of 10^12") {
  constexpr std::int64_t far = 1'000'000'000'000;
  for (const Config& plain : all_configs_of_both_scalars()) {
    Config config = plain;
    INFO(config.name());
    if (config.taper) {
      // So fast, that decays still matter there.
      config.log_rates = Eigen::ArrayXd::LinSpaced(config.channels(), 0, 2);
      config.log_rates += std::log(1e12) * Eigen::ArrayXd::LinSpaced(config.channels(), 1, 0.25);
      config.taper = [](const Eigen::ArrayXd& p) {
        return Eigen::ArrayXd::LinSpaced(p.size(), 1, 0.25).eval();
      };
      config.mamba2_options.dt_bias = {};
    }
    const Inputs inputs = random_inputs(config, 1, 40, 2);
    const StatePointer initial = random_state(config, 1, 3);
    initial->set_position(0, far);
    const Expected expected = reference_run(config, inputs, *initial, Batch::dense(1, 40));
    for (const bool by_steps : {false, true}) {
      const StatePointer state = initial->clone();
      const Tensor outputs = by_steps ? steps(config, inputs, *state) : prefill(config, inputs, *state);
      const bool finite = outputs.numbers[0] - outputs.numbers[0] == 0;
      CHECK(finite);
      CHECK(difference(outputs, expected.outputs, tolerances(config.single).reference) == "");
      CHECK(difference(*state, expected, tolerances(config.single).reference) == "");
      CHECK(state->position(0) == far + 40);
    }
  }
}

TEST_CASE("positions are counted for every sequence of a batch") {
  for (const Decay& decay : decays(0.7, 1)) {
    INFO(decay.config.name());
    const Batch batch = Batch::packed({0, 2, 2, 5});
    const StatePointer state = make_kernel(decay.config)->initial_state(3);
    for (Index s = 0; s < 3; ++s) state->set_matrix(s, 0, Eigen::MatrixXd::Ones(1, 1));
    state->set_position(2, 100);
    prefill(decay.config, decay.inputs(5), *state, {.layout = batch.layout()});
    CHECK(state->matrix(0, 0)(0, 0) == left(decay, 0, 2));
    CHECK(state->matrix(1, 0)(0, 0) == 1);
    CHECK(state->matrix(2, 0)(0, 0) == left(decay, 100, 103));
  }
}

TEST_CASE("the taper goes by the speed of a head, not by its index") {
  Config config{.architecture = retnet, .H = 3, .G = 3, .K = 1, .V = 1};
  config.log_rates = Eigen::ArrayXd{{std::log(0.5), std::log(0.1), std::log(2.0)}};
  config.taper = [](const Eigen::ArrayXd& p) { return LinearTaper().exponents(p); };
  const StatePointer state = make_kernel(config)->initial_state();
  for (Index h = 0; h < 3; ++h) state->set_matrix(0, h, Eigen::MatrixXd::Ones(1, 1));
  state->set_position(0, 15);
  prefill(config, {Tensor({1, 1, 3, 1}), Tensor({1, 1, 3, 1}), Tensor({1, 1, 3, 1})}, *state);
  CHECK(state->matrix(0, 0)(0, 0) == Approx(std::exp(-0.5 / 4)).epsilon(1e-14));   // alpha = 1/2
  CHECK(state->matrix(0, 1)(0, 0) == Approx(std::exp(-0.1 / 16)).epsilon(1e-14));  // alpha = 1
  CHECK(state->matrix(0, 2)(0, 0) == Approx(std::exp(-2.0)).epsilon(1e-14));       // alpha = 0
}

}  // namespace linrec::test::taper_test
