// Snapshots that are damaged, cut short, made for another state or made to mislead: each is refused with a
// text that says what is wrong with which tensor, and no state has changed.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linrec/io/snapshot.hpp"
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tests/io/snapshot_helpers.hpp"

namespace linrec::test::snapshot_hostile_test {

namespace {

const LayerStateShape layer_shape{"mamba2", Dims<>(1, 2, 3), {{"conv", 2, 4}}};

LayerState<float> layer_state(Index sequences = 2) {
  LayerState<float> state(layer_shape, sequences);
  fill_with_all_sorts(state);
  return state;
}

/// The text with which a snapshot is refused; the target must not have changed.
template <class S>
std::string refusal(const Bytes& bytes, S target) {
  fill_with_all_sorts(target);
  for (Index s = 0; s < target.sequences(); ++s) target.set_position(s, 5);
  const auto before = bits_of(target);
  const std::string text = error_text<FormatError>([&] { io::load_snapshot_bytes(bytes, target); });
  CHECK((bits_of(target) == before) == (text != "(nothing was thrown)"));
  return text;
}

Bytes plain_snapshot() {
  LayerState<float> state(layer_shape, 2);
  for (Index s = 0; s < 2; ++s) state.set_position(s, 3 + s);
  return io::snapshot_bytes(state);
}

/// Of a snapshot that was changed like this, and sealed again.
std::string refusal_after(const std::function<void(Contents&)>& change) {
  Contents contents = contents_of(plain_snapshot());
  change(contents);
  return refusal(sealed(contents), layer_state());
}

const std::string loaded = "(nothing was thrown)";

}  // namespace

TEST_CASE("snapshot: the twin of all refused snapshots loads") {
  CHECK(refusal(plain_snapshot(), layer_state()) == loaded);
  CHECK(sealed(contents_of(plain_snapshot())) == plain_snapshot());
  CHECK(refusal_after([](Contents&) {}) == loaded);
}

TEST_CASE("snapshot: any length but the whole is refused") {
  const Bytes whole = io::snapshot_bytes(layer_state());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    const std::string text = refusal(cut, layer_state());
    REQUIRE(text != loaded);
    REQUIRE(text.starts_with("file '(memory)': "));
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  CHECK_THAT(refusal(longer, layer_state()), contains("1 bytes of data belong to no tensor"));
}

TEST_CASE("snapshot: any flipped bit is refused") {
  const Bytes whole = io::snapshot_bytes(layer_state());
  Bytes bytes = whole;
  for (std::byte& byte : bytes) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      byte ^= std::byte{1} << bit;
      REQUIRE(refusal(bytes, layer_state()) != loaded);
      byte ^= std::byte{1} << bit;
    }
  }
  REQUIRE(bytes == whole);
  bytes.back() ^= std::byte{1};
  CHECK_THAT(refusal(bytes, layer_state()),
             contains("file '(memory)': metadata 'linrec.checksum': expected '") &&
                 contains("' for what the file holds, got '"));
}

TEST_CASE("snapshot: any other byte is refused, but for other white space around the header's JSON") {
  const LayerState<float> state({"w", {}, {{"c", 1, 1}}}, 1);
  const Bytes whole = io::snapshot_bytes(state);
  Bytes bytes = whole;
  int other_spaces = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      bytes[i] = static_cast<std::byte>(value);
      if (bytes == whole) continue;
      LayerState<float> target = state;
      target.set_position(0, 9);
      const std::string text = error_text<FormatError>([&] { io::load_snapshot_bytes(bytes, target); });
      if (text == loaded) {
        REQUIRE(whole[i] == std::byte{' '});
        REQUIRE((value == '\t' || value == '\n' || value == '\r'));
        REQUIRE(target == state);
        ++other_spaces;
      } else {
        REQUIRE(target.position(0) == 9);
      }
    }
    bytes[i] = whole[i];
  }
  CHECK(other_spaces % 3 == 0);
  CHECK(other_spaces <= 7 * 3);
}

TEST_CASE("snapshot: another version, or none") {
  CHECK(refusal_after([](Contents& c) { c.metadata["linrec.snapshot"] = "2"; }) ==
        "file '(memory)': metadata 'linrec.snapshot': expected '1', the only version that is read here, got "
        "'2'");
  CHECK_THAT(
      refusal_after([](Contents& c) { c.metadata.erase("linrec.snapshot"); }),
      contains("metadata 'linrec.snapshot': expected '1', the only version that is read here, got none"));
  // Of another version not even the checksum is looked at.
  const std::string header = R"({"__metadata__":{"linrec.snapshot":"1.1"}})";
  CHECK_THAT(refusal(raw_file(header, ""), layer_state()),
             contains("the only version that is read here, got '1.1'"));
  CHECK_THAT(
      refusal(raw_file(R"({"__metadata__":{"linrec.snapshot":"1"}})", ""), layer_state()),
      contains("metadata 'linrec.checksum': expected '") && contains("' for what the file holds, got none"));
}

