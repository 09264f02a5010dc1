#include "linrec/layers/mamba2_layer.hpp"

#include <tuple>

#include "layer_case.hpp"

namespace linrec::verify {

namespace {

template <class Scalar>
Mamba2LayerConfig config_of(const LayerCase<Scalar>& in) {
  const GoldenCase& file = in.file();
  Mamba2LayerConfig config;
  config.width = in.width();
  config.heads = in.size("nheads");
  config.head_dim = in.size("headdim");
  config.state_size = in.size("d_state");
  config.groups = in.size_or("ngroups", 1);
  config.conv_width = in.last_extent("conv1d.weight");
  config.gated_norm = in.has("norm.weight");
  config.norm_before_gate = file.flag_or("norm_before_gate", false);
  config.norm_eps = file.number_or("eps", config.norm_eps);
  config.norm_groups = config.groups;
  if (file.has_option("norm_group_size")) {
    const Index size = in.size("norm_group_size");
    if (size < 1 || config.inner() % size != 0)
      throw FormatError(message("option 'norm_group_size': expected a number that divides nheads headdim = ",
                                config.inner(), ", got ", size));
    config.norm_groups = config.inner() / size;
  }
  if (file.has_option("dt_limit")) std::tie(config.dt_min, config.dt_max) = file.interval("dt_limit");
  return config;
}

}  // namespace

template <class Scalar>
Results run_mamba2_layer(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(file, {"ssm_state", Orientation::value_key, {"conv_state"}});
  const Mamba2LayerConfig config = config_of(in);
  const bool wide_D = in.last_extent("D") == config.inner() && config.head_dim > 1;
  const io::Mamba2Tensors tensors{in.has("in_proj.bias"), in.has("conv1d.bias"), wide_D};
  const auto weights = io::read_weights(in.reader(), {}, config, tensors);
  const auto decay =
      io::read_decay(in.reader(), {}, io::mamba2_decay_names, config.heads, in.train_length("A_log"));
  in.reader().finish();
  return decay.with_policies([&]<class Spectrum, class Taper>(const Spectrum& spectrum, const Taper& taper) {
    return in.run(Mamba2Layer<Scalar, Spectrum, Taper>(config, weights, spectrum, taper), request);
  });
}

template Results run_mamba2_layer<float>(GoldenCase&, const Request&);
template Results run_mamba2_layer<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
