#include "layer_case.hpp"
#include "linrec/layers/rwkv7_channel_mix.hpp"
#include "linrec/layers/rwkv7_time_mix.hpp"

namespace linrec::verify {

namespace {

template <class Scalar>
RWKV7TimeMixConfig time_mix_config(const LayerCase<Scalar>& in) {
  RWKV7TimeMixConfig config;
  config.width = in.width();
  config.key = config.value = in.size("head_size");
  if (config.key < 1 || config.width % config.key != 0)
    throw FormatError(message("option 'head_size': expected a number that divides d_model = ", config.width,
                              ", got ", config.key));
  config.heads = config.width / config.key;
  config.first_layer = in.file().count("layer_id") == 0;
  config.norm_eps = in.file().number_or("ln_x_eps", 1e-5 * static_cast<double>(config.key));
  config.kk_eps = in.file().number_or("kk_eps", config.kk_eps);
  return config;
}

template <class Scalar>
Results run_time_mix(GoldenCase& file, const Request& request, const io::LayerNames& names) {
  LayerCase<Scalar> in(file, {"wkv_state", Orientation::value_key, {"x_prev"}});
  const RWKV7TimeMixConfig config = time_mix_config(in);
  in.set_v_first(config.first_layer);
  const auto weights = io::read_weights(in.reader(), names, config);
  const auto decay =
      io::read_decay(in.reader(), names, io::rwkv7_decay_names, config.width, in.train_length("w0"));
  in.reader().finish();
  return decay.with_policies([&]<class Spectrum, class Taper>(const Spectrum& spectrum, const Taper& taper) {
    return in.run(RWKV7TimeMix<Scalar, Spectrum, Taper>(config, weights, spectrum, taper), request);
  });
}

}  // namespace

template <class Scalar>
Results run_rwkv7_time_mix(GoldenCase& file, const Request& request) {
  return run_time_mix<Scalar>(file, request, {"", io::rwkv7_published_names});
}

template <class Scalar>
Results run_rwkv7_time_mix_fla_names(GoldenCase& file, const Request& request) {
  return run_time_mix<Scalar>(file, request, {});
}

template <class Scalar>
Results run_rwkv7_channel_mix(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(file, {nullptr, Orientation::value_key, {"x_prev"}});
  file.check_convention("activation", "relu squared");
  const Index hidden = in.reader().rows({}, "key.weight");
  const auto weights = io::read_channel_mix(in.reader(), {}, in.width(), hidden);
  in.reader().finish();
  return in.run(RWKV7ChannelMix<Scalar>(in.width(), hidden, weights), request);
}

template Results run_rwkv7_time_mix<float>(GoldenCase&, const Request&);
template Results run_rwkv7_time_mix<double>(GoldenCase&, const Request&);
template Results run_rwkv7_time_mix_fla_names<float>(GoldenCase&, const Request&);
template Results run_rwkv7_time_mix_fla_names<double>(GoldenCase&, const Request&);
template Results run_rwkv7_channel_mix<float>(GoldenCase&, const Request&);
template Results run_rwkv7_channel_mix<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
