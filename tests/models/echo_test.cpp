// Echo models against naive double: at every token, SKA is a fit from scratch to what the token may see.
#include "linrec/models/echo.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/models/branches.hpp"
#include "tests/models/loaded.hpp"

namespace linrec::test::echo_test {

namespace {

using Json = nlohmann::json;
using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

/// Six rounds from ones, as the released code.
double spectral_norm(const Matrix& a) {
  Vector v = Vector::Constant(a.cols(), 1 / std::sqrt(static_cast<double>(a.cols())));
  for (int i = 0; i < 6; ++i) {
    const Vector u = a * v / std::max((a * v).norm(), 1e-8);
    v = a.transpose() * u / std::max((a.transpose() * u).norm(), 1e-8);
  }
  return (a * v).norm();
}

/// One head of SKA, as the paper and the released code write it: keys and queries are divided by the scale.
struct NaiveSka {
  Json config;
  double eta, gamma;
  std::vector<Vector> keys, values;

  Vector read(const Vector& query, Index t) const {
    const std::string sees = config.value("ska_visibility", "chunk"),
                      scale = config.value("ska_key_scale", "sequence_max");
    const Index chunk = config.value("ska_chunk_size", Index{64});
    const Index seen = sees == "inclusive" ? t + 1 : sees == "exclusive" ? t : t / chunk * chunk;
    double longest = 1e-6;
    for (Index s = 0; s < seen; ++s) longest = std::max(longest, keys[at(s)].norm());
    const auto scaled = [&](const Vector& z) -> Vector {
      return scale == "none" ? z : Vector(z / (scale == "unit_norm" ? z.norm() : longest));
    };
    const Index r = query.size();
    Matrix G = config.value("ska_ridge", 1e-3) * Matrix::Identity(r, r), M = Matrix::Zero(r, r),
           C = Matrix::Zero(values[0].size(), r);
    const auto add_lag = [&](Index s) { M += scaled(keys[at(s)]) * scaled(keys[at(s - 1)]).transpose(); };
    for (Index s = 0; s < seen; ++s) {
      G += scaled(keys[at(s)]) * scaled(keys[at(s)]).transpose();
      C += values[at(s)] * scaled(keys[at(s)]).transpose();
      if (s > 0) add_lag(s);
    }
    if (sees == "chunk" && config.value("ska_boundary_transition", true) && seen > 0) add_lag(seen);
    const Matrix L = G.llt().matrixL();
    const Matrix W = L.triangularView<Eigen::Lower>().solve(Matrix::Identity(r, r)), of_G = W.transpose() * W;
    const bool whitened = config.value("ska_operator", "minv") == "whitened";
    Matrix A = whitened ? Matrix(W * M * W.transpose()) : Matrix(M * of_G);
    A *= std::clamp(gamma, 1.0, 1.5) / std::max(1.0, spectral_norm(A));
    Vector x = W * scaled(query);
    for (Index k = 0; k < config.value("ska_power_K", Index{2}); ++k) x = A * x;
    return eta * C * of_G * L * x;
  }
  static std::size_t at(Index s) { return static_cast<std::size_t>(s); }
};

Vector as_vector(const Row& row) {
  return Eigen::Map<const Vector>(row.data(), static_cast<Index>(row.size()));
}

/// f(x) of a SKA layer for a whole sequence.
std::vector<Row> ska_layer(const Files& files, const std::string& prefix, const std::vector<Row>& x) {
  const Json config = Json::parse(files.config);
  const auto heads = config.at("ska_n_heads").get<Index>();
  const auto number = [&](const char* name) { return static_cast<double>(files[prefix + name].values[0]); };
  std::vector<NaiveSka> ska(static_cast<std::size_t>(heads),
                            {config, number("eta"), number("ssn_gamma"), {}, {}});
  const Index keys = files[prefix + "key_proj.weight"].shape[0],
              values = files[prefix + "value_proj.weight"].shape[0];
  std::vector<Row> result;
  for (const Row& row : x) {
    const Vector z = as_vector(product(files[prefix + "key_proj.weight"], row, keys)),
                 u = as_vector(product(files[prefix + "query_proj.weight"], row, keys)),
                 v = as_vector(product(files[prefix + "value_proj.weight"], row, values));
    for (Index h = 0; h < heads; ++h) {
      ska[static_cast<std::size_t>(h)].keys.push_back(z.segment(h * keys / heads, keys / heads));
      ska[static_cast<std::size_t>(h)].values.push_back(v.segment(h * values / heads, values / heads));
    }
    Row y;
    for (Index h = 0; h < heads; ++h) {
      const Vector one = ska[static_cast<std::size_t>(h)].read(u.segment(h * keys / heads, keys / heads),
                                                               static_cast<Index>(result.size()));
      y.insert(y.end(), one.begin(), one.end());
    }
    result.push_back(product(files[prefix + "out_proj.weight"], y, static_cast<Index>(row.size())));
  }
  return result;
}

/// readout (rotated silu(lift x)), and a gate if there is one.
Row koopman_mlp(const Files& files, const std::string& prefix, const Row& x) {
  const Json config = Json::parse(files.config);
  const std::string modulus =
      config.value("mlp_modulus", config.value("mlp_spectral_norm", true) ? "disk" : "free");
  const Index hidden = files[prefix + "lift.weight"].shape[0];
  Row g = product(files[prefix + "lift.weight"], x, hidden), z;
  for (double& one : g) one = silu(one);
  for (std::size_t i = 0; i < g.size() / 2; ++i) {
    double gamma = static_cast<double>(files[prefix + "gamma"].values[i]),
           omega = static_cast<double>(files[prefix + "omega"].values[i]);
    const double rho = std::hypot(gamma, omega);
    const double factor = modulus == "free" ? 1 : modulus == "circle" ? 1 / rho : std::min(rho, 1.0) / rho;
    gamma *= factor, omega *= factor;
    z.push_back(gamma * g[2 * i] + omega * g[2 * i + 1]);
    z.push_back(-omega * g[2 * i] + gamma * g[2 * i + 1]);
  }
  if (config.value("mlp_gated", false)) {
    const Row gate = product(files[prefix + "gate.weight"], x, hidden);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] /= 1 + std::exp(-gate[i]);
  }
  return product(files[prefix + "readout.weight"], z, static_cast<Index>(x.size()));
}

/// The logits of one sequence; only Mamba-2, which golden layers prove, is the model's.
std::vector<double> expected_logits(const Files& files, const LanguageModel<double>& model,
                                    const std::vector<TokenId>& tokens) {
  const Json config = Json::parse(files.config);
  const bool layer_norm = config.value("norm_type", "layernorm") == "layernorm";
  const auto norm = [&](const std::string& name, const Row& x) {
    return normalised(files, name, layer_norm, config.value("norm_eps", 1e-5), x);
  };
  std::vector<Row> x;
  for (const TokenId token : tokens) x.push_back(row_of(files["embed.weight"], token, model.width()));
  for (std::size_t i = 0; i < config.at("n_layers").get<std::size_t>(); ++i) {
    const std::string sequence = "seq_layers." + std::to_string(i) + ".",
                      mlp = "mlp_layers." + std::to_string(i) + ".";
    std::vector<Row> in;
    for (const Row& row : x) in.push_back(norm(sequence + "norm", row));
    if (files.tensors.contains(sequence + "ska.eta")) {
      in = ska_layer(files, sequence + "ska.", in);
    } else {
      std::vector<double> flat, unused;
      for (const Row& row : in) flat.insert(flat.end(), row.begin(), row.end());
      flat = run_branch(*model.blocks()[2 * i].branch, 1, flat, unused);
      for (std::size_t t = 0; t < in.size(); ++t)
        std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(t * in[t].size()), in[t].size(),
                    in[t].begin());
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t c = 0; c < x[t].size(); ++c) x[t][c] += in[t][c];
      const Row z = koopman_mlp(files, mlp, norm(mlp + "norm", x[t]));
      for (std::size_t c = 0; c < x[t].size(); ++c) x[t][c] += z[c];
    }
  }
  const char* head = config.value("tie_embeddings", true) ? "embed.weight" : "lm_head.weight";
  std::vector<double> logits;
  for (const Row& row : x) {
    const Row y = product(files[head], norm("norm_f", row), model.vocabulary());
    logits.insert(logits.end(), y.begin(), y.end());
  }
  return logits;
}

