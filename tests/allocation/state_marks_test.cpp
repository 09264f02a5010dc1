// Marks allocate only until the ring is full, and returning to one never does.
#include "linrec/core/state_marks.hpp"

#include "linrec/kernels/state.hpp"
#include "linrec/layers/layer_state.hpp"
#include "tests/allocation/allocation_guard.hpp"
#include "tests/catch.hpp"

namespace linrec::test::state_marks_test {

namespace {

template <class S>
void check_marks_allocate_nothing(S state) {
  StateMarks<S> marks(3);
  for (int i = 0; i < 3; ++i) marks.mark(state);
  const CountAllocations heap;
  for (int i = 0; i < 5; ++i) marks.mark(state);
  marks.restore(state, 2);
  marks.mark(state);
  marks.restore(state);
  const long allocations = heap.count();
  CHECK(allocations == 0);
}

}  // namespace

TEST_CASE("marks of a State") { check_marks_allocate_nothing(State<float>(Dims<>(4, 16, 20), 3)); }

TEST_CASE("marks of a LayerState") {
  const LayerStateShape shape{"a layer with a long name, not a short string",
                              Dims<>(4, 16, 20),
                              {{"conv", 3, 80}, {"another name that is not short", 1, 7}}};
  check_marks_allocate_nothing(LayerState<float>(shape, 3, 100));
}

TEST_CASE("marks of a SkaState, and of a LayerState with one") {
  const SkaShape shape{.heads = 4, .key = 16, .value = 20, .chunk = 8};
  check_marks_allocate_nothing(SkaState(shape, 3));
  check_marks_allocate_nothing(LayerState<float>({"ska", {}, {}, shape}, 3, 100));
}

}  // namespace linrec::test::state_marks_test
