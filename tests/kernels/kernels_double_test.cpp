// All kernels in double, instantiated whole.
#include "tests/catch.hpp"
#include "tests/kernels/typed_kernel.hpp"

LINREC_TEST_INSTANTIATE(double, linrec::Dims<>);
LINREC_TEST_INSTANTIATE_WITH(double, linrec::NoTaper, linrec::Dims<>);
LINREC_TEST_INSTANTIATE_WITH(double, linrec::test::AnyTaper, linrec::Dims<>);

namespace linrec::test {
KernelPointer make_kernel_of_double(const Config& config) { return make_kernel_of<double, Dims<>>(config); }
}  // namespace linrec::test
