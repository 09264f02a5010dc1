// Gated DeltaNet (arXiv 2412.06464, eq. 10):
//   S_t = exp(g_t) S_{t-1} + beta_t k_t (v_t - exp(g_t) S_{t-1}^T k_t)^T        o_t = scale S_t^T q_t
// S [K, V]. g_t is the input g times the rate of the head, exp(p_h), which is 1 unless a spectrum is
// given; with a taper it is also multiplied by t^-alpha_h. q and k are l2-normalised on request,
// x / sqrt(sum x^2 + 1e-6).
#pragma once

#include "linrec/kernels/head_decay.hpp"
#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct GatedDeltaNetInputs {
  TokenView<const Scalar> q, k;  ///< [B, T, G, K]; H value heads, or key heads G that divide H
  TokenView<const Scalar> v;     ///< [B, T, H, V]
  TokenView<const Scalar> g;     ///< [B, T, H, 1], log-decay, at most 0; -inf is a hard reset
  TokenView<const Scalar> beta;  ///< [B, T, H, 1], how much of the old value is replaced
};

struct GatedDeltaNetOptions {
  std::optional<double> scale = {};  ///< none: K^-1/2
  bool qk_l2norm = false;            ///< normalise q and k
  double l2norm_eps = 1e-6;          ///< under the root
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies (linrec/policy), one channel a value head.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic; Heads are the value heads.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper, class Sizes = Dims<>,
          class StateScalar = Scalar>
class GatedDeltaNet : public Recurrence<GatedDeltaNet<Scalar, Spectrum, Taper, Sizes, StateScalar>,
                                        GatedDeltaNetInputs<Scalar>, Scalar, Sizes,
                                        Law{Decay::per_head, Correction::along_key}, StateScalar> {
  using Base = typename GatedDeltaNet::Recurrence;
  friend Base;

 public:
  static constexpr bool tapered = HeadDecay<Taper>::tapered;
  using Options = GatedDeltaNetOptions;

  /// The plain baseline: decays as they come.
  explicit GatedDeltaNet(Sizes dims, const Options& options = {}) requires DefaultPolicies<Spectrum, Taper>
      : GatedDeltaNet(dims, FreeSpectrum::unit(dims.heads()), Taper(), options) {}
  /// @throws ShapeError if the spectrum does not have H channels, ValueError for bad options.
  GatedDeltaNet(Sizes dims, const Spectrum& spectrum, const Taper& taper = Taper(),
                const Options& options = {})
      : Base(dims, options.scale),
        decay_(dims.heads(), spectrum, taper),
        qk_l2norm_(options.qk_l2norm),
        l2norm_eps_(static_cast<Scalar>(options.l2norm_eps)) {
    if (!(l2norm_eps_ > 0) || !std::isfinite(l2norm_eps_))
      throw ValueError(message("l2norm_eps: expected a finite number > 0, got ", l2norm_eps_));
  }

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    f("q", in.q, this->dims().key(), HeadSharing::groups);
    f("k", in.k, this->dims().key(), HeadSharing::groups);
    f("v", in.v, this->dims().value(), HeadSharing::none);
    f("g", in.g, 1, HeadSharing::none);
    f("beta", in.beta, 1, HeadSharing::none);
  }
  void check_values(const typename Base::Inputs& in, const TokenRun& run) const {
    check_log_decay("g", in.g, run);
  }

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    PerToken decay;
    decay_.fill(s, decay);
    // A rate of 0 holds against a hard reset too: 0 times -inf must not be NaN.
    for (Index i = 0; i < s.count; ++i)
      decay[i] = decay[i] == 0 ? 0 : decay[i] * static_cast<double>(*this->at(in.g, s, i));
    exp_padded(decay.at, s.count);
    for (Index i = 0; i < s.count; ++i) {
      Terms<Scalar>& t = block[i];
      if (qk_l2norm_) {
        t.query = normalised(block, i, Row::query, this->at(in.q, s, i));
        t.key = normalised(block, i, Row::key, this->at(in.k, s, i));
        t.value = this->at(in.v, s, i);
      } else {
        this->set_qkv(block, in, s, i);
      }
      t.a = t.key;
      t.decay = static_cast<Scalar>(decay[i]);
      t.value_gain = *this->at(in.beta, s, i);
      t.b_gain = -(t.value_gain * t.decay);
    }
  }

  const Scalar* normalised(Block<Scalar>& block, Index i, Row r, const Scalar* x) const {
    return block.scaled(i, r, x, 1 / std::sqrt(squared_norm(x, block.key()) + l2norm_eps_));
  }

  HeadDecay<Taper> decay_;
  bool qk_l2norm_;
  Scalar l2norm_eps_;
};

}  // namespace linrec
