// SpectralKoopmanMLP against plain loops in double, and what its modulus promises.
#include <array>
#include <complex>

#include "linrec/core/activation.hpp"
#include "linrec/layers/spectral_koopman_mlp.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test::koopman_mlp_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

template <class Scalar>
using Weights = SpectralKoopmanMLPWeights<Scalar>;
using Modulus = KoopmanModulus;

template <class Scalar>
Parameter<Scalar> parameter(std::vector<Index> shape, Random& random) {
  std::vector<Scalar> numbers(static_cast<std::size_t>(shape.size() == 1 ? shape[0] : shape[0] * shape[1]));
  for (Scalar& x : numbers) x = static_cast<Scalar>(random.uniform(-1, 1));
  return {std::move(numbers), std::move(shape)};
}
template <class Scalar>
Weights<Scalar> random_weights(const SpectralKoopmanMLPConfig& config, Random& random) {
  const Index width = config.width, hidden = config.hidden;
  Weights<Scalar> w{parameter<Scalar>({hidden, width}, random),
                    parameter<Scalar>({hidden / 2}, random),
                    parameter<Scalar>({hidden / 2}, random),
                    parameter<Scalar>({width, hidden}, random),
                    {}};
  if (config.gated) w.gate = parameter<Scalar>({hidden, width}, random);
  return w;
}

/// Rows at odd addresses, 3 numbers apart.
template <class Scalar>
struct Matrix {
  Index count, width;
  std::vector<Scalar> numbers;

  Matrix(Index n, Index w) : count(n), width(w), numbers(static_cast<std::size_t>(1 + n * (w + 3))) {}
  Matrix(Index n, Index w, Random& random) : Matrix(n, w) {
    for (Scalar& x : numbers) x = static_cast<Scalar>(random.uniform(-2, 2));
  }
  Rows<Scalar> rows(Index first, Index n) {
    return {numbers.data() + 1 + first * (width + 3), n, width, width + 3};
  }
  Rows<Scalar> rows() { return rows(0, count); }
};

template <class Scalar>
void apply(const SpectralKoopmanMLP<Scalar>& mlp, Rows<const Scalar> x, Rows<Scalar> y) {
  AlignedVector<Scalar> scratch(static_cast<std::size_t>(mlp.scratch_size(x.count)));
  mlp.apply(x, y, scratch.data());
}

template <class Scalar>
double product(const Parameter<Scalar>& matrix, Index row, const Scalar* x) {
  const Index inputs = matrix.shape()[1];
  double sum = 0;
  for (Index j = 0; j < inputs; ++j)
    sum += static_cast<double>(matrix.data()[row * inputs + j]) * static_cast<double>(x[j]);
  return sum;
}

/// One row, as the equations have it.
template <class Scalar>
std::vector<double> expected_row(const SpectralKoopmanMLPConfig& config, const Weights<Scalar>& w,
                                 const Scalar* x) {
  std::vector<double> y(static_cast<std::size_t>(config.width), 0);
  for (Index i = 0; i < config.hidden / 2; ++i) {
    double gamma = static_cast<double>(w.gamma.data()[i]), omega = static_cast<double>(w.omega.data()[i]);
    const double modulus = std::sqrt(gamma * gamma + omega * omega);
    const double scale = config.modulus == Modulus::free     ? 1
                         : config.modulus == Modulus::circle ? 1 / modulus
                                                             : std::min(1.0, 1 / modulus);
    gamma *= scale, omega *= scale;
    const double u1 = silu(product(w.lift, 2 * i, x)), u2 = silu(product(w.lift, 2 * i + 1, x));
    double z1 = gamma * u1 + omega * u2, z2 = gamma * u2 - omega * u1;
    if (config.gated) z1 *= sigmoid(product(w.gate, 2 * i, x)), z2 *= sigmoid(product(w.gate, 2 * i + 1, x));
    for (std::size_t o = 0; o < y.size(); ++o) {
      const Scalar* readout = w.readout.data() + static_cast<Index>(o) * config.hidden + 2 * i;
      y[o] += static_cast<double>(readout[0]) * z1 + static_cast<double>(readout[1]) * z2;
    }
  }
  return y;
}

