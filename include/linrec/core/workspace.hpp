// Workspace: scratch memory that the caller may keep between calls of prefill.
#pragma once

#include <vector>

#include "linrec/core/aligned.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

/// Scratch memory, one cache-aligned block a worker. It only grows, so a caller that keeps one
/// pays for allocation once. A workspace serves one call at a time.
class Workspace {
 public:
  /// Makes sure that `workers` blocks of at least `bytes` each are there. Contents are not kept.
  void reserve(Index workers, std::size_t bytes) {
    if (static_cast<Index>(blocks_.size()) < workers) blocks_.resize(static_cast<std::size_t>(workers));
    for (Index w = 0; w < workers; ++w) {
      AlignedVector<std::byte>& block = blocks_[static_cast<std::size_t>(w)];
      if (block.size() < bytes) AlignedVector<std::byte>(bytes).swap(block);
    }
  }

  /// The block of one worker, viewed as T.
  template <class T>
  T* block(Index worker) {
    return reinterpret_cast<T*>(blocks_[static_cast<std::size_t>(worker)].data());
  }

 private:
  std::vector<AlignedVector<std::byte>> blocks_;
};

}  // namespace linrec
