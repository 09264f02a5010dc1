// Bad input: the right error, a text that names the parameter or tensor, what was expected and what came, and
// nothing changed.
#include "linrec/layers/gated_mlp.hpp"
#include "linrec/layers/rwkv7_channel_mix.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/layers/any_layer.hpp"
#include "tests/layers/random_weights.hpp"

namespace linrec::test::bad_input_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();
using P = Parameter<double>;

P zeros(std::vector<Index> shape) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  return {std::vector<double>(static_cast<std::size_t>(count), 0), std::move(shape)};
}

/// `weights` make a layer. The parameter that find(weights) gives must be there, unless it is optional, and
/// must have its shape.
template <class Make, class Weights, class Find>
void check_parameter(Make&& make, const Weights& weights, const std::string& name, Find&& find,
                     bool optional = false) {
  INFO(name);
  Weights changed = weights;
  const std::vector<Index> shape = find(changed).shape();
  REQUIRE(find(changed).present());
  const std::string expected = "ShapeError: " + name + ": expected " + shape_text(shape) + ", got ";
  find(changed) = P();
  CHECK(error_of([&] { make(changed); }) == (optional ? "nothing" : expected + "no tensor"));
  std::vector<std::vector<Index>> wrong_shapes{{}, {1, 1, 1, 1}};
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    for (const Index change : {-1, 1}) {
      wrong_shapes.push_back(shape);
      wrong_shapes.back()[axis] += change;
    }
  if (shape.size() == 2) wrong_shapes.push_back({shape[1], shape[0]});
  for (const std::vector<Index>& wrong : wrong_shapes) {
    if (wrong == shape) continue;  // square
    find(changed) = zeros(wrong);
    CHECK(error_of([&] { make(changed); }) == expected + shape_text(wrong));
  }
}
template <class Make, class Weights>
void check_parameters(Make&& make, const Weights& weights,
                      const std::vector<std::pair<const char*, P Weights::*>>& parameters) {
  for (const auto& [name, member] : parameters)
    check_parameter(make, weights, name, [m = member](Weights& w) -> P& { return w.*m; });
}

/// What making a layer of the config with one field changed says.
template <class Make, class Config>
auto refusal_with(Make&& make, const Config& config) {
  return [make, config](auto member, auto value) {
    Config changed = config;
    changed.*member = static_cast<std::remove_reference_t<decltype(changed.*member)>>(value);
    return error_of([&] { make(changed); });
  };
}

}  // namespace

TEST_CASE("layers: only matrices of linear maps may be bfloat16") {
  const Mamba2LayerConfig config{.width = 10, .heads = 4, .head_dim = 3, .state_size = 5};
  const LayerSpec spec{"", config, false, true};
  using W = Mamba2LayerWeights<double>;
  const auto make = [&](std::initializer_list<P W::*> narrow) {
    W weights = weights_of<double>(spec, config);
    for (P W::*each : narrow) weights.*each = (weights.*each).narrowed();
    return error_of(
        [&] { Mamba2Layer<double>(config, weights, FreeSpectrum(log_rates_of_layer(config.heads))); });
  };
  CHECK(make({&W::in_proj, &W::out_proj}) == "nothing");
  for (const auto& [name, member] : {std::pair("in_proj.bias", &W::in_proj_bias),
                                     {"conv1d.weight", &W::conv1d},
                                     {"conv1d.bias", &W::conv1d_bias},
                                     {"dt_bias", &W::dt_bias},
                                     {"D", &W::D},
                                     {"norm.weight", &W::norm},
                                     {"out_proj.bias", &W::out_proj_bias}})
    CHECK(
        make({member}) ==
        message("ValueError: ", name,
                ": expected double numbers, got bfloat16, which only matrices of linear maps and embeddings "
                "may be"));

  const RWKV7TimeMixConfig mix{.width = 10, .heads = 2, .key = 5, .value = 5};
  using V = RWKV7TimeMixWeights<double>;
  for (P V::*member : {&V::x_r, &V::k_k, &V::r_k, &V::g_norm}) {
    V weights = weights_of<double>(LayerSpec{"", mix}, mix);
    weights.*member = (weights.*member).narrowed();
    CHECK(error_of([&] {
            RWKV7TimeMix<double>(mix, weights, FreeSpectrum(log_rates_of_layer(10)));
          }).find("expected double numbers, got bfloat16") != std::string::npos);
  }
  SKALayerConfig ska{.width = 6, .attention = {.heads = 2, .key = 3, .value = 4}};
  SKALayerWeights<double> weights = weights_of<double>(LayerSpec{"", ska}, ska);
  weights.ssn_gamma = weights.ssn_gamma.narrowed();
  CHECK(error_of([&] { SKALayer<double>(ska, weights); }).find("ssn_gamma: expected double") !=
        std::string::npos);
}

