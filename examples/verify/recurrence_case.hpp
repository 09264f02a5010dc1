// RecurrenceCase: what the cases of all recurrence kernels have in common, how their tensors become
// TokenViews, and how a kernel goes through them in each way.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "linrec/core/token_view.hpp"
#include "linrec/policy/taper.hpp"
#include "splits.hpp"
#include "state_values.hpp"

namespace linrec::verify {

/// The words of an architecture for the common things.
struct Names {
  const char *heads, *key, *value;  ///< the inputs whose shapes tell H (third extent), K and V (fourth)
  const char *key_letter, *value_letter;
  const char* output;
  Orientation orientation;
  const char* state_convention;  ///< what the option `state` may say
};

/// The numbers of an input, with a view on them.
template <class Scalar>
struct TokenTensor {
  std::vector<Scalar> numbers;
  TokenView<const Scalar> view;
};

template <class Scalar>
class RecurrenceCase {
 public:
  /// Takes the sizes from the tensors; sizes among the options must agree.
  RecurrenceCase(GoldenCase& file, const Names& names)
      : file_(file),
        names_(names),
        batch_(file.extent(names.heads, 0, 4)),
        tokens_(file.extent(names.heads, 1, 4)),
        dims_(file.extent(names.heads, 2, 4), file.extent(names.key, 3, 4), file.extent(names.value, 3, 4)),
        position_(file.count_or("position_offset", 0)) {
    file.check_size("B", batch_);
    file.check_size("T", tokens_);
    file.check_size(file.has_option("HV") ? "HV" : "H", dims_.heads());
    file.check_size(names.key_letter, dims_.key());
    file.check_size(names.value_letter, dims_.value());
    file.check_convention("state", names.state_convention);
  }

  GoldenCase& file() const { return file_; }
  const Dims<>& dims() const { return dims_; }
  Index tokens() const { return tokens_; }
  std::int64_t position() const { return position_; }

  /// The factor of the output, K^-1/2 unless the file says otherwise.
  double scale() const {
    const double scale = file_.number_or("scale", 1 / std::sqrt(static_cast<double>(dims_.key())));
    if (scale == 0) throw FormatError("option 'scale': expected a number other than 0, got 0");
    return scale;
  }

  /// @throws Unknown if the file asks for a factor of the output where there is none.
  void check_no_scale() const {
    if (file_.number_or("scale", 1) != 1)
      throw Unknown(message("option 'scale': expected 1, got '", file_.text("scale"), "'"));
  }

  /// An input [B, T, H, K].
  TokenTensor<Scalar> keys(const char* name) const {
    return read(name, dims_.heads(), dims_.key(), "H", names_.key_letter);
  }
  /// An input [B, T, H, V].
  TokenTensor<Scalar> values(const char* name) const {
    return read(name, dims_.heads(), dims_.value(), "H", names_.value_letter);
  }
  /// An input [B, T, G, K] with any number of groups that divides H.
  TokenTensor<Scalar> grouped_keys(const char* name) const {
    const Index groups = file_.extent(name, 2, 4);
    if (groups < 1 || dims_.heads() % groups != 0)
      throw FormatError(message("in.", name, ": expected a number of heads that divides ", dims_.heads(),
                                ", got ", groups));
    return read(name, groups, dims_.key(), "G", names_.key_letter);
  }
  /// An input [B, T, H].
  TokenTensor<Scalar> numbers(const char* name) const {
    const std::vector<Index> shape{batch_, tokens_, dims_.heads()};
    return own(file_.input(name, shape, "[B, T, H]"), dims_.heads(), 1);
  }

  /// Rates from log-decays in.NAME [H].
  FreeSpectrum rates(const char* name) const {
    const Eigen::ArrayXd log_decay = file_.vector(name, dims_.heads(), "H");
    for (Index h = 0; h < log_decay.size(); ++h)
      if (!(log_decay[h] <= 0) || !std::isfinite(log_decay[h]))
        throw FormatError(
            message("in.", name, "[", h, "]: expected a finite number of at most 0, got ", log_decay[h]));
    return FreeSpectrum::from_rates(-log_decay);
  }

