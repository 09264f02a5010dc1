// No kernel touches the heap in `step`, nor in `prefill` with a workspace that is kept, at production sizes.
#include <vector>

#include "linrec/kernels/delta_net.hpp"
#include "linrec/kernels/dplr.hpp"
#include "linrec/kernels/gated_delta_net.hpp"
#include "linrec/kernels/gla.hpp"
#include "linrec/kernels/linear_attention.hpp"
#include "linrec/kernels/mamba2.hpp"
#include "linrec/kernels/retnet.hpp"
#include "linrec/kernels/rwkv7.hpp"
#include "linrec/policy/initial.hpp"
#include "linrec/ska/retrieval.hpp"
#include "tests/allocation/allocation_guard.hpp"
#include "tests/catch.hpp"

namespace linrec::test::step_test {

namespace {

constexpr Index B = 2, T = 70;

/// An input [B, T, heads, dim], filled with one number.
struct Filled {
  Index heads, dim;
  float x = 0.05f;
};

std::vector<float> numbers_of(const Filled& input) {
  return std::vector<float>(static_cast<std::size_t>(B * T * input.heads * input.dim), input.x);
}

/// How often step and a second prefill allocate, for the inputs in their order.
template <class Kernel>
void check_allocates_nothing(const Kernel& kernel, const std::vector<Filled>& shapes) {
  constexpr std::size_t count = sizeof(typename Kernel::Inputs) / sizeof(TokenView<const float>);
  REQUIRE(shapes.size() == count);
  std::vector<std::vector<float>> numbers;
  for (const Filled& shape : shapes) numbers.push_back(numbers_of(shape));
  const auto inputs = [&](Index tokens) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return typename Kernel::Inputs{
          TokenView<const float>(numbers[I].data(), B, tokens, shapes[I].heads, shapes[I].dim)...};
    }
    (std::make_index_sequence<count>());
  };
  const Index H = kernel.dims().heads(), V = kernel.dims().value();
  std::vector<float> outputs = numbers_of({H, V});
  auto state = kernel.initial_state(B);
  Workspace workspace;

  const auto one = inputs(1), many = inputs(T);
  kernel.validate(one, state);
  const CountAllocations of_step;
  for (int i = 0; i < 3; ++i) kernel.step(one, state, TokenView<float>(outputs.data(), B, 1, H, V));
  const long by_step = of_step.count();
  CHECK(by_step == 0);

  const TokenView<float> all(outputs.data(), B, T, H, V);
  const PrefillOptions kept{.workspace = &workspace};
  kernel.prefill(many, state, all, kept);
  const CountAllocations of_prefill;
  kernel.prefill(many, state, all, kept);
  const long by_prefill = of_prefill.count();
  CHECK(by_prefill == 0);
}

FreeSpectrum spectrum(Index channels) { return FreeSpectrum(geometric_log_rates(channels, 1e-3, 1)); }
const GapAwareTaper taper(2048);

}  // namespace

TEST_CASE("Mamba2 24 x 64 x 128") {
  using Kernel = Mamba2<float, FreeSpectrum, GapAwareTaper>;
  Mamba2Options options;
  options.D = Eigen::MatrixXd::Ones(24, 1);
  options.dt_softplus = true;
  check_allocates_nothing(Kernel(Dims<>(24, 128, 64), spectrum(24), taper, options),
                          {{24, 64}, {24, 1}, {1, 128}, {1, 128}});
}

TEST_CASE("GatedDeltaNet 16 x 128 x 128, normalised") {
  using Kernel = GatedDeltaNet<float, FreeSpectrum, GapAwareTaper>;
  const Kernel kernel(Dims<>(16, 128, 128), spectrum(16), taper, {.qk_l2norm = true});
  check_allocates_nothing(kernel, {{8, 128}, {8, 128}, {16, 128}, {16, 1, -0.5f}, {16, 1}});
}

TEST_CASE("RWKV7 12 x 64 x 64") {
  using Kernel = RWKV7<float, FreeSpectrum, GapAwareTaper>;
  const Kernel kernel(Dims<>(12, 64, 64), FreeSpectrum(rwkv7_initial_logits(12 * 64, 2048)), taper);
  check_allocates_nothing(kernel, std::vector<Filled>(6, {12, 64}));
}

TEST_CASE("GLA 4 x 128 x 128") {
  using Kernel = GLA<float, FreeSpectrum, GapAwareTaper>;
  check_allocates_nothing(Kernel(Dims<>(4, 128, 128), spectrum(4), taper),
                          {{4, 128}, {4, 128}, {4, 128}, {4, 128, -0.5f}});
}

TEST_CASE("RetNet 8 x 128 x 256") {
  using Kernel = RetNet<float, FreeSpectrum, GapAwareTaper>;
  check_allocates_nothing(Kernel(Dims<>(8, 128, 256), spectrum(8), taper), {{8, 128}, {8, 128}, {8, 256}});
}

TEST_CASE("LinearAttention, DeltaNet and DPLR 8 x 128 x 128") {
  const Dims<> dims(8, 128, 128);
  const Filled input{8, 128};
  check_allocates_nothing(LinearAttention<float>(dims), {input, input, input});
  check_allocates_nothing(DeltaNet<float>(dims), {input, input, input, {8, 1}});
  check_allocates_nothing(DPLR<float>(dims), {input, input, input, input, input, {8, 128, -0.5f}});
}

TEST_CASE("SpectralKoopmanAttention 12 x 48 x 64") {
  for (const Visibility visibility :
       {Visibility::inclusive, Visibility::exclusive, Visibility::earlier_chunks}) {
    SpectralKoopmanAttentionConfig config{.heads = 12, .key = 48, .value = 64, .visibility = visibility};
    for (const KoopmanOperator form : {KoopmanOperator::whitened, KoopmanOperator::unwhitened}) {
      config.koopman_operator = form;
      const SpectralKoopmanAttention<float> attention(config);
      const std::vector<float> keys = numbers_of({12, 48}), values = numbers_of({12, 64});
      std::vector<float> outputs = values;
      const auto inputs = [&](Index tokens) {
        const TokenView<const float> k(keys.data(), B, tokens, 12, 48), v(values.data(), B, tokens, 12, 64);
        return SpectralKoopmanAttentionInputs<float>{k, k, v};
      };
      SkaState state = attention.initial_state(B);
      const auto one = inputs(1), many = inputs(T);
      const TokenView<float> y(outputs.data(), B, 1, 12, 64), all(outputs.data(), B, T, 12, 64);
      attention.validate(one, state, y);
      const CountAllocations of_step;
      for (int i = 0; i < 3; ++i) attention.step(one, state, y);
      const long by_step = of_step.count();
      CHECK(by_step == 0);

      Workspace workspace;
      const PrefillOptions kept{.workspace = &workspace};
      attention.prefill(many, state, all, kept);
      const CountAllocations of_prefill;
      attention.prefill(many, state, all, kept);
      attention.absorb(many, state, kept);
      attention.retrieve(many.q, state, all, kept);
      const long by_prefill = of_prefill.count();
      CHECK(by_prefill == 0);
    }
  }
}

}  // namespace linrec::test::step_test
