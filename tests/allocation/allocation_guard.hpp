// Counts what the current thread takes from and gives back to the heap. Eigen calls malloc and not
// operator new, so malloc itself is replaced, and with it everything that stands on it.
#pragma once

namespace linrec::test {

/// Counts from its construction on; several may be nested. Catch's own macros allocate: read count()
/// into a variable before a REQUIRE.
///   CountAllocations heap;
///   kernel.step(inputs, state, outputs);
///   const long allocations = heap.count();
///   REQUIRE(allocations == 0);
class CountAllocations {
 public:
  CountAllocations() noexcept;

  /// Calls of malloc, calloc, realloc and their aligned relatives.
  long count() const noexcept;
  /// Calls of free with something to free.
  long frees() const noexcept;

 private:
  long allocations_before_, frees_before_;
};

}  // namespace linrec::test
