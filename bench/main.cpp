// linrec_bench: step, prefill and decode of every kernel at real shapes. Names are
//   KERNEL/prefill|step|decode24/SHAPE/T/SCALAR/TAPER[/fixed]
// Shapes: Mamba2 H x P x N, the others H x K x V. Layers (layers.cpp), SKA (ska.cpp) and the comparison with
// ggml (ggml.cpp) have names of their own. See harness.hpp for the counters; scripts/bench_report.py makes
// tables of the JSON.
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
  linrec::bench::add_micro_kernel();
  linrec::bench::add_layers();
  linrec::bench::add_ska();
  linrec::bench::add_threads();
#ifdef LINREC_BENCH_GGML
  linrec::bench::add_ggml();
#endif
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
