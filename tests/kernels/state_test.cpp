// State: a value that knows its positions.
#include "linrec/kernels/state.hpp"

#include "tests/catch.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test::state_test {

namespace {

template <class State>
State filled(Index sequences) {
  State state(typename State::Sizes_(3, 4, 21), sequences);
  for (Index b = 0; b < sequences; ++b) {
    state.set_position(b, 10 + b);
    for (Index h = 0; h < 3; ++h)
      state.set_matrix(b, h,
                       Eigen::MatrixXd::Constant(4, 21, static_cast<double>(100 * b + h)) +
                           Eigen::MatrixXd::Random(4, 21));
  }
  return state;
}

template <class Scalar_, class Sizes>
struct Case : State<Scalar_, Sizes> {
  using Sizes_ = Sizes;
  using State<Scalar_, Sizes>::State;
};
using Double = Case<double, Dims<>>;
using Float = Case<float, Dims<>>;
using Fixed = Case<float, Dims<3, 4, 21>>;

}  // namespace

TEMPLATE_TEST_CASE("State: zero at the start, at position 0", "", Double, Float, Fixed) {
  const TestType state(typename TestType::Sizes_(3, 4, 21), 2);
  CHECK(state.sequences() == 2);
  CHECK(state.dims().heads() == 3);
  CHECK(state.dims().key() == 4);
  CHECK(state.dims().value() == 21);
  for (Index b = 0; b < 2; ++b) {
    CHECK(state.position(b) == 0);
    for (Index h = 0; h < 3; ++h) {
      CHECK(state.matrix(b, h).rows() == 4);
      CHECK(state.matrix(b, h).cols() == 21);
      CHECK(state.matrix(b, h).isZero(0));
    }
  }
  CHECK(TestType(typename TestType::Sizes_(3, 4, 21)).sequences() == 1);
  CHECK(TestType(typename TestType::Sizes_(3, 4, 21), 0).sequences() == 0);
}

TEMPLATE_TEST_CASE("State: what set_matrix puts in, matrix gives back", "", Double, Float, Fixed) {
  using Scalar = typename TestType::Scalar;
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
  TestType state(typename TestType::Sizes_(3, 4, 21), 2);
  std::vector<Matrix> matrices;
  for (int i = 0; i < 6; ++i) matrices.push_back(Matrix::Random(4, 21));
  for (Index i = 0; i < 6; ++i) state.set_matrix(i / 3, i % 3, matrices[static_cast<std::size_t>(i)]);
  for (Index i = 0; i < 6; ++i) CHECK((state.matrix(i / 3, i % 3) == matrices[static_cast<std::size_t>(i)]));
  // Any expression and scalar.
  state.set_matrix(1, 1, Eigen::MatrixXd::Ones(21, 4).transpose() * 2);
  CHECK((state.matrix(1, 1) == Matrix::Constant(4, 21, 2)));
  CHECK((state.matrix(1, 0) == matrices[3]));
}

TEMPLATE_TEST_CASE("State: a copy forks, a move takes", "", Double, Float, Fixed) {
  TestType state = filled<TestType>(2);
  const TestType kept = state;
  CHECK((state == kept));
  state.set_position(1, 99);
  CHECK(!(state == kept));
  CHECK(kept.position(1) == 11);
  state.set_position(1, 11);
  CHECK((state == kept));
  state.reset(0);
  CHECK(!(state == kept));
  CHECK(state.matrix(0, 2).isZero(0));
  CHECK(state.position(0) == 0);
  CHECK((state.matrix(1, 2) == kept.matrix(1, 2)));
  CHECK(state.position(1) == 11);

  state = kept;  // roll back
  CHECK((state == kept));
  TestType moved = std::move(state);
  CHECK((moved == kept));
  state = filled<TestType>(1);  // what was moved from can be assigned to
  CHECK(state.sequences() == 1);
  CHECK(!(state == kept));
  std::swap(state, moved);
  CHECK((state == kept));
  CHECK(moved.sequences() == 1);
}

