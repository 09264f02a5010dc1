// The sufficient statistics of streaming ridge regression, for one head (Echo, arXiv 2605.06997): running
// sums over the keys z_t [r], values v_t [P] and weights m_t of a sequence, independent of its length,
//
//   G = sum m_t z_t z_t^T      M = sum m_t m_{t-1} z_t z_{t-1}^T      Cv = sum m_t v_t z_t^T
//
// with the last key, for the next product, the first, so that segments can be merged, and the largest length
// of a key. All is kept in double precision, whatever the inputs are: products of floats are then exact, and
// the sums of 10^7 of them right to about ten digits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>

#include "linrec/core/aligned.hpp"
#include "linrec/ska/dense.hpp"
#include "linrec/ska/keys.hpp"

namespace linrec {

/// A value: copy it to fork, keep it to roll back. Zero at the start.
class SkaStatistics {
 public:
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  /// @param key r, the length of a key; `value` P, that of a value.
  /// @throws ValueError if one is below 1, ShapeError if the size overflows.
  SkaStatistics(Index key, Index value, KeyScale scale = KeyScale::sequence_max)
      : key_(key), value_(value), scale_(scale) {
    if (key < 1) throw ValueError(message("key: expected at least 1, got ", key));
    if (value < 1) throw ValueError(message("value: expected at least 1, got ", value));
    const Index r = key_stride();
    numbers_.assign(static_cast<std::size_t>(checked_product({key, 2 * r + padded<double>(value)}) + 2 * r),
                    0.0);
  }

  Index key() const { return key_; }
  Index value() const { return value_; }
  KeyScale scale() const { return scale_; }

  /// Tokens taken in, of any weight.
  std::int64_t position() const { return position_; }
  /// @throws ValueError if the position is not in [0, 2^53].
  void set_position(std::int64_t position) {
    check_position(position);
    position_ = position;
  }
  /// The largest length of a key with a weight above 0; 0 before the first.
  double max_norm() const { return max_norm_; }
  /// What eps is multiplied by to make the ridge.
  double ridge_scale() const {
    const double m = scale_ == KeyScale::sequence_max ? std::max(max_norm_, smallest_key_scale) : 1.0;
    return m * m;
  }
  /// G [r, r], M [r, r] and Cv [P, r].
  Matrix G() const {
    const Eigen::Map<const Matrix> lower(g(), key_, key_stride());
    return lower.leftCols(key_).template selfadjointView<Eigen::Lower>();
  }
  Matrix M() const { return Eigen::Map<const Matrix>(m(), key_, key_stride()).leftCols(key_).transpose(); }
  Matrix Cv() const {
    return Eigen::Map<const Matrix>(c(), key_, value_stride()).leftCols(value_).transpose();
  }
  /// m_t z_t [r] of the last token, and of the first.
  Eigen::VectorXd last_key() const { return Eigen::Map<const Eigen::VectorXd>(last(), key_); }
  Eigen::VectorXd first_key() const { return Eigen::Map<const Eigen::VectorXd>(first(), key_); }

  /// Takes in a token.
  /// @param key [r], value [P].
  /// @param weight m_t, from 0 to 1. A token of weight 0 changes nothing but the position and, as a gap, the
  ///   next product of keys.
  /// @throws ShapeError, ValueError naming the argument, before anything changes.
  template <class Scalar>
  void add(std::span<const Scalar> key, std::span<const Scalar> value, double weight = 1) {
    add(TokenView<const Scalar>(key.data(), 1, 1, 1, static_cast<Index>(key.size())),
        TokenView<const Scalar>(value.data(), 1, 1, 1, static_cast<Index>(value.size())),
        std::span(&weight, 1));
  }