template <class Scalar>
void check_case(const SpectralKoopmanMLPConfig& config, Random& random) {
  INFO("D " << config.width << ", d_k " << config.hidden << ", gated " << config.gated << ", modulus "
            << static_cast<int>(config.modulus));
  const Weights<Scalar> weights = random_weights<Scalar>(config, random);
  const SpectralKoopmanMLP<Scalar> mlp(config, weights);
  CHECK(mlp.width() == config.width);
  Matrix<Scalar> x(7, config.width, random), y(7, config.width), in_place = x, one_by_one = x;
  apply<Scalar>(mlp, x.rows(), y.rows());
  double error = 0;
  for (Index i = 0; i < x.count; ++i) {
    const std::vector<double> expected = expected_row(config, weights, x.rows()[i]);
    for (Index o = 0; o < config.width; ++o) {
      const double e = std::abs(static_cast<double>(y.rows()[i][o]) - expected[static_cast<std::size_t>(o)]);
      error = std::isnan(e) ? infinity : std::max(error, e);
    }
  }
  const double bar = std::is_same_v<Scalar, float> ? 1e-6 : 1e-15;  // of a sum of d_k products
  CHECK(error <= bar * static_cast<double>(config.width + config.hidden));
  // In place and row by row, not a bit changes, in the gaps between the rows least of all.
  apply<Scalar>(mlp, in_place.rows(), in_place.rows());
  for (Index i = 0; i < x.count; ++i) apply<Scalar>(mlp, one_by_one.rows(i, 1), one_by_one.rows(i, 1));
  CHECK(in_place.numbers == one_by_one.numbers);
  for (Index i = 0; i < x.count; ++i) {
    CHECK(std::equal(y.rows()[i], y.rows()[i] + y.width, in_place.rows()[i]));
    const Scalar *gap = x.rows()[i] + x.width, *gap_after = in_place.rows()[i] + x.width;
    CHECK(std::equal(gap, gap + 3, gap_after));
  }
}

template <class Scalar>
void check_all() {
  Random random(1);
  for (const auto modulus : {Modulus::disk, Modulus::circle, Modulus::free})
    for (const bool gated : {false, true}) {
      for (Index hidden = 2; hidden <= 36; hidden += 2)
        check_case<Scalar>({5, hidden, gated, modulus}, random);
      check_case<Scalar>({1, 2, gated, modulus}, random);
      check_case<Scalar>({24, koopman_hidden_width(24), gated, modulus}, random);
    }
}

/// z of the pairs alone: lift and readout are the identity, so u = silu(x) and y = z.
template <class Scalar>
Matrix<Scalar> moved(Modulus modulus, const std::vector<Scalar>& gamma, const std::vector<Scalar>& omega,
                     Matrix<Scalar> x) {
  const Index n = x.width;
  std::vector<Scalar> identity(static_cast<std::size_t>(n * n), 0);
  for (Index i = 0; i < n; ++i) identity[static_cast<std::size_t>(i * n + i)] = 1;
  const Parameter<Scalar> eye(identity, {n, n});
  const SpectralKoopmanMLP<Scalar> mlp({n, n, false, modulus},
                                       {eye, {gamma, {n / 2}}, {omega, {n / 2}}, eye, {}});
  apply<Scalar>(mlp, x.rows(), x.rows());
  return x;
}

