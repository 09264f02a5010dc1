// The factor of G~ and what is derived from it: updates, ridges that are lost, the spectral norm,
// diagnostics.
#include "linrec/ska/diagnostics.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/ska/attention.hpp"

namespace linrec::test::factor_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

AlignedVector<double> padded_row(const Eigen::VectorXd& x) {
  AlignedVector<double> row(static_cast<std::size_t>(padded<double>(x.size())), 0.0);
  std::copy_n(x.data(), x.size(), row.data());
  return row;
}
AlignedVector<double> scratch(Index r) {
  return AlignedVector<double>(static_cast<std::size_t>(8 * padded<double>(r)));
}

/// A token without a value that matters.
void add(SkaStatistics& statistics, const Eigen::VectorXd& key, double weight = 1) {
  const Eigen::VectorXd value = Eigen::VectorXd::Ones(statistics.value());
  statistics.add(std::span(key.data(), static_cast<std::size_t>(key.size())),
                 std::span(value.data(), static_cast<std::size_t>(value.size())), weight);
}
void add(SkaFit& fit, const Eigen::VectorXd& key, double weight = 1) {
  AlignedVector<double> z = padded_row(key), v = padded_row(Eigen::VectorXd::Ones(fit.statistics().value())),
                        rest = scratch(key.size());
  fit.absorb(z.data(), v.data(), weight, rest.data());
}
void update(CholeskyFactor& factor, const Eigen::VectorXd& key) {
  const AlignedVector<double> z = padded_row(key);
  factor.update(z.data(), scratch(key.size()).data());
}
bool factorize(CholeskyFactor& factor, const SkaStatistics& statistics, double eps, double largest = 0) {
  return factor.factorize(statistics, eps, std::max(eps, largest), scratch(statistics.key()).data());
}

/// Random keys of a kind.
class Keys {
 public:
  enum class Kind { random, deficient, badly_scaled };

  Keys(Kind kind, Index r, std::uint64_t seed) : kind_(kind), r_(r), random_(seed) {
    const Index rank = std::max<Index>(1, r / 2);
    basis_.resize(r, kind == Kind::deficient ? rank : r);
    for (double& number : basis_.reshaped()) number = random_.uniform(-1, 1);
  }
  Eigen::VectorXd operator()() {
    Eigen::VectorXd key = Eigen::VectorXd::Zero(r_);
    for (Index j = 0; j < basis_.cols(); ++j) key += random_.uniform(-1, 1) * basis_.col(j);
    if (kind_ == Kind::badly_scaled)
      for (Index i = 0; i < r_; ++i) key[i] *= std::pow(10.0, 4.0 * static_cast<double>(i % 3 - 1));
    return key;
  }

 private:
  Kind kind_;
  Index r_;
  Random random_;
  Eigen::MatrixXd basis_;
};

RealMatrix regularised(const CholeskyFactor& factor, const SkaStatistics& statistics) {
  RealMatrix g = statistics.G().cast<Real>();
  g.diagonal().array() += static_cast<Real>(factor.ridge());
  return g;
}
double residual(const CholeskyFactor& factor, const SkaStatistics& statistics) {
  return static_cast<double>(whitening_error(factor.inverse().cast<Real>(), regularised(factor, statistics)));
}

double norm_of(const SkaStatistics::Matrix& a) {
  const Index r = a.rows(), stride = padded<double>(r);
  AlignedVector<double> rows(static_cast<std::size_t>(r * stride), 0.0);
  Eigen::Map<SkaStatistics::Matrix>(rows.data(), r, stride).leftCols(r) = a;
  return estimate_spectral_norm(
      r, scratch(r).data(), [&](const double* x, double* y) { detail::multiply(rows.data(), r, r, x, y); },
      [&](const double* x, double* y) { detail::multiply_transposed(rows.data(), r, r, x, y); });
}

}  // namespace

