#include "linrec/io/safetensors.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<sys/resource.h>)
#include <sys/resource.h>

#include <csignal>
#endif

#include "linrec/io/safetensors_writer.hpp"
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"

namespace linrec::test::safetensors_test {

using namespace linrec::io;
using Shape = std::vector<Index>;
using namespace std::string_literals;

namespace {

// Known fault B67: the data begins at an odd address, and a tensor of one byte comes first.
Bytes misaligned_file() {
  std::string header = R"({"first":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("f32":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},)"
                       R"("bf16":{"dtype":"BF16","shape":[3],"data_offsets":[9,15]},)"
                       R"("f16":{"dtype":"F16","shape":[],"data_offsets":[15,17]}})";
  if (header.size() % 2 == 0) header += ' ';
  return raw_file(header,
                  "\x07"
                  "\x00\x00\x80\x3f\x00\x00\x20\xc0"
                  "\x80\x3f\x00\xc0\x80\x7f"
                  "\x00\x3c"s);
}

void check_misaligned(const SafetensorsFile& file) {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(file.names() == std::vector<std::string>{"bf16", "f16", "f32", "first"});
  CHECK(file.tensor("first").to<int>() == std::vector{7});
  CHECK(file.tensor("f32").to<float>() == std::vector{1.0F, -2.5F});
  CHECK(file.tensor("f32").to<double>() == std::vector{1.0, -2.5});
  CHECK(file.tensor("bf16").to<double>() == std::vector{1.0, -2.0, infinity});
  CHECK(file.tensor("f16").to<double>() == std::vector{1.0});
  CHECK(file.tensor("f16").shape.empty());
  CHECK(file.tensor("f16").size() == 1);
  CHECK(file.tensor("f32").shape == Shape{2});
}

template <class T>
SafetensorsFile file_of(const std::vector<T>& values, DataType type) {
  SafetensorsWriter writer;
  writer.add("x", {static_cast<Index>(values.size())}, values, type);
  return SafetensorsFile::from_bytes(writer.bytes(), "x.safetensors");
}

// Reads a tensor of `values` as From and as To; the second must be the values cast.
template <class To, class T>
void check_conversion(const std::vector<T>& values, DataType type) {
  const Tensor tensor = file_of(values, type).tensor("x");
  CHECK(tensor.type == type);
  std::vector<To> right;
  for (const T value : values) right.push_back(static_cast<To>(value));
  CHECK(tensor.to<To>() == right);
}

template <class T>
void check_round_trip(const std::vector<T>& values, DataType type) {
  INFO(name_of(type));
  check_conversion<T>(values, type);
  const Tensor tensor = file_of(values, type).tensor("x");  // outlives its file
  if (data_type_of<T>() != type) {
    CHECK_FALSE(tensor.view<T>());
    return;
  }
  const auto view = tensor.view<T>();
  REQUIRE(view);
  CHECK(std::vector<T>(view->begin(), view->end()) == values);
  CHECK(view->data() == static_cast<const void*>(tensor.bytes.data()));
}

}  // namespace

TEST_CASE("B67: data at odd addresses, offsets from the end of the header, types as declared") {
  const TemporaryDirectory directory;
  write_file(directory / "odd.safetensors", misaligned_file());
  const SafetensorsFile mapped(directory / "odd.safetensors");
  const auto in_memory = SafetensorsFile::from_bytes(misaligned_file(), "odd");
  REQUIRE(reinterpret_cast<std::uintptr_t>(mapped.tensor("first").bytes.data()) % 2 == 1);
  REQUIRE(reinterpret_cast<std::uintptr_t>(in_memory.tensor("first").bytes.data()) % 2 == 1);
  // data + 1 is even, but is it a multiple of 4? Only then a view may exist.
  for (const auto* file : {&mapped, &in_memory}) {
    check_misaligned(*file);
    const Tensor f32 = file->tensor("f32");
    CHECK(f32.view<float>().has_value() ==
          (reinterpret_cast<std::uintptr_t>(f32.bytes.data()) % alignof(float) == 0));
  }
  const auto read = read_file(directory / "odd.safetensors");  // the way without mmap
  const auto map = map_file(directory / "odd.safetensors");
  CHECK(Bytes(read.bytes.begin(), read.bytes.end()) == misaligned_file());
  CHECK(Bytes(map.bytes.begin(), map.bytes.end()) == misaligned_file());
  CHECK(read.bytes.data() != map.bytes.data());
}

TEST_CASE("every alignment of the data reads alike") {
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const std::string header =
        R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})" + std::string(padding, ' ');
    const auto file =
        SafetensorsFile::from_bytes(raw_file(header, "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\x04\xc0"s), "x");
    const Tensor tensor = file.tensor("x");
    CHECK(tensor.to<double>() == std::vector{1.0, -2.5});
    const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % alignof(double) == 0;
    CHECK(aligned == (header.size() % 8 == 0));
    CHECK(tensor.view<double>().has_value() == aligned);
    CHECK_FALSE(tensor.view<float>());
    CHECK_FALSE(tensor.view<std::int64_t>());
  }
}

