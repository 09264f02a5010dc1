#include "harness.hpp"

namespace linrec::bench {

void add_retnet() {
  add<8, 128, 256>(
      "RetNet", "8x128x256", []<class Scalar, class Taper, class StateScalar, class Sizes>(Sizes dims) {
        using Kernel = RetNet<Scalar, FreeSpectrum, Taper, Sizes, StateScalar>;
        const auto inputs = [dims](Tensors<Scalar>& t, Index T) {
          const Index H = dims.heads(), K = dims.key(), V = dims.value();
          return typename Kernel::Inputs{
              .q = t.uniform(T, H, K, -1, 1), .k = t.uniform(T, H, K, -1, 1), .v = t.uniform(T, H, V, -1, 1)};
        };
        return Subject{Kernel(dims, retention_spectrum(dims.heads())), inputs, 4.0};
      });
}

}  // namespace linrec::bench
