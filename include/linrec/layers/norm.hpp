// Norms over groups of channels; a group may be the whole row or one head.
//   rms_norm     y = x / sqrt(mean(x^2) + eps) w
//   layer_norm   y = (x - mean(x)) / sqrt(var(x) + eps) w + b          with var the mean of squares, not n-1
// Group norm is layer_norm by groups. Weights are one number a channel of the row, or of one group, which
// then serves all groups; w and b may be absent.
#pragma once

#include <cmath>

#include "linrec/core/parameter.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

/// y = x silu(z); y may be x or z.
template <class Scalar>
void gate_with_silu(Rows<const Scalar> x, Rows<const Scalar> z, Rows<Scalar> y) noexcept {
  for (Index i = 0; i < x.count; ++i)
    map_packets(
        x.width, y[i],
        [](const auto& a, const auto& b)
            LINREC_INLINE_LAMBDA { return Eigen::internal::pmul(a, silu_packet(b)); },
        x[i], z[i]);
}

/// y += x
template <class Scalar>
void add_rows(Rows<const Scalar> x, Rows<Scalar> y) noexcept {
  for (Index i = 0; i < x.count; ++i)
    map_packets(
        x.width, y[i],
        [](const auto& a, const auto& b) LINREC_INLINE_LAMBDA { return Eigen::internal::padd(a, b); }, x[i],
        static_cast<const Scalar*>(y[i]));
}

/// A norm over groups of `group` channels in rows of `width`.
template <class Scalar>
class Norm {
 public:
  enum class Kind { rms, layer };

  Norm() = default;
  /// @param weight, bias [width] or [group], or absent; only Kind::layer has a bias.
  /// @throws ShapeError naming the parameter, ValueError if the groups do not divide the width or eps is not
  /// a positive number.
  Norm(const std::string& name, Kind kind, Index width, Index group, double eps, Parameter<Scalar> weight,
       Parameter<Scalar> bias = {})
      : kind_(kind),
        width_(width),
        group_(group),
        eps_(static_cast<Scalar>(eps)),
        weight_(std::move(weight)),
        bias_(std::move(bias)) {
    if (group < 1 || width % group != 0)
      throw ValueError(message(name, ": expected groups that divide ", width, " channels, got ", group));
    if (!(eps > 0) || !std::isfinite(eps))
      throw ValueError(message(name, ": expected an eps that is a finite number > 0, got ", eps));
    if (kind == Kind::rms && bias_.present())
      throw ShapeError(message(name, ".bias: expected none, got one"));
    check(name + ".weight", weight_);
    check(name + ".bias", bias_);
  }

  Index width() const { return width_; }

  /// y may be x.
  void apply(Rows<const Scalar> x, Rows<Scalar> y) const noexcept {
    for (Index i = 0; i < x.count; ++i)
      for (Index c = 0; c < width_; c += group_) {
        if (kind_ == Kind::layer)
          layer(x[i] + c, y[i] + c, c);
        else
          scale(x[i] + c, y[i] + c, c);
      }
  }

 private:
  void check(const std::string& name, const Parameter<Scalar>& parameter) const {
    if (!parameter.present()) return;
    parameter.check(name, {parameter.shape() == std::vector<Index>{group_} ? group_ : width_});
  }
  /// Of the channel c of a row; null if absent.
  const Scalar* at(const Parameter<Scalar>& parameter, Index c) const {
    if (!parameter.present()) return nullptr;
    return parameter.data() + (parameter.size() == width_ ? c : 0);
  }

  void layer(const Scalar* x, Scalar* y, Index c) const noexcept {
    using namespace Eigen::internal;
    using Packet = typename Lanes<Scalar>::Packet;
    const Packet mean = pset1<Packet>(sum_packets(group_, x) / static_cast<Scalar>(group_));
    map_packets(
        group_, y, [&](const Packet& a) LINREC_INLINE_LAMBDA { return psub(a, mean); }, x);
    scale(y, y, c);
    if (const Scalar* bias = at(bias_, c))
      map_packets(
          group_, y, [](const Packet& a, const Packet& b) LINREC_INLINE_LAMBDA { return padd(a, b); },
          static_cast<const Scalar*>(y), bias);
  }
  /// y = x / sqrt(mean(x^2) + eps) w
  void scale(const Scalar* x, Scalar* y, Index c) const noexcept {
    using namespace Eigen::internal;
    using Packet = typename Lanes<Scalar>::Packet;
    const Scalar mean = dot_packets(group_, x, x) / static_cast<Scalar>(group_);
    const Packet factor = pset1<Packet>(1 / std::sqrt(mean + eps_));
    if (const Scalar* weight = at(weight_, c))
      map_packets(
          group_, y,
          [&](const Packet& a, const Packet& w) LINREC_INLINE_LAMBDA { return pmul(pmul(a, factor), w); }, x,
          weight);
    else
      map_packets(
          group_, y, [&](const Packet& a) LINREC_INLINE_LAMBDA { return pmul(a, factor); }, x);
  }

  Kind kind_ = Kind::rms;
  Index width_ = 0, group_ = 1;
  Scalar eps_ = 0;
  Parameter<Scalar> weight_, bias_;
};

}  // namespace linrec
