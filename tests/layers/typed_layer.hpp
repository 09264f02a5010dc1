// LayerOf over the type of a layer, and the factory of one scalar with or without PoST. Included by the files
// that instantiate.
#pragma once

#include <type_traits>
#include <utility>

#include "tests/layers/random_weights.hpp"

namespace linrec::test {

template <class Layer>
class TypedLayer final : public LayerOf<typename Layer::Scalar> {
  using Scalar = typename Layer::Scalar;
  using Input = TokenView<const Scalar>;
  using Output = TokenView<Scalar>;
  static constexpr bool hands_values_on =
      requires(const Layer& layer, const Input& x, const Output& y, LayerState<Scalar>& state) {
    layer.step(x, y, state, y);
  };

 public:
  explicit TypedLayer(Layer layer) : layer_(std::move(layer)) {}

  Index width() const override { return layer_.width(); }
  Index values() const override {
    if constexpr (hands_values_on) return layer_.config().heads * layer_.config().value;
    return 0;
  }
  bool writes_values() const override {
    if constexpr (hands_values_on) return layer_.config().first_layer;
    return false;
  }
  const LayerStateShape& state_shape() const override { return layer_.state_shape(); }
  LayerState<Scalar> initial_state(Index sequences) const override { return layer_.initial_state(sequences); }
  void validate(const Input& x, [[maybe_unused]] const Output& v_first, const LayerState<Scalar>& state,
                const Output& y, const SequenceLayout& layout) const override {
    if constexpr (hands_values_on)
      layer_.validate(x, v_first, state, y, layout);
    else
      layer_.validate(x, state, y, layout);
  }
  void prefill(const Input& x, [[maybe_unused]] const Output& v_first, LayerState<Scalar>& state,
               const Output& y, const PrefillOptions& options, const ExecutorRef& executor) const override {
    if constexpr (hands_values_on)
      layer_.prefill(x, v_first, state, y, options, executor);
    else
      layer_.prefill(x, state, y, options, executor);
  }
  void step(const Input& x, [[maybe_unused]] const Output& v_first, LayerState<Scalar>& state,
            const Output& y) const noexcept override {
    if constexpr (hands_values_on)
      layer_.step(x, v_first, state, y);
    else
      layer_.step(x, state, y);
  }

 private:
  Layer layer_;
};

/// What the layers of one factory have in common.
template <class Scalar, bool post>
class LayerFactory {
  using Spectrum = std::conditional_t<post, PostSpectrum, FreeSpectrum>;
  using Taper = std::conditional_t<post, GapAwareTaper, NoTaper>;

 public:
  explicit LayerFactory(const LayerSpec& spec) : spec_(spec) {}

  LayerPointerOf<Scalar> operator()(const Mamba2LayerConfig& c) const {
    return wrap<Mamba2Layer<Scalar, Spectrum, Taper>>(c, c.heads);
  }
  LayerPointerOf<Scalar> operator()(const RWKV7TimeMixConfig& c) const {
    return wrap<RWKV7TimeMix<Scalar, Spectrum, Taper>>(c, c.heads * c.key);
  }
  LayerPointerOf<Scalar> operator()(const GatedDeltaNetLayerConfig& c) const {
    return wrap<GatedDeltaNetLayer<Scalar, Spectrum, Taper>>(c, c.output_heads());
  }
  LayerPointerOf<Scalar> operator()(const GLALayerConfig& c) const {
    if constexpr (post) return wrap<GLALayer<Scalar, Spectrum, Taper>>(c, c.heads);
    return wrap_published<GLALayer<Scalar>>(c);
  }
  LayerPointerOf<Scalar> operator()(const RetNetLayerConfig& c) const {
    if constexpr (post) return wrap<RetNetLayer<Scalar, Spectrum, Taper>>(c, c.heads);
    return wrap_published<RetNetLayer<Scalar>>(c);
  }
  LayerPointerOf<Scalar> operator()(const SKALayerConfig& c) const {
    if constexpr (post) return nullptr;  // has no decays
    return wrap_published<SKALayer<Scalar>>(c);
  }
  LayerPointerOf<Scalar> operator()(const ChannelMixConfig& c) const {
    if constexpr (post) return nullptr;  // likewise
    using Layer = RWKV7ChannelMix<Scalar>;
    return std::make_unique<TypedLayer<Layer>>(Layer(c.width, c.hidden, weights_of<Scalar>(spec_, c)));
  }

 private:
  template <class Layer>
  LayerPointerOf<Scalar> wrap(const typename Layer::Config& config, Index channels) const {
    const Eigen::ArrayXd rates = log_rates_of_layer(channels);
    if constexpr (post)
      return std::make_unique<TypedLayer<Layer>>(Layer(config, weights_of<Scalar>(spec_, config),
                                                       PostSpectrum::from_log_rates(rates),
                                                       GapAwareTaper(train_length)));
    else
      return std::make_unique<TypedLayer<Layer>>(
          Layer(config, weights_of<Scalar>(spec_, config), FreeSpectrum(rates)));
  }
  template <class Layer>
  LayerPointerOf<Scalar> wrap_published(const typename Layer::Config& config) const {
    return std::make_unique<TypedLayer<Layer>>(Layer(config, weights_of<Scalar>(spec_, config)));
  }

  const LayerSpec& spec_;
};

template <class Scalar, bool post>
LayerPointerOf<Scalar> make_typed_layer(const LayerSpec& spec) {
  return std::visit(LayerFactory<Scalar, post>(spec), spec.config);
}

}  // namespace linrec::test
