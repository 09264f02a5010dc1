// What the benchmarks of all kernels share: inputs, machine limits measured in this process, names and
// counters.
#pragma once

#include <benchmark/benchmark.h>

#include <deque>
#include <random>
#include <string>

#include "linrec/linrec.hpp"
#include "machine.hpp"

namespace linrec::bench {

/// Random tensors and views of them.
template <class Scalar>
class Tensors {
 public:
  TokenView<const Scalar> uniform(Index tokens, Index heads, Index dim, double low, double high) {
    std::uniform_real_distribution<double> number(low, high);
    AlignedVector<Scalar>& x = storage_.emplace_back(static_cast<std::size_t>(tokens * heads * dim));
    for (Scalar& value : x) value = static_cast<Scalar>(number(bits_));
    return {x.data(), 1, tokens, heads, dim};
  }

 private:
  std::deque<AlignedVector<Scalar>> storage_;  // never moves what it holds
  std::mt19937_64 bits_{1};
};

/// A kernel at one size, and how to make inputs for it.
template <class Kernel, class MakeInputs>
struct Subject {
  Kernel kernel;
  MakeInputs make_inputs;         ///< (tensors, tokens) -> Kernel::Inputs
  double flops_per_state_number;  ///< useful flops a token: this times H K V
};

template <class Kernel>
double numbers(const Kernel& kernel) {
  return static_cast<double>(kernel.dims().heads() * kernel.dims().key() * kernel.dims().value());
}

/// useful_gflops; of_peak, the fraction of the FMA peak; of_stream, the fraction of a pure read-modify-write
/// stream over as much memory as the state (above 1 where the state stays in a cache between tokens).
template <class Kernel>
void count(benchmark::State& run, const Kernel& kernel, double flops_per_state_number, Index tokens) {
  using Scalar = typename Kernel::Scalar;
  const double state_numbers = numbers(kernel);
  const double tokens_done = static_cast<double>(run.iterations()) * static_cast<double>(tokens);
  const double gflops = tokens_done * state_numbers * flops_per_state_number * 1e-9;
  const double bytes = state_numbers * sizeof(Scalar);
  const auto rate = [](double total) { return benchmark::Counter(total, benchmark::Counter::kIsRate); };
  run.counters["useful_gflops"] = rate(gflops);
  run.counters["of_peak"] = rate(gflops / peak_gflops<Scalar>());
  run.counters["of_stream"] = rate(tokens_done * bytes / stream_bytes_per_second<Scalar>(bytes));
}

template <class Subject>
void run_prefill(benchmark::State& run, const Subject& subject, Index tokens) {
  using Kernel = std::decay_t<decltype(subject.kernel)>;
  using Scalar = typename Kernel::Scalar;
  const auto& dims = subject.kernel.dims();
  Tensors<Scalar> tensors;
  const auto inputs = subject.make_inputs(tensors, tokens);
  AlignedVector<Scalar> out(static_cast<std::size_t>(tokens * dims.heads() * dims.value()));
  const TokenView<Scalar> outputs(out.data(), 1, tokens, dims.heads(), dims.value());
  auto state = subject.kernel.initial_state(1);
  Workspace workspace;
  for (auto _ : run) {
    subject.kernel.prefill(inputs, state, outputs, {.workspace = &workspace});
    benchmark::ClobberMemory();
  }
  count(run, subject.kernel, subject.flops_per_state_number, tokens);
}

template <class Subject>
void run_step(benchmark::State& run, const Subject& subject) {
  using Kernel = std::decay_t<decltype(subject.kernel)>;
  using Scalar = typename Kernel::Scalar;
  const auto& dims = subject.kernel.dims();
  Tensors<Scalar> tensors;
  const auto inputs = subject.make_inputs(tensors, 1);
  AlignedVector<Scalar> out(static_cast<std::size_t>(dims.heads() * dims.value()));
  const TokenView<Scalar> outputs(out.data(), 1, 1, dims.heads(), dims.value());
  auto state = subject.kernel.initial_state(1);
  for (auto _ : run) {
    subject.kernel.step(inputs, state, outputs);
    benchmark::ClobberMemory();
  }
  count(run, subject.kernel, subject.flops_per_state_number, 1);
}

/// Registers KERNEL/prefill/SHAPE/T/SCALAR/TAPER for T = 1, 16, 128, 2048 and
/// KERNEL/step/SHAPE/1/SCALAR/TAPER.
template <class Subject>
void add_variant(const std::string& kernel, const std::string& shape, const std::string& tail,
                 const Subject& subject) {
  for (const Index tokens : {1, 16, 128, 2048})
    benchmark::RegisterBenchmark(
        (kernel + "/prefill/" + shape + "/" + std::to_string(tokens) + tail).c_str(),
        [subject, tokens](benchmark::State& run) { run_prefill(run, subject, tokens); })
        ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((kernel + "/step/" + shape + "/1" + tail).c_str(), [subject](
                                                                                      benchmark::State& run) {
    run_step(run, subject);
  })->Unit(benchmark::kMicrosecond);
}

/// All variants of a kernel at H x K x V: float and double, without and with a taper, sizes known at run time
/// or ("/fixed") at compile time. make_subject is called as operator()<Scalar, Taper>(dims).
template <int H, int K, int V, class MakeSubject>
void add(const std::string& kernel, const std::string& shape, MakeSubject make_subject) {
  const auto variant = [&]<class Scalar, class Taper>() {
    const std::string tail = std::string(sizeof(Scalar) == 4 ? "/float" : "/double") +
                             (std::is_same_v<Taper, NoTaper> ? "/none" : "/linear");
    add_variant(kernel, shape, tail, make_subject.template operator()<Scalar, Taper>(Dims<>(H, K, V)));
    add_variant(kernel, shape, tail + "/fixed",
                make_subject.template operator()<Scalar, Taper>(Dims<H, K, V>()));
  };
  variant.template operator()<float, NoTaper>();
  variant.template operator()<float, LinearTaper>();
  variant.template operator()<double, NoTaper>();
  variant.template operator()<double, LinearTaper>();
}

// One a file; main.cpp calls them.
void add_mamba2();
void add_rwkv7();
void add_gated_delta_net();
void add_gla();
void add_retnet();
void add_layers();
void add_ska();
void add_threads();

}  // namespace linrec::bench
