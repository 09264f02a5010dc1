#include "linrec/parallel/openmp.hpp"

#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/parallel/contract.hpp"

namespace linrec::test::openmp_test {

TEST_CASE("OpenMP: the contract of an executor") {
  static_assert(Executor<OpenMPExecutor>);
  for (const int threads : {1, 2, 3, 7}) check_contract(OpenMPExecutor(threads), threads);
}

TEST_CASE("OpenMP: regions within regions") {
  const int before = omp_get_max_active_levels();
  omp_set_max_active_levels(3);
  check_contract(OpenMPExecutor(2), 2);
  omp_set_max_active_levels(before);
}

TEST_CASE("OpenMP: the same bits") {
  for (const int threads : {1, 2, 3, 7}) check_bits(OpenMPExecutor(threads));
}

TEST_CASE("OpenMP: as many threads as are asked for") {
  CHECK(OpenMPExecutor().concurrency() == omp_get_max_threads());
  for (const int threads : {0, -1})
    CHECK(error_of([&] { OpenMPExecutor executor(threads); }) ==
          message("ValueError: threads: expected at least 1, got ", threads));
}

}  // namespace linrec::test::openmp_test
