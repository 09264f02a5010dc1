// The layers as checkpoints need them, plain and PoST, compiled once for the tools and the tests.
#pragma once

#include "linrec/layers/gated_delta_net_layer.hpp"
#include "linrec/layers/gla_layer.hpp"
#include "linrec/layers/mamba2_layer.hpp"
#include "linrec/layers/retnet_layer.hpp"
#include "linrec/layers/rwkv7_channel_mix.hpp"
#include "linrec/layers/rwkv7_time_mix.hpp"
#include "linrec/layers/ska_layer.hpp"

// keyword is `extern template` or `template`
#define LINREC_LAYERS(keyword, Scalar)                                \
  keyword class Mamba2Layer<Scalar>;                                  \
  keyword class Mamba2Layer<Scalar, PostSpectrum, GivenTaper>;        \
  keyword class RWKV7TimeMix<Scalar>;                                 \
  keyword class RWKV7TimeMix<Scalar, PostSpectrum, GivenTaper>;       \
  keyword class RWKV7ChannelMix<Scalar>;                              \
  keyword class GatedDeltaNetLayer<Scalar>;                           \
  keyword class GatedDeltaNetLayer<Scalar, PostSpectrum, GivenTaper>; \
  keyword class GLALayer<Scalar>;                                     \
  keyword class GLALayer<Scalar, PostSpectrum, GivenTaper>;           \
  keyword class RetNetLayer<Scalar>;                                  \
  keyword class SKALayer<Scalar>

namespace linrec {

LINREC_LAYERS(extern template, float);
LINREC_LAYERS(extern template, double);

}  // namespace linrec
