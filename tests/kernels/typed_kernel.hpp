// AnyKernel over a kernel type, and the factory of one scalar. Included by the files that instantiate.
#pragma once

#include <type_traits>

#include "linrec/kernels/delta_net.hpp"
#include "linrec/kernels/dplr.hpp"
#include "linrec/kernels/gla.hpp"
#include "linrec/kernels/linear_attention.hpp"
#include "linrec/kernels/retnet.hpp"
#include "linrec/kernels/rwkv7.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/kernels/any_kernel.hpp"

namespace linrec::test {

/// A taper policy of the user's own, around any function.
struct AnyTaper {
  std::function<Eigen::ArrayXd(const Eigen::ArrayXd&)> function = [](const Eigen::ArrayXd& p) {
    return Eigen::ArrayXd::Zero(p.size()).eval();
  };
  Eigen::ArrayXd exponents(const Eigen::ArrayXd& log_rates) const { return function(log_rates); }
};

/// A tensor in the kernel's scalar, at the same place in memory.
template <class Scalar>
struct Copy {
  std::vector<Scalar> numbers;
  std::array<Index, 4> extents;
  std::array<Index, 3> strides;

  explicit Copy(const Tensor& tensor) : extents(tensor.extents), strides(tensor.strides) {
    for (const double x : tensor.numbers) numbers.push_back(static_cast<Scalar>(x));
  }
  TokenView<Scalar> view() { return {numbers.data(), extents, strides}; }
  void back(Tensor& tensor) const {
    for (std::size_t i = 0; i < numbers.size(); ++i) tensor.numbers[i] = static_cast<double>(numbers[i]);
  }
};

/// The outputs of a call, which come back to the tensor even when it throws.
template <class Scalar>
struct CopyBack : Copy<Scalar> {
  Tensor& tensor;
  explicit CopyBack(Tensor& t) : Copy<Scalar>(t), tensor(t) {}
  CopyBack(const CopyBack&) = delete;
  CopyBack& operator=(const CopyBack&) = delete;
  ~CopyBack() { this->back(tensor); }
};

template <class State>
class TypedState final : public AnyState {
 public:
  explicit TypedState(State s) : state(std::move(s)) {}
  StatePointer clone() const override { return std::make_unique<TypedState>(state); }
  Index sequences() const override { return state.sequences(); }
  Index heads() const override { return state.dims().heads(); }
  std::int64_t position(Index b) const override { return state.position(b); }
  void set_position(Index b, std::int64_t position) override { state.set_position(b, position); }
  Eigen::MatrixXd matrix(Index b, Index h) const override {
    return state.matrix(b, h).template cast<double>();
  }
  void set_matrix(Index b, Index h, const Eigen::MatrixXd& s) override { state.set_matrix(b, h, s); }

  State state;
};

template <class Kernel>
class TypedKernel final : public AnyKernel {
  using Scalar = typename Kernel::Scalar;
  using State = typename Kernel::State;
  using KernelInputs = typename Kernel::Inputs;

 public:
  explicit TypedKernel(Kernel kernel) : kernel_(std::move(kernel)) {}

  StatePointer initial_state(Index sequences) const override {
    return std::make_unique<TypedState<State>>(kernel_.initial_state(sequences));
  }
  double scale() const override { return static_cast<double>(kernel_.scale()); }

  void validate(const Inputs& inputs, const AnyState& state, const SequenceLayout& layout) const override {
    auto copies = copies_of(inputs);
    kernel_.validate(views_of(copies), dynamic_cast<const TypedState<State>&>(state).state, layout);
  }
  void prefill(const Inputs& inputs, AnyState& state, Tensor& outputs, const Run& run) const override {
    auto copies = copies_of(inputs);
    CopyBack<Scalar> out(outputs);
    const PrefillOptions options{run.layout, run.workspace, run.mode};
    kernel_.prefill(views_of(copies), typed(state), out.view(), options, ThreadExecutor{run.threads});
  }
  void step(const Inputs& inputs, AnyState& state, Tensor& outputs) const override {
    auto copies = copies_of(inputs);
    CopyBack<Scalar> out(outputs);
    kernel_.step(views_of(copies), typed(state), out.view());
  }

 private:
  using Copies = std::vector<Copy<Scalar>>;
  static State& typed(AnyState& state) { return dynamic_cast<TypedState<State>&>(state).state; }
  static Copies copies_of(const Inputs& inputs) { return {inputs.begin(), inputs.end()}; }
  static KernelInputs views_of(Copies& copies) {
    constexpr std::size_t count = sizeof(KernelInputs) / sizeof(TokenView<const Scalar>);
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return KernelInputs{copies[I].view()...}; }
    (std::make_index_sequence<count>());
  }

  Kernel kernel_;
};

