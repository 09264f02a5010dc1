// A checkpoint's own test: a small input, and the logits and the final state that its author saw. It tells
// whether this build, on this machine, computes the same.
//
//   linrec.test.tokens                  I64 [T]           one sequence, from its beginning
//   linrec.test.logits                  [T, V]            after each token
//   linrec.test.state.<i>.recurrent     [H, K, V]         after the last token; i counts the layers that
//                                                         have a state, from 0
//   linrec.test.state.<i>.window.<name> [rows, channels]  oldest row first
//   linrec.test.state.<i>.ska.<sum>     [H, ...]          G, M, Cv and keys, as in snapshots
//   metadata linrec.test.tolerance      the largest absolute difference that passes, a number as text
//
// load_model ignores these tensors unless it is asked to run the test.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/load_model.hpp"
#include "linrec/io/model_builder.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "linrec/io/self_test_reader.hpp"
#include "linrec/models/language_model.hpp"

namespace linrec::io {

/// What a self-test found.
struct SelfTestResult {
  Index tokens = 0;                      ///< T
  double tolerance = 0;                  ///< the largest difference that passes
  double largest = 0;                    ///< the largest one there was
  std::vector<std::string> differences;  ///< one sentence for each tensor that differs by more

  bool passed() const { return differences.empty(); }
};

/// How load_model loads, and what it does besides.
struct LoadOptions {
  bool self_test = false;  ///< runs the checkpoint's own test, which weights that are narrowed may fail
  WeightStorage weights = WeightStorage::widened;
};

namespace detail {

/// Notes where the answers of a model differ too much; `way` is how they came about.
template <class Scalar>
void compare_answers(const SelfTestCase& test, const char* way,
                     const typename LanguageModel<Scalar>::Logits& logits, const ModelState<Scalar>& state,
                     SelfTestResult& result) {
  visit_answers(logits.rows(), logits.cols(), logits.data(), state,
                [&](const std::string& name, const std::vector<Index>& shape, auto, auto&& for_each_run) {
                  const double* expected = test.answers.at(name).data();
                  std::size_t i = 0, at = 0;
                  double worst = 0;  // once it is NaN it stays so
                  for_each_run([&](const auto* got, Index count) {
                    for (Index j = 0; j < count; ++j, ++i) {
                      const double difference = std::abs(static_cast<double>(got[j]) - expected[i]);
                      if (difference <= worst || std::isnan(worst)) continue;
                      worst = difference;
                      at = i;
                    }
                  });
                  if (!(worst <= result.largest) && !std::isnan(result.largest)) result.largest = worst;
                  if (!(worst <= test.tolerance))
                    result.differences.push_back(message(name, " by ", way, ": largest difference ", worst,
                                                         " at ", self_test_place(name, shape, at),
                                                         "; at most ", test.tolerance, " was expected"));
                });
}

}  // namespace detail

/// Runs a model from the beginning of a sequence, and adds tokens, logits and final state to the file as its
/// self-test.
/// @param tokens at least one; a few dozen are enough to show a wrong layer.
/// @param tolerance absolute; 1e-4 leaves room for other machines' rounding of a float model, say.
/// @throws ValueError, and adds nothing, if a token or the tolerance is bad, the model's answer is not
///   finite, or the file has a self-test already.
template <class Scalar>
void add_self_test(SafetensorsWriter& file, const LanguageModel<Scalar>& model,
                   std::span<const TokenId> tokens, double tolerance) {
  if (tokens.empty()) throw ValueError("self-test: expected at least 1 token, got 0");
  if (!(tolerance >= 0) || !std::isfinite(tolerance))
    throw ValueError(
        message("self-test: expected a tolerance of at least 0 that is finite, got ", tolerance));
  auto state = model.initial_state();
  const auto logits = model.prefill(tokens, state);
  const auto for_each_answer = [&](auto&& f) {
    detail::visit_answers(logits.rows(), logits.cols(), logits.data(), state,
                          [&]<class Number>(const std::string& name, const std::vector<Index>& shape,
                                            std::type_identity<Number>, auto&& for_each_run) {
                            std::vector<Number> numbers;
                            for_each_run([&](const Number* from, Index count) {
                              numbers.insert(numbers.end(), from, from + count);
                            });
                            f(name, shape, numbers);
                          });
  };
  for_each_answer([&](const auto& name, const auto& shape, const auto& numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (!std::isfinite(numbers[i]))
        throw ValueError(message("self-test: ", name, ": expected finite numbers, got ", numbers[i], " at ",
                                 detail::self_test_place(name, shape, i)));
  });

  const std::string prefix = self_test_prefix;
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  file.add(prefix + "tokens", {static_cast<Index>(ids.size())}, ids);
  for_each_answer([&](const auto& name, const auto& shape, const auto& numbers) {
    file.add(prefix + name, shape, numbers);
  });
  file.set_metadata(prefix + "tolerance", nlohmann::json(tolerance).dump());
}

/// Runs the test of a checkpoint on a model of it, by prefill and by steps.
/// @throws FormatError, naming the checkpoint and all that is wrong, if it has no test or a malformed one.
template <class Scalar>
SelfTestResult run_self_test(const Checkpoint& checkpoint, const LanguageModel<Scalar>& model) {
  const detail::SelfTestCase test = detail::SelfTestReader(checkpoint).read(model);
  SelfTestResult result{static_cast<Index>(test.tokens.size()), test.tolerance, 0, {}};
  auto state = model.initial_state();
  auto logits = model.prefill(test.tokens, state);
  detail::compare_answers(test, "prefill", logits, state, result);

  state = model.initial_state();
  for (Index t = 0; t < logits.rows(); ++t)
    model.step(std::span(test.tokens).subspan(static_cast<std::size_t>(t), 1), state,
               {logits.row(t).data(), 1, 1, 1, logits.cols()});
  detail::compare_answers(test, "steps", logits, state, result);
  return result;
}

/// load_model, and then what the options ask for.
/// @throws FormatError as load_model and run_self_test, and if the self-test finds differences, listing them.
template <class Scalar>
LanguageModel<Scalar> load_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  LanguageModel<Scalar> model = load_model<Scalar>(checkpoint, options.weights);
  if (!options.self_test) return model;
  std::string differences;
  for (const std::string& each : run_self_test(checkpoint, model).differences) differences += "\n  " + each;
  if (!differences.empty())
    throw FormatError(
        message("checkpoint '", checkpoint.name(), "': the self-test does not pass:", differences));
  return model;
}
template <class Scalar>
LanguageModel<Scalar> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  return load_model<Scalar>(Checkpoint(path), options);
}

}  // namespace linrec::io