TEST_CASE("Mamba2Layer: weights and config that do not fit") {
  using C = Mamba2LayerConfig;
  using W = Mamba2LayerWeights<double>;
  const C config{.width = 10, .heads = 4, .head_dim = 3, .state_size = 5, .groups = 2, .mlp_width = 6};
  const LayerSpec spec{"", config, false, true};
  const W weights = weights_of<double>(spec, config);
  const auto make_with = [&](const C& c, const W& w) {
    Mamba2Layer<double>(c, w, FreeSpectrum(log_rates_of_layer(4)));
  };
  const auto make = [&](const W& w) { make_with(config, w); };
  CHECK(error_of([&] { make(weights); }) == "nothing");
  check_parameters(make, weights,
                   {{"in_proj.weight", &W::in_proj},
                    {"dt_bias", &W::dt_bias},
                    {"norm.weight", &W::norm},
                    {"out_proj.weight", &W::out_proj}});
  const auto optional = [&](const char* name, P W::*member) {
    check_parameter(
        make, weights, name, [member](W& w) -> P& { return w.*member; }, true);
  };
  optional("in_proj.bias", &W::in_proj_bias);
  optional("conv1d.bias", &W::conv1d_bias);
  optional("out_proj.bias", &W::out_proj_bias);
  W changed = weights;
  changed.conv1d = P();
  CHECK(error_of([&] { make(changed); }) == "ShapeError: conv1d.weight: expected [32, 1, 4], got no tensor");
  changed.conv1d = zeros({32, 4});
  CHECK(error_of([&] { make(changed); }) == "nothing");
  changed.conv1d = zeros({32, 3});
  CHECK(error_of([&] { make(changed); }) == "ShapeError: conv1d.weight: expected [32, 4], got [32, 3]");
  changed = weights;
  for (const P& D : {P(), zeros({4}), zeros({12})}) {
    changed.D = D;
    CHECK(error_of([&] { make(changed); }) == "nothing");
  }
  changed.D = zeros({5});
  CHECK(error_of([&] { make(changed); }) == "ShapeError: D: expected [4], got [5]");
  changed.D = P({1, 2, infinity, 4}, {4});
  CHECK(error_of([&] { make(changed); }) == "ValueError: D: expected finite numbers, got infinity or NaN");
  CHECK(error_of([&] { Mamba2Layer<double>(config, weights, FreeSpectrum(log_rates_of_layer(3))); }) ==
        "ShapeError: spectrum: expected one channel a head, 4, got 3");

  const auto refused = refusal_with([&](const C& c) { make_with(c, weights); }, config);
  CHECK(refused(&C::width, 0) == "ValueError: width: expected at least 1, got 0");
  CHECK(refused(&C::heads, 0) == "ValueError: heads: expected at least 1, got 0");
  CHECK(refused(&C::head_dim, -3) == "ValueError: head_dim: expected at least 1, got -3");
  CHECK(refused(&C::state_size, 0) == "ValueError: state_size: expected at least 1, got 0");
  CHECK(refused(&C::conv_width, 0) == "ValueError: conv_width: expected at least 1, got 0");
  for (const Index groups : {0, 3, -1, 8})
    CHECK(refused(&C::groups, groups) ==
          message("ValueError: groups: expected a number that divides H = 4, got ", groups));
  CHECK(refused(&C::mlp_width, -1) == "ValueError: mlp_width: expected at least 0, got -1");
  for (const Index groups : {0, 5, 8, 24, -2})  // 5: 12 / 5 = 2 would give six groups
    CHECK_THAT(refused(&C::norm_groups, groups),
               contains("ValueError: norm_groups: expected") && contains(message(", got ", groups)));
  for (const double eps : {0.0, -1.0, nan, infinity})
    CHECK(refused(&C::norm_eps, eps) ==
          message("ValueError: norm: expected an eps that is a finite number > 0, got ", eps));
  CHECK_THAT(refused(&C::dt_min, -1.0),
             contains("ValueError: dt_min, dt_max: expected 0 <= dt_min <= dt_max"));
  CHECK_THAT(refused(&C::dt_max, nan),
             contains("ValueError: dt_min, dt_max: expected 0 <= dt_min <= dt_max"));
  // A weight of another config names the parameter.
  CHECK_THAT(refused(&C::width, 11), contains("ShapeError: in_proj.weight: expected [60, 11], got [60, 10]"));
  CHECK_THAT(refused(&C::mlp_width, 5),
             contains("ShapeError: in_proj.weight: expected [58, 10], got [60, 10]"));
}

