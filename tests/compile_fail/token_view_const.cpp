// expect: TokenView<const float>
// A view of constant data never becomes one of mutable data.
#include "linrec/core/token_view.hpp"

void write_to(linrec::TokenView<float>) {}
void read_from(linrec::TokenView<const float>) {}

int main() {
  float numbers[6] = {};
  const linrec::TokenView<float> view(numbers, 1, 1, 2, 3);
  read_from(view);
  write_to(view);
#ifdef LINREC_SHOULD_FAIL
  write_to(linrec::TokenView<const float>(view));
#endif
}
