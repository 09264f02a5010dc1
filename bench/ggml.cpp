// The same recurrences by ggml's CPU operations, on the same inputs, in one process and one thread. Built
// where CMake finds ggml. Names are Peer/LIBRARY/KERNEL/prefill|step|decode24/SHAPE/T/float; LIBRARY is
//   linrec         the kernel without a taper, sizes known at run time;
//   ggml           its operation, and for T = 1 the copy of the new state to where the old one was, since the
//                  operation writes elsewhere;
//   ggml_op_alone  its operation without that copy, for T = 1: less than what a decoder needs.
// What is timed of ggml is ggml_graph_compute of a prepared graph in a thread pool of one. Each run first
// holds outputs and states of both against each other, and fails if they differ.
#include <ggml-cpu.h>
#include <ggml.h>

#include <array>
#include <functional>
#include <memory>

#include "harness.hpp"

namespace linrec::bench {

namespace {

/// ggml tensors over memory of ours, and the graph of all results asked for.
class Graph {
 public:
  explicit Graph(std::size_t nodes)
      : context_(ggml_init({.mem_size = (nodes + 64) * 4 * ggml_tensor_overhead() + ggml_graph_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true})),
        graph_(ggml_new_graph(context_.get())) {
    ggml_threadpool_params params = ggml_threadpool_params_default(1);
    pool_.reset(ggml_threadpool_new(&params));
  }

  ggml_context* context() const { return context_.get(); }

  /// A tensor whose numbers lie elsewhere; extents innermost first, as ggml has them.
  ggml_tensor* at(const void* numbers, std::array<std::int64_t, 4> extents, ggml_type type = GGML_TYPE_F32) {
    ggml_tensor* tensor = ggml_new_tensor(context(), type, 4, extents.data());
    tensor->data = const_cast<void*>(numbers);
    return tensor;
  }
  /// A view of ours [1, T, H, D], seen by ggml as [D, H, T].
  ggml_tensor* at(const TokenView<const float>& view) {
    return at(view.data(0, 0, 0), {view.dim(), view.heads(), view.tokens(), 1});
  }
  /// The same with f applied to each number.
  template <class F>
  ggml_tensor* map(const TokenView<const float>& view, F&& f) {
    float* numbers = new_numbers(view.size());
    std::transform(view.data(0, 0, 0), view.data(0, 0, 0) + view.size(), numbers, f);
    return at(TokenView<const float>(numbers, 1, view.tokens(), view.heads(), view.dim()));
  }
  float* new_numbers(Index n) { return storage_.emplace_back(static_cast<std::size_t>(n)).data(); }

  void ask_for(ggml_tensor* result) { ggml_build_forward_expand(graph_, result); }
  /// After the last ask_for.
  void plan() {
    plan_ = ggml_graph_plan(graph_, 1, pool_.get());
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }
  bool compute() { return ggml_graph_compute(graph_, &plan_) == GGML_STATUS_SUCCESS; }

 private:
  struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
    void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
  };
  std::unique_ptr<ggml_context, Free> context_;
  std::unique_ptr<ggml_threadpool, Free> pool_;
  ggml_cgraph* graph_;
  ggml_cplan plan_{};
  std::vector<std::uint8_t> work_;
  std::deque<AlignedVector<float>> storage_;  // never moves what it holds
};

/// From a state to the operation's result, [T, H, V] outputs and then the new state.
using Operation = std::function<ggml_tensor*(float* state)>;

// ---- the kernels: ours, inputs that both can have, and ggml's operation on them ------------------------------

struct Mamba2Peer {
  using Kernel = Mamba2<float>;
  static constexpr const char* name = "Mamba2";
  static constexpr const char* shape = "24x64x128";
  static constexpr double flops = 4;
  static constexpr bool key_innermost = true;  // in ggml's states
  static constexpr Index heads = 24, key = 128, value = 64;

  Eigen::ArrayXd log_rates = geometric_log_rates(heads, 1, 16);
  Kernel kernel{Dims<>(heads, key, value), FreeSpectrum(log_rates), NoTaper(), {.dt_softplus = true}};

