// Checkpoints as files: tied embeddings, shards, types and alignment of tensors.
#include <algorithm>
#include <cstring>

#include "linrec/io/weight_reader.hpp"
#include "tests/catch.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test::checkpoint_test {

namespace {

template <class Scalar>
std::vector<Scalar> logits_of(const LanguageModel<Scalar>& model) {
  auto state = model.initial_state();
  const auto logits = model.prefill(random_tokens(12, model.vocabulary()), state);
  return {logits.data(), logits.data() + logits.size()};
}
std::vector<double> logits_of(const Files& files) { return logits_of(load_double(as_checkpoint(files))); }

std::string refusal(const Files& files) {
  return error_text<FormatError>([&] { load_double(as_checkpoint(files)); });
}

Files without(Files files, const std::string& name) {
  files.tensors.erase(name);
  return files;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

io::Checkpoint in_memory(Bytes bytes) {
  return {io::SafetensorsFile::from_bytes(std::move(bytes), "m"), "m"};
}

/// A model in two shards, and its index.
class Shards {
 public:
  static constexpr const char* first = "model-00001-of-00002.safetensors";
  static constexpr const char* second = "model-00002-of-00002.safetensors";

  explicit Shards(const Files& files) {
    Files parts[2];
    std::size_t i = 0;
    index["metadata"] = {{"total_size", -1}, {"total_parameters", "many"}};  // which nobody checks
    for (const auto& [name, numbers] : files.tensors) {
      parts[i % 2].tensors[name] = numbers;
      index["weight_map"][name] = i++ % 2 == 0 ? first : second;
    }
    write_file(folder / first, model_bytes(parts[0]));
    write_file(folder / second, model_bytes(parts[1]));
    if (!files.config.empty()) write_text(folder / "config.json", files.config);
  }
  io::Checkpoint open() const {
    write_text(folder / "model.safetensors.index.json", index.dump());
    return io::Checkpoint(folder.path());
  }
  std::string refusal() const {
    return error_text<FormatError>([&] { open(); });
  }

  TemporaryDirectory folder;
  nlohmann::json index;
};

}  // namespace

TEST_CASE("checkpoint: a head is the embedding, or not, as config and tensors say") {
  struct Case {
    const char *recipe, *key, *embedding, *head;
    bool tied_by_default;  // whether the key's absence ties even if there is a head
  };
  for (const auto& [name, key, embedding, head, tied_by_default] :
       {Case{"state-spaces mamba2", "tie_embeddings", "backbone.embedding.weight", "lm_head.weight", true},
        Case{"transformers mamba2, groups", "tie_word_embeddings", "backbone.embeddings.weight",
             "lm_head.weight", false},
        Case{"fla gla", "tie_word_embeddings", "model.embeddings.weight", "lm_head.weight", false},
        Case{"post rwkv7", "tie_embeddings", "embedding.weight", "head.weight", false}}) {
    INFO(name);
    Files both = recipe(name).files;
    both.tensors[head] = both[embedding];
    const Files only_embedding = without(both, head), only_head = without(both, embedding);
    Files different = both;
    different[head].values[5] += 1;

    const auto tied = logits_of(with_key(only_embedding, key, true));
    CHECK(logits_of(with_key(only_head, key, true)) == tied);
    CHECK(logits_of(with_key(both, key, true)) == tied);
    CHECK_THAT(
        refusal(with_key(different, key, true)),
        contains("the config ties '" + std::string(embedding) + "' and '" + head + "', but they differ"));

    const auto untied = logits_of(with_key(different, key, false));
    CHECK(untied != tied);
    CHECK(logits_of(with_key(both, key, false)) == tied);
    CHECK_THAT(refusal(with_key(only_embedding, key, false)), contains("missing: '" + std::string(head)));
    CHECK_THAT(refusal(with_key(only_head, key, false)), contains("missing: '" + std::string(embedding)));
    const std::string none = refusal(with_key(without(only_head, head), key, true));
    CHECK_THAT(none, contains("missing: '" + std::string(embedding)));

    // Without the key: an absent head is the embedding.
    CHECK(logits_of(with_key(only_embedding, key, nullptr)) == tied);
    CHECK(logits_of(with_key(both, key, nullptr)) == tied);
    if (tied_by_default)
      CHECK_THAT(refusal(with_key(different, key, nullptr)), contains("but they differ"));
    else
      CHECK(logits_of(with_key(different, key, nullptr)) == untied);
  }
}

TEST_CASE("checkpoint: BlinkDL's head is never the embedding") {
  const Files& files = recipe("blinkdl rwkv7").files;
  CHECK_THAT(refusal(without(files, "head.weight")), contains("missing: 'head.weight' [24, 32]"));
  Files tied = files;
  tied["head.weight"] = tied["emb.weight"];
  CHECK(logits_of(tied) != logits_of(files));
}

TEST_CASE("checkpoint: a folder, a file with a config beside it, and what is neither") {
  const Files& files = recipe("fla gla").files;
  const TemporaryDirectory folder;
  CHECK_THAT(error_text<FormatError>([&] { io::Checkpoint(folder.path()); }),
             contains("folder '" + folder.path().string() +
                      "': expected model.safetensors or model.safetensors.index.json, found neither"));
  CHECK_THAT(error_text<FormatError>([&] { io::Checkpoint(folder / "none.safetensors"); }),
             contains("none.safetensors': no such file"));
  write_files(files, folder.path());
  const io::Checkpoint checkpoint(folder.path());
  CHECK(checkpoint.name() == folder.path().string());
  CHECK(checkpoint.metadata().at("format") == "pt");
  CHECK(checkpoint.config().has_value());
  CHECK(error_text<FormatError>([&] { checkpoint.tensor("x"); }) ==
        "checkpoint '" + checkpoint.name() + "': has no tensor 'x'");
  const auto right = logits_of(load_double(checkpoint));
  CHECK(logits_of(load_double(io::Checkpoint(folder / "model.safetensors"))) == right);
  // The single file counts where there is an index as well.
  write_text(folder / "model.safetensors.index.json", "not JSON");
  CHECK(logits_of(load_double(io::Checkpoint(folder.path()))) == right);
  std::filesystem::remove(folder / "config.json");
  CHECK_THAT(error_text<FormatError>([&] { load_double(io::Checkpoint(folder.path())); }),
             contains("expected a config.json beside it, or the tensor 'blocks.0.att.r_k' of RWKV-7"));
  std::filesystem::create_directory(folder / "config.json");
  CHECK_THAT(error_text<FormatError>([&] { io::Checkpoint(folder.path()); }),
             contains("config.json': is a directory"));
}

TEST_CASE("checkpoint: shards are the same model") {
  for (const char* name : {"fla gla", "blinkdl rwkv7", "post mamba2"}) {
    INFO(name);
    const Files& files = recipe(name).files;
    const Shards shards(files);
    const io::Checkpoint checkpoint = shards.open();
    CHECK(checkpoint.tensors().size() == files.tensors.size());
    CHECK(logits_of(load_double(checkpoint)) == logits_of(files));
    CHECK(checkpoint.fingerprint() == as_checkpoint(files).fingerprint());
  }
  // Files that the index does not name do not belong to it; metadata may be missing.
  Shards shards(recipe("fla gla").files);
  write_text(shards.folder / "model-00003-of-00003.safetensors", "rubbish");
  shards.index.erase("metadata");
  CHECK(logits_of(load_double(shards.open())) == logits_of(recipe("fla gla").files));
}

TEST_CASE("checkpoint: shards that do not fit their index are refused") {
  Shards shards(recipe("fla gla").files);
  const nlohmann::json right = shards.index;
  const std::string index = "file '" + (shards.folder / "model.safetensors.index.json").string() + "': ";

  SECTION("a shard is missing") {
    std::filesystem::remove(shards.folder / Shards::second);
    CHECK_THAT(shards.refusal(), contains(std::string(Shards::second) + "': no such file"));
  }
  SECTION("a shard is damaged") {
    write_text(shards.folder / Shards::second, "rubbish");
    CHECK_THAT(shards.refusal(), contains("file '" + (shards.folder / Shards::second).string() + "': "));
  }
  SECTION("tensors that the shards do not have: all are named") {
    shards.index["weight_map"]["one"] = Shards::first;
    shards.index["weight_map"]["two"] = Shards::second;
    shards.index["weight_map"]["model.norm.weight"] =
        right["weight_map"]["model.norm.weight"] == Shards::first ? Shards::second : Shards::first;
    const std::string text = shards.refusal();
    CHECK_THAT(text, contains(index + "does not agree with the files:"));
    CHECK_THAT(text, contains("\n  '" + std::string(Shards::first) + "' has no tensor 'one'"));
    CHECK_THAT(text, contains("\n  '" + std::string(Shards::second) + "' has no tensor 'two'"));
    CHECK_THAT(text, contains("has no tensor 'model.norm.weight'"));
  }
  SECTION("a tensor is in two shards") {
    Files doubled{{{"model.norm.weight", recipe("fla gla").files["model.norm.weight"]}}, ""};
    write_file(shards.folder / "third.safetensors", model_bytes(doubled));
    shards.index["weight_map"]["x"] = "third.safetensors";
    CHECK_THAT(shards.refusal(),
               contains("tensor 'model.norm.weight' is in 'third.safetensors' and in another"));
  }
  SECTION("files that lie elsewhere") {
    // They exist, and would load.
    const Files one{{{"x", {{1}, {1}}}}, ""};
    std::filesystem::create_directory(shards.folder / "a");
    write_file(shards.folder / "a/b", model_bytes(one));
    const TemporaryDirectory elsewhere;
    write_file(elsewhere / "x", model_bytes(one));
    const std::string beside = "../" + elsewhere.path().filename().string() + "/x";
    REQUIRE(std::filesystem::exists(shards.folder / beside));
    for (const std::string& name :
         {beside, (elsewhere / "x").string(), std::string("a/b"), std::string("./a/b"), std::string("a/"),
          std::string("../x"), std::string("/etc/passwd"), std::string(""), std::string("..")}) {
      shards.index["weight_map"]["x"] = name;
      CHECK(shards.refusal() ==
            index + "weight_map: expected the name of a file in the same folder, got '" + name + "'");
    }
    for (const char* name : {".", "a", "a\n", "model.safetensors.index.json", "none"}) {
      shards.index["weight_map"]["x"] = name;
      CHECK(shards.refusal() != "(nothing was thrown)");
    }
    // A link that the owner of the folder has put there is the owner's business: caches are full of them.
    std::filesystem::create_symlink(elsewhere / "x", shards.folder / "link");
    shards.index["weight_map"]["x"] = "link";
    CHECK(shards.refusal() == "(nothing was thrown)");
  }
  SECTION("an index that is none") {
    for (const nlohmann::json& bad :
         {nlohmann::json::object(), nlohmann::json{{"weight_map", nullptr}},
          nlohmann::json{{"weight_map", {"x"}}}, nlohmann::json{{"weight_map", "x"}}}) {
      shards.index = bad;
      CHECK(shards.refusal() == index + "expected an object 'weight_map'");
    }
    shards.index = {{"weight_map", {{"x", 5}}}};
    CHECK(shards.refusal() == index + "weight_map: expected a file name for 'x'");
    shards.index = nlohmann::json::array();
    CHECK(shards.refusal() == index + "expected a JSON object");
    shards.index = {{"weight_map", nlohmann::json::object()}};
    CHECK_THROWS_AS(load_double(shards.open()), FormatError);
    for (const std::string text : {"", "{", "{}}", "\xff"}) {
      write_text(shards.folder / "model.safetensors.index.json", text);
      CHECK_THAT(error_text<FormatError>([&] { io::Checkpoint(shards.folder.path()); }),
                 contains(index + "is not valid JSON: "));
    }
  }
}

TEST_CASE("B67: weights at any address, of any type, have the right values") {
  const Files& files = recipe("blinkdl rwkv7").files;
  const Bytes bytes = model_bytes(files);
  const auto right = logits_of(load_double(in_memory(bytes)));
  const auto right_single = logits_of(load_float(in_memory(bytes)));
  CHECK(right == logits_of(files));
  const TemporaryDirectory folder;
  for (std::size_t spaces = 0; spaces < 8; ++spaces) {
    INFO(spaces << " spaces");
    const auto path = folder / (std::to_string(spaces) + ".safetensors");
    write_file(path, shifted(bytes, spaces));
    const io::Checkpoint mapped(path);
    CHECK(reinterpret_cast<std::uintptr_t>(mapped.tensor("emb.weight").bytes.data()) % 8 == spaces);
    CHECK(logits_of(load_double(mapped)) == right);
    CHECK(logits_of(load_float(mapped)) == right_single);
  }
  // float32 as float64 loses nothing.
  for (const std::size_t spaces : std::vector<std::size_t>{0, 1, 4}) {
    const auto wide = in_memory(shifted(model_bytes(files, io::DataType::F64), spaces));
    CHECK(logits_of(load_double(wide)) == right);
    CHECK(logits_of(load_float(wide)) == right_single);
  }
  for (const io::DataType type : {io::DataType::BF16, io::DataType::F16}) {
    INFO(io::name_of(type));
    const Bytes narrow = model_bytes(files, type);
    Files rounded = files;  // the same numbers as float32
    for (auto& [name, numbers] : rounded.tensors) numbers.values = in_memory(narrow).tensor(name).to<float>();
    const auto expected = logits_of(rounded);
    CHECK(expected != right);
    CHECK(logits_of(load_double(in_memory(narrow))) == expected);
    CHECK(logits_of(load_double(in_memory(shifted(narrow, 1)))) == expected);
    CHECK(logits_of(load_float(in_memory(shifted(narrow, 1)))) ==
          logits_of(load_float(as_checkpoint(rounded))));
  }
}

TEST_CASE("checkpoint: a fingerprint tells models apart, and not how their files lie") {
  const Files& files = recipe("fla gla").files;
  const Bytes bytes = model_bytes(files);
  const std::uint64_t right = in_memory(bytes).fingerprint();
  CHECK(in_memory(shifted(bytes, 3)).fingerprint() == right);
  CHECK(as_checkpoint(with_key(files, "use_cache", false)).fingerprint() == right);
  for (const auto& [name, numbers] : files.tensors) {
    INFO(name);
    Files other = files;
    other[name].values.back() += 1;
    CHECK(in_memory(model_bytes(other)).fingerprint() != right);
    other = without(files, name);
    CHECK(in_memory(model_bytes(other)).fingerprint() != right);
    other.tensors[name + "_"] = numbers;
    CHECK(in_memory(model_bytes(other)).fingerprint() != right);
    other = files;
    other[name].shape.insert(other[name].shape.begin(), 1);
    CHECK(in_memory(model_bytes(other)).fingerprint() != right);
  }
  CHECK(in_memory(model_bytes(files, io::DataType::F64)).fingerprint() != right);
}

TEST_CASE("checkpoint: integers are no weights") {
  for (const io::DataType type :
       {io::DataType::I64, io::DataType::I32, io::DataType::U8, io::DataType::BOOL}) {
    io::SafetensorsWriter writer;
    if (type == io::DataType::I64) writer.add("x", {2}, std::vector<std::int64_t>{0, 1});
    if (type == io::DataType::I32) writer.add("x", {2}, std::vector<std::int32_t>{0, 1});
    if (io::size_of(type) == 1) writer.add("x", {2}, std::vector<std::uint8_t>{0, 1}, type);
    const io::Checkpoint checkpoint = in_memory(writer.bytes());
    io::WeightReader<float> reader(checkpoint);
    CHECK_FALSE(reader.get("x", {2}).present());
    CHECK_THAT(
        error_text<FormatError>([&] { reader.finish(); }),
        contains("\n  wrong type: 'x': expected floating point, got " + std::string(io::name_of(type))));
  }
}

TEST_CASE("checkpoint: aligned weights are read where they lie, and outlive the checkpoint") {
  const Files& files = recipe("fla gla").files;
  const TemporaryDirectory folder;
  write_files(files, folder.path());
  std::optional<LanguageModel<float>> model;
  std::optional<Parameter<float>> parameter;
  {
    const io::Checkpoint checkpoint(folder.path());
    const io::Tensor& tensor = checkpoint.tensor("model.embeddings.weight");
    io::WeightReader<float> reader(checkpoint);
    parameter = reader.get("model.embeddings.weight", {24, 32});
    CHECK(static_cast<const void*>(parameter->data()) == static_cast<const void*>(tensor.bytes.data()));
    const Parameter<float> norm = reader.get("model.norm.weight", {1, 32, 1});  // extents of 1 do not count
    CHECK(static_cast<const void*>(norm.data()) ==
          static_cast<const void*>(checkpoint.tensor("model.norm.weight").bytes.data()));
    CHECK(norm.shape() == std::vector<Index>{1, 32, 1});
    io::WeightReader<double> wide(checkpoint);
    const Parameter<double> copy = wide.get("model.embeddings.weight", {24, 32});
    CHECK(static_cast<const void*>(copy.data()) != static_cast<const void*>(tensor.bytes.data()));
    CHECK(copy.data()[33] == static_cast<double>(parameter->data()[33]));
    model = load_float(checkpoint);
  }
  std::filesystem::remove(folder / "model.safetensors");
  CHECK(parameter->data()[33] == files["model.embeddings.weight"].values[33]);
  CHECK(logits_of(*model) == logits_of(load_float(as_checkpoint(files))));
}

TEST_CASE("checkpoint: matrices that a project stores transposed") {
  Files files;
  files.tensors["p.w1"] = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  const io::Checkpoint checkpoint = in_memory(model_bytes(files));
  const io::NameEntry entries[] = {{"down.weight", "w1", true}};
  const io::LayerNames names{"p.", entries};
  io::WeightReader<float> reader(checkpoint);
  CHECK(reader.has(names, "down.weight"));
  CHECK_FALSE(reader.has(names, "w2"));
  CHECK(reader.rows(names, "down.weight") == 3);
  CHECK(reader.rows({"p."}, "w1") == 2);
  CHECK(reader.rows(names, "none") == 0);
  const Parameter<float> parameter = reader.get(names, "down.weight", {3, 2});
  CHECK(std::vector<float>(parameter.data(), parameter.data() + 6) == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK_NOTHROW(reader.finish());
}

}  // namespace linrec::test::checkpoint_test
