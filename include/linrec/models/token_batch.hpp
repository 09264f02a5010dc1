// TokenBatch: the token numbers of a batch, checked.
#pragma once

#include <cstdint>
#include <span>

#include "linrec/core/sequence_layout.hpp"

namespace linrec {

using TokenId = std::int32_t;

/// Tokens [B, T]. B is the number of sequences, or 1 if they are packed.
struct TokenBatch {
  std::span<const TokenId> ids;
  SequenceLayout layout;
  Index batch = 0, tokens = 0;  ///< B, T

  /// @param vocabulary the ids are 0 to vocabulary - 1; padding may hold anything.
  /// @throws ShapeError if the ids are not [B, T] or the layout does not fit, ValueError naming the token.
  TokenBatch(std::span<const TokenId> token_ids, const SequenceLayout& sequence_layout, Index sequences,
             Index vocabulary)
      : ids(token_ids), layout(sequence_layout), batch(layout.is_packed() ? 1 : sequences) {
    const Index size = static_cast<Index>(ids.size());
    if (batch == 0 ? size != 0 : size % batch != 0)
      throw ShapeError(
          message("tokens: expected a multiple of the ", batch, " sequences of the state, got ", size));
    tokens = batch == 0 ? 0 : size / batch;
    layout.check(batch, tokens);
    if (layout.sequences(batch) != sequences)
      throw ShapeError(message("state: expected ", layout.sequences(batch), " sequences, got ", sequences));
    for (Index s = 0; s < sequences; ++s)
      layout.for_each_run(s, tokens, [&](Index row, Index first, Index count) {
        for (Index t = first; t < first + count; ++t)
          if (const TokenId id = at(row * tokens + t); id < 0 || id >= vocabulary)
            throw ValueError(
                message("tokens[", row, ", ", t, "]: expected 0 to ", vocabulary - 1, ", got ", id));
      });
  }

  /// The token b T + t.
  TokenId at(Index i) const { return ids[static_cast<std::size_t>(i)]; }
};

}  // namespace linrec
