// GoldenCase: one file of inputs, options and right outputs. It answers for what it holds, in errors
// that name the tensor or the key, and remembers which inputs were asked for.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linrec/io/tensor.hpp"

namespace linrec::io {
class SafetensorsFile;  // spares most sources the JSON parser
}

namespace linrec::verify {

/// The names of outputs that are caches half way begin so.
inline constexpr std::string_view cache_mid_prefix = "cache_mid.";

/// The case asks for something that this tool does not know: a kernel, an option, an input.
struct Unknown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class GoldenCase {
 public:
  /// @throws FormatError if the file cannot be read.
  explicit GoldenCase(const std::filesystem::path& path);
  ~GoldenCase();

  // The options, texts in __metadata__. All throw a FormatError that names the key if it is missing
  // (unless there is a fallback) or does not hold what was asked for, to the last character.
  bool has_option(const std::string& key) const;
  std::string text(const std::string& key) const;
  double number(const std::string& key) const;
  double number_or(const std::string& key, double fallback) const;
  std::int64_t count(const std::string& key) const;  ///< an integer of at least 0
  std::int64_t count_or(const std::string& key, std::int64_t fallback) const;
  bool flag_or(const std::string& key, bool fallback) const;  ///< "0" or "1"
  /// Two numbers as Python writes them, "(0.01, 2.0)".
  std::pair<double, double> interval(const std::string& key) const;

  /// @throws FormatError if the option `key` is there and says another size.
  void check_size(const std::string& key, Index size) const;
  /// @throws Unknown if the option `key` is there and says something else.
  void check_convention(const std::string& key, const std::string& known) const;

  // The inputs, in.NAME. The names here are without the "in.".
  bool has_input(const std::string& name) const;
  /// Whether an input that may be missing is there.
  /// @throws FormatError if the option `flag` is there and says otherwise.
  bool has_input(const std::string& name, const std::string& flag) const;
  /// @throws FormatError if there is no such tensor.
  io::Tensor input(const std::string& name);
  /// @param letters names the extents in the error text, "[B, T, H, K]".
  /// @throws FormatError if there is no such tensor or it has another shape.
  io::Tensor input(const std::string& name, const std::vector<Index>& shape, const std::string& letters);
  /// An input [n] in double.
  Eigen::ArrayXd vector(const std::string& name, Index n, const std::string& letter);
  /// The extent i of an input of the given rank.
  Index extent(const std::string& name, std::size_t i, std::size_t rank) const;
  /// @throws Unknown if there is an input that nobody asked for.
  void check_all_inputs_read() const;

  // The right outputs, out.NAME and cache_mid.NAME. The names here are without the "out.".
  std::vector<std::string> output_names() const;
  bool has_output(const std::string& name) const;
  io::Tensor output(const std::string& name) const;
  /// @throws FormatError if the output has another shape.
  void check_output_shape(const std::string& name, const std::vector<Index>& shape) const;

  /// All tensors, for who reads weights.
  const io::SafetensorsFile& tensors() const { return *file_; }

 private:
  std::unique_ptr<const io::SafetensorsFile> file_;
  std::set<std::string> read_;
};

}  // namespace linrec::verify