TEST_CASE("factor: W whitens G~, made at once and updated token by token") {
  using enum Keys::Kind;
  for (const Keys::Kind kind : {random, deficient, badly_scaled})
    for (const Index r : {1, 2, 3, 7, 8, 9, 17, 33, 48, 65}) {
      INFO("kind " << static_cast<int>(kind) << ", r = " << r);
      Keys keys(kind, r, 1);
      SkaStatistics statistics(r, 1);
      statistics.raise_max_norm(1e6);
      const double eps = kind == badly_scaled ? 1e-12 : 1e-15;  // ridges of 1 and 1e-3
      CholeskyFactor updated(r), fresh(r);
      REQUIRE(factorize(updated, statistics, eps));
      for (int t = 0; t < 70; ++t) {
        const Eigen::VectorXd key = keys();
        add(statistics, key);
        update(updated, key);
      }
      REQUIRE(factorize(fresh, statistics, eps));
      CHECK(updated.ready());
      CHECK(updated.ridge() == fresh.ridge());
      CHECK(updated.ridge() == Approx(eps * 1e12).epsilon(1e-15));
      CHECK(updated.eps() == eps);
      // The entries of W differ by as much as they are sensitive to G~; what they make of it does not.
      const double tolerance = kind == badly_scaled ? 1e-6 : 1e-9;
      CHECK(residual(fresh, statistics) < tolerance);
      CHECK(residual(updated, statistics) < tolerance);
      const SkaStatistics::Matrix expected = whitening(regularised(fresh, statistics)).cast<double>();
      const double largest = expected.cwiseAbs().maxCoeff();
      for (const CholeskyFactor* factor : {&fresh, &updated}) {
        const SkaStatistics::Matrix w = factor->inverse();
        CHECK((w - expected).cwiseAbs().maxCoeff() < tolerance * largest);
        for (Index i = 0; i < r; ++i)
          if (!w.row(i).tail(r - i - 1).isZero(0)) FAIL_CHECK("row " << i << " goes beyond the diagonal");
      }
    }
}

TEST_CASE("factor: solves with L and its transpose") {
  constexpr Index r = 11;
  Keys keys(Keys::Kind::random, r, 2);
  SkaStatistics statistics(r, 1);
  for (int t = 0; t < 20; ++t) add(statistics, keys());
  CholeskyFactor factor(r);
  REQUIRE(factorize(factor, statistics, 1e-3));
  const Eigen::VectorXd x = keys();
  const AlignedVector<double> from = padded_row(x);
  AlignedVector<double> to = padded_row(x);
  factor.whiten(from.data(), to.data());
  const SkaStatistics::Matrix w = factor.inverse();
  for (Index i = 0; i < r; ++i)
    CHECK(to[static_cast<std::size_t>(i)] == Approx(w.row(i).dot(x)).epsilon(1e-12).margin(1e-12));
  for (std::size_t i = r; i < to.size(); ++i) CHECK(to[i] == 0);
  factor.whiten_transposed(from.data(), to.data());
  for (Index i = 0; i < r; ++i)
    CHECK(to[static_cast<std::size_t>(i)] == Approx(w.col(i).dot(x)).epsilon(1e-12).margin(1e-12));
  for (std::size_t i = r; i < to.size(); ++i) CHECK(to[i] == 0);
}

TEST_CASE("factor: a factor that does not belong to G any more is noticed") {
  constexpr Index r = 5;
  Keys keys(Keys::Kind::random, r, 3);
  SkaStatistics statistics(r, 1, KeyScale::none);
  for (int t = 0; t < 10; ++t) add(statistics, keys());
  CholeskyFactor factor(r);
  REQUIRE(factorize(factor, statistics, 1e-3));
  for (Index i = 1; i < CholeskyFactor::check_interval; ++i) {
    const Eigen::VectorXd key = keys();
    update(factor, key);
    add(statistics, key);
    CHECK(!factor.drifted(statistics, scratch(r).data()));  // not yet time to look
  }
  const Eigen::VectorXd key = keys();
  update(factor, key * 1.0001);
  add(statistics, key);
  CHECK(factor.drifted(statistics, scratch(r).data()));
  // Once looked at, it is not looked at again before the next interval is over.
  update(factor, key);
  CHECK(!factor.drifted(statistics, scratch(r).data()));
}

