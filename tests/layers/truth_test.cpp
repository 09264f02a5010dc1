// Whole layers against what the papers say, in plain loops over std::vector: no code of the library but its
// scalar activations. The options here are those that the golden files do not have.
#include "linrec/core/activation.hpp"
#include "tests/catch.hpp"
#include "tests/layers/any_layer.hpp"
#include "tests/layers/random_weights.hpp"

namespace linrec::test::truth_test {

namespace {

using Row = std::vector<double>;

std::size_t index(Index i) { return static_cast<std::size_t>(i); }

/// W x + b
Row product(const Parameter<double>& matrix, const Row& x, const Parameter<double>& bias = {}) {
  const Index outputs = matrix.shape()[0], inputs = matrix.shape()[1];
  Row y(index(outputs), 0);
  for (Index o = 0; o < outputs; ++o) {
    for (Index i = 0; i < inputs; ++i) y[index(o)] += matrix.data()[o * inputs + i] * x[index(i)];
    if (bias.present()) y[index(o)] += bias.data()[o];
  }
  return y;
}

/// alpha of the gap-aware taper for increasing log-rates.
Row gap_aware(const Row& p) {
  const double n = static_cast<double>(p.size());
  Row alpha;
  for (std::size_t k = 0; k < p.size(); ++k) {
    const double position = static_cast<double>(k);
    const double even = position * (p.back() - p[0]) / (n - 1);
    alpha.push_back((n - 1 - position) / (n - 1) + ((p[k] - p[0]) - even) / std::log(train_length));
    alpha.back() = std::min(std::max(alpha.back(), 0.0), 1.0);
  }
  return alpha;
}

struct Answer {
  std::vector<Row> y;
  std::vector<Row> v_first;
  std::vector<Eigen::MatrixXd> states;  ///< [H], each [K, V]
};

/// Mamba-2: the paper's section 7, with `start` tokens before the first that had no effect but on t.
Answer mamba2(const LayerSpec& spec, const std::vector<Row>& u, std::int64_t start) {
  const auto& c = std::get<Mamba2LayerConfig>(spec.config);
  const Mamba2LayerWeights<double> w = weights_of<double>(spec, c);
  const Index H = c.heads, P = c.head_dim, N = c.state_size, inner = H * P, M = c.mlp_width;
  const Index channels = inner + 2 * c.groups * N;
  const Eigen::ArrayXd A_log = log_rates_of_layer(H);
  const Row alpha = spec.post ? gap_aware(Row(A_log.data(), A_log.data() + H)) : Row(index(H), 0);
  Answer answer;
  for (Index h = 0; h < H; ++h) answer.states.push_back(Eigen::MatrixXd::Zero(N, P));
  std::vector<Row> before;  // the inputs of the convolution
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double t = static_cast<double>(start) + static_cast<double>(i) + 1;
    const Row all = product(w.in_proj, u[i], w.in_proj_bias);
    auto next = all.begin();
    const auto take = [&](Index n) {
      next += n;
      return Row(next - n, next);
    };
    const Row z0 = take(M), x0 = take(M), z = take(inner);
    before.push_back(take(channels));
    const Row dt_raw = take(H);

    Row conv(index(channels));
    for (Index ch = 0; ch < channels; ++ch) {
      double sum = w.conv1d_bias.present() ? w.conv1d_bias.data()[ch] : 0;
      for (Index back = 0; back < c.conv_width && back <= static_cast<Index>(i); ++back)
        sum +=
            w.conv1d.data()[ch * c.conv_width + c.conv_width - 1 - back] * before[i - index(back)][index(ch)];
      conv[index(ch)] = silu(sum);
    }

    Row y(index(inner));
    for (Index h = 0; h < H; ++h) {
      const double raw = softplus(dt_raw[index(h)] + w.dt_bias.data()[h]);
      const double dt = std::min(std::max(raw, c.dt_min), c.dt_max);
      const double decay = std::exp(-std::exp(A_log[h]) * dt * std::pow(t, -alpha[index(h)]));
      const Index group = h / (H / c.groups);
      Eigen::MatrixXd& S = answer.states[index(h)];
      for (Index p = 0; p < P; ++p) {
        const double x = conv[index(h * P + p)];
        double sum = 0;
        for (Index n = 0; n < N; ++n) {
          const double B = conv[index(inner + group * N + n)];
          const double C = conv[index(inner + (c.groups + group) * N + n)];
          S(n, p) = decay * S(n, p) + dt * x * B;
          sum += C * S(n, p);
        }
        const double D = w.D.present() ? w.D.data()[w.D.size() == H ? h : h * P + p] : 0;
        y[index(h * P + p)] = sum + D * x;
      }
    }

    const auto gate = [&] {
      for (Index j = 0; j < inner; ++j) y[index(j)] *= silu(z[index(j)]);
    };
    if (c.gated_norm) {
      if (!c.norm_before_gate) gate();
      const Index size = inner / c.norm_groups;
      for (Index g = 0; g < c.norm_groups; ++g) {
        double square = 0;
        for (Index j = 0; j < size; ++j) square += y[index(g * size + j)] * y[index(g * size + j)];
        const double root = std::sqrt(square / static_cast<double>(size) + c.norm_eps);
        for (Index j = 0; j < size; ++j) y[index(g * size + j)] *= w.norm.data()[g * size + j] / root;
      }
      if (c.norm_before_gate) gate();
    } else {
      gate();
    }
    Row hidden;
    for (Index j = 0; j < M; ++j) hidden.push_back(silu(z0[index(j)]) * x0[index(j)]);
    hidden.insert(hidden.end(), y.begin(), y.end());
    answer.y.push_back(product(w.out_proj, hidden, w.out_proj_bias));
  }
  return answer;
}

/// RWKV-7's time mixing: the paper's section 4.
Answer rwkv7(const LayerSpec& spec, const std::vector<Row>& x, const std::vector<Row>& v_first,
             std::int64_t start) {
  const auto& c = std::get<RWKV7TimeMixConfig>(spec.config);
  const RWKV7TimeMixWeights<double> w = weights_of<double>(spec, c);
  const Index H = c.heads, K = c.key, V = c.value;
  const Eigen::ArrayXd w0 = log_rates_of_layer(H * K);
  Row alpha(index(H * K), 0);
  if (spec.post) {
    Row p;
    for (const double logit : w0) p.push_back(log_sigmoid(logit));
    alpha = gap_aware(p);
  }
  Answer answer;
  for (Index h = 0; h < H; ++h) answer.states.push_back(Eigen::MatrixXd::Zero(K, V));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double t = static_cast<double>(start) + static_cast<double>(i) + 1;
    const auto mixed = [&](const Parameter<double>& mu) {
      Row m;
      for (std::size_t d = 0; d < x[i].size(); ++d) {
        const double last = i == 0 ? 0 : x[i - 1][d];
        m.push_back(x[i][d] + (last - x[i][d]) * mu.data()[d]);
      }
      return m;
    };
    const auto low_rank = [](const LowRankWeights<double>& lora, const Row& in, double (*f)(double)) {
      Row middle = product(lora.down, in);
      for (double& m : middle) m = f(m);
      return product(lora.up, middle, lora.bias);
    };
    const auto same = [](double m) { return m; };
    const Row r = product(w.r_proj, mixed(w.x_r)), k_raw = product(w.k_proj, mixed(w.x_k));
    Row v = product(w.v_proj, mixed(w.x_v));
    const Row content = low_rank(w.w_lora, mixed(w.x_w), [](double m) { return std::tanh(m); });
    Row a = low_rank(w.a_lora, mixed(w.x_a), same);
    for (double& rate : a) rate = sigmoid(rate);
    const Row g = low_rank(w.g_lora, mixed(w.x_g), [](double m) { return sigmoid(m); });
    answer.v_first.push_back(c.first_layer ? v : v_first[i]);
    if (!c.first_layer) {
      const Row towards = low_rank(w.v_lora, mixed(w.x_v), same);
      for (std::size_t j = 0; j < v.size(); ++j) v[j] += (v_first[i][j] - v[j]) * sigmoid(towards[j]);
    }

    Row out(index(H * V));
    for (Index h = 0; h < H; ++h) {
      const auto at = [&](const Row& row, Index j) { return row[index(h * K + j)]; };
      Row kk(index(K)), k(index(K)), decay(index(K));
      double square = 0, bonus = 0;
      for (Index j = 0; j < K; ++j) {
        kk[index(j)] = at(k_raw, j) * w.k_k.data()[h * K + j];
        square += kk[index(j)] * kk[index(j)];
        k[index(j)] = at(k_raw, j) * (1 + (at(a, j) - 1) * w.k_a.data()[h * K + j]);
        bonus += at(r, j) * k[index(j)] * w.r_k.data()[h * K + j];
        const double logit = w0[h * K + j] + at(content, j) - at(alpha, j) * std::log(t);
        decay[index(j)] = std::exp(-std::exp(-0.5) * sigmoid(logit));
      }
      for (double& number : kk) number /= std::max(std::sqrt(square + c.kk_eps), 1e-12);

      // S = S (diag(w) - kk (a kk)^T) + v k^T, transposed to [K, V].
      Eigen::MatrixXd& S = answer.states[index(h)];
      Row o(index(V));
      for (Index p = 0; p < V; ++p) {
        double removed = 0;
        for (Index j = 0; j < K; ++j) removed += kk[index(j)] * S(j, p);
        for (Index j = 0; j < K; ++j) {
          S(j, p) = decay[index(j)] * S(j, p) - removed * kk[index(j)] * at(a, j) +
                    k[index(j)] * v[index(h * V + p)];
          o[index(p)] += S(j, p) * at(r, j);
        }
      }
      double mean = 0, variance = 0;
      for (const double number : o) mean += number / static_cast<double>(V);
      for (const double number : o) variance += (number - mean) * (number - mean) / static_cast<double>(V);
      for (Index p = 0; p < V; ++p) {
        const std::size_t j = index(h * V + p);
        const double normed = (o[index(p)] - mean) / std::sqrt(variance + c.norm_eps) * w.g_norm.data()[j] +
                              w.g_norm_bias.data()[j];
        out[j] = (normed + bonus * v[j]) * g[j];
      }
    }
    answer.y.push_back(product(w.o_proj, out));
  }
  return answer;
}

