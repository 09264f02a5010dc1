#include "linrec/kernels/rwkv7.hpp"

#include "linrec/kernels/dplr.hpp"
#include "recurrence_case.hpp"

namespace linrec::verify {

namespace {

template <class Scalar>
Results run_dplr(const RecurrenceCase<Scalar>& in, const Request& request) {
  const auto r = in.keys("r"), k = in.keys("k"), v = in.values("v");
  const auto a = in.keys("a"), b = in.keys("b"), logw = in.keys("logw");
  const DPLR<Scalar> kernel(in.dims(), in.file().has_option("scale") ? in.scale() : 1);
  return in.run(kernel, request, [&](Index first, Index count) {
    return DPLRInputs<Scalar>{r.view.slice(first, count), k.view.slice(first, count),
                              v.view.slice(first, count), a.view.slice(first, count),
                              b.view.slice(first, count), logw.view.slice(first, count)};
  });
}

template <class Kernel, class Scalar>
Results run_time_mixing(const Kernel& kernel, const RecurrenceCase<Scalar>& in, const Request& request) {
  const auto r = in.keys("r"), k = in.keys("k"), v = in.values("v");
  const auto kk = in.keys("kk_raw"), iclr = in.keys("a_gate"), w_logit = in.keys("w_logit");
  return in.run(kernel, request, [&](Index first, Index count) {
    return RWKV7Inputs<Scalar>{r.view.slice(first, count),    k.view.slice(first, count),
                               v.view.slice(first, count),    kk.view.slice(first, count),
                               iclr.view.slice(first, count), w_logit.view.slice(first, count)};
  });
}

}  // namespace

template <class Scalar>
Results run_rwkv7(GoldenCase& file, const Request& request) {
  const RecurrenceCase<Scalar> in(file, {"r", "r", "v", "K", "V", "o", Orientation::value_key, "S[B,H,V,K]"});
  const std::string mode = file.text("mode");
  if (mode == "dplr") return run_dplr(in, request);
  if (!mode.starts_with("rwkv")) throw Unknown(message("option 'mode': '", mode, "'"));
  in.check_no_scale();
  if (!file.has_input("w0_base")) return run_time_mixing(RWKV7<Scalar>(in.dims()), in, request);
  const Index channels = in.dims().heads() * in.dims().key();
  const PostSpectrum spectrum(file.vector("w0_base", 1, "1")[0],
                              file.vector("w0_delta", channels - 1, "H K - 1"));
  const GapAwareTaper taper(file.number("train_length"));
  return run_time_mixing(RWKV7<Scalar, PostSpectrum, GapAwareTaper>(in.dims(), spectrum, taper), in, request);
}

template Results run_rwkv7<float>(GoldenCase&, const Request&);
template Results run_rwkv7<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