TEST_CASE("snapshot: another scalar type") {
  CHECK(refusal(plain_snapshot(), LayerState<double>(layer_shape, 2)) ==
        "file '(memory)': metadata 'linrec.scalar': expected 'F64', got 'F32'");
  CHECK_THAT(refusal_after([](Contents& c) { c.metadata.erase("linrec.scalar"); }),
             contains("metadata 'linrec.scalar': expected 'F32', got none"));
  CHECK(refusal_after([](Contents& c) { c.tensors["state.window.conv"].type = io::DataType::F64; }) ==
        "file '(memory)': tensor 'state.window.conv': expected F32 [S, rows, channels] = [2, 2, 4], got F64 "
        "[2, 2, 4]");
}

TEST_CASE("snapshot: the state of something else") {
  const Bytes bytes = plain_snapshot();
  const auto refusal_by = [&](LayerStateShape shape) { return refusal(bytes, LayerState<float>(shape, 2)); };
  CHECK(refusal_by({"rwkv7", Dims<>(1, 2, 3), {{"conv", 2, 4}}}) ==
        "file '(memory)': metadata 'state.shape': expected 'rwkv7 [1, 2, 3] conv [2, 4]', got 'mamba2 [1, 2, "
        "3] "
        "conv [2, 4]'");
  const std::vector<LayerStateShape> others{{"mamba2", Dims<>(1, 3, 2), {{"conv", 2, 4}}},
                                            {"mamba2", Dims<>(2, 2, 3), {{"conv", 2, 4}}},
                                            {"mamba2", Dims<>(1, 2, 3), {{"conv", 4, 2}}},
                                            {"mamba2", Dims<>(1, 2, 3), {{"shift", 2, 4}}},
                                            {"mamba2", Dims<>(1, 2, 3), {}},
                                            {"mamba2", {}, {{"conv", 2, 4}}}};
  for (const LayerStateShape& other : others)
    CHECK_THAT(refusal_by(other), contains("metadata 'state.shape'"));
  CHECK_THAT(refusal(bytes, State<float>(Dims<>(1, 2, 3), 2)),
             contains("expected 'state [1, 2, 3]', got 'mamba2 [1, 2, 3] conv [2, 4]'"));
  CHECK_THAT(refusal(io::snapshot_bytes(State<float>(Dims<>(1, 2, 3))), State<float>(Dims<>(1, 3, 2))),
             contains("metadata 'state.shape': expected 'state [1, 3, 2]', got 'state [1, 2, 3]'"));
}

TEST_CASE("snapshot: another number of sequences") {
  CHECK(refusal(plain_snapshot(), layer_state(3)) ==
        "file '(memory)': tensor 'state.position': expected I64 [S] = [3], got I64 [2]");
  CHECK_THAT(refusal(io::snapshot_bytes(layer_state(0)), layer_state(1)),
             contains("expected I64 [S] = [1], got I64 [0]"));
}

TEST_CASE("snapshot: shapes that are not as the text says, with a right checksum") {
  const auto reshape = [](const std::string& name, std::vector<Index> shape, std::size_t values) {
    return refusal_after([&](Contents& c) {
      c.tensors[name].shape = shape;
      c.tensors[name].values.resize(values);
    });
  };
  CHECK(reshape("state.recurrent", {2, 1, 3, 2}, 12) ==
        "file '(memory)': tensor 'state.recurrent': expected F32 [S, H, K, V] = [2, 1, 2, 3], got F32 [2, 1, "
        "3, "
        "2]");
  CHECK_THAT(reshape("state.recurrent", {12}, 12), contains("got F32 [12]"));
  CHECK_THAT(reshape("state.recurrent", {1, 1, 2, 3}, 6), contains("tensor 'state.recurrent': expected"));
  CHECK_THAT(reshape("state.window.conv", {2, 4, 2}, 16), contains("tensor 'state.window.conv': expected"));
  CHECK_THAT(reshape("state.position", {2, 1}, 2), contains("tensor 'state.position': expected"));
  CHECK_THAT(reshape("state.position", {3}, 3), contains("tensor 'state.position': expected"));
}

TEST_CASE("snapshot: positions that no state can have, with a right checksum") {
  const auto with_position = [](double position) {
    return refusal_after([&](Contents& c) { c.tensors["state.position"].values[1] = position; });
  };
  CHECK(with_position(9007199254740992.0) == loaded);
  CHECK(with_position(-1) ==
        "file '(memory)': tensor 'state.position': sequence 1: position: expected 0 to 2^53, got -1");
  CHECK_THAT(with_position(9007199254740994.0), contains("expected 0 to 2^53, got 9007199254740994"));
  CHECK_THAT(with_position(-9223372036854775808.0), contains("expected 0 to 2^53, got -9223372036854775808"));
}

