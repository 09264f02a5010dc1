// What the tests of the kernels share (any_kernel.hpp), but for what needs the kernels' types.
#include <map>

#include "linrec/kernels/reference.hpp"
#include "linrec/kernels/retnet.hpp"
#include "linrec/policy/initial.hpp"
#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test {

namespace {

using enum Architecture;
constexpr Architecture architectures[] = {linear_attention, delta_net,       retnet, gla,
                                          mamba2,           gated_delta_net, rwkv7,  dplr};

bool has_policies(Architecture a) { return a != linear_attention && a != delta_net && a != dplr; }

}  // namespace

const std::vector<Field>& fields(Architecture architecture) {
  static const Field q{"q", 'K', true, Kind::content}, k{"k", 'K', true, Kind::small},
      v{"v", 'V', true, Kind::content};
  static const Field own_v{"v", 'V', false, Kind::content}, own_k{"k", 'K', false, Kind::small};
  static const Field beta{"beta", '1', false, Kind::gain};
  static const std::map<Architecture, std::vector<Field>> table{
      {linear_attention, {q, k, v}},
      {delta_net, {q, k, v, beta}},
      {retnet, {q, k, v}},
      {gla, {q, k, v, {"gk", 'K', true, Kind::decay}}},
      {mamba2,
       {{"x", 'V', false, Kind::content},
        {"dt", '1', false, Kind::step_size},
        {"B", 'K', true, Kind::small},
        {"C", 'K', true, Kind::content}}},
      {gated_delta_net, {q, k, own_v, {"g", '1', false, Kind::decay}, beta}},
      {rwkv7,
       {{"r", 'K', false, Kind::content},
        own_k,
        own_v,
        {"kk", 'K', false, Kind::content},
        {"iclr", 'K', false, Kind::gain},
        {"w_logit", 'K', false, Kind::logit}}},
      {dplr,
       {q,
        k,
        v,
        {"a", 'K', true, Kind::small},
        {"b", 'K', true, Kind::small},
        {"log_w", 'K', true, Kind::decay}}},
  };
  return table.at(architecture);
}

std::size_t field_index(Architecture architecture, const std::string& name) {
  const auto& all = fields(architecture);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return i;
  throw std::out_of_range(name);
}

std::string Config::name() const {
  static const std::map<Architecture, std::string> names{{linear_attention, "LinearAttention"},
                                                         {delta_net, "DeltaNet"},
                                                         {retnet, "RetNet"},
                                                         {gla, "GLA"},
                                                         {mamba2, "Mamba2"},
                                                         {gated_delta_net, "GatedDeltaNet"},
                                                         {rwkv7, "RWKV7"},
                                                         {dplr, "DPLR"}};
  return message(names.at(architecture), single ? " float" : " double", taper ? " tapered" : "", " H=", H,
                 " G=", G, " K=", K, " V=", V);
}

Index Config::channels() const { return !has_policies(architecture) ? 0 : architecture == rwkv7 ? H * K : H; }

Config make_config(Architecture architecture, bool tapered, bool single, Index H, Index G, Index K, Index V) {
  Config c{.architecture = architecture, .H = H, .G = G, .K = K, .V = V, .single = single};
  if (architecture == mamba2) c.log_rates = geometric_log_rates(H, 0.05, 2);
  if (!tapered) return c;
  c.log_rates =
      architecture == rwkv7 ? rwkv7_initial_logits(c.channels(), 50) : geometric_log_rates(H, 0.1, 2);
  c.taper = [](const Eigen::ArrayXd& p) { return GapAwareTaper(50).exponents(p); };
  c.scale = architecture == mamba2 || architecture == rwkv7 ? 0 : 0.75;
  c.qk_l2norm = true;
  c.mamba2_options.D = Eigen::MatrixXd::Constant(H, V, 0.5) + Eigen::MatrixXd::Identity(H, V);
  c.mamba2_options.dt_bias = Eigen::ArrayXd::LinSpaced(H, -1, 0.5);
  c.mamba2_options.dt_softplus = true;
  c.mamba2_options.dt_min = 0.05;
  c.mamba2_options.dt_max = 1.5;
  return c;
}

std::vector<Config> plain_configs(bool single, Index H, Index G, Index K, Index V) {
  std::vector<Config> all;
  for (const Architecture a : architectures) all.push_back(make_config(a, false, single, H, G, K, V));
  return all;
}

std::vector<Config> all_configs(bool single, Index H, Index G, Index K, Index V) {
  std::vector<Config> all = plain_configs(single, H, G, K, V);
  for (const Architecture a : architectures)
    if (has_policies(a)) all.push_back(make_config(a, true, single, H, G, K, V));
  return all;
}

std::vector<Config> all_configs_of_both_scalars(Index H, Index G, Index K, Index V) {
  std::vector<Config> all = all_configs(false, H, G, K, V);
  for (Config& c : all_configs(true, H, G, K, V)) all.push_back(std::move(c));
  return all;
}

