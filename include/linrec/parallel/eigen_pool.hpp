// EigenPoolExecutor: linrec on a thread pool of Eigen, or on anything that is an Eigen::ThreadPoolInterface.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>  // Eigen 5
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

#include "linrec/core/executor.hpp"

namespace linrec {

/// Runs items on the threads of a pool, which must live as long as the executor. The calling thread is one of
/// the workers, so that a pool of as many threads as cores keeps every core busy, and one of a single thread
/// is not used. Workers take one item after the other, whoever is free. A call inside an item may use the
/// same pool: no thread ever waits for work that has not begun.
///
/// An exception of f reaches the caller, the first one if there are several, after all items that had begun
/// have ended; the others do not run. The threads of the pool have floating-point modes of their own: results
/// equal serial ones bitwise if these are the caller's.
class EigenPoolExecutor {
 public:
  explicit EigenPoolExecutor(Eigen::ThreadPoolInterface& pool) : pool_(&pool) {}

  Index concurrency() const { return std::max(1, pool_->NumThreads()); }

  /// Below least_parallel_flops in all, and with one worker, everything runs in the calling thread. Allocates
  /// otherwise, as the pool does.
  template <class F>
  void for_each(Index n, double cost, F&& f) const {
    const Index workers = std::min(n, concurrency());
    if (workers < 2 || !worth_threads(n, cost)) return SerialExecutor().for_each(n, cost, f);
    const auto call = std::make_shared<Call>(n);
    try {
      for (Index worker = 1; worker < workers; ++worker)
        pool_->Schedule([call, worker, &f] { call->run(worker, f); });
    } catch (...) {
      call->fail();
    }
    call->run(0, f);
    call->wait();
  }

 private:
  /// What the workers share. It outlives the call, for the pool may come to a worker when all is done: such a
  /// worker gets no item, and does not touch f.
  class Call {
   public:
    explicit Call(Index n) : n_(n) {}

    template <class F>
    void run(Index worker, F& f) noexcept {
      ++running_;  // before an item is taken: who finds no item left sees all workers that have one
      try {
        for (Index item = next_++; item < n_; item = next_++) f(item, worker);
      } catch (...) {
        fail();
      }
      --running_;
      running_.notify_all();
    }
    /// Remembers the exception under way, if it is the first, and lets no further item begin.
    void fail() noexcept {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
      next_ = n_;
    }
    /// For the calling thread, when no item is left. The exception is then the caller's alone.
    void wait() {
      for (Index running = running_; running > 0; running = running_) running_.wait(running);
      if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

   private:
    const Index n_;
    std::atomic<Index> next_ = 0, running_ = 0;
    std::atomic<bool> failed_ = false;
    std::exception_ptr failure_;
  };

  Eigen::ThreadPoolInterface* pool_;
};

}  // namespace linrec
