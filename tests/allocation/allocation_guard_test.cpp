// The guard must see every way to the heap, or a test that finds nothing says nothing.
#include "tests/allocation/allocation_guard.hpp"

#include <malloc.h>
#include <stdlib.h>

#include <Eigen/Core>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "linrec/core/aligned.hpp"
#include "tests/catch.hpp"

using linrec::test::CountAllocations;

namespace {

// Without this a compiler may remove an allocation that nothing looks at.
template <class T>
void keep(T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

template <class F>
long allocations_of(F&& f) {
  const CountAllocations heap;
  f();
  return heap.count();
}

}  // namespace

TEST_CASE("no allocation counts as none") {
  double sum = 0;
  CHECK(allocations_of([&] {
          for (int i = 0; i < 100; ++i) sum += i;
          keep(sum);
        }) == 0);
}

TEST_CASE("the C functions are counted") {
  void* block = nullptr;
  const auto call = [&](auto f) {
    return allocations_of([&] {
      f();
      keep(block);
      free(block);
    });
  };
  CHECK(call([&] { block = malloc(100); }) == 1);
  CHECK(call([&] { block = calloc(10, 10); }) == 1);
  CHECK(call([&] { block = realloc(nullptr, 100); }) == 1);
  CHECK(call([&] { block = aligned_alloc(64, 128); }) == 1);
  CHECK(call([&] { block = memalign(64, 100); }) == 1);
  CHECK(call([&] {
          if (posix_memalign(&block, 64, 100) != 0) block = nullptr;
        }) == 1);
  CHECK(call([&] { block = nullptr; }) == 0);
}

TEST_CASE("posix_memalign refuses what is no alignment") {
  void* block = nullptr;
  CHECK(posix_memalign(&block, 3, 100) != 0);
  CHECK(posix_memalign(&block, 0, 100) != 0);
  CHECK(block == nullptr);
}

TEST_CASE("operator new is counted, aligned or not") {
  CHECK(allocations_of([] {
          auto number = std::make_unique<double>(1);
          keep(*number);
        }) == 1);
  CHECK(allocations_of([] {
          struct alignas(128) Wide {
            double numbers[16];
          };
          auto wide = std::make_unique<Wide>();
          keep(*wide);
        }) == 1);
  CHECK(allocations_of([] {
          std::vector<double> numbers(1000);
          keep(numbers[0]);
        }) == 1);
  CHECK(allocations_of([] {
          linrec::AlignedVector<double> numbers(1000);
          keep(numbers[0]);
        }) == 1);
}

TEST_CASE("Eigen's temporaries are counted") {
  const Eigen::MatrixXf a = Eigen::MatrixXf::Random(2048, 2048);
  const Eigen::VectorXf x = Eigen::VectorXf::Random(2048);
  Eigen::VectorXf y(2048);
  CHECK(allocations_of([&] { y = a * x; }) > 0);
  CHECK(allocations_of([&] { y.noalias() = a * x; }) == 0);
  keep(y);
}

TEST_CASE("frees are counted") {
  auto number = std::make_unique<double>(1);
  keep(*number);
  const CountAllocations heap;
  number.reset();
  const long frees = heap.frees(), allocations = heap.count();
  CHECK(frees == 1);
  CHECK(allocations == 0);
}

TEST_CASE("another thread's allocations are its own") {
  long inside = 0;
  const CountAllocations heap;
  std::thread thread([&] {
    inside = allocations_of([] {
      std::vector<double> numbers(1000);
      keep(numbers[0]);
    });
  });
  const long started = heap.count();
  thread.join();
  const long joined = heap.count();
  CHECK(inside == 1);
  CHECK(joined == started);
}