namespace {

template <class W>
void check_attention_parameters(auto&& make, const W& weights, const std::string& norm) {
  check_parameters(make, weights,
                   {{"q_proj.weight", &W::q_proj},
                    {"k_proj.weight", &W::k_proj},
                    {"v_proj.weight", &W::v_proj},
                    {"q_conv1d.weight", &W::q_conv1d},
                    {"k_conv1d.weight", &W::k_conv1d},
                    {"g_proj.weight", &W::g_proj},
                    {"o_proj.weight", &W::o_proj}});
  check_parameter(make, weights, norm + ".weight", [](W& w) -> P& { return w.norm; });
}

template <class C>
void check_head_sizes(auto&& refused) {
  for (const auto& [name, member] :
       std::vector<std::pair<const char*, Index C::*>>{{"width", &C::width},
                                                       {"heads", &C::heads},
                                                       {"key_dim", &C::key_dim},
                                                       {"value_dim", &C::value_dim}})
    for (const Index size : {0, -2})
      CHECK(refused(member, size) == message("ValueError: ", name, ": expected at least 1, got ", size));
  CHECK(refused(&C::conv_width, -1) == "ValueError: conv_width: expected at least 0, got -1");
  CHECK_THAT(refused(&C::norm_eps, 0.0),
             contains("_norm: expected an eps that is a finite number > 0, got 0"));
}

/// A weight that the config has no use for is refused.
template <class W>
void check_unused(auto&& make, W weights, P W::*member, const std::string& name) {
  weights.*member = zeros({3, 2});
  CHECK(error_of([&] { make(weights); }) == "ShapeError: " + name + ": expected no tensor, got [3, 2]");
}

}  // namespace

TEST_CASE("GatedDeltaNetLayer: weights and config that do not fit") {
  using C = GatedDeltaNetLayerConfig;
  using W = GatedDeltaNetLayerWeights<double>;
  const C config{.width = 10, .heads = 2, .value_heads = 4, .key_dim = 5, .value_dim = 3};
  const LayerSpec spec{"", config};
  const auto make_with = [&](const C& c, const W& w) {
    GatedDeltaNetLayer<double>(c, w, FreeSpectrum(log_rates_of_layer(4)));
  };
  const auto make = [&](const W& w) { make_with(config, w); };
  const W weights = weights_of<double>(spec, config);
  CHECK(error_of([&] { make(weights); }) == "nothing");
  check_attention_parameters(make, weights, "o_norm");
  check_parameters(make, weights,
                   {{"a_proj.weight", &W::a_proj}, {"dt_bias", &W::dt_bias}, {"b_proj.weight", &W::b_proj}});
  const auto refused = refusal_with([&](const C& c) { make_with(c, weights); }, config);
  check_head_sizes<C>(refused);
  for (const Index heads : {1, 3, -2})
    CHECK(refused(&C::value_heads, heads) ==
          message("ValueError: value_heads: expected a multiple of heads = 2, got ", heads));
  CHECK(refused(&C::output_gate, false) == "ShapeError: g_proj.weight: expected no tensor, got [12, 10]");
  CHECK(refused(&C::conv_width, 0) == "ShapeError: q_conv1d.weight: expected no tensor, got [10, 1, 4]");
  CHECK(error_of([&] { GatedDeltaNetLayer<double>(config, weights, FreeSpectrum(log_rates_of_layer(2))); }) ==
        "ShapeError: spectrum: expected one channel a head, 4, got 2");
}

