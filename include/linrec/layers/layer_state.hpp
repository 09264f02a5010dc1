// LayerState: all that a layer remembers of the sequences of a batch - the recurrent state or the statistics
// of SKA, the last inputs of convolutions and token shifts, and the position.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/aligned.hpp"
#include "linrec/kernels/state.hpp"
#include "linrec/layers/packed_rows.hpp"
#include "linrec/layers/rows.hpp"
#include "linrec/ska/state.hpp"

namespace linrec {

/// What a layer's state consists of.
struct LayerStateShape {
  struct Window {
    std::string name;
    Index rows, channels;
    friend bool operator==(const Window&, const Window&) = default;
  };
  std::string layer;                 ///< which kind of layer, "mamba2"
  std::optional<Dims<>> recurrent;   ///< [H, K, V]; none: no recurrent state
  std::vector<Window> windows;       ///< the last inputs of convolutions and token shifts
  std::optional<SkaShape> ska = {};  ///< [H, r, P]; none: no statistics of SKA

  friend bool operator==(const LayerStateShape&, const LayerStateShape&) = default;

  /// "mamba2 [4, 8, 16] conv [4, 80]"
  std::string text() const {
    std::string result = layer;
    if (recurrent)
      result += message(" [", recurrent->heads(), ", ", recurrent->key(), ", ", recurrent->value(), "]");
    for (const Window& w : windows) result += message(" ", w.name, " [", w.rows, ", ", w.channels, "]");
    if (ska) result += " " + ska->text();
    return result;
  }
};

/// The last `rows` inputs [channels] of each of several sequences, oldest first; zero before the first token.
template <class Scalar>
class Window {
 public:
  Window(Index sequences, Index rows, Index channels)
      : rows_(rows), channels_(channels), stride_(padded<Scalar>(channels)) {
    numbers_.assign(static_cast<std::size_t>(checked_product({sequences, rows, stride_})), Scalar(0));
  }

  Index rows() const { return rows_; }
  Index channels() const { return channels_; }
  /// [channels]; row 0 is the oldest, row rows() - 1 the last.
  Scalar* row(Index s, Index i) { return numbers_.data() + (s * rows_ + i) * stride_; }
  const Scalar* row(Index s, Index i) const { return numbers_.data() + (s * rows_ + i) * stride_; }

  /// Takes in the inputs of a chunk.
  void push(const PackedRows& chunk, Rows<const Scalar> x) noexcept;

  void reset(Index s) { std::fill_n(row(s, 0), rows_ * stride_, Scalar(0)); }

  friend bool operator==(const Window& a, const Window& b) {
    return a.rows_ == b.rows_ && a.channels_ == b.channels_ && a.numbers_ == b.numbers_;
  }

 private:
  Index rows_, channels_, stride_;
  AlignedVector<Scalar> numbers_;
};

template <class Scalar>
void Window<Scalar>::push(const PackedRows& chunk, Rows<const Scalar> x) noexcept {
  for (Index s = 0; s < chunk.sequences(); ++s) {
    const Index n = chunk.count(s), kept = std::max<Index>(rows_ - n, 0);
    if (n == 0) continue;
    for (Index i = 0; i < kept; ++i) std::copy_n(row(s, i + rows_ - kept), channels_, row(s, i));
    for (Index i = kept; i < rows_; ++i) std::copy_n(x[chunk.first(s) + n - rows_ + i], channels_, row(s, i));
  }
}

/// A value: copy it to fork, keep it to roll back. Layers make it, and refuse one of another shape.
template <class Scalar_>
class LayerState {
 public:
  using Scalar = Scalar_;

  /// All zero, position 0.
  /// @param scratch numbers of scratch memory that come with the state, so that a step needs no allocation.
  /// @throws ValueError if the number of sequences is negative.
  explicit LayerState(LayerStateShape shape, Index sequences = 1, Index scratch = 0)
      : shape_(std::move(shape)), packer_(sequences) {
    if (shape_.recurrent) recurrent_.emplace(*shape_.recurrent, sequences);
    if (shape_.ska) ska_.emplace(*shape_.ska, sequences);
    if (!recurrent_ && !ska_) positions_.assign(static_cast<std::size_t>(sequences), 0);
    for (const LayerStateShape::Window& w : shape_.windows)
      windows_.emplace_back(sequences, w.rows, w.channels);
    scratch_.assign(static_cast<std::size_t>(scratch), Scalar(0));
    sequences_ = sequences;
  }

