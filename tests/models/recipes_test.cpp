#include "tests/models/recipes.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tests/catch.hpp"
#include "tests/models/recipe_maker.hpp"

namespace linrec::test {

namespace recipes {

namespace {

// BlinkDL writes no config, and trains models whose first block has the tensors of a value residual as well.
Recipe blinkdl() {
  Maker make("blinkdl rwkv7", 1);
  make.random("emb.weight", {vocabulary, width});
  make.random("head.weight", {vocabulary, width});
  make.layer_norm("blocks.0.ln0");
  make.layer_norm("ln_out");
  make.golden(0, "blocks.0.att.", "layer_rwkv7_time_mix_first");
  make.golden(1, "blocks.0.ffn.", "layer_rwkv7_channel_mix");
  make.golden(2, "blocks.1.att.", "layer_rwkv7_time_mix");
  make.other("blocks.1.ffn.", "layer_rwkv7_channel_mix");
  make.other("blocks.2.att.", "layer_rwkv7_time_mix");
  make.golden(5, "blocks.2.ffn.", "layer_rwkv7_channel_mix");
  make.random("blocks.0.att.v0", {1, 1, width});
  make.random("blocks.0.att.v1", {width, 8});
  make.random("blocks.0.att.v2", {8, width});
  make.skeleton() = {"emb.weight", "head.weight", "blocks.0.ln0", {}, "ln_out", true, 1e-5};
  for (int i = 0; i < 3; ++i)
    for (const char* norm : {"ln1", "ln2"}) {
      make.skeleton().branch_norm.push_back(block("blocks", i) + norm);
      make.layer_norm(block("blocks", i) + norm);
    }
  return make.finish();
}

/// The published names of a time mixing in fla, by its converter; ^T: transposed.
std::string fla_name(const std::string& name) {
  static const std::map<std::string, std::string> names{
      {"receptance.weight", "r_proj.weight"}, {"key.weight", "k_proj.weight"},
      {"value.weight", "v_proj.weight"},      {"output.weight", "o_proj.weight"},
      {"ln_x.weight", "g_norm.weight"},       {"ln_x.bias", "g_norm.bias"}};
  if (const auto found = names.find(name); found != names.end()) return found->second;
  if (name.size() != 2) return name;
  const std::string lora = name.substr(0, 1) + "_lora.lora.";
  if (name[1] == '0') return lora + "2.bias";
  if (name[1] == '1') return lora + "0.weight^T";
  if (name[1] == '2') return lora + "2.weight^T";
  return name;
}

/// The golden layers have BlinkDL's eps of the group norm, 64e-5 = head_dim norm_eps, and of kk, 0.
Recipe fla_rwkv7() {
  Maker make("fla rwkv7", 2);
  make.config(R"({"architectures":["RWKV7ForCausalLM"],"model_type":"rwkv7","hidden_size":32,"head_dim":8,
    "num_heads":null,"num_hidden_layers":2,"vocab_size":24,"intermediate_size":64,"hidden_ratio":4.0,
    "hidden_act":"sqrelu","norm_eps":8e-05,"norm_first":true,"norm_bias":true,"fuse_norm":false,"attn":null,
    "value_dim":[32,32],"decay_low_rank_dim":8,"a_low_rank_dim":8,"v_low_rank_dim":8,"gate_low_rank_dim":8,
    "attn_mode":"chunk","use_cache":true,"tie_word_embeddings":false,"transformers_version":"4.53.0"})");
  make.random("model.embeddings.weight", {vocabulary, width});
  make.random("lm_head.weight", {vocabulary, width});
  make.layer_norm("model.layers.0.pre_norm");
  make.layer_norm("model.norm");
  make.golden(0, "model.layers.0.attn.", "layer_rwkv7_time_mix_first", fla_name);
  make.golden(1, "model.layers.0.ffn.", "layer_rwkv7_channel_mix");
  make.golden(2, "model.layers.1.attn.", "layer_rwkv7_time_mix", fla_name);
  make.other("model.layers.1.ffn.", "layer_rwkv7_channel_mix");
  make.skeleton() = {
      "model.embeddings.weight", "lm_head.weight", "model.layers.0.pre_norm", {}, "model.norm", true, 8e-5};
  for (int i = 0; i < 2; ++i)
    for (const char* norm : {"attn_norm", "ffn_norm"}) {
      make.skeleton().branch_norm.push_back(block("model.layers", i) + norm);
      make.layer_norm(block("model.layers", i) + norm);
    }
  return make.finish();
}

/// Between January and April 2025 fla stored the six mu of a layer in one tensor.
Recipe fla_rwkv7_packed() {
  Recipe result = fla_rwkv7();
  result.name = "fla rwkv7, x_x";
  for (int i = 0; i < 2; ++i) {
    Files::Numbers all{{6, width}, {}};
    for (const char c : std::string("rwkvag")) {
      const std::string name = block("model.layers", i) + "attn.x_" + c;
      const auto& values = result.files[name].values;
      all.values.insert(all.values.end(), values.begin(), values.end());
      result.files.tensors.erase(name);
    }
    result.files.tensors[block("model.layers", i) + "attn.x_x"] = std::move(all);
  }
  return result;
}

/// Neither first norm nor biases of norms; heads in the place of head_dim, and sizes that follow from others.
Recipe fla_rwkv7_bare() {
  Recipe result = fla_rwkv7();
  result.name = "fla rwkv7, no norm_first, no norm_bias";
  Files& files = result.files;
  files = with_key(with_key(files, "norm_first", false), "norm_bias", false);
  files = with_key(with_key(with_key(files, "head_dim", nullptr), "num_heads", 4), "value_dim", nullptr);
  files =
      with_key(with_key(files, "intermediate_size", nullptr), "hidden_ratio", 1.1);  // 64 = 32 ceil(35 / 32)
  std::erase_if(files.tensors, [](const auto& item) {
    return item.first.find("pre_norm") != item.first.npos ||
           (item.first.ends_with("norm.bias") && item.first.find("g_norm") == item.first.npos);
  });
  result.skeleton.embedding_norm = "";
  return result;
}

Recipe post_rwkv7() {
  Maker make("post rwkv7", 3);
  make.config(R"({"architectures":["RWKV7PoSTForCausalLM"],"model_type":"rwkv7_post","d_model":32,"n_layer":2,
    "head_dim":8,"decay_low_rank_dim":8,"gate_low_rank_dim":8,"a_low_rank_dim":8,"v_low_rank_dim":8,
    "hidden_ratio":4.0,"dim_ffn":64,"vocab_size":32,"pad_vocab_size_multiple":16,"tie_embeddings":true,
    "tie_word_embeddings":true,"train_length":512,"norm_eps":1e-05,"use_post":true})");
  make.random("embedding.weight", {32, width});
  make.layer_norm("pre_norm");
  make.layer_norm("norm_f");
  make.other("layers.0.mixer.", "layer_rwkv7_post_fla");
  make.golden(1, "layers.0.ffn.", "layer_rwkv7_channel_mix");
  make.golden(2, "layers.1.mixer.", "layer_rwkv7_post_fla");
  make.other("layers.1.ffn.", "layer_rwkv7_channel_mix");
  make.skeleton() = {"embedding.weight", "embedding.weight", "pre_norm", {}, "norm_f", true, 1e-5};
  for (int i = 0; i < 2; ++i)
    for (const char* norm : {"norm", "ffn_norm"}) {
      make.skeleton().branch_norm.push_back(block("layers", i) + norm);
      make.layer_norm(block("layers", i) + norm);
    }
  Recipe result = make.finish();
  for (const char* name : {"v_lora.lora.0.weight", "v_lora.lora.2.weight", "v_lora.lora.2.bias"})
    result.files.tensors.erase("layers.0.mixer." + std::string(name));
  return result;
}

Recipe state_spaces() {
  Maker make("state-spaces mamba2", 4);
  make.config(R"({"d_model":32,"d_intermediate":0,"n_layer":2,"vocab_size":21,
    "ssm_cfg":{"layer":"Mamba2","d_state":8,"headdim":16},"attn_layer_idx":[],"attn_cfg":{},"rms_norm":true,
    "residual_in_fp32":true,"fused_add_norm":true,"pad_vocab_size_multiple":8,"tie_embeddings":true})");
  make.random("backbone.embedding.weight", {vocabulary, width});
  make.rms_norm("backbone.norm_f");
  make.other("backbone.layers.0.mixer.", "layer_mamba2");
  make.golden(1, "backbone.layers.1.mixer.", "layer_mamba2");
  make.skeleton() = {"backbone.embedding.weight", "backbone.embedding.weight", "", {}, "backbone.norm_f"};
  for (int i = 0; i < 2; ++i) {
    make.skeleton().branch_norm.push_back(block("backbone.layers", i) + "norm");
    make.rms_norm(block("backbone.layers", i) + "norm");
  }
  return make.finish();
}

