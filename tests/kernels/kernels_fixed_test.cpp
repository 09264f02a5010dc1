// All kernels in fixed sizes, instantiated whole.
#include "tests/catch.hpp"
#include "tests/kernels/typed_kernel.hpp"

using FixedDims = linrec::Dims<linrec::test::fixed_heads, linrec::test::fixed_key, linrec::test::fixed_value>;
LINREC_TEST_INSTANTIATE(double, FixedDims);
LINREC_TEST_INSTANTIATE_WITH(double, linrec::test::AnyTaper, FixedDims);

namespace linrec::test {

KernelPointer make_kernel_of_fixed_sizes(const Config& config) {
  return make_kernel_of<double, FixedDims>(config);
}

TEST_CASE("fixed sizes give what dynamic sizes give") {
  for (Config config : all_configs(false, fixed_heads, fixed_heads, fixed_key, fixed_value)) {
    INFO(config.name());
    const Inputs inputs = random_inputs(config, 2, 40, 1);
    const StatePointer dynamic = random_state(config, 2, 2);
    const Tensor expected = prefill(config, inputs, *dynamic);
    config.fixed = true;
    for (const bool by_steps : {false, true}) {
      const StatePointer fixed = random_state(config, 2, 2);
      const Tensor outputs = by_steps ? steps(config, inputs, *fixed) : prefill(config, inputs, *fixed);
      CHECK(difference(outputs, expected, tolerances(false).last_bits) == "");
      for (Index h = 0; h < config.H; ++h) {
        const Eigen::MatrixXd S = dynamic->matrix(1, h);
        CHECK((fixed->matrix(1, h) - S).cwiseAbs().maxCoeff() <=
              tolerances(false).last_bits * S.cwiseAbs().maxCoeff());
      }
      CHECK(fixed->position(1) == dynamic->position(1));
    }
  }
}

TEST_CASE("some sizes fixed and others not") {
  using HalfFixed = Dims<Dynamic, 4, Dynamic>;
  const HalfFixed dims(3, 4, 6);
  const DeltaNet<double, HalfFixed> kernel(dims);
  CHECK(kernel.initial_state(2).matrix(1, 2).rows() == 4);
  CHECK(kernel.initial_state(2).matrix(1, 2).cols() == 6);
}

}  // namespace linrec::test