Tensor random_tensor(std::array<Index, 4> extents, double low, double high, Random& random, bool single) {
  Tensor tensor(extents);
  for (double& x : tensor.numbers) x = rounded(random.uniform(low, high), single);
  return tensor;
}

Inputs random_inputs(const Config& config, Index B, Index T, std::uint64_t seed) {
  Random random(seed);
  // Keys of about unit length keep the delta rules stable.
  const double small = 1.5 / std::sqrt(static_cast<double>(config.K));
  Inputs inputs;
  for (const Field& f : fields(config.architecture)) {
    const Index width = f.width == 'K' ? config.K : f.width == 'V' ? config.V : 1;
    double low = -1, high = 1;
    if (f.kind == Kind::small) low = -small, high = small;
    if (f.kind == Kind::gain) low = 0;
    if (f.kind == Kind::decay) low = -1.5, high = 0;
    if (f.kind == Kind::step_size) low = config.mamba2_options.dt_softplus ? -3 : 0;
    if (f.kind == Kind::logit) low = -5, high = 2;
    inputs.push_back(
        random_tensor({B, T, f.shared ? config.G : config.H, width}, low, high, random, config.single));
  }
  return inputs;
}

std::vector<double> AnyState::numbers(Index b) const {
  std::vector<double> all;
  for (Index h = 0; h < heads(); ++h) {
    const Eigen::MatrixXd S = matrix(b, h);
    all.insert(all.end(), S.data(), S.data() + S.size());
  }
  all.push_back(static_cast<double>(position(b)));
  return all;
}

