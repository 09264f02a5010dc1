// SkaFit: the statistics of one head, and what retrieval needs of them - the factor of G~, the operator A as
// a map of vectors, and the estimate of its spectral norm - made when it is asked for, and kept.
#pragma once

#include <algorithm>
#include <tuple>

#include "linrec/ska/factor.hpp"
#include "linrec/ska/spectral_norm.hpp"

namespace linrec {

/// What stands in the place of A: the paper's L^-1 M L^-T, or M G~^-1 as in the code that was released first.
/// They have the same eigenvalues, but give different outputs.
enum class KoopmanOperator { whitened, unwhitened };

/// Statistics, and the factor of their G~ as far as it has been needed. What is cached, and what it was made
/// from, follows from the tokens and reads alone, not from how they were split into calls.
class SkaFit {
 public:
  SkaFit(Index key, Index value, KeyScale scale) : statistics_(key, value, scale), factor_(key) {}

  /// The caller says so with `changed` if it changes them.
  SkaStatistics& statistics() { return statistics_; }
  const SkaStatistics& statistics() const { return statistics_; }
  CholeskyFactor& factor() { return factor_; }
  const CholeskyFactor& factor() const { return factor_; }
  void changed() noexcept {
    factor_.invalidate();
    unread_ = 0;
    sigma_known_ = false;
  }

  /// Takes in a token, as SkaStatistics::absorb. The factor follows while updating it is cheaper than making
  /// it anew at the next read.
  void absorb(double* z, double* v, double weight, double* scratch) noexcept {
    const bool moved = statistics_.absorb(z, v, weight, scratch);
    sigma_known_ = false;
    if (!factor_.ready() || weight <= 0) return;
    if (moved || unread_ >= std::max<Index>(1, statistics_.key() / 8)) return changed();
    ++unread_;
    factor_.update(z, scratch);
  }

  /// Brings the factor up to date. Returns whether there is one.
  bool prepare(double eps, double largest_eps, double* scratch) noexcept {
    unread_ = 0;
    if (factor_.ready() && factor_.eps() == eps && !factor_.drifted(statistics_, scratch)) return true;
    sigma_known_ = false;
    return factor_.factorize(statistics_, eps, largest_eps, scratch);
  }

  /// y = A x for A = L^-1 M L^-T or M G~^-1, once prepared. x and y [r], padded; they must differ.
  /// @param scratch padded(r) numbers.
  void apply(KoopmanOperator form, const double* x, double* y, double* scratch) const noexcept {
    const Index r = statistics_.key();
    if (form == KoopmanOperator::unwhitened) {
      factor_.whiten(x, scratch);
      factor_.whiten_transposed(scratch, y);
      std::copy_n(y, padded<double>(r), scratch);
      return detail::multiply_transposed(statistics_.m(), r, r, scratch, y);
    }
    factor_.whiten_transposed(x, y);
    detail::multiply_transposed(statistics_.m(), r, r, y, scratch);
    factor_.whiten(scratch, y);
  }
  /// y = A^T x, likewise.
  void apply_transposed(KoopmanOperator form, const double* x, double* y, double* scratch) const noexcept {
    const Index r = statistics_.key();
    if (form == KoopmanOperator::unwhitened) {
      detail::multiply(statistics_.m(), r, r, x, y);
      factor_.whiten(y, scratch);
      return factor_.whiten_transposed(scratch, y);
    }
    factor_.whiten_transposed(x, y);
    detail::multiply(statistics_.m(), r, r, y, scratch);
    factor_.whiten(scratch, y);
  }

  /// The estimate of sigma_max(A), once prepared; kept until a token comes.
  /// @param scratch 3 padded(r) numbers.
  double sigma(KoopmanOperator form, double* scratch) noexcept {
    if (!sigma_known_ || sigma_form_ != form) {
      double* temporary = scratch + 2 * statistics_.key_stride();
      sigma_ = estimate_spectral_norm(
          statistics_.key(), scratch, [&](const double* x, double* y) { apply(form, x, y, temporary); },
          [&](const double* x, double* y) { apply_transposed(form, x, y, temporary); });
      sigma_form_ = form;
      sigma_known_ = true;
    }
    return sigma_;
  }

  /// For snapshots: the records of both, and what is beside them. sigma follows from these.
  auto record() { return std::tuple_cat(statistics_.record(), factor_.record(), std::tie(unread_)); }
  auto record() const { return std::tuple_cat(statistics_.record(), factor_.record(), std::tie(unread_)); }

 private:
  SkaStatistics statistics_;
  CholeskyFactor factor_;
  Index unread_ = 0;  // updates of the factor since the last read
  double sigma_ = 0;
  bool sigma_known_ = false;
  KoopmanOperator sigma_form_ = KoopmanOperator::whitened;
};

}  // namespace linrec
