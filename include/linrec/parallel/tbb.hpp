// TbbExecutor: linrec on the threads of oneTBB. Link linrec::tbb.
#pragma once

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "linrec/core/executor.hpp"

namespace linrec {

/// Runs items in a task arena of its own; the threads are TBB's, shared with all that uses TBB. The calling
/// thread is one of the workers. A call inside an item may use the same executor: a thread that waits there
/// takes no other item of the outer call.
///
/// An exception of f reaches the caller, the first one if there are several, after all items that had begun
/// have ended; others may not run. All threads have the floating-point modes of the caller, so that results
/// equal serial ones bitwise.
class TbbExecutor {
 public:
  /// @param threads the most that work at a time, the calling one included; by default all that TBB has.
  /// @throws ValueError if it is below 1.
  explicit TbbExecutor(int threads = tbb::task_arena::automatic) : arena_(checked(threads)) {}

  Index concurrency() const { return arena_.max_concurrency(); }

  /// Below least_parallel_flops in all, and with one worker, everything runs in the calling thread.
  template <class F>
  void for_each(Index n, double cost, F&& f) const {
    if (concurrency() < 2 || !worth_threads(n, cost)) return SerialExecutor().for_each(n, cost, f);
    // Isolated from the caller's tasks: if those are cancelled, what is begun here is still done.
    tbb::task_group_context context(
        tbb::task_group_context::isolated,
        tbb::task_group_context::default_traits | tbb::task_group_context::fp_settings);
    arena_.execute([&] {
      tbb::this_task_arena::isolate([&] {
        tbb::parallel_for(
            tbb::blocked_range<Index>(0, n),
            [&](const tbb::blocked_range<Index>& items) {
              const Index worker = tbb::this_task_arena::current_thread_index();
              for (Index item = items.begin(); item < items.end(); ++item) f(item, worker);
            },
            context);
      });
    });
  }

 private:
  static int checked(int threads) {
    if (threads < 1 && threads != tbb::task_arena::automatic)
      throw ValueError(message("threads: expected at least 1, got ", threads));
    return threads;
  }

  mutable tbb::task_arena arena_;  // TBB makes its threads at the first use
};

}  // namespace linrec
