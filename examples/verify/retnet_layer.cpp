#include "linrec/layers/retnet_layer.hpp"

#include "layer_case.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_retnet_layer(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(
      file, {"recurrent_state", Orientation::key_value, {"conv_state_q", "conv_state_k", "conv_state_v"}});
  auto config = in.template attention_config<RetNetLayerConfig>();
  config.kv_heads = in.size_or("num_kv_heads", 0);
  config.norm_weight = in.has("g_norm.weight") || in.has("g_norm_swish_gate.weight");
  file.check_convention("feature_map", "identity");
  file.check_convention("rotary",
                        "half-split, base 10000, positions from 0, applied to q and k in the layer");
  const auto weights = io::read_weights(in.reader(), {}, config);
  in.reader().finish();
  return in.run(RetNetLayer<Scalar>(config, weights), request);
}

template Results run_retnet_layer<float>(GoldenCase&, const Request&);
template Results run_retnet_layer<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
