// FeatureMap: elementwise functions that layers apply to queries, keys and hidden channels.
#pragma once

#include <cmath>

#include "linrec/layers/rows.hpp"

namespace linrec {

enum class FeatureMap { identity, relu, sigmoid, silu, tanh, squared_relu };

/// x = f(x)
template <class Scalar>
void apply_feature_map(FeatureMap map, Rows<Scalar> x) noexcept {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  const Packet zero = pset1<Packet>(Scalar(0));
  switch (map) {
    case FeatureMap::identity:
      return;
    case FeatureMap::relu:
      return map_rows(x, [&](const Packet& a) LINREC_INLINE_LAMBDA { return pmax(a, zero); });
    case FeatureMap::sigmoid:
      return map_rows(x, [](const Packet& a) LINREC_INLINE_LAMBDA { return sigmoid_packet(a); });
    case FeatureMap::silu:
      return map_rows(x, [](const Packet& a) LINREC_INLINE_LAMBDA { return silu_packet(a); });
    case FeatureMap::tanh:
      for (Index i = 0; i < x.count; ++i)
        for (Index j = 0; j < x.width; ++j) x[i][j] = std::tanh(x[i][j]);
      return;
    case FeatureMap::squared_relu:
      return map_rows(x, [&](const Packet& a) LINREC_INLINE_LAMBDA {
        const Packet positive = pmax(a, zero);
        return pmul(positive, positive);
      });
  }
}

}  // namespace linrec
