#include "tests/parallel/contract.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "linrec/kernels/gated_delta_net.hpp"
#include "tests/catch.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/kernels/tensor.hpp"
#include "tests/layers/layer_spec.hpp"

namespace linrec::test {

namespace {

constexpr double heavy = 1e9, light = 1;

/// Counts calls, and sees a worker that has two items at a time. Catch's macros are for one thread only.
class Watch {
 public:
  Watch(Index n, Index workers)
      : workers_(workers), calls_(static_cast<std::size_t>(n)), busy_(static_cast<std::size_t>(workers)) {}

  template <class F>
  void item(Index i, Index worker, F&& f) {
    if (worker < 0 || worker >= workers_) {
      wrong_ = true;
      return;
    }
    const auto w = static_cast<std::size_t>(worker);
    if (busy_[w].exchange(true)) wrong_ = true;
    f();
    ++calls_[static_cast<std::size_t>(i)];
    busy_[w] = false;
  }
  /// Whether each item ran once.
  bool right() const {
    for (const std::atomic<int>& calls : calls_)
      if (calls != 1) return false;
    return !wrong_;
  }

 private:
  Index workers_;
  std::vector<std::atomic<int>> calls_;
  std::vector<std::atomic<bool>> busy_;
  std::atomic<bool> wrong_ = false;
};

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

template <class F>
bool runs_each_once(const ExecutorRef& executor, Index n, double cost, F&& body) {
  Watch watch(n, executor.concurrency());
  executor.for_each(n, cost, [&](Index i, Index worker) { watch.item(i, worker, body); });
  return watch.right();
}
bool runs_each_once(const ExecutorRef& executor, Index n, double cost) {
  return runs_each_once(executor, n, cost, pause);
}

/// Where two threads meet. A thread that is alone waits, not for ever only since an executor may be at fault.
class Meeting {
 public:
  explicit Meeting(long patience = 50'000'000) : patience_(patience) {}

  void wait() {
    if (++inside_ == 2) met_ = true;
    for (long waited = 0; !met_ && waited < patience_; ++waited) std::this_thread::yield();
    --inside_;
  }
  bool met() const { return met_; }

