// What SKA remembers of the sequences of a batch: the statistics of each head, and what is derived from them.
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "linrec/ska/fit.hpp"

namespace linrec {

/// What a state of SKA consists of.
struct SkaShape {
  Index heads = 0, key = 0, value = 0;  ///< H, r, P
  KeyScale scale = KeyScale::sequence_max;
  Index chunk = 0;  ///< S of the chunk-causal mode; 0: another mode

  friend bool operator==(const SkaShape&, const SkaShape&) = default;

  /// "[H, r, P] scale chunk", "[12, 48, 64] sequence_max chunk 64"
  std::string text() const {
    const char* name = scale == KeyScale::sequence_max ? "sequence_max"
                       : scale == KeyScale::unit_norm  ? "unit_norm"
                                                       : "none";
    return message(shape_text(std::array{heads, key, value}), " ", name,
                   chunk > 0 ? message(" chunk ", chunk) : "");
  }
};

/// The statistics of H heads for each of several sequences, and the scratch memory of a step. A value: copy
/// it to fork, keep it to roll back. SpectralKoopmanAttention makes it, and refuses one of another shape.
class SkaState {
 public:
  using Scalar = double;

  /// @throws ValueError if a size is below 1 (sequences: 0), ShapeError if the size overflows.
  explicit SkaState(const SkaShape& shape, Index sequences = 1) : shape_(shape), sequences_(sequences) {
    if (sequences < 0) throw ValueError(message("sequences: expected at least 0, got ", sequences));
    if (shape.heads < 1) throw ValueError(message("heads: expected at least 1, got ", shape.heads));
    if (shape.chunk < 0) throw ValueError(message("chunk: expected at least 0, got ", shape.chunk));
    const SkaFit empty(shape.key, shape.value, shape.scale);
    const auto count = static_cast<std::size_t>(checked_product({sequences, shape.heads}));
    now_.assign(count, empty);
    if (shape.chunk > 0) past_.assign(count, empty);
    failures_.assign(count, 0);
    positions_.assign(static_cast<std::size_t>(sequences), 0);
    scratch_.assign(static_cast<std::size_t>(scratch_size(shape)), 0.0);
  }

  const SkaShape& shape() const { return shape_; }
  Index sequences() const { return sequences_; }

  /// Tokens that sequence s has seen.
  std::int64_t position(Index s) const { return positions_[checked_sequence(s)]; }
  /// @throws ValueError if the position is not in [0, 2^53].
  void set_position(Index s, std::int64_t position) {
    check_position(position);
    positions_[checked_sequence(s)] = position;
  }

  /// The sums of head h.
  const SkaStatistics& statistics(Index s, Index h) const { return now_[checked(s, h)].statistics(); }
  /// Replaces them; the position stays.
  /// @throws ShapeError if they have other sizes or another scale.
  void set_statistics(Index s, Index h, const SkaStatistics& statistics) {
    SkaFit& fit = now_[checked(s, h)];
    statistics.check_like("statistics", shape_.key, shape_.value, shape_.scale);
    fit.statistics() = statistics;
    fit.changed();
  }
  /// Raises the largest length of a key of head h, for one that is known beforehand.
  /// @throws ValueError if it is no finite number of at least 0.
  void raise_max_norm(Index s, Index h, double norm) {
    for (std::vector<SkaFit>* fits : {&now_, &past_})
      if (!fits->empty()) {
        SkaFit& fit = (*fits)[checked(s, h)];
        const double before = fit.statistics().max_norm();
        fit.statistics().raise_max_norm(norm);
        if (fit.statistics().max_norm() != before) fit.changed();
      }
  }

