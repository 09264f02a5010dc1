// expect: a taper policy needs the member
#include "linrec/kernels/rwkv7.hpp"

struct NotATaper {};

int main() {
#ifdef LINREC_SHOULD_FAIL
  using Taper = NotATaper;
#else
  using Taper = linrec::LinearTaper;
#endif
  const linrec::RWKV7<float, linrec::FreeSpectrum, Taper> kernel(linrec::Dims<>(2, 4, 8),
                                                                 linrec::FreeSpectrum::unit(8), Taper());
  return static_cast<int>(kernel.scale());
}
