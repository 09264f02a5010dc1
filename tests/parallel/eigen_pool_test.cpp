#include "linrec/parallel/eigen_pool.hpp"

#include <functional>
#include <stdexcept>
#include <vector>

#include "tests/catch.hpp"
#include "tests/parallel/contract.hpp"

namespace linrec::test::eigen_pool_test {

TEST_CASE("Eigen's pool: the contract of an executor") {
  static_assert(Executor<EigenPoolExecutor>);
  for (const int threads : {1, 2, 3, 7}) {
    Eigen::ThreadPool pool(threads);
    check_contract(EigenPoolExecutor(pool), threads);
  }
}

TEST_CASE("Eigen's pool: the same bits") {
  for (const int threads : {1, 2, 3, 7}) {
    Eigen::ThreadPool pool(threads);
    check_bits(EigenPoolExecutor(pool));
  }
}

namespace {

/// Keeps what it is given.
struct LazyPool final : Eigen::ThreadPoolInterface {
  std::vector<std::function<void()>> scheduled;
  std::size_t room = 100;

  void Schedule(std::function<void()> f) override {
    if (scheduled.size() == room) throw std::runtime_error("no room");
    scheduled.push_back(std::move(f));
  }
  int NumThreads() const override { return 4; }
  int CurrentThreadId() const override { return -1; }
};

}  // namespace

TEST_CASE("Eigen's pool: a pool that comes too late has nothing to do") {
  LazyPool pool;
  std::vector<Index> items;
  EigenPoolExecutor(pool).for_each(3, 1e9, [&](Index item, Index worker) {
    CHECK(worker == 0);
    items.push_back(item);
  });
  CHECK(items == std::vector<Index>{0, 1, 2});
  CHECK(pool.scheduled.size() == 2);  // the caller is the third worker
  for (const auto& late : pool.scheduled) late();
  CHECK(items.size() == 3);
}

TEST_CASE("Eigen's pool: what the pool throws reaches the caller") {
  LazyPool pool;
  pool.room = 1;
  const auto run = [&] { EigenPoolExecutor(pool).for_each(9, 1e9, [](Index, Index) {}); };
  CHECK_THROWS_AS(run(), std::runtime_error);
  pool.scheduled.front()();
}

}  // namespace linrec::test::eigen_pool_test