  Kernel::Inputs inputs(Tensors<float>& t, Index T) const {
    return {.x = t.uniform(T, heads, value, -1, 1),
            .dt = t.uniform(T, heads, 1, -6.9, -2.25),  // softplus makes 0.001 to 0.1 of it
            .B = t.uniform(T, 1, key, -1, 1),
            .C = t.uniform(T, 1, key, -1, 1)};
  }
  Operation operation(Graph& g, const Kernel::Inputs& in) const {
    float* rates = g.new_numbers(heads);
    for (Index h = 0; h < heads; ++h) rates[h] = static_cast<float>(-std::exp(log_rates[h]));
    float* first = g.new_numbers(1);  // holds the int32 0: the number of the sequence
    *first = 0;
    return [&g, x = g.at(in.x), dt = g.at(in.dt.data(0, 0, 0), {heads, in.dt.tokens(), 1, 1}),
            A = g.at(rates, {1, heads, 1, 1}), B = g.at(in.B), C = g.at(in.C),
            ids = g.at(first, {1, 1, 1, 1}, GGML_TYPE_I32)](float* state) {
      return ggml_ssm_scan(g.context(), g.at(state, {key, value, heads, 1}), x, dt, A, B, C, ids, 1);
    };
  }
};

/// Ours also makes decays of logits and normalises the removal key; ggml's operation gets them ready-made.
struct RWKV7Peer {
  using Kernel = RWKV7<float>;
  static constexpr const char* name = "RWKV7";
  static constexpr const char* shape = "12x64x64";
  static constexpr double flops = 8;
  static constexpr bool key_innermost = true;
  static constexpr Index heads = 12, key = 64, value = 64;

  Kernel kernel{Dims<>(heads, key, value)};

  Kernel::Inputs inputs(Tensors<float>& t, Index T) const {
    return {.r = t.uniform(T, heads, key, -1, 1),
            .k = t.uniform(T, heads, key, -1, 1),
            .v = t.uniform(T, heads, value, -1, 1),
            .kk = t.uniform(T, heads, key, -1, 1),
            .iclr = t.uniform(T, heads, key, 0, 1),
            .w_logit = t.uniform(T, heads, key, -6, 0)};
  }
  Operation operation(Graph& g, const Kernel::Inputs& in) const {
    const auto decay = [](float logit) { return std::exp(-std::exp(-0.5F) / (1 + std::exp(-logit))); };
    const Index T = in.kk.tokens();
    float* a = g.new_numbers(in.kk.size());
    float* b = g.new_numbers(in.kk.size());
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < heads; ++h) {
        const Index row = (t * heads + h) * key;
        Eigen::Map<Eigen::VectorXf> to_a(a + row, key), to_b(b + row, key);
        to_a = -in.kk.at(0, t, h).normalized();
        to_b = -to_a.cwiseProduct(in.iclr.at(0, t, h));
      }
    return [&g, r = g.at(in.r), w = g.map(in.w_logit, decay), k = g.at(in.k), v = g.at(in.v),
            a = g.at(a, {key, heads, T, 1}), b = g.at(b, {key, heads, T, 1})](float* state) {
      return ggml_rwkv_wkv7(g.context(), r, w, k, v, a, b, g.at(state, {key * value * heads, 1, 1, 1}));
    };
  }
};

/// Ours also takes the exponential of the log-decays.
struct GLAPeer {
  using Kernel = GLA<float>;
  static constexpr const char* name = "GLA";
  static constexpr const char* shape = "4x128x128";
  static constexpr double flops = 4;
  static constexpr bool key_innermost = false;
  static constexpr Index heads = 4, key = 128, value = 128;

  Kernel kernel{Dims<>(heads, key, value)};

