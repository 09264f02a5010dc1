// Running linrec-verify, and case files that were changed a little.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "linrec/io/safetensors.hpp"
#include "linrec/io/safetensors_writer.hpp"

namespace linrec::test {

/// What a run of the tool printed, standard error included, and its exit status.
struct ToolRun {
  std::string output;
  int status;

  std::vector<std::string> lines() const {
    std::vector<std::string> result;
    std::istringstream stream(output);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  }
  /// The rows of a case with this result.
  std::vector<std::string> rows(const std::string& result, const std::string& name = "") const {
    std::vector<std::string> found;
    for (const std::string& line : lines()) {
      std::istringstream words(line);
      std::string row_name, scalar, way, row_result;
      words >> row_name >> scalar >> way >> row_result;
      if (row_result == result && (name.empty() || row_name == name)) found.push_back(line);
    }
    return found;
  }
  std::size_t count(const std::string& result) const { return rows(result).size(); }
  bool has(const std::string& text) const { return output.find(text) != std::string::npos; }
};

inline std::string quoted(const std::filesystem::path& path) { return " '" + path.string() + "'"; }

inline ToolRun run_tool(const std::string& arguments) {
  const std::string command = quoted(LINREC_VERIFY_EXE).substr(1) + " " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  ToolRun run{"", -1};
  std::array<char, 4096> part;
  for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    run.output.append(part.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) run.status = WEXITSTATUS(status);
  return run;
}

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(LINREC_TEST_DATA) / "golden" / (name + ".safetensors");
}

/// A case in memory, to change and to write.
struct CaseFile {
  struct Entry {
    io::DataType type;
    std::vector<Index> shape;
    std::vector<double> numbers;
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;

  CaseFile() = default;
  explicit CaseFile(const std::string& golden_name) : CaseFile(read(golden(golden_name))) {}
  static CaseFile read(const std::filesystem::path& path) {
    const io::SafetensorsFile file(path);
    CaseFile result;
    for (const std::string& name : file.names()) {
      const io::Tensor tensor = file.tensor(name);
      result.tensors[name] = {tensor.type, tensor.shape, tensor.to<double>()};
    }
    result.metadata = file.metadata();
    return result;
  }

  std::filesystem::path write(const std::filesystem::path& path) const {
    io::SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors) {
      const auto& [type, shape, numbers] = tensor;
      if (type == io::DataType::F64)
        writer.add(name, shape, numbers);
      else if (type == io::DataType::I64)
        writer.add(name, shape, std::vector<std::int64_t>(numbers.begin(), numbers.end()));
      else
        writer.add(name, shape, std::vector<float>(numbers.begin(), numbers.end()));
    }
    for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
    writer.write(path);
    return path;
  }

  /// Makes the number of largest magnitude larger by this part of itself; 0 becomes the part.
  void disturb(const std::string& name, double part) {
    std::vector<double>& x = tensors.at(name).numbers;
    const auto largest =
        std::max_element(x.begin(), x.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
    *largest = *largest == 0 ? part : *largest * (1 + part);
  }

  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with("out.") || name.starts_with("cache_mid.")) names.push_back(name);
    return names;
  }
  /// What the table calls the output of that tensor.
  static std::string shown(const std::string& tensor) {
    return tensor.starts_with("out.") ? tensor.substr(4) : tensor;
  }
};

}  // namespace linrec::test
