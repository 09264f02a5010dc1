// ShortConvolution: a causal convolution over the last W tokens, each channel by itself:
//   y_t[c] = f(bias[c] + sum_j w[c, j] x_{t-W+1+j}[c]),   j = 0 ... W-1, the last tap is the token itself
// with f = silu or nothing. Before the first token x is 0.
#pragma once

#include <algorithm>
#include <string>

#include "linrec/core/parameter.hpp"
#include "linrec/layers/layer_state.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

template <class Scalar>
class ShortConvolution {
 public:
  enum class Activation { none, silu };

  ShortConvolution() = default;
  /// @param weight [channels, 1, width] or [channels, width], taps oldest first.
  /// @param bias [channels] or absent.
  /// @throws ShapeError naming the parameter.
  ShortConvolution(const std::string& name, Index channels, Index width, const Parameter<Scalar>& weight,
                   const Parameter<Scalar>& bias = {}, Activation activation = Activation::silu)
      : channels_(channels), width_(width), activation_(activation) {
    if (width < 1) throw ValueError(message(name, ": expected a width of at least 1, got ", width));
    if (weight.present() && weight.shape().size() == 2)
      weight.check(name + ".weight", {channels, width});
    else
      weight.check(name + ".weight", {channels, 1, width});
    if (bias.present()) bias.check(name + ".bias", {channels});
    taps_.assign(static_cast<std::size_t>((width + 1) * channels), Scalar(0));
    for (Index c = 0; c < channels; ++c) {
      if (bias.present()) row(width)[c] = bias.data()[c];
      for (Index j = 0; j < width; ++j) row(j)[c] = weight.data()[c * width + j];
    }
  }

  Index channels() const { return channels_; }
  /// Taps, and the tokens that a state keeps.
  Index width() const { return width_; }

  /// y [n, channels] from x [n, channels] and the tokens before, which `window` has and is moved on.
  /// y must not overlap x. The channels are split among the workers of the chunk.
  void apply(const PackedRows& chunk, Rows<const Scalar> x, Window<Scalar>& window, Rows<Scalar> y) const {
    const double flops =
        static_cast<double>(2 * width_ + 20) * static_cast<double>(chunk.count() * channels_);
    for_each_range(chunk.executor, channels_, Lanes<Scalar>::size, flops,
                   [&](Index first, Index count) { convolve(chunk, x, window, y, first, count); });
    window.push(chunk, x);
  }

 private:
  /// The channels [first, first + count).
  void convolve(const PackedRows& chunk, Rows<const Scalar> x, const Window<Scalar>& window, Rows<Scalar> y,
                Index first, Index count) const noexcept {
    for (Index s = 0; s < chunk.sequences(); ++s)
      for (Index t = 0; t < chunk.count(s); ++t) {
        Scalar* const to = y[chunk.first(s) + t] + first;
        std::copy_n(row(width_) + first, count, to);
        for (Index j = 0; j < width_; ++j) {
          const Index at = t - (width_ - 1) + j;  // in this chunk; below 0: in the window
          const Scalar* from = at >= 0 ? x[chunk.first(s) + at] : window.row(s, width_ + at);
          accumulate(count, from + first, row(j) + first, to);
        }
        activate(count, to);
      }
  }

  Scalar* row(Index j) { return taps_.data() + j * channels_; }
  const Scalar* row(Index j) const { return taps_.data() + j * channels_; }

  static void accumulate(Index count, const Scalar* x, const Scalar* tap, Scalar* y) noexcept {
    map_packets(
        count, y,
        [](const auto& a, const auto& w, const auto& sum)
            LINREC_INLINE_LAMBDA { return Eigen::internal::pmadd(a, w, sum); },
        x, tap, static_cast<const Scalar*>(y));
  }
  void activate(Index count, Scalar* y) const noexcept {
    if (activation_ == Activation::silu)
      map_packets(
          count, y, [](const auto& a) LINREC_INLINE_LAMBDA { return silu_packet(a); },
          static_cast<const Scalar*>(y));
  }

  Index channels_ = 0, width_ = 0;
  Activation activation_ = Activation::silu;
  AlignedVector<Scalar> taps_;  // [W + 1, channels], the bias last: rows of neighbouring channels
};

}  // namespace linrec
