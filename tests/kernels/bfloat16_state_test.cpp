// States of bfloat16: as if a float state were rounded after each token; their errors over long sequences.
#include <bit>
#include <deque>
#include <vector>

#include "linrec/kernels/gated_delta_net.hpp"
#include "linrec/kernels/mamba2.hpp"
#include "linrec/kernels/rwkv7.hpp"
#include "linrec/policy/initial.hpp"
#include "tests/catch.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test::bfloat16_state_test {

namespace {

/// Random inputs of T tokens, one sequence.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed) {}
  TokenView<const float> operator()(Index T, Index heads, Index dim, double low, double high) {
    std::vector<float>& x = storage_.emplace_back(static_cast<std::size_t>(T * heads * dim));
    for (float& number : x) number = static_cast<float>(random_.uniform(low, high));
    return {x.data(), 1, T, heads, dim};
  }
  std::vector<float>& last() { return storage_.back(); }

 private:
  Random random_;
  std::deque<std::vector<float>> storage_;
};

Mamba2Inputs<float> inputs_of(const Mamba2Inputs<float>*, Numbers& numbers, Index T, Index H, Index K,
                              Index V) {
  return {.x = numbers(T, H, V, -1, 1),
          .dt = numbers(T, H, 1, 0.001, 0.5),
          .B = numbers(T, 1, K, -1, 1),
          .C = numbers(T, 1, K, -1, 1)};
}
GatedDeltaNetInputs<float> inputs_of(const GatedDeltaNetInputs<float>*, Numbers& numbers, Index T, Index H,
                                     Index K, Index V) {
  return {.q = numbers(T, H, K, -1, 1),
          .k = numbers(T, H, K, -0.3, 0.3),
          .v = numbers(T, H, V, -1, 1),
          .g = numbers(T, H, 1, -0.5, 0),
          .beta = numbers(T, H, 1, 0, 1)};
}
RWKV7Inputs<float> inputs_of(const RWKV7Inputs<float>*, Numbers& numbers, Index T, Index H, Index K,
                             Index V) {
  return {.r = numbers(T, H, K, -1, 1),
          .k = numbers(T, H, K, -1, 1),
          .v = numbers(T, H, V, -1, 1),
          .kk = numbers(T, H, K, -1, 1),
          .iclr = numbers(T, H, K, 0, 1),
          .w_logit = numbers(T, H, K, -6, 0)};
}

/// The kernels with a state of float and of bfloat16, made alike.
template <class StateScalar>
Mamba2<float, FreeSpectrum, NoTaper, Dims<>, StateScalar> make_mamba2(Dims<> dims) {
  return Mamba2<float, FreeSpectrum, NoTaper, Dims<>, StateScalar>(
      dims, FreeSpectrum(geometric_log_rates(dims.heads(), 0.1, 4)));
}
template <class StateScalar>
GatedDeltaNet<float, FreeSpectrum, NoTaper, Dims<>, StateScalar> make_gated_delta_net(Dims<> dims) {
  return GatedDeltaNet<float, FreeSpectrum, NoTaper, Dims<>, StateScalar>(dims);
}
template <class StateScalar>
RWKV7<float, FreeSpectrum, NoTaper, Dims<>, StateScalar> make_rwkv7(Dims<> dims) {
  return RWKV7<float, FreeSpectrum, NoTaper, Dims<>, StateScalar>(dims);
}

/// As a state of bfloat16 rounds what is written.
float rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isnan(x) ? x : std::bit_cast<float>((bits + 0x8000U) & 0xffff0000U);
}

template <class InputsStruct, class F>
InputsStruct map_inputs(const InputsStruct& in, F&& f) {
  static_assert(sizeof(InputsStruct) % sizeof(TokenView<const float>) == 0);
  InputsStruct result = in;
  auto* views = reinterpret_cast<TokenView<const float>*>(&result);
  for (std::size_t i = 0; i < sizeof(InputsStruct) / sizeof(*views); ++i) views[i] = f(views[i]);
  return result;
}

