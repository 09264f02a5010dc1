// Uses a little of linrec from two translation units, so that a function that is not inline shows.
#include "consumer.hpp"

int main() {
  float numbers[6] = {1, 2, 3, 4, 5, 6};
  const linrec::TokenView<const float> view(numbers, 1, 1, 2, 3);
  const linrec::Dims<2, 3, 4> dims;
  const bool right = elements(view) == 6 && view.at(0, 0, 1).sum() == 15 && dims.key() == view.dim();
  return right ? 0 : 1;
}
