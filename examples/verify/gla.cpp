#include "linrec/kernels/gla.hpp"

#include "recurrence_case.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_gla(GoldenCase& file, const Request& request) {
  const RecurrenceCase<Scalar> in(file, {"q", "q", "v", "K", "V", "o", Orientation::key_value, "S[B,H,K,V]"});
  const auto q = in.keys("q"), k = in.keys("k"), v = in.values("v"), gk = in.keys("gk");
  return in.with_taper([&]<class Taper>(const Taper& taper) {
    const GLA<Scalar, FreeSpectrum, Taper> kernel(in.dims(), FreeSpectrum::unit(in.dims().heads()), taper,
                                                  in.scale());
    return in.run(kernel, request, [&](Index first, Index count) {
      return GLAInputs<Scalar>{q.view.slice(first, count), k.view.slice(first, count),
                               v.view.slice(first, count), gk.view.slice(first, count)};
    });
  });
}

template Results run_gla<float>(GoldenCase&, const Request&);
template Results run_gla<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
