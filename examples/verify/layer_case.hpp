// LayerCase: what the cases of all layers have in common, how a layer goes through its tokens in each way,
// and what its caches are called.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/models/layers.hpp"
#include "kernels.hpp"
#include "linrec/io/layer_weights.hpp"
#include "splits.hpp"
#include "state_values.hpp"

namespace linrec::verify {

/// What the files of an architecture call the parts of a layer's state.
struct CacheNames {
  const char* recurrent;  ///< null: there is no recurrent state
  Orientation orientation;
  std::vector<const char*> windows;  ///< in the order of the state's windows
};

template <class Scalar>
class LayerCase {
 public:
  /// Reads in.x; sizes among the options must agree with it.
  LayerCase(GoldenCase& file, CacheNames names)
      : file_(file),
        names_(std::move(names)),
        checkpoint_(file.tensors(), "weights"),
        reader_(checkpoint_),
        batch_(file.extent("x", 0, 3)),
        tokens_(file.extent("x", 1, 3)),
        width_(file.extent("x", 2, 3)),
        x_(file.input("x").template to<Scalar>()),
        v_first_(x_.size()) {
    file.check_size("B", batch_);
    file.check_size("T", tokens_);
    file.check_size("d_model", width_);
    for (const char* prefix : {"in.", "out.", "cache_mid.", "cot.", "grad."}) reader_.ignore_prefix(prefix);
  }
  LayerCase(const LayerCase&) = delete;  // the reader keeps a reference to the checkpoint
  LayerCase& operator=(const LayerCase&) = delete;

  GoldenCase& file() const { return file_; }
  io::WeightReader<Scalar>& reader() { return reader_; }
  bool has(const std::string& weight) const { return reader_.has(weight); }
  Index width() const { return width_; }

  /// A size among the options.
  Index size(const std::string& key) const {
    const std::int64_t size = file_.count(key);
    if (size > io::ConfigReader::largest_size)
      throw FormatError(
          message("option '", key, "': expected at most ", io::ConfigReader::largest_size, ", got ", size));
    return static_cast<Index>(size);
  }
  Index size_or(const std::string& key, Index fallback) const {
    return file_.has_option(key) ? size(key) : fallback;
  }
  /// The last extent of a weight; 0 if there is no such weight.
  Index last_extent(const std::string& weight) const {
    if (!has(weight) || checkpoint_.tensor(weight).shape.empty()) return 0;
    return checkpoint_.tensor(weight).shape.back();
  }

  /// What GLA, Gated DeltaNet and RetNet have in common.
  template <class Config>
  Config attention_config() const {
    Config config;
    config.width = width_;
    config.heads = size("num_heads");
    config.key_dim = size("head_k_dim");
    config.value_dim = size("head_v_dim");
    config.conv_width = last_extent("q_conv1d.weight");
    config.output_gate = has("g_proj.weight");
    config.norm_eps = file_.number_or("norm_eps", config.norm_eps);
    return config;
  }

  /// The training length of a gap-aware taper; 0 if the layer has none.
  /// @param post what PoST's parameters begin with, "A_log" or "w0".
  double train_length(const std::string& post) const {
    const bool is_post = has(post + "_base"), is_learned = has("alpha_logits");
    if (file_.has_option("alpha_mode")) {
      const std::string mode = file_.text("alpha_mode");
      if (mode != "analytical" && mode != "learnable")
        throw Unknown(message("option 'alpha_mode': '", mode, "'"));
      const auto refuse = [&](const std::string& tensor, const char* is) {
        throw FormatError(message("option 'alpha_mode' is ", mode, ", but ", tensor, is, " there"));
      };
      if (!is_post) refuse(post + "_base", " is not");
      if (mode == "learnable" && !is_learned) refuse("alpha_logits", " is not");
      if (mode == "analytical" && is_learned) refuse("alpha_logits", " is");
    }
    return is_post && !is_learned ? file_.number("train_length") : 0;
  }

  /// For RWKV-7: the values of the first layer, which the first layer writes and the others read.
  void set_v_first(bool is_first_layer) {
    writes_v_first_ = is_first_layer;
    if (is_first_layer)
      v_first_.assign(x_.size(), std::numeric_limits<Scalar>::quiet_NaN());
    else
      v_first_ = file_.input("v_first", {batch_, tokens_, width_}, "[B, T, D]").template to<Scalar>();
  }

