#include "linrec/layers/ska_layer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "residual_block.hpp"

namespace linrec::verify {

namespace {

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
  Norm<Scalar> norm = read_layer_norm(in);
  in.reader().finish();
  using Block = ResidualBlock<Scalar, LayerBranch<SKALayer<Scalar>>>;
  return in.run(Block(std::move(norm), SKALayer<Scalar>(config, weights), looks_ahead), request);
}

template Results run_ska_layer<float>(GoldenCase&, const Request&);
template Results run_ska_layer<double>(GoldenCase&, const Request&);

}  // namespace linrec::verify
