// Linear: y = W x + b for the rows of a chunk, W [outputs, inputs] read where it lies.
//
// Each output is one dot product along the inputs, in packets, and always summed in the same order, however
// many rows and outputs are computed together. Tiles of rows x outputs keep their sums in registers, so that
// a chunk runs at the speed of the multiply-adds and a single row at the speed of reading W. Nothing is
// packed, copied or allocated. Weights of bfloat16 have an order of their own (linear_bfloat16.hpp).
#pragma once

#include <cassert>
#include <string>
#include <utility>

#include "linrec/core/executor.hpp"
#include "linrec/core/parameter.hpp"
#include "linrec/layers/linear_bfloat16.hpp"
#include "linrec/layers/rows.hpp"

namespace linrec {

namespace detail {

/// Registers for sums, and for the operands that meet in them.
inline constexpr bool many_registers = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32;
inline constexpr Index tile_rows = many_registers ? 4 : 3;
inline constexpr Index tile_outputs = many_registers ? 6 : 4;
inline constexpr Index single_row_outputs = 8;

/// y[r, o] = sum_i x[r, i] w[o, i] + bias[o] for R rows and O outputs.
template <Index R, Index O, class Scalar>
EIGEN_DONT_INLINE void linear_tile(const Scalar* x, Index x_stride, const Scalar* w, Index inputs,
                                   const Scalar* bias, Scalar* y, Index y_stride) noexcept {
  using namespace Eigen::internal;
  using Packet = typename Lanes<Scalar>::Packet;
  constexpr Index size = Lanes<Scalar>::packet_size;
  Packet sums[static_cast<std::size_t>(R)][static_cast<std::size_t>(O)];
  repeat<R * O>([&](auto k) LINREC_INLINE_LAMBDA { sums[k / O][k % O] = pset1<Packet>(Scalar(0)); });
  const auto accumulate = [&](const auto& load_x, const auto& load_w) LINREC_INLINE_LAMBDA {
    Packet xs[static_cast<std::size_t>(R)];
    repeat<R>([&](auto r) LINREC_INLINE_LAMBDA { xs[r] = load_x(r); });
    repeat<O>([&](auto o) LINREC_INLINE_LAMBDA {
      const Packet weight = load_w(o);
      repeat<R>([&](auto r) LINREC_INLINE_LAMBDA { sums[r][o] = pmadd(xs[r], weight, sums[r][o]); });
    });
  };
  Index i = 0;
  for (; i + size <= inputs; i += size)
    accumulate([&](Index r) LINREC_INLINE_LAMBDA { return ploadu<Packet>(x + r * x_stride + i); },
               [&](Index o) LINREC_INLINE_LAMBDA { return ploadu<Packet>(w + o * inputs + i); });
  if (i < inputs)
    accumulate(
        [&](Index r) LINREC_INLINE_LAMBDA { return load_part_packet(x + r * x_stride + i, inputs - i); },
        [&](Index o) LINREC_INLINE_LAMBDA { return load_part_packet(w + o * inputs + i, inputs - i); });
  repeat<R * O>([&](auto k) LINREC_INLINE_LAMBDA {
    y[k / O * y_stride + k % O] = predux(sums[k / O][k % O]) + (bias == nullptr ? Scalar(0) : bias[k % O]);
  });
}

/// O outputs of all rows.
template <Index R, Index O, class Scalar>
void linear_outputs(Rows<const Scalar> x, const Scalar* w, const Scalar* bias, Rows<Scalar> y,
                    Index output) noexcept {
  Index r = 0;
  for (; r + R <= x.count; r += R)
    linear_tile<R, O>(x[r], x.stride, w, x.width, bias, y[r] + output, y.stride);
  for (; r < x.count; ++r) linear_tile<1, O>(x[r], x.stride, w, x.width, bias, y[r] + output, y.stride);
}

template <Index R, Index O, class Scalar>
void linear_all(Rows<const Scalar> x, const Scalar* w, const Scalar* bias, Rows<Scalar> y) noexcept {
  const auto bias_of = [&](Index o) { return bias == nullptr ? nullptr : bias + o; };
  Index o = 0;
  for (; o + O <= y.width; o += O) linear_outputs<R, O>(x, w + o * x.width, bias_of(o), y, o);
  for (; o < y.width; ++o) linear_outputs<R, 1>(x, w + o * x.width, bias_of(o), y, o);
}

}  // namespace detail

/// A linear map with weights [outputs, inputs] and an optional bias [outputs].
template <class Scalar>
class Linear {
 public:
  Linear() = default;
  /// @param name what errors call the weights.
  /// @param weight may be bfloat16; then it is read as such, and computed with in Scalar.
  /// @throws ShapeError if the weights are not [outputs, inputs], or the bias, if present, not [outputs].
  Linear(const std::string& name, Index outputs, Index inputs, Parameter<Scalar> weight,
         Parameter<Scalar> bias = {})
      : outputs_(outputs), inputs_(inputs), weight_(std::move(weight)), bias_(std::move(bias)) {
    weight_.check_matrix(name + ".weight", {outputs, inputs});
    if (bias_.present()) bias_.check(name + ".bias", {outputs});
  }

  Index outputs() const { return outputs_; }
  Index inputs() const { return inputs_; }

  /// y [n, outputs] = x [n, inputs] W^T + b, the outputs split among the workers of the executor. y must not
  /// overlap x.
  void apply(Rows<const Scalar> x, Rows<Scalar> y, const ExecutorRef& executor = {}) const {
    assert(x.width == inputs_ && y.width == outputs_ && x.count == y.count);
    const Index tile = x.count < detail::tile_rows ? detail::single_row_outputs : detail::tile_outputs;
    const double flops = 2 * static_cast<double>(x.count) * static_cast<double>(inputs_ * outputs_);
    for_each_range(executor, outputs_, tile, flops,
                   [&](Index first, Index count) { apply_outputs(x, y, first, count); });
  }

 private:
  /// The outputs [first, first + count).
  void apply_outputs(Rows<const Scalar> x, Rows<Scalar> y, Index first, Index count) const noexcept {
    using namespace detail;
    const Scalar* bias = bias_.present() ? bias_.data() + first : nullptr;
    y = y.columns(first, count);
    if (weight_.is_bfloat16())
      return linear_bfloat16<tile_rows, tile_outputs>(x, weight_.bfloat16_data() + first * inputs_, bias, y);
    const Scalar* weight = weight_.data() + first * inputs_;
    if (x.count < tile_rows)
      linear_all<1, single_row_outputs>(x, weight, bias, y);
    else
      linear_all<tile_rows, tile_outputs>(x, weight, bias, y);
  }

  Index outputs_ = 0, inputs_ = 0;
  Parameter<Scalar> weight_, bias_;
};

}  // namespace linrec
