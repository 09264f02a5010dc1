// One interface to all kernels, so that a test is written, and compiled, once. Numbers cross it in
// double; what a float kernel gets has been rounded to float, so nothing is lost on the way.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linrec/core/prefill_options.hpp"
#include "linrec/kernels/gated_delta_net.hpp"
#include "linrec/kernels/mamba2.hpp"
#include "tests/kernels/batch.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test {

enum class Architecture { linear_attention, delta_net, retnet, gla, mamba2, gated_delta_net, rwkv7, dplr };

/// The fixed sizes that are instantiated.
inline constexpr int fixed_heads = 2, fixed_key = 19, fixed_value = 17;

/// A kernel and how it is made.
struct Config {
  Architecture architecture{};
  Index H = 2, G = 2, K = 3, V = 5;
  bool single = false;            ///< float
  bool fixed = false;             ///< Dims<fixed_heads, fixed_key, fixed_value>
  Eigen::ArrayXd log_rates = {};  ///< empty: the plain constructor
  std::function<Eigen::ArrayXd(const Eigen::ArrayXd&)> taper = {};  ///< empty: NoTaper
  double scale = 0;                                                 ///< 0: the kernel's default
  bool qk_l2norm = false;                                           ///< Gated DeltaNet
  Mamba2Options mamba2_options = {};

  std::string name() const;
  /// How many channels a spectrum must have; 0 if the architecture has none.
  Index channels() const;
};

/// What the numbers of an input must be.
enum class Kind { content, small, gain, decay, step_size, logit };

struct Field {
  const char* name;
  char width;   ///< K, V or 1
  bool shared;  ///< may have G heads
  Kind kind;
};

/// The inputs in their order.
const std::vector<Field>& fields(Architecture architecture);
using Inputs = std::vector<Tensor>;
std::size_t field_index(Architecture architecture, const std::string& name);

/// Plain configs of all eight, and tapered ones (with every option on) of the five that can be.
std::vector<Config> all_configs(bool single, Index H = 2, Index G = 2, Index K = 3, Index V = 5);
std::vector<Config> plain_configs(bool single, Index H = 2, Index G = 2, Index K = 3, Index V = 5);
Config make_config(Architecture architecture, bool tapered, bool single, Index H = 2, Index G = 2,
                   Index K = 3, Index V = 5);
/// `all_configs` of double, then of float.
std::vector<Config> all_configs_of_both_scalars(Index H = 2, Index G = 2, Index K = 3, Index V = 5);

/// The number as the kernel sees it.
inline double rounded(double x, bool single) {
  return single ? static_cast<double>(static_cast<float>(x)) : x;
}
Tensor random_tensor(std::array<Index, 4> extents, double low, double high, Random& random, bool single);
Inputs random_inputs(const Config& config, Index B, Index T, std::uint64_t seed);

/// Applies f to each tensor.
template <class F>
Inputs each(const Inputs& inputs, F&& f) {
  Inputs results;
  for (const Tensor& tensor : inputs) results.push_back(f(tensor));
  return results;
}

class AnyState {
 public:
  virtual ~AnyState() = default;
  virtual std::unique_ptr<AnyState> clone() const = 0;
  virtual Index sequences() const = 0;
  virtual Index heads() const = 0;
  virtual std::int64_t position(Index b) const = 0;
  virtual void set_position(Index b, std::int64_t position) = 0;
  virtual Eigen::MatrixXd matrix(Index b, Index h) const = 0;
  virtual void set_matrix(Index b, Index h, const Eigen::MatrixXd& s) = 0;

  /// All numbers of one sequence, its position last.
  std::vector<double> numbers(Index b) const;
  /// All numbers of all sequences.
  std::vector<double> numbers() const;
};
using StatePointer = std::unique_ptr<AnyState>;

/// Random numbers and positions.
StatePointer random_state(const Config& config, Index sequences, std::uint64_t seed);

struct Run {
  SequenceLayout layout = {};
  Workspace* workspace = nullptr;
  Index threads = 0;  ///< 0: the serial executor
  PrefillMode mode = PrefillMode::fast;
};

class AnyKernel {
 public:
  virtual ~AnyKernel() = default;
  virtual StatePointer initial_state(Index sequences = 1) const = 0;
  virtual double scale() const = 0;
  virtual void validate(const Inputs&, const AnyState&, const SequenceLayout& = {}) const = 0;
  virtual void prefill(const Inputs&, AnyState&, Tensor& outputs, const Run& = {}) const = 0;
  virtual void step(const Inputs&, AnyState&, Tensor& outputs) const = 0;
};
using KernelPointer = std::unique_ptr<AnyKernel>;

KernelPointer make_kernel(const Config& config);
KernelPointer make_kernel_of_double(const Config& config);
KernelPointer make_kernel_of_float(const Config& config);
KernelPointer make_kernel_of_fixed_sizes(const Config& config);

/// [B, T, H, V] of NaN: every output must be written.
Tensor empty_outputs(const Config& config, Index B, Index T);
Tensor prefill(const Config& config, const Inputs& inputs, AnyState& state, const Run& run = {});
/// Token by token.
Tensor steps(const Config& config, const Inputs& inputs, AnyState& state);

/// What the specification says (linrec/kernels/reference.hpp), with t^-alpha in long double.
struct Expected {
  Tensor outputs;                       ///< 0 at padding
  std::vector<Eigen::MatrixXd> states;  ///< [sequences * H]
};
Expected reference_run(const Config& config, const Inputs& inputs, const AnyState& initial,
                       const Batch& batch);

/// Empty if the state is as expected up to the tolerance, relative to the largest number.
std::string difference(const AnyState& got, const Expected& expected, double tolerance);

/// Empty, or how prefill from a random state differs from the reference: outputs, states, positions.
std::string reference_difference(const Config& config, const Inputs& inputs);

/// All tolerances, relative to the largest number of a tensor.
struct Tolerances {
  double reference;  ///< against the naive reference
  double last_bits;  ///< the same numbers by another formula
};
inline Tolerances tolerances(bool single) {
  return single ? Tolerances{1e-5, 1e-6} : Tolerances{1e-12, 1e-15};
}

}  // namespace linrec::test