  Kernel::Inputs inputs(Tensors<float>& t, Index T) const {
    return {.q = t.uniform(T, heads, key, -1, 1),
            .k = t.uniform(T, heads, key, -1, 1),
            .v = t.uniform(T, heads, value, -1, 1),
            .gk = t.uniform(T, heads, key, -0.1, 0)};
  }
  Operation operation(Graph& g, const Kernel::Inputs& in) const {
    return [&g, k = g.at(in.k), v = g.at(in.v), q = g.at(in.q),
            w = g.map(in.gk, [](float x) { return std::exp(x); }), scale = kernel.scale()](float* state) {
      return ggml_gated_linear_attn(g.context(), k, v, q, w, g.at(state, {key * value * heads, 1, 1, 1}),
                                    scale);
    };
  }
};

/// Keys come normalised, so that neither has to do it.
struct GatedDeltaNetPeer {
  using Kernel = GatedDeltaNet<float>;
  static constexpr const char* name = "GatedDeltaNet";
  static constexpr const char* shape = "16x128x128";
  static constexpr double flops = 8;
  static constexpr bool key_innermost = true;
  static constexpr Index heads = 16, key = 128, value = 128;

  Kernel kernel{Dims<>(heads, key, value)};

  Kernel::Inputs inputs(Tensors<float>& t, Index T) const {
    const TokenView<const float> k = t.uniform(T, heads, key, -1, 1);
    for (Index i = 0; i < T * heads; ++i)
      Eigen::Map<Eigen::VectorXf>(const_cast<float*>(k.data(0, 0, 0)) + i * key, key).normalize();
    return {.q = t.uniform(T, heads, key, -1, 1),
            .k = k,
            .v = t.uniform(T, heads, value, -1, 1),
            .g = t.uniform(T, heads, 1, -0.1, 0),
            .beta = t.uniform(T, heads, 1, 0, 1)};
  }
  Operation operation(Graph& graph, const Kernel::Inputs& in) const {
    const Index T = in.g.tokens();
    return [&graph, q = graph.at(in.q), k = graph.at(in.k), v = graph.at(in.v),
            g = graph.at(in.g.data(0, 0, 0), {1, heads, T, 1}),
            beta = graph.at(in.beta.data(0, 0, 0), {1, heads, T, 1})](float* state) {
      return ggml_gated_delta_net(graph.context(), q, k, v, g, beta, graph.at(state, {key, value, heads, 1}),
                                  1);
    };
  }
};

// ---- both of them, side by side ------------------------------------------------------------------------------

enum class Library { linrec, ggml, ggml_op_alone };

/// A problem of T tokens for each of several states, set up for both libraries.
template <class Peer>
class Comparison {
  using Kernel = typename Peer::Kernel;
  static constexpr Index outputs_of_token = Peer::heads * Peer::value;
  static constexpr Index numbers_of_state = Peer::heads * Peer::key * Peer::value;

 public:
  Comparison(Index tokens, Index states, bool keep_states)
      : tokens_(tokens),
        inputs_(peer_.inputs(tensors_, tokens)),
        states_(static_cast<std::size_t>(states), peer_.kernel.initial_state(1)),
        outputs_(static_cast<std::size_t>(tokens * outputs_of_token)),
        graph_(static_cast<std::size_t>(states)),
        // One for all states, as ggml's own allocator would do.
        result_(graph_.new_numbers(tokens * outputs_of_token + numbers_of_state)) {
    const Operation operation = peer_.operation(graph_, inputs_);
    for (auto& state : states_) {
      float* numbers = graph_.new_numbers(numbers_of_state);
      set_random(state, numbers);
      ggml_tensor* result = operation(numbers);
      result->data = result_;
      graph_.ask_for(result);
      if (!keep_states) continue;
      ggml_tensor* moved_on =
          ggml_view_1d(graph_.context(), result, numbers_of_state,
                       static_cast<std::size_t>(tokens * outputs_of_token) * sizeof(float));
      ggml_tensor* old = graph_.at(numbers, {numbers_of_state, 1, 1, 1});
      graph_.ask_for(ggml_cpy(graph_.context(), moved_on, old));
    }
    graph_.plan();
  }

  const Kernel& kernel() const { return peer_.kernel; }