TEST_CASE("GLALayer: weights and config that do not fit") {
  using C = GLALayerConfig;
  using W = GLALayerWeights<double>;
  const C config{.width = 10, .heads = 4, .kv_heads = 2, .key_dim = 5, .value_dim = 3, .conv_width = 4};
  const auto make_with = [&](const C& c, const W& w) { GLALayer<double>(c, w); };
  const auto make = [&](const W& w) { make_with(config, w); };
  const W low_rank = weights_of<double>(LayerSpec{"", config}, config);
  const W full = weights_of<double>(LayerSpec{"", config, true}, config);
  CHECK(error_of([&] { make(low_rank); }) == "nothing");
  CHECK(error_of([&] { make(full); }) == "nothing");
  check_attention_parameters(make, low_rank, "g_norm");
  check_parameters(make, low_rank,
                   {{"gk_proj.1.weight", &W::gk_proj_1}, {"gk_proj.1.bias", &W::gk_proj_1_bias}});
  check_parameters(make, full, {{"dt_bias", &W::dt_bias}});
  check_unused(make, low_rank, &W::dt_bias, "dt_bias");
  check_unused(make, full, &W::gk_proj_0, "gk_proj.0.weight");
  check_unused(make, full, &W::gk_proj_1, "gk_proj.1.weight");
  check_unused(make, full, &W::gk_proj_1_bias, "gk_proj.1.bias");
  W changed = low_rank;
  changed.gk_proj_0 = P();
  CHECK(error_of([&] { make(changed); }) == "ShapeError: gk_proj.0.weight: expected [16, 10], got no tensor");
  changed.gk_proj_0 = zeros({3, 9});
  CHECK(error_of([&] { make(changed); }) == "ShapeError: gk_proj.0.weight: expected [3, 10], got [3, 9]");
  changed = full;
  changed.a_proj = zeros({10, 9});
  CHECK(error_of([&] { make(changed); }) == "ShapeError: a_proj.weight: expected [10, 10], got [10, 9]");

  const auto refused = refusal_with([&](const C& c) { make_with(c, low_rank); }, config);
  check_head_sizes<C>(refused);
  for (const Index groups : {3, -1, 8})
    CHECK(refused(&C::kv_heads, groups) ==
          message("ValueError: kv_heads: expected a number that divides H = 4, got ", groups));
  for (const double normalizer : {0.0, -16.0, nan, infinity})
    CHECK(refused(&C::gate_logit_normalizer, normalizer) ==
          message("ValueError: gate_logit_normalizer: expected a finite number > 0, got ", normalizer));
  for (const double lowest : {0.5, nan})
    CHECK(refused(&C::clamp_min, lowest) ==
          message("ValueError: clamp_min: expected at most 0, got ", lowest));
  CHECK(refused(&C::norm_weight, false) == "ShapeError: g_norm.weight: expected no tensor, got [3]");
}

TEST_CASE("RetNetLayer: weights and config that do not fit") {
  using C = RetNetLayerConfig;
  using W = RetNetLayerWeights<double>;
  const C config{.width = 10, .heads = 4, .kv_heads = 2, .key_dim = 6, .value_dim = 3, .conv_width = 4};
  const auto make_with = [&](const C& c, const W& w) { RetNetLayer<double>(c, w); };
  const W weights = weights_of<double>(LayerSpec{"", config}, config);
  check_attention_parameters([&](const W& w) { make_with(config, w); }, weights, "g_norm");
  const auto refused = refusal_with([&](const C& c) { make_with(c, weights); }, config);
  check_head_sizes<C>(refused);
  CHECK(refused(&C::kv_heads, 3) == "ValueError: kv_heads: expected a number that divides H = 4, got 3");
  CHECK_THAT(refused(&C::rotary_base, 0.0), contains("ValueError: rotary: expected a base"));
  // An odd key dimension has no halves; without a rotation it needs none.
  C odd = config;
  odd.key_dim = 5;
  const W of_odd = weights_of<double>(LayerSpec{"", odd}, odd);
  CHECK(error_of([&] { make_with(odd, of_odd); }) ==
        "ValueError: rotary: expected an even key dimension, got 5");
  odd.rotary = false;
  CHECK(error_of([&] { make_with(odd, of_odd); }) == "nothing");
}