template <class Scalar>
void check_norms_on_the_circle() {
  constexpr Scalar lowest = std::numeric_limits<Scalar>::denorm_min(),
                   highest = std::numeric_limits<Scalar>::max();
  const std::vector<Scalar> gamma{3, Scalar(-0.1), 0, Scalar(1e30), lowest, highest, 0, Scalar(0.7), 1},
      omega{4, Scalar(0.3), 0, Scalar(-1e30), lowest, highest, -lowest, Scalar(-0.2), Scalar(1e-20)};
  Random random(2);
  const Matrix<Scalar> x(4, 18, random);
  Matrix<Scalar> u = x, z = moved<Scalar>(Modulus::circle, gamma, omega, x);
  map_rows(u.rows(), [](const auto& packet) { return silu_packet(packet); });
  double error = 0;
  for (Index i = 0; i < u.count; ++i)
    for (Index j = 0; j < u.width; j += 2) {
      const auto norm = [&](const Scalar* row) {
        return std::hypot(static_cast<double>(row[j]), static_cast<double>(row[j + 1]));
      };
      error = std::max(error, std::abs(norm(z.rows()[i]) / norm(u.rows()[i]) - 1));
    }
  CHECK(error < 4 * static_cast<double>(std::numeric_limits<Scalar>::epsilon()));
  // The pair without a direction is not turned, not even by a bit.
  CHECK(std::equal(u.rows()[0] + 4, u.rows()[0] + 6, z.rows()[0] + 4));
}

}  // namespace

TEST_CASE("SpectralKoopmanMLP: every modulus, gated or not, all remainders of packets, row by row") {
  check_all<float>();
  check_all<double>();
}

TEST_CASE("SpectralKoopmanMLP: the circle keeps the norm of every pair") {
  check_norms_on_the_circle<float>();
  check_norms_on_the_circle<double>();
}

TEST_CASE("koopman_eigenvalue: what each modulus does") {
  using Complex = std::complex<double>;
  CHECK(koopman_eigenvalue(Modulus::disk, 3, 4) == Complex(0.6, 0.8));
  CHECK(koopman_eigenvalue(Modulus::disk, -3, 4) == Complex(-0.6, 0.8));
  CHECK(koopman_eigenvalue(Modulus::disk, 0.3, 0.4) == Complex(0.3, 0.4));
  CHECK(koopman_eigenvalue(Modulus::disk, 0.6, 0.8) == Complex(0.6, 0.8));
  CHECK(koopman_eigenvalue(Modulus::disk, 0, -1) == Complex(0, -1));
  CHECK(koopman_eigenvalue(Modulus::disk, 0, 0) == Complex(0, 0));
  CHECK(koopman_eigenvalue(Modulus::circle, 0.375, -0.5) == Complex(0.6, -0.8));
  CHECK(koopman_eigenvalue(Modulus::circle, 0, 0) == Complex(1, 0));
  CHECK(koopman_eigenvalue(Modulus::free, 3, -4) == Complex(3, -4));
  CHECK(koopman_eigenvalue(Modulus::free, 1e300, 1e300) == Complex(1e300, 1e300));
}

TEST_CASE("koopman_eigenvalue: the largest and smallest parameters keep their direction") {
  const double half = std::sqrt(0.5);
  for (const double size : {1e30, 1e154, 1e155, 1e300, std::numeric_limits<double>::max()})
    for (const auto modulus : {Modulus::disk, Modulus::circle}) {
      const std::complex<double> both = koopman_eigenvalue(modulus, size, -size);
      CHECK(both.real() == Approx(half).epsilon(1e-15));
      CHECK(both.imag() == Approx(-half).epsilon(1e-15));
      CHECK(koopman_eigenvalue(modulus, size, 0) == std::complex<double>(1, 0));
      CHECK(koopman_eigenvalue(modulus, 1, size).imag() == 1);
    }
  for (const double size : {1e-300, 1e-308, std::numeric_limits<double>::denorm_min()}) {
    CHECK(koopman_eigenvalue(Modulus::disk, size, size) == std::complex<double>(size, size));
    CHECK(koopman_eigenvalue(Modulus::circle, -size, size).real() == Approx(-half).epsilon(1e-15));
  }
}