std::vector<Row> rows_of(const Tensor& tensor) {
  std::vector<Row> rows;
  for (Index t = 0; t < tensor.extents[1]; ++t) {
    const Eigen::VectorXd row = tensor.row(0, t, 0);
    rows.emplace_back(row.data(), row.data() + row.size());
  }
  return rows;
}
Tensor tensor_of(const std::vector<Row>& rows) {
  Tensor tensor({1, static_cast<Index>(rows.size()), 1, static_cast<Index>(rows[0].size())});
  tensor.for_each([&](Index b, Index t, Index h, Index d) { tensor(b, t, h, d) = rows[index(t)][index(d)]; });
  return tensor;
}

void check_layer(LayerSpec spec) {
  constexpr Index T = 75;  // more than a chunk
  for (const std::int64_t start : {0, 40})
    for (const bool single : {false, true}) {
      spec.single = single;
      INFO(spec.name << (single ? ", float" : "") << ", from position " << start);
      const AnyLayer layer(spec);
      const LayerInputs inputs = random_layer_inputs(layer, 1, T, spec.seed);
      AnyLayerState state = layer.initial_state();
      state.set_position(0, start);
      const LayerOutputs outputs = prefill(layer, inputs, state);
      const bool is_mamba2 = std::holds_alternative<Mamba2LayerConfig>(spec.config);
      const Answer answer = is_mamba2 ? mamba2(spec, rows_of(inputs.x), start)
                                      : rwkv7(spec, rows_of(inputs.x), rows_of(inputs.v_first), start);
      const double tolerance = single ? 2e-5 : 1e-12;
      CHECK(difference(outputs.y, tensor_of(answer.y), tolerance) == "");
      for (std::size_t h = 0; h < answer.states.size(); ++h) {
        const Eigen::MatrixXd& S = answer.states[h];
        const double error = (state.matrix(0, static_cast<Index>(h)) - S).cwiseAbs().maxCoeff();
        CHECK(error <= tolerance * S.cwiseAbs().maxCoeff());
      }
      if (!is_mamba2) CHECK(difference(outputs.v_first, tensor_of(answer.v_first), tolerance) == "");
    }
}

}  // namespace

