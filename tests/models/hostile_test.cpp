// Checkpoints and configs cut short and with random bytes changed: each loads, or is refused with a
// FormatError. Run with sanitizers, to see that nothing else happens on the way.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test::hostile_test {

namespace {

/// The smallest RWKV-7 there is: one block, one head of 4.
Files smallest() {
  Random random(1);
  Files files;
  const auto add = [&](const std::string& name, std::vector<Index> shape) {
    files.tensors[name] = random_numbers(random, std::move(shape));
  };
  add("emb.weight", {3, 4}), add("head.weight", {3, 4});
  for (const std::string norm :
       {"blocks.0.ln0", "blocks.0.ln1", "blocks.0.ln2", "ln_out", "blocks.0.att.ln_x"})
    add(norm + ".weight", {4}), add(norm + ".bias", {4});
  for (const std::string name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "w0", "a0", "k_k", "k_a"})
    add("blocks.0.att." + name, {1, 1, 4});
  for (const std::string name : {"w", "a", "g"})
    add("blocks.0.att." + name + "1", {4, 1}), add("blocks.0.att." + name + "2", {1, 4});
  for (const std::string name : {"receptance", "key", "value", "output"})
    add("blocks.0.att." + name + ".weight", {4, 4});
  add("blocks.0.att.r_k", {1, 4});
  add("blocks.0.ffn.x_k", {1, 1, 4}), add("blocks.0.ffn.key.weight", {5, 4});
  add("blocks.0.ffn.value.weight", {4, 5});
  return files;
}

/// Whether it loads; then it also runs. Anything but a FormatError passes through and fails the test.
template <class F>
bool loads(F&& open) {
  try {
    const LanguageModel<float> model = load_float(open());
    auto state = model.initial_state(2);
    const auto tokens = random_tokens(6, model.vocabulary());
    model.prefill(tokens, state);
    model.step(std::span(tokens).first(2), state);
    return true;
  } catch (const FormatError& error) {
    CHECK(std::string(error.what()).size() > 10);
    return false;
  }
}

bool loads_bytes(Bytes bytes) {
  return loads([&] { return io::Checkpoint(io::SafetensorsFile::from_bytes(std::move(bytes), "m"), "m"); });
}

std::size_t header_end(const Bytes& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return static_cast<std::size_t>(8 + length);
}

/// One of each kind of config.
const std::vector<const char*> with_configs{"fla gla, PoST, learned",
                                            "fla gated_deltanet, grouped values, no gate",
                                            "fla retnet",
                                            "fla rwkv7",
                                            "post rwkv7",
                                            "post gated_deltanet",
                                            "post mamba2",
                                            "state-spaces mamba2",
                                            "transformers mamba2",
                                            "echo"};

/// A folder with a model, whose config is written anew.
class Folder {
 public:
  explicit Folder(const Files& files) { write_files(files, folder_.path()); }
  bool loads_with(const std::string& config) const {
    write_file(folder_ / "config.json", std::as_bytes(std::span(config.data(), config.size())));
    return loads([&] { return io::Checkpoint(folder_.path()); });
  }

 private:
  TemporaryDirectory folder_;
};

}  // namespace

