// Dims, errors, Workspace, aligned memory and executors.
#include <array>
#include <cstdint>
#include <limits>
#include <mutex>
#include <numeric>
#include <type_traits>
#include <vector>

#include "linrec/core/aligned.hpp"
#include "linrec/core/executor.hpp"
#include "linrec/core/types.hpp"
#include "linrec/core/workspace.hpp"
#include "tests/catch.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/error_of.hpp"

namespace linrec::test::core_test {

TEST_CASE("Dims: dynamic") {
  const Dims<> dims(2, 3, 4);
  CHECK(dims.heads() == 2);
  CHECK(dims.key() == 3);
  CHECK(dims.value() == 4);
  CHECK(dims == Dims<>(2, 3, 4));
  CHECK(dims != Dims<>(2, 4, 3));
  CHECK(dims != Dims<>(1, 3, 4));
}

TEST_CASE("Dims: fixed, wholly or in part") {
  using Fixed = Dims<2, 3, 4>;
  static_assert(Fixed().heads() == 2 && Fixed().key() == 3 && Fixed().value() == 4);
  static_assert(std::is_default_constructible_v<Fixed> &&
                !std::is_default_constructible_v<Dims<2, Dynamic, 4>>);
  CHECK(Fixed(2, 3, 4) == Fixed());
  const Dims<Dynamic, 3, Dynamic> part(2, 3, 4);
  CHECK(part.heads() == 2);
  CHECK(part.key() == 3);
  CHECK(part.value() == 4);
  static_assert(fits(3, 3) && !fits(3, 4) && fits(Dynamic, 4));
}

TEST_CASE("Dims: what they refuse") {
  REQUIRE_THROWS_MATCHES(Dims<>(0, 3, 4), ValueError,
                         message_contains("Dims: heads expected at least 1, got 0"));
  REQUIRE_THROWS_MATCHES(Dims<>(2, -1, 4), ValueError,
                         message_contains("Dims: key expected at least 1, got -1"));
  REQUIRE_THROWS_MATCHES(Dims<>(2, 3, 0), ValueError,
                         message_contains("Dims: value expected at least 1, got 0"));
  REQUIRE_THROWS_MATCHES((Dims<2, 3, 4>(5, 3, 4)), ValueError,
                         message_contains("Dims: heads expected 2 (fixed by the type), got 5"));
  REQUIRE_THROWS_MATCHES((Dims<Dynamic, 3, Dynamic>(5, 4, 4)), ValueError,
                         message_contains("Dims: key expected 3 (fixed by the type), got 4"));
  REQUIRE_THROWS_MATCHES((Dims<2, 3, 4>(2, 3, 5)), ValueError,
                         message_contains("Dims: value expected 4 (fixed by the type), got 5"));
}

TEST_CASE("errors have one base, and numbers in their texts are exact") {
  static_assert(std::is_base_of_v<std::runtime_error, Error>);
  static_assert(std::is_base_of_v<Error, ShapeError> && std::is_base_of_v<Error, ValueError> &&
                std::is_base_of_v<Error, FormatError>);
  CHECK(message("T: ", 3, ", x: ", 0.5, ", y: ", 0.1) == "T: 3, x: 0.5, y: 0.10000000000000001");
  CHECK(std::string(ShapeError("k: expected 3, got 4").what()) == "k: expected 3, got 4");
}

TEST_CASE("aligned memory starts on a cache line") {
  for (const std::size_t n : {1u, 3u, 100u}) {
    AlignedVector<float> numbers(n);
    CHECK(reinterpret_cast<std::uintptr_t>(numbers.data()) % cache_line == 0);
  }
  CHECK_THROWS_AS(CacheAlignedAllocator<double>().allocate(std::numeric_limits<std::size_t>::max()),
                  std::bad_array_new_length);
}

TEST_CASE("Workspace: blocks for every worker, which only grow") {
  Workspace workspace;
  workspace.reserve(2, 100);
  std::array<double*, 2> blocks{workspace.block<double>(0), workspace.block<double>(1)};
  CHECK(blocks[0] != blocks[1]);
  for (double* block : blocks) {
    CHECK(reinterpret_cast<std::uintptr_t>(block) % cache_line == 0);
    block[0] = block[11] = 1;  // 96 bytes
  }
  workspace.reserve(1, 10);
  workspace.reserve(2, 100);
  CHECK(workspace.block<double>(0) == blocks[0]);
  CHECK(workspace.block<double>(1) == blocks[1]);
  workspace.reserve(3, 8000);
  for (Index worker = 0; worker < 3; ++worker) workspace.block<double>(worker)[999] = 1;
  workspace.reserve(0, 0);
  CHECK(workspace.block<double>(2)[999] == 1);
}

namespace {

struct NoWorkers {
  void for_each(Index, double, void (*)(Index, Index)) const {}
};
struct NoLoop {
  Index concurrency() const { return 1; }
};

/// Which items ran, how often, and by whom.
template <class E>
std::vector<int> runs(const E& executor, Index n) {
  std::vector<int> count(static_cast<std::size_t>(n), 0);
  std::mutex mutex;
  bool in_range = true;
  executor.for_each(n, 1.0, [&](Index item, Index worker) {
    const std::lock_guard lock(mutex);
    ++count[static_cast<std::size_t>(item)];
    in_range = in_range && worker >= 0 && worker < executor.concurrency();
  });
  return in_range ? count : std::vector<int>{-1};
}

}  // namespace

TEST_CASE("executors: what is one, and every item runs once") {
  static_assert(Executor<SerialExecutor> && Executor<ThreadExecutor>);
  static_assert(!Executor<NoWorkers> && !Executor<NoLoop> && !Executor<int>);
  CHECK(SerialExecutor().concurrency() == 1);
  for (const Index n : {0, 1, 100}) {
    const std::vector<int> once(static_cast<std::size_t>(n), 1);
    CHECK(runs(SerialExecutor(), n) == once);
    CHECK(runs(ThreadExecutor{3}, n) == once);
    CHECK(runs(ThreadExecutor{0}, n) == once);
  }
  std::vector<Index> order;
  SerialExecutor().for_each(3, 1.0, [&](Index item, Index) { order.push_back(item); });
  CHECK(order == std::vector<Index>{0, 1, 2});
}

namespace {

/// Remembers what it was asked for.
struct Recorder {
  Index workers;
  mutable Index items = -1;
  mutable double cost = -1;

