// The micro-kernel alone, as it writes a state: S [rows, strip] += sum of `steps` outer products, all in the
// first-level cache. Named MicroKernel/ROWSxSTRIP/steps/SCALAR after the tile.
#include "linrec/kernels/micro_kernel.hpp"

#include "harness.hpp"

namespace linrec::bench {

namespace {

using namespace linrec::detail;

template <class Scalar>
EIGEN_DONT_INLINE void update(const Scalar* left, const Scalar* right, Scalar* state, Index rows,
                              Index steps) {
  constexpr Index width = strip_width<Scalar>, lanes = Lanes<Scalar>::size;
  const Index stride = (rows + 1) * lanes;
  for_each_tile<micro_rows<Scalar, width>>(rows, [&](auto size, Index first) LINREC_INLINE_LAMBDA {
    Scalar* row = state + first * lanes;
    auto tile = Tile<Scalar, width, size>::of(
        [&](auto r) LINREC_INLINE_LAMBDA { return Strip<Scalar, width>::load(row + r * lanes, stride); });
    tile.add_product(PackedLeft<Scalar>{left + first, rows}, Right<Scalar>{right, width * lanes, lanes},
                     steps);
    repeat<size>([&](auto r) LINREC_INLINE_LAMBDA { tile.row[r].store(row + r * lanes, stride); });
  });
}

template <class Scalar>
void run_micro_kernel(benchmark::State& run, Index steps) {
  constexpr Index strip = strip_width<Scalar> * Lanes<Scalar>::size;
  Index rows = 64;  // some tiles, and ones that are shorter
  benchmark::DoNotOptimize(rows);
  const auto numbers = [](Index n) {
    return AlignedVector<Scalar>(static_cast<std::size_t>(n), Scalar(0.001));
  };
  const AlignedVector<Scalar> left = numbers(steps * rows), right = numbers(steps * strip);
  AlignedVector<Scalar> state = numbers((rows + 1) * strip);
  for (auto _ : run) {
    update(left.data(), right.data(), state.data(), rows, steps);
    benchmark::ClobberMemory();
  }
  const double gflops =
      2e-9 * static_cast<double>(run.iterations()) * static_cast<double>(steps * rows * strip);
  run.counters["of_peak"] = benchmark::Counter(gflops / peak_gflops<Scalar>(), benchmark::Counter::kIsRate);
}

template <class Scalar>
void add_steps(const std::string& scalar) {
  constexpr Index strip = strip_width<Scalar> * Lanes<Scalar>::size;
  for (const Index steps : {16, 32, 64, 128})
    add_benchmark(
        message("MicroKernel/", micro_rows<Scalar, strip_width<Scalar>>, "x", strip, "/", steps, "/", scalar),
        [steps](benchmark::State& run) { run_micro_kernel<Scalar>(run, steps); });
}

}  // namespace

void add_micro_kernel() {
  add_steps<float>("float");
  add_steps<double>("double");
}

}  // namespace linrec::bench