TEST_CASE("factor: one that has drifted is made anew, however reads and tokens fall") {
  constexpr Index r = 16;  // two updates between reads
  for (const int first : {0, 1})
    for (const int between : {1, 2}) {
      INFO(first << ", then " << between);
      Keys keys(Keys::Kind::random, r, 4);
      SkaFit fit(r, 1, KeyScale::none);
      for (int t = 0; t < 20; ++t) add(fit, keys());
      REQUIRE(fit.prepare(1e-3, 1e-3, scratch(r).data()));
      update(fit.factor(), 0.01 * keys());  // a token that G has not seen
      CHECK(residual(fit.factor(), fit.statistics()) > 1e-6);
      for (int t = 0; t < first; ++t) add(fit, keys());
      REQUIRE(fit.prepare(1e-3, 1e-3, scratch(r).data()));
      for (Index t = 0; t < 2 * CholeskyFactor::check_interval; t += between) {
        for (int i = 0; i < between; ++i) add(fit, keys());
        REQUIRE(fit.prepare(1e-3, 1e-3, scratch(r).data()));
      }
      CHECK(residual(fit.factor(), fit.statistics()) < 1e-11);
    }
}

TEST_CASE("factor: it follows a token or few, and waits for the next read after many") {
  constexpr Index r = 32;
  Keys keys(Keys::Kind::random, r, 5);
  SkaFit fit(r, 1, KeyScale::none);
  CHECK(!fit.factor().ready());
  REQUIRE(fit.prepare(1e-3, 1e-3, scratch(r).data()));
  add(fit, keys());
  CHECK(fit.factor().ready());
  add(fit, keys(), 0);  // changes nothing
  CHECK(fit.factor().ready());
  for (int read = 0; read < 5; ++read) {
    for (int t = 0; t < 3; ++t) add(fit, keys());
    CHECK(fit.factor().ready());
    REQUIRE(fit.prepare(1e-3, 1e-3, scratch(r).data()));
  }
  for (int t = 0; t < 100; ++t) add(fit, keys());
  CHECK(fit.factor().status() == FactorStatus::stale);
  REQUIRE(fit.prepare(1e-3, 1e-3, scratch(r).data()));
  CHECK(residual(fit.factor(), fit.statistics()) < 1e-11);
  // Another eps asks for another factor.
  REQUIRE(fit.prepare(1e-2, 1e-2, scratch(r).data()));
  CHECK(fit.factor().ridge() == 1e-2);
}

TEST_CASE("factor: a maximum that moves makes it anew with its ridge") {
  SkaFit fit(2, 1, KeyScale::sequence_max);
  add(fit, Eigen::Vector2d(3, 4));
  REQUIRE(fit.prepare(1e-3, 1e-3, scratch(2).data()));
  CHECK(fit.factor().ridge() == 1e-3 * 25);
  add(fit, Eigen::Vector2d(4, 3));
  CHECK(fit.factor().ready());
  add(fit, Eigen::Vector2d(0, 10));
  CHECK(!fit.factor().ready());
  REQUIRE(fit.prepare(1e-3, 1e-3, scratch(2).data()));
  CHECK(fit.factor().ridge() == 1e-3 * 100);
  CHECK(residual(fit.factor(), fit.statistics()) < 1e-13);
}

TEST_CASE("factor: a ridge that is lost to rounding is reported, or grows as far as it may") {
  SkaStatistics statistics(2, 1, KeyScale::none);
  add(statistics, Eigen::Vector2d(1e9, 1e9));
  CholeskyFactor factor(2);
  CHECK(!factorize(factor, statistics, 1));
  CHECK(factor.status() == FactorStatus::not_positive_definite);
  CHECK(!factor.ready());
  CHECK(!factorize(factor, statistics, 1, 100));
  CHECK(factor.status() == FactorStatus::not_positive_definite);
  CHECK(factorize(factor, statistics, 1, 1e6));
  CHECK(factor.status() == FactorStatus::ready);
  CHECK(factor.ridge() == 1000);
  CHECK(factor.eps() == 1);
  CHECK(factorize(factor, statistics, 1, 500));  // the last step is shorter
  CHECK(factor.ridge() == 500);
  // Where it is not lost, it does not grow.
  SkaStatistics smaller(2, 1, KeyScale::none);
  add(smaller, Eigen::Vector2d(1e4, 1e4));
  CHECK(factorize(factor, smaller, 1, 1e6));
  CHECK(factor.ridge() == 1);
}

