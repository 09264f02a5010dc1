#include <atomic>

#include "consumer.hpp"

namespace {

[[maybe_unused]] bool runs(const linrec::ExecutorRef& executor) {
  std::atomic<int> items = 0;
  executor.for_each(10, 1e9, [&](linrec::Index, linrec::Index) { ++items; });
  return items == 10;
}

}  // namespace

linrec::Index elements(linrec::TokenView<const float> view) { return view.size(); }

bool executors_run() {
  bool right = true;
#ifdef CONSUMER_USES_EIGEN_POOL
  Eigen::ThreadPool pool(2);
  right = right && runs(linrec::EigenPoolExecutor(pool));
#endif
#ifdef CONSUMER_USES_TBB
  right = right && runs(linrec::TbbExecutor(2));
#endif
#ifdef CONSUMER_USES_OPENMP
  right = right && runs(linrec::OpenMPExecutor(2));
#endif
  return right;
}