  /// Takes in the tokens of the one row and head of keys [1, T, 1, r] and values [1, T, 1, P], in order.
  /// @param weights [T], or empty: all 1.
  /// @throws ShapeError, ValueError naming the argument, before anything changes.
  template <class Scalar>
  void add(const TokenView<const Scalar>& keys, const TokenView<const Scalar>& values,
           std::span<const double> weights = {}) {
    const Index tokens = keys.tokens();
    check_shape("keys", keys, {1, tokens, 1, key_});
    check_shape("values", values, {1, tokens, 1, value_});
    if (!weights.empty() && static_cast<Index>(weights.size()) != tokens)
      throw ShapeError(message("weights: expected T = ", tokens, " numbers, got ", weights.size()));
    check_ska_numbers("keys", keys, {0, 0, tokens});
    check_ska_numbers("values", values, {0, 0, tokens});
    for (std::size_t t = 0; t < weights.size(); ++t)
      if (!(weights[t] >= 0 && weights[t] <= 1))
        throw ValueError(message("weights[", t, "]: expected 0 to 1, got ", weights[t]));
    AlignedVector<double> scratch(static_cast<std::size_t>(2 * key_stride() + value_stride()));
    double *z = scratch.data(), *v = z + key_stride(), *rest = v + value_stride();
    for (Index t = 0; t < tokens; ++t) {
      load_key(keys.data(0, t, 0), z);
      load_padded(values.data(0, t, 0), value_, v);
      absorb(z, v, weights.empty() ? 1.0 : weights[static_cast<std::size_t>(t)], rest);
    }
  }

  /// The statistics of this segment followed by `later`: sums add up, and M gets the product across the seam.
  /// Associative, up to rounding.
  /// @throws ShapeError if the sizes or scales differ.
  void merge(const SkaStatistics& later) {
    later.check_like("later", key_, value_, scale_);
    position_ += later.position_;
    max_norm_ = std::max(max_norm_, later.max_norm_);
    if (later.empty_) return;
    for (Index i = 0; i < last() - g(); ++i) g()[i] += later.g()[i];
    detail::add_outer(m(), key_, key_, last(), later.first());  // last: `later` may be this
    if (empty_) std::copy_n(later.first(), key_stride(), first());
    std::copy_n(later.last(), key_stride(), last());
    empty_ = false;
  }

  /// @throws ShapeError, calling these statistics `name`, if they have other sizes or another scale.
  void check_like(const char* name, Index key, Index value, KeyScale scale) const {
    if (key_ != key || value_ != value || scale_ != scale)
      throw ShapeError(message(name, ": expected statistics of r = ", key, ", P = ", value,
                               " and the same scale, got r = ", key_, ", P = ", value_,
                               scale_ == scale ? "" : ", another scale"));
  }

  /// Starts afresh.
  void reset() noexcept {
    std::fill(numbers_.begin(), numbers_.end(), 0.0);
    position_ = 0;
    max_norm_ = 0;
    empty_ = true;
  }

  /// Raises the largest length of a key, for one that is known beforehand (never lowers it).
  /// @throws ValueError if it is no finite number of at least 0.
  void raise_max_norm(double norm) {
    if (!(norm >= 0 && norm <= std::numeric_limits<double>::max()))
      throw ValueError(message("max_norm: expected a finite number of at least 0, got ", norm));
    max_norm_ = std::max(max_norm_, norm);
  }

  /// Replaces everything, by sums from elsewhere. The first key is taken to be zero: as a later segment of a
  /// merge, such statistics have no product across the seam.
  /// @throws ShapeError, ValueError naming the argument.
  void set(const Matrix& G, const Matrix& M, const Matrix& Cv, const Eigen::VectorXd& last_key,
           double max_norm, std::int64_t position);

  friend bool operator==(const SkaStatistics& a, const SkaStatistics& b) {
    return a.key_ == b.key_ && a.value_ == b.value_ && a.scale_ == b.scale_ && a.position_ == b.position_ &&
           a.max_norm_ == b.max_norm_ && a.G() == b.G() &&
           std::equal(a.m(), a.m() + (a.numbers_.size() - static_cast<std::size_t>(a.m() - a.g())), b.m());
  }

  // What follows is for SKA's own code. Rows are padded with zeros to whole cache lines.

  Index key_stride() const { return padded<double>(key_); }
  Index value_stride() const { return padded<double>(value_); }
  /// The lower triangle of G [r, r]; M^T [r, r]; Cv^T [r, P]; the last and the first key [r].
  double* g() { return numbers_.data(); }
  double* m() { return g() + key_ * key_stride(); }
  double* c() { return m() + key_ * key_stride(); }
  double* last() { return c() + key_ * value_stride(); }
  double* first() { return last() + key_stride(); }
  const double* g() const { return numbers_.data(); }
  const double* m() const { return g() + key_ * key_stride(); }
  const double* c() const { return m() + key_ * key_stride(); }
  const double* last() const { return c() + key_ * value_stride(); }
  const double* first() const { return last() + key_stride(); }
  bool empty() const { return empty_; }
  /// For snapshots: all that is beside these numbers.
  auto record() { return std::tie(position_, max_norm_, empty_); }
  auto record() const { return std::tie(position_, max_norm_, empty_); }