TEST_CASE("snapshot: what is missing and what is too much, with a right checksum") {
  for (const char* name : {"state.position", "state.recurrent", "state.window.conv"})
    CHECK_THAT(refusal_after([&](Contents& c) { c.tensors.erase(name); }),
               contains("file '(memory)': has no tensor '" + std::string(name) + "', it has 2: "));
  CHECK_THAT(refusal_after([](Contents& c) { c.metadata.erase("state.shape"); }),
             contains("metadata 'state.shape': expected 'mamba2 [1, 2, 3] conv [2, 4]', got none"));
  CHECK(refusal_after([](Contents& c) {
          c.tensors["extra"] = {io::DataType::F32, {1}, {1}};
        }) == "file '(memory)': tensor 'extra': belongs to none of the 1 expected states");
  CHECK(refusal_after([](Contents& c) { c.metadata["extra"] = "text"; }) ==
        "file '(memory)': metadata 'extra': belongs to none of the 1 expected states");
}

TEST_CASE("snapshot: of several states all are filled, or none") {
  const std::vector<std::string> names{"a", "b"};
  std::vector<LayerState<float>> states{layer_state(), layer_state()};
  const Bytes bytes = io::snapshot_bytes(states, names);
  std::vector<LayerState<float>> targets{LayerState<float>(layer_shape, 2),
                                         LayerState<float>(layer_shape, 3)};
  const auto before = bits_of(targets[0]);
  const auto load = [&](const std::vector<std::string>& as) {
    const std::string text = error_text<Error>([&] { io::load_snapshot_bytes(bytes, targets, as); });
    CHECK(bits_of(targets[0]) == before);
    return text;
  };
  CHECK(load(names) == "file '(memory)': tensor 'b.position': expected I64 [S] = [3], got I64 [2]");
  CHECK(load({"a"}) == "names: expected 2, one for each state, got 1");
  targets[1] = targets[0];
  CHECK_THAT(load({"a", "c"}), contains("metadata 'c.shape': expected"));
  CHECK_THAT(load({"a", "a"}),
             contains("state 'a': expected names of its own, but tensor 'a.position' is there already"));
  targets.pop_back();
  CHECK(load({"a"}) == "file '(memory)': tensor 'b.position': belongs to none of the 1 expected states");

  // A state that was refused does not count as expected.
  auto reader = io::SnapshotReader::from_bytes(bytes, "f");
  LayerState<float> other(layer_shape, 3);
  reader.add("a", targets[0]);
  CHECK_THROWS_AS(reader.add("b", other), FormatError);
  REQUIRE_THROWS_MATCHES(reader.load(), FormatError, message_contains("file 'f': tensor 'b.position'"));
  CHECK(bits_of(targets[0]) == before);
}

TEST_CASE("snapshot: a writer refuses names that clash, and a second scalar type, and stays as it was") {
  io::SnapshotWriter writer;
  const LayerState<float> state(layer_shape, 1);
  REQUIRE_THROWS_MATCHES(writer.add("\xff", State<double>(Dims<>(1, 1, 1))), ValueError,
                         message_contains("not valid UTF-8"));
  writer.add("a", state);
  const Bytes bytes = writer.bytes();
  REQUIRE_THROWS_MATCHES(
      writer.add("a", state), ValueError,
      message_contains("state 'a': expected names of its own, but tensor 'a.position' is there already"));
  REQUIRE_THROWS_MATCHES(
      writer.add("b", State<double>(Dims<>(1, 1, 1))), ValueError,
      message_contains("state 'b': expected numbers of type F32, as in the states before it, got F64"));
  CHECK_THROWS_AS(writer.add("\xff", state), ValueError);
  CHECK_THROWS_AS(writer.add("c", LayerState<float>({"w", {}, {{"\xff", 1, 1}}})), ValueError);
  CHECK_THROWS_AS(writer.add("c", LayerState<float>({"w", {}, {{"x", 1, 1}, {"x", 1, 1}}})), ValueError);
  CHECK(writer.bytes() == bytes);
  writer.add("a.window", State<float>(Dims<>(1, 1, 1)));
  CHECK_THROWS_AS(writer.add("a.window", State<float>(Dims<>(1, 1, 1))), ValueError);
}

TEST_CASE("snapshot: files that are not there or cannot be written") {
  const TemporaryDirectory directory;
  LayerState<float> state = layer_state();
  const auto before = bits_of(state);
  REQUIRE_THROWS_MATCHES(io::load_snapshot(directory / "none", state), FormatError,
                         message_contains("none': no such file"));
  REQUIRE_THROWS_MATCHES(io::save_snapshot(directory / "none/file", state), Error,
                         message_contains("cannot be written"));
  Bytes bytes = plain_snapshot();
  bytes.resize(bytes.size() - 1);
  write_file(directory / "cut", bytes);
  REQUIRE_THROWS_MATCHES(io::load_snapshot(directory / "cut", state), FormatError,
                         message_contains((directory / "cut").string() + "': tensor 'state.window.conv'"));
  CHECK(bits_of(state) == before);
  CHECK(directory.names() == std::vector<std::string>{"cut"});
}

}  // namespace linrec::test::snapshot_hostile_test
