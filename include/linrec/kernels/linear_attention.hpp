// Linear attention without feature map or normaliser (arXiv 2006.16236):
//   S_t = S_{t-1} + k_t v_t^T        o_t = scale S_t^T q_t        S [K, V]
#pragma once

#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct LinearAttentionInputs {
  TokenView<const Scalar> q, k;  ///< [B, T, G, K]; H heads, or groups G that divide H
  TokenView<const Scalar> v;     ///< [B, T, G, V]
};

/// @tparam Scalar float or double.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Sizes = Dims<>, class StateScalar = Scalar>
class LinearAttention
    : public Recurrence<LinearAttention<Scalar, Sizes, StateScalar>, LinearAttentionInputs<Scalar>, Scalar,
                        Sizes, Law{Decay::none, Correction::none}, StateScalar> {
  using Base = typename LinearAttention::Recurrence;
  friend Base;

 public:
  /// @param scale none: K^-1/2.
  explicit LinearAttention(Sizes dims, std::optional<double> scale = {}) : Base(dims, scale) {}

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    this->for_each_qkv(in, f);
  }
  void check_values(const typename Base::Inputs&, const TokenRun&) const {}

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    for (Index i = 0; i < s.count; ++i) this->set_qkv(block, in, s, i);
  }
};

}  // namespace linrec
