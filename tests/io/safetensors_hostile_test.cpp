// Files that are not what they should be. Each is refused when it is opened, with a text that says
// which file, which tensor, and why.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if __has_include(<sys/stat.h>)
#include <sys/stat.h>
#endif

#include "linrec/io/safetensors.hpp"
#include "linrec/io/safetensors_writer.hpp"
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"

namespace linrec::test::safetensors_hostile_test {

using namespace linrec::io;
using namespace std::string_literals;

namespace {

std::string refusal(Bytes bytes) {
  return error_text<FormatError>([&] { SafetensorsFile::from_bytes(std::move(bytes), "bad.safetensors"); });
}

// Four bytes of data unless told otherwise.
std::string refusal(std::string_view header, std::size_t data_size = 4) {
  return refusal(raw_file(header, std::string(data_size, '\0')));
}

// Of a file whose tensor "w" has this JSON.
std::string entry_refusal(const std::string& json, std::size_t data_size = 4) {
  return refusal(R"({"w":)" + json + "}", data_size);
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

const std::string good_entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

}  // namespace

TEST_CASE("the twin of all refused files opens") {
  CHECK(entry_refusal(good_entry) == "(nothing was thrown)");
  CHECK(entry_refusal(good_entry + "  \n") == "(nothing was thrown)");
  CHECK(refusal(R"({"__metadata__":{},"w":)" + good_entry + "}") == "(nothing was thrown)");
}

TEST_CASE("the length of the header is checked") {
  CHECK(refusal(Bytes()) ==
        "file 'bad.safetensors': has 0 bytes, too few for the 8 bytes of the header length");
  CHECK_THAT(refusal(Bytes(7)), contains("has 7 bytes, too few"));
  CHECK(refusal(raw_file("{}", "", 3)) ==
        "file 'bad.safetensors': the header length 3 reaches beyond the end of the file of 10 bytes");
  CHECK_THAT(refusal(raw_file("{}", "", 100'000'000)), contains("100000000 reaches beyond the end"));
  CHECK(refusal(raw_file("{}", "", 100'000'001)) ==
        "file 'bad.safetensors': the header length 100000001 is above the limit of 100000000 bytes");
  CHECK_THAT(refusal(raw_file("{}", "", ~std::uint64_t(0))),
             contains("18446744073709551615 is above the limit"));
  CHECK_THAT(refusal(raw_file("{}", "", ~std::uint64_t(0) - 7)), contains("is above the limit"));
  CHECK_THAT(refusal(raw_file("", "")), contains("the header is not a JSON object"));
}

TEST_CASE("a header that is no JSON object is refused") {
  for (const char* header : {"[]", "1", "null", "\"text\"", " {}", "\xef\xbb\xbf{}", "    "})
    CHECK_THAT(refusal(header, 0), contains("file 'bad.safetensors': the header is not a JSON object"));
  for (const char* header : {"{", "{}}", "{} x", "{\"w\"}", "{\"w\":}", "{,}", "{} /* comment */",
                             "{\"w\":1e999}", "{\"w\":{\"shape\":[01]}}", "{\"a\nb\":1}"})
    CHECK_THAT(refusal(header, 0), contains("file 'bad.safetensors': the header is not valid JSON"));
  CHECK_THAT(refusal("{} x", 0), contains("at byte 4 of it"));
  CHECK_THAT(refusal("{}\0\0"s, 0), contains("not valid JSON, it has a zero byte at 2"));
  CHECK_THAT(refusal("{}\0{\"hidden\":1}"s, 0), contains("zero byte"));
}

TEST_CASE("invalid UTF-8 is refused") {
  for (const char* bytes : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\\ud800"}) {
    const std::string text = refusal("{\""s + bytes + "\":" + good_entry + "}");
    CHECK_THAT(text, contains("the header is not valid JSON in UTF-8, at byte"));
    for (const char c : text) CHECK(static_cast<unsigned char>(c) < 0x80);
  }
  CHECK_THAT(refusal(R"({"__metadata__":{"k":")"
                     "\xff"
                     R"("}})",
                     0),
             contains("not valid JSON in UTF-8"));
}

