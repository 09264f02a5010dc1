// Reading a checkpoint's own test; the format is described in self_test.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/excerpt.hpp"
#include "linrec/io/model_builder.hpp"
#include "linrec/io/snapshot_parts.hpp"
#include "linrec/models/language_model.hpp"

namespace linrec::io::detail {

/// "token 3, entry 17": element `index` of the logits or of a part of a state.
inline std::string self_test_place(const std::string& name, const std::vector<Index>& shape,
                                   std::size_t index) {
  static constexpr const char* of_logits[] = {"token", "entry"};
  static constexpr const char* of_matrices[] = {"head", "key", "value"};
  static constexpr const char* of_windows[] = {"row", "channel"};
  const char* const of_sums[] = {"head", shape.size() == 3 ? "row" : "entry", "column"};
  const char* const* axes = name == "logits"                          ? of_logits
                            : name.find(".ska.") != std::string::npos ? of_sums
                            : shape.size() == 3                       ? of_matrices
                                                                      : of_windows;
  std::string text;
  Index rest = static_cast<Index>(index);
  for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i])
    text = message(axes[i], " ", rest % shape[i], text.empty() ? "" : ", ", text);
  return text;
}

/// f(name, shape, std::type_identity<Number>(), for_each_run) with the logits [T, V] and each part of the
/// state of one sequence; names are those behind the prefix, the others are those of visit_numbers.
template <class Scalar, class F>
void visit_answers(Index tokens, Index vocabulary, const Scalar* logits, const ModelState<Scalar>& state,
                   F&& f) {
  f(std::string("logits"), std::vector<Index>{tokens, vocabulary}, std::type_identity<Scalar>(),
    [&](auto&& g) { g(logits, tokens * vocabulary); });
  for (std::size_t i = 0; i < state.layers().size(); ++i)
    visit_numbers(state.layers()[i], [&](const Part& part, auto number, auto&& for_each_run) {
      f(message("state.", i, part.suffix), std::vector<Index>(part.shape.begin() + 1, part.shape.end()),
        number, for_each_run);
    });
}

/// A self-test as it lies in a checkpoint.
struct SelfTestCase {
  std::vector<TokenId> tokens;
  double tolerance = 0;
  std::map<std::string, std::vector<double>> answers;  ///< by the names of visit_answers
};

/// Reads a self-test and gathers all that is wrong with it.
class SelfTestReader {
 public:
  explicit SelfTestReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    const auto first = checkpoint.tensors().lower_bound(std::string_view(self_test_prefix));
    if (first == checkpoint.tensors().end() || !first->first.starts_with(self_test_prefix))
      throw FormatError(message("checkpoint '", checkpoint.name(),
                                "': has no self-test: no tensor's name begins with '", self_test_prefix,
                                "'"));
  }

  /// @throws FormatError that lists what is missing, of another shape, there and unknown, or no number.
  template <class Scalar>
  SelfTestCase read(const LanguageModel<Scalar>& model) {
    SelfTestCase test;
    test.tokens = read_tokens(model.vocabulary());
    test.tolerance = read_tolerance();
    visit_answers<Scalar>(static_cast<Index>(test.tokens.size()), model.vocabulary(), nullptr,
                          model.initial_state(),
                          [&](const std::string& name, const std::vector<Index>& shape, auto&&...) {
                            test.answers[name] = read_answer(name, shape);
                          });
    for (const auto& [name, tensor] : checkpoint_.tensors())
      if (name.starts_with(self_test_prefix) && name != full("tokens") &&
          !test.answers.contains(name.substr(full("").size())))
        problem("unexpected: ", in_quotes(name), " ", shape_text(tensor.shape));
    if (!problems_.empty())
      throw FormatError(
          message("checkpoint '", checkpoint_.name(), "': the self-test is none of this model:", problems_));
    return test;
  }

 private:
  static std::string full(const std::string& name) { return self_test_prefix + name; }

  template <class... Parts>
  void problem(const Parts&... parts) {
    problems_ += message("\n  ", parts...);
  }
  /// Null if there is none.
  const Tensor* find(const std::string& name) {
    if (checkpoint_.contains(name)) return &checkpoint_.tensor(name);
    problem("missing: ", in_quotes(name));
    return nullptr;
  }

  std::vector<TokenId> read_tokens(Index vocabulary) {
    const Tensor* tensor = find(full("tokens"));
    if (tensor == nullptr) return {};
    if (tensor->type != DataType::I64 || tensor->shape.size() != 1 || tensor->size() < 1) {
      problem(in_quotes(tensor->name), ": expected I64 [T] with at least 1 token, got ",
              name_of(tensor->type), " ", shape_text(tensor->shape));
      return {};
    }
    std::vector<TokenId> tokens;
    for (const std::int64_t id : tensor->to<std::int64_t>()) {
      if (id < 0 || id >= vocabulary)
        problem(in_quotes(tensor->name), ": token ", tokens.size(), ": expected 0 to ", vocabulary - 1,
                ", got ", id);
      tokens.push_back(static_cast<TokenId>(id));
    }
    return tokens;
  }

  double read_tolerance() {
    const std::string key = full("tolerance");
    const auto found = checkpoint_.metadata().find(key);
    if (found == checkpoint_.metadata().end()) {
      problem("missing: metadata ", in_quotes(key));
      return 0;
    }
    // JSON's numbers are the same in all locales, and neither nan nor infinite.
    const auto number = nlohmann::json::parse(found->second, nullptr, false);
    if (number.is_number() && number.get<double>() >= 0) return number.get<double>();
    problem("metadata ", in_quotes(key), ": expected a number of at least 0, got ", in_quotes(found->second));
    return 0;
  }

  std::vector<double> read_answer(const std::string& name, const std::vector<Index>& shape) {
    const Tensor* tensor = find(full(name));
    if (tensor == nullptr) return {};
    if (tensor->shape != shape) {
      problem("wrong shape: ", in_quotes(tensor->name), ": expected ", shape_text(shape), ", got ",
              shape_text(tensor->shape));
      return {};
    }
    std::vector<double> numbers = tensor->to<double>();
    const auto bad = std::find_if(numbers.begin(), numbers.end(), [](double x) { return !std::isfinite(x); });
    if (bad != numbers.end())
      problem(in_quotes(tensor->name), ": expected finite numbers, got ", *bad, " at ",
              self_test_place(name, shape, static_cast<std::size_t>(bad - numbers.begin())));
    return numbers;
  }

  const Checkpoint& checkpoint_;
  std::string problems_;
};

}  // namespace linrec::io::detail
