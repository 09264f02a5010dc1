// expect: TokenView<const float>
// Outputs are written.
#include "linrec/kernels/linear_attention.hpp"

int main() {
  const linrec::LinearAttention<float> kernel(linrec::Dims<>(1, 1, 1));
  auto state = kernel.initial_state();
  float x = 1, o = 0;
  const linrec::TokenView<const float> in(&x, 1, 1, 1, 1);
#ifdef LINREC_SHOULD_FAIL
  using Outputs = linrec::TokenView<const float>;
#else
  using Outputs = linrec::TokenView<float>;
#endif
  kernel.prefill({in, in, in}, state, Outputs(&o, 1, 1, 1, 1));
}
