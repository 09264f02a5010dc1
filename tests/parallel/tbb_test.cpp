#include "linrec/parallel/tbb.hpp"

#include <tbb/task_group.h>

#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/parallel/contract.hpp"

namespace linrec::test::tbb_test {

TEST_CASE("TBB: the contract of an executor") {
  static_assert(Executor<TbbExecutor>);
  for (const int threads : {1, 2, 3, 7}) check_contract(TbbExecutor(threads), threads);
}

TEST_CASE("TBB: the same bits") {
  for (const int threads : {1, 2, 3, 7}) check_bits(TbbExecutor(threads));
  check_bits(TbbExecutor());
}

TEST_CASE("TBB: as many threads as are asked for") {
  CHECK(TbbExecutor().concurrency() == tbb::this_task_arena::max_concurrency());
  for (const int threads : {0, -2})
    CHECK(error_of([&] { TbbExecutor executor(threads); }) ==
          message("ValueError: threads: expected at least 1, got ", threads));
}

TEST_CASE("TBB: what is begun is done, though the caller's tasks are cancelled") {
  std::atomic<int> items = 0;
  tbb::task_group group;
  group.run([&] {
    group.cancel();
    TbbExecutor(2).for_each(50, 1e9, [&](Index, Index) { ++items; });
  });
  group.wait();
  CHECK(items == 50);
}

}  // namespace linrec::test::tbb_test
