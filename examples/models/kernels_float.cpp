#include "kernels.hpp"

namespace linrec::detail {

LINREC_KERNELS(template, float);

}  // namespace linrec::detail