  void run_linrec() {
    const TokenView<float> outputs(outputs_.data(), 1, tokens_, Peer::heads, Peer::value);
    for (auto& state : states_) {
      if (tokens_ == 1)
        peer_.kernel.step(inputs_, state, outputs);
      else
        peer_.kernel.prefill(inputs_, state, outputs, {.workspace = &workspace_});
    }
  }
  bool run_ggml() { return graph_.compute(); }

  /// Runs both once. @returns the largest difference of outputs, or of numbers of the last state, over the
  /// largest of them.
  double difference() {
    run_linrec();
    if (!run_ggml()) return std::numeric_limits<double>::infinity();
    const Index outputs = tokens_ * outputs_of_token;
    const Eigen::Map<const Eigen::VectorXf> y(outputs_.data(), outputs), z(result_, outputs);
    double worst = relative(y, z);
    for (Index h = 0; h < Peer::heads; ++h)
      worst = std::max(worst, relative(states_.back().matrix(0, h), in_ggml(result_ + outputs, h)));
    return worst;
  }

 private:
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  /// S [K, V] of a head as ggml has it: with key_innermost it keeps the transpose.
  static auto in_ggml(float* state, Index head) {
    constexpr Index row = Peer::key_innermost ? 1 : Peer::value, column = Peer::key_innermost ? Peer::key : 1;
    using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
    return Eigen::Map<RowMajor, 0, Strides>(state + head * Peer::key * Peer::value, Peer::key, Peer::value,
                                            Strides(row, column));
  }
  void set_random(typename Kernel::State& state, float* numbers) {
    for (Index h = 0; h < Peer::heads; ++h) {
      in_ggml(numbers, h) = tensors_.uniform(1, Peer::key, Peer::value, -1, 1).heads(0, 0);
      state.set_matrix(0, h, in_ggml(numbers, h));
    }
  }
  template <class X, class Y>
  static double relative(const X& x, const Y& y) {
    const double difference = (x - y).cwiseAbs().maxCoeff(), largest = y.cwiseAbs().maxCoeff();
    return std::isfinite(difference) ? difference / largest : std::numeric_limits<double>::infinity();
  }

  Peer peer_;
  Tensors<float> tensors_;
  Index tokens_;
  typename Kernel::Inputs inputs_;
  std::vector<typename Kernel::State> states_;
  AlignedVector<float> outputs_;
  Workspace workspace_;
  Graph graph_;
  float* result_;
};

template <class Peer>
void run(benchmark::State& run, Library library, Index tokens, Index states) {
  constexpr double tolerance = 1e-4;
  Comparison<Peer> both(tokens, states, library != Library::ggml_op_alone && tokens == 1);
  const double difference = both.difference();
  if (!(difference <= tolerance)) {
    run.SkipWithError(message("ggml and linrec differ by ", difference, " of the largest number").c_str());
    return;
  }
  for (auto _ : run) {
    if (library == Library::linrec)
      both.run_linrec();
    else
      both.run_ggml();
    benchmark::ClobberMemory();
  }
  count(run, both.kernel(), Peer::flops, tokens * states, states);
  run.counters["difference"] = difference;
}

template <class Peer>
void add_peer() {
  const auto add = [](const char* name, Library library, const char* what, Index tokens, Index states) {
    add_benchmark(message("Peer/", name, "/", Peer::name, "/", what, "/", Peer::shape, "/", tokens, "/float"),
                  [=](benchmark::State& state) { run<Peer>(state, library, tokens, states); });
  };
  const std::string decode = message("decode", decode_layers);
  for (const auto& [name, library] : {std::pair("linrec", Library::linrec),
                                      {"ggml", Library::ggml},
                                      {"ggml_op_alone", Library::ggml_op_alone}}) {
    if (library != Library::ggml_op_alone) add(name, library, "prefill", 2048, 1);
    add(name, library, "step", 1, 1);
    add(name, library, decode.c_str(), 1, decode_layers);
  }
}

}  // namespace

void add_ggml() {
  ggml_cpu_init();
  add_peer<Mamba2Peer>();
  add_peer<RWKV7Peer>();
  add_peer<GLAPeer>();
  add_peer<GatedDeltaNetPeer>();
}

}  // namespace linrec::bench
