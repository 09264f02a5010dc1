// What the tests of the layers share (any_layer.hpp), but for what needs the layers' types.
#include "tests/layers/any_layer.hpp"

#include "linrec/io/snapshot.hpp"
#include "tests/catch.hpp"

namespace linrec::test {

namespace {

/// A tensor in the layer's scalar, at the same place in memory; changes go back to it at the end.
template <class Scalar>
class Converted {
 public:
  explicit Converted(Tensor& tensor) : Converted(static_cast<const Tensor&>(tensor)) { back_ = &tensor; }
  explicit Converted(const Tensor& tensor) : extents_(tensor.extents), strides_(tensor.strides) {
    for (const double x : tensor.numbers) numbers_.push_back(static_cast<Scalar>(x));
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;
  ~Converted() {
    if (back_ == nullptr) return;
    for (std::size_t i = 0; i < numbers_.size(); ++i) back_->numbers[i] = static_cast<double>(numbers_[i]);
  }
  TokenView<Scalar> view() { return {numbers_.data(), extents_, strides_}; }

 private:
  std::vector<Scalar> numbers_;
  std::array<Index, 4> extents_;
  std::array<Index, 3> strides_;
  Tensor* back_ = nullptr;
};

template <class Scalar>
Scalar scalar_of(const LayerPointerOf<Scalar>&);

/// Calls f(x, v_first, y) with the views; x and y are one if the tensors are.
template <class Scalar, class F>
void with_views(const Tensor& x, Tensor& v_first, Tensor& y, F&& f) {
  Converted<Scalar> values(v_first), outputs(y);
  if (&x == &y) return f(outputs.view(), values.view(), outputs.view());
  Converted<Scalar> inputs(x);
  f(inputs.view(), values.view(), outputs.view());
}

/// Of all tokens, and of those of earlier chunks if they are told apart.
std::vector<const SkaFit*> fits_of(const SkaState& state, Index s, Index h) {
  std::vector<const SkaFit*> fits{&state.now(s, h)};
  if (state.shape().chunk > 0) fits.push_back(&state.past(s, h));
  return fits;
}

}  // namespace

const LayerStateShape& AnyLayerState::shape() const {
  return std::visit([](const auto& s) -> const LayerStateShape& { return s.shape(); }, state_);
}
Index AnyLayerState::sequences() const {
  return std::visit([](const auto& s) { return s.sequences(); }, state_);
}
std::int64_t AnyLayerState::position(Index s) const {
  return std::visit([&](const auto& state) { return state.position(s); }, state_);
}
void AnyLayerState::set_position(Index s, std::int64_t position) {
  std::visit([&](auto& state) { state.set_position(s, position); }, state_);
}
void AnyLayerState::reset(Index s) {
  std::visit([&](auto& state) { state.reset(s); }, state_);
}
Index AnyLayerState::bytes_per_sequence() const {
  return std::visit([](const auto& state) { return state.bytes_per_sequence(); }, state_);
}
Eigen::MatrixXd AnyLayerState::matrix(Index s, Index h) const {
  return std::visit(
      [&](const auto& state) -> Eigen::MatrixXd {
        return state.recurrent().matrix(s, h).template cast<double>();
      },
      state_);
}
void AnyLayerState::set_matrix(Index s, Index h, const Eigen::MatrixXd& matrix) {
  std::visit([&](auto& state) { state.recurrent().set_matrix(s, h, matrix); }, state_);
}
Eigen::MatrixXd AnyLayerState::window(Index s, Index window) const {
  const LayerStateShape::Window& shape_of = shape().windows[static_cast<std::size_t>(window)];
  Eigen::MatrixXd rows(shape_of.rows, shape_of.channels);
  std::visit(
      [&](const auto& state) {
        for (Index i = 0; i < rows.rows(); ++i)
          for (Index c = 0; c < rows.cols(); ++c)
            rows(i, c) = static_cast<double>(state.window(window).row(s, i)[c]);
      },
      state_);
  return rows;
}
void AnyLayerState::set_window(Index s, Index window, const Eigen::MatrixXd& rows) {
  std::visit(
      [&](auto& state) {
        using Scalar = typename std::remove_reference_t<decltype(state)>::Scalar;
        for (Index i = 0; i < rows.rows(); ++i)
          for (Index c = 0; c < rows.cols(); ++c)
            state.window(window).row(s, i)[c] = static_cast<Scalar>(rows(i, c));
      },
      state_);
}

SkaState& AnyLayerState::ska() {
  return std::visit([](auto& state) -> SkaState& { return state.ska(); }, state_);
}
const SkaState& AnyLayerState::ska() const {
  return std::visit([](const auto& state) -> const SkaState& { return state.ska(); }, state_);
}

std::vector<double> AnyLayerState::numbers(Index s) const {
  std::vector<double> all;
  const auto add = [&](const Eigen::MatrixXd& m) { all.insert(all.end(), m.data(), m.data() + m.size()); };
  if (shape().recurrent)
    for (Index h = 0; h < shape().recurrent->heads(); ++h) add(matrix(s, h));
  for (Index h = 0; shape().ska && h < shape().ska->heads; ++h) {
    for (const SkaFit* fit : fits_of(ska(), s, h)) {
      const SkaStatistics& sums = fit->statistics();
      add(sums.G()), add(sums.M()), add(sums.Cv()), add(sums.last_key()), add(sums.first_key());
      if (fit->factor().ready()) add(fit->factor().inverse());
      std::apply([&](const auto&... number) { (all.push_back(static_cast<double>(number)), ...); },
                 fit->record());
    }
    all.push_back(static_cast<double>(ska().failures(s, h)));
  }
  for (Index w = 0; w < static_cast<Index>(shape().windows.size()); ++w) add(window(s, w));
  all.push_back(static_cast<double>(position(s)));
  return all;
}
std::vector<double> AnyLayerState::numbers() const {
  std::vector<double> all;
  for (Index s = 0; s < sequences(); ++s) {
    const std::vector<double> one = numbers(s);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void AnyLayerState::set_sequence(Index s, const AnyLayerState& other, Index from) {
  if (shape().recurrent)
    for (Index h = 0; h < shape().recurrent->heads(); ++h) set_matrix(s, h, other.matrix(from, h));
  for (Index h = 0; shape().ska && h < shape().ska->heads; ++h) {
    ska().now(s, h) = other.ska().now(from, h);
    if (shape().ska->chunk > 0) ska().past(s, h) = other.ska().past(from, h);
    ska().failures(s, h) = other.ska().failures(from, h);
  }
  for (Index w = 0; w < static_cast<Index>(shape().windows.size()); ++w)
    set_window(s, w, other.window(from, w));
  set_position(s, other.position(from));
}

std::vector<std::byte> AnyLayerState::snapshot() const {
  return std::visit([](const auto& state) { return io::snapshot_bytes(state); }, state_);
}
void AnyLayerState::load_snapshot(std::vector<std::byte> bytes) {
  std::visit([&](auto& state) { io::load_snapshot_bytes(std::move(bytes), state); }, state_);
}

AnyLayer::AnyLayer(const LayerSpec& spec) {
  if (spec.single)
    layer_ = make_layer_of<float>(spec);
  else
    layer_ = make_layer_of<double>(spec);
}
Index AnyLayer::width() const {
  return std::visit([](const auto& layer) { return layer->width(); }, layer_);
}
Index AnyLayer::values() const {
  return std::visit([](const auto& layer) { return layer->values(); }, layer_);
}
bool AnyLayer::writes_values() const {
  return std::visit([](const auto& layer) { return layer->writes_values(); }, layer_);
}
const LayerStateShape& AnyLayer::state_shape() const {
  return std::visit([](const auto& layer) -> const LayerStateShape& { return layer->state_shape(); }, layer_);
}
AnyLayerState AnyLayer::initial_state(Index sequences) const {
  return std::visit([&](const auto& layer) { return AnyLayerState(layer->initial_state(sequences)); },
                    layer_);
}

void AnyLayer::validate(const Tensor& x, Tensor& v_first, const AnyLayerState& state, Tensor& y,
                        const SequenceLayout& layout) const {
  std::visit(
      [&](const auto& layer) {
        using Scalar = decltype(scalar_of(layer));
        with_views<Scalar>(x, v_first, y, [&](const auto& in, const auto& values, const auto& out) {
          layer->validate(in, values, std::get<LayerState<Scalar>>(state.state_), out, layout);
        });
      },
      layer_);
}
void AnyLayer::prefill(const Tensor& x, Tensor& v_first, AnyLayerState& state, Tensor& y,
                       const LayerRun& run) const {
  std::visit(
      [&](const auto& layer) {
        using Scalar = decltype(scalar_of(layer));
        with_views<Scalar>(x, v_first, y, [&](const auto& in, const auto& values, const auto& out) {
          layer->prefill(in, values, std::get<LayerState<Scalar>>(state.state_), out,
                         {run.layout, run.workspace}, run.executor);
        });
      },
      layer_);
}
void AnyLayer::step(const Tensor& x, Tensor& v_first, AnyLayerState& state, Tensor& y) const {
  std::visit(
      [&](const auto& layer) {
        using Scalar = decltype(scalar_of(layer));
        with_views<Scalar>(x, v_first, y, [&](const auto& in, const auto& values, const auto& out) {
          layer->step(in, values, std::get<LayerState<Scalar>>(state.state_), out);
        });
      },
      layer_);
}

const std::vector<LayerSpec>& all_layers() {
  static const std::vector<LayerSpec> specs = [] {
    std::vector<LayerSpec> all;
    all.push_back({"Mamba-2", Mamba2LayerConfig{.width = 13, .heads = 3, .head_dim = 5, .state_size = 3}});
    all.push_back({"Mamba-2, grouped, with all options",
                   Mamba2LayerConfig{.width = 11,
                                     .heads = 4,
                                     .head_dim = 3,
                                     .state_size = 7,
                                     .groups = 2,
                                     .conv_width = 3,
                                     .mlp_width = 5,
                                     .norm_before_gate = true,
                                     .norm_groups = 2,
                                     .dt_min = 0.05,
                                     .dt_max = 1.5},
                   false, true});
    all.push_back(
        {"Mamba-2, no norm",
         Mamba2LayerConfig{
             .width = 9, .heads = 2, .head_dim = 17, .state_size = 5, .conv_width = 2, .gated_norm = false}});
    all.push_back(
        {"Mamba-2, PoST", Mamba2LayerConfig{.width = 12, .heads = 3, .head_dim = 5, .state_size = 3}, true});
    all.push_back({"RWKV-7, first",
                   RWKV7TimeMixConfig{.width = 15, .heads = 3, .key = 5, .value = 5, .first_layer = true}});
    all.push_back(
        {"RWKV-7, later", RWKV7TimeMixConfig{.width = 14, .heads = 2, .key = 7, .value = 3, .kk_eps = 1e-6}});
    all.push_back({"RWKV-7, PoST", RWKV7TimeMixConfig{.width = 10, .heads = 2, .key = 5, .value = 5}, true});
    all.push_back({"RWKV-7, channel mix", ChannelMixConfig{9, 21}});
    const GatedDeltaNetLayerConfig delta{.width = 13, .heads = 2, .key_dim = 5, .value_dim = 3};
    all.push_back({"Gated DeltaNet", delta});
    GatedDeltaNetLayerConfig changed = delta;
    changed.value_heads = 6;
    all.push_back({"Gated DeltaNet, grouped values", changed});
    changed.output_gate = false;
    changed.conv_width = 2;
    all.push_back({"Gated DeltaNet, no gate", changed});
    changed = delta;
    changed.conv_width = 0;
    all.push_back({"Gated DeltaNet, no convolutions", changed});
    changed = delta;
    changed.allow_neg_eigval = true;
    all.push_back({"Gated DeltaNet, PoST", changed, true});
    all.push_back({"GLA", GLALayerConfig{.width = 11, .heads = 2, .key_dim = 3, .value_dim = 5}});
    all.push_back({"GLA, one key, convolutions", GLALayerConfig{.width = 10,
                                                                .heads = 3,
                                                                .kv_heads = 1,
                                                                .key_dim = 5,
                                                                .value_dim = 3,
                                                                .conv_width = 3,
                                                                .feature_map = FeatureMap::squared_relu,
                                                                .norm_weight = false,
                                                                .clamp_min = -0.05}});
    all.push_back({"GLA, PoST", GLALayerConfig{.width = 11, .heads = 4, .key_dim = 3, .value_dim = 5}, true});
    all.push_back({"RetNet", RetNetLayerConfig{.width = 11, .heads = 2, .key_dim = 6, .value_dim = 5}});
    all.push_back({"RetNet, grouped keys, convolutions", RetNetLayerConfig{.width = 10,
                                                                           .heads = 4,
                                                                           .kv_heads = 2,
                                                                           .key_dim = 10,
                                                                           .value_dim = 3,
                                                                           .conv_width = 4,
                                                                           .feature_map = FeatureMap::sigmoid,
                                                                           .output_gate = false}});
    all.push_back(
        {"RetNet, PoST", RetNetLayerConfig{.width = 9, .heads = 3, .key_dim = 2, .value_dim = 3}, true});
    all.push_back({"SKA", SKALayerConfig{.width = 11, .attention = {.heads = 3, .key = 5, .value = 3}}});
    all.push_back(
        {"SKA, exclusive, unit keys", SKALayerConfig{.width = 10,
                                                     .attention = {.heads = 2,
                                                                   .key = 9,
                                                                   .value = 4,
                                                                   .ridge = 1e-2,
                                                                   .power = 3,
                                                                   .key_scale = KeyScale::unit_norm,
                                                                   .visibility = Visibility::exclusive}}});
    all.push_back({"SKA, chunks, as released",
                   SKALayerConfig{.width = 12,
                                  .attention = {.heads = 2,
                                                .key = 4,
                                                .value = 5,
                                                .koopman_operator = KoopmanOperator::unwhitened,
                                                .visibility = Visibility::earlier_chunks,
                                                .chunk = 7,
                                                .boundary_transition = true}}});
    std::vector<LayerSpec> both = all;
    for (LayerSpec& spec : all) {
      spec.single = true;
      spec.name += ", float";
      both.push_back(std::move(spec));
    }
    return both;
  }();
  return specs;
}

LayerSpec layer_named(const std::string& name) {
  for (const LayerSpec& spec : all_layers())
    if (spec.name == name) return spec;
  throw std::out_of_range(name);
}

LayerInputs random_layer_inputs(const AnyLayer& layer, Index B, Index T, std::uint64_t seed) {
  Random random(seed);
  LayerInputs inputs{Tensor({B, T, 1, layer.width()}), {}};
  const auto number = [&] {
    const double x = random.uniform(-1.5, 1.5);
    return layer.single() ? static_cast<double>(static_cast<float>(x)) : x;
  };
  for (double& x : inputs.x.numbers) x = number();
  if (layer.values() == 0) return inputs;
  inputs.v_first = Tensor({B, T, 1, layer.values()}, std::numeric_limits<double>::quiet_NaN());
  if (!layer.writes_values())
    for (double& x : inputs.v_first.numbers) x = number();
  return inputs;
}

AnyLayerState random_layer_state(const AnyLayer& layer, Index sequences, std::uint64_t seed) {
  Random random(seed);
  AnyLayerState state = layer.initial_state(sequences);
  const LayerStateShape& shape = state.shape();
  const auto fill = [&](Index rows, Index columns) {
    return Eigen::MatrixXd::NullaryExpr(rows, columns, [&] { return random.uniform(-1, 1); }).eval();
  };
  for (Index s = 0; s < sequences; ++s) {
    if (shape.recurrent)
      for (Index h = 0; h < shape.recurrent->heads(); ++h)
        state.set_matrix(s, h, fill(shape.recurrent->key(), shape.recurrent->value()));
    for (Index h = 0; shape.ska && h < shape.ska->heads; ++h) {
      SkaStatistics sums(shape.ska->key, shape.ska->value, shape.ska->scale);
      const auto add_tokens = [&](Index count) {
        for (; count > 0; --count) {
          const Eigen::MatrixXd key = fill(shape.ska->key, 1), value = fill(shape.ska->value, 1);
          sums.add(std::span(key.data(), static_cast<std::size_t>(key.size())),
                   std::span(value.data(), static_cast<std::size_t>(value.size())));
        }
      };
      add_tokens(random.integer(0, 9));
      if (shape.ska->chunk > 0) state.ska().past(s, h).statistics() = sums;
      add_tokens(random.integer(1, 9));
      state.ska().set_statistics(s, h, sums);
    }
    for (std::size_t w = 0; w < shape.windows.size(); ++w)
      state.set_window(s, static_cast<Index>(w), fill(shape.windows[w].rows, shape.windows[w].channels));
    state.set_position(s, random.integer(0, 1000));
  }
  return state;
}

LayerOutputs LayerOutputs::slice(Index first, Index count) const {
  return {y.slice(first, count), v_first.extents[3] == 0 ? v_first : v_first.slice(first, count)};
}
LayerOutputs LayerOutputs::gather(const std::vector<std::array<Index, 2>>& tokens) const {
  return {y.gather(tokens), v_first.extents[3] == 0 ? v_first : v_first.gather(tokens)};
}
void LayerOutputs::set_slice(Index first, const LayerOutputs& part) {
  y.set_slice(first, part.y);
  v_first.set_slice(first, part.v_first);
}

LayerOutputs empty_layer_outputs(const AnyLayer& layer, const LayerInputs& inputs) {
  const auto& e = inputs.x.extents;
  return {Tensor({e[0], e[1], 1, layer.width()}, std::numeric_limits<double>::quiet_NaN()), inputs.v_first};
}

LayerOutputs prefill(const AnyLayer& layer, const LayerInputs& inputs, AnyLayerState& state,
                     const LayerRun& run) {
  LayerOutputs outputs = empty_layer_outputs(layer, inputs);
  layer.prefill(inputs.x, outputs.v_first, state, outputs.y, run);
  return outputs;
}

LayerOutputs steps(const AnyLayer& layer, const LayerInputs& inputs, AnyLayerState& state) {
  LayerOutputs outputs = empty_layer_outputs(layer, inputs);
  for (Index t = 0; t < inputs.x.extents[1]; ++t) {
    const LayerInputs token = inputs.slice(t, 1);
    LayerOutputs output = empty_layer_outputs(layer, token);
    layer.step(token.x, output.v_first, state, output.y);
    outputs.set_slice(t, output);
  }
  return outputs;
}

std::string difference(const LayerOutputs& got, const LayerOutputs& expected) {
  const std::string y = difference(got.y, expected.y);
  if (!y.empty()) return "y" + y;
  const std::string values = difference(got.v_first, expected.v_first);
  return values.empty() ? "" : "v_first" + values;
}

TEST_CASE("the fixtures: every layer in both scalars, and outputs that say something") {
  CHECK(all_layers().size() == 2 * 22);
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    AnyLayerState state = layer.initial_state();
    const LayerOutputs outputs = prefill(layer, random_layer_inputs(layer, 1, 20, 1), state);
    double low = 1e300, high = -1e300;
    for (const double y : outputs.y.numbers) low = std::min(low, y), high = std::max(high, y);
    CHECK(low > -100);
    CHECK(low < -0.01);
    CHECK(high > 0.01);
    CHECK(high < 100);
    CHECK(state.position(0) == 20);
  }
}

}  // namespace linrec::test
