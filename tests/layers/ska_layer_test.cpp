// The SKA layer against its formula, and what it does beyond other layers: it looks ahead, and counts queries
// without an answer.
#include "linrec/layers/ska_layer.hpp"

#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/kernels/batch.hpp"
#include "tests/layers/random_weights.hpp"

namespace linrec::test::ska_layer_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr Index B = 2, T = 70, D = 10;  // more than a chunk

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

SKALayerConfig config_of(Visibility visibility) {
  return {.width = D, .attention = {.heads = 2, .key = 5, .value = 3, .visibility = visibility, .chunk = 8}};
}
SKALayerWeights<double> weights_for(const SKALayerConfig& config) {
  return weights_of<double>(LayerSpec{"", config}, config);
}

Matrix random_rows(Index rows, std::uint64_t seed) {
  Random random(seed);
  return Matrix::NullaryExpr(rows, D, [&] { return random.uniform(-1, 1); });
}
template <class Rows>
auto view(Rows& rows, Index batch) {
  return TokenView(rows.data(), batch, static_cast<Index>(rows.rows()) / batch, 1,
                   static_cast<Index>(rows.cols()));
}
TokenView<const double> input(const Matrix& rows, Index batch = B) { return view(rows, batch); }

Matrix project(const Matrix& x, const Parameter<double>& weight) {
  return x * Eigen::Map<const Matrix>(weight.data(), weight.shape()[0], weight.shape()[1]).transpose();
}

Matrix prefill(const SKALayer<double>& layer, const Matrix& x, LayerState<double>& state) {
  Matrix y(x.rows(), D);
  layer.prefill(input(x), state, view(y, B));
  return y;
}

/// The longest key of head h in rows [first, first + count).
double longest(const Matrix& keys, Index h, Index first, Index count) {
  return keys.block(first, 5 * h, count, 5).rowwise().norm().maxCoeff();
}

}  // namespace

TEST_CASE("SKALayer: spectral Koopman attention between projections") {
  for (const Visibility visibility :
       {Visibility::inclusive, Visibility::exclusive, Visibility::earlier_chunks}) {
    const SKALayerConfig config = config_of(visibility);
    const SKALayerWeights<double> w = weights_for(config);
    const SKALayer<double> layer(config, w);
    CHECK(layer.config().attention.eta == w.eta.data()[0]);
    CHECK(layer.config().attention.gamma == w.ssn_gamma.data()[0]);
    const Matrix x = random_rows(B * T, 1);
    LayerState<double> state = layer.initial_state(B);
    const Matrix y = prefill(layer, x, state);

    const SpectralKoopmanAttention<double> attention(layer.config().attention);
    const Matrix k = project(x, w.key_proj), q = project(x, w.query_proj), v = project(x, w.value_proj);
    Matrix read(B * T, 6);
    SkaState sums = attention.initial_state(B);
    attention.prefill(
        {TokenView(q.data(), B, T, 2, 5), TokenView(k.data(), B, T, 2, 5), TokenView(v.data(), B, T, 2, 3)},
        sums, TokenView(read.data(), B, T, 2, 3));
    CHECK((project(read, w.out_proj) - y).cwiseAbs().maxCoeff() < 1e-12);
    CHECK(y.cwiseAbs().maxCoeff() > 0.1);
    CHECK(state.position(1) == T);
    CHECK(state.ska().position(1) == T);
    CHECK((state.ska().statistics(1, 1).M() - sums.statistics(1, 1).M()).cwiseAbs().maxCoeff() < 1e-12);
  }
}

TEST_CASE("SKALayer: looking ahead sets the scale that the whole sequence has") {
  const SKALayerConfig config = config_of(Visibility::earlier_chunks);
  const SKALayerWeights<double> w = weights_for(config);
  const SKALayer<double> layer(config, w);
  Matrix x = random_rows(B * T, 2);
  x.row(T - 1) *= 3;  // the longest comes last
  const Matrix keys = project(x, w.key_proj);

  LayerState<double> state = layer.initial_state(B), causal = state;
  layer.look_ahead(input(x), state);
  for (Index s = 0; s < B; ++s)
    for (Index h = 0; h < 2; ++h) {
      const double expected = longest(keys, h, s * T, T);
      CHECK(std::abs(state.ska().statistics(s, h).max_norm() - expected) < 1e-14 * expected);
      CHECK(state.ska().past(s, h).statistics().max_norm() == state.ska().statistics(s, h).max_norm());
    }
  CHECK(state.position(0) == 0);
  LayerState<double> stepped = state;
  const double before = state.ska().statistics(0, 1).max_norm();
  const Matrix y = prefill(layer, x, state);
  CHECK(state.ska().statistics(0, 1).max_norm() == before);
  CHECK((prefill(layer, x, causal) - y).cwiseAbs().maxCoeff() > 1e-6);  // it matters
  for (Index t = 0; t < T; ++t) {
    Matrix token(B, D), out(B, D);
    for (Index b = 0; b < B; ++b) token.row(b) = x.row(b * T + t);
    layer.step(input(token), stepped, view(out, B));
    for (Index b = 0; b < B; ++b) CHECK(out.row(b) == y.row(b * T + t));
  }
  CHECK(stepped == state);

  // Only ever upwards; what is no longer than before changes nothing.
  const LayerState<double> after = state;
  layer.look_ahead(input(x), state);
  layer.look_ahead(input(Matrix(x / 2)), state);
  CHECK(state == after);
  CHECK(state.ska().now(0, 0).factor().status() == after.ska().now(0, 0).factor().status());
}

