// What spectral Koopman attention can be told; the formulas are in retrieval.hpp.
#pragma once

#include <cmath>
#include <string>

#include "linrec/ska/fit.hpp"

namespace linrec {

/// Which tokens an output sees.
enum class Visibility {
  inclusive,       ///< tokens <= t
  exclusive,       ///< tokens < t
  earlier_chunks,  ///< those of earlier chunks; chunks begin at positions that are multiples of S
};

struct SpectralKoopmanAttentionConfig {
  Index heads = 1;           ///< H
  Index key = 0;             ///< r, of keys and queries
  Index value = 0;           ///< P, of values
  double ridge = 1e-3;       ///< eps
  double largest_ridge = 0;  ///< what eps may grow to where G~ is not positive definite; 0: not at all
  Index power = 2;           ///< K; each factor A moves a query on to the key that came after it
  double eta = 1;            ///< factor of the outputs
  double gamma = 1;          ///< factor of the operator, clamped to [1, 1.5]
  KeyScale key_scale = KeyScale::sequence_max;
  KoopmanOperator koopman_operator = KoopmanOperator::whitened;
  Visibility visibility = Visibility::inclusive;
  Index chunk = 64;  ///< S, for Visibility::earlier_chunks
  /// As the released code: the M that a chunk sees has the product with the first key of the chunk itself.
  bool boundary_transition = false;
};

namespace detail {

/// The same, if linrec can do it.
/// @throws ValueError naming the field.
inline SpectralKoopmanAttentionConfig checked(const SpectralKoopmanAttentionConfig& c) {
  const auto check = [](const char* name, bool legal, const std::string& expected, auto got) {
    if (!legal) throw ValueError(message(name, ": expected ", expected, ", got ", got));
  };
  check("heads", c.heads >= 1, "at least 1", c.heads);
  check("key", c.key >= 1, "at least 1", c.key);
  check("value", c.value >= 1, "at least 1", c.value);
  // Times the square of the longest key, a ridge must be finite.
  const double most = c.key_scale == KeyScale::sequence_max ? 1e20 : largest_ska_input;
  check("ridge", c.ridge > 0 && c.ridge <= most, message("a number above 0, at most ", most), c.ridge);
  check("largest_ridge", c.largest_ridge >= 0 && c.largest_ridge <= most, message("0 to ", most),
        c.largest_ridge);
  check("power", c.power >= 0 && c.power <= 1000, "0 to 1000", c.power);
  check("eta", std::abs(c.eta) <= largest_ska_input, "a finite number", c.eta);
  check("gamma", std::abs(c.gamma) <= largest_ska_input, "a finite number", c.gamma);
  check("chunk", c.visibility != Visibility::earlier_chunks || c.chunk >= 1, "at least 1", c.chunk);
  return c;
}

}  // namespace detail

}  // namespace linrec
