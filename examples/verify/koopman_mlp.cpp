#include "layer_case.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/norm.hpp"
#include "linrec/layers/spectral_koopman_mlp.hpp"

namespace linrec::verify {

namespace {

/// x + f(norm(x)), what a model makes of the MLP: a layer without a state, so that it goes through its tokens
/// as layers do.
template <class Scalar>
class ResidualBlock : public Layer<ResidualBlock<Scalar>, Scalar> {
  friend typename ResidualBlock::Layer;

 public:
  ResidualBlock(Norm<Scalar> norm, SpectralKoopmanMLP<Scalar> mlp)
      : norm_(std::move(norm)), mlp_(std::move(mlp)) {
    this->describe(mlp_.width(), {"koopman_mlp", {}, {}});
  }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> out, LayerState<Scalar>& state,
               Scalar* scratch) const noexcept {
    Arena<Scalar> arena(scratch);
    const Buffers b(arena, *this, x.count);
    norm_.apply(x, b.normed);
    mlp_.apply(b.normed, b.normed, b.of_mlp);
    add_rows<Scalar>(x, b.normed);
    for (Index i = 0; i < x.count; ++i) std::copy_n(b.normed[i], x.width, out[i]);
    state.advance(rows);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const ResidualBlock& block, Index rows)
        : normed(arena.rows(rows, block.width())), of_mlp(arena.take(block.mlp_.scratch_size(rows))) {}
    Rows<Scalar> normed;
    Scalar* of_mlp;
  };

  Norm<Scalar> norm_;
  SpectralKoopmanMLP<Scalar> mlp_;
};

}  // namespace

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
  const auto norm_weight = in.reader().get("norm.weight", {config.width});
  const auto norm_bias = in.reader().get("norm.bias", {config.width});
  in.reader().finish();
  Norm<Scalar> norm("norm", Norm<Scalar>::Kind::layer, config.width, config.width,
                    file.number_or("layer_norm_eps", 1e-5), norm_weight, norm_bias);
  return in.run(ResidualBlock<Scalar>(std::move(norm), SpectralKoopmanMLP<Scalar>(config, weights)), request);
}

template Results run_koopman_mlp<float>(GoldenCase&, const Request&);
template Results run_koopman_mlp<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