TEST_CASE("SKALayer: looking ahead sees real tokens only") {
  const SKALayerConfig config = config_of(Visibility::inclusive);
  const SKALayerWeights<double> w = weights_for(config);
  const SKALayer<double> layer(config, w);
  Matrix x = random_rows(B * T, 3);
  const Matrix keys = project(x, w.key_proj);
  const std::vector<Index> lengths{66, 0}, offsets{0, 0, 5, B * T};
  Matrix padded = x;
  padded.bottomRows(B * T - 66).setConstant(nan);
  LayerState<double> state = layer.initial_state(B);
  layer.look_ahead(input(padded), state, SequenceLayout::with_lengths(lengths));
  CHECK(std::abs(state.ska().statistics(0, 1).max_norm() - longest(keys, 1, 0, 66)) < 1e-14);
  CHECK(state.ska().statistics(1, 1).max_norm() == 0);
  LayerState<double> packed = layer.initial_state(3);
  layer.look_ahead(input(x, 1), packed, SequenceLayout::packed(offsets));
  CHECK(packed.ska().statistics(0, 0).max_norm() == 0);
  CHECK(std::abs(packed.ska().statistics(1, 0).max_norm() - longest(keys, 0, 0, 5)) < 1e-14);
  CHECK(std::abs(packed.ska().statistics(2, 0).max_norm() - longest(keys, 0, 5, B * T - 5)) < 1e-14);
}

TEST_CASE("SKALayer: what looking ahead refuses") {
  const SKALayerConfig config = config_of(Visibility::inclusive);
  const SKALayer<double> layer(config, weights_for(config));
  const Matrix x = random_rows(B * T, 4);
  LayerState<double> state = layer.initial_state(B);
  const LayerState<double> before = state;
  const auto refusal = [&](const TokenView<const double>& tokens, const SequenceLayout& layout = {}) {
    const std::string text = error_of([&] { layer.look_ahead(tokens, state, layout); });
    CHECK(state == before);
    return text;
  };
  CHECK(refusal(TokenView(x.data(), B, T, 2, D / 2)) ==
        "ShapeError: x: expected [B, T, H, D] = [2, 70, 1, 10], got [2, 70, 2, 5]");
  CHECK(refusal(input(x, 1)) == "ShapeError: state: expected 1 sequences, got 2");
  const std::vector<Index> lengths{T, T + 1};
  CHECK(refusal(input(x), SequenceLayout::with_lengths(lengths)) ==
        "ShapeError: lengths[1]: expected 0 to T = 70, got 71");
  for (const double bad : {nan, 1e300}) {
    Matrix changed = x;
    changed(T + 66, 3) = bad;
    CHECK_THAT(refusal(input(changed)),
               contains("ValueError: x: expected numbers that make finite keys, got a key of length ") &&
                   contains(" for sequence 1, head 0"));
  }
  LayerState<double> other({"ska", {}, {}, SkaShape{2, 5, 4}}, B);
  CHECK_THAT(error_of([&] { layer.look_ahead(input(x), other); }),
             contains("ShapeError: state: expected that of ska [2, 5, 3] sequence_max, got that of"));
}

TEST_CASE("SKALayer: queries without an answer are zero, and are counted") {
  SKALayerConfig config = config_of(Visibility::inclusive);
  config.attention.ridge = 1e-20;
  const SKALayer<double> layer(config, weights_for(config));
  LayerState<double> state = layer.initial_state(B);
  CHECK(prefill(layer, random_rows(B * 3, 5), state).isZero(0));
  for (Index h = 0; h < 2; ++h) {
    CHECK(state.ska().failures(1, h) == 3);
    CHECK(state.ska().status(1, h) == FactorStatus::not_positive_definite);
  }
}

}  // namespace linrec::test::ska_layer_test
