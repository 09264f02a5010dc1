// An executor of real threads, one for each worker; with 0 threads, the calling one.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "linrec/core/executor.hpp"

namespace linrec::test {

struct ThreadExecutor {
  Index threads = 2;

  Index concurrency() const { return std::max<Index>(threads, 1); }

  template <class F>
  void for_each(Index n, double cost, F&& f) const {
    if (threads == 0) return SerialExecutor().for_each(n, cost, f);
    std::atomic<Index> next = 0;
    std::vector<std::thread> running;
    for (Index worker = 0; worker < threads; ++worker)
      running.emplace_back([&, worker] {
        for (Index item = next++; item < n; item = next++) f(item, worker);
      });
    for (std::thread& thread : running) thread.join();
  }
};

static_assert(Executor<ThreadExecutor>);

}  // namespace linrec::test
