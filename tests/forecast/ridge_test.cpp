#include "examples/forecast/ridge.hpp"

#include <Eigen/Cholesky>
#include <random>

#include "tests/catch.hpp"

using forecast::Index;
using forecast::OnlineRidge;

namespace {

// Sums for the batch solution, with features that are far from independent: a random walk's running means
// and a constant.
class Experiment {
 public:
  Experiment(Index features, double ridge)
      : online_(features, ridge), features_(Eigen::VectorXd::Zero(features)), ridge_(ridge) {
    gram_ = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>::Zero(features, features);
    moment_ = Eigen::Matrix<long double, Eigen::Dynamic, 1>::Zero(features);
  }

  void run(int observations) {
    for (int t = 0; t < observations; ++t) {
      const double x = noise_(bits_);
      features_[0] = 1;
      for (Index k = 1; k < features_.size(); ++k)
        features_[k] += (x - features_[k]) * std::exp2(-static_cast<double>(k) / 2);
      const double target = 0.3 + features_[features_.size() - 1] - 0.2 * x + noise_(bits_);
      online_.learn(features_, target);
      gram_ += features_.cast<long double>() * features_.cast<long double>().transpose();
      moment_ += features_.cast<long double>() * static_cast<long double>(target);
    }
  }

  Eigen::VectorXd batch() const {
    auto regular = gram_;
    regular.diagonal().array() += static_cast<long double>(ridge_);
    const Eigen::Matrix<long double, Eigen::Dynamic, 1> weights = regular.ldlt().solve(moment_);
    return weights.cast<double>();
  }
  double difference() const { return (online_.weights() - batch()).norm() / batch().norm(); }

 private:
  OnlineRidge online_;
  Eigen::VectorXd features_;
  double ridge_;
  Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic> gram_;
  Eigen::Matrix<long double, Eigen::Dynamic, 1> moment_;
  std::mt19937_64 bits_{3};
  std::normal_distribution<double> noise_;
};

}  // namespace

TEST_CASE("online ridge is batch ridge") {
  for (const double ridge : {1e-6, 1.0, 1e3}) {
    CAPTURE(ridge);
    Experiment experiment(12, ridge);
    experiment.run(1);
    CHECK(experiment.difference() < 1e-9);
    experiment.run(4999);
    CHECK(experiment.difference() < 1e-9);
  }
}

TEST_CASE("online ridge stays exact over a million observations") {
  Experiment experiment(6, 1);
  experiment.run(1000000);
  CHECK(experiment.difference() < 1e-9);
}

TEST_CASE("online ridge before any observation and with features that are zero") {
  OnlineRidge ridge(3, 0.5);
  Eigen::VectorXd f = Eigen::VectorXd::Zero(3);
  CHECK(ridge.predict(f) == 0);
  ridge.learn(f, 7);
  CHECK(ridge.weights().norm() == 0);
  f[1] = 2;
  ridge.learn(f, 3);
  CHECK(ridge.weights()[1] == Approx(2 * 3 / (4 + 0.5)).epsilon(1e-14));
  CHECK(ridge.weights()[0] == 0);
}

TEST_CASE("online ridge refuses a ridge that is none") {
  for (const double ridge : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    REQUIRE_THROWS_MATCHES(OnlineRidge(3, ridge), linrec::ValueError,
                           message_contains("ridge: expected a finite number > 0"));
  REQUIRE_THROWS_MATCHES(OnlineRidge(0, 1), linrec::ValueError,
                         message_contains("features: expected at least 1, got 0"));
}
