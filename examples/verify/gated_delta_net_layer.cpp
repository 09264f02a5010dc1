#include "linrec/layers/gated_delta_net_layer.hpp"

#include "layer_case.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_gated_delta_net_layer(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(
      file, {"recurrent_state", Orientation::key_value, {"conv_state_q", "conv_state_k", "conv_state_v"}});
  auto config = in.template attention_config<GatedDeltaNetLayerConfig>();
  config.value_heads = in.size_or("num_v_heads", 0);
  config.allow_neg_eigval = file.flag_or("allow_neg_eigval", false);
  const auto weights = io::read_weights(in.reader(), {}, config);
  const auto decay =
      io::read_decay(in.reader(), {}, io::head_decay_names, config.output_heads(), in.train_length("A_log"));
  in.reader().finish();
  return decay.with_policies([&]<class Spectrum, class Taper>(const Spectrum& spectrum, const Taper& taper) {
    return in.run(GatedDeltaNetLayer<Scalar, Spectrum, Taper>(config, weights, spectrum, taper), request);
  });
}

template Results run_gated_delta_net_layer<float>(GoldenCase&, const Request&);
template Results run_gated_delta_net_layer<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