TEST_CASE("deep nesting is refused where it begins, whatever its depth") {
  const int depth = 200'000;  // far more than a stack has room for
  const std::string arrays = repeated("[", depth), objects = repeated(R"({"a":)", depth);
  CHECK_THAT(refusal(R"({"w":)" + arrays, 0), contains("tensor 'w': expected a JSON object, got an array"));
  CHECK_THAT(refusal(R"({"w":{"shape":)" + arrays, 0),
             contains("tensor 'w': 'shape': expected whole numbers from 0 to 2^63 - 1, got an array"));
  CHECK_THAT(refusal(R"({"w":{"dtype":)" + arrays, 0),
             contains("tensor 'w': 'dtype': expected a string, got an array"));
  CHECK_THAT(refusal(R"({"w":{"data_offsets":[)" + arrays, 0), contains("'data_offsets'"));
  CHECK_THAT(refusal(objects, 0), contains("tensor 'a': 'a': unknown key"));
  CHECK_THAT(refusal(R"({"w":{"shape":)" + objects, 0),
             contains("'shape': expected an array, got an object"));
  CHECK_THAT(refusal(R"({"__metadata__":)" + objects, 0),
             contains("'__metadata__': 'a': expected a string, got an object"));
}

TEST_CASE("duplicate names are refused") {
  CHECK(refusal(R"({"w":)" + good_entry + R"(,"w":)" + good_entry + "}") ==
        "file 'bad.safetensors': tensor 'w': is given twice");
  CHECK_THAT(refusal(R"({"w":)" + good_entry + R"(,"\u0077":)" + good_entry + "}"),
             contains("is given twice"));
  CHECK(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0) ==
        "file 'bad.safetensors': '__metadata__': is given twice");
  CHECK(refusal(R"({"__metadata__":{"k":"1","k":"1"}})", 0) ==
        "file 'bad.safetensors': '__metadata__': 'k': is given twice");
  CHECK_THAT(entry_refusal(R"({"dtype":"F32","shape":[1],"dtype":"F32","data_offsets":[0,4]})"),
             contains("tensor 'w': 'dtype': is given twice"));
  CHECK_THAT(entry_refusal(R"({"shape":[1],"dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
             contains("tensor 'w': 'shape': is given twice"));
  CHECK_THAT(entry_refusal(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"data_offsets":[0,4]})"),
             contains("tensor 'w': 'data_offsets': is given twice"));
}

TEST_CASE("missing, unknown and wrongly typed keys of a tensor are refused") {
  CHECK(entry_refusal(R"({"shape":[1],"data_offsets":[0,4]})") ==
        "file 'bad.safetensors': tensor 'w': the key 'dtype' is missing");
  CHECK_THAT(entry_refusal(R"({"dtype":"F32","data_offsets":[0,4]})"),
             contains("the key 'shape' is missing"));
  CHECK_THAT(entry_refusal(R"({"dtype":"F32","shape":[1]})"), contains("the key 'data_offsets' is missing"));
  CHECK_THAT(entry_refusal("{}"), contains("tensor 'w': the key 'dtype' is missing"));
  CHECK(entry_refusal(R"({"dtype":"F32","strides":[1],"shape":[1],"data_offsets":[0,4]})") ==
        "file 'bad.safetensors': tensor 'w': 'strides': unknown key, known are dtype, shape, data_offsets");
  const std::pair<const char*, const char*> values[] = {
      {"null", "null"}, {"true", "true"}, {"false", "false"}, {"7", "7"},
      {"-7", "-7"},     {"1.5", "1.5"},   {"[]", "an array"}, {"\"F32\"", "the string 'F32'"}};
  for (const auto& [json, got] : values) {
    const std::string value = json, tail = ", got "s + got;
    CHECK(entry_refusal(value) == "file 'bad.safetensors': tensor 'w': expected a JSON object" + tail);
    if (value != "\"F32\"")
      CHECK(entry_refusal(R"({"dtype":)" + value + "}") ==
            "file 'bad.safetensors': tensor 'w': 'dtype': expected a string" + tail);
    if (value == "[]") continue;
    CHECK(entry_refusal(R"({"shape":)" + value + "}") ==
          "file 'bad.safetensors': tensor 'w': 'shape': expected an array" + tail);
    CHECK(entry_refusal(R"({"data_offsets":)" + value + "}") ==
          "file 'bad.safetensors': tensor 'w': 'data_offsets': expected an array" + tail);
    if (value == "7") continue;
    for (const char* field : {"shape", "data_offsets"})
      CHECK(entry_refusal("{\""s + field + "\":[" + value + "]}") ==
            "file 'bad.safetensors': tensor 'w': '"s + field +
                "': expected whole numbers from 0 to 2^63 - 1" + tail);
  }
}