  const LayerStateShape& shape() const { return shape_; }
  Index sequences() const { return sequences_; }

  /// Tokens that sequence s has seen.
  std::int64_t position(Index s) const {
    if (recurrent_) return recurrent_->position(s);
    return ska_ ? ska_->position(s) : positions_[checked(s)];
  }
  /// @throws ValueError if the position is not in [0, 2^53].
  void set_position(Index s, std::int64_t position) {
    check_position(position);
    if (recurrent_) recurrent_->set_position(s, position);
    if (ska_) ska_->set_position(s, position);
    if (!recurrent_ && !ska_) positions_[checked(s)] = position;
  }
  /// Sequence s starts afresh.
  void reset(Index s) {
    set_position(s, 0);
    if (recurrent_) recurrent_->reset(s);
    if (ska_) ska_->reset(s);
    for (Window<Scalar>& w : windows_) w.reset(s);
  }

  /// @throws ShapeError if the layer has no recurrent state.
  State<Scalar>& recurrent() { return checked(recurrent_, "recurrent state"); }
  const State<Scalar>& recurrent() const { return checked(recurrent_, "recurrent state"); }
  /// @throws ShapeError if the layer has no statistics of SKA.
  SkaState& ska() { return checked(ska_, "statistics of SKA"); }
  const SkaState& ska() const { return checked(ska_, "statistics of SKA"); }
  /// Window i, in the order of shape().windows.
  Window<Scalar>& window(Index i) { return windows_.at(static_cast<std::size_t>(i)); }
  const Window<Scalar>& window(Index i) const { return windows_.at(static_cast<std::size_t>(i)); }

  /// Bytes that a sequence's state needs on disk or on a wire: its numbers and the position.
  Index bytes_per_sequence() const {
    Index numbers = 0;
    if (shape_.recurrent)
      numbers += shape_.recurrent->heads() * shape_.recurrent->key() * shape_.recurrent->value();
    for (const LayerStateShape::Window& w : shape_.windows) numbers += w.rows * w.channels;
    const Index position = static_cast<Index>(sizeof(std::int64_t));  // that of SKA has it, too
    return numbers * static_cast<Index>(sizeof(Scalar)) + (ska_ ? ska_->bytes_per_sequence() : position);
  }

  /// Same shape, positions and numbers, bit for bit but for the sign of zero; NaN equals nothing.
  friend bool operator==(const LayerState& a, const LayerState& b) {
    return a.shape_ == b.shape_ && a.sequences_ == b.sequences_ && a.positions_ == b.positions_ &&
           a.recurrent_ == b.recurrent_ && a.ska_ == b.ska_ && a.windows_ == b.windows_;
  }

  /// For layers: moves the position of a state without a recurrent part or one of SKA on.
  void advance(const PackedRows& chunk) noexcept {
    for (Index s = 0; s < chunk.sequences(); ++s) positions_[static_cast<std::size_t>(s)] += chunk.count(s);
  }
  /// For layers: scratch memory, and what cuts a batch into chunks.
  Scalar* scratch() { return scratch_.data(); }
  Index scratch_size() const { return static_cast<Index>(scratch_.size()); }
  RowPacker& packer() { return packer_; }

 private:
  template <class Part>
  auto& checked(Part& part, const char* name) const {
    if (!part) throw ShapeError(message("state: ", shape_.layer, " has no ", name));
    return *part;
  }
  std::size_t checked(Index s) const {
    if (s < 0 || s >= sequences_)
      throw ValueError(message("sequence: expected one of ", sequences_, " counted from 0, got ", s));
    return static_cast<std::size_t>(s);
  }

  LayerStateShape shape_;
  Index sequences_ = 0;
  std::optional<State<Scalar>> recurrent_;
  std::optional<SkaState> ska_;
  std::vector<Window<Scalar>> windows_;
  std::vector<std::int64_t> positions_;
  AlignedVector<Scalar> scratch_;
  RowPacker packer_;
};

}  // namespace linrec