/// Groups, limits of dt, LayerNorm and an MLP, whose 100 channels are rounded up to 128; both aliases of the
/// embedding, as torch saves them.
Recipe state_spaces_full() {
  Maker make("state-spaces mamba2, groups and MLP", 5);
  make.config(R"({"d_model":32,"d_intermediate":100,"n_layer":2,"vocab_size":21,
    "ssm_cfg":{"layer":"Mamba2","d_state":8,"headdim":16,"ngroups":2,"dt_limit":[0.01,2.0],"chunk_size":64},
    "attn_layer_idx":[],"attn_cfg":{},"rms_norm":false,"residual_in_fp32":true,"fused_add_norm":true,
    "pad_vocab_size_multiple":8,"tie_embeddings":true})");
  make.random("backbone.embedding.weight", {vocabulary, width});
  make.layer_norm("backbone.norm_f");
  make.golden(0, "backbone.layers.0.mixer.", "layer_mamba2_groups");
  make.other("backbone.layers.1.mixer.", "layer_mamba2_groups");
  make.skeleton() = {
      "backbone.embedding.weight", "backbone.embedding.weight", "", {}, "backbone.norm_f", true};
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = block("backbone.layers", i);
    make.skeleton().branch_norm.push_back(prefix + "norm");
    make.skeleton().branch_norm.push_back(prefix + "norm2");
    make.layer_norm(prefix + "norm");
    make.layer_norm(prefix + "norm2");
    make.random(prefix + "mlp.fc1.weight", {256, width});
    make.random(prefix + "mlp.fc2.weight", {width, 128});
    make.mlps().push_back({static_cast<std::size_t>(2 * i + 1), prefix + "mlp.fc1.weight",
                           prefix + "mlp.fc1.weight", prefix + "mlp.fc2.weight", true});
  }
  Recipe result = make.finish();
  result.files.tensors["lm_head.weight"] = result.files["backbone.embedding.weight"];
  return result;
}