template <class Kernel, class... Arguments>
KernelPointer wrap(Arguments&&... arguments) {
  return std::make_unique<TypedKernel<Kernel>>(Kernel(std::forward<Arguments>(arguments)...));
}

/// Kernels without policies.
template <class Scalar, class Sizes>
KernelPointer make_without_policies(const Config& c, Sizes dims) {
  switch (c.architecture) {
    case Architecture::linear_attention:
      using LinearAttentionKernel = LinearAttention<Scalar, Sizes>;
      return c.scale == 0 ? wrap<LinearAttentionKernel>(dims) : wrap<LinearAttentionKernel>(dims, c.scale);
    case Architecture::delta_net:
      return c.scale == 0 ? wrap<DeltaNet<Scalar, Sizes>>(dims)
                          : wrap<DeltaNet<Scalar, Sizes>>(dims, c.scale);
    case Architecture::dplr:
      return c.scale == 0 ? wrap<DPLR<Scalar, Sizes>>(dims) : wrap<DPLR<Scalar, Sizes>>(dims, c.scale);
    default:
      return nullptr;
  }
}

/// The others, with one type of taper.
template <class Scalar, class Taper, class Sizes>
KernelPointer make_with_policies(const Config& c, const Taper& taper, Sizes dims) {
  const auto spectrum = [&] { return FreeSpectrum(c.log_rates); };
  const bool plain = c.log_rates.size() == 0;
  switch (c.architecture) {
    case Architecture::retnet:
      using RetNetKernel = RetNet<Scalar, FreeSpectrum, Taper, Sizes>;
      if (plain) return wrap<RetNetKernel>(dims);
      return c.scale == 0 ? wrap<RetNetKernel>(dims, spectrum(), taper)
                          : wrap<RetNetKernel>(dims, spectrum(), taper, c.scale);
    case Architecture::gla:
      using GLAKernel = GLA<Scalar, FreeSpectrum, Taper, Sizes>;
      if (plain) return wrap<GLAKernel>(dims);
      return c.scale == 0 ? wrap<GLAKernel>(dims, spectrum(), taper)
                          : wrap<GLAKernel>(dims, spectrum(), taper, c.scale);
    case Architecture::mamba2:
      return wrap<Mamba2<Scalar, FreeSpectrum, Taper, Sizes>>(dims, spectrum(), taper, c.mamba2_options);
    case Architecture::gated_delta_net: {
      using GatedDeltaNetKernel = GatedDeltaNet<Scalar, FreeSpectrum, Taper, Sizes>;
      GatedDeltaNetOptions options{.qk_l2norm = c.qk_l2norm};
      if (c.scale != 0) options.scale = c.scale;
      return plain ? wrap<GatedDeltaNetKernel>(dims, options)
                   : wrap<GatedDeltaNetKernel>(dims, spectrum(), taper, options);
    }
    case Architecture::rwkv7:
      using RWKV7Kernel = RWKV7<Scalar, FreeSpectrum, Taper, Sizes>;
      return plain ? wrap<RWKV7Kernel>(dims) : wrap<RWKV7Kernel>(dims, spectrum(), taper);
    default:
      return nullptr;
  }
}

template <class Scalar, class Sizes>
KernelPointer make_kernel_of(const Config& c) {
  const Sizes dims(c.H, c.K, c.V);
  if (KernelPointer kernel = make_without_policies<Scalar>(c, dims)) return kernel;
  // With fixed sizes there is one type only; its taper is zero unless the config has one.
  if constexpr (!std::is_same_v<Sizes, Dims<>>)
    return make_with_policies<Scalar>(c, c.taper ? AnyTaper{c.taper} : AnyTaper(), dims);
  else if (c.taper)
    return make_with_policies<Scalar>(c, AnyTaper{c.taper}, dims);
  else
    return make_with_policies<Scalar>(c, NoTaper(), dims);
}

}  // namespace linrec::test

// The classes themselves, whole; `prefill`, `step` and `validate` come with the factory.
#define LINREC_TEST_INSTANTIATE(Scalar, Sizes)           \
  template class linrec::State<Scalar, Sizes>;           \
  template class linrec::LinearAttention<Scalar, Sizes>; \
  template class linrec::DeltaNet<Scalar, Sizes>;        \
  template class linrec::DPLR<Scalar, Sizes>
#define LINREC_TEST_INSTANTIATE_WITH(Scalar, Taper, Sizes)                          \
  template class linrec::RetNet<Scalar, linrec::FreeSpectrum, Taper, Sizes>;        \
  template class linrec::GLA<Scalar, linrec::FreeSpectrum, Taper, Sizes>;           \
  template class linrec::Mamba2<Scalar, linrec::FreeSpectrum, Taper, Sizes>;        \
  template class linrec::GatedDeltaNet<Scalar, linrec::FreeSpectrum, Taper, Sizes>; \
  template class linrec::RWKV7<Scalar, linrec::FreeSpectrum, Taper, Sizes>
