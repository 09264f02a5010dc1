// An executor of real threads, one for each worker.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "linrec/core/executor.hpp"

namespace linrec::test {

struct ThreadExecutor {
  Index threads = 2;

  Index concurrency() const { return threads; }

  template <class F>
  void for_each(Index n, double /*cost*/, F&& f) const {
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
