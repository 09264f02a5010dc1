// expect: Executor
// What cannot say how many workers it has runs no prefill.
#include "linrec/kernels/linear_attention.hpp"

struct NotAnExecutor {
  template <class F>
  void for_each(linrec::Index n, double, F&& f) const {
    for (linrec::Index i = 0; i < n; ++i) f(i, linrec::Index(0));
  }
};

int main() {
  const linrec::LinearAttention<float> kernel(linrec::Dims<>(1, 1, 1));
  auto state = kernel.initial_state();
  float x = 1, o = 0;
  const linrec::TokenView<const float> in(&x, 1, 1, 1, 1);
#ifdef LINREC_SHOULD_FAIL
  const NotAnExecutor executor;
#else
  const linrec::SerialExecutor executor;
#endif
  kernel.prefill({in, in, in}, state, linrec::TokenView<float>(&o, 1, 1, 1, 1), {}, executor);
}
