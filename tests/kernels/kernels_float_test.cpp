// All kernels in float, instantiated whole.
#include "tests/catch.hpp"
#include "tests/kernels/typed_kernel.hpp"

LINREC_TEST_INSTANTIATE(float, linrec::Dims<>);
LINREC_TEST_INSTANTIATE_WITH(float, linrec::NoTaper, linrec::Dims<>);
LINREC_TEST_INSTANTIATE_WITH(float, linrec::test::AnyTaper, linrec::Dims<>);

namespace linrec::test {
KernelPointer make_kernel_of_float(const Config& config) { return make_kernel_of<float, Dims<>>(config); }
}  // namespace linrec::test
