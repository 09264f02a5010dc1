// PackedRows: the tokens that a layer works on at a time, and how a batch is cut into them.
//
// Dense, ragged, masked and packed batches all become chunks of real tokens, packed one behind the other. So
// padding exists only where tokens are gathered and results are put back.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "linrec/core/executor.hpp"
#include "linrec/core/prefill_options.hpp"

namespace linrec {

/// Tokens a layer works on at a time: enough to read each weight seldom, few enough to stay in the caches.
inline constexpr Index chunk_rows = 64;

/// Rows [offsets[s], offsets[s + 1]) of a chunk are the next tokens of sequence s; there may be none. What a
/// layer does with them is split among the workers of the executor.
struct PackedRows {
  std::span<const Index> offsets;  ///< [S + 1]
  std::span<const Index> source;   ///< row i is the token source[i] = b T + t of the batch
  ExecutorRef executor = {};
  PrefillMode mode = PrefillMode::reproducible;  ///< of recurrences

  Index count() const { return static_cast<Index>(source.size()); }
  Index sequences() const { return static_cast<Index>(offsets.size()) - 1; }
  Index first(Index s) const { return offsets[static_cast<std::size_t>(s)]; }
  Index count(Index s) const { return first(s + 1) - first(s); }
  Index token(Index i) const { return source[static_cast<std::size_t>(i)]; }
  SequenceLayout layout() const { return SequenceLayout::packed(offsets); }
};

/// The memory of PackedRows, and the loop over a batch.
class RowPacker {
 public:
  /// @throws ValueError if the number is negative.
  explicit RowPacker(Index sequences = 0) : source_(static_cast<std::size_t>(chunk_rows)) {
    if (sequences < 0) throw ValueError(message("sequences: expected at least 0, got ", sequences));
    offsets_.resize(static_cast<std::size_t>(sequences) + 1);
  }

  Index sequences() const { return static_cast<Index>(offsets_.size()) - 1; }

  /// Calls f(rows) for one chunk after the other, until all real tokens of the batch have been in one. The
  /// tokens of a sequence come in order. Allocates nothing.
  template <class F>
  void for_each_chunk(const SequenceLayout& layout, Index tokens, F&& f) {
    Index count = 0;
    const auto hand_out = [&](Index s) {  // the last sequence of the chunk
      std::fill(offsets_.begin() + s + 1, offsets_.end(), count);
      f(PackedRows{offsets_, std::span(source_).first(static_cast<std::size_t>(count))});
      std::fill(offsets_.begin(), offsets_.begin() + s + 1, Index(0));
      count = 0;
    };
    offsets_[0] = 0;
    for (Index s = 0; s < sequences(); ++s) {
      offsets_[static_cast<std::size_t>(s)] = count;
      layout.for_each_run(s, tokens, [&](Index row, Index first, Index n) {
        for (Index t = first; t < first + n; ++t) {
          source_[static_cast<std::size_t>(count++)] = row * tokens + t;
          if (count == chunk_rows) hand_out(s);
        }
      });
    }
    if (count > 0) hand_out(sequences() - 1);
  }

 private:
  std::vector<Index> offsets_, source_;
};

}  // namespace linrec
