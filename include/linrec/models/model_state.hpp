// ModelState: all that a model remembers of the sequences of a batch, as one value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "linrec/layers/layer_state.hpp"

namespace linrec {

/// "rwkv7 0123456789abcdef"
inline std::string model_text(const std::string& architecture, std::uint64_t fingerprint) {
  std::string text = architecture + " ";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(fingerprint >> shift) & 15U];
  return text;
}

/// The states of a model's layers. Copy it to fork, keep it to roll back, save it with io/snapshot.hpp.
/// Models make it, and refuse one of another shape.
template <class Scalar_>
class ModelState {
 public:
  using Scalar = Scalar_;

  /// All zero, position 0.
  /// @param shapes at least one.
  /// @param scratch numbers of scratch memory that come with the state, so that a step needs no allocation.
  /// @param fingerprint of the model's weights; 0 if there is none.
  ModelState(std::string architecture, const std::vector<LayerStateShape>& shapes, Index sequences,
             Index scratch = 0, std::uint64_t fingerprint = 0)
      : architecture_(std::move(architecture)), fingerprint_(fingerprint), packer_(sequences) {
    if (shapes.empty()) throw ShapeError("model state: expected at least 1 layer with a state, got 0");
    for (const LayerStateShape& shape : shapes) layers_.emplace_back(shape, sequences);
    scratch_.assign(static_cast<std::size_t>(scratch), Scalar(0));
  }

  const std::string& architecture() const { return architecture_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// Which model the state belongs to, "rwkv7 0123456789abcdef".
  std::string model() const { return model_text(architecture_, fingerprint_); }
  Index sequences() const { return packer_.sequences(); }
  /// The layers that have a state, first to last.
  std::vector<LayerState<Scalar>>& layers() { return layers_; }
  const std::vector<LayerState<Scalar>>& layers() const { return layers_; }

  /// Tokens that sequence s has seen.
  std::int64_t position(Index s) const { return layers_.front().position(s); }
  /// Sequence s starts afresh.
  void reset(Index s) {
    for (LayerState<Scalar>& layer : layers_) layer.reset(s);
  }
  /// Bytes that a sequence's state needs on disk or on a wire.
  Index bytes_per_sequence() const {
    Index bytes = 0;
    for (const LayerState<Scalar>& layer : layers_) bytes += layer.bytes_per_sequence();
    return bytes;
  }

  /// Whether it is a state of that model, with all layers at one position.
  /// @throws ShapeError, ValueError naming the layer, what was expected and what came.
  void check(const std::string& architecture, std::uint64_t fingerprint,
             const std::vector<LayerStateShape>& shapes) const {
    if (architecture_ != architecture || fingerprint_ != fingerprint)
      throw ShapeError(message("state: expected one of the model ", model_text(architecture, fingerprint),
                               ", got one of ", model()));
    if (layers_.size() != shapes.size())
      throw ShapeError(message("state: expected ", shapes.size(), " layers, got ", layers_.size()));
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (!(layers_[i].shape() == shapes[i]))
        throw ShapeError(message("state: layer ", i, ": expected ", shapes[i].text(), ", got ",
                                 layers_[i].shape().text()));
      if (layers_[i].sequences() != sequences())
        throw ShapeError(message("state: layer ", i, ": expected ", sequences(), " sequences, got ",
                                 layers_[i].sequences()));
      for (Index s = 0; s < sequences(); ++s)
        if (layers_[i].position(s) != position(s))
          throw ValueError(message("state: layer ", i, ", sequence ", s, ": expected the position ",
                                   position(s), " of the first layer, got ", layers_[i].position(s)));
    }
  }

  friend bool operator==(const ModelState& a, const ModelState& b) {
    return a.architecture_ == b.architecture_ && a.layers_ == b.layers_;
  }

  /// For models: scratch memory for that many numbers, and what cuts a batch into chunks. A state that
  /// another model made may have less, and gets more.
  Scalar* scratch(Index numbers) {
    if (static_cast<Index>(scratch_.size()) < numbers) scratch_.resize(static_cast<std::size_t>(numbers));
    return scratch_.data();
  }
  RowPacker& packer() { return packer_; }

 private:
  std::string architecture_;
  std::uint64_t fingerprint_ = 0;
  std::vector<LayerState<Scalar>> layers_;
  AlignedVector<Scalar> scratch_;
  RowPacker packer_;
};

}  // namespace linrec
