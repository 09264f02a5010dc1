#include "golden_case.hpp"

#include <charconv>
#include <string_view>
#include <system_error>

#include "linrec/io/safetensors.hpp"

namespace linrec::verify {

namespace {

template <class T>
T parse(const std::string& key, const std::string& text, const char* expected) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value != value)
    throw FormatError(message("option '", key, "': expected ", expected, ", got '", text, "'"));
  return value;
}

/// The tensor that has an output.
std::string tensor_of(const std::string& output) {
  return output.starts_with(cache_mid_prefix) ? output : "out." + output;
}

}  // namespace

GoldenCase::GoldenCase(const std::filesystem::path& path)
    : file_(std::make_unique<const io::SafetensorsFile>(path)) {}
GoldenCase::~GoldenCase() = default;

bool GoldenCase::has_option(const std::string& key) const { return file_->metadata().contains(key); }

std::string GoldenCase::text(const std::string& key) const {
  const auto found = file_->metadata().find(key);
  if (found == file_->metadata().end()) throw FormatError(message("option '", key, "' is missing"));
  return found->second;
}

double GoldenCase::number(const std::string& key) const { return parse<double>(key, text(key), "a number"); }

double GoldenCase::number_or(const std::string& key, double fallback) const {
  return has_option(key) ? number(key) : fallback;
}

std::int64_t GoldenCase::count(const std::string& key) const {
  const char* const expected = "an integer of at least 0";
  const auto value = parse<std::int64_t>(key, text(key), expected);
  if (value < 0) throw FormatError(message("option '", key, "': expected ", expected, ", got ", value));
  return value;
}

std::int64_t GoldenCase::count_or(const std::string& key, std::int64_t fallback) const {
  return has_option(key) ? count(key) : fallback;
}

bool GoldenCase::flag_or(const std::string& key, bool fallback) const {
  if (!has_option(key)) return fallback;
  const std::string value = text(key);
  if (value != "0" && value != "1")
    throw FormatError(message("option '", key, "': expected 0 or 1, got '", value, "'"));
  return value == "1";
}

std::pair<double, double> GoldenCase::interval(const std::string& key) const {
  const char* const expected = "two numbers, (a, b)";
  const std::string whole = text(key);
  const auto comma = whole.find(", ");
  if (!whole.starts_with('(') || !whole.ends_with(')') || comma == whole.npos)
    throw FormatError(message("option '", key, "': expected ", expected, ", got '", whole, "'"));
  return {parse<double>(key, whole.substr(1, comma - 1), expected),
          parse<double>(key, whole.substr(comma + 2, whole.size() - comma - 3), expected)};
}

void GoldenCase::check_size(const std::string& key, Index size) const {
  if (count_or(key, size) != size)
    throw FormatError(message("option '", key, "' is ", count(key), ", but the tensors have ", size));
}

void GoldenCase::check_convention(const std::string& key, const std::string& known) const {
  if (has_option(key) && text(key) != known)
    throw Unknown(message("option '", key, "': expected '", known, "', got '", text(key), "'"));
}

bool GoldenCase::has_input(const std::string& name) const { return file_->contains("in." + name); }

bool GoldenCase::has_input(const std::string& name, const std::string& flag) const {
  const bool there = has_input(name);
  if (flag_or(flag, there) != there)
    throw FormatError(message("option '", flag, "' is ", text(flag), ", but in.", name,
                              there ? " is" : " is not", " there"));
  return there;
}

io::Tensor GoldenCase::input(const std::string& name) {
  read_.insert(name);
  return file_->tensor("in." + name);
}

io::Tensor GoldenCase::input(const std::string& name, const std::vector<Index>& shape,
                             const std::string& letters) {
  io::Tensor tensor = input(name);
  if (tensor.shape != shape)
    throw FormatError(message("in.", name, ": expected ", letters, " = ", shape_text(shape), ", got ",
                              shape_text(tensor.shape)));
  return tensor;
}

Eigen::ArrayXd GoldenCase::vector(const std::string& name, Index n, const std::string& letter) {
  const std::vector<double> values = input(name, {n}, "[" + letter + "]").to<double>();
  return Eigen::Map<const Eigen::ArrayXd>(values.data(), n);
}

Index GoldenCase::extent(const std::string& name, std::size_t i, std::size_t rank) const {
  const io::Tensor tensor = file_->tensor("in." + name);
  if (tensor.shape.size() != rank)
    throw FormatError(message("in.", name, ": expected ", rank, " extents, got ", shape_text(tensor.shape)));
  return tensor.shape[i];
}

void GoldenCase::check_all_inputs_read() const {
  for (const std::string& name : file_->names())
    if (name.starts_with("in.") && !read_.contains(name.substr(3)))
      throw Unknown(message(name, ": not an input of this kernel under these options"));
}

std::vector<std::string> GoldenCase::output_names() const {
  std::vector<std::string> names;
  for (const std::string& name : file_->names())
    if (name.starts_with("out."))
      names.push_back(name.substr(4));
    else if (name.starts_with(cache_mid_prefix))
      names.push_back(name);
  return names;
}

bool GoldenCase::has_output(const std::string& name) const { return file_->contains(tensor_of(name)); }

io::Tensor GoldenCase::output(const std::string& name) const { return file_->tensor(tensor_of(name)); }

void GoldenCase::check_output_shape(const std::string& name, const std::vector<Index>& shape) const {
  const std::vector<Index> stored = output(name).shape;
  if (stored != shape)
    throw FormatError(message(tensor_of(name), ": expected ", shape_text(shape),
                              " from the inputs and options, got ", shape_text(stored)));
}

}  // namespace linrec::verify
