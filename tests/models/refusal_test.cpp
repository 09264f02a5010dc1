// Checkpoints and configs that do not belong together, or ask for what linrec does not have.

#include "tests/models/refusal.hpp"

#include <sys/resource.h>

#include "tests/catch.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test::refusal_test {

namespace {

/// The most memory that the process has had.
long peak_kibibytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

const std::string loaded = "(nothing was thrown)";

std::string refusal(const char* name, const std::string& key, const nlohmann::json& value) {
  return refusal(with_key(recipe(name).files, key, value));
}

Files with_config(const char* name, const std::string& text) {
  Files files = recipe(name).files;
  files.config = text;
  return files;
}

std::string nested(std::size_t depth, const std::string& open, const std::string& close,
                   const std::string& middle = "") {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += middle;
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

}  // namespace

TEST_CASE("refusal: all tensors that are missing, unexpected or of another shape, in one text") {
  Files files = recipe("fla gla").files;
  files.tensors.erase("model.layers.0.attn.q_proj.weight");
  files.tensors.erase("model.layers.1.mlp_norm.weight");
  files.tensors.erase("model.norm.weight");
  files.tensors["model.layers.0.attn.h_conv1d.weight"] = {{32, 1, 4}, std::vector<float>(128)};
  files.tensors["model.layers.2.attn_norm.weight"] = {{32}, std::vector<float>(32)};
  files["model.layers.0.mlp.up_proj.weight"].shape = {32, 48};
  files["model.layers.1.attn.gk_proj.1.bias"] = {{15}, std::vector<float>(15)};
  files["lm_head.weight"] = {{24, 31}, std::vector<float>(24 * 31)};
  CHECK(refusal(files) ==
        "checkpoint 'DIR': the tensors are not those of the model:"
        "\n  wrong shape: 'lm_head.weight': expected [24, 32], got [24, 31]"
        "\n  missing: 'model.layers.0.attn.q_proj.weight' [16, 32]"
        "\n  wrong shape: 'model.layers.0.mlp.up_proj.weight': expected [48, 32], got [32, 48] (transposed)"
        "\n  wrong shape: 'model.layers.1.attn.gk_proj.1.bias': expected [16], got [15]"
        "\n  missing: 'model.layers.1.mlp_norm.weight' [32]"
        "\n  missing: 'model.norm.weight' [32]"
        "\n  unexpected: 'model.layers.0.attn.h_conv1d.weight' [32, 1, 4]"
        "\n  unexpected: 'model.layers.2.attn_norm.weight' [32]");
}

TEST_CASE("refusal: any one tensor missing, renamed, transposed or of another shape") {
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.name == "echo") continue;  // only more layers than the other two of its kind
    INFO(recipe.name);
    REQUIRE(refusal(recipe.files) == loaded);
    for (const auto& [name, numbers] : recipe.files.tensors) {
      // What may be missing: old leftovers that nobody reads, one of two aliases, and what makes a taper a
      // learned one.
      const bool unread = name.ends_with("attn.D") || (name.find("blocks.0.att.v") == 0 && name.size() == 15);
      const bool alias = recipe.skeleton.embedding == recipe.skeleton.head &&
                         recipe.files.tensors.contains("lm_head.weight") &&
                         (name == "lm_head.weight" || name == recipe.skeleton.embedding);
      // From these BlinkDL's sizes are told, so that all others seem wrong.
      const bool tells_sizes =
          name == "emb.weight" || name == "blocks.0.att.r_k" || name == "blocks.0.ffn.key.weight";
      INFO(name);
      Files files = recipe.files;
      files.tensors.erase(name);
      if (unread || alias || name.ends_with("alpha_logits"))
        CHECK(refusal(files) == loaded);
      else
        CHECK(refusal(files) != loaded);
      files.tensors[name + "_"] = numbers;
      CHECK_THAT(refusal(files), contains(tells_sizes ? "'" + name + "'" : "unexpected: '" + name + "_'"));
      if (unread) continue;
      files = recipe.files;
      files[name].shape.push_back(2);
      files[name].values.resize(2 * numbers.values.size());
      CHECK(refusal(files) != loaded);
      if (numbers.shape.size() != 2 || numbers.shape[0] == numbers.shape[1]) continue;
      files[name] = numbers;
      std::swap(files[name].shape[0], files[name].shape[1]);
      if (tells_sizes)
        CHECK(refusal(files) != loaded);
      else
        CHECK_THAT(refusal(files), contains("wrong shape: '" + name + "': expected "));
    }
  }
}