TEST_CASE("SKALayer: weights and config that do not fit") {
  using C = SKALayerConfig;
  using W = SKALayerWeights<double>;
  const C config{.width = 10, .attention = {.heads = 2, .key = 4, .value = 3}};
  const auto make_with = [&](const C& c, const W& w) { SKALayer<double>(c, w); };
  const auto make = [&](const W& w) { make_with(config, w); };
  W weights = weights_of<double>(LayerSpec{"", config}, config);
  CHECK(error_of([&] { make(weights); }) == "nothing");
  weights.ssn_gamma = weights.ssn_gamma.reshaped({});
  CHECK(error_of([&] { make(weights); }) == "nothing");
  check_parameters(make, weights,
                   {{"key_proj.weight", &W::key_proj},
                    {"query_proj.weight", &W::query_proj},
                    {"value_proj.weight", &W::value_proj},
                    {"out_proj.weight", &W::out_proj},
                    {"eta", &W::eta},
                    {"ssn_gamma", &W::ssn_gamma}});
  for (const double number : {nan, infinity, -infinity}) {
    W changed = weights;
    changed.eta = P({number}, {1});
    CHECK(error_of([&] { make(changed); }) ==
          message("ValueError: eta: expected a finite number, got ", number));
    changed = weights;
    changed.ssn_gamma = P({number}, {});
    CHECK(error_of([&] { make(changed); }) ==
          message("ValueError: ssn_gamma: expected a finite number, got ", number));
  }
  CHECK(refusal_with([&](const C& c) { make_with(c, weights); }, config)(&C::width, 0) ==
        "ValueError: width: expected at least 1, got 0");
  const auto refused = [&](auto member, auto value) {
    C changed = config;
    changed.attention.*member = value;
    return error_of([&] { make_with(changed, weights); });
  };
  using A = SpectralKoopmanAttentionConfig;
  CHECK(refused(&A::heads, Index(0)) == "ValueError: heads: expected at least 1, got 0");
  CHECK(refused(&A::key, Index(-1)) == "ValueError: key: expected at least 1, got -1");
  CHECK(refused(&A::value, Index(0)) == "ValueError: value: expected at least 1, got 0");
  CHECK(refused(&A::ridge, 0.0) == "ValueError: ridge: expected a number above 0, at most 1e+20, got 0");
  CHECK(refused(&A::key, Index(5)) == "ShapeError: key_proj.weight: expected [10, 10], got [8, 10]");
}