  Index concurrency() const { return workers; }
  template <class F>
  void for_each(Index n, double flops, F&& f) const {
    items = n, cost = flops;
    for (Index i = 0; i < n; ++i) f(i, workers - 1);
  }
};

}  // namespace

TEST_CASE("executors: a reference to any of them") {
  static_assert(Executor<ExecutorRef> && !std::is_constructible_v<ExecutorRef, int>);
  CHECK(ExecutorRef().concurrency() == 1);
  CHECK(runs(ExecutorRef(), 5) == std::vector<int>(5, 1));
  const ThreadExecutor threads{3};
  CHECK(ExecutorRef(threads).concurrency() == 3);
  for (const Index n : {0, 1, 100})
    CHECK(runs(ExecutorRef(threads), n) == std::vector<int>(static_cast<std::size_t>(n), 1));

  const Recorder recorder{4};
  const ExecutorRef reference = recorder, copy = reference;
  Index sum = 0;
  const auto add = [&](Index item, Index worker) { sum += 10 * item + worker; };
  copy.for_each(3, 2.5, add);
  CHECK(sum == 10 * (0 + 1 + 2) + 3 * 3);
  CHECK((recorder.items == 3 && recorder.cost == 2.5));
  CHECK(error_of([] { ExecutorRef(Recorder{0}); }) ==
        "ValueError: executor: expected a concurrency of at least 1, got 0");
}

TEST_CASE("executors: ranges cover everything once, in whole grains") {
  for (const Index workers : {1, 2, 3, 7})
    for (const Index grain : {1, 6, 8})
      for (const Index size : {0, 1, 5, 6, 7, 48, 100, 1000}) {
        INFO(workers << " workers, " << size << " in grains of " << grain);
        const Recorder recorder{workers};
        Index next = 0;
        bool whole = true;
        for_each_range(recorder, size, grain, 12.0, [&](Index first, Index count) {
          whole = whole && first == next && first % grain == 0 && count >= 0;
          next += count;
        });
        CHECK((whole && next == size));
        if (workers > 1) CHECK(recorder.cost * static_cast<double>(recorder.items) == Approx(12));
        if (size == 1000 && workers > 1) CHECK(recorder.items == 4 * workers);
      }
}

TEST_CASE("executors: what is worth threads") {
  CHECK(!worth_threads(0, 1e9));
  CHECK(!worth_threads(1, 1e9));
  CHECK(worth_threads(2, 1e9));
  CHECK(worth_threads(100, least_parallel_flops / 100));
  CHECK(!worth_threads(100, least_parallel_flops / 101));
  CHECK(!worth_threads(100, std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace linrec::test::core_test
