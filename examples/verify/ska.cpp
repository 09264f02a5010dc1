// SKA in its three ways of seeing the past, and the estimate of the spectral norm.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "kernels.hpp"
#include "linrec/ska/diagnostics.hpp"
#include "linrec/ska/retrieval.hpp"
#include "splits.hpp"
#include "state_values.hpp"

namespace linrec::verify {

namespace {

/// The tensors of a case, in the order [B, T, H, ...].
template <class Scalar>
class SkaCase {
 public:
  using Attention = SpectralKoopmanAttention<Scalar>;

  explicit SkaCase(GoldenCase& file)
      : file_(file), batch_(file.extent("z", 0, 4)), tokens_(file.extent("z", 1, 4)) {
    config_.heads = file.extent("z", 2, 4);
    config_.key = file.extent("z", 3, 4);
    config_.value = file.extent("v", 3, 4);
    file.check_size("B", batch_);
    file.check_size("T", tokens_);
    file.check_size("H", config_.heads);
    file.check_size("r", config_.key);
    file.check_size("P", config_.value);
    file.check_convention("power_iterations", std::to_string(spectral_norm_steps));
    config_.ridge = file.number("ridge_eps");
    config_.power = static_cast<Index>(file.count_or("power_K", config_.power));
    config_.eta = scalar("eta");
    config_.gamma = scalar("gamma");
    const std::string form = file.has_option("operator") ? file.text("operator") : "whitened";
    if (form != "whitened" && form != "minv") throw Unknown(message("option 'operator': '", form, "'"));
    if (form == "minv") config_.koopman_operator = KoopmanOperator::unwhitened;
    z_ = numbers("z", config_.key, "[B, T, H, r]");
    zq_ = numbers("zq", config_.key, "[B, T, H, r]");
    v_ = numbers("v", config_.value, "[B, T, H, P]");
  }

  GoldenCase& file() const { return file_; }
  Index batch() const { return batch_; }
  Index tokens() const { return tokens_; }
  SpectralKoopmanAttentionConfig& config() { return config_; }

  /// m_t [B, T], which all heads share.
  void read_mask() { weights_ = file_.input("mask", {batch_, tokens_}, "[B, T]").template to<Scalar>(); }

  SpectralKoopmanAttentionInputs<Scalar> slice(Index first, Index count) const {
    const Index h = config_.heads;
    const auto view = [&](const std::vector<Scalar>& numbers, Index heads, Index dim) {
      return TokenView(numbers.data(), batch_, tokens_, heads, dim).slice(first, count);
    };
    SpectralKoopmanAttentionInputs<Scalar> inputs{view(zq_, h, config_.key), view(z_, h, config_.key),
                                                  view(v_, h, config_.value)};
    if (!weights_.empty()) inputs.weights = view(weights_, 1, 1);
    return inputs;
  }

  SkaState initial_state(const Attention& attention) const {
    SkaState state = attention.initial_state(batch_);
    if (file_.has_input("state.G")) set_state(state);
    return state;
  }

  /// The scale is known beforehand: the longest key of the whole sequence, whatever its weight.
  void look_ahead(SkaState& state) const {
    const TokenView keys(z_.data(), batch_, tokens_, config_.heads, config_.key);
    for (Index b = 0; b < batch_; ++b)
      for (Index h = 0; h < config_.heads; ++h)
        for (Index t = 0; t < tokens_; ++t)
          state.raise_max_norm(b, h, keys.at(b, t, h).template cast<double>().norm());
  }

  /// run(split, state, y) goes through a sequence; `finish` adds more outputs.
  template <class Run, class Finish>
  Results run(const SkaState& start, const Request& request, Run&& run, Finish&& finish) const {
    file_.check_all_inputs_read();
    Results results;
    for (const Way way : request.ways) {
      results.push_back({way, {}});
      for (const Split& split : splits_of(way, tokens_, request.seed)) {
        std::vector<Scalar> y(static_cast<std::size_t>(batch_ * tokens_ * config_.heads * config_.value),
                              std::numeric_limits<Scalar>::quiet_NaN());
        const TokenView<Scalar> to(y.data(), batch_, tokens_, config_.heads, config_.value);
        SkaState state = start;
        run(split, state, to);
        Outputs& outputs = results.back().runs.emplace_back();
        outputs["y"] = {{batch_, tokens_, config_.heads, config_.value},
                        std::vector<double>(y.begin(), y.end())};
        finish(state, outputs);
      }
    }
    return results;
  }

