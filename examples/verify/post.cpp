// The policies themselves. They compute their tables in double for every kernel; what a kernel of
// another scalar reads is the table in that scalar, and so the outputs here.
#include "kernels.hpp"
#include "linrec/policy/initial.hpp"
#include "linrec/policy/spectrum.hpp"
#include "linrec/policy/taper.hpp"

namespace linrec::verify {

namespace {

template <class Scalar>
Values vector_values(const Eigen::ArrayXd& x) {
  Values values{{x.size()}, {}};
  for (const double number : x) values.numbers.push_back(static_cast<Scalar>(number));
  return values;
}

/// Adds the output f(k, t) [T, N] if the file has one to compare with.
template <class Scalar, class F>
void add_table(Outputs& outputs, const char* name, const GoldenCase& file, Index channels, F&& f) {
  if (!file.has_output(name)) return;
  const std::vector<Index> shape{file.count("T"), channels};
  file.check_output_shape(name, shape);
  const auto position = file.count_or("position_offset", 0);
  Values& values = outputs[name] = {shape, {}};
  for (Index t = 0; t < shape[0]; ++t)
    for (Index k = 0; k < channels; ++k)
      values.numbers.push_back(static_cast<Scalar>(f(k, static_cast<double>(position + t + 1))));
}

Eigen::ArrayXd exponents_of(GoldenCase& file, const std::string& mode, const Eigen::ArrayXd& p) {
  if (mode == "fixed") return LinearTaper().exponents(p);
  if (mode == "analytical") return GapAwareTaper(file.number("train_length")).exponents(p);
  if (mode == "analytical_rwkv7")
    return GapAwareTaper(file.number("train_length")).exponents(p.unaryExpr([](double x) {
      return log_sigmoid(x);
    }));
  if (mode == "learnable")
    return LearnedTaper(file.vector("alpha_logits", p.size() - 1, "N - 1")).exponents(p);
  throw Unknown(message("option 'alpha_mode': '", mode, "'"));
}

Eigen::ArrayXd initial_log_rates(const std::string& kind, Index channels, double train_length,
                                 double base_dt) {
  if (kind == "mamba2") return mamba2_initial_log_rates(channels, train_length, base_dt);
  if (kind == "gdn") return gated_delta_net_initial_log_rates(channels, train_length);
  if (kind == "gla") return gla_initial_log_rates(channels);
  if (kind == "rwkv7") return rwkv7_initial_logits(channels, train_length);
  throw Unknown(message("option 'kind': '", kind, "'"));
}

}  // namespace

template <class Scalar>
Results run_post_map(GoldenCase& file, const Request&) {
  const Index n = file.extent("delta", 0, 1) + 1;
  file.check_size("N", n);
  const PostSpectrum spectrum(file.vector("theta", 1, "1")[0], file.vector("delta", n - 1, "N - 1"));
  const Eigen::ArrayXd& p = spectrum.log_rates();
  const std::string mode = file.text("alpha_mode");
  const Eigen::ArrayXd alpha = exponents_of(file, mode, p);
  file.check_all_inputs_read();

  Outputs outputs;
  outputs["p"] = vector_values<Scalar>(p);
  outputs["alpha"] = vector_values<Scalar>(alpha);
  add_table<Scalar>(outputs, "scale", file, n,
                    [&](Index k, double t) { return position_scale(alpha[k], t); });
  if (mode == "analytical_rwkv7")
    add_table<Scalar>(outputs, "logw", file, n,
                      [&](Index k, double t) { return rwkv7_log_decay(p[k], alpha[k], t); });
  return {{Way::map, {outputs}}};
}

template <class Scalar>
Results run_post_init(GoldenCase& file, const Request&) {
  file.check_all_inputs_read();
  const Index channels = file.count("N");
  for (const char* name : {"target", "p", "p_released"})
    if (file.has_output(name)) file.check_output_shape(name, {channels});
  const double base_dt = file.number("base_dt");
  const Eigen::ArrayXd target =
      initial_log_rates(file.text("kind"), channels, file.number("train_length"), base_dt);
  const PostSpectrum exact = PostSpectrum::from_log_rates(target);
  const PostSpectrum released = PostSpectrum::from_log_rates_as_released(target);
  Outputs outputs;
  outputs["target"] = vector_values<Scalar>(target);
  outputs["theta"] = vector_values<Scalar>(Eigen::ArrayXd::Constant(1, exact.theta()));
  outputs["delta"] = vector_values<Scalar>(exact.delta());
  outputs["p"] = vector_values<Scalar>(exact.log_rates());
  outputs["delta_released"] = vector_values<Scalar>(released.delta());
  outputs["p_released"] = vector_values<Scalar>(released.log_rates());
  outputs["dt_bias"] = vector_values<Scalar>(Eigen::ArrayXd::Constant(1, dt_bias_for(base_dt)));
  return {{Way::map, {outputs}}};
}

template Results run_post_map<float>(GoldenCase&, const Request&);
template Results run_post_map<double>(GoldenCase&, const Request&);
template Results run_post_init<float>(GoldenCase&, const Request&);
template Results run_post_init<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