std::vector<double> logits_of(const LanguageModel<double>& model, const std::vector<TokenId>& tokens) {
  auto state = model.initial_state();
  const auto logits = model.prefill(tokens, state);
  return {logits.data(), logits.data() + logits.size()};
}

void check_model(const Files& files) {
  INFO(files.config);
  const LanguageModel<double> model = load_double(as_checkpoint(files));
  const auto tokens = random_tokens(30, model.vocabulary(), 3);
  CHECK(relative_error(logits_of(model, tokens), expected_logits(files, model, tokens)) < 1e-11);
}

}  // namespace

TEST_CASE("echo: models are what naive fits compute") {
  for (const Recipe& one : echo_recipes()) check_model(one.files);
}

TEST_CASE("echo: every operator, visibility, scale and modulus that a config can ask for") {
  for (const char* form : {"minv", "whitened"})
    for (const char* sees : {"chunk", "inclusive", "exclusive"})
      for (const char* scale : {"sequence_max", "unit_norm", "none"}) {
        const Files files =
            with_key(with_key(with_key(recipe("echo").files, "ska_operator", form), "ska_visibility", sees),
                     "ska_key_scale", scale);
        check_model(files);
        if (std::string(sees) == "chunk") check_model(with_key(files, "ska_boundary_transition", false));
      }
  for (const Index power : {0, 1, 3}) check_model(with_key(recipe("echo").files, "ska_power_K", power));
  for (const Index chunk : {1, 5, 64}) check_model(with_key(recipe("echo").files, "ska_chunk_size", chunk));
  for (const char* modulus : {"disk", "circle", "free"})
    check_model(with_key(recipe("echo").files, "mlp_modulus", modulus));
  check_model(with_key(recipe("echo").files, "mlp_spectral_norm", false));
  check_model(with_key(recipe("echo").files, "ska_ridge", 0.3));
}