  /// Calls f with the taper that the file asks for.
  template <class F>
  Results with_taper(F&& f) const {
    if (!file_.has_input("alpha")) return f(NoTaper());
    return f(GivenTaper(file_.vector("alpha", dims_.heads(), "H")));
  }

  /// Runs the kernel in the ways that are asked for.
  /// @param slice gives the kernel's inputs for `count` tokens from `first` on: slice(first, count).
  template <class Kernel, class Slice>
  Results run(const Kernel& kernel, const Request& request, const Slice& slice) const {
    const typename Kernel::State start = initial_state(kernel);
    file_.check_all_inputs_read();
    kernel.validate(slice(0, tokens_), start);
    Results results;
    for (const Way way : request.ways) {
      results.push_back({way, {}});
      for (const Split& split : splits_of(way, tokens_, request.seed))
        results.back().runs.push_back(run_split(kernel, start, slice, split));
    }
    return results;
  }

 private:
  TokenTensor<Scalar> read(const char* name, Index heads, Index dim, const char* head_letter,
                           const char* dim_letter) const {
    const std::string letters = message("[B, T, ", head_letter, ", ", dim_letter, "]");
    return own(file_.input(name, {batch_, tokens_, heads, dim}, letters), heads, dim);
  }
  TokenTensor<Scalar> own(const io::Tensor& tensor, Index heads, Index dim) const {
    TokenTensor<Scalar> result{tensor.template to<Scalar>(), {}};
    result.view = TokenView<const Scalar>(result.numbers.data(), batch_, tokens_, heads, dim);
    return result;
  }

  template <class Kernel>
  typename Kernel::State initial_state(const Kernel& kernel) const {
    using Matrix = typename Kernel::State::Matrix;
    auto state = kernel.initial_state(batch_);
    for (Index b = 0; b < batch_; ++b) state.set_position(b, position_);
    if (!file_.has_input("initial_state", "has_initial_state")) return state;
    const std::vector<Index> shape = state_values(state, names_.orientation).shape;
    const auto numbers = file_.input("initial_state", shape, "the state's shape").template to<Scalar>();
    for (Index i = 0; i < batch_ * dims_.heads(); ++i) {
      const Eigen::Map<const Matrix> s(numbers.data() + i * dims_.key() * dims_.value(), shape[2], shape[3]);
      if (names_.orientation == Orientation::key_value)
        state.set_matrix(i / dims_.heads(), i % dims_.heads(), s);
      else
        state.set_matrix(i / dims_.heads(), i % dims_.heads(), s.transpose());
    }
    return state;
  }

  /// Outputs are NaN before the run, so that one which is not written shows.
  template <class Kernel, class Slice>
  Outputs run_split(const Kernel& kernel, typename Kernel::State state, const Slice& slice,
                    const Split& split) const {
    const std::vector<Index> shape{batch_, tokens_, dims_.heads(), dims_.value()};
    std::vector<Scalar> numbers(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]),
                                std::numeric_limits<Scalar>::quiet_NaN());
    const TokenView<Scalar> o(numbers.data(), shape[0], shape[1], shape[2], shape[3]);
    for_each_call(
        split,
        [&](Index first, Index count) { kernel.prefill(slice(first, count), state, o.slice(first, count)); },
        [&](Index t) { kernel.step(slice(t, 1), state, o.slice(t, 1)); });
    return {{names_.output, {shape, std::vector<double>(numbers.begin(), numbers.end())}},
            {"final_state", state_values(state, names_.orientation)}};
  }

  GoldenCase& file_;
  Names names_;
  Index batch_, tokens_;
  Dims<> dims_;
  std::int64_t position_;
};

}  // namespace linrec::verify
