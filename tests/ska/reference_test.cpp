// The reference: the formulas one by one, with nothing kept up to date, in extended precision. Checked by
// numbers that are easy to find by hand.
#include <Eigen/Cholesky>

#include "tests/catch.hpp"
#include "tests/ska/attention.hpp"

namespace linrec::test {

namespace {

RealVector row(const Tensor& x, Index b, Index t, Index h) { return x.row(b, t, h).cast<Real>(); }

template <class A, class B>
std::string difference_of(const char* name, const A& got, const B& expected, double tolerance) {
  const Real scale = expected.size() == 0 ? 0 : expected.cwiseAbs().maxCoeff();
  for (Index i = 0; i < expected.rows(); ++i)
    for (Index j = 0; j < expected.cols(); ++j)
      if (!(std::abs(static_cast<Real>(got(i, j)) - static_cast<Real>(expected(i, j))) <= tolerance * scale))
        return message(name, "(", i, ", ", j, "): ", got(i, j), " instead of ", expected(i, j));
  return "";
}

}  // namespace

void Sums::add(const RealVector& z, const RealVector& v, Real weight) {
  for (Index i = 0; i < z.size(); ++i) {
    for (Index j = 0; j < z.size(); ++j) {
      G(i, j) += weight * z[i] * z[j];
      M(i, j) += weight * z[i] * last[j];
    }
    for (Index p = 0; p < v.size(); ++p) Cv(p, i) += weight * v[p] * z[i];
  }
  last = weight * z;
  if (weight > 0) max_norm = std::max(max_norm, z.norm());
}

RealVector scaled(RealVector z, KeyScale scale) {
  if (scale == KeyScale::unit_norm && z.norm() > 0) z /= z.norm();
  return z;
}

Sums sums_of(const Setup& setup, const Tokens& tokens, Index b, Index h, Index count) {
  Sums sums(setup.key, setup.value);
  for (Index t = 0; t < count; ++t)
    sums.add(scaled(row(tokens.k, b, t, h), setup.key_scale), row(tokens.v, b, t, h),
             tokens.weighted() ? static_cast<Real>(tokens.weights(b, t, 0)) : 1);
  return sums;
}

RealMatrix regularised(const Setup& setup, const Sums& sums) {
  RealMatrix g = sums.G;
  const Real m = setup.key_scale == KeyScale::sequence_max ? std::max(sums.max_norm, Real(1e-6)) : Real(1);
  g.diagonal().array() += static_cast<Real>(setup.ridge) * m * m;
  return g;
}

RealMatrix whitening(const RealMatrix& regularised) {
  const Eigen::LLT<RealMatrix> cholesky(regularised);
  REQUIRE(cholesky.info() == Eigen::Success);
  RealMatrix inverse = RealMatrix::Identity(regularised.rows(), regularised.cols());
  cholesky.matrixL().solveInPlace(inverse);
  return inverse;
}

Real whitening_error(const RealMatrix& w, const RealMatrix& regularised) {
  const RealMatrix product = w * regularised * w.transpose();
  return (product - RealMatrix::Identity(w.rows(), w.cols())).cwiseAbs().maxCoeff();
}

RealMatrix operator_of(const Setup& setup, const Sums& sums) {
  const RealMatrix w = whitening(regularised(setup, sums));
  if (setup.koopman_operator == KoopmanOperator::whitened) return w * sums.M * w.transpose();
  return sums.M * (w.transpose() * w);
}

Real power_iteration(const RealMatrix& a) {
  const Real floor = 1e-8L;
  const auto from = [&](RealVector v) {
    for (int i = 0; i < 6; ++i) {
      RealVector av = a * v;
      av /= std::max(av.norm(), floor);
      v = a.transpose() * av;
      v /= std::max(v.norm(), floor);
    }
    return RealVector(a * v).norm();
  };
  const Real sigma = from(RealVector::Constant(a.rows(), 1 / std::sqrt(static_cast<Real>(a.rows()))));
  if (sigma > floor) return sigma;
  for (Index i = 0; i < a.rows(); ++i) {
    const RealVector start = a.row(i).transpose();
    if (start.norm() > floor) return from(start / start.norm());
  }
  return sigma;
}

RealVector answer(const Setup& setup, const Sums& sums, const RealVector& q) {
  const RealMatrix w = whitening(regularised(setup, sums)), a = operator_of(setup, sums);
  const Real gamma = setup.gamma < 1 ? 1 : setup.gamma > 1.5 ? 1.5L : static_cast<Real>(setup.gamma);
  const RealMatrix normalised = a * (gamma / std::max(Real(1), power_iteration(a)));
  RealMatrix power = RealMatrix::Identity(setup.key, setup.key);
  for (Index k = 0; k < setup.power; ++k) power = RealMatrix(power * normalised);
  return static_cast<Real>(setup.eta) *
         (sums.Cv * (w.transpose() * (power * (w * scaled(q, setup.key_scale)))));
}

Tensor reference(const Setup& setup, const Tokens& tokens) {
  Tensor y({tokens.batch(), tokens.count(), setup.heads, setup.value});
  const Index S = setup.chunk;
  for (Index b = 0; b < tokens.batch(); ++b)
    for (Index h = 0; h < setup.heads; ++h)
      for (Index t = 0; t < tokens.count(); ++t) {
        const Index seen = setup.visibility == Visibility::inclusive   ? t + 1
                           : setup.visibility == Visibility::exclusive ? t
                                                                       : t / S * S;
        Sums sums = sums_of(setup, tokens, b, h, seen);
        if (setup.visibility == Visibility::earlier_chunks && setup.boundary_transition)
          sums.M = sums_of(setup, tokens, b, h, seen + 1).M;
        const RealVector result = answer(setup, sums, row(tokens.q, b, t, h));
        for (Index p = 0; p < setup.value; ++p) y(b, t, h, p) = static_cast<double>(result[p]);
      }
  return y;
}

Tensor reference_of_all(const Setup& setup, const Tokens& tokens, const Tensor& q) {
  Tensor y({q.extents[0], q.extents[1], setup.heads, setup.value});
  for (Index b = 0; b < q.extents[0]; ++b)
    for (Index h = 0; h < setup.heads; ++h) {
      const Sums sums = sums_of(setup, tokens, b, h, tokens.count());
      for (Index t = 0; t < q.extents[1]; ++t) {
        const RealVector result = answer(setup, sums, row(q, b, t, h));
        for (Index p = 0; p < setup.value; ++p) y(b, t, h, p) = static_cast<double>(result[p]);
      }
    }
  return y;
}

std::string difference(const SkaStatistics& got, const Sums& expected, double tolerance) {
  std::string text = difference_of("G", got.G(), expected.G, tolerance) +
                     difference_of("M", got.M(), expected.M, tolerance) +
                     difference_of("Cv", got.Cv(), expected.Cv, tolerance) +
                     difference_of("last key", got.last_key(), expected.last, tolerance);
  if (!(std::abs(static_cast<Real>(got.max_norm()) - expected.max_norm) <= tolerance * expected.max_norm))
    text += message("max norm: ", got.max_norm(), " instead of ", expected.max_norm);
  return text;
}

std::string difference(const SkaStatistics& got, const SkaStatistics& expected, double tolerance) {
  std::string text = difference_of("G", got.G(), expected.G(), tolerance) +
                     difference_of("M", got.M(), expected.M(), tolerance) +
                     difference_of("Cv", got.Cv(), expected.Cv(), tolerance) +
                     difference_of("last key", got.last_key(), expected.last_key(), 0) +
                     difference_of("first key", got.first_key(), expected.first_key(), 0);
  if (got.max_norm() != expected.max_norm())
    text += message("max norm: ", got.max_norm(), " instead of ", expected.max_norm());
  if (got.position() != expected.position())
    text += message("position: ", got.position(), " instead of ", expected.position());
  return text;
}

TEST_CASE("the reference: one number a key") {
  // G~ = 1 + 4 + 5 = 10, M = 2, Cv = 3 + 2 * 4 = 11, A = 1/5.
  Setup setup(1, 1, 1);
  setup.key_scale = KeyScale::none;
  setup.ridge = 5;
  Sums sums(1, 1);
  sums.add(RealVector::Constant(1, 1), RealVector::Constant(1, 3), 1);
  sums.add(RealVector::Constant(1, 2), RealVector::Constant(1, 4), 1);
  CHECK(sums.G(0, 0) == 5);
  CHECK(sums.M(0, 0) == 2);
  CHECK(sums.Cv(0, 0) == 11);
  CHECK(sums.max_norm == 2);
  for (const KoopmanOperator form : {KoopmanOperator::whitened, KoopmanOperator::unwhitened}) {
    setup.koopman_operator = form;
    double expected = 1.1 * 7;
    for (setup.power = 0; setup.power < 4; ++setup.power, expected /= 5)
      CHECK(static_cast<double>(answer(setup, sums, RealVector::Constant(1, 7))[0]) ==
            Approx(expected).epsilon(1e-15));
  }
  // Divided by the largest key: G~ = (1 + 4) / 4 + 5 = 25 / 4.
  setup.key_scale = KeyScale::sequence_max;
  setup.power = 0;
  CHECK(static_cast<double>(answer(setup, sums, RealVector::Constant(1, 7))[0]) ==
        Approx(11.0 / 2 * 7 / 2 / (25.0 / 4)).epsilon(1e-15));
}

TEST_CASE("the reference: the operators of two keys in a row") {
  // Keys (2, 0), (0, 1), ridge 1: G~ = diag(5, 2), M = (0, 1) (2, 0)^T.
  Setup setup(1, 2, 1);
  setup.key_scale = KeyScale::none;
  setup.ridge = 1;
  Sums sums(2, 1);
  sums.add(RealVector{{2, 0}}, RealVector{{1}}, 1);
  sums.add(RealVector{{0, 1}}, RealVector{{1}}, 1);
  RealMatrix expected = RealMatrix::Zero(2, 2);
  expected(1, 0) = 2 / std::sqrt(Real(10));
  CHECK((operator_of(setup, sums) - expected).norm() < 1e-18L);
  CHECK(std::abs(power_iteration(expected) - expected(1, 0)) < 1e-18L);
  setup.koopman_operator = KoopmanOperator::unwhitened;
  expected(1, 0) = Real(2) / 5;
  CHECK((operator_of(setup, sums) - expected).norm() < 1e-18L);
}

}  // namespace linrec::test
