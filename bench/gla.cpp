#include "harness.hpp"

namespace linrec::bench {

void add_gla() {
  add<4, 128, 128>("GLA", "4x128x128",
                   []<class Scalar, class Taper, class StateScalar, class Sizes>(Sizes dims) {
                     using Kernel = GLA<Scalar, FreeSpectrum, Taper, Sizes, StateScalar>;
                     const auto inputs = [dims](Tensors<Scalar>& t, Index T) {
                       const Index H = dims.heads(), K = dims.key(), V = dims.value();
                       return typename Kernel::Inputs{.q = t.uniform(T, H, K, -1, 1),
                                                      .k = t.uniform(T, H, K, -1, 1),
                                                      .v = t.uniform(T, H, V, -1, 1),
                                                      .gk = t.uniform(T, H, K, -0.1, 0)};
                     };
                     return Subject{Kernel(dims, FreeSpectrum::unit(dims.heads())), inputs, 4.0};
                   });
}

}  // namespace linrec::bench
