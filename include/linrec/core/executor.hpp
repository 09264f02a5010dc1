// Executor: who runs independent pieces of work. linrec owns no threads.
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>
#include <type_traits>

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

/// Floating point operations below which threads cost more than they save. To hand work over and to wait for
/// it takes 2 to 5 microseconds, measured with three pools; so long a core takes for this much in a chunk of
/// tokens, which is bound by multiply-adds. (A single token is bound by reading weights, and takes 70.)
inline constexpr double least_parallel_flops = 5e5;

/// Whether n items of `cost` are worth threads; what the executors of linrec/parallel go by.
constexpr bool worth_threads(Index n, double cost) {
  return n > 1 && static_cast<double>(n) * cost >= least_parallel_flops;
}

/// Any executor, behind one small type, so that what takes it is compiled once. Refers to an executor, which
/// must live as long; the default is SerialExecutor. Costs two indirect calls where there is an executor, and
/// allocates nothing.
class ExecutorRef {
 public:
  /// f of a call of for_each.
  class Work {
   public:
    void operator()(Index item, Index worker) const { call_(f_, item, worker); }

   private:
    friend class ExecutorRef;
    const void* f_;
    void (*call_)(const void*, Index, Index);
  };

  ExecutorRef() = default;
  /// @throws ValueError if the concurrency is below 1.
  template <Executor E>
  requires(!std::same_as<E, ExecutorRef>) ExecutorRef(const E& executor)  // NOLINT: meant to convert
      : executor_(std::addressof(executor)),
        concurrency_(checked(static_cast<Index>(executor.concurrency()))),
        run_([](const void* e, Index n, double cost, const Work& work) {
          static_cast<const E*>(e)->for_each(n, cost, work);
        }) {}

  Index concurrency() const { return concurrency_; }

  /// @throws what the executor throws.
  template <class F>
  void for_each(Index n, double cost, const F& f) const {
    if (run_ == nullptr) return SerialExecutor().for_each(n, cost, f);
    Work work;
    work.f_ = std::addressof(f);
    work.call_ = [](const void* g, Index item, Index worker) { (*static_cast<const F*>(g))(item, worker); };
    run_(executor_, n, cost, work);
  }

 private:
  static Index checked(Index concurrency) {
    if (concurrency < 1)
      throw ValueError(message("executor: expected a concurrency of at least 1, got ", concurrency));
    return concurrency;
  }

  const void* executor_ = nullptr;
  Index concurrency_ = 1;
  void (*run_)(const void*, Index, double, const Work&) = nullptr;
};

static_assert(Executor<ExecutorRef> && std::is_trivially_copyable_v<ExecutorRef>);

/// Calls f(first, count) for ranges that cover [0, size), all but the last a multiple of `grain` long: the
/// whole for one worker, else several for each, as workers are not equally fast.
/// @param flops the estimated number of floating point operations of all.
template <class F>
void for_each_range(const ExecutorRef& executor, Index size, Index grain, double flops, const F& f) {
  const Index workers = executor.concurrency();
  if (workers == 1) return f(Index(0), size);
  const Index grains = (size + grain - 1) / grain, ranges = std::max<Index>(1, std::min(grains, 4 * workers));
  executor.for_each(ranges, flops / static_cast<double>(ranges), [&](Index i, Index) {
    const Index first = i * grains / ranges * grain, end = (i + 1) * grains / ranges * grain;
    f(first, std::min(end, size) - first);
  });
}

}  // namespace linrec
