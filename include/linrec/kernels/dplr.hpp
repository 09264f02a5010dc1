// The law itself with every term an input: decay per channel and a free rank-one correction (diagonal
// plus low rank, "DPLR"). RWKV-7 is the case a = -kk, b = kk iclr.
//   S_t = diag(exp(log_w_t)) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T        o_t = scale S_t^T q_t
#pragma once

#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct DPLRInputs {
  TokenView<const Scalar> q, k;   ///< [B, T, G, K]; H heads, or groups G that divide H
  TokenView<const Scalar> v;      ///< [B, T, G, V]
  TokenView<const Scalar> a, b;   ///< [B, T, G, K], the correction
  TokenView<const Scalar> log_w;  ///< [B, T, G, K], log-decays, at most 0; -inf is a hard reset
};

/// @tparam Scalar float or double.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Sizes = Dims<>, class StateScalar = Scalar>
class DPLR : public Recurrence<DPLR<Scalar, Sizes, StateScalar>, DPLRInputs<Scalar>, Scalar, Sizes,
                               Law{Decay::per_channel, Correction::rank_one}, StateScalar> {
  using Base = typename DPLR::Recurrence;
  friend Base;

 public:
  explicit DPLR(Sizes dims, double scale = 1) : Base(dims, scale) {}

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    this->for_each_qkv(in, f);
    f("a", in.a, this->dims().key(), HeadSharing::groups);
    f("b", in.b, this->dims().key(), HeadSharing::groups);
    f("log_w", in.log_w, this->dims().key(), HeadSharing::groups);
  }
  void check_values(const typename Base::Inputs& in, const TokenRun& run) const {
    check_log_decay("log_w", in.log_w, run);
  }

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    for (Index i = 0; i < s.count; ++i) {
      this->set_qkv(block, in, s, i);
      block[i].a = block.near(i, Row::a, this->at(in.a, s, i));
      block[i].b = block.near(i, Row::b, this->at(in.b, s, i));
      block[i].decays =
          block.map(i, Row::decays, this->at(in.log_w, s, i),
                    [](const auto& log_w, Index) LINREC_INLINE_LAMBDA { return exp_or_zero(log_w); });
    }
  }
};

}  // namespace linrec