TEST_CASE("RWKV7TimeMix: weights and config that do not fit") {
  using C = RWKV7TimeMixConfig;
  using W = RWKV7TimeMixWeights<double>;
  const C config{.width = 10, .heads = 2, .key = 4, .value = 3};
  const auto make_with = [&](const C& c, const W& w) {
    RWKV7TimeMix<double>(c, w, FreeSpectrum(log_rates_of_layer(8)));
  };
  const auto make = [&](const W& w) { make_with(config, w); };
  const W weights = weights_of<double>(LayerSpec{"", config}, config);
  CHECK(error_of([&] { make(weights); }) == "nothing");
  check_parameters(make, weights,
                   {{"x_r", &W::x_r},
                    {"x_w", &W::x_w},
                    {"x_k", &W::x_k},
                    {"x_v", &W::x_v},
                    {"x_a", &W::x_a},
                    {"x_g", &W::x_g},
                    {"r_proj.weight", &W::r_proj},
                    {"k_proj.weight", &W::k_proj},
                    {"v_proj.weight", &W::v_proj},
                    {"o_proj.weight", &W::o_proj},
                    {"k_k", &W::k_k},
                    {"k_a", &W::k_a},
                    {"r_k", &W::r_k},
                    {"g_norm.weight", &W::g_norm},
                    {"g_norm.bias", &W::g_norm_bias}});
  for (const auto& [name, member] : std::vector<std::pair<std::string, LowRankWeights<double> W::*>>{
           {"w_lora", &W::w_lora}, {"a_lora", &W::a_lora}, {"v_lora", &W::v_lora}, {"g_lora", &W::g_lora}}) {
    INFO(name);
    check_parameter(make, weights, name + ".lora.2.weight", [m = member](W& w) -> P& { return (w.*m).up; });
    W changed = weights;
    (changed.*member).down = P();
    CHECK_THAT(error_of([&] { make(changed); }),
               contains("ShapeError: " + name + ".lora.0.weight: expected [") && contains(", got no tensor"));
    (changed.*member).down = zeros({3, 9});
    CHECK(error_of([&] { make(changed); }) ==
          "ShapeError: " + name + ".lora.0.weight: expected [3, 10], got [3, 9]");
  }
  const auto refused = refusal_with([&](const C& c) { make_with(c, weights); }, config);
  CHECK_THAT(refused(&C::heads, 0), contains("ValueError: ") && contains("heads") && contains("got 0"));
  CHECK_THAT(refused(&C::key, 0), contains("ValueError: ") && contains("key") && contains("got 0"));
  CHECK_THAT(refused(&C::value, 0), contains("ValueError: ") && contains("value") && contains("got 0"));
  CHECK_THAT(refused(&C::width, 0), contains("ValueError: width: expected at least 1, got 0"));
  CHECK_THAT(refused(&C::kk_eps, -1.0),
             contains("ValueError: kk_eps: expected a finite number of at least 0, got -1"));
  CHECK_THAT(refused(&C::norm_eps, nan),
             contains("ValueError: g_norm: expected an eps that is a finite number > 0, got nan"));
  CHECK(error_of([&] { RWKV7TimeMix<double>(config, weights, FreeSpectrum(log_rates_of_layer(2))); }) ==
        "ShapeError: spectrum: expected one channel a key channel, H K = 8, got 2");
}

TEST_CASE("RWKV7ChannelMix and GatedMLP: weights that do not fit") {
  using W = RWKV7ChannelMixWeights<double>;
  const ChannelMixConfig config{5, 7};
  check_parameters([](const W& w) { RWKV7ChannelMix<double>(5, 7, w); },
                   weights_of<double>(LayerSpec{"", config}, config),
                   {{"x_k", &W::x_k}, {"key.weight", &W::key}, {"value.weight", &W::value}});
  using MLP = GatedMLPWeights<double>;
  check_parameters(
      [](const MLP& w) { GatedMLP<double>(5, 7, w); }, MLP{zeros({7, 5}), zeros({7, 5}), zeros({5, 7})},
      {{"gate_proj.weight", &MLP::gate}, {"up_proj.weight", &MLP::up}, {"down_proj.weight", &MLP::down}});
}

TEST_CASE("Norm and ShortConvolution: what they refuse") {
  using N = Norm<double>;
  CHECK(error_of([] { N("n", N::Kind::rms, 10, 3, 1e-5, {}); }) ==
        "ValueError: n: expected groups that divide 10 channels, got 3");
  CHECK(error_of([] { N("n", N::Kind::rms, 10, 0, 1e-5, {}); }) ==
        "ValueError: n: expected groups that divide 10 channels, got 0");
  CHECK(error_of([] { N("n", N::Kind::rms, 10, 5, 1e-5, {}, zeros({10})); }) ==
        "ShapeError: n.bias: expected none, got one");
  CHECK(error_of([] { N("n", N::Kind::layer, 10, 5, 1e-5, zeros({4})); }) ==
        "ShapeError: n.weight: expected [10], got [4]");
  CHECK(error_of([] { N("n", N::Kind::layer, 10, 5, 1e-5, {}, zeros({4})); }) ==
        "ShapeError: n.bias: expected [10], got [4]");
  using S = ShortConvolution<double>;
  CHECK(error_of([] {
          S("c", 3, 0, zeros({3, 1, 0}));
        }) == "ValueError: c: expected a width of at least 1, got 0");
  CHECK(error_of([] {
          S("c", 3, 2, zeros({3, 2}), zeros({2}));
        }) == "ShapeError: c.bias: expected [3], got [2]");
}

