// A batch of sequences, in each of the ways that a SequenceLayout knows.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "linrec/core/sequence_layout.hpp"

namespace linrec::test {

/// The layout of a batch, and which tokens {row, t} each sequence has.
struct Batch {
  Index rows = 0, tokens = 0;
  std::vector<std::vector<std::array<Index, 2>>> sequences = {};
  enum class Kind { dense, lengths, mask, packed } kind = Kind::dense;
  std::vector<Index> numbers = {};
  std::vector<std::uint8_t> mask = {};

  static Batch dense(Index rows, Index tokens);
  static Batch with_lengths(Index tokens, std::vector<Index> lengths);
  static Batch with_mask(Index tokens, std::vector<std::uint8_t> mask);
  static Batch packed(std::vector<Index> offsets);
  SequenceLayout layout() const;
  Index count() const { return static_cast<Index>(sequences.size()); }
  /// 1 for real tokens, 0 for padding, [rows, tokens].
  std::vector<bool> real() const;
};

inline Batch Batch::dense(Index rows, Index tokens) {
  Batch batch{.rows = rows, .tokens = tokens};
  batch.sequences.resize(static_cast<std::size_t>(rows));
  for (Index b = 0; b < rows; ++b)
    for (Index t = 0; t < tokens; ++t) batch.sequences[static_cast<std::size_t>(b)].push_back({b, t});
  return batch;
}

inline Batch Batch::with_lengths(Index tokens, std::vector<Index> lengths) {
  Batch batch{.rows = static_cast<Index>(lengths.size()), .tokens = tokens, .kind = Kind::lengths};
  for (Index b = 0; b < batch.rows; ++b) {
    auto& sequence = batch.sequences.emplace_back();
    for (Index t = 0; t < lengths[static_cast<std::size_t>(b)]; ++t) sequence.push_back({b, t});
  }
  batch.numbers = std::move(lengths);
  return batch;
}

inline Batch Batch::with_mask(Index tokens, std::vector<std::uint8_t> mask) {
  Batch batch{.rows = static_cast<Index>(mask.size()) / tokens, .tokens = tokens, .kind = Kind::mask};
  for (Index b = 0; b < batch.rows; ++b) {
    auto& sequence = batch.sequences.emplace_back();
    for (Index t = 0; t < tokens; ++t)
      if (mask[static_cast<std::size_t>(b * tokens + t)] != 0) sequence.push_back({b, t});
  }
  batch.mask = std::move(mask);
  return batch;
}

inline Batch Batch::packed(std::vector<Index> offsets) {
  Batch batch{.rows = 1, .tokens = offsets.back(), .kind = Kind::packed};
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    auto& sequence = batch.sequences.emplace_back();
    for (Index t = offsets[s]; t < offsets[s + 1]; ++t) sequence.push_back({0, t});
  }
  batch.numbers = std::move(offsets);
  return batch;
}

inline SequenceLayout Batch::layout() const {
  switch (kind) {
    case Kind::lengths:
      return SequenceLayout::with_lengths(numbers);
    case Kind::mask:
      return SequenceLayout::with_mask(mask);
    case Kind::packed:
      return SequenceLayout::packed(numbers);
    case Kind::dense:
      break;
  }
  return {};
}

inline std::vector<bool> Batch::real() const {
  std::vector<bool> all(static_cast<std::size_t>(rows * tokens), false);
  for (const auto& sequence : sequences)
    for (const auto& [row, t] : sequence) all[static_cast<std::size_t>(row * tokens + t)] = true;
  return all;
}

}  // namespace linrec::test
