// A key-value store of constant size, without training: texts under keys that are texts, in the statistics
// of one head of spectral Koopman attention. Keys become vectors z [r], values vectors v [P] (text_code.hpp).
//
//   store    G += z z^T, M += z z_last^T, Cv += v z^T
//   recall   y = Cv L^-T A^K L^-1 z          L L^T = G + eps I, A = L^-1 M L^-T
//
// The answer is the value, of all that were ever named, whose vector is nearest to y. With K = 0 this is the
// regression of values on keys, exact for up to r keys that are independent, and a compromise beyond. Each
// factor A moves the key on to the one that was stored after it: K = 2 answers with the value two further on.
//
// Two values under one key are both regressed on, and what comes back lies between them: nothing is
// overwritten. The texts of the values are kept besides the state, once each, for an answer can only be one
// that is known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "linrec/ska/retrieval.hpp"
#include "text_code.hpp"

namespace recall {

/// Values that are known, and their vectors.
class Vocabulary {
 public:
  explicit Vocabulary(const TextCode& code) : code_(code) {}

  Index size() const { return static_cast<Index>(texts_.size()); }
  const std::string& text(Index i) const { return texts_[static_cast<std::size_t>(i)]; }
  const TextCode& code() const { return code_; }
  /// [P]
  Eigen::Map<const Eigen::VectorXf> vector(Index i) const {
    return {vectors_.data() + i * code_.size(), code_.size()};
  }

  /// Its number; a new text gets the next one.
  Index add(std::string_view text) {
    const auto [place, is_new] = numbers_.try_emplace(std::string(text), size());
    if (is_new) {
      texts_.emplace_back(text);
      const Eigen::VectorXf v = code_.vector(text);
      vectors_.insert(vectors_.end(), v.begin(), v.end());
    }
    return place->second;
  }

  struct Nearest {
    Index number = -1;  ///< -1 without any values
    double cosine = 0;  ///< 0 for y = 0
  };
  /// The value whose vector has the smallest angle with y [P].
  Nearest nearest(const Eigen::VectorXf& y) const {
    const double length = y.norm();
    if (size() == 0 || !(length > 0)) return {size() == 0 ? -1 : 0, 0};
    Nearest result;
    const Eigen::Map<const Eigen::MatrixXf> all(vectors_.data(), code_.size(), size());
    result.cosine = (all.transpose() * y).maxCoeff(&result.number) / length;
    return result;
  }

 private:
  TextCode code_;
  std::vector<std::string> texts_;
  std::vector<float> vectors_;  // [V, P]
  std::unordered_map<std::string, Index> numbers_;
};

struct MemoryOptions {
  Index rank = 64;       ///< r: as many keys as should be told apart exactly, or somewhat more
  Index value_dim = 64;  ///< P: the more, the more values can be told apart; at least 32
  double ridge = 1e-3;   ///< eps; keys have length 1
  Index power = 0;       ///< K
  TextKind keys = TextKind::whole;
  std::uint64_t seed = 1;

  friend bool operator==(const MemoryOptions&, const MemoryOptions&) = default;
};

class AssociativeMemory {
 public:
  struct Answer {
    std::string value;      ///< empty if nothing was ever stored
    double confidence = 0;  ///< cosine between what came back and the value's vector, at most 1
  };

  /// @throws ValueError naming the option.
  explicit AssociativeMemory(const MemoryOptions& options)
      : options_(options),
        attention_({.key = options.rank,
                    .value = options.value_dim,
                    .ridge = options.ridge,
                    .power = options.power,
                    .key_scale = linrec::KeyScale::none}),
        state_(attention_.initial_state()),
        keys_(options.rank, 2 * options.seed, options.keys),
        values_(TextCode(options.value_dim, 2 * options.seed + 1)) {}

  void store(std::string_view key, std::string_view value) {
    absorb(keys_.vector(key), values_.vector(values_.add(value)));
  }

  /// The answer to any key: for one that was never stored, of a low confidence. Changes only what is cached.
  Answer recall(std::string_view key) {
    const Vocabulary::Nearest nearest = values_.nearest(retrieve(keys_.vector(key)));
    if (nearest.number < 0) return {};
    return {values_.text(nearest.number), nearest.cosine};
  }

  /// Stores what `later`, made with the same options, has stored: as if it had been stored here, up to
  /// rounding. Parts of a stream can so be stored in parallel, and put together in order.
  /// @throws ValueError if the options differ.
  void merge(const AssociativeMemory& later) {
    if (!(later.options_ == options_))
      throw linrec::ValueError("later: expected a memory with the same options, got one with others");
    state_.merge(0, later.state_, 0);
    for (Index i = 0; i < later.values_.size(); ++i) values_.add(later.values_.text(i));
  }

  /// Of the state, whatever was stored; the texts of the values are not in it.
  Index bytes() const { return state_.bytes_per_sequence(); }

  /// Pairs that were stored.
  std::int64_t size() const { return state_.position(0); }
  const TextCode& keys() const { return keys_; }
  /// Values can be made known before they are stored.
  Vocabulary& values() { return values_; }
  const Vocabulary& values() const { return values_; }
  const MemoryOptions& options() const { return options_; }
  linrec::SkaState& state() { return state_; }
  const linrec::SkaState& state() const { return state_; }

  /// What store and recall do with vectors, key [r] and value [P].
  void absorb(const Eigen::VectorXf& key, const Eigen::VectorXf& value) {
    attention_.absorb({{}, view(key), view(value)}, state_);
  }
  Eigen::VectorXf retrieve(const Eigen::VectorXf& key) {
    Eigen::VectorXf y(values_.code().size());
    attention_.retrieve(view(key), state_, {y.data(), 1, 1, 1, y.size()});
    return y;
  }

 private:
  using Attention = linrec::SpectralKoopmanAttention<float>;

  static linrec::TokenView<const float> view(const Eigen::VectorXf& x) {
    return {x.data(), 1, 1, 1, x.size()};
  }

  MemoryOptions options_;
  Attention attention_;
  linrec::SkaState state_;
  TextCode keys_;
  Vocabulary values_;
};

}  // namespace recall
