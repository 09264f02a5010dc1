#include "verify_model.hpp"

#include <map>

#include "linrec/io/safetensors.hpp"
#include "model_file.hpp"
#include "relative_error.hpp"

namespace linrec::verify {

namespace {

constexpr double model_bar_in_double = 1e-9, model_bar_in_float = 1e-4, rwkv_cpp_bar = 1e-4;
constexpr std::string_view tokens_name = "token_ids", logits_name = "logits";

/// The tensors of one NAME, by what follows "NAME.".
struct ModelCase {
  std::string name;
  std::map<std::string, io::Tensor> tensors;
};

struct ExpectedFile {
  std::vector<ModelCase> cases;
  std::vector<std::string> others;  ///< tensors of no case
};

ExpectedFile read_expected(const std::filesystem::path& path) {
  const io::SafetensorsFile file(path);
  ExpectedFile expected;
  const std::string suffix = "." + std::string(tokens_name);
  for (const std::string& name : file.names())
    if (name.ends_with(suffix)) expected.cases.push_back({name.substr(0, name.size() - suffix.size()), {}});
  if (expected.cases.empty()) throw FormatError(message("there is no NAME", suffix, " tensor"));
  for (const std::string& name : file.names()) {
    ModelCase* owner = nullptr;  // of all names that it begins with, the longest
    for (ModelCase& one : expected.cases)
      if (name.starts_with(one.name + ".") && (!owner || one.name.size() > owner->name.size())) owner = &one;
    if (owner != nullptr)
      owner->tensors.emplace(name.substr(owner->name.size() + 1), file.tensor(name));
    else
      expected.others.push_back(name);
  }
  return expected;
}

double bar_of(const std::string& answer, ScalarType scalar, const Tolerances& tolerances) {
  if (answer == "rwkv_cpp_logits_last") return rwkv_cpp_bar;  // single precision, whatever ours is
  if (scalar == ScalarType::double_precision) return tolerances.in_double.value_or(model_bar_in_double);
  return tolerances.in_float.value_or(model_bar_in_float);
}

/// One case, with its numbers read.
class ModelCheck {
 public:
  explicit ModelCheck(const ModelCase& one) : name_(one.name) {
    for (const auto& [name, tensor] : one.tensors) {
      if (name == tokens_name) {
        if (tensor.shape.size() != 1)
          throw FormatError(message(name_, ".", name, ": expected [T], got ", shape_text(tensor.shape)));
        tokens_ = tensor.to<std::int32_t>();
      } else {
        answers_[name] = {tensor.shape, tensor.to<double>()};
      }
    }
    if (!answers_.contains(std::string(logits_name)))
      throw FormatError(message("has no tensor '", name_, ".", logits_name, "'"));
  }

  Row run(const ModelFile& model, ScalarType scalar, Way way, const Settings& settings) const {
    std::vector<Check> checks;
    for (const auto& [name, right] : answers_)
      checks.push_back({name, true, 0, bar_of(name, scalar, settings.tolerances)});
    for (const Split& split : splits_of(way, static_cast<Index>(tokens_.size()), settings.request.seed)) {
      const Outputs outputs = model.run(tokens_, split);
      for (Check& check : checks) {
        check_shape(model, outputs, check.output);
        check.add(outputs, answers_.at(check.output).numbers, absolute_error);
      }
    }
    return run_row(scalar, way, std::move(checks));
  }

 private:
  void check_shape(const ModelFile& model, const Outputs& outputs, const std::string& answer) const {
    const auto found = outputs.find(answer);
    if (found == outputs.end())
      throw Unknown(message(name_, ".", answer, ": not an answer of a model of ", model.architecture()));
    if (answers_.at(answer).shape != found->second.shape)
      throw FormatError(message(name_, ".", answer, ": expected ", shape_text(found->second.shape),
                                " from the model and the tokens, got ",
                                shape_text(answers_.at(answer).shape)));
  }

  std::string name_;
  std::vector<std::int32_t> tokens_;
  Outputs answers_;
};

using Models = std::map<ScalarType, std::unique_ptr<const ModelFile>>;

Models open_models(const std::filesystem::path& path, const std::vector<ScalarType>& scalars) {
  Models models;
  for (const ScalarType scalar : scalars)
    models[scalar] =
        scalar == ScalarType::double_precision ? open_model<double>(path) : open_model<float>(path);
  return models;
}

}  // namespace

std::vector<NamedRows> verify_model(const std::filesystem::path& model, const std::filesystem::path& expected,
                                    const Settings& settings) {
  std::vector<NamedRows> result{{"", {}}};
  Models models;
  ExpectedFile file;
  add_rows(result[0].rows, model, [&] { models = open_models(model, settings.scalars); });
  add_rows(result[0].rows, expected, [&] { file = read_expected(expected); });
  if (!result[0].rows.empty()) return result;
  for (const std::string& name : file.others)
    result[0].rows.push_back(no_run(Verdict::unknown, expected, name + ": belongs to no NAME.token_ids"));
  for (const ModelCase& one : file.cases) {
    result.push_back({one.name, {}});
    std::vector<Row>& rows = result.back().rows;
    add_rows(rows, expected, [&] {
      const ModelCheck check(one);
      for (const ScalarType scalar : settings.scalars)
        for (const Way way : settings.request.ways)
          rows.push_back(check.run(*models.at(scalar), scalar, way, settings));
    });
  }
  return result;
}

}  // namespace linrec::verify
