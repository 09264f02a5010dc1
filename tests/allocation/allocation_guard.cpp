// The replacements pass every call on to glibc under its internal names, which need no dlsym and so
// work from the first instruction of the process.
#include "tests/allocation/allocation_guard.hpp"

#include <cerrno>
#include <cstddef>

namespace {
// Initial-exec storage is there with the thread: touching it allocates nothing.
#define LINREC_COUNTER __attribute__((tls_model("initial-exec"))) thread_local constinit
LINREC_COUNTER long allocations = 0;
LINREC_COUNTER long frees = 0;
#undef LINREC_COUNTER

bool is_power_of_two(std::size_t n) { return n != 0 && (n & (n - 1)) == 0; }
}  // namespace

namespace linrec::test {
CountAllocations::CountAllocations() noexcept : allocations_before_(allocations), frees_before_(::frees) {}
long CountAllocations::count() const noexcept { return allocations - allocations_before_; }
long CountAllocations::frees() const noexcept { return ::frees - frees_before_; }
}  // namespace linrec::test

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* block);

void* malloc(std::size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) noexcept {
  ++allocations;
  return __libc_realloc(block, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  ++allocations;
  if (alignment % sizeof(void*) != 0 || !is_power_of_two(alignment)) return EINVAL;
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *block = memory;
  return 0;
}
void free(void* block) noexcept {
  if (block != nullptr) ++frees;
  __libc_free(block);
}
}  // extern "C"