template <class Plain, class Half>
void check_kernel(const Plain& plain, const Half& half, std::uint64_t seed) {
  constexpr Index T = 41;
  const Index H = plain.dims().heads(), K = plain.dims().key(), V = plain.dims().value();
  INFO("kernel " << seed << " K " << K << " V " << V);
  Numbers numbers(seed);
  const auto in = inputs_of(static_cast<const typename Plain::Inputs*>(nullptr), numbers, T, H, K, V);
  std::vector<float> expected(static_cast<std::size_t>(T * H * V)), got(expected), prefilled(expected),
      fast(expected);
  const auto view = [&](std::vector<float>& x, Index first = 0, Index count = 41) {
    return TokenView<float>(x.data(), 1, T, H, V).slice(first, count);
  };

  auto state = plain.initial_state();
  auto halves = half.initial_state();
  for (Index h = 0; h < H; ++h) {
    const Eigen::MatrixXf start = Eigen::MatrixXf::NullaryExpr(
        K, V, [&](Index i, Index j) { return static_cast<float>((i * 7 + j * 3 + h) % 11) * 0.1f - 0.4f; });
    halves.set_matrix(0, h, start);
    state.set_matrix(0, h, halves.matrix(0, h));
    CHECK((halves.matrix(0, h) - start).cwiseAbs().maxCoeff() <= 0x1p-9f);
  }
  auto at_once = halves, in_chunks = halves;
  for (Index t = 0; t < T; ++t) {
    const auto token = map_inputs(in, [&](const auto& x) { return x.slice(t, 1); });
    plain.step(token, state, view(expected, t, 1));
    for (Index h = 0; h < H; ++h)
      state.set_matrix(0, h, state.matrix(0, h).unaryExpr([](float x) { return rounded(x); }));
    half.step(token, halves, view(got, t, 1));
  }
  const bool steps_same = got == expected;
  CHECK(steps_same);
  for (Index h = 0; h < H; ++h) CHECK(halves.matrix(0, h) == state.matrix(0, h));

  half.prefill(in, at_once, view(prefilled), {.mode = PrefillMode::reproducible});
  const bool prefill_same = prefilled == expected;
  CHECK(prefill_same);
  CHECK(at_once == halves);

  half.prefill(in, in_chunks, view(fast));
  const auto as_vector = [](const std::vector<float>& x) {
    return Eigen::Map<const Eigen::VectorXf>(x.data(), static_cast<Index>(x.size()));
  };
  CHECK((as_vector(fast) - as_vector(expected)).norm() < 0x1p-7f * as_vector(expected).norm());
  for (Index h = 0; h < H; ++h)
    CHECK((in_chunks.matrix(0, h) - halves.matrix(0, h)).norm() < 0x1p-7f * halves.matrix(0, h).norm());
}

/// Relative error of the outputs of the last 1000 of `tokens` tokens, against a kernel of double.
double long_error(double lowest_rate, double highest_rate, Index tokens) {
  constexpr Index H = 4, K = 16, V = 16, piece = 1000;
  const FreeSpectrum spectrum(geometric_log_rates(H, lowest_rate, highest_rate));
  const Mamba2<float, FreeSpectrum, NoTaper, Dims<>, BFloat16> half(Dims<>(H, K, V), spectrum);
  const Mamba2<double> exact(Dims<>(H, K, V), spectrum);
  auto state = half.initial_state();
  auto exact_state = exact.initial_state();
  std::vector<float> o(static_cast<std::size_t>(piece * H * V));
  std::vector<double> exact_o(o.size());
  for (Index done = 0; done < tokens; done += piece) {
    Numbers numbers(static_cast<std::uint64_t>(done));
    const auto in = inputs_of(static_cast<const Mamba2Inputs<float>*>(nullptr), numbers, piece, H, K, V);
    std::deque<std::vector<double>> copies;
    const auto copy = [&](const TokenView<const float>& x) {
      copies.emplace_back(x.data(0, 0, 0), x.data(0, 0, 0) + x.size());
      return TokenView<const double>(copies.back().data(), 1, piece, x.heads(), x.dim());
    };
    half.prefill(in, state, {o.data(), 1, piece, H, V}, {.mode = PrefillMode::reproducible});
    exact.prefill({.x = copy(in.x), .dt = copy(in.dt), .B = copy(in.B), .C = copy(in.C)}, exact_state,
                  {exact_o.data(), 1, piece, H, V});
  }
  double error = 0, size = 0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    error += std::pow(static_cast<double>(o[i]) - exact_o[i], 2);
    size += exact_o[i] * exact_o[i];
  }
  return std::sqrt(error / size);
}

}  // namespace

