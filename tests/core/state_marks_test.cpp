// Marks: back to each of the last n states, exactly, and no further.
#include "linrec/core/state_marks.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "linrec/kernels/gla.hpp"
#include "linrec/layers/layer_state.hpp"
#include "tests/catch.hpp"

namespace linrec::test::state_marks_test {

namespace {

/// A state of one number, n.
State<double> state_of(double n) {
  State<double> state(Dims<>(1, 1, 1));
  state.set_matrix(0, 0, Eigen::Matrix<double, 1, 1>(n));
  state.set_position(0, static_cast<std::int64_t>(n));
  return state;
}

LayerState<double> layer_state(double n) {
  LayerState<double> state({"test", Dims<>(1, 2, 3), {{"conv", 2, 5}, {"shift", 1, 3}}}, 2);
  for (Index s = 0; s < 2; ++s) {
    state.set_position(s, static_cast<std::int64_t>(n) + s);
    state.recurrent().set_matrix(s, 0, Eigen::MatrixXd::Constant(2, 3, n));
    for (Index i = 0; i < 2; ++i) std::fill_n(state.window(0).row(s, i), 5, n + 1);
    std::fill_n(state.window(1).row(s, 0), 3, n + 2);
  }
  return state;
}

}  // namespace

TEST_CASE("marks: back to each of the last n, and no further") {
  for (const Index capacity : {1, 2, 3, 5}) {
    for (const Index made : {1, 2, 3, 4, 5, 6, 11}) {
      StateMarks<State<double>> marks(capacity);
      CHECK(marks.capacity() == capacity);
      for (Index n = 1; n <= made; ++n) marks.mark(state_of(static_cast<double>(n)));
      const Index kept = std::min(capacity, made);
      REQUIRE(marks.size() == kept);
      for (Index back = 0; back < kept; ++back) {
        StateMarks<State<double>> copy = marks;
        const State<double> expected = state_of(static_cast<double>(made - back));
        CHECK(copy.at(back) == expected);
        State<double> state = state_of(100);
        copy.restore(state, back);
        CHECK(state == expected);
        // The mark stays and is the latest; the older ones stay behind it.
        REQUIRE(copy.size() == kept - back);
        for (Index older = back; older < kept; ++older) CHECK(copy.at(older - back) == marks.at(older));
        // And the ring goes on from there.
        for (Index n = 1; n <= capacity; ++n) {
          copy.mark(state_of(static_cast<double>(50 + n)));
          CHECK(copy.at(0) == state_of(static_cast<double>(50 + n)));
          if (n < capacity) CHECK(copy.at(n) == expected);
        }
        CHECK(copy.size() == capacity);
      }
    }
  }
}

TEST_CASE("marks: what is refused changes nothing") {
  REQUIRE_THROWS_MATCHES(StateMarks<State<double>>(0), ValueError,
                         message_contains("capacity: expected at least 1, got 0"));
  CHECK_THROWS_AS(StateMarks<State<double>>(-1), ValueError);

  StateMarks<State<double>> marks(3);
  State<double> state = state_of(9);
  REQUIRE_THROWS_MATCHES(marks.restore(state), ValueError,
                         message_contains("back: expected a mark to return to, got 0 and no marks"));
  CHECK_THROWS_AS(marks.at(0), ValueError);
  for (int n = 1; n <= 7; ++n) marks.mark(state_of(n));
  for (const Index back : {Index{3}, Index{4}, Index{-1}, Index{1} << 62})
    REQUIRE_THROWS_MATCHES(marks.restore(state, back), ValueError,
                           message_contains("back: expected 0 to 2, as 3 of at most 3 marks are kept, got " +
                                            std::to_string(back)));
  CHECK(state == state_of(9));
  REQUIRE(marks.size() == 3);
  for (Index back = 0; back < 3; ++back) CHECK(marks.at(back) == state_of(static_cast<double>(7 - back)));

  marks.restore(state, 1);
  REQUIRE_THROWS_MATCHES(marks.restore(state, 2), ValueError,
                         message_contains("back: expected 0 to 1, as 2 of at most 3 marks are kept, got 2"));
  CHECK(state == state_of(6));
}

TEST_CASE("marks: all parts of a layer's state come back") {
  StateMarks<LayerState<double>> marks(2);
  LayerState<double> state = layer_state(1);
  marks.mark(state);
  state = layer_state(10);
  marks.mark(state);
  state = layer_state(20);
  marks.restore(state);
  CHECK(state == layer_state(10));
  marks.restore(state, 1);
  CHECK(state == layer_state(1));
  CHECK(state.position(1) == 2);
  CHECK(state.window(1).row(1, 0)[2] == 3);
  CHECK(marks.size() == 1);
}

TEST_CASE("marks: after a return, decoding gives the same bits") {
  const Index T = 12, K = 4, V = 3;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q, v, gk;
  for (Index i = 0; i < T * K; ++i) q.push_back(normal(random)), gk.push_back(-std::abs(normal(random)));
  for (Index i = 0; i < T * V; ++i) v.push_back(normal(random));
  const GLA<float> gla(Dims<>(1, K, V));
  using View = TokenView<const float>;
  const auto decode = [&](State<float>& state, Index from, Index to) {
    std::vector<float> o(static_cast<std::size_t>(T * V));
    for (Index t = from; t < to; ++t) {
      const View at_t(q.data() + t * K, 1, 1, 1, K);
      gla.step({.q = at_t,
                .k = at_t,
                .v = View(v.data() + t * V, 1, 1, 1, V),
                .gk = View(gk.data() + t * K, 1, 1, 1, K)},
               state, TokenView<float>(o.data() + t * V, 1, 1, 1, V));
    }
    return o;
  };
  State<float> straight = gla.initial_state(), state = gla.initial_state();
  decode(straight, 0, 4);
  const std::vector<float> expected = decode(straight, 4, 8);

  StateMarks<State<float>> marks(2);
  decode(state, 0, 4);
  marks.mark(state);
  decode(state, 8, 12);  // a guess that is not taken
  marks.mark(state);
  decode(state, 8, 9);
  marks.restore(state, 1);
  CHECK(state.position(0) == 4);
  CHECK(decode(state, 4, 8) == expected);
  CHECK(state == straight);
}

TEST_CASE("marks: a mark may be marked again, and any copyable value can be") {
  StateMarks<std::vector<int>> marks(2);
  marks.mark({1});
  marks.mark(marks.at(0));  // the ring grows meanwhile
  CHECK(marks.at(0) == std::vector<int>{1});
  marks.mark({2, 3});
  marks.mark(marks.at(1));  // into the very slot where it lies
  CHECK(marks.at(0) == std::vector<int>{1});
  CHECK(marks.at(1) == std::vector<int>{2, 3});
}

namespace {

struct Fragile {
  int n = 0;
  bool throws = false;
  Fragile(int number, bool fails = false) : n(number), throws(fails) {}
  Fragile(const Fragile&) = default;
  Fragile& operator=(const Fragile& other) {
    n = -1;
    if (other.throws) throw std::runtime_error("half-way");
    n = other.n;
    return *this;
  }
};

}  // namespace

TEST_CASE("marks: a copy that fails costs the oldest mark only") {
  StateMarks<Fragile> marks(3);
  for (int n = 1; n <= 4; ++n) marks.mark(Fragile(n));
  CHECK_THROWS_AS(marks.mark(Fragile(5, true)), std::runtime_error);
  REQUIRE(marks.size() == 2);
  CHECK(marks.at(0).n == 4);
  CHECK(marks.at(1).n == 3);
  marks.mark(Fragile(6));
  REQUIRE(marks.size() == 3);
  CHECK(marks.at(0).n == 6);
  CHECK(marks.at(2).n == 3);
}

}  // namespace linrec::test::state_marks_test
