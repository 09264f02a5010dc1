// Mamba-2, state space duality (arXiv 2405.21060, section 2):
//   S_t = exp(A_h dt_t) S_{t-1} + B_t (dt_t x_t)^T        y_t = S_t^T C_t + D_h x_t        A_h = -exp(p_h)
// S [N, P] is the transpose of the paper's h; K is N, the state size, and V is P, the head dimension.
// With a taper the exponent A_h dt_t is multiplied by t^-alpha_h; dt as the gain of the input is not.
#pragma once

#include "linrec/kernels/head_decay.hpp"
#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct Mamba2Inputs {
  TokenView<const Scalar> x;     ///< [B, T, H, P]
  TokenView<const Scalar> dt;    ///< [B, T, H, 1], step sizes >= 0, or logits with dt_softplus
  TokenView<const Scalar> B, C;  ///< [B, T, G, N], G groups that divide H
};

struct Mamba2Options {
  Eigen::MatrixXd D = {};       ///< skip term, [H, 1] or [H, P]; empty: none
  Eigen::ArrayXd dt_bias = {};  ///< [H], added to dt; empty: none
  bool dt_softplus = false;     ///< dt = softplus(dt + dt_bias)
  double dt_min = 0;            ///< then dt is limited to [dt_min, dt_max]
  double dt_max = std::numeric_limits<double>::infinity();
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies (linrec/policy), one channel a head; the log-rates p are the usual A_log.
/// @tparam Sizes Dims<Heads, N, P>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper, class Sizes = Dims<>,
          class StateScalar = Scalar>
class Mamba2 : public Recurrence<Mamba2<Scalar, Spectrum, Taper, Sizes, StateScalar>, Mamba2Inputs<Scalar>,
                                 Scalar, Sizes, Law{Decay::per_head, Correction::none}, StateScalar> {
  using Base = typename Mamba2::Recurrence;
  friend Base;

 public:
  static constexpr bool tapered = HeadDecay<Taper>::tapered;
  using Options = Mamba2Options;

  /// @throws ShapeError if the spectrum, D or dt_bias do not have H heads, ValueError for bad options.
  explicit Mamba2(Sizes dims, const Spectrum& spectrum, const Taper& taper = Taper(),
                  const Options& options = {})
      : Base(dims, 1), decay_(dims.heads(), spectrum, taper), options_(options) {
    if (options_.D.size() > 0) set_skip(options_.D);
    const Index heads = dims.heads();
    if (options_.dt_bias.size() == 0) options_.dt_bias = Eigen::ArrayXd::Zero(heads);
    if (options_.dt_bias.size() != heads)
      throw ShapeError(message("dt_bias: expected H = ", heads, " entries, got ", options_.dt_bias.size()));
    for (Index h = 0; h < heads; ++h)
      if (!std::isfinite(options_.dt_bias[h]))
        throw ValueError(message("dt_bias[", h, "]: expected a finite number, got ", options_.dt_bias[h]));
    if (!(options_.dt_min >= 0 && options_.dt_min <= options_.dt_max))
      throw ValueError(message("dt_min, dt_max: expected 0 <= dt_min <= dt_max, got ", options_.dt_min, ", ",
                               options_.dt_max));
  }

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    f("x", in.x, this->dims().value(), HeadSharing::none);
    f("dt", in.dt, 1, HeadSharing::none);
    f("B", in.B, this->dims().key(), HeadSharing::groups);
    f("C", in.C, this->dims().key(), HeadSharing::groups);
  }
  void check_values(const typename Base::Inputs& in, const TokenRun& run) const {
    if (options_.dt_softplus || options_.dt_min > 0 || (options_.dt_bias != 0).any())
      check_each("dt", in.dt, run, "a number below infinity",
                 [](Scalar x) { return x <= std::numeric_limits<Scalar>::max(); });
    else
      check_each("dt", in.dt, run, "a finite step size of at least 0",
                 [](Scalar x) { return (x >= 0) & (x <= std::numeric_limits<Scalar>::max()); });
  }

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    PerToken dt, decay;
    step_sizes(in, s, dt);
    decay_.fill(s, decay);
    for (Index i = 0; i < s.count; ++i) decay[i] *= -dt[i];
    exp_padded(decay.at, s.count);
    for (Index i = 0; i < s.count; ++i) {
      block[i].query = block.near(i, Row::query, this->at(in.C, s, i));
      block[i].key = block.near(i, Row::key, this->at(in.B, s, i));
      block[i].value = this->at(in.x, s, i);
      block[i].value_gain = static_cast<Scalar>(dt[i]);
      block[i].decay = static_cast<Scalar>(decay[i]);
    }
  }

  void set_skip(const Eigen::MatrixXd& D) {
    const Index heads = this->dims().heads(), width = this->dims().value(), stride = padded<Scalar>(width);
    if (D.rows() != heads || (D.cols() != 1 && D.cols() != width))
      throw ShapeError(message("D: expected [H, 1] or [H, P] = [", heads, ", ", width, "], got [", D.rows(),
                               ", ", D.cols(), "]"));
    if (!D.allFinite()) throw ValueError("D: expected finite numbers, got infinity or NaN");
    skip_.assign(static_cast<std::size_t>(heads * stride), Scalar(0));
    for (Index h = 0; h < heads; ++h)
      for (Index j = 0; j < width; ++j)
        skip_[static_cast<std::size_t>(h * stride + j)] = static_cast<Scalar>(D(h, D.cols() == 1 ? 0 : j));
  }

  void step_sizes(const typename Base::Inputs& in, const Segment& s, PerToken& dt) const noexcept {
    for (Index i = 0; i < padded<double>(s.count); ++i) dt[i] = 0;
    for (Index i = 0; i < s.count; ++i)
      dt[i] = static_cast<double>(*this->at(in.dt, s, i)) + options_.dt_bias[s.head];
    if (options_.dt_softplus)
      dt.transform(s.count, [](const auto& x, Index) { return x.max(0.0) + (-x.abs()).exp().log1p(); });
    dt.transform(s.count, [&](const auto& x, Index) { return x.max(options_.dt_min).min(options_.dt_max); });
  }

  const Scalar* skip(Index h) const {
    return skip_.empty() ? nullptr : skip_.data() + h * padded<Scalar>(this->dims().value());
  }

  HeadDecay<Taper> decay_;
  Options options_;
  AlignedVector<Scalar> skip_;
};

}  // namespace linrec
