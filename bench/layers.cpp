// Layers: the linear map alone, and whole layers of the sizes of small published models.
#include <memory>
#include <vector>

#include "harness.hpp"
#include "linrec/layers/linear.hpp"

namespace linrec::bench {

namespace {

/// Of a matrix of weights.
enum class Storage { as_float, bfloat16 };
const char* name_of(Storage storage) { return storage == Storage::as_float ? "/float" : "/bf16"; }

class Weights {
 public:
  explicit Weights(Storage storage = Storage::as_float) : storage_(storage) {}

  Parameter<float> operator()(std::vector<Index> shape, float low = -0.05F, float high = 0.05F) {
    std::uniform_real_distribution<float> number(low, high);
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    std::vector<float> numbers(static_cast<std::size_t>(size));
    for (float& x : numbers) x = number(bits_);
    weights_ += static_cast<double>(size);
    bytes_ += static_cast<double>(size) * sizeof(float);
    return {std::move(numbers), std::move(shape)};
  }
  /// Of a linear map.
  Parameter<float> matrix(Index outputs, Index inputs) {
    const Parameter<float> plain = (*this)({outputs, inputs});
    if (storage_ == Storage::as_float) return plain;
    bytes_ -= static_cast<double>(plain.size()) * (sizeof(float) - sizeof(BFloat16));
    return plain.narrowed();
  }
  double count() const { return weights_; }
  double bytes() const { return bytes_; }

 private:
  Storage storage_;
  std::mt19937_64 bits_{1};
  double weights_ = 0, bytes_ = 0;
};

void count(benchmark::State& run, double flops, double weight_bytes) {
  const auto rate = [&](double each) {
    return benchmark::Counter(each * static_cast<double>(run.iterations()), benchmark::Counter::kIsRate);
  };
  run.counters["useful_gflops"] = rate(flops * 1e-9);
  run.counters["of_peak"] = rate(flops * 1e-9 / peak_gflops<float>());
  run.counters["weights_gb_per_s"] = rate(weight_bytes * 1e-9);
}

void add_linear(Index width, Storage storage) {
  Weights weights(storage);
  const auto linear = std::make_shared<const Linear<float>>("w", width, width, weights.matrix(width, width));
  const double bytes = weights.bytes();
  for (const Index rows : {1, 16, 64})
    benchmark::RegisterBenchmark(
        message("Linear/rows/", width, "x", width, "/", rows, name_of(storage)).c_str(),
        [linear, width, rows, bytes](benchmark::State& run) {
          Tensors<float> tensors;
          const auto x = tensors.uniform(rows, 1, width, -1, 1);
          const auto y = tensors.uniform(rows, 1, width, -1, 1);
          const Rows<const float> in{x.data(0, 0, 0), rows, width, width};
          const Rows<float> out{const_cast<float*>(y.data(0, 0, 0)), rows, width, width};
          for (auto _ : run) {
            linear->apply(in, out);
            benchmark::ClobberMemory();
          }
          const double n = static_cast<double>(width * width);
          count(run, 2 * n * static_cast<double>(rows), bytes);
        })
        ->Unit(benchmark::kMicrosecond);
}

/// @param flops of the kernel, for a token
template <class SequenceLayer>
void add_layer(const std::string& name, const std::shared_ptr<const SequenceLayer>& layer, double flops,
               const Weights& weights, Storage storage) {
  flops += 2 * weights.count();
  const double bytes = weights.bytes();
  for (const Index tokens : {1, 512})
    benchmark::RegisterBenchmark(
        message(name, tokens == 1 ? "/step/" : "/prefill/", layer->width(), "/", tokens, name_of(storage))
            .c_str(),
        [layer, tokens, flops, bytes](benchmark::State& run) {
          const Index width = layer->width();
          Tensors<float> tensors;
          const auto x = tensors.uniform(tokens, 1, width, -1, 1);
          AlignedVector<float> out(static_cast<std::size_t>(tokens * width)), values(out);
          const TokenView<float> y(out.data(), 1, tokens, 1, width), v(values.data(), 1, tokens, 1, width);
          auto state = layer->initial_state();
          Workspace workspace;
          for (auto _ : run) {
            if constexpr (requires { layer->step(x, v, state, y); }) {
              if (tokens == 1)
                layer->step(x, v, state, y);
              else
                layer->prefill(x, v, state, y, {.workspace = &workspace});
            } else {
              if (tokens == 1)
                layer->step(x, state, y);
              else
                layer->prefill(x, state, y, {.workspace = &workspace});
            }
            benchmark::ClobberMemory();
          }
          count(run, flops * static_cast<double>(tokens), bytes);
        })
        ->Unit(benchmark::kMicrosecond);
}

/// A layer of a Mamba-2 of 130 million parameters.
void add_mamba2_layer(Storage storage) {
  Mamba2LayerConfig c;
  c.width = 768, c.heads = 24, c.head_dim = 64, c.state_size = 128;
  Weights w(storage);
  Mamba2LayerWeights<float> weights;
  weights.in_proj = w.matrix(c.inner() + c.conv_channels() + c.heads, c.width);
  weights.conv1d = w({c.conv_channels(), 1, c.conv_width});
  weights.dt_bias = w({c.heads}, -4, -2), weights.D = w({c.heads}), weights.norm = w({c.inner()}, 0.5F, 1.5F);
  weights.out_proj = w.matrix(c.width, c.inner());
  const double kernel = 4.0 * static_cast<double>(c.inner() * c.state_size);
  add_layer("Mamba2Layer",
            std::make_shared<const Mamba2Layer<float>>(c, weights,
                                                       FreeSpectrum(geometric_log_rates(c.heads, 1, 16))),
            kernel, w, storage);
}

/// Time mixing of an RWKV-7 of 0.1 billion parameters.
void add_rwkv7_time_mix(Storage storage) {
  RWKV7TimeMixConfig c;
  c.width = 768, c.heads = 12, c.key = c.value = 64;
  Weights w(storage);
  const Index d = c.width;
  const auto low_rank = [&](Index rank, bool bias) {
    return LowRankWeights<float>{w.matrix(rank, d), w.matrix(d, rank), bias ? w({d}) : Parameter<float>()};
  };
  RWKV7TimeMixWeights<float> weights;
  for (Parameter<float>* mu :
       {&weights.x_r, &weights.x_w, &weights.x_k, &weights.x_v, &weights.x_a, &weights.x_g})
    *mu = w({d}, 0, 1);
  weights.r_proj = w.matrix(d, d), weights.k_proj = w.matrix(d, d), weights.v_proj = w.matrix(d, d),
  weights.o_proj = w.matrix(d, d);
  weights.w_lora = low_rank(64, false), weights.a_lora = low_rank(64, true);
  weights.v_lora = low_rank(32, true), weights.g_lora = low_rank(128, false);
  weights.k_k = w({d}), weights.k_a = w({d}), weights.r_k = w({c.heads, c.key});
  weights.g_norm = w({d}), weights.g_norm_bias = w({d});
  const double kernel = 8.0 * static_cast<double>(d * c.key);
  add_layer("RWKV7TimeMix",
            std::make_shared<const RWKV7TimeMix<float>>(c, weights, FreeSpectrum(Eigen::ArrayXd::Zero(d))),
            kernel, w, storage);
}

}  // namespace

void add_layers() {
  for (const Storage storage : {Storage::as_float, Storage::bfloat16}) {
    for (const Index width : {768, 2048, 4096}) add_linear(width, storage);
    add_mamba2_layer(storage);
    add_rwkv7_time_mix(storage);
  }
}

}  // namespace linrec::bench
