// RetNet, retention (arXiv 2307.08621, eq. 5):
//   S_t = gamma_h S_{t-1} + k_t v_t^T        o_t = scale S_t^T q_t        S [K, V]
// with gamma_h = exp(-exp(p_h)); with a taper, log gamma is multiplied by t^-alpha_h.
// Rotary position embedding belongs to the layer.
#pragma once

#include "linrec/kernels/head_decay.hpp"
#include "linrec/kernels/linear_attention.hpp"
#include "linrec/kernels/recurrence.hpp"

namespace linrec {

/// q, k, v as in linear attention.
template <class Scalar>
using RetNetInputs = LinearAttentionInputs<Scalar>;

/// RetNet's own decays, gamma_h = 1 - 2^(-5-h) for h = 0, 1, ...: the rates are -log gamma_h.
inline FreeSpectrum retention_spectrum(Index heads) {
  Eigen::ArrayXd rates(heads);
  for (Index h = 0; h < heads; ++h) rates[h] = -std::log1p(-std::exp2(-5.0 - static_cast<double>(h)));
  return FreeSpectrum::from_rates(rates);
}

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies (linrec/policy), one channel a head.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper, class Sizes = Dims<>,
          class StateScalar = Scalar>
class RetNet : public Recurrence<RetNet<Scalar, Spectrum, Taper, Sizes, StateScalar>, RetNetInputs<Scalar>,
                                 Scalar, Sizes, Law{Decay::per_head, Correction::none}, StateScalar> {
  using Base = typename RetNet::Recurrence;
  friend Base;

 public:
  static constexpr bool tapered = HeadDecay<Taper>::tapered;

  /// RetNet as published.
  explicit RetNet(Sizes dims) requires DefaultPolicies<Spectrum, Taper>
      : RetNet(dims, retention_spectrum(dims.heads())) {}
  /// @param scale none: K^-1/2.
  /// @throws ShapeError if the spectrum does not have H channels.
  explicit RetNet(Sizes dims, const Spectrum& spectrum, const Taper& taper = Taper(),
                  std::optional<double> scale = {})
      : Base(dims, scale), decay_(dims.heads(), spectrum, taper) {}

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    this->for_each_qkv(in, f);
  }
  void check_values(const typename Base::Inputs&, const TokenRun&) const {}

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    PerToken decay;
    decay_.fill(s, decay);
    decay.transform(s.count, [](const auto& rate, Index) { return -rate; });
    exp_padded(decay.at, s.count);
    for (Index i = 0; i < s.count; ++i) {
      this->set_qkv(block, in, s, i);
      block[i].decay = static_cast<Scalar>(decay[i]);
    }
  }

  HeadDecay<Taper> decay_;
};

}  // namespace linrec
