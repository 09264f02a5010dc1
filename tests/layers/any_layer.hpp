// One interface to all layers in both scalars, so that a test is written, and compiled, once. Numbers cross
// it in double, as for the kernels (tests/kernels/any_kernel.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "linrec/core/workspace.hpp"
#include "tests/kernels/batch.hpp"
#include "tests/kernels/tensor.hpp"
#include "tests/layers/layer_spec.hpp"

namespace linrec::test {

/// A value, as LayerState is.
class AnyLayerState {
 public:
  template <class Scalar>
  explicit AnyLayerState(LayerState<Scalar> state) : state_(std::move(state)) {}

  const LayerStateShape& shape() const;
  Index sequences() const;
  std::int64_t position(Index s) const;
  void set_position(Index s, std::int64_t position);
  void reset(Index s);
  Index bytes_per_sequence() const;
  Eigen::MatrixXd matrix(Index s, Index h) const;
  void set_matrix(Index s, Index h, const Eigen::MatrixXd& matrix);
  /// [rows, channels]
  Eigen::MatrixXd window(Index s, Index window) const;
  void set_window(Index s, Index window, const Eigen::MatrixXd& rows);
  SkaState& ska();
  const SkaState& ska() const;
  /// Matrices, statistics of SKA with what is derived from them, and windows of one sequence, and its
  /// position last.
  std::vector<double> numbers(Index s) const;
  /// Of all sequences.
  std::vector<double> numbers() const;
  /// Makes sequence s what sequence `from` of another state is.
  void set_sequence(Index s, const AnyLayerState& other, Index from);

  std::vector<std::byte> snapshot() const;
  void load_snapshot(std::vector<std::byte> bytes);

  friend bool operator==(const AnyLayerState&, const AnyLayerState&) = default;

 private:
  friend class AnyLayer;
  std::variant<LayerState<double>, LayerState<float>> state_;
};

struct LayerRun {
  SequenceLayout layout = {};
  Workspace* workspace = nullptr;
  ExecutorRef executor = {};
};

class AnyLayer {
 public:
  explicit AnyLayer(const LayerSpec& spec);

  bool single() const { return layer_.index() == 1; }
  Index width() const;
  Index values() const;
  bool writes_values() const;
  const LayerStateShape& state_shape() const;
  AnyLayerState initial_state(Index sequences = 1) const;
  /// y may be the same tensor as x. v_first is empty where there is none.
  void validate(const Tensor& x, Tensor& v_first, const AnyLayerState& state, Tensor& y,
                const SequenceLayout& layout = {}) const;
  void prefill(const Tensor& x, Tensor& v_first, AnyLayerState& state, Tensor& y,
               const LayerRun& run = {}) const;
  void step(const Tensor& x, Tensor& v_first, AnyLayerState& state, Tensor& y) const;

 private:
  std::variant<LayerPointerOf<double>, LayerPointerOf<float>> layer_;
};

/// Every kind and every option that changes what a layer does, in double and in float. The sizes are ragged:
/// nothing is a whole number of cache lines.
const std::vector<LayerSpec>& all_layers();
/// By its name, in double.
LayerSpec layer_named(const std::string& name);

struct LayerInputs {
  Tensor x, v_first;  ///< v_first is NaN where the layer writes it

  template <class F>
  LayerInputs each(F&& f) const {
    return {f(x), v_first.extents[3] == 0 ? v_first : f(v_first)};
  }
  LayerInputs slice(Index first, Index count) const {
    return each([&](const Tensor& tensor) { return tensor.slice(first, count); });
  }
  LayerInputs gather(const std::vector<std::array<Index, 2>>& tokens) const {
    return each([&](const Tensor& tensor) { return tensor.gather(tokens); });
  }
};
LayerInputs random_layer_inputs(const AnyLayer& layer, Index B, Index T, std::uint64_t seed);
/// Random numbers and positions.
AnyLayerState random_layer_state(const AnyLayer& layer, Index sequences, std::uint64_t seed);

struct LayerOutputs {
  Tensor y, v_first;  ///< v_first as it was where the layer reads it

  LayerOutputs slice(Index first, Index count) const;
  LayerOutputs gather(const std::vector<std::array<Index, 2>>& tokens) const;
  void set_slice(Index first, const LayerOutputs& part);
};
/// NaN: every output must be written.
LayerOutputs empty_layer_outputs(const AnyLayer& layer, const LayerInputs& inputs);
LayerOutputs prefill(const AnyLayer& layer, const LayerInputs& inputs, AnyLayerState& state,
                     const LayerRun& run = {});
/// Token by token.
LayerOutputs steps(const AnyLayer& layer, const LayerInputs& inputs, AnyLayerState& state);
/// Empty if all bits are equal.
std::string difference(const LayerOutputs& got, const LayerOutputs& expected);

}  // namespace linrec::test
