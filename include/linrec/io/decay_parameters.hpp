// The decay rates of a layer as checkpoints have them: plain, or PoST's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "linrec/io/weight_reader.hpp"
#include "linrec/policy/spectrum.hpp"
#include "linrec/policy/taper.hpp"

namespace linrec::io {

/// The spectrum and the taper of one layer, as a checkpoint has them.
struct DecayParameters {
  Eigen::ArrayXd log_rates;                    ///< of a plain layer; empty: PoST
  double theta = 0;                            ///< PoST's first rate
  Eigen::ArrayXd delta;                        ///< and gaps before softplus
  std::optional<Eigen::ArrayXd> alpha_logits;  ///< of a learned taper
  double train_length = 0;                     ///< of a gap-aware taper
  bool in_sigmoid = false;                     ///< RWKV-7's form, whose rates are log_sigmoid(w0)

  /// Calls f(spectrum, taper) with the policies.
  template <class F>
  auto with_policies(F&& f) const {
    if (log_rates.size() > 0) return f(FreeSpectrum(log_rates), NoTaper());
    const PostSpectrum spectrum(theta, delta);
    Eigen::ArrayXd p = spectrum.log_rates();
    if (in_sigmoid) p = p.unaryExpr([](double x) { return log_sigmoid(x); }).eval();
    const Eigen::ArrayXd alpha = alpha_logits ? exponents_of(LearnedTaper(*alpha_logits), p)
                                              : exponents_of(GapAwareTaper(train_length), p);
    return f(spectrum, GivenTaper(alpha));
  }
};

/// What the rates of a layer are called: of a plain one, and PoST's first rate and gaps.
struct DecayNames {
  std::string_view plain, base, gaps;
};
inline constexpr DecayNames mamba2_decay_names{"A_log", "A_log_base", "A_log_deltas"};
inline constexpr DecayNames head_decay_names{"A_log", "A_log_base", "A_log_delta"};
inline constexpr DecayNames rwkv7_decay_names{"w_lora.lora.2.bias", "w0_base", "w0_delta"};

/// A layer is PoST's if it has the first rate.
template <class Scalar>
DecayParameters read_decay(WeightReader<Scalar>& reader, const LayerNames& names,
                           const DecayNames& decay_names, Index channels, double train_length) {
  DecayParameters decay;
  decay.train_length = train_length;
  decay.in_sigmoid = decay_names.base == rwkv7_decay_names.base;
  if (!reader.has(names, decay_names.base)) {
    decay.log_rates = reader.get(names, decay_names.plain, {channels}).to_double();
    return decay;
  }
  const Parameter<Scalar> base = reader.get(names, decay_names.base, {});
  if (base.present()) decay.theta = static_cast<double>(base.data()[0]);
  if (channels > 1)
    decay.delta = reader.get(names, decay_names.gaps, {channels - 1}).to_double();
  else if (reader.has(names,
                      decay_names.gaps))  // the published code stores one gap for a single channel, too
    reader.get(names, decay_names.gaps, {1});
  if (reader.has(names, "alpha_logits"))
    decay.alpha_logits = reader.get(names, "alpha_logits", {channels - 1}).to_double();
  return decay;
}

}  // namespace linrec::io
