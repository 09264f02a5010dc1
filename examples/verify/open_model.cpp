#include <limits>
#include <utility>
#include <vector>

#include "examples/models/models.hpp"
#include "model_file.hpp"
#include "state_values.hpp"

namespace linrec::verify {

namespace {

template <class Scalar>
class LoadedModel final : public ModelFile {
 public:
  explicit LoadedModel(LanguageModel<Scalar> model) : model_(std::move(model)) {}

  std::string architecture() const override { return model_.architecture(); }

  Outputs run(std::span<const TokenId> tokens, const Split& split) const override {
    const Index count = static_cast<Index>(tokens.size()), vocabulary = model_.vocabulary();
    ModelState<Scalar> state = model_.initial_state();
    model_.validate(tokens, state);
    std::vector<Scalar> logits(static_cast<std::size_t>(count * vocabulary),
                               std::numeric_limits<Scalar>::quiet_NaN());
    const TokenView<Scalar> view(logits.data(), 1, count, 1, vocabulary);
    const auto part = [&](Index first, Index n) {
      return tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n));
    };
    for_each_call(
        split, [&](Index first, Index n) { model_.prefill(part(first, n), state, view.slice(first, n)); },
        [&](Index t) { model_.step(part(t, 1), state, view.slice(t, 1)); });
    Outputs outputs{{"logits", {{count, vocabulary}, std::vector<double>(logits.begin(), logits.end())}}};
    if (count > 0)
      outputs["rwkv_cpp_logits_last"] = {{vocabulary},
                                         std::vector<double>(logits.end() - vocabulary, logits.end())};
    for (const LayerState<Scalar>& layer : state.layers()) add_state(layer, outputs);
    return outputs;
  }

 private:
  /// RWKV-7's states have names in the expected files, and the layers are their first extent.
  static void add_state(const LayerState<Scalar>& layer, Outputs& outputs) {
    const auto append = [&](const char* name, Values values) {  // a batch of one is one layer
      Values& all = outputs[name];
      if (all.shape.empty()) all.shape = values.shape, all.shape[0] = 0;
      ++all.shape[0];
      all.numbers.insert(all.numbers.end(), values.numbers.begin(), values.numbers.end());
    };
    const auto last_token = [&] {
      const Window<Scalar>& window = layer.window(0);
      return Values{{1, window.channels()},
                    std::vector<double>(window.row(0, 0), window.row(0, 0) + window.channels())};
    };
    if (layer.shape().layer == "rwkv7.time_mix") {
      append("state.att_x_prev", last_token());
      append("state.wkv", state_values(layer.recurrent(), Orientation::value_key));
    } else if (layer.shape().layer == "rwkv7.channel_mix") {
      append("state.ffn_x_prev", last_token());
    }
  }

  LanguageModel<Scalar> model_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<const ModelFile> open_model(const std::filesystem::path& path) {
  return std::make_unique<const LoadedModel<Scalar>>(io::load_model<Scalar>(path));
}

template std::unique_ptr<const ModelFile> open_model<double>(const std::filesystem::path&);
template std::unique_ptr<const ModelFile> open_model<float>(const std::filesystem::path&);

}  // namespace linrec::verify