TEST_CASE("every type comes back as it was written") {
  using Limits64 = std::numeric_limits<std::int64_t>;
  using Limits32 = std::numeric_limits<std::int32_t>;
  check_round_trip<double>({0.1, -1e300, 5e-324, std::numeric_limits<double>::infinity()}, DataType::F64);
  check_round_trip<float>({0.1F, -1e38F, 1e-45F, -std::numeric_limits<float>::infinity()}, DataType::F32);
  check_round_trip<float>({1, -2.5, 65504, 0x1p-24F}, DataType::F16);
  check_round_trip<float>({1, -2.5, 0x1p127F, 0x1p-133F}, DataType::BF16);
  check_round_trip<std::int64_t>({0, -1, Limits64::max(), Limits64::min()}, DataType::I64);
  check_round_trip<std::int32_t>({0, -1, Limits32::max(), Limits32::min()}, DataType::I32);
  check_round_trip<std::uint8_t>({0, 1, 127, 255}, DataType::U8);
  check_round_trip<std::uint8_t>({0, 1, 1, 0}, DataType::BOOL);
  check_round_trip<double>({}, DataType::F64);

  const float nan = std::bit_cast<float>(0x7fc12345U);
  CHECK(std::bit_cast<std::uint32_t>(file_of<float>({nan}, DataType::F32).tensor("x").to<float>()[0]) ==
        0x7fc12345U);
}

TEST_CASE("elements convert to other types") {
  check_conversion<float>(std::vector{0.1, -1e300, 1e-300}, DataType::F64);
  check_conversion<double>(std::vector{0.1F, -1e30F}, DataType::F32);
  check_conversion<double>(std::vector<float>{1.5F, -0.0F}, DataType::F16);
  check_conversion<float>(std::vector<std::int64_t>{1, -(std::int64_t(1) << 60) - 1}, DataType::I64);
  check_conversion<std::int64_t>(std::vector{3.0, -0x1p63, 0x1p62}, DataType::F64);
  check_conversion<std::int64_t>(std::vector<float>{3, -4}, DataType::BF16);
  check_conversion<std::uint8_t>(std::vector<std::int32_t>{0, 255}, DataType::I32);
  check_conversion<double>(std::vector<std::uint8_t>{0, 255}, DataType::U8);

  // Files may hold any byte as a BOOL.
  const auto file = SafetensorsFile::from_bytes(
      raw_file(R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", "\x00\x01\xff"s), "x");
  CHECK(file.tensor("x").to<int>() == std::vector{0, 1, 1});
}

TEST_CASE("what an integer type cannot hold is refused, with the tensor and the element") {
  const auto refused = [](const auto& values, DataType type, auto to) {
    const auto file = file_of(values, type);
    return error_text<FormatError>([&] { (void)file.tensor("x").template to<decltype(to)>(); });
  };
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK_THAT(refused(std::vector{1.0, 2.5}, DataType::F64, std::int64_t()),
             contains("tensor 'x': element 1 is 2.5, which an integer of 8 bytes, signed, cannot hold"));
  for (const double value : {0x1p63, -0x1.8p63, infinity, -infinity, std::nan("")})
    CHECK_THAT(refused(std::vector{value}, DataType::F64, std::int64_t()), contains("element 0 is"));
  CHECK_THAT(refused(std::vector{-1.0F}, DataType::F32, std::uint64_t()), contains("-1, which"));
  CHECK_THAT(refused(std::vector{0x1p64F}, DataType::F32, std::uint64_t()), contains("element 0"));
  CHECK_THAT(refused(std::vector{65504.0F}, DataType::F16, std::int16_t()), contains("65504"));
  CHECK_THAT(refused(std::vector<std::int64_t>{7, 1LL << 31}, DataType::I64, std::int32_t()),
             contains("element 1 is 2147483648"));
  CHECK_THAT(refused(std::vector<std::uint8_t>{200}, DataType::U8, std::int8_t()),
             contains("element 0 is 200, which an integer of 1 bytes, signed"));
  CHECK_THAT(refused(std::vector<std::int32_t>{-1}, DataType::I32, std::uint8_t()), contains("-1, which"));
}

TEST_CASE("scalars, empty tensors and files without tensors are legal") {
  const auto empty = SafetensorsFile::from_bytes(raw_file("{}", ""), "empty");
  CHECK(empty.names().empty());
  CHECK(empty.metadata().empty());
  CHECK(SafetensorsFile::from_bytes(SafetensorsWriter().bytes(), "empty").names().empty());

  SafetensorsWriter writer;
  writer.add("scalar", {}, std::array{3.0F});
  writer.add("none", {0, 5}, std::vector<double>{});
  writer.add("nothing", {2, 0}, std::vector<std::uint8_t>{});
  const auto file = SafetensorsFile::from_bytes(writer.bytes(), "x");
  CHECK(file.tensor("scalar").to<double>() == std::vector{3.0});
  CHECK(file.tensor("scalar").shape.empty());
  CHECK(file.tensor("none").shape == Shape{0, 5});
  CHECK(file.tensor("none").size() == 0);
  CHECK(file.tensor("none").to<float>().empty());
  CHECK(file.tensor("nothing").shape == Shape{2, 0});
}

TEST_CASE("names and metadata are sorted and complete") {
  SafetensorsWriter writer;
  writer.add("b", {1}, std::vector{1.0F});
  writer.add("a \"quoted\" \\ n\u00e4me", {1}, std::vector{2.0});
  writer.set_metadata("kernel", "gla");
  writer.set_metadata("format", "old");
  writer.set_metadata("format", "line\nbreak");
  const auto file = SafetensorsFile::from_bytes(writer.bytes(), "x");
  CHECK(file.names() == std::vector<std::string>{"a \"quoted\" \\ n\u00e4me", "b"});
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "line\nbreak"}, {"kernel", "gla"}});
  CHECK(file.contains("b"));
  CHECK_FALSE(file.contains("__metadata__"));
  CHECK(file.tensor("a \"quoted\" \\ n\u00e4me").to<int>() == std::vector{2});
}

