// RWKV-7 (arXiv 2503.14456, eq. 15-17), the recurrence of its time mixing, transposed to S [K, V]:
//   S_t = diag(w_t) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T        o_t = S_t^T r_t
//   a = -kk,  b = kk iclr,  kk = kk_raw / max(sqrt(|kk_raw|^2 + eps), 1e-12),  w = exp(-exp(-1/2) sigmoid(w0
//   + w_logit))
// w0 is the spectrum, one channel for each of the H K key channels; where it is not given it is zero, and
// w_logit is the whole logit. With a taper the logit becomes w0 + w_logit - alpha log t, alpha taken from the
// log-rates log_sigmoid(w0) (arXiv 2604.07658).
#pragma once

#include "linrec/kernels/head_decay.hpp"
#include "linrec/kernels/recurrence.hpp"

namespace linrec {

template <class Scalar>
struct RWKV7Inputs {
  TokenView<const Scalar> r, k;     ///< [B, T, H, K]
  TokenView<const Scalar> v;        ///< [B, T, H, V]
  TokenView<const Scalar> kk;       ///< [B, T, H, K], removal key before its normalisation
  TokenView<const Scalar> iclr;     ///< [B, T, H, K], in-context learning rate ("a")
  TokenView<const Scalar> w_logit;  ///< [B, T, H, K], decay logit; any number or infinity
};

struct RWKV7Options {
  double kk_eps = 0;  ///< under the root of the norm of kk; fla's layers have 1e-6, the published models 0
};

/// @tparam Scalar float or double.
/// @tparam Spectrum, Taper policies (linrec/policy), one channel a key channel; the p are the logits w0.
/// @tparam Sizes Dims<Heads, Key, Value>, fixed or dynamic.
/// @tparam StateScalar what the state is stored in: Scalar, or BFloat16 for float (kernels/state.hpp).
template <class Scalar, class Spectrum = FreeSpectrum, class Taper = NoTaper, class Sizes = Dims<>,
          class StateScalar = Scalar>
class RWKV7 : public Recurrence<RWKV7<Scalar, Spectrum, Taper, Sizes, StateScalar>, RWKV7Inputs<Scalar>,
                                Scalar, Sizes, Law{Decay::per_channel, Correction::rank_one}, StateScalar> {
  using Base = typename RWKV7::Recurrence;
  friend Base;
  using Packet = typename Lanes<Scalar>::Packet;

 public:
  static constexpr bool tapered = !std::same_as<Taper, NoTaper>;
  using Options = RWKV7Options;

  /// The plain baseline: w_logit is the whole logit.
  explicit RWKV7(Sizes dims, const Options& options = {}) requires DefaultPolicies<Spectrum, Taper>
      : RWKV7(dims, FreeSpectrum::unit(dims.heads() * dims.key()), Taper(), options) {}
  /// @throws ShapeError if the spectrum does not have H K channels, ValueError if a w0 is not finite or an
  /// option is bad.
  explicit RWKV7(Sizes dims, const Spectrum& spectrum, const Taper& taper = Taper(),
                 const Options& options = {})
      : Base(dims, 1), kk_eps_(static_cast<Scalar>(options.kk_eps)) {
    if (!(options.kk_eps >= 0) || !std::isfinite(options.kk_eps))
      throw ValueError(message("kk_eps: expected a finite number of at least 0, got ", options.kk_eps));
    constexpr double largest = static_cast<double>(std::numeric_limits<Scalar>::max());
    const Eigen::ArrayXd w0 = log_rates_of(spectrum);
    if (w0.size() != dims.heads() * dims.key())
      throw ShapeError(message("spectrum: expected one channel a key channel, H K = ",
                               dims.heads() * dims.key(), ", got ", w0.size()));
    for (Index i = 0; i < w0.size(); ++i)
      if (!(std::abs(w0[i]) <= largest))
        throw ValueError(message("spectrum: expected finite logits w0, got ", w0[i], " for channel ", i));
    fill_rows(w0, w0_);
    if constexpr (tapered)
      fill_rows(exponents_of(taper, w0.unaryExpr([](double x) { return log_sigmoid(x); })), exponents_);
  }

 private:
  template <class F>
  void for_each_input(const typename Base::Inputs& in, F&& f) const {
    f("r", in.r, this->dims().key(), HeadSharing::none);
    f("k", in.k, this->dims().key(), HeadSharing::none);
    f("v", in.v, this->dims().value(), HeadSharing::none);
    f("kk", in.kk, this->dims().key(), HeadSharing::none);
    f("iclr", in.iclr, this->dims().key(), HeadSharing::none);
    f("w_logit", in.w_logit, this->dims().key(), HeadSharing::none);
  }
  void check_values(const typename Base::Inputs& in, const TokenRun& run) const {
    check_no_nan("w_logit", in.w_logit, run);
  }

  void prepare(const typename Base::Inputs& in, const Segment& s, Block<Scalar>& block) const noexcept {
    Scalar norms[static_cast<std::size_t>(block_tokens)];  // before they are needed: a norm takes its time
    for (Index i = 0; i < s.count; ++i) {
      norms[i] = std::sqrt(squared_norm(this->at(in.kk, s, i), block.key()) + kk_eps_);
      Terms<Scalar>& t = block[i];
      t.query = block.near(i, Row::query, this->at(in.r, s, i));
      t.key = block.near(i, Row::key, this->at(in.k, s, i));
      t.value = this->at(in.v, s, i);
      const Scalar* logits = this->at(in.w_logit, s, i);
      if constexpr (tapered)
        t.decays = decays(block, i, logits, s.head, static_cast<Scalar>(s.log_t[i]));
      else
        t.decays = decays(block, i, logits, s.head, Scalar(0));
    }
    for (Index i = 0; i < s.count; ++i) {
      const Scalar* a =
          block.scaled(i, Row::a, this->at(in.kk, s, i), -1 / std::max(norms[i], smallest_norm));
      block[i].a = a;
      block[i].b = block.map(i, Row::b, this->at(in.iclr, s, i),
                             [&](const Packet& iclr, Index j) LINREC_INLINE_LAMBDA {
                               using namespace Eigen::internal;
                               return pnegate(pmul(iclr, pload<Packet>(a + j)));
                             });
    }
  }

  /// The decays [K] of a token, from their logits.
  const Scalar* decays(Block<Scalar>& block, Index i, const Scalar* logits, Index head,
                       [[maybe_unused]] Scalar log_t) const noexcept {
    using namespace Eigen::internal;
    const Index start = head * padded<Scalar>(block.key());
    // The log-decay is in [-e^-1/2, 0], whose middle is less than log(2)/2 from its ends.
    const double low = -std::exp(-0.5), middle = low / 2;
    const Packet lowest = constant<Packet>(low), one = constant<Packet>(1),
                 to_zero = constant<Packet>(-middle), gain = constant<Packet>(std::exp(middle));
    [[maybe_unused]] const Packet minus_log_t = pset1<Packet>(-log_t);
    return block.map(i, Row::decays, logits, [&](const Packet& content, Index j) LINREC_INLINE_LAMBDA {
      Packet logit = padd(content, pload<Packet>(w0_.data() + start + j));
      if constexpr (tapered) logit = pmadd(pload<Packet>(exponents_.data() + start + j), minus_log_t, logit);
      const Packet log_decay = pdiv(lowest, padd(one, exp_normal(pnegate(logit))));
      return pmul(gain, exp_near_zero(padd(log_decay, to_zero)));
    });
  }

  /// [H K] to one padded row a head.
  void fill_rows(const Eigen::ArrayXd& channels, AlignedVector<Scalar>& rows) const {
    const Index heads = this->dims().heads(), key = this->dims().key(), stride = padded<Scalar>(key);
    rows.assign(static_cast<std::size_t>(heads * stride), Scalar(0));
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < key; ++i)
        rows[static_cast<std::size_t>(h * stride + i)] = static_cast<Scalar>(channels[h * key + i]);
  }

  static constexpr Scalar smallest_norm = static_cast<Scalar>(1e-12);

  Scalar kk_eps_;
  AlignedVector<Scalar> w0_, exponents_;
};

}  // namespace linrec