TEST_CASE("unknown data types are refused") {
  for (const char* type : {"F8_E5M2", "f32", "", "F32 "})
    CHECK(entry_refusal(R"({"dtype":")"s + type + R"(","shape":[1],"data_offsets":[0,4]})") ==
          "file 'bad.safetensors': tensor 'w': 'dtype': unknown data type '"s + type +
              "', known are F64, F32, F16, BF16, I64, I32, U8, BOOL");
}

TEST_CASE("shapes that are no shapes are refused") {
  const auto shape_refusal = [](const std::string& shape) {
    return entry_refusal(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4]})");
  };
  for (const char* extent :
       {"-1", "1.0", "1e0", "0.5", "9223372036854775808", "18446744073709551616", "-9223372036854775809"})
    CHECK(shape_refusal("["s + extent + "]") ==
          "file 'bad.safetensors': tensor 'w': 'shape': expected whole numbers from 0 to 2^63 - 1, got "s +
              extent);
  for (const char* shape :
       {"[9223372036854775807]", "[4294967296,4294967296]", "[2305843009213693952]",
        "[0,4294967296,4294967296]", "[4611686018427387905,4]", "[4294967296,4294967296,0]"})
    CHECK(shape_refusal(shape) ==
          "file 'bad.safetensors': tensor 'w': the shape has more elements than memory can have bytes");
}

TEST_CASE("offsets that do not fit are refused") {
  const auto offset_refusal = [](const std::string& offsets) {
    return entry_refusal(R"({"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}");
  };
  const std::string where = "file 'bad.safetensors': tensor 'w': ";
  CHECK(offset_refusal("[4,0]") == where + "data_offsets [4, 0] run backwards");
  CHECK(offset_refusal("[0,8]") == where + "data_offsets [0, 8] reach beyond the 4 bytes of data");
  CHECK(offset_refusal("[1,5]") == where + "data_offsets [1, 5] reach beyond the 4 bytes of data");
  CHECK(offset_refusal("[9223372036854775803,9223372036854775807]") ==
        where + "data_offsets [9223372036854775803, 9223372036854775807] reach beyond the 4 bytes of data");
  CHECK_THAT(offset_refusal("[18446744073709551612,18446744073709551615]"),
             contains("expected whole numbers"));
  CHECK(offset_refusal("[0,3]") == where + "shape and dtype F32 need 4 bytes, data_offsets [0, 3] give 3");
  CHECK_THAT(offset_refusal("[0,0]"), contains("need 4 bytes, data_offsets [0, 0] give 0"));
  CHECK(offset_refusal("[]") == where + "'data_offsets': expected two numbers, got 0");
  CHECK(offset_refusal("[0]") == where + "'data_offsets': expected two numbers, got 1");
  CHECK(offset_refusal("[0,4,4]") == where + "'data_offsets': expected two numbers, got more");
  CHECK_THAT(entry_refusal(R"({"dtype":"F32","shape":[],"data_offsets":[0,0]})", 0),
             contains("need 4 bytes"));
  CHECK_THAT(entry_refusal(R"({"dtype":"F32","shape":[0],"data_offsets":[0,4]})"), contains("need 0 bytes"));
}

