// Models, behind an interface that spares most sources all layers of all architectures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "kernels.hpp"
#include "splits.hpp"

namespace linrec::verify {

/// A model of a checkpoint, in either scalar type.
class ModelFile {
 public:
  ModelFile() = default;
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  virtual ~ModelFile() = default;

  virtual std::string architecture() const = 0;
  /// Computes all that the model gives from an empty state on, by the names of the expected files.
  /// @throws ValueError if a token is not in the vocabulary.
  virtual Outputs run(std::span<const std::int32_t> tokens, const Split& split) const = 0;
};

/// @throws FormatError as io::load_model.
template <class Scalar>
std::unique_ptr<const ModelFile> open_model(const std::filesystem::path& path);

}  // namespace linrec::verify
