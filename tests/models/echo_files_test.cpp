// Files of Echo models: names, configs and their defaults, and what is refused.
#include <nlohmann/json.hpp>

#include "linrec/io/echo_models.hpp"
#include "linrec/models/echo.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"
#include "tests/models/refusal.hpp"

namespace linrec::test::echo_files_test {

namespace {

using Json = nlohmann::json;
using Indices = std::vector<Index>;

LanguageModel<double> model_of(const Files& files) { return load_double(as_checkpoint(files)); }

LanguageModel<double>::Logits logits(const Files& files) {
  const auto model = model_of(files);
  auto state = model.initial_state();
  return model.prefill(random_tokens(20, model.vocabulary()), state);
}

std::string refusal(const std::string& key, const Json& value) {
  return refusal(with_key(recipe("echo").files, key, value));
}

io::EchoConfig config_of(const Json& config) {
  return io::echo_config(io::ConfigReader("config.json", config));
}

}  // namespace

TEST_CASE("echo: the places of SKA") {
  CHECK(echo_ska_layers(24, 2) == Indices{8, 16});
  CHECK(echo_ska_layers(28, 3) == Indices{7, 14, 21});
  CHECK(echo_ska_layers(16, 4) == Indices{3, 6, 9, 12});
  CHECK(echo_ska_layers(4, 2) == Indices{1, 2});
  CHECK(echo_ska_layers(3, 1) == Indices{1});
  CHECK(echo_ska_layers(1, 0).empty());
  for (Index n = 3; n < 40; ++n)
    for (Index count = 1; count <= n - 2; ++count) {
      const Indices layers = echo_ska_layers(n, count);
      REQUIRE(layers.size() == static_cast<std::size_t>(count));
      CHECK(layers.front() >= 1);
      CHECK(layers.back() <= n - 2);
      for (std::size_t i = 1; i < layers.size(); ++i) {
        CHECK(layers[i] - layers[i - 1] >= n / (count + 1));
        CHECK(layers[i] - layers[i - 1] <= n / (count + 1) + 1);
      }
    }
  CHECK(error_text<ValueError>([] { echo_ska_layers(24, 23); }) ==
        "count: expected 0 to 22 of 24 layers, for SKA is never in the first or the last, got 23");
  CHECK_THAT(error_text<ValueError>([] { echo_ska_layers(2, 1); }), contains("expected 0 to 0 of 2 layers"));
  CHECK_THAT(error_text<ValueError>([] { echo_ska_layers(9, -1); }), contains("got -1"));
  CHECK(error_text<ValueError>([] { echo_ska_layers(0, 0); }) == "n_layers: expected at least 1, got 0");
}

TEST_CASE("echo: a config's defaults are the project's") {
  const io::EchoConfig m = config_of(Json::object());
  CHECK((m.width == 768 && m.layers == 24 && m.vocabulary == 32000 && m.tied));
  CHECK((!m.rms_norm && m.norm_eps == 1e-5));
  CHECK((m.mamba2.width == 768 && m.mamba2.heads == 24 && m.mamba2.head_dim == 64));
  CHECK((m.mamba2.state_size == 128 && m.mamba2.groups == 1 && m.mamba2.conv_width == 4));
  CHECK(m.ska.width == 768);
  const SpectralKoopmanAttentionConfig& ska = m.ska.attention;
  CHECK((ska.heads == 12 && ska.key == 48 && ska.value == 64));
  CHECK((ska.ridge == 1e-3 && ska.power == 2 && ska.chunk == 64));
  CHECK(ska.koopman_operator == KoopmanOperator::unwhitened);
  CHECK(ska.visibility == Visibility::earlier_chunks);
  CHECK(ska.boundary_transition);
  CHECK(ska.key_scale == KeyScale::sequence_max);
  CHECK((m.mlp.width == 768 && m.mlp.hidden == 2048 && !m.mlp.gated));
  CHECK(m.mlp.modulus == KoopmanModulus::disk);
  CHECK(m.ska_layers == Indices{4, 8, 12, 16, 20, 23});
  CHECK(config_of({{"n_layers", 17}}).ska_layers == Indices{4, 8, 12, 16});
  CHECK(config_of({{"ska_layer_indices", Json::array()}}).ska_layers.empty());
  // d_k of the project's sizes, and one where 2.667 is not 8/3.
  for (const auto& [width, hidden] : {std::pair<Index, Index>{448, 1216}, {1024, 2752}, {3072, 8256}})
    CHECK(config_of({{"d_model", width}, {"ska_n_heads", 1}}).mlp.hidden == hidden);
}

TEST_CASE("echo: what the keys of our own, and those of the blocks, stand for") {
  const auto ska = [](const char* key, const Json& value) { return config_of({{key, value}}).ska.attention; };
  CHECK(ska("ska_operator", "minv").koopman_operator == KoopmanOperator::unwhitened);
  CHECK(ska("ska_operator", "whitened").koopman_operator == KoopmanOperator::whitened);
  CHECK(ska("ska_visibility", "inclusive").visibility == Visibility::inclusive);
  CHECK_FALSE(ska("ska_visibility", "inclusive").boundary_transition);
  CHECK(ska("ska_visibility", "exclusive").visibility == Visibility::exclusive);
  CHECK_FALSE(ska("ska_boundary_transition", false).boundary_transition);
  CHECK(ska("ska_key_scale", "unit_norm").key_scale == KeyScale::unit_norm);
  CHECK(ska("ska_key_scale", "none").key_scale == KeyScale::none);
  CHECK(ska("ska_power_K", 0).power == 0);
  CHECK(config_of({{"mlp_spectral_norm", false}}).mlp.modulus == KoopmanModulus::free);
  CHECK(config_of({{"mlp_spectral_norm", false}, {"mlp_modulus", "disk"}}).mlp.modulus ==
        KoopmanModulus::disk);
  CHECK(config_of({{"mlp_modulus", "circle"}}).mlp.modulus == KoopmanModulus::circle);
  CHECK(config_of({{"mlp_gated", true}, {"mlp_type", "auto"}}).mlp.gated);
  CHECK(config_of({{"mlp_type", "koopman_gated"}}).mlp.gated);
  CHECK_FALSE(config_of({{"mlp_gated", true}, {"mlp_type", "koopman"}}).mlp.gated);
  CHECK(config_of({{"mamba_headdim", 32}}).mamba2.heads == 48);
}

TEST_CASE("echo: names as torch.compile and the fused projections leave them") {
  const Files& files = recipe("echo").files;
  Files compiled{{}, files.config}, whole = compiled;
  for (const auto& [name, numbers] : files.tensors) {
    std::string theirs = name;
    if (const auto at = theirs.find(".ska."); at != theirs.npos) theirs.insert(at + 5, "_orig_mod.");
    compiled.tensors[theirs] = numbers;
    whole.tensors["_orig_mod." + theirs] = numbers;
  }
  for (const std::string name : {"key", "query", "value"})
    compiled.tensors["seq_layers.1.ska._orig_mod." + name + "_proj._fused_proj.weight"] =
        whole.tensors["_orig_mod.seq_layers.1.ska." + name + "_proj._fused_proj.weight"] = {
            {48, 32}, std::vector<float>(48 * 32)};
  CHECK(compiled.tensors.contains("seq_layers.3.ska._orig_mod.key_proj.weight"));
  for (const Files& other : {compiled, whole}) {
    CHECK(logits(other) == logits(files));
    // So that a state goes on with either file.
    CHECK(model_of(other).initial_state().model() == model_of(files).initial_state().model());
  }
  compiled.tensors["seq_layers.1.ska.eta"] = files["seq_layers.1.ska.eta"];
  CHECK(refusal(compiled) ==
        "checkpoint 'DIR': tensor 'seq_layers.1.ska.eta': expected the only one that means "
        "'seq_layers.1.ska.eta', got a second one");
  Files other = files;
  other.tensors["seq_layers.1.ska.my_orig_mod.x"] = {{1}, {0}};
  CHECK_THAT(refusal(other), contains("unexpected: 'seq_layers.1.ska.my_orig_mod.x'"));
}

TEST_CASE("echo: tied and untied heads") {
  Files files = recipe("echo").files;
  const auto expected = logits(files);
  files.tensors["lm_head.weight"] = files["embed.weight"];
  CHECK(logits(files) == expected);
  Files head_only = files;
  head_only.tensors.erase("embed.weight");
  CHECK(logits(head_only) == expected);
  CHECK(logits(with_key(files, "tie_embeddings", false)) == expected);
  CHECK_THAT(refusal("tie_embeddings", false), contains("missing: 'lm_head.weight' [24, 32]"));
  files["lm_head.weight"].values[7] += 1;
  CHECK_THAT(refusal(files),
             contains("the config ties 'embed.weight' and 'lm_head.weight', but they differ"));
  CHECK(logits(with_key(files, "tie_embeddings", false)) != expected);
}

TEST_CASE("echo: SKA in any layer, where config and tensors agree") {
  // The blocks of one file in another order.
  const auto moved = [](Indices layers) {
    Files files = with_key(recipe("echo").files, "ska_layer_indices", layers);
    std::vector<std::string> ska{"seq_layers.1.", "seq_layers.3."}, mamba{"seq_layers.0.", "seq_layers.2."};
    std::map<std::string, Files::Numbers> tensors;
    for (const auto& [name, numbers] : files.tensors)
      if (!name.starts_with("seq_layers.")) tensors[name] = numbers;
    for (Index i = 0; i < 4; ++i) {
      auto& from = std::find(layers.begin(), layers.end(), i) != layers.end() ? ska : mamba;
      for (const auto& [name, numbers] : files.tensors)
        if (name.starts_with(from.back()))
          tensors[message("seq_layers.", i, ".") + name.substr(13)] = numbers;
      from.pop_back();
    }
    files.tensors = tensors;
    return files;
  };
  for (const Indices& layers : {Indices{0, 3}, {3, 0}, {2, 1}}) {
    const auto model = model_of(moved(layers));
    for (Index i = 0; i < 4; ++i) {
      const bool ska = std::find(layers.begin(), layers.end(), i) != layers.end();
      const auto* branch = model.blocks()[static_cast<std::size_t>(2 * i)].branch.get();
      CHECK((dynamic_cast<const LayerBranch<SKALayer<double>>*>(branch) != nullptr) == ska);
      CHECK((dynamic_cast<const LayerBranch<Mamba2Layer<double>>*>(branch) != nullptr) == !ska);
    }
  }
  CHECK(refusal("ska_layer_indices", {1, 2}) ==
        "checkpoint 'DIR': the tensors are not those of the model:"
        "\n  other layer: 'seq_layers.2': expected SKA by the config's 'ska_layer_indices', got Mamba-2"
        "\n  other layer: 'seq_layers.3': expected Mamba-2 by the config's 'ska_layer_indices', got SKA");
  CHECK_THAT(refusal("ska_layer_indices", nullptr), contains("'seq_layers.1': expected Mamba-2 by"));
  const auto key = [](const std::string& rest) {
    return "file 'DIR/config.json': key 'ska_layer_indices': expected " + rest;
  };
  CHECK(refusal("ska_layer_indices", {1, 4}) == key("layers from 0 to 3, got 4"));
  CHECK(refusal("ska_layer_indices", {1, -3}) == key("an integer from 0 to 16777216, got -3"));
  CHECK(refusal("ska_layer_indices", {1, 1.5}) == key("an integer from 0 to 16777216, got 1.5"));
  CHECK(refusal("ska_layer_indices", "3") == key("an array of integers, got \"3\""));
  // Neither of the two.
  Files files = recipe("echo").files;
  std::erase_if(files.tensors, [](const auto& item) { return item.first.starts_with("seq_layers.3."); });
  CHECK_THAT(refusal(files), contains("missing: 'seq_layers.3.ska.key_proj.weight' [8, 32]") &&
                                 contains("missing: 'seq_layers.3.norm.bias' [32]"));
}

TEST_CASE("echo: keys that ask for what there is not") {
  struct Case {
    const char* key;
    Json value;
    std::string expected;
  };
  const std::string nothing = "nothing, for linrec does not implement it";
  for (const auto& [key, value, expected] :
       std::vector<Case>{{"ska_chunk_strategy", "overlap", "'standard'"},
                         {"ska_chunk_strategy", "decay", "'standard'"},
                         {"ska_mode", "parallel", "'replace'"},
                         {"ska_beta_policy", "sqrt", nothing},
                         {"ska_layerscale", true, nothing},
                         {"ska_short_conv", true, nothing},
                         {"ska_exact_intrachunk", true, nothing},
                         {"ska_inverse_cholesky", true, nothing},
                         {"ska_prefix_scan", true, nothing},
                         {"ska_norm_clip", true, nothing},
                         {"ska_eta_bounds", {1.4, 1.7}, nothing},
                         {"ska_gamma_bounds", {0.5, 1.5}, nothing},
                         {"ska_gamma_clamp", {0.5, 1.5}, "[1, 1.5]"},
                         {"mlp_type", "swiglu", "'auto' or 'koopman' or 'koopman_gated'"},
                         {"mlp_norm_preserving", true, nothing},
                         {"mlp_row_norm_lift", true, nothing},
                         {"mlp_rotation_param", "angle", "'legacy'"},
                         {"mlp_pair_mixer", "perm", "'none'"},
                         {"norm_type", "batchnorm", "'layernorm' or 'rmsnorm'"},
                         {"ska_operator", "paper", "'minv' or 'whitened'"},
                         {"ska_visibility", "all", "'chunk' or 'inclusive' or 'exclusive'"},
                         {"ska_key_scale", "max", "'sequence_max' or 'unit_norm' or 'none'"},
                         {"mlp_modulus", "square", "'disk' or 'circle' or 'free'"},
                         {"ska_operator", 1, "a text"},
                         {"ska_power_K", -1, "an integer from 0 to 16777216"}}) {
    const std::string got = value.is_array() ? "[0.5, 1.5]" : value.dump();
    const std::string text = refusal(key, value);
    INFO(text);
    CHECK(text.find("file 'DIR/config.json': key '" + std::string(key) + "': expected " + expected) == 0);
    if (std::string(key) != "ska_eta_bounds" && std::string(key) != "ska_gamma_bounds")
      CHECK(text.ends_with(", got " + got));
  }
  CHECK(refusal(with_key(with_key(recipe("echo").files, "ska_visibility", "inclusive"),
                         "ska_boundary_transition", true)) ==
        "file 'DIR/config.json': key 'ska_boundary_transition': expected false, as the key 'ska_visibility' "
        "is not 'chunk', got true");
  CHECK_THAT(refusal("ska_n_heads", 3),
             contains("expected a number of heads that divides 32 channels, got 3"));
  CHECK_THAT(refusal("ska_rank", 8),
             contains("'seq_layers.1.ska.key_proj.weight': expected [16, 32], got [8"));
  CHECK_THAT(refusal("mlp_expand", 8), contains("'mlp_layers.0.lift.weight': expected [256, 32], got [128"));
  CHECK_THAT(refusal("mlp_gated", true), contains("missing: 'mlp_layers.3.gate.weight' [128, 32]"));
  CHECK_THAT(refusal("norm_type", "rmsnorm"), contains("unexpected: 'mlp_layers.0.norm.bias'"));
  // The neutral values of the project's later configs.
  Files files = recipe("echo").files;
  const auto expected = logits(files);
  const Json neutral = Json::parse(R"({"ska_mode":"replace","ska_layerscale":false,
      "ska_eta_learnable":true,"ska_eta_value":1.5,"ska_gamma_clamp":[1.0,1.5],"ska_gamma_bounds":null,
      "ska_short_conv":false,"ska_short_conv_kernel":4,"ska_norm_clip":false,"mlp_type":"auto",
      "mlp_pair_mixer":null,"norm_type":"layernorm","norm_eps":1e-5,"init_policy":"legacy"})");
  for (const auto& [key, value] : neutral.items()) files = with_key(files, key, value);
  CHECK(logits(files) == expected);
}

