#include "linrec/layers/ska_layer.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "layer_case.hpp"
#include "linrec/layers/norm.hpp"

namespace linrec::verify {

namespace {

/// x + f(norm(x)), what a model makes of the layer.
template <class Scalar>
class ResidualBlock : public Layer<ResidualBlock<Scalar>, Scalar> {
  friend typename ResidualBlock::Layer;

 public:
  ResidualBlock(Norm<Scalar> norm, SKALayer<Scalar> layer, bool looks_ahead)
      : norm_(std::move(norm)), layer_(std::move(layer)), looks_ahead_(looks_ahead) {
    this->describe(layer_.width(), layer_.state_shape());
  }

  void forward(const PackedRows& rows, Rows<const Scalar> x, Rows<Scalar> out, LayerState<Scalar>& state,
               Scalar* scratch) const noexcept {
    Arena<Scalar> arena(scratch);
    const Buffers b(arena, *this, x.count);
    norm_.apply(x, b.normed);
    layer_.forward(rows, b.normed, b.normed, state, b.of_layer);
    add_rows<Scalar>(x, b.normed);
    for (Index i = 0; i < x.count; ++i) std::copy_n(b.normed[i], x.width, out[i]);
  }

  /// If the case asks for it. x lies in one piece.
  void look_ahead(const TokenView<const Scalar>& x, LayerState<Scalar>& state) const {
    if (!looks_ahead_) return;
    const Index count = x.batch() * x.tokens(), width = this->width();
    std::vector<Scalar> normed(static_cast<std::size_t>(count * width));
    norm_.apply(Rows<const Scalar>{x.data(0, 0, 0), count, width, width},
                {normed.data(), count, width, width});
    layer_.look_ahead(TokenView<const Scalar>(normed.data(), x.batch(), x.tokens(), 1, width), state);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const ResidualBlock& block, Index rows)
        : normed(arena.rows(rows, block.width())), of_layer(arena.take(block.layer_.scratch_size(rows))) {}
    Rows<Scalar> normed;
    Scalar* of_layer;
  };

  Norm<Scalar> norm_;
  SKALayer<Scalar> layer_;
  bool looks_ahead_;
};

/// The option `key` is one of two texts; whether it is the second.
bool is_second(const GoldenCase& file, const char* key, const char* first, const char* second) {
  const std::string text = file.text(key);
  if (text != first && text != second) throw Unknown(message("option '", key, "': '", text, "'"));
  return text == second;
}

}  // namespace

template <class Scalar>
Results run_ska_layer(GoldenCase& file, const Request& request) {
  LayerCase<Scalar> in(file, {nullptr, Orientation::key_value, {}});
  SKALayerConfig config;
  config.width = in.width();
  SpectralKoopmanAttentionConfig& attention = config.attention;
  attention.heads = in.size("n_heads");
  attention.key = in.size("rank");
  attention.value = in.last_extent("ska.out_proj.weight") / std::max<Index>(1, attention.heads);
  attention.ridge = file.number("ridge_eps");
  attention.power = in.size_or("power_K", attention.power);
  if (is_second(file, "form", "whitened", "minv")) attention.koopman_operator = KoopmanOperator::unwhitened;
  bool looks_ahead = false;
  if (is_second(file, "mode", "streaming", "chunk")) {
    attention.visibility = Visibility::earlier_chunks;
    attention.chunk = in.size("chunk_size");
    attention.boundary_transition = file.flag_or("boundary_transition", true);
    looks_ahead = is_second(file, "norm_scope", "past", "sequence");
  } else {
    attention.visibility =
        is_second(file, "inclusive", "True", "False") ? Visibility::exclusive : Visibility::inclusive;
  }
  const auto weights = io::read_weights(in.reader(), {.prefix = "ska."}, config);
  const auto norm_weight = in.reader().get("norm.weight", {config.width});
  const auto norm_bias = in.reader().get("norm.bias", {config.width});
  in.reader().finish();
  Norm<Scalar> norm("norm", Norm<Scalar>::Kind::layer, config.width, config.width,
                    file.number_or("layer_norm_eps", 1e-5), norm_weight, norm_bias);
  return in.run(ResidualBlock<Scalar>(std::move(norm), SKALayer<Scalar>(config, weights), looks_ahead),
                request);
}

template Results run_ska_layer<float>(GoldenCase&, const Request&);
template Results run_ska_layer<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