TEST_CASE("koopman_hidden_width: 8/3 of the width, up to a multiple of 64") {
  for (const auto& [width, hidden] : {std::array<Index, 2>{1, 64},
                                      {23, 64},
                                      {24, 64},
                                      {25, 128},
                                      {64, 192},
                                      {512, 1408},
                                      {768, 2048},
                                      {769, 2112},
                                      {1024, 2752},
                                      {2048, 5504},
                                      {3072, 8192}})
    CHECK(koopman_hidden_width(width) == hidden);
}

TEST_CASE("SpectralKoopmanMLP: no rows; and NaN stays in its row") {
  Random random(3);
  const SpectralKoopmanMLPConfig config{6, 10, true};
  const SpectralKoopmanMLP<float> mlp(config, random_weights<float>(config, random));
  Matrix<float> none(0, 6), x(5, 6, random), y(5, 6), with_nan = x, z(5, 6);
  mlp.apply(none.rows(), none.rows(), nullptr);
  CHECK(mlp.scratch_size(0) == 0);
  with_nan.rows()[2][4] = std::numeric_limits<float>::quiet_NaN();
  apply<float>(mlp, x.rows(), y.rows());
  apply<float>(mlp, with_nan.rows(), z.rows());
  for (Index i = 0; i < 5; ++i)
    for (Index o = 0; o < 6; ++o) {
      if (i == 2)
        CHECK(std::isnan(z.rows()[i][o]));
      else
        CHECK(z.rows()[i][o] == y.rows()[i][o]);
    }
}

TEST_CASE("SpectralKoopmanMLP: configs and weights that do not fit") {
  Random random(4);
  const SpectralKoopmanMLPConfig gated{3, 8, true}, plain{3, 8, false};
  const Weights<double> good = random_weights<double>(gated, random);
  const auto refusal = [&](const SpectralKoopmanMLPConfig& config, const Weights<double>& weights) {
    return error_of([&] { SpectralKoopmanMLP<double>(config, weights); });
  };
  CHECK(refusal(gated, good) == "nothing");
  CHECK(refusal(plain, good) == "ShapeError: gate.weight: expected no tensor, got [8, 3]");
  CHECK(refusal({0, 8}, good) == "ValueError: width: expected at least 1, got 0");
  for (const Index hidden : {-2, 0, 1, 7})
    CHECK(refusal({3, hidden}, good) ==
          message("ValueError: hidden: expected an even number of at least 2, got ", hidden));

  using Member = Parameter<double> Weights<double>::*;
  const std::pair<std::string, Member> members[] = {{"lift.weight", &Weights<double>::lift},
                                                    {"gamma", &Weights<double>::gamma},
                                                    {"omega", &Weights<double>::omega},
                                                    {"readout.weight", &Weights<double>::readout},
                                                    {"gate.weight", &Weights<double>::gate}};
  for (const auto& [name, member] : members) {
    Weights<double> weights = good;
    const std::string expected = "ShapeError: " + name + ": expected " + shape_text((good.*member).shape());
    weights.*member = {};
    CHECK(refusal(gated, weights) == expected + ", got no tensor");
    weights.*member = parameter<double>({8}, random);  // one gamma for every channel
    CHECK(refusal(gated, weights) == expected + ", got [8]");
    weights.*member = parameter<double>({8, 8}, random);
    CHECK(refusal(gated, weights) == expected + ", got [8, 8]");
  }
  for (const double bad : {nan, infinity, -infinity}) {
    Weights<double> weights = good;
    weights.omega = {{1, 2, bad, 4}, {4}};
    CHECK(refusal(gated, weights) == message("ValueError: omega[2]: expected a finite number, got ", bad));
    weights = good;
    weights.gamma = {{bad, 2, 3, 4}, {4}};
    CHECK(refusal(gated, weights) == message("ValueError: gamma[0]: expected a finite number, got ", bad));
  }
}

}  // namespace linrec::test::koopman_mlp_test