TEST_CASE("Mamba2Layer equals plain loops, with every option") {
  const Mamba2LayerConfig plain{
      .width = 11, .heads = 4, .head_dim = 3, .state_size = 5, .groups = 2, .conv_width = 4};
  std::uint64_t seed = 10;
  const auto check = [&](const char* name, auto change, bool extras = false) {
    Mamba2LayerConfig config = plain;
    change(config);
    for (const bool post : {false, true}) check_layer({name, config, post, extras, false, ++seed});
  };
  check("plain", [](Mamba2LayerConfig&) {});
  check(
      "biases and wide D", [](Mamba2LayerConfig&) {}, true);
  check("MLP beside it", [](Mamba2LayerConfig& c) { c.mlp_width = 7; });
  check(
      "MLP wider than all the rest, biases", [](Mamba2LayerConfig& c) { c.mlp_width = 70; }, true);
  check("norm before gate", [](Mamba2LayerConfig& c) { c.norm_before_gate = true; });
  check("norm in groups", [](Mamba2LayerConfig& c) { c.norm_groups = 3; });
  check("norm in groups before gate",
        [](Mamba2LayerConfig& c) { c.norm_groups = 4, c.norm_before_gate = true, c.norm_eps = 0.1; });
  check("no norm, MLP", [](Mamba2LayerConfig& c) { c.gated_norm = false, c.mlp_width = 3; });
  check("limits of dt", [](Mamba2LayerConfig& c) { c.dt_min = 0.3, c.dt_max = 0.7; });
  check("short window", [](Mamba2LayerConfig& c) { c.conv_width = 2; });
  check("no window", [](Mamba2LayerConfig& c) { c.conv_width = 1; });
  check("a group for each head", [](Mamba2LayerConfig& c) { c.groups = 4; });
}

TEST_CASE("RWKV7TimeMix equals plain loops: V other than K, an epsilon of kk, first layer or not") {
  std::uint64_t seed = 50;
  for (const bool first : {false, true})
    for (const bool post : {false, true})
      for (const double kk_eps : {0.0, 1e-6, 0.5})
        for (const auto& [key, value] : std::vector<std::array<Index, 2>>{{5, 5}, {7, 3}, {3, 17}})
          check_layer({message(first ? "first" : "later", post ? ", PoST" : "", ", K ", key, ", V ", value,
                               ", eps ", kk_eps),
                       RWKV7TimeMixConfig{.width = 13,
                                          .heads = 2,
                                          .key = key,
                                          .value = value,
                                          .first_layer = first,
                                          .norm_eps = kk_eps > 0 ? 0.1 : 64e-5,
                                          .kk_eps = kk_eps},
                       post, false, false, ++seed});
}

}  // namespace linrec::test::truth_test