TEST_CASE("refusal: a config that contradicts the weights") {
  CHECK_THAT(refusal("fla gla", "hidden_size", 64),
             contains("wrong shape: 'model.embeddings.weight': expected [24, 64], got [24, 32]") &&
                 contains("wrong shape: 'model.norm.weight': expected [64], got [32]"));
  CHECK_THAT(refusal("fla gla", "vocab_size", 25), contains("expected [25, 32], got [24, 32]"));
  CHECK_THAT(refusal("fla gla", "intermediate_size", 47), contains("mlp.up_proj.weight': expected [47, 32]"));
  CHECK_THAT(refusal("fla gla", "num_hidden_layers", 3), contains("missing: 'model.layers.2.attn.q_proj"));
  const std::string fewer = refusal("fla gla", "num_hidden_layers", 1);
  CHECK_THAT(fewer, contains("unexpected: 'model.layers.1.attn.q_proj.weight'"));
  CHECK_THAT(fewer, contains("unexpected: 'model.layers.1.mlp_norm.weight'"));
  CHECK_THAT(refusal("fla gla", "num_heads", 5),
             contains("key 'num_heads': expected a number of heads that divides 16 channels, got 5"));
  CHECK_THAT(refusal("fla gla", "use_short_conv", true), contains("missing: 'model.layers.0.attn.q_conv1d"));
  CHECK_THAT(refusal("fla gla", "use_output_gate", false),
             contains("unexpected: 'model.layers.0.attn.g_proj"));
  CHECK_THAT(refusal("fla gla", "elementwise_affine", false),
             contains("unexpected: 'model.layers.0.attn.g_norm"));
  CHECK_THAT(refusal("fla gla", "expand_v", 1e-9),
             contains("key 'expand_v': expected a factor that gives 1 to"));
  CHECK_THAT(refusal("fla gated_deltanet", "num_v_heads", 3), contains("expected [3, 32], got [2, 32]"));
  CHECK_THAT(refusal("fla gated_deltanet", "use_gate", false),
             contains("unexpected: 'model.layers.0.attn.g_proj"));
  CHECK_THAT(refusal("transformers mamba2, groups", "num_heads", 8),
             contains("key 'num_heads': expected expand hidden_size / head_dim = 4, got 8"));
  CHECK_THAT(refusal("transformers mamba2, groups", "n_groups", 3), contains("wrong shape"));
  CHECK_THAT(refusal("transformers mamba2, groups", "use_bias", true),
             contains("missing: 'backbone.layers.0.mixer.in_proj.bias'"));
  CHECK_THAT(refusal("transformers mamba2, groups", "use_conv_bias", false),
             contains("unexpected: 'backbone.layers.0.mixer.conv1d.bias'"));
  CHECK_THAT(refusal("state-spaces mamba2", "rms_norm", false),
             contains("missing: 'backbone.norm_f.bias' [32]"));
  CHECK_THAT(refusal("state-spaces mamba2", "d_intermediate", 1),
             contains("missing: 'backbone.layers.0.mlp.fc1.weight' [256, 32]"));
  CHECK_THAT(refusal("fla rwkv7", "head_dim", 5),
             contains("key 'head_dim': expected a number of heads that divides 32 channels, got 5"));
  CHECK_THAT(refusal("fla rwkv7", "norm_first", false),
             contains("unexpected: 'model.layers.0.pre_norm.bias'"));
  CHECK_THAT(refusal("fla rwkv7", "value_dim", {32}),
             contains("key 'value_dim': expected more than 1 entries"));
  CHECK_THAT(refusal("fla rwkv7", "value_dim", {64, 32}), contains("wrong shape"));
  CHECK_THAT(refusal("post rwkv7", "head_dim", 16), contains("mixer.r_k': expected [2, 16], got [4, 8]"));
}