namespace {

constexpr Index B = 2, T = 3;

/// One call with everything that may be wrong in it.
struct Call {
  Tensor x, v_first, y;
  SequenceLayout layout = {};
};
Call good_call(const AnyLayer& layer) {
  const LayerInputs inputs = random_layer_inputs(layer, B, T, 1);
  return {inputs.x, inputs.v_first, Tensor(inputs.x.extents, 7)};
}

/// Calls prefill and validate, which must say the same and change nothing.
std::string refusal(const AnyLayer& layer, const Call& given, const AnyLayerState& given_state) {
  Call call = given;
  AnyLayerState state = given_state;
  const std::string text =
      error_of([&] { layer.prefill(call.x, call.v_first, state, call.y, {.layout = call.layout}); });
  if (text == "nothing") return text;
  if (!same_bits(state.numbers(), given_state.numbers())) return "the state has changed; " + text;
  if (!same_bits(call.y.numbers, given.y.numbers)) return "y has changed; " + text;
  if (!same_bits(call.v_first.numbers, given.v_first.numbers)) return "v_first has changed; " + text;
  const std::string validated =
      error_of([&] { layer.validate(call.x, call.v_first, state, call.y, call.layout); });
  return validated == text ? text : "validate says " + validated + "; prefill says " + text;
}
std::string refusal(const AnyLayer& layer, const Call& call) {
  return refusal(layer, call, random_layer_state(layer, B, 2));
}

std::string wrong_shape(const char* name, const std::array<Index, 4>& expected,
                        const std::array<Index, 4>& got) {
  return message("ShapeError: ", name, ": expected [B, T, H, D] = ", shape_text(expected), ", got ",
                 shape_text(got));
}

}  // namespace

TEST_CASE("layers: good input is no error, and validate changes nothing") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const Call given = good_call(layer);
    CHECK(refusal(layer, given) == "nothing");
    Call call = given;
    const AnyLayerState state = random_layer_state(layer, B, 2);
    layer.validate(call.x, call.v_first, state, call.y);
    CHECK(same_bits(state.numbers(), random_layer_state(layer, B, 2).numbers()));
    CHECK(same_bits(call.y.numbers, given.y.numbers));
    CHECK(same_bits(call.v_first.numbers, given.v_first.numbers));
  }
}

TEST_CASE("layers: x, y and v_first of a wrong shape") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const Call good = good_call(layer);
    for (std::size_t axis = 0; axis < 4; ++axis)
      for (const Index change : {-1, 1}) {
        INFO("axis " << axis << ", " << change);
        Call call = good;
        std::array<Index, 4> right = good.x.extents, wrong = right;
        wrong[axis] += change;
        call.y = Tensor(wrong, 7);
        CHECK(refusal(layer, call) == wrong_shape("y", right, wrong));
        call = good;
        call.x = Tensor(wrong, 0);
        // x says what B and T are, so y is then the one that does not fit.
        CHECK(refusal(layer, call) ==
              (axis < 2 ? wrong_shape("y", wrong, right) : wrong_shape("x", right, wrong)));
        if (layer.values() == 0) continue;
        call = good;
        right = wrong = good.v_first.extents;
        wrong[axis] += change;
        call.v_first = Tensor(wrong, 0);
        CHECK(refusal(layer, call) == wrong_shape("v_first", right, wrong));
        call.v_first = Tensor();
        CHECK(refusal(layer, call) == wrong_shape("v_first", right, {0, 0, 0, 0}));
      }
  }
}

TEST_CASE("layers: outputs that overlap themselves") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const Call good = good_call(layer);
    const auto overlapping = [](const Tensor& tensor) {
      std::vector<Tensor> all(3, tensor);
      all[0].strides[0] = 0;                      // all sequences in one place
      all[1].strides[1] = 0;                      // all tokens
      all[2].strides[1] = tensor.extents[3] - 1;  // each token upon the last number of the one before
      return all;
    };
    for (const Tensor& y : overlapping(good.y)) {
      Call call = good;
      call.y = y;
      CHECK(refusal(layer, call) == message("ShapeError: y: expected strides without overlap, got ",
                                            y.strides[0], ", ", y.strides[1], ", ", y.strides[2],
                                            " for the shape ", shape_text(y.extents)));
    }
    // v_first is an output of the first layer; elsewhere all tokens may read the same one.
    if (layer.values() == 0) continue;
    for (const Tensor& v_first : overlapping(good.v_first)) {
      Call call = good;
      call.v_first = v_first;
      if (layer.writes_values())
        CHECK_THAT(refusal(layer, call),
                   contains("ShapeError: v_first: expected strides without overlap, got "));
      else
        CHECK(refusal(layer, call) == "nothing");
    }
  }
}

