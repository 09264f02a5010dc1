// What recipes are made with.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/recipes.hpp"

namespace linrec::test::recipes {

inline constexpr Index width = 32;  // of all golden layers
inline constexpr Index vocabulary = 24;

/// Puts the files of a model together.
class Maker {
 public:
  Maker(std::string name, std::uint64_t seed) : random_(seed) { recipe_.name = std::move(name); }

  /// The weights of a golden layer under a prefix, as they are: the branch is known.
  void golden(std::size_t branch, const std::string& prefix, const std::string& file,
              const std::function<std::string(const std::string&)>& rename = {}) {
    layer(prefix, file, 0, rename);
    recipe_.golden.push_back({branch, file});
  }
  /// The same, but every number a little off.
  void other(const std::string& prefix, const std::string& file,
             const std::function<std::string(const std::string&)>& rename = {}) {
    layer(prefix, file, 0.1, rename);
  }
  void random(const std::string& name, std::vector<Index> shape, double middle = 0, double spread = 0.3) {
    recipe_.files.tensors[name] = random_numbers(random_, std::move(shape), middle, spread);
  }
  void rms_norm(const std::string& name) { random(name + ".weight", {width}, 1); }
  void layer_norm(const std::string& name) {
    rms_norm(name);
    random(name + ".bias", {width});
  }
  /// fla's MLP.
  void gated_mlp(std::size_t branch, const std::string& prefix, Index hidden) {
    random(prefix + "gate_proj.weight", {hidden, width});
    random(prefix + "up_proj.weight", {hidden, width});
    random(prefix + "down_proj.weight", {width, hidden});
    recipe_.mlps.push_back(
        {branch, prefix + "gate_proj.weight", prefix + "up_proj.weight", prefix + "down_proj.weight"});
  }
  void config(const std::string& text) { recipe_.files.config = text; }
  Skeleton& skeleton() { return recipe_.skeleton; }
  std::vector<KnownMLP>& mlps() { return recipe_.mlps; }
  Recipe finish() { return std::move(recipe_); }

 private:
  void layer(const std::string& prefix, const std::string& file, double spread,
             const std::function<std::string(const std::string&)>& rename) {
    const io::SafetensorsFile golden = golden_layer(file);
    for (const std::string& name : golden.names()) {
      if (name.find("in.") == 0 || name.find("out.") == 0 || name.find("cot.") == 0 ||
          name.find("grad.") == 0 || name.find("cache_mid.") == 0)
        continue;
      const io::Tensor tensor = golden.tensor(name);
      std::string theirs = rename ? rename(name) : name;
      const bool transposed = theirs.ends_with("^T");
      if (transposed) theirs.resize(theirs.size() - 2);
      Files::Numbers numbers{tensor.shape, tensor.to<float>()};
      for (float& value : numbers.values) value += static_cast<float>(random_.uniform(-spread, spread));
      if (transposed) numbers = transpose(numbers);
      recipe_.files.tensors[prefix + theirs] = std::move(numbers);
    }
  }
  static Files::Numbers transpose(const Files::Numbers& from) {
    const Index rows = from.shape[0], columns = from.shape[1];
    Files::Numbers to{{columns, rows}, from.values};
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        to.values[static_cast<std::size_t>(j * rows + i)] =
            from.values[static_cast<std::size_t>(i * columns + j)];
    return to;
  }

  Random random_;
  Recipe recipe_;
};

inline std::string block(const std::string& blocks, int i) { return blocks + "." + std::to_string(i) + "."; }

}  // namespace linrec::test::recipes