TEST_CASE("refusal: what linrec does not have") {
  const auto nothing = [](const std::string& key, const std::string& got) {
    return "file 'DIR/config.json': key '" + key +
           "': expected nothing, for linrec does not implement it, got " + got;
  };
  const nlohmann::json attention{{"layers", {1}}};
  for (const char* name : {"fla gated_deltanet", "fla gla", "fla retnet", "fla rwkv7"})
    CHECK(refusal(name, "attn", attention) == nothing("attn", R"({"layers":[1]})"));
  for (const char* name : {"fla gated_deltanet", "fla gla", "fla retnet"}) {
    CHECK(refusal(name, "attnres_block_size", 2) == nothing("attnres_block_size", "2"));
    CHECK(refusal(name, "hidden_act", "gelu") ==
          "file 'DIR/config.json': key 'hidden_act': expected 'swish' or 'silu', got \"gelu\"");
  }
  CHECK(refusal("fla rwkv7", "hidden_act", "relu") ==
        "file 'DIR/config.json': key 'hidden_act': expected 'sqrelu', got \"relu\"");
  CHECK_THAT(refusal("transformers mamba2, groups", "hidden_act", "gelu"), contains("key 'hidden_act'"));
  CHECK(refusal("fla gated_deltanet", "norm_first", true) == nothing("norm_first", "true"));
  CHECK(refusal("fla gated_deltanet", "norm_first", false) == loaded);
  CHECK_THAT(refusal("fla gla", "feature_map", "elu"), contains("key 'feature_map': expected 'relu' or "));
  CHECK(refusal("fla gla", "feature_map", "sqrelu") == loaded);

  CHECK(refusal("state-spaces mamba2", "attn_layer_idx", {1}) == nothing("attn_layer_idx", "[1]"));
  CHECK(refusal("state-spaces mamba2", "ssm_cfg", nlohmann::json::object()) ==
        "file 'DIR/config.json: ssm_cfg': key 'layer': expected 'Mamba2', got 'Mamba1'");
  CHECK(refusal("state-spaces mamba2", "ssm_cfg", {{"layer", "Mamba3"}}) ==
        "file 'DIR/config.json: ssm_cfg': key 'layer': expected 'Mamba2', got 'Mamba3'");
  CHECK_THAT(refusal("fla gla", "model_type", "llama"),
             contains("file 'DIR/config.json': key 'model_type': expected one of mamba2, ") &&
                 contains(", got 'llama'"));
  CHECK_THAT(refusal("fla gla", "model_type", nullptr), contains("got ''"));
}

TEST_CASE("refusal: wrong types and sizes") {
  const std::string size = "an integer from 1 to 16777216";
  struct Case {
    const char *recipe, *key;
    nlohmann::json value;
    std::string expected, got;
  };
  const Case cases[] = {
      {"fla gla", "hidden_size", "abc", size, "\"abc\""},
      {"fla gla", "hidden_size", -32, size, "-32"},
      {"fla gla", "hidden_size", 0, size, "0"},
      {"fla gla", "hidden_size", 1e30, size, "1e+30"},
      {"fla gla", "hidden_size", 32.5, size, "32.5"},
      {"fla gla", "hidden_size", true, size, "true"},
      {"fla gla", "hidden_size", {32}, size, "[32]"},
      {"fla gla", "hidden_size", 16777217, size, "16777217"},
      {"fla gla", "hidden_size", std::numeric_limits<std::uint64_t>::max(), size, "18446744073709551615"},
      {"fla gla", "hidden_size", std::numeric_limits<std::int64_t>::min(), size, "-9223372036854775808"},
      {"fla gla", "num_hidden_layers", "2", size, "\"2\""},
      {"fla gla", "norm_eps", "small", "a number", "\"small\""},
      {"fla gla", "norm_eps", "NaN", "a number", "\"NaN\""},
      {"fla gla", "use_short_conv", 1, "true or false", "1"},
      {"fla gla", "tie_word_embeddings", "true", "true or false", "\"true\""},
      {"fla gla", "model_type", 5, "a text", "5"},
      {"fla gla", "feature_map", 5, "a text", "5"},
      {"fla gla, PoST", "train_length", "long", "a number", "\"long\""},
      {"state-spaces mamba2", "ssm_cfg", "Mamba2", "an object", "\"Mamba2\""},
      {"transformers mamba2, groups", "time_step_limit", 2, "an array of two numbers", "2"},
      {"transformers mamba2, groups", "time_step_limit", {1, 2, 3}, "an array of two numbers", "[1,2,3]"},
      {"transformers mamba2, groups", "time_step_limit", {0, "much"}, "a number", "\"much\""},
      {"fla rwkv7", "value_dim", {32, "x"}, size, "\"x\""},
      {"fla rwkv7", "value_dim", "x", size, "\"x\""},
  };
  for (const auto& [name, key, value, expected, got] : cases)
    CHECK(refusal(name, key, value) ==
          "file 'DIR/config.json': key '" + std::string(key) + "': expected " + expected + ", got " + got);
  CHECK(refusal("state-spaces mamba2", "d_model", nullptr) ==
        "file 'DIR/config.json': expected a key 'd_model', got none");
}