TEST_CASE("hostile: a checkpoint of any other length") {
  const Bytes whole = model_bytes(smallest());
  REQUIRE(loads_bytes(whole));
  const std::size_t end = header_end(whole);
  std::size_t loaded = 0, tried = 0;
  for (std::size_t length = 0; length < whole.size();
       length += length < 40 || length > end - 40 ? 1 : 7, ++tried)
    loaded += loads_bytes({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
  CHECK(loaded == 0);
  CHECK(tried > 500);
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  CHECK_FALSE(loads_bytes(longer));
  const TemporaryDirectory folder;  // mapped
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    write_file(folder / "model.safetensors", std::span(whole).first(length));
    CHECK_FALSE(loads([&] { return io::Checkpoint(folder.path()); }));
  }
}

TEST_CASE("hostile: random bytes of a checkpoint's header") {
  Random random(2);
  const Bytes whole = model_bytes(smallest());
  const Index end = static_cast<Index>(header_end(whole));
  const std::string likely = "0123456789[]{},:\"\\ -.eEabcdefFB";
  int loaded = 0;
  for (int i = 0; i < 3000; ++i) {
    Bytes bytes = whole;
    for (Index n = random.integer(1, 3); n > 0; --n) {
      const Index by = random.integer(0, static_cast<Index>(likely.size()) + 2);
      bytes[static_cast<std::size_t>(random.integer(8, end - 1))] = static_cast<std::byte>(
          by < static_cast<Index>(likely.size()) ? static_cast<Index>(likely[static_cast<std::size_t>(by)])
                                                 : random.integer(0, 255));
    }
    if (i % 50 == 0) bytes[static_cast<std::size_t>(random.integer(0, 7))] = static_cast<std::byte>(i);
    loaded += loads_bytes(bytes);
  }
  CHECK(loaded < 300);  // other white space
}

TEST_CASE("hostile: random bits of a checkpoint's numbers") {
  Random random(3);
  const Bytes whole = model_bytes(smallest());
  const auto end = static_cast<Index>(header_end(whole)), size = static_cast<Index>(whole.size());
  int loaded = 0;
  for (int i = 0; i < 1000; ++i) {
    Bytes bytes = whole;
    for (Index n = random.integer(1, 40); n > 0; --n)
      bytes[static_cast<std::size_t>(random.integer(end, size - 1))] ^= std::byte{1} << random.integer(0, 7);
    loaded += loads_bytes(bytes);
  }
  CHECK(loaded > 800);  // all but NaN and infinity in w0
}

TEST_CASE("hostile: configs cut short, and with random bytes") {
  Random random(4);
  const std::string likely = "0123456789[]{},:\" -.eE";
  int loaded = 0, tried = 0;
  for (const char* name : with_configs) {
    INFO(name);
    const Files& files = recipe(name).files;
    const Folder folder(files);
    REQUIRE(folder.loads_with(files.config));
    for (std::size_t length = 0; length + 1 < files.config.size(); length += 5)
      CHECK_FALSE(folder.loads_with(files.config.substr(0, length)));
    for (int i = 0; i < 300; ++i, ++tried) {
      std::string config = files.config;
      for (Index n = random.integer(1, 2); n > 0; --n) {
        const auto at = static_cast<std::size_t>(random.integer(0, static_cast<Index>(config.size()) - 1));
        config[at] =
            random.integer(0, 3) == 0
                ? static_cast<char>(random.integer(0, 255))
                : likely[static_cast<std::size_t>(random.integer(0, static_cast<Index>(likely.size()) - 1))];
      }
      loaded += folder.loads_with(config);
    }
  }
  CHECK(loaded > tried / 50);
  CHECK(loaded < tried / 2);
}

TEST_CASE("hostile: every key of every config holds every kind of value") {
  const nlohmann::json values[] = {nullptr,
                                   true,
                                   false,
                                   0,
                                   1,
                                   -1,
                                   3,
                                   16777216,
                                   std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::uint64_t>::max(),
                                   1.5,
                                   -0.0,
                                   1e-300,
                                   1e300,
                                   "",
                                   "text",
                                   "Infinity",
                                   "-Infinity",
                                   "NaN",
                                   nlohmann::json::array(),
                                   nlohmann::json::object(),
                                   {1, 2},
                                   {-1, "Infinity"},
                                   {{"__float__", "Infinity"}},
                                   {{"__float__", 5}},
                                   {{"layer", "Mamba2"}, {"d_ssm", 16}, {"headdim", 16}}};
  int loaded = 0;
  for (const char* name : with_configs) {
    Files files = recipe(name).files;
    if (const auto at = files.config.find("Infinity"); at != files.config.npos)
      files.config.replace(at, 8, "1e300");
    const Folder folder(files);
    const nlohmann::json config = nlohmann::json::parse(files.config);
    for (const auto& [key, unused] : config.items())
      for (const nlohmann::json& value : values) {
        INFO(name << ", " << key << ": " << value);
        nlohmann::json changed = config;
        changed[key] = value;
        loaded += folder.loads_with(changed.dump());
      }
    if (!config.contains("ssm_cfg")) continue;
    for (const char* key : {"d_state", "headdim", "ngroups", "d_conv", "expand", "d_ssm", "rmsnorm",
                            "dt_limit", "norm_before_gate", "conv_bias", "bias", "D_has_hdim"})
      for (const nlohmann::json& value : values) {
        INFO("ssm_cfg, " << key << ": " << value);
        nlohmann::json changed = config;
        changed["ssm_cfg"][key] = value;
        loaded += folder.loads_with(changed.dump());
      }
  }
  CHECK(loaded > 500);  // keys that nobody reads
}

}  // namespace linrec::test::hostile_test
