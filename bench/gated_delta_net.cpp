#include "harness.hpp"

namespace linrec::bench {

void add_gated_delta_net() {
  add<16, 128, 128>(
      "GatedDeltaNet", "16x128x128",
      []<class Scalar, class Taper, class StateScalar, class Sizes>(Sizes dims) {
        using Kernel = GatedDeltaNet<Scalar, FreeSpectrum, Taper, Sizes, StateScalar>;
        const auto inputs = [dims](Tensors<Scalar>& t, Index T) {
          const Index H = dims.heads(), K = dims.key(), V = dims.value();
          return typename Kernel::Inputs{.q = t.uniform(T, H, K, -1, 1),
                                         .k = t.uniform(T, H, K, -1, 1),
                                         .v = t.uniform(T, H, V, -1, 1),
                                         .g = t.uniform(T, H, 1, -0.1, 0),
                                         .beta = t.uniform(T, H, 1, 0, 1)};
        };
        const GatedDeltaNetOptions options{.qk_l2norm = true};
        return Subject{Kernel(dims, FreeSpectrum::unit(dims.heads()), Taper(), options), inputs, 8.0};
      });
}

}  // namespace linrec::bench