TEST_CASE("refusal: numbers that make no sense name the layer") {
  CHECK_THAT(refusal("fla gla", "norm_eps", -1),
             contains("DIR") && contains("expected an eps") && contains("got -1"));
  CHECK_THAT(refusal("fla gla", "norm_eps", 0),
             contains("expected an eps that is a finite number > 0, got 0"));
  for (const double length : {0.0, -5.0, 1.0})
    CHECK_THAT(refusal("fla gla, PoST", "train_length", length),
               contains("checkpoint 'DIR': model.layers.0.attn: ") &&
                   contains("expected a finite number > 1, got "));
  CHECK_THAT(refusal("transformers mamba2, groups", "time_step_limit", {2, 1}),
             contains("checkpoint 'DIR': backbone.layers.0.mixer: "));

  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    const char *recipe, *tensor, *layer;
  };
  for (const auto& [name, tensor, layer] :
       {Case{"fla gated_deltanet", "model.layers.1.attn.A_log", "model.layers.1.attn"},
        Case{"transformers mamba2, groups", "backbone.layers.1.mixer.A_log", "backbone.layers.1.mixer"},
        Case{"state-spaces mamba2", "backbone.layers.0.mixer.A_log", "backbone.layers.0.mixer"},
        Case{"post mamba2", "layers.0.mixer.A_log_base", "layers.0.mixer"},
        Case{"post mamba2", "layers.0.mixer.A_log_deltas", "layers.0.mixer"},
        Case{"post gated_deltanet", "layers.1.mixer.A_log_delta", "layers.1.mixer"},
        Case{"fla gla, PoST, learned", "model.layers.1.attn.alpha_logits", "model.layers.1.attn"},
        Case{"blinkdl rwkv7", "blocks.1.att.w0", "blocks.1.att"},
        Case{"post rwkv7", "layers.1.mixer.w0_delta", "layers.1.mixer"}}) {
    INFO(tensor);
    Files files = recipe(name).files;
    files[tensor].values.back() = nan;
    const std::string text = refusal(files);
    CHECK_THAT(text, contains("checkpoint 'DIR': " + std::string(layer) + ": "));
    CHECK_THAT(text, contains("got nan") || contains("got -nan"));
  }
}

TEST_CASE("refusal: configs that are no JSON objects") {
  for (const std::string text :
       {"", " ", "{", "{\"a\":}", "{} {}", "{'a': 1}", "\xff\xfe", "nul", "{\"a\": \"",
        "{\"hidden_size\": Infinityy}", "{\"hidden_size\": +Infinity}"})
    if (!text.empty())
      CHECK_THAT(refusal(with_config("fla gla", text)), contains("config.json': is not valid JSON: "));
  for (const std::string text : {"[]", "5", "null", "\"x\"", "NaN", "[{\"model_type\": \"gla\"}]"})
    CHECK(refusal(with_config("fla gla", text)) == "file 'DIR/config.json': expected a JSON object");
  const TemporaryDirectory folder;
  write_files(recipe("fla gla").files, folder.path());
  write_file(folder / "config.json", {});
  CHECK_THAT(error_text<FormatError>([&] { io::Checkpoint(folder.path()); }),
             contains("config.json': is not valid JSON: "));
}

