// Choosing a token from logits z [V]:
//   p_i ~ exp(z_i / temperature)      over the top_k largest z, and of these over the fewest whose p sum to
//   top_p
// Temperature 0 is the limit: the largest z, and the lowest id of equal ones.
//
// The draw is made here, in double, from the bits of std::mt19937_64, for the standard's distributions differ
// between libraries: with the same logits, the same seed gives the same tokens everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"
#include "linrec/models/language_model.hpp"

namespace generate {

using linrec::Index;
using linrec::TokenId;

struct Sampling {
  double temperature = 0;  ///< 0: greedy
  Index top_k = 0;         ///< 0: all
  double top_p = 1;        ///< 1: all
};

/// @throws linrec::ValueError, naming the option, what was expected and what came.
inline void check(const Sampling& sampling) {
  const auto refuse = [](const auto&... reason) { throw linrec::ValueError(linrec::message(reason...)); };
  const auto& [temperature, top_k, top_p] = sampling;
  if (!(temperature >= 0) || !std::isfinite(temperature))
    refuse("temperature: expected a finite number of at least 0, got ", temperature);
  if (top_k < 0) refuse("top-k: expected at least 0, got ", top_k);
  if (!(top_p > 0 && top_p <= 1)) refuse("top-p: expected a number above 0 and at most 1, got ", top_p);
  if (temperature == 0 && (top_k != 0 || top_p != 1))
    refuse(
        "top-k and top-p: expected a temperature above 0 with them; without one the likeliest token is "
        "taken");
}

/// Draws tokens, one after the other.
class Sampler {
 public:
  /// @param draws how many draws to pass over: where another sampler with this seed stopped.
  /// @throws linrec::ValueError as check.
  explicit Sampler(const Sampling& sampling, std::uint64_t seed = 0, std::uint64_t draws = 0)
      : sampling_(sampling), bits_(seed), seed_(seed), draws_(draws) {
    check(sampling);
    bits_.discard(draws);
  }

  std::uint64_t seed() const { return seed_; }
  /// Random draws so far; greedy choices make none.
  std::uint64_t draws() const { return draws_; }

  /// @param logits [V]; -infinity is never chosen.
  /// @throws linrec::ValueError if a logit is NaN or +infinity, or none is finite.
  TokenId next(std::span<const float> logits) {
    const std::size_t best = largest(logits);
    if (sampling_.temperature == 0) return static_cast<TokenId>(best);

    const std::size_t count = rank(logits);
    weights_.resize(count);
    for (std::size_t i = 0; i < count; ++i)  // at most 1, so that nothing overflows; the best has 1
      weights_[i] = std::exp((double{logits[order_[i]]} - double{logits[best]}) / sampling_.temperature);
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    double kept = 0;
    std::size_t kept_count = 0;
    while (kept_count < count && (kept_count == 0 || kept < sampling_.top_p * sum))
      kept += weights_[kept_count++];
    return static_cast<TokenId>(order_[pick(kept * uniform(), kept_count)]);
  }

 private:
  static std::size_t largest(std::span<const float> logits) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity())
        throw linrec::ValueError(
            linrec::message("logits: expected finite numbers, got ", logits[i], " for token ", i));
      if (logits[i] > logits[best]) best = i;
    }
    if (logits.empty() || std::isinf(logits[best]))
      throw linrec::ValueError(
          linrec::message("logits: expected a finite number, got none among ", logits.size()));
    return best;
  }

  /// Puts into order_ the ids of the top_k largest logits, largest first, and gives their number.
  std::size_t rank(std::span<const float> logits) {
    const std::size_t all = logits.size();
    const std::size_t count =
        sampling_.top_k == 0 ? all : std::min(all, static_cast<std::size_t>(sampling_.top_k));
    order_.resize(all);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::partial_sort(
        order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count), order_.end(),
        [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    return count;
  }

  /// In [0, 1), a multiple of 2^-53.
  double uniform() {
    ++draws_;
    return static_cast<double>(bits_() >> 11) * 0x1p-53;
  }

  /// The first i with weights_[0] + ... + weights_[i] > target.
  std::size_t pick(double target, std::size_t count) const {
    double sum = 0;
    for (std::size_t i = 0; i + 1 < count; ++i)
      if ((sum += weights_[i]) > target) return i;
    return count - 1;
  }

  Sampling sampling_;
  std::mt19937_64 bits_;
  std::uint64_t seed_, draws_;
  std::vector<std::size_t> order_;  // scratch memory
  std::vector<double> weights_;
};

}  // namespace generate
