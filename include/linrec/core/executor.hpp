// Executor: who runs independent pieces of work. linrec owns no threads.
#pragma once

#include <concepts>

#include "linrec/core/types.hpp"

namespace linrec {

/// Runs n independent items. `concurrency()` is the number of workers, at least 1; `for_each(n, cost, f)`
/// calls f(item, worker) once for each item in [0, n), in any order, and returns when all are done. A worker
/// in [0, concurrency()) runs one item at a time. `cost` is the estimated number of floating point operations
/// an item takes: an executor runs what is too small for threads by itself.
template <class E>
concept Executor = requires(const E& executor, Index n, double cost, void (*f)(Index, Index)) {
  { executor.concurrency() } -> std::convertible_to<Index>;
  executor.for_each(n, cost, f);
};

/// Runs everything in the calling thread; the default.
struct SerialExecutor {
  Index concurrency() const { return 1; }

  template <class F>
  void for_each(Index n, double /*cost*/, F&& f) const {
    for (Index i = 0; i < n; ++i) f(i, Index(0));
  }
};

}  // namespace linrec