  /// Sequence s, followed by the tokens that sequence `from` of `later` has seen: as if they had been taken
  /// in here. Segments may be merged in any grouping, and made in parallel.
  /// @throws ShapeError if the shapes differ; ValueError if the state sees by chunks and the tokens do not
  ///   end with one, as what the chunk under way has seen would not be known.
  void merge(Index s, const SkaState& later, Index from) {
    if (!(later.shape_ == shape_))
      throw ShapeError(message("later: expected a state of ", shape_.text(), ", got ", later.shape_.text()));
    const std::size_t first = checked(s, 0), other = later.checked(from, 0);
    const std::int64_t position = this->position(s) + later.position(from);
    check_position(position);
    if (shape_.chunk > 0 && position % shape_.chunk != 0)
      throw ValueError(message("later: expected tokens up to a multiple of the chunk ", shape_.chunk,
                               ", got a position of ", position));
    for (std::size_t h = 0; h < static_cast<std::size_t>(shape_.heads); ++h) {
      now_[first + h].statistics().merge(later.now_[other + h].statistics());
      now_[first + h].changed();
    }
    set_position(s, position);
  }

  /// Sequence s starts afresh.
  void reset(Index s) {
    const std::size_t first = checked(s, 0);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(shape_.heads); ++i) {
      for (std::vector<SkaFit>* fits : {&now_, &past_})
        if (!fits->empty()) {
          (*fits)[i].statistics().reset();
          (*fits)[i].changed();
        }
      failures_[i] = 0;
    }
    set_position(s, 0);
  }

  /// Queries of head h, since the sequence began, that had no answer; the status of its factor says why.
  std::int64_t failures(Index s, Index h) const { return failures_[checked(s, h)]; }
  FactorStatus status(Index s, Index h) const {
    return (past_.empty() ? now_ : past_)[checked(s, h)].factor().status();
  }

  /// Bytes that a sequence's statistics need on disk or on a wire: 2 r^2 + P r + 2 r + 1 numbers a head, and
  /// the position.
  Index bytes_per_sequence() const {
    const Index r = shape_.key, numbers = 2 * r * r + shape_.value * r + 2 * r + 1;
    return shape_.heads * numbers * static_cast<Index>(sizeof(double)) +
           static_cast<Index>(sizeof(std::int64_t));
  }

  /// Same shape, positions and statistics, bit for bit but for the sign of zero; NaN equals nothing.
  friend bool operator==(const SkaState& a, const SkaState& b) {
    const auto same = [](const std::vector<SkaFit>& x, const std::vector<SkaFit>& y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                        [](const SkaFit& p, const SkaFit& q) { return p.statistics() == q.statistics(); });
    };
    return a.shape_ == b.shape_ && a.positions_ == b.positions_ && same(a.now_, b.now_) &&
           same(a.past_, b.past_);
  }

  // What follows is for SpectralKoopmanAttention and snapshots.

  /// The sums of all tokens, and of those of earlier chunks, of head h.
  SkaFit& now(Index s, Index h) { return now_[index(s, h)]; }
  SkaFit& past(Index s, Index h) { return past_[index(s, h)]; }
  const SkaFit& now(Index s, Index h) const { return now_[index(s, h)]; }
  const SkaFit& past(Index s, Index h) const { return past_[index(s, h)]; }
  void count_failure(Index s, Index h) noexcept { ++failures_[index(s, h)]; }
  std::int64_t& failures(Index s, Index h) { return failures_[checked(s, h)]; }
  void advance(Index s, Index tokens) noexcept { positions_[static_cast<std::size_t>(s)] += tokens; }
  /// Numbers of scratch memory, on a cache line, for one head at a time.
  static Index scratch_size(const SkaShape& shape) {
    return 5 * padded<double>(shape.key) + padded<double>(shape.value);
  }
  double* scratch() { return scratch_.data(); }

 private:
  std::size_t index(Index s, Index h) const { return static_cast<std::size_t>(s * shape_.heads + h); }
  std::size_t checked_sequence(Index s) const {
    if (s < 0 || s >= sequences_)
      throw ValueError(message("sequence: expected one of ", sequences_, " counted from 0, got ", s));
    return static_cast<std::size_t>(s);
  }
  std::size_t checked(Index s, Index h) const {
    checked_sequence(s);
    if (h < 0 || h >= shape_.heads)
      throw ValueError(message("head: expected 0 to ", shape_.heads - 1, ", got ", h));
    return index(s, h);
  }

  SkaShape shape_;
  Index sequences_;
  std::vector<SkaFit> now_, past_;  // past_ only where chunks are told apart
  std::vector<std::int64_t> positions_, failures_;
  AlignedVector<double> scratch_;
};

}  // namespace linrec
