// How much do associative memories of one size remember? Each is given the same stream of pairs with
// distractors between them, and asked, after so many pairs, for the value of every key so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel_memory.hpp"
#include "memory.hpp"
#include "pairs.hpp"

namespace recall {

/// Streams, each with its own order of the pairs and its own vectors, so that one lucky draw tells nothing.
inline constexpr Index draws = 5;

struct Settings {
  Index rank = 32, value_dim = 32;
  Index distractors = 1;  ///< tokens with random keys and values after each pair
  double ridge = 1e-3;
  std::uint64_t seed = 1;
};

struct Score {
  double recall = 0;  ///< share of the keys whose value is the nearest to what comes back
  double cosine = 0;  ///< between what comes back and the value's vector, mean over the keys
};

/// A column of the table.
struct Method {
  std::string name;
  Index key = 0, bytes = 0;
  std::vector<Score> scores = {};  ///< one a number of pairs
};

struct Comparison {
  TextKind keys;
  std::vector<Index> pairs;  ///< how many; rising
  std::vector<Method> methods;
  std::vector<double> ahead;  ///< K = 2: mean cosine with the value that was stored two tokens after the key
};

/// K of a float state of linear attention or the delta rule with as many bytes as SKA's, to a row.
inline Index key_of_equal_bytes(const Settings& s) {
  const Index bytes = AssociativeMemory({.rank = s.rank, .value_dim = s.value_dim}).bytes();
  Index key = 1;
  while (KernelMemory<linrec::LinearAttention<float>>::bytes(key + 1, s.value_dim) <= bytes) ++key;
  return key;
}

namespace detail {

/// A stream as texts: pairs in an order of its own, each followed by distractors. Which values distractors
/// have is never asked.
struct Stream {
  std::vector<Pair> tokens;
  Index step;  ///< from one pair to the next

  Stream(const std::vector<Pair>& pairs, Index distractors, std::uint64_t seed) : step(1 + distractors) {
    Random random(seed);
    std::vector<Pair> order = pairs;
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    const auto word = [&] {
      std::string text;
      for (int i = 0; i < 12; ++i) text += static_cast<char>('a' + random.below(26));
      return text;
    };
    for (Pair& pair : order) {
      tokens.push_back(std::move(pair));
      for (Index i = 0; i < distractors; ++i) {
        std::string key = word();
        tokens.push_back({std::move(key), word()});
      }
    }
  }
};

/// [n, T]
inline Eigen::MatrixXf vectors_of(const std::vector<Pair>& tokens, std::string Pair::*text,
                                  const TextCode& code) {
  Eigen::MatrixXf all(code.size(), static_cast<Index>(tokens.size()));
  for (std::size_t t = 0; t < tokens.size(); ++t)
    all.col(static_cast<Index>(t)) = code.vector(tokens[t].*text);
  return all;
}

/// One stream, and how the answers to it are judged.
class Exam {
 public:
  Exam(const std::vector<Pair>& pairs, const Settings& settings, TextKind kind, std::uint64_t seed)
      : stream_(pairs, settings.distractors, seed),
        kind_(kind),
        seed_(seed),
        vocabulary_(TextCode(settings.value_dim, 2 * seed + 1)) {
    for (const Pair& pair : pairs) vocabulary_.add(pair.value);
    values_ = vectors_of(stream_.tokens, &Pair::value, vocabulary_.code());
  }

  Eigen::MatrixXf keys(Index size) const {
    return vectors_of(stream_.tokens, &Pair::key, TextCode(size, 2 * seed_, kind_));
  }

  /// Adds to the scores of a memory with the given keys [n, T]; `ahead` is not for all.
  template <class Memory>
  void run(Memory memory, const Eigen::MatrixXf& keys, const std::vector<Index>& pairs, Method& method,
           std::vector<double>* ahead = nullptr) const {
    method.bytes = memory.bytes();
    method.key = keys.rows();
    method.scores.resize(pairs.size());
    std::unordered_map<std::string, Index> last;  // where in the stream a key was last stored
    Index stored = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      for (; stored < pairs[i] * stream_.step; ++stored) {
        memory.absorb(keys.col(stored), values_.col(stored));
        if (stored % stream_.step == 0) last[token(stored).key] = stored;
      }
      const auto share = [](std::size_t n) { return 1 / static_cast<double>(draws * static_cast<Index>(n)); };
      const double weight = share(last.size());
      std::size_t followed = 0;  // keys with two tokens after them
      double ahead_sum = 0;
      for (const auto& [key, t] : last) {
        const Eigen::VectorXf y = memory.retrieve(keys.col(t));
        const Vocabulary::Nearest nearest = vocabulary_.nearest(y);
        if (vocabulary_.text(nearest.number) == token(t).value) method.scores[i].recall += weight;
        method.scores[i].cosine += weight * cosine(y, t);
        if (t + 2 >= stored) continue;
        ++followed;
        ahead_sum += cosine(y, t + 2);
      }
      if (ahead != nullptr && followed > 0) (*ahead)[i] += share(followed) * ahead_sum;
    }
  }

 private:
  const Pair& token(Index t) const { return stream_.tokens[static_cast<std::size_t>(t)]; }
  double cosine(const Eigen::VectorXf& y, Index t) const {
    const double length = y.norm();
    return length > 0 ? y.dot(values_.col(t)) / length : 0;
  }

  Stream stream_;
  TextKind kind_;
  std::uint64_t seed_;
  Vocabulary vocabulary_;
  Eigen::MatrixXf values_;  // [P, T]
};

}  // namespace detail

/// @param counts numbers of pairs, rising, at most as many as there are.
inline Comparison compare(const std::vector<Pair>& pairs, const std::vector<Index>& counts,
                          const Settings& settings, TextKind kind) {
  using Linear = KernelMemory<linrec::LinearAttention<float>>;
  using Delta = KernelMemory<linrec::DeltaNet<float>>;
  Comparison result{kind,
                    counts,
                    {{"SKA, K = 0"},
                     {"SKA, K = 2"},
                     {"linear attention"},
                     {"delta rule"},
                     {"linear attention"},
                     {"delta rule"}},
                    std::vector<double>(counts.size())};
  MemoryOptions options{
      .rank = settings.rank, .value_dim = settings.value_dim, .ridge = settings.ridge, .keys = kind};
  const Index longer = key_of_equal_bytes(settings), dim = settings.value_dim;
  std::vector<Method>& methods = result.methods;
  for (Index draw = 0; draw < draws; ++draw) {
    const detail::Exam exam(
        pairs, settings, kind,
        static_cast<std::uint64_t>(draws) * settings.seed + static_cast<std::uint64_t>(draw));
    const Eigen::MatrixXf keys = exam.keys(settings.rank), long_keys = exam.keys(longer);
    options.power = 0;
    exam.run(AssociativeMemory(options), keys, counts, methods[0]);
    options.power = 2;
    exam.run(AssociativeMemory(options), keys, counts, methods[1], &result.ahead);
    exam.run(Linear(longer, dim), long_keys, counts, methods[2]);
    exam.run(Delta(longer, dim), long_keys, counts, methods[3]);
    exam.run(Linear(settings.rank, dim), keys, counts, methods[4]);
    exam.run(Delta(settings.rank, dim), keys, counts, methods[5]);
  }
  return result;
}

}  // namespace recall