TEST_CASE("layers: a state of another layer, or of another number of sequences") {
  for (const LayerSpec& spec : all_layers()) {
    const AnyLayer layer(spec);
    const Call good = good_call(layer);
    for (const LayerSpec& other_spec : all_layers()) {
      if (other_spec.single != spec.single) continue;
      const AnyLayer other(other_spec);
      INFO(spec.name << ", with a state of " << other_spec.name);
      const std::string expected = message("ShapeError: state: expected that of ", layer.state_shape().text(),
                                           ", got that of ", other.state_shape().text());
      const bool same = layer.state_shape() == other.state_shape();
      CHECK(refusal(layer, good, random_layer_state(other, B, 3)) == (same ? "nothing" : expected));
    }
    for (const Index sequences : {0, 1, 3})
      CHECK(refusal(layer, good, random_layer_state(layer, sequences, 3)) ==
            message("ShapeError: state: expected 2 sequences, got ", sequences));
  }
  CHECK(AnyLayer(layer_named("Mamba-2")).state_shape().text() == "mamba2 [3, 3, 5] conv [4, 21]");
  CHECK(AnyLayer(layer_named("RWKV-7, channel mix")).state_shape().text() ==
        "rwkv7.channel_mix shift [1, 9]");
  CHECK(AnyLayer(layer_named("SKA, chunks, as released")).state_shape().text() ==
        "ska [2, 4, 5] sequence_max chunk 7");
}

TEST_CASE("layers: batches that do not fit") {
  const std::vector<Index> too_long{3, 4}, too_few{3}, negative{-1, 3}, offsets{0, 3};
  const std::vector<std::uint8_t> mask(5, 1);
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    Call call = good_call(layer);
    call.layout = SequenceLayout::with_lengths(too_long);
    CHECK(refusal(layer, call) == "ShapeError: lengths[1]: expected 0 to T = 3, got 4");
    call.layout = SequenceLayout::with_lengths(negative);
    CHECK(refusal(layer, call) == "ShapeError: lengths[0]: expected 0 to T = 3, got -1");
    call.layout = SequenceLayout::with_lengths(too_few);
    CHECK(refusal(layer, call) == "ShapeError: lengths: expected B = 2 entries, got 1");
    call.layout = SequenceLayout::with_mask(mask);
    CHECK(refusal(layer, call) == "ShapeError: mask: expected [B, T] = [2, 3] = 6 entries, got 5");
    call.layout = SequenceLayout::packed(offsets);
    CHECK(refusal(layer, call) == "ShapeError: offsets: expected B = 1 in a packed batch, got 2");
  }
}

TEST_CASE("layers: a state without scratch memory may prefill, but validate refuses it for steps") {
  const LayerSpec spec = layer_named("GLA");
  const auto layer = make_layer_of<double>(spec);
  LayerState<double> bare(layer->state_shape(), B), proper = layer->initial_state(B);
  std::vector<double> x(static_cast<std::size_t>(B * layer->width()), 0.5), y(x.size()), z(x.size());
  const std::array<Index, 4> extents{B, 1, 1, layer->width()};
  const std::array<Index, 3> strides{layer->width(), layer->width(), layer->width()};
  const TokenView<double> in(x.data(), extents, strides), out(y.data(), extents, strides),
      other(z.data(), extents, strides);
  CHECK(error_of([&] { layer->validate(in, {}, bare, out, {}); }) ==
        "ShapeError: state: expected one from initial_state of gla, got one without scratch memory");
  layer->prefill(in, {}, bare, out, {});
  layer->prefill(in, {}, proper, other, {});
  CHECK(y == z);
  CHECK(bare == proper);
}

TEST_CASE("layers: numbers of sequences below 0") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    for (const Index sequences : {-1, -2, -1000})
      CHECK(error_of([&] { AnyLayer(spec).initial_state(sequences); }) ==
            message("ValueError: sequences: expected at least 0, got ", sequences));
  }
}

}  // namespace linrec::test::bad_input_test
