// SKA: a step (take in a token, answer its query) and a query alone, for one head, against refitting at every
// token with Eigen. Names are SKA/WHAT/r/P. The growth exponent in r is between the times of two sizes:
// log(t2 / t1) / log(r2 / r1).
#include <Eigen/Cholesky>

#include "harness.hpp"
#include "linrec/ska/retrieval.hpp"

namespace linrec::bench {

namespace {

constexpr Index values = 64, tokens = 1024;

/// Tokens of one head, again and again. After the first round the longest key has been seen.
class Stream {
 public:
  explicit Stream(Index rank)
      : q_(tensors_.uniform(tokens, 1, rank, -1, 1)),
        k_(tensors_.uniform(tokens, 1, rank, -1, 1)),
        v_(tensors_.uniform(tokens, 1, values, -1, 1)) {}

  SpectralKoopmanAttentionInputs<float> all() const { return {q_, k_, v_}; }
  SpectralKoopmanAttentionInputs<float> next() {
    t_ = (t_ + 1) % tokens;
    return {q_.slice(t_, 1), k_.slice(t_, 1), v_.slice(t_, 1)};
  }

 private:
  Tensors<float> tensors_;
  TokenView<const float> q_, k_, v_;
  Index t_ = -1;
};

SpectralKoopmanAttention<float> attention(Index rank) {
  return SpectralKoopmanAttention<float>({.key = rank, .value = values});
}

void step(benchmark::State& run, Index rank) {
  Stream stream(rank);
  const auto ska = attention(rank);
  SkaState state = ska.initial_state();
  ska.absorb(stream.all(), state);
  std::vector<float> out(static_cast<std::size_t>(values));
  const TokenView<float> y(out.data(), 1, 1, 1, values);
  for (auto _ : run) {
    ska.step(stream.next(), state, y);
    benchmark::ClobberMemory();
  }
}

void query(benchmark::State& run, Index rank) {
  Stream stream(rank);
  const auto ska = attention(rank);
  SkaState state = ska.initial_state();
  ska.absorb(stream.all(), state);
  std::vector<float> out(static_cast<std::size_t>(tokens * values));
  const TokenView<float> y(out.data(), 1, tokens, 1, values);
  Workspace workspace;
  for (auto _ : run) {
    ska.retrieve(stream.all().q, state, y, {.workspace = &workspace});
    benchmark::ClobberMemory();
  }
  run.SetItemsProcessed(run.iterations() * tokens);
}

/// The same step with G, M and Cv in Eigen's matrices and a factorisation at every token.
/// @param as_published form A_w, its spectral norm by six power iterations and its powers, and Cv G~^-1;
///   otherwise only the factorisation is more than what our step does.
void refit(benchmark::State& run, Index rank, bool as_published) {
  Stream stream(rank);
  const Index r = rank;
  Eigen::MatrixXd g = Eigen::MatrixXd::Zero(r, r), m = g, c = Eigen::MatrixXd::Zero(values, r);
  Eigen::MatrixXd regularised(r, r), a(r, r), b(values, r);
  Eigen::VectorXd z(r), last = Eigen::VectorXd::Zero(r), u(r), x(r), w(r), v(values);
  Eigen::LLT<Eigen::MatrixXd> cholesky(r);
  double longest = 0;
  for (auto _ : run) {
    const auto in = stream.next();
    z = in.k.at(0, 0, 0).cast<double>();
    u = in.q.at(0, 0, 0).cast<double>();
    v = in.v.at(0, 0, 0).cast<double>();
    longest = std::max(longest, z.norm());
    g.noalias() += z * z.transpose();
    m.noalias() += z * last.transpose();
    c.noalias() += v * z.transpose();
    last = z;
    regularised = g;
    regularised.diagonal().array() += 1e-3 * longest * longest;
    cholesky.compute(regularised);
    const auto l = cholesky.matrixL();
    x = l.solve(u);
    if (as_published) {
      a = l.solve(m);
      a = l.solve(a.transpose()).transpose();
      w.setConstant(1 / std::sqrt(static_cast<double>(r)));
      double sigma = 0;
      for (int i = 0; i < 6; ++i) {
        w = (a.transpose() * (a * w)).normalized();
        sigma = (a * w).norm();
      }
      a /= std::max(1.0, sigma);
      b = cholesky.solve(c.transpose()).transpose();
      v = b * (l * (a * (a * x)));
    } else {
      for (int k = 0; k < 2; ++k) {
        w = cholesky.matrixU().solve(x);
        x.noalias() = m * w;
        l.solveInPlace(x);
      }
      w = cholesky.matrixU().solve(x);
      v.noalias() = c * w;
    }
    benchmark::DoNotOptimize(v.data());
    benchmark::ClobberMemory();
  }
}

}  // namespace

void add_ska() {
  const auto add = [](const char* what, Index rank, auto f) {
    benchmark::RegisterBenchmark(message("SKA/", what, "/", rank, "/", values).c_str(), f)
        ->Unit(benchmark::kMicrosecond);
  };
  for (const Index rank : {24, 48, 64, 128}) {
    add("step", rank, [rank](benchmark::State& run) { step(run, rank); });
    add("query", rank, [rank](benchmark::State& run) { query(run, rank); });
    add("refit", rank, [rank](benchmark::State& run) { refit(run, rank, false); });
    add("refit_published", rank, [rank](benchmark::State& run) { refit(run, rank, true); });
  }
}

}  // namespace linrec::bench