TEST_CASE("a missing tensor is named, with the file and what is there") {
  const auto missing = [](const SafetensorsFile& file) {
    return error_text<FormatError>([&] { (void)file.tensor("A_log"); });
  };
  SafetensorsWriter writer;
  CHECK(missing(SafetensorsFile::from_bytes(writer.bytes(), "m.safetensors")) ==
        "file 'm.safetensors': has no tensor 'A_log', it has 0");
  writer.add("dt_bias", {1}, std::vector{1.0F});
  writer.add("D", {1}, std::vector{1.0F});
  CHECK(missing(SafetensorsFile::from_bytes(writer.bytes(), "m.safetensors")) ==
        "file 'm.safetensors': has no tensor 'A_log', it has 2: D, dt_bias");
  for (int i = 0; i < 1000; ++i)
    writer.add(std::string(300, 'x') + std::to_string(i), {1}, std::vector{1.0F});
  const std::string text = missing(SafetensorsFile::from_bytes(writer.bytes(), "m.safetensors"));
  CHECK_THAT(text, contains("it has 1002: D, dt_bias, xxx"));
  CHECK(text.size() < 1200);
}

TEST_CASE("a file can be moved and copied; tensors outlive it") {
  std::optional<SafetensorsFile> file = SafetensorsFile::from_bytes(misaligned_file(), "odd");
  const SafetensorsFile copy = *file;
  const SafetensorsFile moved = std::move(*file);
  file.reset();
  check_misaligned(copy);
  check_misaligned(moved);

  const TemporaryDirectory directory;
  write_file(directory / "odd.safetensors", misaligned_file());
  const Tensor tensor = SafetensorsFile(directory / "odd.safetensors").tensor("f32");
  CHECK(tensor.to<float>() == std::vector{1.0F, -2.5F});
}

TEST_CASE("written tensors are aligned, ordered by element size then name, and the bytes are right") {
  SafetensorsWriter writer;
  writer.add("u", {3}, std::vector<std::uint8_t>{1, 2, 3});
  writer.add("z", {1}, std::vector{1.0F});
  writer.add("h", {1}, std::vector{1.0F}, DataType::F16);
  writer.add("d", {1}, std::vector{1.0});
  writer.add("b", {1}, std::vector<std::int32_t>{-1});
  const std::string header = R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"I32","shape":[1],"data_offsets":[8,12]},)"
                             R"("z":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},)"
                             R"("h":{"dtype":"F16","shape":[1],"data_offsets":[16,18]},)"
                             R"("u":{"dtype":"U8","shape":[3],"data_offsets":[18,21]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(writer.bytes() == raw_file(padded,
                                   "\x00\x00\x00\x00\x00\x00\xf0\x3f"
                                   "\xff\xff\xff\xff"
                                   "\x00\x00\x80\x3f"
                                   "\x00\x3c"
                                   "\x01\x02\x03"s));

  // Whatever the length of the header, it is padded to 8 bytes.
  for (std::size_t length = 1; length < 17; ++length) {
    SafetensorsWriter other;
    other.add(std::string(length, 'n'), {1}, std::vector{1.0});
    other.set_metadata("key", "value");
    CHECK(other.bytes().size() % 8 == 0);
    CHECK(SafetensorsFile::from_bytes(other.bytes(), "x").tensor(std::string(length, 'n')).view<double>());
  }
}

