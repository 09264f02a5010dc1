// Gated Linear Attention (arXiv 2312.06635, eq. 3):
//   S_t = diag(exp(g_t)) S_{t-1} + k_t v_t^T        o_t = scale S_t^T q_t        S [K, V]
// g_t is gk_t times the rate of the head, exp(p_h), which is 1 unless a spectrum is given; with a taper
// it is also multiplied by t^-alpha_h.
#pragma once

#include "linrec/kernels/head_decay.hpp"
#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct GLAInputs {
  TokenView<const Scalar> q, k;  ///< [B, T, G, K]; H heads, or groups G that divide H
  TokenView<const Scalar> v;     ///< [B, T, G, V]
  TokenView<const Scalar> gk;    ///< [B, T, G, K], log-decays, at most 0; -inf is a hard reset
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies (linrec/policy), one channel a head.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper, class Sizes = Dims<>,
          class StateScalar = Scalar>
class GLA : public Recurrence<GLA<Scalar, Spectrum, Taper, Sizes, StateScalar>, GLAInputs<Scalar>, Scalar,
                              Sizes, Law{Decay::per_channel, Correction::none}, StateScalar> {
  using Base = typename GLA::Recurrence;
  friend Base;

 public:
  static constexpr bool tapered = HeadDecay<Taper>::tapered;

  /// The plain baseline: decays as they come.
  explicit GLA(Sizes dims) requires DefaultPolicies<Spectrum, Taper>
      : GLA(dims, FreeSpectrum::unit(dims.heads())) {}
  /// @param scale none: K^-1/2.
  /// @throws ShapeError if the spectrum does not have H channels.
  explicit GLA(Sizes dims, const Spectrum& spectrum, const Taper& taper = Taper(),
               std::optional<double> scale = {})
      : Base(dims, scale), decay_(dims.heads(), spectrum, taper) {}

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    this->for_each_qkv(in, f);
    f("gk", in.gk, this->dims().key(), HeadSharing::groups);
  }
  void check_values(const typename Base::Inputs& in, const TokenRun& run) const {
    check_log_decay("gk", in.gk, run);
  }

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    using namespace Eigen::internal;
    using Packet = typename Lanes<Scalar>::Packet;
    constexpr double highest = static_cast<double>(std::numeric_limits<Scalar>::max());
    PerToken rates;
    decay_.fill(s, rates);
    for (Index i = 0; i < s.count; ++i) {
      this->set_qkv(block, in, s, i);
      const Packet rate = pset1<Packet>(static_cast<Scalar>(std::min(rates[i], highest)));
      // A rate of 0 holds against a hard reset too: 0 times -inf must not be NaN.
      const Packet held = pcmp_eq(rate, pset1<Packet>(Scalar(0)));
      block[i].decays =
          block.map(i, Row::decays, this->at(in.gk, s, i), [&](const Packet& g, Index) LINREC_INLINE_LAMBDA {
            return exp_or_zero(pandnot(pmul(g, rate), held));
          });
    }
  }

  HeadDecay<Taper> decay_;
};

}  // namespace linrec