TEST_CASE("a state of bfloat16 is a state of float that is rounded after each token") {
  for (const Index K : {1, 2, 7, 16, 19})
    for (const Index V : {1, 16, 17, 37}) {
      const Dims<> dims(2, K, V);
      check_kernel(make_mamba2<float>(dims), make_mamba2<BFloat16>(dims), 1);
      check_kernel(make_gated_delta_net<float>(dims), make_gated_delta_net<BFloat16>(dims), 2);
      check_kernel(make_rwkv7<float>(dims), make_rwkv7<BFloat16>(dims), 3);
    }
}

TEST_CASE("a state of bfloat16 keeps infinity, and NaN with any mantissa") {
  constexpr Index K = 3, V = 17;
  const auto kernel = make_mamba2<BFloat16>(Dims<>(1, K, V));
  for (const bool prefill : {false, true})
    for (const std::uint32_t bits :
         {0xffffffffU, 0x7fffffffU, 0x7f800001U, 0x7fc00000U, 0x7f800000U, 0xff800000U})
      for (const bool in_key : {false, true}) {
        const float special = std::bit_cast<float>(bits);
        Numbers numbers(4);
        auto in = inputs_of(static_cast<const Mamba2Inputs<float>*>(nullptr), numbers, 1, 1, K, V);
        std::vector<float> x(V, 1), key(K, 1), o(V);
        (in_key ? key : x)[1] = special;
        in.x = {x.data(), 1, 1, 1, V};
        in.B = {key.data(), 1, 1, 1, K};
        auto state = kernel.initial_state();
        if (prefill)
          kernel.prefill(in, state, {o.data(), 1, 1, 1, V});
        else
          kernel.step(in, state, {o.data(), 1, 1, 1, V});
        const auto matrix = state.matrix(0, 0);
        for (Index i = 0; i < K; ++i)
          for (Index j = 0; j < V; ++j) {
            const bool hit = in_key ? i == 1 : j == 1;
            CHECK(std::isnan(matrix(i, j)) == (hit && std::isnan(special)));
            CHECK(std::isinf(matrix(i, j)) == (hit && std::isinf(special)));
          }
      }
}

TEST_CASE(
    "over 100,000 tokens the error of a bfloat16 state stays that of one rounding while contents decay") {
  // dt is 0.25 in the mean: decays from e^-0.25 to e^-4 a token, and from e^-0.012 to e^-0.025.
  const double fast = long_error(1, 16, 100000), slow = long_error(0.05, 0.1, 100000);
  CHECK(fast > 1e-4);  // it is rounded
  CHECK(fast < 0x1p-8);
  CHECK(slow < 0x1p-6);
}

TEST_CASE("where nothing decays a sum in bfloat16 stops growing, as the documentation warns") {
  const Mamba2<float, FreeSpectrum, NoTaper, Dims<>, BFloat16> kernel(
      Dims<>(1, 1, 1), FreeSpectrum(Eigen::ArrayXd::Constant(1, -50)));
  auto state = kernel.initial_state();
  std::vector<float> one(1000, 1), o(1000);
  const TokenView<const float> x(one.data(), 1, 1000, 1, 1);
  kernel.prefill({.x = x, .dt = x, .B = x, .C = x}, state, {o.data(), 1, 1000, 1, 1});
  CHECK(state.matrix(0, 0)(0, 0) == 512);  // from 256 on one more is rounded to two more, from 512 on to none
}

}  // namespace linrec::test::bfloat16_state_test
