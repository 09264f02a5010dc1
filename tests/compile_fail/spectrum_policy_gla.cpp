// expect: a spectrum policy needs the member
#include "linrec/kernels/gla.hpp"

struct NotASpectrum {};

int main() {
#ifdef LINREC_SHOULD_FAIL
  using Spectrum = NotASpectrum;
  const Spectrum spectrum;
#else
  using Spectrum = linrec::FreeSpectrum;
  const Spectrum spectrum = Spectrum::unit(2);
#endif
  const linrec::GLA<float, Spectrum> kernel(linrec::Dims<>(2, 4, 8), spectrum);
  return static_cast<int>(kernel.scale());
}