TEST_CASE("refusal: JSON that is nested deeply enough to exhaust the stack") {
  const std::size_t depth = 100'000;
  const std::string arrays = nested(depth, "[", "]"), objects = nested(depth, "{\"a\":", "}", "1");
  for (const std::string& text :
       {std::string(depth, '['), arrays, objects, std::string(depth, '{'), "{\"hidden_size\":" + arrays + "}",
        "{\"hidden_size\":" + objects + "}", "{\"model_type\":" + arrays + "}"})
    CHECK_THAT(refusal(with_config("fla gla", text)), contains("file 'DIR/config.json': "));
  // Where the loader looks, and where it does not.
  for (const std::string key : {"attn", "hidden_act", "unknown", "norm_eps", "feature_map"}) {
    Files files = with_key(recipe("fla gla").files, key, "HERE");
    for (const std::string& value : {arrays, objects}) {
      Files deep = files;
      deep.config.replace(deep.config.find("\"HERE\""), 6, value);
      CHECK_THAT(refusal(deep), contains("file 'DIR/config.json': "));
    }
  }
  for (const auto& [name, key] :
       {std::pair("state-spaces mamba2", "ssm_cfg"), std::pair("fla rwkv7", "value_dim"),
        std::pair("transformers mamba2, groups", "time_step_limit")}) {
    Files files = with_key(recipe(name).files, key, "HERE");
    for (const std::string& value : {arrays, objects, "[" + arrays + "," + arrays + "]"}) {
      Files deep = files;
      deep.config.replace(deep.config.find("\"HERE\""), 6, value);
      CHECK_THAT(refusal(deep), contains("file 'DIR/config.json': "));
    }
  }
  // As deep as anybody writes them is fine, and brackets inside texts do not count.
  Files files = with_key(recipe("fla gla").files, "unknown", "HERE");
  files.config.replace(files.config.find("\"HERE\""), 6, nested(20, "{\"a\":[", "]}"));
  CHECK(refusal(files) == loaded);
  CHECK(refusal("fla gla", "unknown", std::string(1000, '[') + "\"" + std::string(1000, '{')) == loaded);

  const TemporaryDirectory folder;
  const std::string index = "{\"weight_map\":{\"x\":" + arrays + "}}";
  write_file(folder / "model.safetensors.index.json", std::as_bytes(std::span(index.data(), index.size())));
  CHECK_THROWS_AS(io::Checkpoint(folder.path()), FormatError);
}

// Memory must not go by what a config claims, before the tensors have confirmed it.
TEST_CASE("refusal: enormous sizes are refused before memory is taken for them") {
  const long before = peak_kibibytes();
  const Index large = Index{1} << 24;
  for (const char* name : {"fla gla", "fla gated_deltanet", "fla retnet", "fla rwkv7"})
    CHECK_THAT(refusal(name, "num_hidden_layers", 16'000'000),
               contains("key 'num_hidden_layers': expected no more layers than the"));
  CHECK_THAT(refusal("post rwkv7", "n_layer", 16'000'000),
             contains("key 'n_layer': expected no more layers"));
  CHECK_THAT(refusal("state-spaces mamba2", "n_layer", large),
             contains("key 'n_layer': expected no more layers"));
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.files.config.empty() || recipe.files.config.find("Infinity") != std::string::npos) continue;
    INFO(recipe.name);
    // Every size at once, and the factors so that they agree.
    Files files = recipe.files;
    const nlohmann::json config = nlohmann::json::parse(files.config);
    const Index tensors = static_cast<Index>(files.tensors.size());
    for (const auto& [key, value] : config.items())
      if (value.is_number_integer()) files = with_key(files, key, large);
    for (const char* key : {"expand_k", "expand_v", "hidden_ratio"}) files = with_key(files, key, 1);
    for (const char* key : {"num_hidden_layers", "n_layer"})
      if (config.contains(key)) files = with_key(files, key, tensors);
    CHECK(refusal(files) != loaded);
    for (const char* key : {"head_dim", "headdim", "num_kv_heads"})
      if (config.contains(key)) files = with_key(files, key, 1);
    CHECK(refusal(files) != loaded);
  }
  CHECK(peak_kibibytes() - before < 1024 * 1024);  // the sanitizers keep what was freed
}

}  // namespace linrec::test::refusal_test