TEST_CASE("factor: what rounding leaves of a ridge is half of it at least") {
  constexpr Index r = 8;
  int made = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Keys keys(Keys::Kind::deficient, r, seed);
    SkaStatistics statistics(r, 1, KeyScale::none);
    for (int t = 0; t < 20; ++t) add(statistics, keys());
    const double largest = statistics.G().diagonal().maxCoeff();
    CholeskyFactor factor(r);
    if (!factorize(factor, statistics, 4e-16 * largest)) {
      CHECK(factor.status() == FactorStatus::not_positive_definite);
      ++refused;
      continue;
    }
    ++made;  // the diagonal of W is 1 / sqrt(pivot)
    const double smallest_pivot = std::pow(factor.inverse().diagonal().maxCoeff(), -2.0);
    CHECK(smallest_pivot >= 0.5 * factor.ridge() * (1 - 1e-12));
  }
  CHECK(made > 0);
  CHECK(refused > 0);
}

TEST_CASE("factor: sums that are not finite are reported") {
  for (const Index entry : {0, 8, 9}) {  // G(0, 0), G(1, 0), G(1, 1)
    for (const double bad : {nan, std::numeric_limits<double>::infinity()}) {
      SkaStatistics statistics(2, 1);
      add(statistics, Eigen::Vector2d(1, 2));
      statistics.g()[entry] = bad;
      CholeskyFactor factor(2);
      CHECK(!factorize(factor, statistics, 1e-3, 1));
      CHECK(factor.status() == FactorStatus::not_finite);
    }
  }
}

TEST_CASE("spectral norm: zero, tiny and diagonal matrices, and the identity") {
  using Matrix = SkaStatistics::Matrix;
  CHECK(norm_of(Matrix::Zero(3, 3)) == 0);
  CHECK(norm_of(Matrix::Identity(7, 7)) == Approx(1).epsilon(1e-15));
  CHECK(norm_of(Matrix::Identity(7, 7) * 1e-30) <= 1e-8);
  CHECK(norm_of(Matrix::Constant(1, 1, -3)) == Approx(3).epsilon(1e-15));
  CHECK(norm_of(Eigen::Vector3d(1, 100, 2).asDiagonal()) == Approx(100).epsilon(1e-15));
  CHECK(norm_of(Matrix::Identity(3, 3) * 1e120) == Approx(1e120).epsilon(1e-15));
}

TEST_CASE("spectral norm: ones in the null space, and in that of the transpose") {
  using Matrix = SkaStatistics::Matrix;
  const Matrix a{{0, 0, 0}, {0, 5, -5}, {0, 0, 0}};  // its first row is zero, too
  CHECK(norm_of(a) == Approx(std::sqrt(50)).epsilon(1e-14));
  CHECK(norm_of(a.transpose()) == Approx(std::sqrt(50)).epsilon(1e-14));
  CHECK(norm_of(Matrix{{1, -1}, {-1, 1}}) == Approx(2).epsilon(1e-14));
}

TEST_CASE("spectral norm: the six steps of the reference, from below, the same every time") {
  Random random(6);
  for (const Index r : {1, 2, 3, 8, 9, 20, 48})
    for (int i = 0; i < 4; ++i) {
      SkaStatistics::Matrix a(r, r);
      for (double& x : a.reshaped()) x = random.uniform(-1, 1);
      const double sigma = norm_of(a), exact = largest_singular_value(Eigen::MatrixXd(a));
      CHECK(sigma == Approx(static_cast<double>(power_iteration(a.cast<Real>()))).epsilon(1e-12));
      CHECK(sigma <= exact * (1 + 1e-12));
      CHECK(sigma > 0.8 * exact);
      CHECK(same_bits(sigma, norm_of(a)));
    }
}

