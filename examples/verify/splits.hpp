// How a sequence is cut into pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels.hpp"

namespace linrec::verify {

struct Piece {
  Index tokens;
  bool prefill;  ///< in one call, or step by step
};
using Split = std::vector<Piece>;

/// Pieces of 0 to 127 tokens, short ones as often as long ones; a quarter is stepped.
inline Split random_split(Index tokens, std::mt19937_64& bits) {
  Split split;
  for (Index left = tokens; left > 0;) {
    const std::uint64_t limit = std::uint64_t(1) << (bits() % 8);
    const Index count = std::min(left, static_cast<Index>(bits() % limit + (limit < 128 ? 1 : 0)));
    split.push_back({count, bits() % 4 != 0});
    left -= count;
  }
  return split;
}

/// The same split of the first tokens only.
inline Split first_tokens(const Split& split, Index tokens) {
  Split first;
  for (const auto& [count, prefill] : split) {
    first.push_back({std::min(count, tokens), prefill});
    tokens -= first.back().tokens;
  }
  return first;
}

/// Goes through a sequence: calls prefill(first, count) or step(t) as the split says.
template <class Prefill, class Step>
void for_each_call(const Split& split, Prefill&& prefill, Step&& step) {
  Index first = 0;
  for (const Piece& piece : split) {
    if (piece.prefill)
      prefill(first, piece.tokens);
    else
      for (Index t = first; t < first + piece.tokens; ++t) step(t);
    first += piece.tokens;
  }
}

/// The splits of a way: one for steps and for prefill, several for splits. The same seed gives the same
/// splits everywhere.
inline std::vector<Split> splits_of(Way way, Index tokens, std::uint64_t seed) {
  if (way != Way::splits) return {{{tokens, way == Way::prefill}}};
  std::mt19937_64 bits(seed);  // the engine is portable, std's distributions are not
  // Each token a prefill of its own, then splits of all kinds.
  std::vector<Split> splits{Split(static_cast<std::size_t>(tokens), Piece{1, true})};
  for (int i = 0; i < 4; ++i) splits.push_back(random_split(tokens, bits));
  return splits;
}

}  // namespace linrec::verify
