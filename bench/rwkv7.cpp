#include "harness.hpp"

namespace linrec::bench {

void add_rwkv7() {
  add<12, 64, 64>("RWKV7", "12x64x64",
                  []<class Scalar, class Taper, class StateScalar, class Sizes>(Sizes dims) {
                    using Kernel = RWKV7<Scalar, FreeSpectrum, Taper, Sizes, StateScalar>;
                    const auto inputs = [dims](Tensors<Scalar>& t, Index T) {
                      const Index H = dims.heads(), K = dims.key(), V = dims.value();
                      return typename Kernel::Inputs{.r = t.uniform(T, H, K, -1, 1),
                                                     .k = t.uniform(T, H, K, -1, 1),
                                                     .v = t.uniform(T, H, V, -1, 1),
                                                     .kk = t.uniform(T, H, K, -1, 1),
                                                     .iclr = t.uniform(T, H, K, 0, 1),
                                                     .w_logit = t.uniform(T, H, K, -6, 0)};
                    };
                    return Subject{Kernel(dims, FreeSpectrum::unit(dims.heads() * dims.key())), inputs, 8.0};
                  });
}

}  // namespace linrec::bench