TEST_CASE("echo: numbers that make no sense name the layer") {
  CHECK_THAT(refusal("ska_ridge", 0), contains("checkpoint 'DIR': seq_layers.1.ska: ridge: expected"));
  Files files = recipe("echo").files;
  files["seq_layers.3.ska.eta"].values[0] = std::numeric_limits<float>::infinity();
  CHECK_THAT(refusal(files), contains("checkpoint 'DIR': seq_layers.3.ska: eta: expected a finite number"));
  files = recipe("echo").files;
  files["mlp_layers.2.omega"].values[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(refusal(files), contains("checkpoint 'DIR': mlp_layers.2: omega[5]: expected a finite number"));
}

TEST_CASE("echo: other models of the project are told by their tensors") {
  struct Case {
    std::string tensor, what;
  };
  for (const auto& [tensor, what] :
       {Case{"seq_layers.1.ska.beta_proj.weight",
             "a later one, whose SKA weighs each token by a learned gate and normalises each key"},
        Case{"seq_layers.1.ska._orig_mod.beta_proj.bias", "a learned gate"},
        Case{"seq_layers.1.ska.beta_logit", "a later one, whose SKA weighs tokens by a learned number"},
        Case{"seq_layers.1.ska.eta_raw", "kept within bounds by a sigmoid"},
        Case{"seq_layers.1.ska.layerscale_gate", "a learned scale for each channel of its outputs"},
        Case{"seq_layers.1.short_conv.weight", "with a short convolution beside SKA"},
        Case{"seq_layers.0.mamba.mamba.in_proj.weight", "with Mamba-2 and SKA side by side in a block"},
        Case{"mlp_layers.0.theta", "has angles in the place of gamma and omega"},
        Case{"mlp_layers.0.lift_v", "normalises the rows of its lift"},
        Case{"mlp_layers.0.mixer.perm", "mixes its pairs"},
        Case{"seq_layers.1.qkv.weight", "a baseline, with attention layers"},
        Case{"mlp_layers.0.w1.weight", "one with SwiGLU in the place of Koopman MLPs"}}) {
    Files files = with_key(recipe("echo").files, "ska_mode", "parallel");  // the tensors say more than keys
    files.tensors[tensor] = {{32}, std::vector<float>(32)};
    const std::string text = refusal(files);
    CHECK_THAT(text, contains("checkpoint 'DIR': tensor 'seq_layers.") || contains("tensor 'mlp_layers.0."));
    CHECK_THAT(text,
               contains("expected a model as Echo's first release has it, got a") || contains("got one"));
    CHECK_THAT(text, contains(what));
    CHECK(text.ends_with(", which linrec does not implement"));
  }
}

}  // namespace linrec::test::echo_files_test
