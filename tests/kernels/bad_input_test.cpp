// Bad input: the right error, a text that names the tensor, what was expected and what came, and nothing
// changed.
#include "linrec/kernels/linear_attention.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::bad_input_test {

namespace {

using enum Architecture;
constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();
constexpr Index B = 2, T = 3;

/// Calls prefill and validate, which must say the same and change nothing.
std::string refusal(const Config& config, const Inputs& inputs, const AnyState& given,
                    const SequenceLayout& layout = {}, std::array<Index, 4> output_extents = {-1, 0, 0, 0}) {
  const KernelPointer kernel = make_kernel(config);
  const StatePointer state = given.clone();
  Tensor outputs(output_extents[0] >= 0 ? output_extents : std::array<Index, 4>{B, T, config.H, config.V}, 7);
  const Tensor before = outputs;
  const std::string text = error_of([&] { kernel->prefill(inputs, *state, outputs, {.layout = layout}); });
  if (text == "nothing") return text;
  if (!same_bits(state->numbers(), given.numbers())) return "the state has changed; " + text;
  if (!same_bits(outputs.numbers, before.numbers)) return "the outputs have changed; " + text;
  if (output_extents[0] < 0) {
    const std::string validated = error_of([&] { kernel->validate(inputs, *state, layout); });
    if (validated != text) return "validate says " + validated + "; prefill says " + text;
  }
  return text;
}
std::string refusal(const Config& config, const Inputs& inputs, const SequenceLayout& layout = {}) {
  return refusal(config, inputs, *random_state(config, B, 1), layout);
}

std::string bracketed(const std::array<Index, 4>& e) {
  return message("[", e[0], ", ", e[1], ", ", e[2], ", ", e[3], "]");
}

/// All that must be in the text, in this order.
void check_says(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t from = 0;
  for (const std::string& part : parts) {
    const std::size_t at = text.find(part, from);
    if (at == std::string::npos) {
      CHECK(text == "something with " + part);
      return;
    }
    from = at + part.size();
  }
  CHECK(true);
}

}  // namespace

TEST_CASE("good input is no error, and all refusals are of what was changed") {
  for (const Config& config : all_configs_of_both_scalars(4, 2)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, B, T, 2);
    CHECK(refusal(config, inputs) == "nothing");
    CHECK_NOTHROW(make_kernel(config)->validate(inputs, *random_state(config, B, 1)));
  }
}

TEST_CASE("inputs of a wrong shape") {
  for (const Config& config : all_configs_of_both_scalars(4, 2)) {
    const Inputs good = random_inputs(config, B, T, 3);
    for (std::size_t i = 0; i < good.size(); ++i)
      for (std::size_t axis = 0; axis < 4; ++axis)
        for (const Index change : {-1, 1}) {
          const Field& field = fields(config.architecture)[i];
          std::array<Index, 4> expected = good[i].extents, given = expected;
          given[axis] += change;
          if (axis == 2) expected[2] = config.H;
          // 2 - 1 groups are groups.
          if (axis == 2 && field.shared && config.H % given[2] == 0) continue;
          INFO(config.name() << ", " << field.name << ", axis " << axis << ", " << change);
          Inputs inputs = good;
          inputs[i] = Tensor(given, 0);
          // The first input says what B and T are, so the second is then the one that does not fit.
          const bool first = i == 0 && axis < 2;
          const std::string name = fields(config.architecture)[first ? 1 : i].name;
          std::array<Index, 4> wanted = first ? good[1].extents : expected,
                               got = first ? good[1].extents : given;
          if (first) wanted[axis] += change;
          check_says(refusal(config, inputs),
                     {"ShapeError: " + name + ": expected [B, T, H, D] = " + bracketed(wanted),
                      ", got " + bracketed(got)});
        }
  }
}

TEST_CASE("an input without data") {
  for (const Config& config : plain_configs(false)) {
    Inputs inputs = random_inputs(config, B, T, 4);
    inputs[1] = Tensor({0, 0, 0, 0});
    check_says(refusal(config, inputs),
               {"ShapeError: ", fields(config.architecture)[1].name, "expected", "got [0, 0, 0, 0]"});
  }
}

TEST_CASE("outputs of a wrong shape") {
  for (const Config& config : all_configs_of_both_scalars(4, 2)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, B, T, 5);
    const std::array<Index, 4> right{B, T, config.H, config.V};
    for (std::size_t axis = 0; axis < 4; ++axis) {
      std::array<Index, 4> wrong = right;
      wrong[axis] -= 1;
      CHECK(refusal(config, inputs, *random_state(config, B, 1), {}, wrong) ==
            "ShapeError: outputs: expected [B, T, H, D] = " + bracketed(right) + ", got " + bracketed(wrong));
    }
  }
}