  /// z [r], padded: a key or query as the scale wants it.
  template <class Scalar>
  void load_key(const Scalar* from, double* z) const noexcept {
    load_padded(from, key_, z);
    if (scale_ != KeyScale::unit_norm) return;
    double largest = 0;  // first, so that no square underflows
    for (Index i = 0; i < key_; ++i) largest = std::max(largest, std::abs(z[i]));
    if (!(largest > 0)) return;
    for (Index i = 0; i < key_; ++i) z[i] /= largest;  // 1 / largest may overflow
    scale_padded(z, key_, 1 / detail::length(z, key_));
  }
  template <class Scalar>
  static void load_padded(const Scalar* from, Index n, double* to) noexcept {
    for (Index i = 0; i < n; ++i) to[i] = static_cast<double>(from[i]);
    std::fill(to + n, to + padded<double>(n), 0.0);
  }

  /// Takes in a token: z from load_key, v [P] padded. Leaves sqrt(m_t) times them. Returns whether the scale
  /// has moved.
  /// @param scratch [r] padded.
  bool absorb(double* z, double* v, double weight, double* scratch) noexcept {
    const double before = ridge_scale();
    if (weight > 0) {
      max_norm_ = std::max(max_norm_, detail::length(z, key_));
      if (weight < 1) {
        scale_padded(z, key_, std::sqrt(weight));
        scale_padded(v, value_, std::sqrt(weight));
      }
      std::copy_n(z, key_stride(), scratch);
      if (weight < 1) scale_padded(scratch, key_, std::sqrt(weight));
      detail::add_outer<detail::Shape::lower>(g(), key_, key_, z, z);
      detail::add_outer(m(), key_, key_, last(), scratch);
      detail::add_outer(c(), key_, value_, z, v);
      std::copy_n(scratch, key_stride(), last());
    } else {
      std::fill_n(z, key_stride(), 0.0);
      std::fill_n(last(), key_stride(), 0.0);
    }
    if (empty_) std::copy_n(last(), key_stride(), first());
    empty_ = false;
    ++position_;
    return ridge_scale() != before;
  }
  /// M += factor z (last key)^T
  void add_transition(const double* z, double factor) noexcept {
    for (Index j = 0; j < key_; ++j) {
      const double last_j = factor * last()[j];
      detail::add_outer(m() + j * key_stride(), 1, key_, &last_j, z);
    }
  }

 private:
  Index key_, value_;
  KeyScale scale_;
  std::int64_t position_ = 0;
  double max_norm_ = 0;
  bool empty_ = true;  // the next token is the first
  AlignedVector<double> numbers_;
};

inline void SkaStatistics::set(const Matrix& G, const Matrix& M, const Matrix& Cv,
                               const Eigen::VectorXd& last_key, double max_norm, std::int64_t position) {
  const auto check = [](const char* name, const auto& x, Index rows, Index columns) {
    if (x.rows() != rows || x.cols() != columns)
      throw ShapeError(message(name, ": expected ", shape_text(std::array{rows, columns}), ", got ",
                               shape_text(std::array<Index, 2>{x.rows(), x.cols()})));
    for (Index i = 0; i < x.size(); ++i)
      if (!(std::abs(x.data()[i]) <= std::numeric_limits<double>::max()))
        throw ValueError(message(name, ": expected finite numbers, got ", x.data()[i]));
  };
  check("G", G, key_, key_);
  check("M", M, key_, key_);
  check("Cv", Cv, value_, key_);
  check("last_key", last_key, key_, 1);
  check_position(position);
  SkaStatistics result(key_, value_, scale_);
  result.raise_max_norm(max_norm);
  const auto map = [](double* to, Index rows, Index stride) { return Eigen::Map<Matrix>(to, rows, stride); };
  map(result.g(), key_, key_stride()).leftCols(key_) = G;
  map(result.m(), key_, key_stride()).leftCols(key_) = M.transpose();
  map(result.c(), key_, value_stride()).leftCols(value_) = Cv.transpose();
  std::copy_n(last_key.data(), key_, result.last());
  result.position_ = position;
  result.empty_ = position == 0 && std::all_of(result.numbers_.begin(), result.numbers_.end(),
                                               [](double x) { return x == 0; });
  *this = std::move(result);
}

}  // namespace linrec