TEST_CASE("sigma: keys that hide the operator from a start of ones") {
  // Keys orthogonal to ones, and to each other: M G~^-1 = b a^T / (|a|^2 + ridge), which maps ones to 0.
  const Eigen::Vector3d a = 0.0625 * Eigen::Vector3d(1, -1, 0), b(1, 1, -2);
  SkaFit fit(3, 1, KeyScale::none);
  add(fit, a);
  add(fit, b);
  REQUIRE(fit.prepare(1e-3, 1e-3, scratch(3).data()));
  const double expected = b.norm() * a.norm() / (a.squaredNorm() + 1e-3);
  REQUIRE(expected > 10);
  CHECK(fit.sigma(KoopmanOperator::unwhitened, scratch(3).data()) == Approx(expected).epsilon(1e-12));
  // It is kept, for each form, and forgotten with the next token.
  const double whitened =
      a.norm() * b.norm() / std::sqrt((a.squaredNorm() + 1e-3) * (b.squaredNorm() + 1e-3));
  CHECK(fit.sigma(KoopmanOperator::whitened, scratch(3).data()) == Approx(whitened).epsilon(1e-12));
  CHECK(fit.sigma(KoopmanOperator::unwhitened, scratch(3).data()) == Approx(expected).epsilon(1e-12));
  add(fit, b);
  REQUIRE(fit.prepare(1e-3, 1e-3, scratch(3).data()));
  CHECK(fit.sigma(KoopmanOperator::unwhitened, scratch(3).data()) ==
        Approx(largest_singular_value(koopman_matrix(fit.statistics(), 1e-3, KoopmanOperator::unwhitened)))
            .epsilon(1e-6));
}

TEST_CASE("sigma of the whitened operator is never above 1") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed);
    const Index r = random.integer(1, 12);
    Keys keys(seed % 2 == 0 ? Keys::Kind::random : Keys::Kind::deficient, r, seed);
    SkaStatistics statistics(r, 1);
    Eigen::VectorXd previous = Eigen::VectorXd::Ones(r);
    for (int t = 0; t < 400; ++t) {
      // Sizes that jump, weights from 0 to 1, and keys that repeat or turn around the one before.
      const double size = std::exp(random.uniform(-4, 4));
      const Index kind = random.integer(0, 3);
      Eigen::VectorXd key = size * keys();
      if (kind < 2) key = kind == 0 ? previous : -previous;
      add(statistics, key, random.integer(0, 2) == 0 ? random.uniform(0, 1) : 1);
      previous = key;
      if (t % 7 > 0) continue;
      for (const double eps : {1e-2, 1e-4}) {
        const double sigma =
            largest_singular_value(koopman_matrix(statistics, eps, KoopmanOperator::whitened));
        if (!(sigma <= 1 + 1e-12)) FAIL_CHECK("seed " << seed << ", token " << t << ": 1 + " << sigma - 1);
      }
    }
  }
  // It can come as close to 1 as it likes: one key, over and over.
  SkaStatistics constant(1, 1);
  for (int t = 0; t < 2000; ++t) add(constant, Eigen::VectorXd::Ones(1));
  CHECK(koopman_matrix(constant, 1e-6, KoopmanOperator::whitened)(0, 0) > 0.999);
}

TEST_CASE("diagnostics: the operator as a matrix") {
  Setup setup(1, 5, 1);
  const Tokens tokens = random_tokens(setup, 1, 20, 7, Weights::some);
  SkaStatistics statistics(5, 1);
  for (Index t = 0; t < 20; ++t) add(statistics, tokens.k.row(0, t, 0), tokens.weights(0, t, 0));
  for (const KoopmanOperator form : {KoopmanOperator::whitened, KoopmanOperator::unwhitened}) {
    setup.koopman_operator = form;
    const RealMatrix expected = operator_of(setup, sums_of(setup, tokens, 0, 0, 20));
    CHECK((koopman_matrix(statistics, setup.ridge, form).cast<Real>() - expected).norm() < 1e-12L);
  }
}