 private:
  long patience_;
  std::atomic<int> inside_ = 0;
  std::atomic<bool> met_ = false;
};

/// Whether each item of both levels ran once; a thread that waits in an item takes no other of its level.
bool runs_nested(const ExecutorRef& executor, Index n) {
  Watch outer(n, executor.concurrency());
  std::atomic<bool> right = true;
  executor.for_each(n, heavy, [&](Index i, Index worker) {
    outer.item(i, worker, [&] {
      if (!runs_each_once(executor, n, heavy)) right = false;
    });
  });
  return right && outer.right();
}

/// Whether two threads were ever inside items at the same time.
bool runs_in_two_threads(const ExecutorRef& executor, Meeting&& meeting = Meeting()) {
  executor.for_each(2, least_parallel_flops / 2, [&](Index, Index) { meeting.wait(); });
  return meeting.met();
}

/// Whether everything ran here, in order, as worker 0.
bool runs_here(const ExecutorRef& executor, Index n, double cost) {
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> right = true;
  std::atomic<Index> next = 0;
  executor.for_each(n, cost, [&](Index i, Index worker) {
    if (std::this_thread::get_id() != here || worker != 0 || i != next++) right = false;
  });
  return right && next == n;
}

/// What reaches the caller if some items throw.
std::string thrown(const ExecutorRef& executor, Index n, double cost, Index first) {
  try {
    executor.for_each(n, cost, [&](Index i, Index) {
      pause();
      if (i >= first) throw std::runtime_error("item");
    });
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

using Inputs = GatedDeltaNet<float>::Inputs;

/// H = 5, K = 24, V = 20.
struct KernelCase {
  static constexpr Index H = 5, K = 24, V = 20;

  KernelCase(Index batch, Index tokens) : B(batch), T(tokens) {
    Random random(1);
    const auto fill = [&](std::vector<float>& x, Index dim, double low, double high) {
      x.resize(static_cast<std::size_t>(B * T * H * dim));
      for (float& value : x) value = static_cast<float>(random.uniform(low, high));
    };
    fill(q, K, -1, 1), fill(k, K, -1, 1), fill(v, V, -1, 1), fill(g, 1, -1, 0), fill(beta, 1, 0, 1);
  }
  /// Outputs, then the states.
  std::vector<float> run(const ExecutorRef& executor) const {
    const GatedDeltaNet<float> kernel(Dims<>(H, K, V), {.qk_l2norm = true});
    auto state = kernel.initial_state(B);
    std::vector<float> result(static_cast<std::size_t>(B * T * H * V));
    kernel.prefill({.q = {q.data(), B, T, H, K},
                    .k = {k.data(), B, T, H, K},
                    .v = {v.data(), B, T, H, V},
                    .g = {g.data(), B, T, H},
                    .beta = {beta.data(), B, T, H}},
                   state, {result.data(), B, T, H, V}, {}, executor);
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < H; ++h) {
        const auto s = state.matrix(b, h);
        result.insert(result.end(), s.data(), s.data() + s.size());
      }
    return result;
  }

  Index B, T;
  std::vector<float> q, k, v, g, beta;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

/// Outputs of a layer, which have no NaN.
std::vector<float> run_layer(const LayerSpec& spec, const ExecutorRef& executor) {
  const LayerPointerOf<float> layer = make_layer_of<float>(spec);
  constexpr Index B = 3, T = 50;
  Random random(1);
  const auto numbers = [&](Index width) {
    std::vector<float> x(static_cast<std::size_t>(B * T * width));
    for (float& value : x) value = static_cast<float>(random.uniform(-1, 1));
    return x;
  };
  std::vector<float> x = numbers(layer->width()), v_first = numbers(layer->values()), y(x.size());
  LayerState<float> state = layer->initial_state(B);
  for (int i = 0; i < 2; ++i)  // the second time from a state
    layer->prefill(TokenView<const float>(x.data(), B, T, 1, layer->width()),
                   {v_first.data(), B, T, 1, layer->values()}, state, {y.data(), B, T, 1, layer->width()}, {},
                   executor);
  return y;
}

}  // namespace

void check_contract(const ExecutorRef& executor, Index threads) {
  INFO(threads << " threads");
  CHECK(executor.concurrency() == threads);
  for (const Index n : {0, 1, 2, 3, 7, 200}) {
    INFO(n << " items");
    CHECK(runs_each_once(executor, n, heavy));
    CHECK(runs_here(executor, n, light));
    CHECK(runs_here(executor, n, std::numeric_limits<double>::quiet_NaN()));
  }
  CHECK(runs_here(executor, 100, least_parallel_flops / 101));
  CHECK(runs_here(executor, 1, heavy));
  if (threads > 1)
    CHECK(runs_in_two_threads(executor));
  else
    CHECK(runs_here(executor, 100, heavy));
  for (int round = 0; round < 3; ++round)
    for (const Index n : {2, 3, 5, 8}) CHECK(runs_nested(executor, n));
  for (const double cost : {heavy, light})
    for (const Index first : {0, 5, 49}) CHECK(thrown(executor, 50, cost, first) == "item");
  CHECK(thrown(executor, 50, heavy, 50) == "nothing");
  CHECK(runs_each_once(executor, 200, heavy));  // after exceptions

  // An exception of an inner call, through the outer one.
  std::atomic<int> inner = 0;
  CHECK_THROWS_AS(executor.for_each(4, heavy,
                                    [&](Index, Index) {
                                      if (thrown(executor, 4, heavy, 2) == "item") ++inner;
                                      throw std::logic_error("outer");
                                    }),
                  std::logic_error);
  CHECK(inner >= 1);

  // Several callers at once.
  std::atomic<int> right = 0;
  ThreadExecutor{3}.for_each(60, heavy, [&](Index, Index) {
    if (runs_nested(executor, 4)) ++right;
  });
  CHECK(right == 60);
}

void check_bits(const ExecutorRef& executor) {
  INFO(executor.concurrency() << " threads");
  for (const auto& [batch, tokens] : {std::pair<Index, Index>(1, 100), {3, 40}, {40, 3}}) {
    INFO(batch << " sequences");
    const KernelCase kernel(batch, tokens);
    CHECK(same(kernel.run(executor), kernel.run(SerialExecutor())));
  }
  LayerSpec mamba2{"Mamba-2", Mamba2LayerConfig{.width = 70, .heads = 5, .head_dim = 18, .state_size = 20}};
  LayerSpec rwkv7{"RWKV-7", RWKV7TimeMixConfig{.width = 90, .heads = 6, .key = 15, .value = 15}};
  LayerSpec ska{"SKA", SKALayerConfig{.width = 90, .attention = {.heads = 5, .key = 12, .value = 15}}};
  for (LayerSpec& spec : {std::ref(mamba2), std::ref(rwkv7), std::ref(ska)}) {
    spec.single = true;
    INFO(spec.name);
    CHECK(same(run_layer(spec, executor), run_layer(spec, SerialExecutor())));
  }
}

TEST_CASE("the checks see an executor that breaks the contract") {
  struct Broken {
    std::function<void(Index, const std::function<void(Index, Index)>&)> run;
    Index concurrency() const { return 2; }
    void for_each(Index n, double, const std::function<void(Index, Index)>& f) const { run(n, f); }
  };
  using F = std::function<void(Index, Index)>;
  const auto once = [](const Broken& executor) { return runs_each_once(executor, 8, heavy); };
  const auto all_as = [](Index n, const F& f, Index worker) {
    for (Index i = 0; i < n; ++i) f(i, worker);
  };
  CHECK(once(Broken{[&](Index n, const F& f) { all_as(n, f, 1); }}));
  CHECK(!once(Broken{[&](Index n, const F& f) { all_as(n - 1, f, 0); }}));  // forgets an item
  CHECK(!once(Broken{[&](Index n, const F& f) { all_as(n, f, 2); }}));      // no such worker
  CHECK(!once(Broken{[&](Index n, const F& f) { all_as(n, f, 0), f(0, 0); }}));
  const Broken one_worker_two_items{[&](Index n, const F& f) {
    std::thread other([&] { all_as(n / 2, f, 0); });
    for (Index i = n / 2; i < n; ++i) f(i, 0);
    other.join();
  }};
  Meeting meeting;
  CHECK(!runs_each_once(one_worker_two_items, 8, heavy, [&] { meeting.wait(); }));
  CHECK(meeting.met());
  CHECK(runs_in_two_threads(one_worker_two_items));
  CHECK(!runs_in_two_threads(Broken{[&](Index, const F&) {}}));
  CHECK(!runs_in_two_threads(Broken{[&](Index n, const F& f) { all_as(n, f, 0); }}, Meeting(1000)));
}

}  // namespace linrec::test
