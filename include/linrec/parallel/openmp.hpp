// OpenMPExecutor: linrec on OpenMP. Link linrec::openmp, or compile with the compiler's flag for OpenMP.
#pragma once

#ifndef _OPENMP
#error "linrec/parallel/openmp.hpp needs OpenMP: link linrec::openmp, or compile with -fopenmp"
#endif

#include <omp.h>

#include <atomic>
#include <exception>

#include "linrec/core/executor.hpp"

namespace linrec {

/// Runs items in a parallel region, which the calling thread is part of. A call inside an item, or inside the
/// caller's own parallel region, opens another region; OpenMP runs that in the calling thread, unless
/// omp_set_max_active_levels allows more.
///
/// An exception of f reaches the caller, the first one if there are several, after all items that had begun
/// have ended; the others do not run. The threads have floating-point modes of their own: results equal
/// serial ones bitwise if these are the caller's.
class OpenMPExecutor {
 public:
  /// @param threads the most that work at a time, the calling one included.
  /// @throws ValueError if it is below 1.
  explicit OpenMPExecutor(int threads = omp_get_max_threads()) : threads_(threads) {
    if (threads < 1) throw ValueError(message("threads: expected at least 1, got ", threads));
  }

  Index concurrency() const { return threads_; }

  /// Below least_parallel_flops in all, and with one worker, everything runs in the calling thread.
  template <class F>
  void for_each(Index n, double cost, F&& f) const {
    if (threads_ < 2 || !worth_threads(n, cost)) return SerialExecutor().for_each(n, cost, f);
    std::atomic<bool> failed = false;
    std::exception_ptr failure;
    // An exception must not leave the region.
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_)
    for (Index item = 0; item < n; ++item) {
      if (failed.load(std::memory_order_relaxed)) continue;
      try {
        f(item, static_cast<Index>(omp_get_thread_num()));
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  int threads_;
};

}  // namespace linrec
