// Heap storage on cache-line boundaries, whatever the -m flags of the translation unit.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace linrec {

inline constexpr std::size_t cache_line = 64;

/// Allocator whose blocks start on a cache line, on every machine. Eigen's own aligned allocator follows
/// the instruction set.
template <class T>
struct CacheAlignedAllocator {
  using value_type = T;

  CacheAlignedAllocator() = default;
  template <class U>
  CacheAlignedAllocator(const CacheAlignedAllocator<U>&) noexcept {}

  T* allocate(std::size_t n) {
    if (n > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{cache_line}));
  }
  void deallocate(T* p, std::size_t) noexcept { ::operator delete (p, std::align_val_t{cache_line}); }

  template <class U>
  friend bool operator==(const CacheAlignedAllocator&, const CacheAlignedAllocator<U>&) {
    return true;
  }
};

template <class T>
using AlignedVector = std::vector<T, CacheAlignedAllocator<T>>;

}  // namespace linrec