TEST_CASE("overlaps, holes and left-over bytes are refused") {
  const auto entry = [](const char* name, int begin, int end) {
    return linrec::message('"', name, R"(":{"dtype":"U8","shape":[)", end - begin, R"(],"data_offsets":[)",
                           begin, ",", end, "]}");
  };
  const std::string where = "file 'bad.safetensors': ";
  const auto pair_refusal = [&](const std::string& first, const std::string& second, std::size_t data_size) {
    const std::string text = refusal("{" + first + "," + second + "}", data_size);
    CHECK(refusal("{" + second + "," + first + "}", data_size) == text);  // the order of the keys is free
    return text;
  };
  CHECK(pair_refusal(entry("a", 0, 4), entry("b", 4, 8), 8) == "(nothing was thrown)");
  CHECK(pair_refusal(entry("b", 0, 4), entry("a", 4, 8), 8) == "(nothing was thrown)");
  CHECK(pair_refusal(entry("a", 0, 4), entry("b", 2, 6), 6) ==
        where + "tensor 'b': overlaps tensor 'a', which ends at data byte 4");
  CHECK_THAT(pair_refusal(entry("a", 0, 8), entry("b", 2, 4), 8), contains("'b': overlaps tensor 'a'"));
  CHECK_THAT(pair_refusal(entry("a", 0, 4), entry("b", 0, 4), 4), contains("overlaps tensor"));
  CHECK(pair_refusal(entry("a", 0, 4), entry("b", 6, 8), 8) ==
        where + "tensor 'b': a hole of 2 bytes lies before it, at data byte 4");
  CHECK(refusal("{" + entry("a", 1, 4) + "}") ==
        where + "tensor 'a': a hole of 1 bytes lies before it, at data byte 0");
  CHECK(refusal("{" + entry("a", 0, 4) + "}", 7) ==
        where + "3 bytes of data belong to no tensor, from data byte 4");
  CHECK(refusal("{}", 1) == where + "1 bytes of data belong to no tensor, from data byte 0");

  // Empty tensors lie between the others, not inside.
  CHECK(pair_refusal(entry("a", 0, 4), entry("b", 0, 0), 4) == "(nothing was thrown)");
  CHECK(pair_refusal(entry("a", 0, 4), entry("b", 4, 4), 4) == "(nothing was thrown)");
  CHECK_THAT(pair_refusal(entry("a", 0, 4), entry("b", 2, 2), 4), contains("'b': overlaps tensor 'a'"));
}

TEST_CASE("metadata that does not map strings to strings is refused") {
  for (const char* value : {"null", "true", "7", "-7", "1.5"}) {
    CHECK(refusal(R"({"__metadata__":)"s + value + "}", 0) ==
          "file 'bad.safetensors': '__metadata__': expected a JSON object, got "s + value);
    CHECK(refusal(R"({"__metadata__":{"k":)"s + value + "}}", 0) ==
          "file 'bad.safetensors': '__metadata__': 'k': expected a string, got "s + value);
  }
  CHECK_THAT(refusal(R"({"__metadata__":"text"})", 0), contains("got the string 'text'"));
  CHECK_THAT(refusal(R"({"__metadata__":[]})", 0),
             contains("'__metadata__': expected a JSON object, got an array"));
  CHECK_THAT(refusal(R"({"__metadata__":{"k":[]}})", 0), contains("expected a string, got an array"));
}

TEST_CASE("texts from hostile files stay short and printable") {
  const std::string name = R"(\u001b[2J\n)" + repeated("\u00e4", 100000);
  const std::string text = refusal("{\"" + name + "\":7}", 0);
  CHECK(text.size() < 300);
  CHECK_THAT(text, contains("tensor '?[2J?\u00e4\u00e4"));
  CHECK_THAT(text, contains("\u00e4...': expected a JSON object, got 7"));
  for (const char c : text) CHECK(static_cast<unsigned char>(c) >= 0x20);
  CHECK(refusal("{\"w\":{\"dtype\":\"" + std::string(100000, 'F') + "\"}}", 0).size() < 400);
  CHECK(refusal("{\"w\":{\"shape\":[0." + std::string(100000, '5') + "]}}", 0).size() < 400);
  CHECK(refusal("{\"w\":{\"shape\":[" + std::string(100000, '1') + "x]}}", 0).size() < 400);
}

TEST_CASE("paths that are no readable files are refused, with the path and the reason") {
  const TemporaryDirectory directory;
  const auto path_refusal = [&](const std::string& name) {
    const auto path = directory / name;
    return std::pair(error_text<FormatError>([&] { SafetensorsFile file(path); }),
                     "file '" + path.string() + "': ");
  };
  std::filesystem::create_directory(directory / "folder");
  write_file(directory / "empty", Bytes());
  write_file(directory / "bad", raw_file("{}", "x"));
  const auto check = [&](const std::string& name, const std::string& reason) {
    const auto [text, where] = path_refusal(name);
    CHECK(text == where + reason);
  };
  check("missing", "no such file");
  check("folder", "is a directory");
  check("empty", "has 0 bytes, too few for the 8 bytes of the header length");
  check("bad", "1 bytes of data belong to no tensor, from data byte 0");
  CHECK_THAT(path_refusal("empty/below").first, contains("empty/below': "));
  CHECK_THAT(path_refusal(std::string(5000, 'x')).first, contains("cannot be opened: "));
  CHECK_THAT(error_text<FormatError>([&] { read_file(directory / "missing"); }), contains("no such file"));
#if __has_include(<sys/stat.h>)
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  check("fifo", "is not a regular file");  // and opening it does not wait for a writer
#endif
}

TEST_CASE("any damage to a file is refused or harmless") {
  SafetensorsWriter writer;
  writer.add("a", {2}, std::vector{1.0, -2.0});
  writer.add("b", {2, 1}, std::vector{1.0F, 2.0F}, DataType::BF16);
  writer.add("c", {0}, std::vector<std::int32_t>{});
  writer.add("d", {3}, std::vector<std::uint8_t>{1, 0, 1}, DataType::BOOL);
  writer.set_metadata("k", "v");
  const Bytes good = writer.bytes();
  const std::size_t data_size = 16 + 4 + 3;
  REQUIRE(good.size() > data_size);

  // 1: opens and all can be read; 0: FormatError. Whatever else is thrown fails the test.
  const auto opens = [](Bytes bytes) {
    try {
      const auto file = SafetensorsFile::from_bytes(std::move(bytes), "damaged");
      for (const std::string& name : file.names()) {
        const Tensor tensor = file.tensor(name);
        if (static_cast<linrec::Index>(tensor.to<double>().size()) != tensor.size()) throw "wrong size";
      }
      return 1;
    } catch (const FormatError& error) {
      if (std::string(error.what()).find("file 'damaged': ") != 0) throw;
      return 0;
    }
  };
  REQUIRE(opens(good) == 1);
  // Every bit turned over, and every character that means something in JSON.
  const auto damages = [](std::byte original) {
    std::vector<std::byte> values;
    for (int bit = 0; bit < 8; ++bit) values.push_back(original ^ std::byte(1 << bit));
    for (const char c : "0123456789-+.eE\"\\{}[],: /ntu\n\xff"s) values.push_back(static_cast<std::byte>(c));
    values.push_back(std::byte{0});
    std::erase(values, original);
    return values;
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    INFO("byte " << i);
    CHECK(opens(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(i))) == 0);
    int opened = 0, tried = 0;
    for (const std::byte value : damages(good[i])) {
      Bytes damaged = good;
      damaged[i] = value;
      opened += opens(std::move(damaged));
      ++tried;
    }
    const bool in_data = i >= good.size() - data_size;
    if (in_data) CHECK(opened == tried);
    if (i < 8) CHECK(opened == 0);
    if (!in_data) CHECK(opened < tried);
    Bytes shorter = good, longer = good;
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
    longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(i), std::byte{'0'});
    CHECK(opens(std::move(shorter)) == 0);
    CHECK(opens(std::move(longer)) == 0);
  }
}

}  // namespace linrec::test::safetensors_hostile_test
