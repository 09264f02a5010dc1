// What the tool can run: one entry a kernel or layer. A further one is a run function and an entry in
// kernels.cpp; --help and the table follow.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "golden_case.hpp"

namespace linrec::verify {

/// How a case is computed.
enum class Way {
  steps,    ///< token by token
  prefill,  ///< all tokens in one call
  splits,   ///< in random pieces, each prefilled or stepped; several times
  map,      ///< for what has no tokens to go through
};
std::string_view name_of(Way way);

/// A computed tensor, row-major.
struct Values {
  std::vector<Index> shape;
  std::vector<double> numbers;
};
using Outputs = std::map<std::string, Values>;

/// What one way gave: the outputs of each of its runs.
struct WayResult {
  Way way;
  std::vector<Outputs> runs;
};
using Results = std::vector<WayResult>;

struct Request {
  std::vector<Way> ways;   ///< of steps, prefill and splits; maps have the one way
  std::uint64_t seed = 1;  ///< of the random splits
};

/// Reads the inputs of a case and computes its outputs, with all arithmetic in one scalar type.
using Run = Results (*)(GoldenCase&, const Request&);

struct KernelEntry {
  std::string_view name;  ///< what the option `kernel` says
  Run in_double, in_float;
  std::string_view format;                 ///< inputs, options and outputs, for --help
  const char* option_as_output = nullptr;  ///< an option that holds a right output, if there is one
};

std::span<const KernelEntry> kernel_table();

// The run functions, each instantiated for float and double in the file of its name.
template <class Scalar>
Results run_mamba2(GoldenCase&, const Request&);
template <class Scalar>
Results run_retention(GoldenCase&, const Request&);
template <class Scalar>
Results run_gla(GoldenCase&, const Request&);
template <class Scalar>
Results run_gated_delta_rule(GoldenCase&, const Request&);
template <class Scalar>
Results run_rwkv7(GoldenCase&, const Request&);
template <class Scalar>
Results run_post_map(GoldenCase&, const Request&);
template <class Scalar>
Results run_post_init(GoldenCase&, const Request&);
template <class Scalar>
Results run_mamba2_layer(GoldenCase&, const Request&);
template <class Scalar>
Results run_gated_delta_net_layer(GoldenCase&, const Request&);
template <class Scalar>
Results run_gla_layer(GoldenCase&, const Request&);
template <class Scalar>
Results run_retnet_layer(GoldenCase&, const Request&);
template <class Scalar>
Results run_rwkv7_time_mix(GoldenCase&, const Request&);
template <class Scalar>
Results run_rwkv7_time_mix_fla_names(GoldenCase&, const Request&);
template <class Scalar>
Results run_rwkv7_channel_mix(GoldenCase&, const Request&);
template <class Scalar>
Results run_koopman_mlp(GoldenCase&, const Request&);
template <class Scalar>
Results run_ska_layer(GoldenCase&, const Request&);
template <class Scalar>
Results run_ska_prefix(GoldenCase&, const Request&);
template <class Scalar>
Results run_ska_streaming(GoldenCase&, const Request&);
template <class Scalar>
Results run_ska_chunk(GoldenCase&, const Request&);
template <class Scalar>
Results run_spectral_normalise(GoldenCase&, const Request&);

}  // namespace linrec::verify
