// The Cholesky factor of G~ = G + ridge I = L L^T, kept up to date (Echo, arXiv 2605.06997).
//
// What is stored is W = L^-1, the whitening matrix: W G~ W^T = I. Solving with L is then a product with W,
// and a token z, G~ + z z^T, costs two passes over W. With p = W z and a_i = 1 + p_1^2 + ... + p_i^2, the
// factor of I + p p^T is known in closed form, and its inverse, applied to the rows of W from top to bottom,
// gives
//
//   w_i <- sqrt(a_{i-1} / a_i) (w_i - p_i / a_{i-1} sum_{j<i} p_j w_j)
//
// (the square-root form of recursive least squares: no step subtracts what it has added before, and W stays
// triangular with a positive diagonal). Rounding errors do add up, over many tokens; `drifted` sees it, and
// then W is made anew from G, which is exact.
#pragma once

#include "linrec/ska/statistics.hpp"

namespace linrec {

enum class FactorStatus {
  stale,  ///< does not belong to G; factorize first
  ready,
  not_positive_definite,  ///< G~ has lost its ridge to rounding: the ridge is too small for these keys
  not_finite,             ///< G has a NaN or an infinity
};

/// A value, as the statistics are.
class CholeskyFactor {
 public:
  /// Updates between two looks at whether the factor has drifted.
  static constexpr Index check_interval = 64;

  /// @param size r. @throws ShapeError if the size overflows.
  explicit CholeskyFactor(Index size) : size_(size), stride_(padded<double>(size)) {
    w_.assign(static_cast<std::size_t>(checked_product({size, stride_})), 0.0);
  }

  Index size() const { return size_; }
  FactorStatus status() const { return status_; }
  bool ready() const { return status_ == FactorStatus::ready; }
  /// The ridge in G~.
  double ridge() const { return ridge_; }
  /// The eps that factorize was asked for.
  double eps() const { return eps_; }

  /// Numbers of scratch memory, on a cache line, that the functions below need.
  static Index scratch_size(Index size) { return 3 * padded<double>(size); }

  /// Makes W from the statistics and a ridge of eps m^2, in O(r^3). If G~ is not positive definite in the
  /// working precision, the ridge grows by tens as long as it is at most largest_eps m^2.
  /// Returns whether that succeeded; status() says why not.
  bool factorize(const SkaStatistics& statistics, double eps, double largest_eps, double* scratch) noexcept {
    eps_ = eps;
    for (double e = eps;; e = std::min(10 * e, largest_eps)) {
      ridge_ = e * statistics.ridge_scale();
      status_ = eliminate(statistics.g(), scratch);
      if (status_ != FactorStatus::not_positive_definite || !(e < largest_eps)) break;
    }
    if (!ready()) return false;
    updates_ = 0;
    residual_ = residual(statistics.g(), scratch);
    return true;
  }

  /// G~ += z z^T, z [r] padded with zeros. Keeps to the ridge. O(r^2).
  void update(const double* z, double* scratch) noexcept;

  /// Whether it is time to look, and the factor then is worse than when it was made.
  bool drifted(const SkaStatistics& statistics, double* scratch) noexcept {
    if (updates_ < check_interval) return false;
    updates_ = 0;
    return !(residual(statistics.g(), scratch) <= 4 * residual_ + 1e-14);
  }

  /// Says that W does not belong to G any more.
  void invalidate() noexcept { status_ = FactorStatus::stale; }

  /// y = L^-1 x, y = L^-T x, all [r] and padded with zeros; y must not be x.
  void whiten(const double* x, double* y) const noexcept {
    detail::multiply<detail::Shape::lower>(w_.data(), size_, size_, x, y);
  }
  void whiten_transposed(const double* x, double* y) const noexcept {
    detail::multiply_transposed<detail::Shape::lower>(w_.data(), size_, size_, x, y);
  }

  /// W = L^-1 [r, r].
  SkaStatistics::Matrix inverse() const {
    return Eigen::Map<const SkaStatistics::Matrix>(w_.data(), size_, stride_).leftCols(size_);
  }

  /// For snapshots: W, lower triangular, rows padded with zeros; and all that is beside it.
  double* w() { return w_.data(); }
  const double* w() const { return w_.data(); }
  auto record() { return std::tie(status_, eps_, ridge_, residual_, updates_); }
  auto record() const { return std::tie(status_, eps_, ridge_, residual_, updates_); }

 private:
  FactorStatus eliminate(const double* g, double* scratch) noexcept;
  double residual(const double* g, double* scratch) const noexcept;