  /// Two outputs [B, fits, H], from every fit that a read used: the estimate of sigma and its true value.
  /// fit(i, b, h) gives the fit i, prepared, or null where there was none yet.
  class Sigmas {
   public:
    Sigmas(const SkaCase& in, Index fits)
        : estimate_{{in.batch_, fits, in.config_.heads}, {}}, exact_(estimate_), config_(in.config_) {
      const auto size = static_cast<std::size_t>(in.batch_ * fits * in.config_.heads);
      estimate_.numbers.assign(size, 0);
      exact_.numbers.assign(size, 0);
    }
    void add(Index b, Index fit_number, Index h, SkaFit& fit) {
      const auto i = static_cast<std::size_t>((b * estimate_.shape[1] + fit_number) * config_.heads + h);
      AlignedVector<double> scratch(static_cast<std::size_t>(3 * padded<double>(config_.key)));
      fit.prepare(config_.ridge, config_.ridge, scratch.data());
      estimate_.numbers[i] = fit.sigma(config_.koopman_operator, scratch.data());
      exact_.numbers[i] =
          largest_singular_value(koopman_matrix(fit.statistics(), config_.ridge, config_.koopman_operator));
    }
    void put(Outputs& outputs) const {
      outputs["sigma"] = estimate_;
      outputs["sigma_svd"] = exact_;
    }

   private:
    Values estimate_, exact_;
    const SpectralKoopmanAttentionConfig& config_;
  };

 private:
  double scalar(const char* name) { return file_.input(name, {}, "[]").template to<double>().front(); }
  std::vector<Scalar> numbers(const char* name, Index dim, const char* letters) {
    return file_.input(name, {batch_, tokens_, config_.heads, dim}, letters).template to<Scalar>();
  }

  void set_state(SkaState& state) const {
    using Matrix = SkaStatistics::Matrix;
    const Index h = config_.heads, r = config_.key, p = config_.value;
    const auto read = [&](const char* name, const std::vector<Index>& shape, const char* letters) {
      return file_.input(name, shape, letters).template to<double>();
    };
    const auto g = read("state.G", {batch_, h, r, r}, "[B, H, r, r]");
    const auto m = read("state.M", {batch_, h, r, r}, "[B, H, r, r]");
    const auto c = read("state.C", {batch_, h, p, r}, "[B, H, P, r]");
    const auto last = read("state.z_last", {batch_, h, r}, "[B, H, r]");
    const auto norms = read("state.max_norm", {batch_, h}, "[B, H]");
    const std::int64_t position = file_.count_or("warm_tokens", 1);
    for (Index b = 0; b < batch_; ++b) {
      state.set_position(b, position);
      for (Index i = 0; i < h; ++i) {
        const Index head = b * h + i;
        SkaStatistics sums(r, p, config_.key_scale);
        sums.set(Eigen::Map<const Matrix>(g.data() + head * r * r, r, r),
                 Eigen::Map<const Matrix>(m.data() + head * r * r, r, r),
                 Eigen::Map<const Matrix>(c.data() + head * p * r, p, r),
                 Eigen::Map<const Eigen::VectorXd>(last.data() + head * r, r),
                 norms[static_cast<std::size_t>(head)], position);
        state.set_statistics(b, i, sums);
      }
    }
  }

