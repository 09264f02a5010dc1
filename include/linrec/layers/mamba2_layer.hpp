// The Mamba-2 layer (arXiv 2405.21060, section 7), around the kernel of mamba2.hpp:
//   z, xBC, dt = W_in u          x, B, C = silu(conv(xBC))        y = SSD(x, softplus(dt + dt_bias), A, B, C,
//   D) out = W_out norm(y silu(z))  or  W_out (norm(y) silu(z))  or, without a norm,  W_out (y silu(z))
// The norm is RMSNorm over groups of the inner channels. Where in_proj has more inner channels than the
// kernel takes, the first of them are a gated MLP beside it: out = W_out [silu(z0) x0, y].
#pragma once

#include "linrec/kernels/mamba2.hpp"
#include "linrec/layers/layer.hpp"
#include "linrec/layers/layer_checks.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/norm.hpp"
#include "linrec/layers/short_convolution.hpp"

namespace linrec {

struct Mamba2LayerConfig {
  Index width = 0;                                ///< D, of the layer's inputs and outputs
  Index heads = 0, head_dim = 0, state_size = 0;  ///< H, P, N
  Index groups = 1;                               ///< G, of B and C
  Index conv_width = 4;                           ///< W
  Index mlp_width = 0;                            ///< inner channels of the MLP beside the kernel
  bool gated_norm = true;                         ///< or none
  bool norm_before_gate = false;                  ///< norm(y) silu(z)
  Index norm_groups = 1;                          ///< that the inner channels are normalised in
  double norm_eps = 1e-5;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();  ///< limits of softplus(dt + dt_bias)

  Index inner() const { return heads * head_dim; }
  Index conv_channels() const { return inner() + 2 * groups * state_size; }
};

/// The names are those of the published checkpoints. The decay rates, A_log, are the spectrum of the layer.
template <class Scalar>
struct Mamba2LayerWeights {
  Parameter<Scalar> in_proj, in_proj_bias;    ///< [2 M + 2 H P + 2 G N + H, D] for z0, x0, z, x, B, C, dt
  Parameter<Scalar> conv1d, conv1d_bias;      ///< [H P + 2 G N, 1, W]
  Parameter<Scalar> dt_bias, D;               ///< [H]; D also [H P]
  Parameter<Scalar> norm;                     ///< [H P]
  Parameter<Scalar> out_proj, out_proj_bias;  ///< [D, M + H P]
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies, as for the kernel: one channel a head, the log-rates are A_log.
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper>
class Mamba2Layer : public Layer<Mamba2Layer<Scalar, Spectrum, Taper>, Scalar> {
  friend typename Mamba2Layer::Layer;

 public:
  using Config = Mamba2LayerConfig;
  using Weights = Mamba2LayerWeights<Scalar>;

  /// @throws ShapeError, naming the parameter, if the weights do not fit the config; ValueError for a bad
  /// config.
  Mamba2Layer(const Config& config, const Weights& weights, const Spectrum& spectrum,
              const Taper& taper = Taper())
      : config_(config),
        kernel_{checked(config), spectrum, taper, kernel_options(config, weights)} {  // {}: left to right
    const Index inner = config.inner(), channels = config.conv_channels(), mlp = config.mlp_width;
    const Index rows = 2 * mlp + inner + channels + config.heads;
    weights.in_proj.check_matrix("in_proj.weight", {rows, config.width});
    if (weights.in_proj_bias.present()) weights.in_proj_bias.check("in_proj.bias", {rows});
    Index first = 0;
    const auto next = [&](Index outputs) {
      const Index begin = std::exchange(first, first + outputs);
      return Linear<Scalar>(
          "in_proj", outputs, config.width, weights.in_proj.rows(begin, outputs),
          weights.in_proj_bias.present() ? weights.in_proj_bias.rows(begin, outputs) : Parameter<Scalar>());
    };
    to_mlp_gate_ = next(mlp), to_mlp_ = next(mlp), to_gate_ = next(inner), to_conv_ = next(channels),
    to_dt_ = next(config.heads);
    convolution_ =
        ShortConvolution<Scalar>("conv1d", channels, config.conv_width, weights.conv1d, weights.conv1d_bias);
    if (config.gated_norm) {
      weights.norm.check("norm.weight", {inner});
      norm_ = Norm<Scalar>("norm", Norm<Scalar>::Kind::rms, inner, inner / config.norm_groups,
                           config.norm_eps, weights.norm);
    }
    out_ = Linear<Scalar>("out_proj", config.width, mlp + inner, weights.out_proj, weights.out_proj_bias);
    this->describe(config.width, {"mamba2", kernel_.dims(), {{"conv", config.conv_width, channels}}});
  }

