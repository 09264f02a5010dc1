#include "harness.hpp"

namespace linrec::bench {

void add_mamba2() {
  add<24, 128, 64>(
      "Mamba2", "24x64x128", []<class Scalar, class Taper, class StateScalar, class Sizes>(Sizes dims) {
        using Kernel = Mamba2<Scalar, FreeSpectrum, Taper, Sizes, StateScalar>;
        const auto inputs = [dims](Tensors<Scalar>& t, Index T) {
          const Index H = dims.heads(), K = dims.key(), V = dims.value();
          return typename Kernel::Inputs{.x = t.uniform(T, H, V, -1, 1),
                                         .dt = t.uniform(T, H, 1, 0.001, 0.1),
                                         .B = t.uniform(T, 1, K, -1, 1),
                                         .C = t.uniform(T, 1, K, -1, 1)};
        };
        return Subject{Kernel(dims, FreeSpectrum(geometric_log_rates(dims.heads(), 1, 16))), inputs, 4.0};
      });
}

}  // namespace linrec::bench