TEST_CASE("State: equal are sizes, positions and numbers") {
  const Double state = filled<Double>(2);
  Double other = state;
  other.set_matrix(1, 2, state.matrix(1, 2) + Eigen::MatrixXd::Constant(4, 21, 1e-9));
  CHECK(!(state == other));
  CHECK(!(Double(Dims<>(3, 4, 21), 2) == Double(Dims<>(3, 4, 21), 1)));
  CHECK(!(Double(Dims<>(3, 4, 21)) == Double(Dims<>(3, 21, 4))));
  CHECK(Double(Dims<>(3, 4, 21)) == Double(Dims<>(3, 4, 21)));
  other = state;
  other.set_matrix(0, 0, Eigen::MatrixXd::Constant(4, 21, std::numeric_limits<double>::quiet_NaN()));
  CHECK(!(other == other));
}

TEST_CASE("State: positions of 64 bits") {
  Float state{Dims<>(3, 4, 21)};
  state.set_position(0, 1'000'000'000'000'000);
  CHECK(state.position(0) == 1'000'000'000'000'000);
  state.advance(0, 5);
  CHECK(state.position(0) == 1'000'000'000'000'005);
}

TEST_CASE("State: what it refuses") {
  Double state(Dims<>(3, 4, 21), 2);
  const Double before = state;
  REQUIRE_THROWS_MATCHES(state.position(2), ValueError,
                         message_contains("sequence: expected one of 2 counted from 0, got 2"));
  REQUIRE_THROWS_MATCHES(state.position(-1), ValueError,
                         message_contains("sequence: expected one of 2 counted from 0, got -1"));
  REQUIRE_THROWS_MATCHES(state.set_position(2, 0), ValueError, message_contains("got 2"));
  REQUIRE_THROWS_MATCHES(state.set_position(0, -1), ValueError,
                         message_contains("position: expected 0 to 2^53, got -1"));
  REQUIRE_THROWS_MATCHES(state.set_position(0, (std::int64_t{1} << 53) + 1), ValueError,
                         message_contains("position: expected 0 to 2^53, got 9007199254740993"));
  // A size that no Index can hold.
  const Index huge = Index{1} << 22;
  REQUIRE_THROWS_MATCHES(Double(Dims<>(huge, huge, huge)), ShapeError, message_contains("below 2^63"));
  REQUIRE_THROWS_MATCHES(state.reset(2), ValueError, message_contains("got 2"));
  REQUIRE_THROWS_MATCHES(state.matrix(0, 3), ValueError, message_contains("head: expected 0 to 2, got 3"));
  REQUIRE_THROWS_MATCHES(state.matrix(2, 0), ValueError,
                         message_contains("sequence: expected one of 2 counted from 0, got 2"));
  REQUIRE_THROWS_MATCHES(state.set_matrix(0, -1, Eigen::MatrixXd::Zero(4, 21)), ValueError,
                         message_contains("head: expected 0 to 2, got -1"));
  REQUIRE_THROWS_MATCHES(state.set_matrix(0, 0, Eigen::MatrixXd::Zero(21, 4)), ShapeError,
                         message_contains("S: expected [K, V] = [4, 21], got [21, 4]"));
  CHECK((state == before));
  REQUIRE_THROWS_MATCHES(Double(Dims<>(3, 4, 21), -1), ValueError,
                         message_contains("sequences: expected at least 0, got -1"));
}

TEST_CASE("State: a copied state continues its sequence bit for bit") {
  for (const Config& config : all_configs_of_both_scalars()) {
    INFO(config.name());
    const Inputs first = random_inputs(config, 2, 7, 1), second = random_inputs(config, 2, 5, 2);
    const StatePointer state = random_state(config, 2, 3);
    prefill(config, first, *state);
    const StatePointer fork = state->clone();
    const Tensor expected = prefill(config, second, *state);
    prefill(config, random_inputs(config, 2, 3, 4), *state);  // the fork does not see this
    // By its parts, as a snapshot would do it.
    const StatePointer restored = make_kernel(config)->initial_state(2);
    for (Index b = 0; b < 2; ++b) {
      restored->set_position(b, fork->position(b));
      for (Index h = 0; h < config.H; ++h) restored->set_matrix(b, h, fork->matrix(b, h));
    }
    CHECK(same_bits(restored->numbers(), fork->numbers()));
    CHECK(difference(steps(config, second, *fork), expected) == "");
    CHECK(difference(prefill(config, second, *restored), expected) == "");
  }
}

}  // namespace linrec::test::state_test
