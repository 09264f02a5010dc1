// A model with a self-test, and self-tests to change.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "linrec/io/self_test.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test {

using io::Checkpoint;
using io::DataType;
using io::SafetensorsFile;
using io::SafetensorsWriter;

inline const std::string self_test_prefix = io::self_test_prefix;

inline SafetensorsWriter with_weights(const Files& files) {
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : files.tensors) writer.add(name, tensor.shape, tensor.values);
  return writer;
}

inline Checkpoint opened(const SafetensorsWriter& writer) {
  return {SafetensorsFile::from_bytes(writer.bytes(), "m"), "m"};
}

/// The tensors and texts of a self-test, to change and to put into a checkpoint without any weights.
struct TestParts {
  struct Part {
    DataType type;
    std::vector<Index> shape;
    std::vector<double> numbers;
  };
  std::map<std::string, Part> tensors;  // without the prefix
  std::map<std::string, std::string> metadata;

  explicit TestParts(const SafetensorsWriter& writer) {
    const Checkpoint checkpoint = opened(writer);
    for (const auto& [name, tensor] : checkpoint.tensors())
      if (name.starts_with(self_test_prefix))
        tensors[name.substr(self_test_prefix.size())] = {tensor.type, tensor.shape, tensor.to<double>()};
    metadata = checkpoint.metadata();
  }

  Checkpoint checkpoint() const {
    SafetensorsWriter writer;
    for (const auto& [name, part] : tensors) {
      if (part.type == DataType::I64)
        writer.add(self_test_prefix + name, part.shape,
                   std::vector<std::int64_t>(part.numbers.begin(), part.numbers.end()));
      else
        writer.add(self_test_prefix + name, part.shape, part.numbers);
    }
    for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
    return opened(writer);
  }
};

struct Example {
  LanguageModel<float> model = load_float(as_checkpoint(recipe("blinkdl rwkv7").files));
  std::vector<TokenId> tokens = random_tokens(20, model.vocabulary());
  SafetensorsWriter writer;
  Example() { io::add_self_test<float>(writer, model, tokens, 1e-4); }
};

/// Made once: most sections change it a little.
inline const Example& example() {
  static const Example one;
  return one;
}

}  // namespace linrec::test
