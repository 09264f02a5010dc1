// SequenceLayout: which tokens of a [B, T, ...] tensor belong to which sequence.
#pragma once

#include <cstdint>
#include <span>

#include "linrec/core/types.hpp"

namespace linrec {

/// How sequences lie in a batch of B rows and T tokens:
///  - dense (the default): row b is sequence b, all T tokens;
///  - with_lengths: row b is sequence b, its first lengths[b] tokens; the rest is padding;
///  - with_mask: row b is sequence b; tokens whose mask [B, T] is 0 are padding, wherever they lie
///    (left-padded prompts, for one);
///  - packed: one row; sequence s is the tokens [offsets[s], offsets[s + 1]).
/// Padding changes neither states nor positions, and its outputs are zero. Sequences may be empty.
/// The spans are not copied.
class SequenceLayout {
 public:
  SequenceLayout() = default;

  static SequenceLayout with_lengths(std::span<const Index> lengths) { return {Kind::lengths, lengths, {}}; }
  static SequenceLayout with_mask(std::span<const std::uint8_t> mask) { return {Kind::mask, {}, mask}; }
  static SequenceLayout packed(std::span<const Index> offsets) { return {Kind::packed, offsets, {}}; }

  bool is_packed() const { return kind_ == Kind::packed; }
  /// Number of sequences, which is the number of sequences a state must have.
  Index sequences(Index batch) const { return kind_ == Kind::packed ? count() - 1 : batch; }

  /// @throws ShapeError if the layout does not fit B rows of T tokens.
  void check(Index batch, Index tokens) const {
    switch (kind_) {
      case Kind::dense:
        return;
      case Kind::mask:
        if (static_cast<Index>(mask_.size()) != checked_product({batch, tokens}))
          throw ShapeError(message("mask: expected [B, T] = [", batch, ", ", tokens, "] = ", batch * tokens,
                                   " entries, got ", mask_.size()));
        return;
      case Kind::lengths:
        if (count() != batch)
          throw ShapeError(message("lengths: expected B = ", batch, " entries, got ", count()));
        for (Index b = 0; b < batch; ++b)
          if (number(b) < 0 || number(b) > tokens)
            throw ShapeError(message("lengths[", b, "]: expected 0 to T = ", tokens, ", got ", number(b)));
        return;
      case Kind::packed:
        check_offsets(batch, tokens);
    }
  }

  /// Calls f(row, first, count) for each run of consecutive real tokens of sequence s, in order.
  template <class F>
  void for_each_run(Index s, Index tokens, F&& f) const {
    if (kind_ == Kind::mask) return for_each_masked(s, tokens, true, f);
    const Index first = kind_ == Kind::packed ? number(s) : 0;
    const Index end = kind_ == Kind::packed ? number(s + 1) : kind_ == Kind::lengths ? number(s) : tokens;
    if (end > first) f(kind_ == Kind::packed ? Index(0) : s, first, end - first);
  }

  /// Calls f(row, first, count) for each run of padding in the row of sequence s.
  template <class F>
  void for_each_padding(Index s, Index tokens, F&& f) const {
    if (kind_ == Kind::mask) return for_each_masked(s, tokens, false, f);
    if (kind_ == Kind::lengths && number(s) < tokens) f(s, number(s), tokens - number(s));
  }

 private:
  enum class Kind { dense, lengths, mask, packed };

  SequenceLayout(Kind kind, std::span<const Index> numbers, std::span<const std::uint8_t> mask)
      : kind_(kind), numbers_(numbers), mask_(mask) {}

  Index count() const { return static_cast<Index>(numbers_.size()); }
  Index number(Index i) const { return numbers_[static_cast<std::size_t>(i)]; }

  void check_offsets(Index batch, Index tokens) const {
    if (batch != 1) throw ShapeError(message("offsets: expected B = 1 in a packed batch, got ", batch));
    if (count() < 1) throw ShapeError("offsets: expected at least 1 entry, got 0");
    if (number(0) != 0) throw ShapeError(message("offsets[0]: expected 0, got ", number(0)));
    for (Index s = 1; s < count(); ++s)
      if (number(s) < number(s - 1))
        throw ShapeError(message("offsets[", s, "]: expected at least offsets[", s - 1, "] = ", number(s - 1),
                                 ", got ", number(s)));
    if (number(count() - 1) != tokens)
      throw ShapeError(
          message("offsets[", count() - 1, "]: expected T = ", tokens, ", got ", number(count() - 1)));
  }

  template <class F>
  void for_each_masked(Index row, Index tokens, bool real, F&& f) const {
    const std::uint8_t* mask = mask_.data() + row * tokens;
    for (Index t = 0; t < tokens;) {
      const Index first = t;
      while (t < tokens && (mask[t] != 0) == real) ++t;
      if (t > first) f(row, first, t - first);
      while (t < tokens && (mask[t] != 0) != real) ++t;
    }
  }

  Kind kind_ = Kind::dense;
  std::span<const Index> numbers_;
  std::span<const std::uint8_t> mask_;
};

}  // namespace linrec
