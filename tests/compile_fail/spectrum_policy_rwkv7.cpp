// expect: a spectrum policy needs the member
#include "linrec/kernels/rwkv7.hpp"

struct NotASpectrum {};

int main() {
#ifdef LINREC_SHOULD_FAIL
  using Spectrum = NotASpectrum;
  const Spectrum spectrum;
#else
  using Spectrum = linrec::FreeSpectrum;
  const Spectrum spectrum = Spectrum::unit(8);
#endif
  const linrec::RWKV7<float, Spectrum> kernel(linrec::Dims<>(2, 4, 8), spectrum);
  return static_cast<int>(kernel.scale());
}
