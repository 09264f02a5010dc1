// Which layer, and how it is made: a config and random weights, the same everywhere for one spec.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "linrec/core/token_view.hpp"
#include "linrec/kernels/recurrence.hpp"
#include "linrec/layers/gated_delta_net_layer.hpp"
#include "linrec/layers/gla_layer.hpp"
#include "linrec/layers/layer_state.hpp"
#include "linrec/layers/mamba2_layer.hpp"
#include "linrec/layers/retnet_layer.hpp"
#include "linrec/layers/rwkv7_time_mix.hpp"
#include "linrec/layers/ska_layer.hpp"

namespace linrec::test {

/// RWKV7ChannelMix has no config of its own.
struct ChannelMixConfig {
  Index width = 0, hidden = 0;
};

/// How the weights of linear maps are stored: as they are, as bfloat16, or as numbers of the same values.
enum class Matrices { plain, bfloat16, widened };

struct LayerSpec {
  std::string name;
  std::variant<Mamba2LayerConfig, RWKV7TimeMixConfig, ChannelMixConfig, GatedDeltaNetLayerConfig,
               GLALayerConfig, RetNetLayerConfig, SKALayerConfig>
      config;
  bool post = false;    ///< PostSpectrum and GapAwareTaper; of GLA also the gate of PoST's layer
  bool extras = false;  ///< of Mamba-2: biases of the projections, and one D a channel
  bool single = false;  ///< float
  std::uint64_t seed = 1;
  Matrices matrices = Matrices::plain;
};

/// T_ref of the taper of all layers with PoST.
inline constexpr double train_length = 50;

/// A layer of one scalar, whatever its kind. v_first is RWKV-7's and nobody else's.
template <class Scalar>
class LayerOf {
 public:
  using Input = TokenView<const Scalar>;
  using Output = TokenView<Scalar>;

  virtual ~LayerOf() = default;
  virtual Index width() const = 0;
  /// Channels of v_first; 0: none.
  virtual Index values() const = 0;
  virtual bool writes_values() const = 0;
  virtual const LayerStateShape& state_shape() const = 0;
  virtual LayerState<Scalar> initial_state(Index sequences) const = 0;
  virtual void validate(const Input& x, const Output& v_first, const LayerState<Scalar>& state,
                        const Output& y, const SequenceLayout& layout) const = 0;
  virtual void prefill(const Input& x, const Output& v_first, LayerState<Scalar>& state, const Output& y,
                       const PrefillOptions& options, const ExecutorRef& executor = {}) const = 0;
  virtual void step(const Input& x, const Output& v_first, LayerState<Scalar>& state,
                    const Output& y) const noexcept = 0;
};

template <class Scalar>
using LayerPointerOf = std::unique_ptr<const LayerOf<Scalar>>;

/// Four instantiations, each in a file of its own.
template <class Scalar, bool post>
LayerPointerOf<Scalar> make_typed_layer(const LayerSpec& spec);

template <class Scalar>
LayerPointerOf<Scalar> make_layer_of(const LayerSpec& spec) {
  return spec.post ? make_typed_layer<Scalar, true>(spec) : make_typed_layer<Scalar, false>(spec);
}

}  // namespace linrec::test
