#include <utility>

#include "linrec/layers/spectral_koopman_mlp.hpp"
#include "residual_block.hpp"

namespace linrec::verify {

template <class Scalar>
Results run_koopman_mlp(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(file, {nullptr, Orientation::key_value, {}});
  file.check_size("d", in.width());
  file.check_convention("pairs", "channels (2i,2i+1); z1=gamma*u1+omega*u2, z2=gamma*u2-omega*u1");
  file.check_convention("residual", "included");
  SpectralKoopmanMLPConfig config;
  config.width = in.width();
  config.hidden = in.reader().rows({}, "lift.weight");
  file.check_size("d_k", config.hidden);
  config.gated = in.has("gate.weight");
  if (file.flag_or("gated", config.gated) != config.gated)
    throw FormatError(message("option 'gated' is ", file.text("gated"), ", but gate.weight",
                              config.gated ? " is" : " is not", " there"));
  if (!file.flag_or("spectral_norm_gamma", true)) config.modulus = KoopmanModulus::free;
  const auto weights = io::read_weights(in.reader(), {}, config);
  Norm<Scalar> norm = read_layer_norm(in);
  in.reader().finish();
  using Block = ResidualBlock<Scalar, MLPBranch<SpectralKoopmanMLP<Scalar>>>;
  return in.run(Block(std::move(norm), SpectralKoopmanMLP<Scalar>(config, weights)), request);
}

template Results run_koopman_mlp<float>(GoldenCase&, const Request&);
template Results run_koopman_mlp<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
