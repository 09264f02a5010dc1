// What kernels refuse: shapes that do not fit, outputs that overlap themselves, decays that are none.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "linrec/core/token_view.hpp"

namespace linrec {

/// Tokens [first, first + count) of one row of a batch.
struct TokenRun {
  Index row, first, count;
};

/// @throws ShapeError if a view has other extents [B, T, H, D] than expected.
template <class Scalar>
void check_shape(std::string_view name, const TokenView<Scalar>& view, const std::array<Index, 4>& expected,
                 std::string_view remark = "") {
  if (view.extents() != expected)
    throw ShapeError(
        message(name, ": expected [B, T, H, D] = ", shape_text(expected), remark, ", got ", view.shape()));
}

/// @throws ShapeError if two places of a view may share memory: an axis must step over all that the axes
/// with smaller strides span.
template <class Scalar>
void check_no_overlap(std::string_view name, const TokenView<Scalar>& view) {
  if (view.size() == 0) return;
  std::array<std::pair<Index, Index>, 3> axes;  // stride, extent
  for (std::size_t i = 0; i < 3; ++i) axes[i] = {std::abs(view.strides()[i]), view.extents()[i]};
  std::sort(axes.begin(), axes.end());
  Index span = view.dim();
  for (const auto& [stride, extent] : axes) {
    if (extent == 1) continue;
    if (stride < span)
      throw ShapeError(message(name, ": expected strides without overlap, got ", view.strides()[0], ", ",
                               view.strides()[1], ", ", view.strides()[2], " for the shape ", view.shape()));
    span += stride * (extent - 1);
  }
}

/// @throws ValueError at the first number of the run for which `legal` is false.
template <class Scalar, class Legal>
void check_each(std::string_view name, const TokenView<const Scalar>& view, const TokenRun& run,
                std::string_view expected, Legal legal) {
  for (Index t = run.first; t < run.first + run.count; ++t)
    for (Index h = 0; h < view.heads(); ++h) {
      const Scalar* x = view.data(run.row, t, h);
      unsigned illegal = 0;
      for (Index i = 0; i < view.dim(); ++i)
        illegal |= static_cast<unsigned>(!legal(x[i]));  // no branch: vectorised
      if (illegal == 0) continue;
      Index i = 0;
      while (legal(x[i])) ++i;
      throw ValueError(
          message(name, "[", run.row, ", ", t, ", ", h, ", ", i, "]: expected ", expected, ", got ", x[i]));
    }
}

/// Log-decays are at most 0; -inf is a hard reset.
template <class Scalar>
void check_log_decay(std::string_view name, const TokenView<const Scalar>& view, const TokenRun& run) {
  check_each(name, view, run, "a log-decay of at most 0", [](Scalar x) { return x <= 0; });
}

/// Any number or infinity.
template <class Scalar>
void check_no_nan(std::string_view name, const TokenView<const Scalar>& view, const TokenRun& run) {
  check_each(name, view, run, "a number", [](Scalar x) { return x == x; });
}

}  // namespace linrec
