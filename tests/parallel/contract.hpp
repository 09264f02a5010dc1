// What every executor promises, and what linrec computes on it; see contract_test.cpp.
#pragma once

#include "linrec/core/executor.hpp"

namespace linrec::test {

/// Checks an executor of `threads` workers by itself.
void check_contract(const ExecutorRef& executor, Index threads);
/// Checks that a kernel and layers give the bits that they give without it.
void check_bits(const ExecutorRef& executor);

}  // namespace linrec::test