std::vector<double> AnyState::numbers() const {
  std::vector<double> all;
  for (Index b = 0; b < sequences(); ++b) {
    const std::vector<double> one = numbers(b);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

StatePointer random_state(const Config& config, Index sequences, std::uint64_t seed) {
  Random random(seed);
  StatePointer state = make_kernel(config)->initial_state(sequences);
  for (Index b = 0; b < sequences; ++b) {
    state->set_position(b, random.integer(0, 1000));
    for (Index h = 0; h < config.H; ++h) {
      Eigen::MatrixXd S(config.K, config.V);
      for (double& x : S.reshaped()) x = rounded(random.uniform(-1, 1), config.single);
      state->set_matrix(b, h, S);
    }
  }
  return state;
}

KernelPointer make_kernel(const Config& config) {
  if (config.fixed) return make_kernel_of_fixed_sizes(config);
  return config.single ? make_kernel_of_float(config) : make_kernel_of_double(config);
}

Tensor empty_outputs(const Config& config, Index B, Index T) {
  return Tensor({B, T, config.H, config.V}, std::numeric_limits<double>::quiet_NaN());
}

Tensor prefill(const Config& config, const Inputs& inputs, AnyState& state, const Run& run) {
  Tensor outputs = empty_outputs(config, inputs[0].extents[0], inputs[0].extents[1]);
  make_kernel(config)->prefill(inputs, state, outputs, run);
  return outputs;
}

Tensor steps(const Config& config, const Inputs& inputs, AnyState& state) {
  const KernelPointer kernel = make_kernel(config);
  Tensor outputs = empty_outputs(config, inputs[0].extents[0], inputs[0].extents[1]);
  for (Index t = 0; t < outputs.extents[1]; ++t) {
    Tensor output = outputs.slice(t, 1);
    kernel->step(each(inputs, [&](const Tensor& x) { return x.slice(t, 1); }), state, output);
    outputs.set_slice(t, output);
  }
  return outputs;
}

namespace {

/// One token of one head for the reference, from the inputs and the position t.
class TokenReader {
 public:
  TokenReader(const Config& config) : config_(config), log_rates_(config.log_rates) {
    if (config.channels() == 0) return;
    if (log_rates_.size() == 0)
      log_rates_ = config.architecture == retnet ? retention_spectrum(config.H).log_rates()
                                                 : Eigen::ArrayXd::Zero(config.channels());
    Eigen::ArrayXd p = log_rates_;
    if (config.architecture == rwkv7) p = p.unaryExpr([](double x) { return log_sigmoid(x); });
    exponents_ = config.taper ? config.taper(p) : Eigen::ArrayXd::Zero(p.size());
  }

  reference::Token read(const Inputs& inputs, Index b, Index t, Index h, std::int64_t position) const {
    const auto in = [&](const char* name) {
      const Tensor& tensor = inputs[field_index(config_.architecture, name)];
      return tensor.row(b, t, h / (config_.H / tensor.extents[2])).eval();
    };
    const auto number = [&](const char* name) { return in(name)[0]; };
    switch (config_.architecture) {
      case linear_attention:
        return reference::linear_attention(in("q"), in("k"), in("v"));
      case delta_net:
        return reference::gated_delta_net(in("q"), in("k"), in("v"), 0, number("beta"));
      case retnet:
        return reference::retention(in("q"), in("k"), in("v"), -rate(h, position));
      case gla:
        return reference::gla(in("q"), in("k"), in("v"), in("gk") * rate(h, position));
      case mamba2: {
        const double dt = step_size(number("dt"), h);
        return reference::mamba2(in("x"), dt, in("B"), in("C"), -dt * rate(h, position));
      }
      case gated_delta_net: {
        const auto maybe = [&](const char* name) {
          return config_.qk_l2norm ? reference::l2norm(in(name)) : reference::Vector(in(name));
        };
        return reference::gated_delta_net(maybe("q"), maybe("k"), in("v"), number("g") * rate(h, position),
                                          number("beta"));
      }
      case rwkv7: {
        reference::Vector logit = in("w_logit");
        for (Index i = 0; i < config_.K; ++i) {
          const Index channel = h * config_.K + i;
          logit[i] += static_cast<double>(log_rates_[channel] - exponents_[channel] * log_position(position));
        }
        return reference::rwkv7(in("r"), in("k"), in("v"), in("kk"), in("iclr"), logit);
      }
      case dplr: {
        reference::Token token = reference::gla(in("q"), in("k"), in("v"), in("log_w"));
        token.a = in("a");
        token.b = in("b");
        return token;
      }
    }
    return {};
  }

  /// D x, or nothing.
  double skip(const Inputs& inputs, Index b, Index t, Index h, Index d) const {
    const Eigen::MatrixXd& D = config_.mamba2_options.D;
    if (config_.architecture != mamba2 || D.size() == 0) return 0;
    return D(h, D.cols() == 1 ? 0 : d) * inputs[0](b, t, h, d);
  }

 private:
  static long double log_position(std::int64_t position) {
    return std::log(static_cast<long double>(position));
  }
  double rate(Index h, std::int64_t t) const {
    return static_cast<double>(std::exp(log_rates_[h] - exponents_[h] * log_position(t)));
  }
  double step_size(double dt, Index h) const {
    const Mamba2Options& o = config_.mamba2_options;
    if (o.dt_bias.size() > 0) dt += o.dt_bias[h];
    if (o.dt_softplus) dt = std::log1p(std::exp(dt));
    return std::min(std::max(dt, o.dt_min), o.dt_max);
  }

  const Config& config_;
  Eigen::ArrayXd log_rates_, exponents_;
};

}  // namespace

Expected reference_run(const Config& config, const Inputs& inputs, const AnyState& initial,
                       const Batch& batch) {
  const TokenReader reader(config);
  const double scale = make_kernel(config)->scale();
  Expected expected{Tensor({batch.rows, batch.tokens, config.H, config.V}), {}};
  for (Index s = 0; s < batch.count(); ++s)
    for (Index h = 0; h < config.H; ++h) {
      Eigen::MatrixXd S = initial.matrix(s, h);
      std::int64_t position = initial.position(s);
      for (const auto& [b, t] : batch.sequences[static_cast<std::size_t>(s)]) {
        const reference::Vector o = reference::step(S, reader.read(inputs, b, t, h, ++position), scale);
        for (Index d = 0; d < config.V; ++d)
          expected.outputs(b, t, h, d) = o[d] + reader.skip(inputs, b, t, h, d);
      }
      expected.states.push_back(S);
    }
  return expected;
}

std::string difference(const AnyState& got, const Expected& expected, double tolerance) {
  for (Index s = 0; s < got.sequences(); ++s)
    for (Index h = 0; h < got.heads(); ++h) {
      const Eigen::MatrixXd& S = expected.states[static_cast<std::size_t>(s * got.heads() + h)];
      const double error = (got.matrix(s, h) - S).cwiseAbs().maxCoeff();
      if (!(error <= tolerance * S.cwiseAbs().maxCoeff()))
        return message("S(", s, ", ", h, ") is ", error, " off");
    }
  return "";
}

TEST_CASE("the fixtures: eight kernels, two scalars, five tapered") {
  CHECK(plain_configs(false).size() == 8);
  CHECK(all_configs_of_both_scalars().size() == 26);
  for (const Config& config : all_configs_of_both_scalars()) CHECK(make_kernel(config) != nullptr);
}

std::string reference_difference(const Config& config, const Inputs& inputs) {
  const Index B = inputs[0].extents[0], T = inputs[0].extents[1];
  const StatePointer state = random_state(config, B, 5), initial = state->clone();
  const Tensor outputs = prefill(config, inputs, *state);
  const Expected expected = reference_run(config, inputs, *initial, Batch::dense(B, T));
  const double tolerance = tolerances(config.single).reference;
  std::string text = difference(outputs, expected.outputs, tolerance, 1);
  if (text.empty()) text = difference(*state, expected, tolerance);
  for (Index b = 0; b < B; ++b)
    if (state->position(b) != initial->position(b) + T) text += " wrong position";
  return text.empty() ? "" : message(config.name(), " K=", config.K, " V=", config.V, " T=", T, ": ", text);
}

}  // namespace linrec::test
