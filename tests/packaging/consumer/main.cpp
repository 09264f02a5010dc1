// Uses a little of linrec from two translation units, so that a function that is not inline shows.
#include "consumer.hpp"

int main() {
  float numbers[6] = {1, 2, 3, 4, 5, 6};
  const linrec::TokenView<const float> view(numbers, 1, 1, 2, 3);
  const linrec::Dims<2, 3, 4> dims;
  const bool right = elements(view) == 6 && view.at(0, 0, 1).sum() == 15 && dims.key() == view.dim();

  const linrec::LinearAttention<float> kernel(linrec::Dims<>(1, 1, 1));
  auto state = kernel.initial_state();
  const linrec::TokenView<const float> x(numbers, 1, 3, 1, 1);
  float outputs[3];
  kernel.prefill({.q = x, .k = x, .v = x}, state, {outputs, 1, 3, 1, 1});  // sums of squares, times q
  return right && executors_run() && outputs[2] == (1 + 4 + 9) * 3 ? 0 : 1;
}