/// `limit` is how the library wrote infinity: bare, which is no JSON, until version 5 wrapped it.
Recipe transformers(const std::string& name, const std::string& limit) {
  Maker make(name, 6);
  make.config(R"({"architectures":["Mamba2ForCausalLM"],"model_type":"mamba2","hidden_size":32,
    "num_heads":4,"head_dim":16,"state_size":8,"n_groups":1,"conv_kernel":4,"expand":2,"num_hidden_layers":2,
    "vocab_size":24,"hidden_act":"silu","layer_norm_epsilon":1e-05,"rms_norm":true,
    "use_bias":false,"use_conv_bias":true,"time_step_rank":2,"time_step_limit":)" +
              limit + R"(,"norm_before_gate":true,"tie_word_embeddings":false})");
  make.random("backbone.embeddings.weight", {vocabulary, width});
  make.random("lm_head.weight", {vocabulary, width});
  make.rms_norm("backbone.norm_f");
  make.golden(0, "backbone.layers.0.mixer.", "layer_mamba2");
  make.other("backbone.layers.1.mixer.", "layer_mamba2");
  make.skeleton() = {"backbone.embeddings.weight", "lm_head.weight", "", {}, "backbone.norm_f"};
  for (int i = 0; i < 2; ++i) {
    make.skeleton().branch_norm.push_back(block("backbone.layers", i) + "norm");
    make.rms_norm(block("backbone.layers", i) + "norm");
  }
  return make.finish();
}

