#include "linrec/kernels/mamba2.hpp"

#include "recurrence_case.hpp"

namespace linrec::verify {

namespace {

Mamba2Options options_of(GoldenCase& file, const Dims<>& dims) {
  Mamba2Options options;
  options.dt_softplus = file.flag_or("dt_softplus", false);
  options.dt_min = file.number_or("dt_min", options.dt_min);
  options.dt_max = file.number_or("dt_max", options.dt_max);
  if (file.has_input("dt_bias")) options.dt_bias = file.vector("dt_bias", dims.heads(), "H");
  if (file.has_input("D", "has_D")) {
    const io::Tensor D = file.input("D");
    const std::vector<Index> per_head{dims.heads()}, per_channel{dims.heads(), dims.value()};
    if (D.shape != per_head && D.shape != per_channel)
      throw FormatError(message("in.D: expected [H] = ", shape_text(per_head),
                                " or [H, P] = ", shape_text(per_channel), ", got ", shape_text(D.shape)));
    using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const std::vector<double> numbers = D.to<double>();
    options.D =
        Eigen::Map<const Matrix>(numbers.data(), dims.heads(), D.shape.size() == 1 ? 1 : dims.value());
  }
  return options;
}

/// t^-alpha [T, H]
template <class Scalar>
Values position_scales(const Eigen::ArrayXd& alpha, std::int64_t position, Index tokens) {
  Values values{{tokens, alpha.size()}, {}};
  for (Index t = 0; t < tokens; ++t)
    for (const double a : alpha)
      values.numbers.push_back(static_cast<Scalar>(position_scale(a, static_cast<double>(position + t + 1))));
  return values;
}

}  // namespace

template <class Scalar>
Results run_mamba2(GoldenCase& file, const Request& request) {
  const RecurrenceCase<Scalar> in(file, {"x", "B", "x", "N", "P", "y", Orientation::value_key, "h[B,H,P,N]"});
  in.check_no_scale();
  const auto x = in.values("x"), dt = in.numbers("dt"), B = in.grouped_keys("B"), C = in.grouped_keys("C");
  file.check_size("G", B.view.heads());
  const FreeSpectrum spectrum = in.rates("A");
  const Mamba2Options options = options_of(file, in.dims());
  return in.with_taper([&]<class Taper>(const Taper& taper) {
    const Mamba2<Scalar, FreeSpectrum, Taper> kernel(in.dims(), spectrum, taper, options);
    Results results = in.run(kernel, request, [&](Index first, Index count) {
      return Mamba2Inputs<Scalar>{x.view.slice(first, count), dt.view.slice(first, count),
                                  B.view.slice(first, count), C.view.slice(first, count)};
    });
    const Values scales =
        position_scales<Scalar>(taper.exponents(spectrum.log_rates()), in.position(), in.tokens());
    for (WayResult& result : results)
      for (Outputs& outputs : result.runs) outputs["A_scale"] = scales;
    return results;
  });
}

template Results run_mamba2<float>(GoldenCase&, const Request&);
template Results run_mamba2<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
