// StateMarks: the last n marked states, to return to any of them - undo, speculative decoding, search.
#pragma once

#include <cstddef>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

/// Keeps copies of the last `capacity` states that were marked. Mark a state, decode some tokens, and return
/// exactly: to the numbers, the windows and the positions, as if nothing had been decoded since.
/// A mark that falls off the end gives its memory to the new one: with states of one size, `mark` allocates
/// nothing once `capacity` marks have been made, and `restore` never does.
/// @tparam State any value that can be copied: State, LayerState, or the state of a whole model.
template <class State>
class StateMarks {
 public:
  /// @param capacity how many marks to keep; their memory is taken as they come.
  /// @throws ValueError if it is below 1.
  explicit StateMarks(Index capacity) : capacity_(capacity), latest_(capacity - 1) {
    if (capacity < 1) throw ValueError(message("capacity: expected at least 1, got ", capacity));
  }

  Index capacity() const { return capacity_; }
  /// Marks that are kept.
  Index size() const { return size_; }

  /// Keeps a copy of `state` as the latest mark, and forgets the oldest if there are more than `capacity`.
  /// References that `at` gave are void. If the copy throws, no mark but the one to be forgotten is lost.
  void mark(const State& state) {
    const Index next = (latest_ + 1) % capacity_;
    if (next == static_cast<Index>(slots_.size())) {
      slots_.push_back(state);
    } else {
      if (size_ == capacity_) --size_;  // a copy that fails half-way leaves no state to return to
      slots_[static_cast<std::size_t>(next)] = state;
    }
    latest_ = next;
    ++size_;
  }

  /// The mark `back` marks before the latest; 0 is the latest.
  /// @throws ValueError if no such mark is kept.
  const State& at(Index back) const { return slots_[slot(back)]; }

  /// Copies that mark into `state`, and forgets the marks that are newer; the mark itself stays.
  /// @throws ValueError if no such mark is kept; nothing has changed then.
  void restore(State& state, Index back = 0) {
    const std::size_t from = slot(back);
    state = slots_[from];
    latest_ = static_cast<Index>(from);
    size_ -= back;
  }

 private:
  std::size_t slot(Index back) const {
    if (size_ == 0)
      throw ValueError(message("back: expected a mark to return to, got ", back, " and no marks"));
    if (back < 0 || back >= size_)
      throw ValueError(message("back: expected 0 to ", size_ - 1, ", as ", size_, " of at most ", capacity_,
                               " marks are kept, got ", back));
    return static_cast<std::size_t>((latest_ - back + capacity_) % capacity_);
  }

  Index capacity_, latest_;
  Index size_ = 0;
  std::vector<State> slots_;  // a ring; slot (latest_ + 1) mod capacity_ is the next to be written
};

}  // namespace linrec