/// Normalised by groups, as the models are trained.
Recipe transformers_groups() {
  Maker make("transformers mamba2, groups", 7);
  make.config(R"({"model_type":"mamba2","hidden_size":32,"num_heads":4,"head_dim":16,"state_size":8,
    "n_groups":2,"num_hidden_layers":2,"vocab_size":24,"time_step_limit":[0.01,2.0],
    "tie_word_embeddings":true})");
  make.random("backbone.embeddings.weight", {vocabulary, width});
  make.rms_norm("backbone.norm_f");
  make.other("backbone.layers.0.mixer.", "layer_mamba2_groups");
  make.golden(1, "backbone.layers.1.mixer.", "layer_mamba2_groups");
  make.skeleton() = {"backbone.embeddings.weight", "backbone.embeddings.weight", "", {}, "backbone.norm_f"};
  for (int i = 0; i < 2; ++i) {
    make.skeleton().branch_norm.push_back(block("backbone.layers", i) + "norm");
    make.rms_norm(block("backbone.layers", i) + "norm");
  }
  return make.finish();
}

Recipe post_mamba2() {
  Maker make("post mamba2", 8);
  make.config(R"({"architectures":["Mamba2PoSTForCausalLM"],"model_type":"mamba2_post","hidden_size":32,
    "head_dim":16,"state_size":8,"n_groups":1,"conv_kernel":4,"expand":2,"num_hidden_layers":2,
    "vocab_size":24,"norm_eps":1e-05,"time_step_limit":[0.0,Infinity],"train_length":256,"use_post":true,
    "tie_word_embeddings":true})");
  make.random("embedding.weight", {vocabulary, width});
  make.rms_norm("norm_f");
  make.golden(0, "layers.0.mixer.", "layer_mamba2_post");
  make.other("layers.1.mixer.", "layer_mamba2");  // a baseline block, without PoST
  make.skeleton() = {"embedding.weight", "embedding.weight", "", {}, "norm_f"};
  for (int i = 0; i < 2; ++i) {
    make.skeleton().branch_norm.push_back(block("layers", i) + "norm");
    make.rms_norm(block("layers", i) + "norm");
  }
  return make.finish();
}

/// fla's models of mixer and MLP, two blocks; `hidden` channels in the MLPs.
Recipe fla(const std::string& name, std::uint64_t seed, const std::string& config, const std::string& golden,
           const std::function<std::string(const std::string&)>& rename = {}, Index hidden = 48) {
  Maker make(name, seed);
  make.config(config);
  make.random("model.embeddings.weight", {vocabulary, width});
  make.random("lm_head.weight", {vocabulary, width});
  make.rms_norm("model.norm");
  make.other("model.layers.0.attn.", golden, rename);
  make.golden(2, "model.layers.1.attn.", golden, rename);
  make.skeleton() = {"model.embeddings.weight", "lm_head.weight", "", {}, "model.norm"};
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = block("model.layers", i);
    make.gated_mlp(static_cast<std::size_t>(2 * i + 1), prefix + "mlp.", hidden);
    for (const char* norm : {"attn_norm", "mlp_norm"}) {
      make.skeleton().branch_norm.push_back(prefix + norm);
      make.rms_norm(prefix + norm);
    }
  }
  return make.finish();
}

