#include "kernels.hpp"

namespace linrec::detail {

LINREC_KERNELS(template, double);

}  // namespace linrec::detail