  /// Runs the layer in the ways that are asked for.
  /// @throws FormatError if a weight is missing, unknown or of another shape.
  template <class SequenceLayer>
  Results run(const SequenceLayer& layer, const Request& request) const {
    file_.check_all_inputs_read();
    const std::optional<Index> middle = cache_mid_after();
    Results results;
    for (const Way way : request.ways) {
      results.push_back({way, {}});
      for (const Split& split : splits_of(way, tokens_, request.seed)) {
        Outputs& outputs = results.back().runs.emplace_back();
        add_caches(outputs, "cache.", run_split(layer, split, outputs));
        if (!middle) continue;
        Outputs unused;  // the middle is a run of its own, so that it does not cut a piece of the first
        add_caches(outputs, std::string(cache_mid_prefix),
                   run_split(layer, first_tokens(split, *middle), unused));
      }
    }
    return results;
  }

 private:
  /// Where the caches half way are; nothing if the file has none.
  std::optional<Index> cache_mid_after() const {
    const auto names = file_.output_names();
    const bool needed = std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.starts_with(cache_mid_prefix);
    });
    if (!needed) return std::nullopt;
    const Index after = size("cache_mid_after");
    if (after > tokens_)
      throw FormatError(message("option 'cache_mid_after': expected at most T = ", tokens_, ", got ", after));
    return after;
  }

  /// Adds y, and v_first if the layer writes it; gives the state at the end.
  template <class SequenceLayer>
  LayerState<Scalar> run_split(const SequenceLayer& layer, const Split& split, Outputs& outputs) const {
    std::vector<Scalar> y(x_.size(), std::numeric_limits<Scalar>::quiet_NaN()), v_first = v_first_;
    const auto view = [&](auto* numbers) { return TokenView(numbers, batch_, tokens_, 1, width_); };
    const TokenView<const Scalar> x = view(x_.data());
    const TokenView<Scalar> to = view(y.data()), v = view(v_first.data());
    LayerState<Scalar> state = layer.initial_state(batch_);
    for (Index b = 0; b < batch_; ++b) state.set_position(b, file_.count_or("position_offset", 0));
    if constexpr (requires { layer.look_ahead(x, state); }) layer.look_ahead(x, state);
    const auto call = [&](Index first, Index n, auto&& f) {
      if constexpr (requires { layer.prefill(x, v, state, to); })
        f(x.slice(first, n), v.slice(first, n), state, to.slice(first, n));
      else
        f(x.slice(first, n), state, to.slice(first, n));
    };
    call(0, tokens_, [&](auto&&... tensors) { layer.validate(tensors...); });
    for_each_call(
        split,
        [&](Index first, Index n) { call(first, n, [&](auto&&... tensors) { layer.prefill(tensors...); }); },
        [&](Index t) { call(t, 1, [&](auto&&... tensors) { layer.step(tensors...); }); });
    outputs["y"] = token_values(y);
    if (writes_v_first_) outputs["v_first"] = token_values(v_first);
    return state;
  }
  Values token_values(const std::vector<Scalar>& numbers) const {
    return {{batch_, tokens_, width_}, std::vector<double>(numbers.begin(), numbers.end())};
  }

  void add_caches(Outputs& outputs, const std::string& prefix, const LayerState<Scalar>& state) const {
    if (names_.recurrent != nullptr)
      outputs[prefix + names_.recurrent] = state_values(state.recurrent(), names_.orientation);
    if (state.shape().ska) add_sums(state.ska(), prefix, outputs);
    for (std::size_t i = 0; i < state.shape().windows.size(); ++i) {
      const Window<Scalar>& window = state.window(static_cast<Index>(i));
      Values& values = outputs[prefix + names_.windows.at(i)];
      values.shape = {batch_, window.channels(), window.rows()};
      if (state.shape().windows[i].name == "shift")
        values.shape.pop_back();  // one token, [B, D] in the files
      for (Index b = 0; b < batch_; ++b)
        for (Index c = 0; c < window.channels(); ++c)
          for (Index j = 0; j < window.rows(); ++j) values.numbers.push_back(window.row(b, j)[c]);
    }
  }

  GoldenCase& file_;
  CacheNames names_;
  io::Checkpoint checkpoint_;
  io::WeightReader<Scalar> reader_;
  Index batch_, tokens_, width_;
  std::vector<Scalar> x_, v_first_;
  bool writes_v_first_ = false;
};

}  // namespace linrec::verify