TEST_CASE("outputs that overlap themselves") {
  std::vector<double> x(2 * 3 * 2 * 4, 0.5), o(x.size(), 7);
  const TokenView<const double> view(x.data(), 2, 3, 2, 4);
  const LinearAttention<double> kernel(Dims<>(2, 4, 4));
  auto state = kernel.initial_state(2);
  const auto refused = [&](std::array<Index, 3> strides) {
    return error_of([&] {
      kernel.prefill({.q = view, .k = view, .v = view}, state,
                     TokenView<double>(o.data(), {2, 3, 2, 4}, strides));
    });
  };
  for (const std::array<Index, 3>& strides :
       {std::array<Index, 3>{0, 8, 4}, {24, 0, 4}, {24, 8, 0}, {24, 8, 3}, {8, 8, 4}})
    CHECK(refused(strides).starts_with("ShapeError: outputs: expected strides without overlap, got "));
  CHECK(std::all_of(o.begin(), o.end(), [](double y) { return y == 7; }));
  CHECK(state.position(0) == 0);
  CHECK(refused({24, 4, 12}) == "nothing");  // heads before tokens
}

TEST_CASE("validate checks outputs on request") {
  std::vector<double> x(4, 0.5), o(8);
  const TokenView<const double> view(x.data(), 1, 1, 1, 4);
  const LinearAttention<double> kernel(Dims<>(1, 4, 4));
  const auto state = kernel.initial_state();
  const LinearAttentionInputs<double> inputs{.q = view, .k = view, .v = view};
  CHECK_NOTHROW(kernel.validate(inputs, state, TokenView<double>(o.data(), 1, 1, 1, 4)));
  CHECK(error_of([&] { kernel.validate(inputs, state, TokenView<double>(o.data(), 1, 1, 2, 4)); }) ==
        "ShapeError: outputs: expected [B, T, H, D] = [1, 1, 1, 4], got [1, 1, 2, 4]");
}

TEST_CASE("numbers that are no decays") {
  for (const Config& config : all_configs_of_both_scalars(4, 2)) {
    const Inputs good = random_inputs(config, B, T, 6);
    for (std::size_t i = 0; i < good.size(); ++i) {
      const Field& field = fields(config.architecture)[i];
      std::vector<double> bad;
      std::string expected = "a number";
      if (field.kind == Kind::decay) bad = {nan, 0.5, 1e-30, infinity}, expected = "a log-decay of at most 0";
      if (field.kind == Kind::step_size) bad = {nan, infinity}, expected = "a number below infinity";
      if (field.kind == Kind::step_size && !config.taper)
        bad = {nan, -0.5, -1e-30, -infinity, infinity}, expected = "a finite step size of at least 0";
      if (field.kind == Kind::logit) bad = {nan};
      for (const double x : bad) {
        INFO(config.name() << ", " << field.name << ", " << x);
        Inputs inputs = good;
        const Index d = good[i].extents[3] - 1, h = good[i].extents[2] - 1;
        inputs[i](1, 2, h, d) = x;
        CHECK(refusal(config, inputs) == message("ValueError: ", field.name, "[1, 2, ", h, ", ", d,
                                                 "]: expected ", expected, ", got ",
                                                 rounded(x, config.single)));
      }
    }
  }
}

TEST_CASE("numbers that are no decays do no harm on padding") {
  for (const Config& config : all_configs_of_both_scalars(4, 2)) {
    INFO(config.name());
    Inputs inputs = random_inputs(config, B, T, 7);
    for (Tensor& x : inputs) x(1, 2, 0, 0) = nan;
    const std::vector<Index> lengths{3, 2};
    CHECK(refusal(config, inputs, SequenceLayout::with_lengths(lengths)) == "nothing");
    const std::vector<std::uint8_t> mask{1, 0, 1, 0, 1, 0};
    CHECK(refusal(config, inputs, SequenceLayout::with_mask(mask)) == "nothing");
  }
}

TEST_CASE("a state of other sizes, or of another number of sequences") {
  for (const Config& config : all_configs_of_both_scalars(4, 2, 3, 5)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, B, T, 8);
    for (const auto& [H, K, V] :
         std::vector<std::array<Index, 3>>{{2, 3, 5}, {4, 4, 5}, {4, 3, 6}, {4, 5, 3}}) {
      const Config other = make_config(config.architecture, false, config.single, H, 2, K, V);
      CHECK(refusal(config, inputs, *random_state(other, B, 1)) ==
            message("ShapeError: state: expected [H, K, V] = [4, 3, 5], got [", H, ", ", K, ", ", V, "]"));
    }
    for (const Index sequences : {0, 1, 3})
      CHECK(refusal(config, inputs, *random_state(config, sequences, 1)) ==
            message("ShapeError: state: expected 2 sequences, got ", sequences));
  }
}