TEST_CASE("the writer refuses what makes no tensor, naming it") {
  SafetensorsWriter writer;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  writer.add("w", {2, 3}, values);
  const auto before = writer.bytes();
  const auto shape_text = [&](Shape shape) {
    return error_text<ShapeError>([&] { writer.add("conv.weight", shape, values); });
  };
  const auto value_text = [&](std::string name, DataType type) {
    return error_text<ValueError>([&] { writer.add(name, {6}, values, type); });
  };
  CHECK(shape_text({2, 4}) ==
        "tensor 'conv.weight': expected as many values as the shape [2, 4] has elements, got 6");
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{-2, -3}, Shape{Index(1) << 62, 4}})
    CHECK_THAT(shape_text(shape), contains("tensor 'conv.weight'"));
  CHECK(value_text("w", DataType::F32) == "tensor 'w': added twice");
  CHECK(value_text("__metadata__", DataType::F32) == "tensor '__metadata__': the name is reserved");
  CHECK_THAT(value_text("n\xff", DataType::F32), contains("not valid UTF-8"));
  CHECK(value_text("v", DataType::F64) == "tensor 'v': values of this type are not stored as F64");
  CHECK_THAT(value_text("v", DataType::BOOL), contains("tensor 'v': values of this type"));
  const std::vector<std::uint8_t> flags{0, 2};
  CHECK(error_text<ValueError>([&] { writer.add("m", {2}, flags, DataType::BOOL); }) ==
        "tensor 'm': expected BOOL values 0 or 1, got 2");
  CHECK_THAT(error_text<ValueError>([&] { writer.set_metadata("\xc3", ""); }), contains("metadata key"));
  CHECK_THAT(error_text<ValueError>([&] { writer.set_metadata("k", "\xc3"); }), contains("metadata value"));
  CHECK(writer.bytes() == before);
}

TEST_CASE("writing replaces a file whole or not at all") {
  const TemporaryDirectory directory;
  SafetensorsWriter writer;
  writer.add("x", {1 << 16}, std::vector<double>(1 << 16, 1.0));
  writer.write(directory / "new.safetensors");
  CHECK(file_contents(directory / "new.safetensors") == writer.bytes());
  CHECK(directory.names() == std::vector<std::string>{"new.safetensors"});
  writer.add("y", {1}, std::vector{1.0});
  writer.write(directory / "new.safetensors");
  CHECK(SafetensorsFile(directory / "new.safetensors").contains("y"));
  CHECK(directory.names() == std::vector<std::string>{"new.safetensors"});

  SECTION("the temporary file lies beside the target, where a rename is atomic") {
    {
      const linrec::io::detail::TemporaryFile file(directory / "other.safetensors");
      CHECK(directory.names().size() == 2);
    }
    CHECK(directory.names().size() == 1);
  }
  SECTION("the directory does not exist") {
    const std::string text =
        error_text<linrec::Error>([&] { writer.write(directory / "missing" / "x.safetensors"); });
    CHECK_THAT(text, contains("x.safetensors': cannot be written: "));
    CHECK(directory.names() == std::vector<std::string>{"new.safetensors"});
  }
  SECTION("the target is a directory") {
    std::filesystem::create_directory(directory / "folder");
    const std::string text = error_text<linrec::Error>([&] { writer.write(directory / "folder"); });
    CHECK_THAT(text, contains("folder': cannot be written: "));
    CHECK(directory.names().size() == 2);
    CHECK(std::filesystem::is_directory(directory / "folder"));
  }
#if __has_include(<sys/resource.h>)
  SECTION("the disk is full, half way") {
    write_file(directory / "new.safetensors", misaligned_file());
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    rlimit low = old;
    low.rlim_cur = 10000;
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &low);
    std::string text;
    try {
      text = error_text<linrec::Error>([&] { writer.write(directory / "new.safetensors"); });
    } catch (...) {
      text = "another exception";
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, old_handler);
    CHECK_THAT(text, contains("new.safetensors': cannot be written: "));
    CHECK(directory.names() == std::vector<std::string>{"new.safetensors"});
    CHECK(file_contents(directory / "new.safetensors") == misaligned_file());
  }
#endif
}

}  // namespace linrec::test::safetensors_test