TEST_CASE("diagnostics: the eigenvalues of keys that turn are e^(i angle) and e^(-i angle)") {
  const double angle = 0.7;
  const Eigen::Matrix2d rotation{{std::cos(angle), -std::sin(angle)}, {std::sin(angle), std::cos(angle)}};
  Eigen::Vector2d key(1, 0);
  SkaStatistics statistics(2, 1);
  for (int t = 0; t < 10'000; ++t, key = rotation * key) add(statistics, key);
  const SkaDiagnostics d = diagnose(statistics, 1e-6);
  REQUIRE(d.eigenvalues.size() == 2);
  for (const auto& eigenvalue : d.eigenvalues) {
    CHECK(eigenvalue.real() == Approx(std::cos(angle)).epsilon(1e-3));
    CHECK(std::abs(eigenvalue.imag()) == Approx(std::sin(angle)).epsilon(1e-3));
  }
  CHECK(d.eigenvalues[0] == std::conj(d.eigenvalues[1]));
  CHECK(d.spectral_norm > 0.999);
  CHECK(d.spectral_norm <= 1 + 1e-12);
  CHECK(d.explained > 0.999);
  CHECK(d.explained <= 1);
  CHECK(d.effective_rank == Approx(2).epsilon(1e-3));
  CHECK(d.condition == Approx(1).epsilon(1e-2));
  CHECK(d.smallest_eigenvalue == Approx(5000).epsilon(1e-2));
}

TEST_CASE("diagnostics: noise explains nothing") {
  Random random(9);
  SkaStatistics statistics(4, 1);
  for (int t = 0; t < 20'000; ++t) {
    Eigen::Vector4d key;
    for (double& x : key) x = random.uniform(-1, 1);
    add(statistics, key);
  }
  const SkaDiagnostics d = diagnose(statistics, 1e-6);
  CHECK(d.explained >= 0);
  CHECK(d.explained < 0.002);
  CHECK(d.spectral_norm < 0.05);
  CHECK(d.effective_rank == Approx(4).epsilon(1e-2));
  CHECK(std::abs(d.eigenvalues[0]) >= std::abs(d.eigenvalues[3]));
}

TEST_CASE("diagnostics: keys in a subspace") {
  // Along three axes, equally often, in a space of eight: G = 100 on three of the diagonal.
  SkaStatistics statistics(8, 1);
  for (int t = 0; t < 300; ++t) add(statistics, Eigen::VectorXd::Unit(8, t % 3));
  const SkaDiagnostics d = diagnose(statistics, 0.5);
  CHECK(d.effective_rank == Approx(3).epsilon(1e-12));
  CHECK(d.smallest_eigenvalue == Approx(0.5).epsilon(1e-12));
  CHECK(d.condition == Approx(100.5 / 0.5).epsilon(1e-12));
  // Each axis follows another: M has 100, 100 and 99 off the diagonal.
  CHECK(d.spectral_norm == Approx(100 / 100.5).epsilon(1e-12));
  const double explained =
      2 * (2 * 100.0 * 100 + 99.0 * 99) / 100.5 - (2 * 100.0 * 100 + 99.0 * 99) / (100.5 * 100.5) * 100;
  CHECK(d.explained == Approx(explained / 300).epsilon(1e-12));
}

TEST_CASE("diagnostics: without keys") {
  const SkaDiagnostics d = diagnose(SkaStatistics(3, 1, KeyScale::none), 0.25);
  CHECK(d.eigenvalues.isZero(0));
  CHECK(d.spectral_norm == 0);
  CHECK(d.effective_rank == 0);
  CHECK(d.explained == 0);
  CHECK(d.condition == 1);
  CHECK(d.smallest_eigenvalue == 0.25);
}

TEST_CASE("diagnostics: what they refuse") {
  SkaStatistics statistics(2, 1, KeyScale::none);
  for (const double bad : {0.0, -1.0, nan}) {
    const std::string text = message("ValueError: eps: expected a number above 0, got ", bad);
    CHECK(error_of([&] { diagnose(statistics, bad); }) == text);
    CHECK(error_of([&] { koopman_matrix(statistics, bad, KoopmanOperator::whitened); }) == text);
  }
  add(statistics, Eigen::Vector2d(1e9, 1e9));
  CHECK(error_of([&] { diagnose(statistics, 1); }) ==
        "ValueError: eps: expected one that makes G~ positive definite in double precision, got 1");
}

}  // namespace linrec::test::factor_test