TEST_CASE("layouts that do not fit") {
  for (const Config& config : all_configs_of_both_scalars()) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, B, T, 9);
    const auto with_lengths = [&](std::vector<Index> lengths) {
      return refusal(config, inputs, SequenceLayout::with_lengths(lengths));
    };
    CHECK(with_lengths({3, 4}) == "ShapeError: lengths[1]: expected 0 to T = 3, got 4");
    CHECK(with_lengths({-1, 3}) == "ShapeError: lengths[0]: expected 0 to T = 3, got -1");
    CHECK(with_lengths({3}) == "ShapeError: lengths: expected B = 2 entries, got 1");
    const std::vector<std::uint8_t> mask{1, 1, 1, 1, 1};
    CHECK(refusal(config, inputs, SequenceLayout::with_mask(mask)) ==
          "ShapeError: mask: expected [B, T] = [2, 3] = 6 entries, got 5");
    const std::vector<Index> offsets{0, 3, 6};
    CHECK(refusal(config, inputs, SequenceLayout::packed(offsets)) ==
          "ShapeError: offsets: expected B = 1 in a packed batch, got 2");

    const Inputs row = random_inputs(config, 1, T, 10);
    const auto packed = [&](std::vector<Index> numbers) {
      return refusal(config, row, *random_state(config, 2, 1), SequenceLayout::packed(numbers),
                     {1, T, config.H, config.V});
    };
    CHECK(packed({0, 2, 3}) == "nothing");
    CHECK(packed({0, 4, 3}) == "ShapeError: offsets[2]: expected at least offsets[1] = 4, got 3");
    CHECK(packed({0, 2, 4}) == "ShapeError: offsets[2]: expected T = 3, got 4");
    CHECK(packed({1, 2, 3}) == "ShapeError: offsets[0]: expected 0, got 1");
    CHECK(packed({}) == "ShapeError: offsets: expected at least 1 entry, got 0");
    CHECK(packed({0, 1, 2, 3}) == "ShapeError: state: expected 3 sequences, got 2");
  }
}

TEST_CASE("spectra and tapers of another number of channels") {
  for (Config config : all_configs_of_both_scalars(4, 2, 3)) {
    if (!config.taper) continue;
    INFO(config.name());
    const Config good = config;
    const Index right = config.channels();
    for (const Index channels : {right - 1, right + 1}) {
      config.log_rates = Eigen::ArrayXd::LinSpaced(channels, -1, 1);
      check_says(error_of([&] { make_kernel(config); }),
                 {"ShapeError: spectrum: expected one channel", message(right, ", got ", channels)});
    }
    config = good;
    config.taper = [](const Eigen::ArrayXd& p) {
      return LearnedTaper(Eigen::ArrayXd::Zero(p.size() + 1)).exponents(p);
    };
    CHECK(error_of([&] { make_kernel(config); }) ==
          message("ShapeError: alpha_logits: expected N - 1 = ", right - 1, " entries, got ", right + 1));
  }
}

TEST_CASE("a taper that gives another number of exponents") {
  for (Config config : all_configs_of_both_scalars(4, 2, 3)) {
    if (!config.taper) continue;
    INFO(config.name());
    config.taper = [](const Eigen::ArrayXd& p) { return Eigen::ArrayXd::Zero(p.size() - 1).eval(); };
    CHECK(error_of([&] { make_kernel(config); }) ==
          message("ShapeError: taper: expected one exponent a channel, ", config.channels(), ", got ",
                  config.channels() - 1));
  }
}

TEST_CASE("a scale that is no number") {
  for (Config config : all_configs_of_both_scalars()) {
    if (config.architecture == mamba2 || config.architecture == rwkv7) continue;
    if (config.architecture == retnet || config.architecture == gla)
      config.log_rates = Eigen::ArrayXd::Zero(2);
    INFO(config.name());
    config.scale = nan;
    CHECK(error_of([&] { make_kernel(config); }) == "ValueError: scale: expected a finite number, got nan");
    config.scale = infinity;
    CHECK(error_of([&] { make_kernel(config); }) == "ValueError: scale: expected a finite number, got inf");
    config.scale = -0.5;
    CHECK(make_kernel(config)->scale() == -0.5);
  }
}

TEST_CASE("the default scale is K^-1/2") {
  for (const Config& config : plain_configs(false, 2, 2, 16, 5)) {
    const bool unscaled =
        config.architecture == mamba2 || config.architecture == rwkv7 || config.architecture == dplr;
    CHECK(make_kernel(config)->scale() == (unscaled ? 1 : 0.25));
  }
}

}  // namespace linrec::test::bad_input_test