  GoldenCase& file_;
  Index batch_, tokens_;
  SpectralKoopmanAttentionConfig config_;
  std::vector<Scalar> z_, zq_, v_, weights_;
};

/// The option norm_scope: whether it asks to look ahead.
bool looks_ahead(const GoldenCase& file, const char* causal) {
  const std::string scope = file.has_option("norm_scope") ? file.text("norm_scope") : causal;
  if (scope != "sequence" && scope != causal) throw Unknown(message("option 'norm_scope': '", scope, "'"));
  return scope == "sequence";
}

}  // namespace

/// One fit from the tokens that the mask keeps, read by all.
template <class Scalar>
Results run_ska_prefix(GoldenCase& file, const Request& request) {
  SkaCase<Scalar> in(file);
  in.read_mask();
  const SpectralKoopmanAttention<Scalar> attention(in.config());
  SkaState start = in.initial_state(attention);
  if (looks_ahead(file, "prefix")) in.look_ahead(start);
  return in.run(
      start, request,
      [&](const Split& split, SkaState& state, const TokenView<Scalar>& y) {
        for_each_call(
            split, [&](Index first, Index n) { attention.absorb(in.slice(first, n), state); },
            [&](Index t) { attention.absorb(in.slice(t, 1), state); });
        const auto read = [&](Index first, Index n) {
          attention.retrieve(in.slice(first, n).q, state, y.slice(first, n));
        };
        for_each_call(split, read, [&](Index t) { read(t, 1); });
      },
      [&](SkaState& state, Outputs& outputs) {
        typename SkaCase<Scalar>::Sigmas sigmas(in, 1);
        for (Index b = 0; b < in.batch(); ++b)
          for (Index h = 0; h < in.config().heads; ++h) sigmas.add(b, 0, h, state.now(b, h));
        sigmas.put(outputs);
        for (const char* name : {"sigma", "sigma_svd"}) outputs[name].shape = {in.batch(), in.config().heads};
      });
}

/// Token by token, also in its batch call.
template <class Scalar>
Results run_causal(SkaCase<Scalar>& in, const Request& request, bool look_ahead) {
  const SpectralKoopmanAttention<Scalar> attention(in.config());
  SkaState start = in.initial_state(attention);
  if (look_ahead) in.look_ahead(start);

  const Index chunk = attention.state_shape().chunk, every = chunk > 0 ? chunk : 1;
  typename SkaCase<Scalar>::Sigmas sigmas(in, (in.tokens() + every - 1) / every);
  const auto pass = [&](const auto& slice, SkaState& state, const TokenView<Scalar>& y) {
    attention.validate(slice, state, y);
    attention.step(slice, state, y);
  };
  SkaState state = start;
  std::vector<Scalar> unused(static_cast<std::size_t>(in.batch() * in.config().heads * in.config().value));
  const TokenView<Scalar> y(unused.data(), in.batch(), 1, in.config().heads, in.config().value);
  const auto add = [&](Index i) {
    for (Index b = 0; b < in.batch(); ++b)
      for (Index h = 0; h < in.config().heads; ++h)
        sigmas.add(b, i, h, chunk > 0 ? state.past(b, h) : state.now(b, h));
  };
  for (Index t = 0; t < in.tokens(); ++t) {
    const bool before = in.config().visibility == Visibility::exclusive;
    if (before) add(t);
    pass(in.slice(t, 1), state, y);
    if (!before && t % every == 0) add(t / every);
  }

  return in.run(
      start, request,
      [&](const Split& split, SkaState& s, const TokenView<Scalar>& to) {
        for_each_call(
            split,
            [&](Index first, Index n) { attention.prefill(in.slice(first, n), s, to.slice(first, n)); },
            [&](Index t) { pass(in.slice(t, 1), s, to.slice(t, 1)); });
      },
      [&](const SkaState& s, Outputs& outputs) {
        sigmas.put(outputs);
        if (chunk == 0) add_sums(s, "state.", outputs);
      });
}

template <class Scalar>
Results run_ska_streaming(GoldenCase& file, const Request& request) {
  SkaCase<Scalar> in(file);
  const bool inclusive = file.flag_or("inclusive", true);
  file.check_convention("order", inclusive ? "absorb then read" : "read then absorb");
  in.config().visibility = inclusive ? Visibility::inclusive : Visibility::exclusive;
  return run_causal(in, request, false);
}

template <class Scalar>
Results run_ska_chunk(GoldenCase& file, const Request& request) {
  SkaCase<Scalar> in(file);
  in.config().visibility = Visibility::earlier_chunks;
  in.config().chunk = static_cast<Index>(file.count("chunk"));
  in.config().boundary_transition = file.flag_or("boundary_transition", false);
  return run_causal(in, request, looks_ahead(file, "past"));
}

template <class Scalar>
Results run_spectral_normalise(GoldenCase& file, const Request&) {
  const Index n = file.extent("A", 0, 3), r = file.extent("A", 1, 3), stride = padded<double>(r);
  file.check_size("n", n);
  file.check_size("r", r);
  file.check_convention("power_iterations", std::to_string(spectral_norm_steps));
  file.check_convention("start", "ones/sqrt(r)");
  file.check_convention("floor", "1e-08");
  file.check_convention("scale", "max(sigma, 1)");
  const std::vector<double> a = file.input("A", {n, r, r}, "[n, r, r]").template to<double>();
  file.check_all_inputs_read();
  Values normalised{{n, r, r}, {}}, estimate{{n}, {}}, exact{{n}, {}};
  AlignedVector<double> rows(static_cast<std::size_t>(r * stride)),
      scratch(static_cast<std::size_t>(2 * stride));
  for (Index i = 0; i < n; ++i) {
    const Eigen::Map<const SkaStatistics::Matrix> matrix(a.data() + i * r * r, r, r);
    for (Index row = 0; row < r; ++row)
      std::copy_n(a.data() + (i * r + row) * r, r, rows.data() + row * stride);
    const double sigma = estimate_spectral_norm(
        r, scratch.data(), [&](const double* x, double* y) { detail::multiply(rows.data(), r, r, x, y); },
        [&](const double* x, double* y) { detail::multiply_transposed(rows.data(), r, r, x, y); });
    estimate.numbers.push_back(static_cast<Scalar>(sigma));
    exact.numbers.push_back(static_cast<Scalar>(largest_singular_value(matrix)));
    for (const double x : matrix.reshaped<Eigen::RowMajor>())
      normalised.numbers.push_back(static_cast<Scalar>(x / std::max(sigma, 1.0)));
  }
  return {{Way::map, {{{"A_normalised", normalised}, {"sigma", estimate}, {"sigma_svd", exact}}}}};
}

template Results run_ska_prefix<float>(GoldenCase&, const Request&);
template Results run_ska_prefix<double>(GoldenCase&, const Request&);
template Results run_ska_streaming<float>(GoldenCase&, const Request&);
template Results run_ska_streaming<double>(GoldenCase&, const Request&);
template Results run_ska_chunk<float>(GoldenCase&, const Request&);
template Results run_ska_chunk<double>(GoldenCase&, const Request&);
template Results run_spectral_normalise<float>(GoldenCase&, const Request&);
template Results run_spectral_normalise<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