  const Config& config() const { return config_; }

  void forward(const PackedRows& rows, Rows<const Scalar> u, Rows<Scalar> out, LayerState<Scalar>& state,
               Scalar* scratch) const {
    Arena<Scalar> arena(scratch, rows.executor.concurrency());
    const Buffers b(arena, *this, u.count);
    const Index inner = config_.inner(), keys = config_.groups * config_.state_size;
    to_conv_.apply(u, b.before, rows.executor);
    convolution_.apply(rows, b.before, state.window(0), b.after);
    to_dt_.apply(u, b.dt, rows.executor);
    const Rows<Scalar> y = b.y.columns(config_.mlp_width, inner);
    kernel_.run({.x = as_heads(b.after.columns(0, inner), config_.heads),
                 .dt = as_heads(b.dt, config_.heads),
                 .B = as_heads(b.after.columns(inner, keys), config_.groups),
                 .C = as_heads(b.after.columns(inner + keys, keys), config_.groups)},
                state.recurrent(), as_heads(y, config_.heads), rows.layout(), b.kernel, rows.mode,
                rows.executor);
    const Rows<Scalar> z = b.gate.columns(0, inner);
    to_gate_.apply(u, z, rows.executor);
    if (config_.gated_norm && config_.norm_before_gate) norm_.apply(y, y);
    gate_with_silu<Scalar>(y, z, y);
    if (config_.gated_norm && !config_.norm_before_gate) norm_.apply(y, y);
    if (config_.mlp_width > 0) {
      const Rows<Scalar> mlp = b.y.columns(0, config_.mlp_width), gate = b.gate.columns(0, config_.mlp_width);
      to_mlp_gate_.apply(u, gate, rows.executor);
      to_mlp_.apply(u, mlp, rows.executor);
      gate_with_silu<Scalar>(mlp, gate, mlp);
    }
    out_.apply(b.y, out, rows.executor);
  }

 private:
  struct Buffers {
    Buffers(Arena<Scalar>& arena, const Mamba2Layer& layer, Index rows)
        : before(arena.rows(rows, layer.config_.conv_channels())),
          after(arena.rows(rows, layer.config_.conv_channels())),
          dt(arena.rows(rows, layer.config_.heads)),
          gate(arena.rows(rows, std::max(layer.config_.inner(), layer.config_.mlp_width))),
          y(arena.rows(rows, layer.config_.mlp_width + layer.config_.inner())),
          kernel(arena.take(arena.workers() * layer.kernel_.scratch_size())) {}
    Rows<Scalar> before, after, dt, gate, y;
    Scalar* kernel;
  };

  static Dims<> checked(const Config& config) {
    check_size("width", config.width);
    check_size("heads", config.heads);
    check_size("head_dim", config.head_dim);
    check_size("state_size", config.state_size);
    check_size("conv_width", config.conv_width);
    check_groups("groups", config.groups, config.heads);
    check_groups("norm_groups", config.norm_groups, config.inner());
    if (config.mlp_width < 0)
      throw ValueError(message("mlp_width: expected at least 0, got ", config.mlp_width));
    return {config.heads, config.state_size, config.head_dim};
  }

  static Mamba2Options kernel_options(const Config& config, const Weights& weights) {
    Mamba2Options options;
    weights.dt_bias.check("dt_bias", {config.heads});
    options.dt_bias = weights.dt_bias.to_double();
    if (weights.D.present()) {
      const bool wide = weights.D.shape() == std::vector<Index>{config.inner()} && config.head_dim > 1;
      weights.D.check("D", {wide ? config.inner() : config.heads});
      options.D = weights.D.to_double().reshaped(wide ? config.head_dim : 1, config.heads).transpose();
    }
    options.dt_softplus = true;
    options.dt_min = config.dt_min;
    options.dt_max = config.dt_max;
    return options;
  }

  Config config_;
  Mamba2<Scalar, Spectrum, Taper> kernel_;
  Linear<Scalar> to_mlp_gate_, to_mlp_, to_gate_, to_conv_, to_dt_, out_;
  ShortConvolution<Scalar> convolution_;
  Norm<Scalar> norm_;
};

}  // namespace linrec
