#include "linrec/layers/gla_layer.hpp"

#include "layer_case.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_gla_layer(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(
      file, {"recurrent_state", Orientation::key_value, {"conv_state_q", "conv_state_k", "conv_state_v"}});
  auto config = in.template attention_config<GLALayerConfig>();
  config.kv_heads = in.size_or("num_kv_heads", 0);
  config.norm_weight = in.has("g_norm.weight") || in.has("g_norm_swish_gate.weight");
  config.gate_logit_normalizer = file.number_or("gate_logit_normalizer", config.gate_logit_normalizer);
  config.clamp_min = file.number_or("clamp_min", config.clamp_min);
  file.check_convention("feature_map", "identity");
  const auto weights = io::read_weights(in.reader(), {}, config);
  const double train_length = in.train_length("A_log");
  io::DecayParameters decay;  // the low-rank gate has decays without rates
  if (in.has("a_proj.weight"))
    decay = io::read_decay(in.reader(), {}, io::head_decay_names, config.heads, train_length);
  else
    decay.log_rates = Eigen::ArrayXd::Zero(config.heads);
  in.reader().finish();
  return decay.with_policies([&]<class Spectrum, class Taper>(const Spectrum& spectrum, const Taper& taper) {
    return in.run(GLALayer<Scalar, Spectrum, Taper>(config, weights, spectrum, taper), request);
  });
}

template Results run_gla_layer<float>(GoldenCase&, const Request&);
template Results run_gla_layer<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
