#include "linrec/kernels/gated_delta_net.hpp"
#include "recurrence_case.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_gated_delta_rule(GoldenCase& file, const Request& request) {
  const RecurrenceCase<Scalar> in(file, {"v", "q", "v", "K", "V", "o", Orientation::key_value, "S[B,H,K,V]"});
  const auto q = in.grouped_keys("q"), k = in.grouped_keys("k"), v = in.values("v");
  const auto g = in.numbers("g"), beta = in.numbers("beta");
  if (file.has_option("HV")) file.check_size("H", q.view.heads());
  GatedDeltaNetOptions options;
  options.scale = in.scale();
  options.qk_l2norm = file.flag_or("qk_l2norm", false);
  options.l2norm_eps = file.number_or("l2norm_eps", options.l2norm_eps);
  return in.with_taper([&]<class Taper>(const Taper& taper) {
    const FreeSpectrum spectrum = FreeSpectrum::unit(in.dims().heads());
    const GatedDeltaNet<Scalar, FreeSpectrum, Taper> kernel(in.dims(), spectrum, taper, options);
    return in.run(kernel, request, [&](Index first, Index count) {
      return GatedDeltaNetInputs<Scalar>{q.view.slice(first, count), k.view.slice(first, count),
                                         v.view.slice(first, count), g.view.slice(first, count),
                                         beta.view.slice(first, count)};
    });
  });
}

template Results run_gated_delta_rule<float>(GoldenCase&, const Request&);
template Results run_gated_delta_rule<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
