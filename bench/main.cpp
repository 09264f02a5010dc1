// linrec_bench: step and prefill of every kernel at real shapes. Names are
//   KERNEL/prefill|step/SHAPE/T/SCALAR/TAPER[/fixed]
// Shapes: Mamba2 H x P x N, the others H x K x V. Layers (layers.cpp) and SKA (ska.cpp) have names of
// their own. See
// harness.hpp for the counters.
#include "harness.hpp"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("fma_peak_float_gflops", std::to_string(linrec::bench::peak_gflops<float>()));
  benchmark::AddCustomContext("fma_peak_double_gflops", std::to_string(linrec::bench::peak_gflops<double>()));
  linrec::bench::add_mamba2();
  linrec::bench::add_rwkv7();
  linrec::bench::add_gated_delta_net();
  linrec::bench::add_gla();
  linrec::bench::add_retnet();
  linrec::bench::add_layers();
  linrec::bench::add_ska();
  linrec::bench::add_threads();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
