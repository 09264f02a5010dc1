// The yardsticks: linear attention and the delta rule as associative memories of vectors,
//   S = sum z v^T          S += z (v - S^T z)^T          y = S^T u          S [K, P], float
#pragma once

#include <cstdint>

#include "linrec/kernels/delta_net.hpp"
#include "linrec/kernels/linear_attention.hpp"
#include "text_code.hpp"

namespace recall {

/// @tparam Kernel LinearAttention<float>, or DeltaNet<float>, whose beta is 1: what is stored under a key
///   replaces what was there.
template <class Kernel>
class KernelMemory {
 public:
  /// @param key K, value P.
  KernelMemory(Index key, Index value)
      : kernel_(linrec::Dims<>(1, key, value), 1.0), state_(kernel_.initial_state()) {}

  void absorb(const Eigen::VectorXf& key, const Eigen::VectorXf& value) { step(key, key, value, 1); }
  Eigen::VectorXf retrieve(const Eigen::VectorXf& key) {
    const Eigen::VectorXf zero_key = Eigen::VectorXf::Zero(key.size()),
                          zero_value = Eigen::VectorXf::Zero(state_.dims().value());
    return step(key, zero_key, zero_value, 0);  // leaves S as it is
  }

  Index bytes() const { return bytes(state_.dims().key(), state_.dims().value()); }
  static Index bytes(Index key, Index value) {
    return key * value * static_cast<Index>(sizeof(float)) + static_cast<Index>(sizeof(std::int64_t));
  }

 private:
  Eigen::VectorXf step(const Eigen::VectorXf& q, const Eigen::VectorXf& k, const Eigen::VectorXf& v,
                       float beta) {
    Eigen::VectorXf y(v.size());
    const auto view = [](const Eigen::VectorXf& x) {
      return linrec::TokenView<const float>(x.data(), 1, 1, 1, x.size());
    };
    typename Kernel::Inputs inputs;
    inputs.q = view(q), inputs.k = view(k), inputs.v = view(v);
    if constexpr (requires { inputs.beta; }) inputs.beta = {&beta, 1, 1, 1};
    kernel_.step(inputs, state_, {y.data(), 1, 1, 1, y.size()});
    return y;
  }

  Kernel kernel_;
  typename Kernel::State state_;
};

}  // namespace recall