  Index size_, stride_;
  FactorStatus status_ = FactorStatus::stale;
  double eps_ = 0, ridge_ = 0;
  double residual_ = 0;  // when W was made
  Index updates_ = 0;    // since then, or since the last look
  AlignedVector<double> w_;
};

inline void CholeskyFactor::update(const double* z, double* scratch) noexcept {
  using Line = Lanes<double>;
  double *p = scratch, *scale = p + stride_, *shift = scale + stride_;
  whiten(z, p);
  shift[0] = 1;  // a_{i-1}, for now
  for (Index i = 1; i < stride_; ++i) shift[i] = shift[i - 1] + p[i - 1] * p[i - 1];
  const double a = shift[stride_ - 1] + p[stride_ - 1] * p[stride_ - 1];
  if (!(a <= std::numeric_limits<double>::max())) return invalidate();  // G may say what is wrong
  for (Index i = 0; i < stride_; i += Line::packet_size) {
    using namespace Eigen::internal;
    const auto p_i = pload<Line::Packet>(p + i), before = pload<Line::Packet>(shift + i);
    pstore(scale + i, psqrt(pdiv(before, pmadd(p_i, p_i, before))));
    pstore(shift + i, pnegate(pdiv(p_i, before)));
  }
  detail::for_each_strip<2>(size_, [&](Index first, auto lines) LINREC_INLINE_LAMBDA {
    Line sums[static_cast<std::size_t>(lines)];  // of p_j w_j above row i
    for (Line& sum : sums) sum = Line::broadcast(0);
    for (Index i = first; i < size_; ++i) {
      double* row = w_.data() + i * stride_ + first;
      const Line c = Line::broadcast(scale[i]), d = Line::broadcast(shift[i]), f = Line::broadcast(p[i]);
      for (Index j = 0; j < lines; ++j) {
        const Line w = Line::load(row + j * Line::size);
        (c * multiply_add(d, sums[j], w)).store(row + j * Line::size);
        sums[j] = multiply_add(f, w, sums[j]);
      }
    }
  });
  ++updates_;
}

/// Gauss: elimination of G~ on the lower triangle, and the same steps on I, in one array - in row i, what is
/// left of G~ ends where the inverse begins. In exact arithmetic no pivot is below the ridge; one that is has
/// lost it to rounding.
inline FactorStatus CholeskyFactor::eliminate(const double* g, double* scratch) noexcept {
  using Line = Lanes<double>;
  double *pivots = scratch, *step = pivots + stride_;
  double largest = 0;
  for (Index i = 0; i < size_; ++i) {
    double* row = w_.data() + i * stride_;
    std::copy_n(g + i * stride_, i + 1, row);
    row[i] += ridge_;
    if (!(row[i] <= std::numeric_limits<double>::max())) return FactorStatus::not_finite;
    largest = std::max(largest, row[i]);
  }
  if (!(ridge_ > std::numeric_limits<double>::epsilon() * largest))
    return FactorStatus::not_positive_definite;
  std::fill(step, step + stride_, 0.0);
  for (Index k = 0; k < size_; ++k) {
    const double* w = w_.data() + k * stride_;
    pivots[k] = w[k];
    if (!(std::abs(pivots[k]) <= std::numeric_limits<double>::max())) return FactorStatus::not_finite;
    if (!(pivots[k] >= 0.5 * ridge_)) return FactorStatus::not_positive_definite;
    std::copy_n(w, k, step);
    step[k] = 0;
    for (Index i = k + 1; i < size_; ++i) step[i] = w_[static_cast<std::size_t>(i * stride_ + k)];
    const double inverse = -1 / pivots[k];
    for (Index i = k + 1; i < size_; ++i) {
      double* row = w_.data() + i * stride_;
      const double multiplier = step[i] * inverse;
      const Line factor = Line::broadcast(multiplier);
      for (Index j = 0; j <= i; j += Line::size)
        multiply_add(factor, Line::load(step + j), Line::load(row + j)).store(row + j);
      row[k] = multiplier;  // last: a store just before would hold up the loads of its line
    }
  }
  for (Index i = 0; i < size_; ++i) {
    double* row = w_.data() + i * stride_;
    const double root = std::sqrt(pivots[i]);
    row[i] = 1;
    for (Index j = 0; j <= i; ++j) row[j] /= root;
    std::fill(row + i + 1, row + stride_, 0.0);
  }
  return FactorStatus::ready;
}

/// The largest entry of W G~ W^T p - p, for a fixed p of ones and twos of both signs.
inline double CholeskyFactor::residual(const double* g, double* scratch) const noexcept {
  double *x = scratch, *y = x + stride_, *p = y + stride_;
  std::fill_n(scratch, 3 * stride_, 0.0);
  for (Index i = 0; i < size_; ++i) p[i] = (i % 2 == 0 ? 1 : -1) * (i % 3 == 0 ? 2 : 1);
  whiten_transposed(p, x);
  for (Index i = 0; i < size_; ++i) {
    const double* row = g + i * stride_;
    double sum = (row[i] + ridge_) * x[i];
    for (Index j = 0; j < i; ++j) {
      sum += row[j] * x[j];
      y[j] += row[j] * x[i];
    }
    y[i] += sum;
  }
  whiten(y, x);
  double largest = 0;
  for (Index i = 0; i < size_; ++i) largest = std::max(largest, std::abs(x[i] - p[i]));
  return largest;
}

}  // namespace linrec
