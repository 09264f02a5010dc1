// What the benchmarks of all kernels share: inputs, machine limits measured in this process, names and
// counters.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "linrec/linrec.hpp"
#include "machine.hpp"

namespace linrec::bench {

/// Random tensors and views of them.
template <class Scalar>
class Tensors {
 public:
  TokenView<const Scalar> uniform(Index tokens, Index heads, Index dim, double low, double high) {
    AlignedVector<Scalar>& x = storage_.emplace_back(static_cast<std::size_t>(tokens * heads * dim));
    for (Scalar& value : x)
      value = static_cast<Scalar>(low + (high - low) * 0x1p-53 * static_cast<double>(bits_() >> 11));
    return {x.data(), 1, tokens, heads, dim};
  }

 private:
  std::deque<AlignedVector<Scalar>> storage_;  // never moves what it holds
  // Quick, since inputs are made anew for each run of a benchmark. Only high bits are used.
  std::linear_congruential_engine<std::uint64_t, 6364136223846793005, 1442695040888963407, 0> bits_{1};
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

/// Bytes of one state, whatever it is stored in.
template <class Kernel>
double state_bytes(const Kernel& kernel) {
  return numbers(kernel) * sizeof(typename Kernel::State::StateScalar);
}

/// One step on each of so many states in turn is a decode: a model's layers, whose states leave the near
/// caches between two tokens.
constexpr Index decode_layers = 24;

/// us_per_token; useful_gflops; of_peak, the fraction of the FMA peak; of_stream, the fraction of a pure
/// read-modify-write stream over as much memory as all states (above 1 where they stay in a cache between
/// tokens).
/// @param tokens of an iteration, over all states
template <class Kernel>
void count(benchmark::State& run, const Kernel& kernel, double flops_per_state_number, Index tokens,
           Index states = 1) {
  using Scalar = typename Kernel::Scalar;
  const double tokens_done = static_cast<double>(run.iterations()) * static_cast<double>(tokens);
  const double gflops = tokens_done * numbers(kernel) * flops_per_state_number * 1e-9;
  const double bytes = state_bytes(kernel), all_bytes = bytes * static_cast<double>(states);
  const auto rate = [](double total) { return benchmark::Counter(total, benchmark::Counter::kIsRate); };
  run.counters["us_per_token"] =
      benchmark::Counter(tokens_done * 1e-6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  run.counters["useful_gflops"] = rate(gflops);
  run.counters["of_peak"] = rate(gflops / peak_gflops<Scalar>());
  run.counters["of_stream"] = rate(tokens_done * bytes / stream_bytes_per_second<Scalar>(all_bytes));
}

template <class Subject>
void run_prefill(benchmark::State& run, const Subject& subject, Index tokens,
                 PrefillMode mode = PrefillMode::fast) {
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
    subject.kernel.prefill(inputs, state, outputs, {.workspace = &workspace, .mode = mode});
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

template <class Subject>
void run_decode(benchmark::State& run, const Subject& subject) {
  using Kernel = std::decay_t<decltype(subject.kernel)>;
  using Scalar = typename Kernel::Scalar;
  const auto& dims = subject.kernel.dims();
  Tensors<Scalar> tensors;
  const auto inputs = subject.make_inputs(tensors, 1);  // for all layers: small beside a state
  AlignedVector<Scalar> out(static_cast<std::size_t>(dims.heads() * dims.value()));
  const TokenView<Scalar> outputs(out.data(), 1, 1, dims.heads(), dims.value());
  std::vector<typename Kernel::State> states(decode_layers, subject.kernel.initial_state(1));
  for (auto _ : run) {
    for (auto& state : states) subject.kernel.step(inputs, state, outputs);
    benchmark::ClobberMemory();
  }
  count(run, subject.kernel, subject.flops_per_state_number, decode_layers, decode_layers);
}

template <class Run>
void add_benchmark(const std::string& name, Run run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond);
}

/// Registers KERNEL/prefill/SHAPE/T/SCALAR/TAPER for T = 1, 16, 128, 2048, KERNEL/reproducible for T = 2048,
/// and KERNEL/step and KERNEL/decode24 with T = 1.
template <class Subject>
void add_variant(const std::string& kernel, const std::string& shape, const std::string& tail,
                 const Subject& subject) {
  for (const Index tokens : {1, 16, 128, 2048})
    add_benchmark(message(kernel, "/prefill/", shape, "/", tokens, tail),
                  [subject, tokens](benchmark::State& run) { run_prefill(run, subject, tokens); });
  add_benchmark(message(kernel, "/reproducible/", shape, "/2048", tail), [subject](benchmark::State& run) {
    run_prefill(run, subject, 2048, PrefillMode::reproducible);
  });
  add_benchmark(message(kernel, "/step/", shape, "/1", tail),
                [subject](benchmark::State& run) { run_step(run, subject); });
  add_benchmark(message(kernel, "/decode", decode_layers, "/", shape, "/1", tail),
                [subject](benchmark::State& run) { run_decode(run, subject); });
}

/// The variants of a kernel at H x K x V: float, with a taper ("/linear"), with sizes known at compile time
/// ("/fixed"), with a state of bfloat16 ("/bf16"), and double. make_subject is called as operator()<Scalar,
/// Taper, StateScalar>(dims).
template <int H, int K, int V, class MakeSubject>
void add(const std::string& kernel, const std::string& shape, MakeSubject make_subject) {
  const Dims<> dims(H, K, V);
  add_variant(kernel, shape, "/float/none", make_subject.template operator()<float, NoTaper, float>(dims));
  add_variant(kernel, shape, "/float/linear",
              make_subject.template operator()<float, LinearTaper, float>(dims));
  add_variant(kernel, shape, "/float/none/fixed",
              make_subject.template operator()<float, NoTaper, float>(Dims<H, K, V>()));
  add_variant(kernel, shape, "/float/none/bf16",
              make_subject.template operator()<float, NoTaper, BFloat16>(dims));
  add_variant(kernel, shape, "/double/none", make_subject.template operator()<double, NoTaper, double>(dims));
}

// One a file; main.cpp calls them.
void add_mamba2();
void add_rwkv7();
void add_gated_delta_net();
void add_gla();
void add_retnet();
void add_layers();
void add_ska();
void add_micro_kernel();
void add_ggml();  // only where ggml is installed
void add_threads();

}  // namespace linrec::bench
