// Tiny models of every project, as the files that the project writes: random weights, but with the mixers of
// golden layers among them, whose right outputs are known.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "linrec/models/language_model.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test {

/// The tensors of a checkpoint, and its config.json.
struct Files {
  struct Numbers {
    std::vector<Index> shape;
    std::vector<float> values;
  };
  std::map<std::string, Numbers> tensors;
  std::string config;  ///< empty: none

  /// The tensor, which must be there.
  Numbers& operator[](const std::string& name) { return tensors.at(name); }
  const Numbers& operator[](const std::string& name) const { return tensors.at(name); }
};

/// Where the parts that are not branches lie, and how they are normalised.
struct Skeleton {
  std::string embedding, head;           ///< names of tensors; the same: tied
  std::string embedding_norm;            ///< names of norms without ".weight"
  std::vector<std::string> branch_norm;  ///< of each branch
  std::string final_norm;
  bool layer_norm = false;  ///< or RMSNorm
  double norm_eps = 1e-5;
};

/// A branch whose weights are those of a golden file, or the tensors of a gated MLP.
struct KnownBranch {
  std::size_t branch;
  std::string golden;
};
struct KnownMLP {
  std::size_t branch;
  std::string gate, up, down;  ///< the same for gate and up: both in one tensor
  bool up_first = false;       ///< in that tensor
};

struct Recipe {
  std::string name;
  Files files;
  Skeleton skeleton;
  std::vector<KnownBranch> golden;
  std::vector<KnownMLP> mlps;
};

/// One of each project and architecture, and of every form in which a project stored it.
const std::vector<Recipe>& all_recipes();
const Recipe& recipe(std::string_view name);
/// Those of Echo.
std::vector<Recipe> echo_recipes();

/// The same files with a key of the config set; null removes it.
Files with_key(Files files, const std::string& key, const nlohmann::json& value);
/// A tensor with random numbers around `middle`.
Files::Numbers random_numbers(Random& random, std::vector<Index> shape, double middle = 0,
                              double spread = 0.3);

io::SafetensorsFile golden_layer(const std::string& name);

/// Writes model.safetensors, with all tensors stored as this type, and config.json into a folder.
void write_files(const Files& files, const std::filesystem::path& folder,
                 io::DataType type = io::DataType::F32);
/// The bytes of model.safetensors.
Bytes model_bytes(const Files& files, io::DataType type = io::DataType::F32);
/// The files as a checkpoint that lies in a folder of its own, which is gone afterwards; the mapping stays.
io::Checkpoint as_checkpoint(const Files& files, io::DataType type = io::DataType::F32);

std::vector<TokenId> random_tokens(Index count, Index vocabulary, std::uint64_t seed = 1);

}  // namespace linrec::test
