// Attention of either scalar type, on tensors of doubles; and SKA by its formulas, the reference.
#pragma once

#include <string>
#include <vector>

#include "linrec/ska/retrieval.hpp"
#include "tests/kernels/batch.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test {

/// Of the tokens of long streams, one in so many is enough where asserts and sanitizers make them slow.
#if defined(NDEBUG)
inline constexpr Index fewer = 1;
#else
inline constexpr Index fewer = 10;
#endif

/// A configuration, and whether it runs in single precision.
struct Setup : SpectralKoopmanAttentionConfig {
  bool single = false;

  Setup(Index H, Index r, Index P, bool in_single = false) : single(in_single) {
    heads = H;
    key = r;
    value = P;
  }
  std::string name() const;
  double tolerance() const { return single ? 1e-6 : 1e-11; }
};

/// [B, T, H, r], [B, T, H, r], [B, T, H, P] and [B, T, 1, 1]; without weights, that tensor is empty.
struct Tokens {
  Tensor q, k, v, weights = {};

  bool weighted() const { return !weights.numbers.empty(); }
  Index batch() const { return k.extents[0]; }
  Index count() const { return k.extents[1]; }
  Tokens slice(Index first, Index n) const {
    return {q.slice(first, n), k.slice(first, n), v.slice(first, n),
            weighted() ? weights.slice(first, n) : Tensor()};
  }
  Tokens gather(const std::vector<std::array<Index, 2>>& tokens) const {
    return {q.gather(tokens), k.gather(tokens), v.gather(tokens),
            weighted() ? weights.gather(tokens) : Tensor()};
  }
};

enum class Weights { none, some };  ///< 0, 1 and what is between

/// Numbers from -1 to 1 that are floats.
Tokens random_tokens(const Setup& setup, Index B, Index T, std::uint64_t seed,
                     Weights weights = Weights::none);

struct CallOptions {
  SequenceLayout layout = {};
  Index threads = 0;
  Workspace* workspace = nullptr;
  bool* answered = nullptr;  ///< gets what the call returns
};

SkaState initial_state(const Setup& setup, Index sequences = 1);
Tensor prefill(const Setup& setup, const Tokens& tokens, SkaState& state, const CallOptions& options = {});
/// Token by token, each validated.
Tensor steps(const Setup& setup, const Tokens& tokens, SkaState& state);
/// Token by token, unchecked.
Tensor unchecked_steps(const Setup& setup, const Tokens& tokens, SkaState& state);
void absorb(const Setup& setup, const Tokens& tokens, SkaState& state, const CallOptions& options = {});
Tensor retrieve(const Setup& setup, const Tensor& q, SkaState& state, const CallOptions& options = {});

// The reference, in extended precision.

using Real = long double;
using RealMatrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic>;
using RealVector = Eigen::Matrix<Real, Eigen::Dynamic, 1>;

struct Sums {
  RealMatrix G, M, Cv;  ///< [r, r], [r, r], [P, r]
  RealVector last;      ///< m_t z_t
  Real max_norm = 0;

  Sums(Index r, Index P)
      : G(RealMatrix::Zero(r, r)),
        M(RealMatrix::Zero(r, r)),
        Cv(RealMatrix::Zero(P, r)),
        last(RealVector::Zero(r)) {}
  void add(const RealVector& z, const RealVector& v, Real weight);
};

/// A key or query as the scale wants it.
RealVector scaled(RealVector z, KeyScale scale);
/// The first `count` tokens of a row and head.
Sums sums_of(const Setup& setup, const Tokens& tokens, Index b, Index h, Index count);
RealMatrix regularised(const Setup& setup, const Sums& sums);
/// L^-1 of L L^T = G~
RealMatrix whitening(const RealMatrix& regularised);
/// The largest entry of W G~ W^T - I
Real whitening_error(const RealMatrix& w, const RealMatrix& regularised);
/// A_w or M G~^-1
RealMatrix operator_of(const Setup& setup, const Sums& sums);
/// 6 steps from ones / sqrt(r), or, where that finds nothing, from a row.
Real power_iteration(const RealMatrix& a);
RealVector answer(const Setup& setup, const Sums& sums, const RealVector& q);
/// Every output, each from a fit of its own.
Tensor reference(const Setup& setup, const Tokens& tokens);
/// The outputs of queries that all read one fit, of all the tokens.
Tensor reference_of_all(const Setup& setup, const Tokens& tokens, const Tensor& q);

/// Empty if statistics are those sums, up to tolerance times the largest entry of each.
std::string difference(const SkaStatistics& got, const Sums& expected, double tolerance);
/// The same for two statistics; keys, largest norm and position are to be equal.
std::string difference(const SkaStatistics& got, const SkaStatistics& expected, double tolerance);

}  // namespace linrec::test