std::vector<Recipe> fla_models() {
  const std::string common = R"("hidden_size":32,"num_hidden_layers":2,"vocab_size":24,"hidden_act":"swish",
    "norm_eps":1e-05,"attn":null,"fuse_norm":true,"tie_word_embeddings":false,)";
  const std::string gdn = R"({"model_type":"gated_deltanet",)" + common + R"("head_dim":8,)";
  const std::string gla = R"({"model_type":"gla",)" + common + R"("num_heads":4,)";
  const std::string retnet = R"({"model_type":"retnet",)" + common + R"("num_heads":4,)";
  const auto plain_norm = [](const std::string& name) {
    return name == "g_norm_swish_gate.weight" ? "g_norm.weight" : name;
  };
  std::vector<Recipe> all;
  all.push_back(fla("fla gated_deltanet", 10,
                    gdn + R"("num_heads":2,"expand_v":2,"intermediate_size":48,"use_gate":true})",
                    "layer_gdn"));
  // Old files have a D that nobody reads.
  all.back().files.tensors["model.layers.0.attn.D"] = {{2}, {1, 1}};
  all.push_back(fla("fla gated_deltanet, grouped values, no gate", 11,
                    gdn + R"("num_heads":2,"num_v_heads":4,"expand_v":1.0,"allow_neg_eigval":true,
                        "use_gate":false,"intermediate_size":48})",
                    "layer_gdn_gva_negeig_nogate"));
  // PoST derives head_dim from d_model, which does not fit its golden layer: so it lies in fla's names.
  all.push_back(fla("fla gated_deltanet, PoST", 12,
                    gdn + R"("num_heads":2,"expand_v":2.0,"intermediate_size":48,"train_length":128})",
                    "layer_gdn_post"));
  all.push_back(
      fla("fla gla", 13, gla + R"("expand_k":0.5,"expand_v":1.0,"intermediate_size":48})", "layer_gla"));
  // Sizes by default: 256 = 256 ceil(int(32 * 4 * 2 / 3) / 256); and gate_proj with both, before 2025.
  all.push_back(
      fla("fla gla, packed gate_proj", 14, gla + R"("use_output_gate":true})", "layer_gla", plain_norm, 256));
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = block("model.layers", i) + "mlp.";
    Files& files = all.back().files;
    Files::Numbers& gate = files[prefix + "gate_proj.weight"];
    const auto& up = files[prefix + "up_proj.weight"].values;
    gate.shape[0] *= 2;
    gate.values.insert(gate.values.end(), up.begin(), up.end());
    files.tensors.erase(prefix + "up_proj.weight");
    all.back().mlps[static_cast<std::size_t>(i)].up = prefix + "gate_proj.weight";
  }
  all.push_back(fla("fla gla, grouped, convolutions", 15,
                    gla + R"("num_kv_heads":2,"use_short_conv":true,"conv_size":4,"intermediate_size":48})",
                    "layer_gla_mqa_conv"));
  const std::string post_gla = gla + R"("use_short_conv":true,"intermediate_size":48,"train_length":64})";
  all.push_back(fla("fla gla, PoST", 16, post_gla, "layer_gla_post"));
  all.push_back(fla("fla gla, PoST, learned", 17, post_gla, "layer_gla_post_learnable"));
  all.push_back(fla("fla retnet", 18, retnet + R"("expand_k":1.0,"expand_v":1,"intermediate_size":48,
                        "use_short_conv":true})",  // which RetNet has never read
                    "layer_retnet"));
  all.push_back(fla("fla retnet, g_norm", 19, retnet + R"("expand_v":1.0,"intermediate_size":48})",
                    "layer_retnet", plain_norm));
  return all;
}

