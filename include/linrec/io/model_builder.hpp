// ModelBuilder: gathers the parts of a model from a checkpoint, and makes the model when all of them have
// been found.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linrec/io/layer_weights.hpp"
#include "linrec/io/model_names.hpp"
#include "linrec/models/language_model.hpp"

namespace linrec::io {

template <class Scalar>
class ModelBuilder {
 public:
  ModelBuilder(const Checkpoint& checkpoint, WeightStorage storage, const ModelNames& names,
               std::string architecture, Index width)
      : reader_(checkpoint, storage), names_(names), width_(width) {
    parts_.architecture = std::move(architecture);
    parts_.fingerprint = checkpoint.fingerprint();
    reader_.ignore_prefix(self_test_prefix);
  }

  WeightReader<Scalar>& reader() { return reader_; }
  LayerNames mixer(Index i, std::span<const NameEntry> entries = {}) const {
    return {block(i) + std::string(names_.mixer) + ".", entries};
  }
  LayerNames mlp(Index i) const { return {block(i) + std::string(names_.mlp) + "."}; }

  /// @param tied whether the head is the embedding; unknown: it is unless the checkpoint has a head.
  void embedding(Index vocabulary, std::optional<bool> tied) {
    const std::string embedding = std::string(names_.embedding) + ".weight",
                      head = std::string(names_.head) + ".weight";
    if (!tied) tied = !reader_.has(head);
    if (!*tied || !reader_.has(head)) {
      parts_.embedding = reader_.matrix(embedding, {vocabulary, width_});
      if (!*tied) parts_.head = reader_.matrix(head, {vocabulary, width_});
      return;
    }
    // Files may have either of the two, or both.
    parts_.head = reader_.matrix(head, {vocabulary, width_});
    parts_.embedding = reader_.has(embedding) ? reader_.matrix(embedding, {vocabulary, width_}) : parts_.head;
    if (parts_.embedding.present() && parts_.head.present() && !same_bits(parts_.embedding, parts_.head))
      reader_.problem("the config ties '", embedding, "' and '", head, "', but they differ");
    parts_.head = {};
  }

  struct NormKind {
    typename Norm<Scalar>::Kind kind = Norm<Scalar>::Kind::rms;
    double eps = 1e-5;
    bool bias = false;
  };
  void embedding_norm(const NormKind& kind) {
    parts_.embedding_norm = norm(std::string(names_.embedding_norm), kind);
  }
  void final_norm(const NormKind& kind) { parts_.final_norm = norm(std::string(names_.final_norm), kind); }

  using Build = std::function<std::shared_ptr<const Branch<Scalar>>()>;
  /// A branch, by its name for error texts and that of its norm; build() makes it once all tensors are there.
  void add(std::string name, const std::string& norm_name, const NormKind& kind, Build build) {
    parts_.blocks.push_back({norm(norm_name, kind), nullptr});
    builds_.emplace_back(std::move(name), std::move(build));
  }
  /// A block's first branch, and its second.
  void add_mixer(Index i, const NormKind& kind, Build build) {
    add(block(i) + std::string(names_.mixer), block(i) + std::string(names_.norm), kind, std::move(build));
  }
  void add_mlp(Index i, const NormKind& kind, Build build) {
    add(block(i) + std::string(names_.mlp), block(i) + std::string(names_.mlp_norm), kind, std::move(build));
  }

  /// @throws FormatError that lists all tensors that are missing, unexpected or of another shape; or that
  ///   names the layer whose numbers make no sense.
  LanguageModel<Scalar> finish() {
    reader_.finish();
    for (std::size_t i = 0; i < builds_.size(); ++i)
      parts_.blocks[i].branch = in_context(builds_[i].first, builds_[i].second);
    return in_context("model", [&] { return LanguageModel<Scalar>(std::move(parts_)); });
  }

 private:
  /// One of the two may be bfloat16.
  static bool same_bits(const Parameter<Scalar>& a, const Parameter<Scalar>& b) {
    const auto size = static_cast<std::size_t>(a.size());
    if (a.is_bfloat16() && b.is_bfloat16())
      return std::memcmp(a.bfloat16_data(), b.bfloat16_data(), sizeof(BFloat16) * size) == 0;
    return std::memcmp(a.widened().data(), b.widened().data(), sizeof(Scalar) * size) == 0;
  }
  std::string block(Index i) const { return message(names_.blocks, ".", i, "."); }

  Norm<Scalar> norm(const std::string& name, const NormKind& kind) {
    const Parameter<Scalar> weight = reader_.get(name + ".weight", {width_});
    const Parameter<Scalar> bias = kind.bias ? reader_.get(name + ".bias", {width_}) : Parameter<Scalar>();
    return in_context(name,
                      [&] { return Norm<Scalar>(name, kind.kind, width_, width_, kind.eps, weight, bias); });
  }
  template <class F>
  auto in_context(const std::string& where, F&& f) const {
    try {
      return f();
    } catch (const Error& error) {
      throw FormatError(
          message("checkpoint '", reader_.checkpoint().name(), "': ", where, ": ", error.what()));
    }
  }

  WeightReader<Scalar> reader_;
  ModelNames names_;
  Index width_;
  LanguageModelParts<Scalar> parts_;
  std::vector<std::pair<std::string, Build>> builds_;
};

/// Makes, when called, a branch of the kind LayerBranch or MLPBranch, whose layer has these arguments.
template <template <class> class Kind, class Layer, class... Arguments>
auto branch_of(const Arguments&... arguments) {
  return [=]() -> std::shared_ptr<const Branch<typename Layer::Scalar>> {
    return std::make_shared<const Kind<Layer>>(Layer(arguments...));
  };
}

/// A branch of a layer with the spectrum and taper of a checkpoint.
template <template <class, class, class> class SequenceLayer, class Scalar, class Config, class Weights>
std::shared_ptr<const Branch<Scalar>> make_branch(const Config& config, const Weights& weights,
                                                  const DecayParameters& decay) {
  return decay.with_policies(
      [&](const auto& spectrum, const auto& taper) -> std::shared_ptr<const Branch<Scalar>> {
        using Layer = SequenceLayer<Scalar, std::decay_t<decltype(spectrum)>, std::decay_t<decltype(taper)>>;
        return std::make_shared<const LayerBranch<Layer>>(Layer(config, weights, spectrum, taper));
      });
}

}  // namespace linrec::io
