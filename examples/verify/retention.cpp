#include "linrec/kernels/retnet.hpp"
#include "recurrence_case.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_retention(GoldenCase& file, const Request& request) {
  const RecurrenceCase<Scalar> in(file, {"q", "q", "v", "K", "V", "o", Orientation::key_value, "S[B,H,K,V]"});
  const auto q = in.keys("q"), k = in.keys("k"), v = in.values("v");
  const FreeSpectrum spectrum =
      file.has_input("log_gamma") ? in.rates("log_gamma") : retention_spectrum(in.dims().heads());
  return in.with_taper([&]<class Taper>(const Taper& taper) {
    const RetNet<Scalar, FreeSpectrum, Taper> kernel(in.dims(), spectrum, taper, in.scale());
    return in.run(kernel, request, [&](Index first, Index count) {
      return RetNetInputs<Scalar>{q.view.slice(first, count), k.view.slice(first, count),
                                  v.view.slice(first, count)};
    });
  });
}

template Results run_retention<float>(GoldenCase&, const Request&);
template Results run_retention<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
