// Threads: a kernel and a layer with 1 and with 2 threads of Eigen's pool. Names are
//   Threads/NAME/prefill|decode/SHAPE/T/threads:N
// Times are those of a clock on the wall. Only runs of one process, interleaved, say how much faster two are
// than one: --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include <memory>
#include <vector>

#include "harness.hpp"
#include "linrec/parallel/eigen_pool.hpp"

namespace linrec::bench {

namespace {

/// run(executor) does the work of `tokens` tokens.
template <class Run>
void add_both(const std::string& name, Index tokens, double flops, Run run) {
  for (const int threads : {1, 2})
    benchmark::RegisterBenchmark(
        message("Threads/", name, "/", tokens, "/threads:", threads).c_str(),
        [run, threads, tokens, flops](benchmark::State& state) {
          Eigen::ThreadPool pool(threads);  // with 1, all is in the calling thread
          const auto once = run();
          for (auto _ : state) {
            once(EigenPoolExecutor(pool));
            benchmark::ClobberMemory();
          }
          const double total = flops * static_cast<double>(tokens) * static_cast<double>(state.iterations());
          state.counters["useful_gflops"] = benchmark::Counter(total * 1e-9, benchmark::Counter::kIsRate);
        })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
}

void add_kernel(Index tokens) {
  const Index H = 24, K = 128, V = 64;
  add_both("Mamba2/prefill/24x64x128", tokens, 4.0 * static_cast<double>(H * K * V), [=] {
    const auto tensors = std::make_shared<Tensors<float>>();
    const Mamba2<float>::Inputs inputs{.x = tensors->uniform(tokens, H, V, -1, 1),
                                       .dt = tensors->uniform(tokens, H, 1, 0.001, 0.1),
                                       .B = tensors->uniform(tokens, 1, K, -1, 1),
                                       .C = tensors->uniform(tokens, 1, K, -1, 1)};
    const Mamba2<float> kernel(Dims<>(H, K, V), FreeSpectrum(geometric_log_rates(H, 1, 16)));
    const auto out = std::make_shared<AlignedVector<float>>(static_cast<std::size_t>(tokens * H * V));
    return [=, state = std::make_shared<State<float>>(kernel.initial_state()),
            workspace = std::make_shared<Workspace>()](const EigenPoolExecutor& executor) {
      static_cast<void>(tensors);  // which the inputs are views of
      kernel.prefill(inputs, *state, {out->data(), 1, tokens, H, V}, {.workspace = workspace.get()},
                     executor);
    };
  });
}

/// A layer of a Mamba-2 of 130 million parameters.
void add_layer(Index tokens) {
  Mamba2LayerConfig c;
  c.width = 768, c.heads = 24, c.head_dim = 64, c.state_size = 128;
  std::mt19937_64 bits(1);
  double count = 0;
  const auto random = [&](std::vector<Index> shape, float low = -0.05F, float high = 0.05F) {
    std::uniform_real_distribution<float> number(low, high);
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    std::vector<float> numbers(static_cast<std::size_t>(size));
    for (float& x : numbers) x = number(bits);
    count += static_cast<double>(size);
    return Parameter<float>(std::move(numbers), std::move(shape));
  };
  Mamba2LayerWeights<float> w;
  w.in_proj = random({c.inner() + c.conv_channels() + c.heads, c.width});
  w.conv1d = random({c.conv_channels(), 1, c.conv_width});
  w.dt_bias = random({c.heads}, -4, -2), w.D = random({c.heads}), w.norm = random({c.inner()}, 0.5F, 1.5F);
  w.out_proj = random({c.width, c.inner()});
  const FreeSpectrum spectrum(geometric_log_rates(c.heads, 1, 16));
  const auto layer = std::make_shared<const Mamba2Layer<float>>(c, w, spectrum);
  const double flops = 2 * count + 4.0 * static_cast<double>(c.inner() * c.state_size);
  add_both(message("Mamba2Layer/", tokens == 1 ? "decode" : "prefill", "/768"), tokens, flops, [=] {
    const auto tensors = std::make_shared<Tensors<float>>();
    const auto x = tensors->uniform(tokens, 1, layer->width(), -1, 1);
    const auto out =
        std::make_shared<AlignedVector<float>>(static_cast<std::size_t>(tokens * layer->width()));
    return [=, state = std::make_shared<LayerState<float>>(layer->initial_state()),
            workspace = std::make_shared<Workspace>()](const EigenPoolExecutor& executor) {
      static_cast<void>(tensors);
      layer->prefill(x, *state, {out->data(), 1, tokens, 1, layer->width()}, {.workspace = workspace.get()},
                     executor);
    };
  });
}

}  // namespace

void add_threads() {
  add_kernel(2048);
  add_layer(2048);
  add_layer(1);
}

}  // namespace linrec::bench