namespace {

Parameter<double> parameter(const Files& files, const std::string& name) {
  const auto& [shape, values] = files[name];
  return {std::vector<double>(values.begin(), values.end()), shape};
}
Norm<double> layer_norm(const Files& files, const std::string& name) {
  return Norm<double>(name, Norm<double>::Kind::layer, 32, 32, 1e-5, parameter(files, name + ".weight"),
                      parameter(files, name + ".bias"));
}

}  // namespace

// With the weights of a file, so that its model is what must come out.
TEST_CASE("echo: a model from parts") {
  const Files& files = recipe("echo, whitened").files;
  const auto get = [&](const std::string& name) { return parameter(files, name); };
  const Mamba2LayerConfig mamba2{.width = 32, .heads = 4, .head_dim = 16, .state_size = 8};
  const SKALayerConfig ska{.width = 32, .attention = {.heads = 2, .key = 4, .value = 16}};
  const SpectralKoopmanMLPConfig mlp{
      .width = 32, .hidden = koopman_hidden_width(32), .gated = true, .modulus = KoopmanModulus::circle};
  const std::vector<Index> ska_layers = echo_ska_layers(3, 1);
  LanguageModelParts<double> parts;
  parts.architecture = "echo";
  parts.embedding = get("embed.weight");
  parts.head = get("lm_head.weight");
  parts.final_norm = layer_norm(files, "norm_f");
  for (Index i = 0; i < 3; ++i) {
    const std::string sequence = message("seq_layers.", i, "."), p = message("mlp_layers.", i, ".");
    if (std::find(ska_layers.begin(), ska_layers.end(), i) != ska_layers.end()) {
      const std::string s = sequence + "ska.";
      const SKALayer<double> layer(
          ska, {get(s + "key_proj.weight"), get(s + "query_proj.weight"), get(s + "value_proj.weight"),
                get(s + "out_proj.weight"), get(s + "eta"), get(s + "ssn_gamma")});
      parts.blocks.push_back({layer_norm(files, sequence + "norm"),
                              std::make_shared<const LayerBranch<SKALayer<double>>>(layer)});
    } else {
      const std::string m = sequence + "mamba.";
      Mamba2LayerWeights<double> weights;
      weights.in_proj = get(m + "in_proj.weight");
      weights.conv1d = get(m + "conv1d.weight"), weights.conv1d_bias = get(m + "conv1d.bias");
      weights.dt_bias = get(m + "dt_bias"), weights.D = get(m + "D");
      weights.norm = get(m + "norm.weight"), weights.out_proj = get(m + "out_proj.weight");
      const Mamba2Layer<double> layer(mamba2, weights, FreeSpectrum(get(m + "A_log").to_double()));
      parts.blocks.push_back({layer_norm(files, sequence + "norm"),
                              std::make_shared<const LayerBranch<Mamba2Layer<double>>>(layer)});
    }
    const SpectralKoopmanMLP<double> layer(mlp, {get(p + "lift.weight"), get(p + "gamma"), get(p + "omega"),
                                                 get(p + "readout.weight"), get(p + "gate.weight")});
    parts.blocks.push_back({layer_norm(files, p + "norm"),
                            std::make_shared<const MLPBranch<SpectralKoopmanMLP<double>>>(layer)});
  }
  const LanguageModel<double> model(std::move(parts));
  const auto tokens = random_tokens(40, 24);
  CHECK(logits_of(model, tokens) == logits_of(load_double(as_checkpoint(files)), tokens));
  CHECK(model.initial_state().layers()[1].shape().text() == "ska [2, 4, 16] sequence_max");
}

}  // namespace linrec::test::echo_test