Recipe post_gated_delta_net() {
  Maker make("post gated_deltanet", 20);
  make.config(R"({"architectures":["GDNPoSTForCausalLM"],"model_type":"post_gated_deltanet","d_model":32,
    "n_layer":2,"num_heads":4,"expand_v":1.5,"use_gate":true,"use_short_conv":true,"conv_size":3,
    "vocab_size":24,"pad_vocab_size_multiple":8,"tie_embeddings":true,"train_length":128,"norm_eps":1e-05,
    "use_post":true})");
  make.random("embedding.weight", {vocabulary, width});
  make.rms_norm("norm_f");
  make.skeleton() = {"embedding.weight", "embedding.weight", "", {}, "norm_f"};
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = block("layers", i), mixer = prefix + "mixer.";
    make.skeleton().branch_norm.push_back(prefix + "norm");
    make.rms_norm(prefix + "norm");
    for (const auto& [part, channels] : {std::pair("q", 32), std::pair("k", 32), std::pair("v", 48)}) {
      make.random(mixer + part + "_proj.weight", {channels, width});
      make.random(mixer + part + "_conv1d.weight", {channels, 1, 3}, 0, 0.8);
    }
    make.random(mixer + "a_proj.weight", {4, width});
    make.random(mixer + "b_proj.weight", {4, width});
    make.random(mixer + "dt_bias", {4}, -1);
    make.random(mixer + "g_proj.weight", {48, width});
    make.random(mixer + "o_norm.weight", {12}, 1);
    make.random(mixer + "o_proj.weight", {width, 48});
    make.random(mixer + "A_log_base", {}, -1);
    make.random(mixer + "A_log_delta", {3});
  }
  return make.finish();
}

}  // namespace

}  // namespace recipes

const std::vector<Recipe>& all_recipes() {
  using namespace recipes;
  static const std::vector<Recipe> all = [] {
    std::vector<Recipe> recipes = fla_models();
    recipes.push_back(blinkdl());
    recipes.push_back(fla_rwkv7());
    recipes.push_back(fla_rwkv7_packed());
    recipes.push_back(fla_rwkv7_bare());
    recipes.push_back(post_rwkv7());
    recipes.push_back(state_spaces());
    recipes.push_back(state_spaces_full());
    recipes.push_back(transformers("transformers mamba2", "[0.0, Infinity]"));
    recipes.push_back(transformers("transformers mamba2, version 5", R"([0.0, {"__float__": "Infinity"}])"));
    recipes.push_back(transformers_groups());
    recipes.push_back(post_mamba2());
    recipes.push_back(post_gated_delta_net());
    for (Recipe& echo : echo_recipes()) recipes.push_back(std::move(echo));
    return recipes;
  }();
  return all;
}

const Recipe& recipe(std::string_view name) {
  for (const Recipe& one : all_recipes())
    if (one.name == name) return one;
  throw std::out_of_range("no recipe '" + std::string(name) + "'");
}

Files with_key(Files files, const std::string& key, const nlohmann::json& value) {
  nlohmann::json config = nlohmann::json::parse(files.config);
  if (value.is_null())
    config.erase(key);
  else
    config[key] = value;
  files.config = config.dump();
  return files;
}

Files::Numbers random_numbers(Random& random, std::vector<Index> shape, double middle, double spread) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  Files::Numbers numbers{std::move(shape), {}};
  for (Index i = 0; i < count; ++i)
    numbers.values.push_back(static_cast<float>(random.uniform(middle - spread, middle + spread)));
  return numbers;
}

io::SafetensorsFile golden_layer(const std::string& name) {
  return io::SafetensorsFile(std::filesystem::path(LINREC_TEST_DATA) / "golden" / (name + ".safetensors"));
}

void write_files(const Files& files, const std::filesystem::path& folder, io::DataType type) {
  write_file(folder / "model.safetensors", model_bytes(files, type));
  if (!files.config.empty())
    write_file(folder / "config.json", std::as_bytes(std::span(files.config.data(), files.config.size())));
}

Bytes model_bytes(const Files& files, io::DataType type) {
  io::SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  for (const auto& [name, numbers] : files.tensors) {
    if (type == io::DataType::F64)
      writer.add(name, numbers.shape, std::vector<double>(numbers.values.begin(), numbers.values.end()));
    else
      writer.add(name, numbers.shape, numbers.values, type);
  }
  return writer.bytes();
}

io::Checkpoint as_checkpoint(const Files& files, io::DataType type) {
  const TemporaryDirectory folder;
  write_files(files, folder.path(), type);
  return io::Checkpoint(folder.path());
}

std::vector<TokenId> random_tokens(Index count, Index below, std::uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens;
  for (Index i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random.integer(0, below - 1)));
  return tokens;
}

}  // namespace linrec::test
