// DeltaNet, the delta rule without decay (arXiv 2406.06484):
//   S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T        o_t = scale S_t^T q_t        S [K, V]
#pragma once

#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct DeltaNetInputs {
  TokenView<const Scalar> q, k;  ///< [B, T, G, K]; H heads, or groups G that divide H
  TokenView<const Scalar> v;     ///< [B, T, G, V]
  TokenView<const Scalar> beta;  ///< [B, T, H, 1], how much of the old value is replaced
};

/// @tparam Scalar float or double.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Sizes = Dims<>, class StateScalar = Scalar>
class DeltaNet : public Recurrence<DeltaNet<Scalar, Sizes, StateScalar>, DeltaNetInputs<Scalar>, Scalar,
                                   Sizes, Law{Decay::none, Correction::along_key}, StateScalar> {
  using Base = typename DeltaNet::Recurrence;
  friend Base;

 public:
  /// @param scale none: K^-1/2.
  explicit DeltaNet(Sizes dims, std::optional<double> scale = {}) : Base(dims, scale) {}

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    this->for_each_qkv(in, f);
    f("beta", in.beta, 1, HeadSharing::none);
  }
  void check_values(const typename Base::Inputs&, const TokenRun&) const {}

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    for (Index i = 0; i < s.count; ++i) {
      this->set_qkv(block, in, s, i);
      block[i].a = block[i].key;
      block[i].value_gain = *this->at(in.beta, s, i);
      block[i].b_gain = -block[i].value_gain;
    }
  }
};

}  // namespace linrec
