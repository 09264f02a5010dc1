// What the generate tests share: running the program, and a tiny model.
#pragma once

#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "linrec/io/safetensors.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"

namespace generate::test {

using linrec::Index;
using linrec::io::SafetensorsWriter;
using linrec::test::TemporaryDirectory;

struct Outcome {
  int status;
  std::string out, error;
};

inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs the program in a shell: exit status, standard output, standard error.
inline Outcome call(const std::string& arguments) {
  const TemporaryDirectory folder;
  const std::string command = "'" LINREC_GENERATE_EXE "' " + arguments + " > '" + (folder / "out").string() +
                              "' 2> '" + (folder / "error").string() + "'";
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), content(folder / "out"), content(folder / "error")};
}

/// A random RWKV-7 of two layers in BlinkDL's names: width 8, one head.
inline SafetensorsWriter tiny_rwkv7(Index vocabulary) {
  constexpr Index D = 8, rank = 2, hidden = 16;
  SafetensorsWriter file;
  std::mt19937_64 bits(7);
  const auto add = [&](const std::string& name, std::vector<Index> shape, double middle, double spread) {
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    std::vector<float> numbers(static_cast<std::size_t>(size));
    for (float& x : numbers) {
      const double uniform = static_cast<double>(bits() >> 11) * 0x1p-53;
      x = static_cast<float>(middle + spread * (2 * uniform - 1));
    }
    file.add(name, std::move(shape), numbers);
  };
  const auto add_norm = [&](const std::string& name) {
    add(name + ".weight", {D}, 1, 0.2);
    add(name + ".bias", {D}, 0, 0.2);
  };
  add("emb.weight", {vocabulary, D}, 0, 1);
  add("head.weight", {vocabulary, D}, 0, 2);
  add_norm("ln_out");
  add_norm("blocks.0.ln0");
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    add_norm(block + "ln1");
    add_norm(block + "ln2");
    add_norm(block + "att.ln_x");
    for (const char* mu : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"})
      add(block + "att." + mu, {1, 1, D}, 0.5, 0.5);
    for (const char* matrix : {"receptance", "key", "value", "output"})
      add(block + "att." + matrix + ".weight", {D, D}, 0, 1);
    for (const std::string low_rank : {"w", "a", "g", "v"}) {
      if (low_rank == "v" && block == "blocks.0.") continue;
      add(block + "att." + low_rank + "1", {D, rank}, 0, 0.5);
      add(block + "att." + low_rank + "2", {rank, D}, 0, 0.5);
      if (low_rank != "g") add(block + "att." + low_rank + "0", {1, 1, D}, low_rank == "w" ? -2 : 0, 0.5);
    }
    add(block + "att.k_k", {1, 1, D}, 0.8, 0.1);
    add(block + "att.k_a", {1, 1, D}, 0.8, 0.1);
    add(block + "att.r_k", {1, D}, 0, 0.5);
    add(block + "ffn.x_k", {1, 1, D}, 0.5, 0.5);
    add(block + "ffn.key.weight", {hidden, D}, 0, 0.5);
    add(block + "ffn.value.weight", {D, hidden}, 0, 0.5);
  }
  return file;
}

/// A folder with models: bytes (vocabulary 256), words (vocabulary 1000).
class Models : public TemporaryDirectory {
 public:
  Models() {
    tiny_rwkv7(256).write(*this / "bytes");
    tiny_rwkv7(1000).write(*this / "words");
  }
  /// " --NAME 'FOLDER/file'"
  std::string option(const std::string& name, const std::string& file) const {
    return " --" + name + " '" + (*this / file).string() + "'";
  }
};

}  // namespace generate::test
