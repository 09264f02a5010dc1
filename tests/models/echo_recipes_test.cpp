// Echo models, as their state dict converted to safetensors is: SKA in the place of Mamba-2 at some layers,
// which the project's own configs have in the last one, too.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/models/recipe_maker.hpp"

namespace linrec::test {

namespace recipes {

namespace {

struct EchoKind {
  std::string name, config;
  std::uint64_t seed;
  int layers;
  std::vector<int> ska;
  bool gated = false, layer_norm = true, head = false;
  bool golden_ska = false;  ///< a golden layer in block 1
};

Recipe echo(const EchoKind& kind) {
  Maker make(kind.name, kind.seed);
  make.config(kind.config);
  const auto norm = [&](const std::string& name) {
    kind.layer_norm ? make.layer_norm(name) : make.rms_norm(name);
  };
  make.random("embed.weight", {vocabulary, width});
  if (kind.head) make.random("lm_head.weight", {vocabulary, width});
  norm("norm_f");
  make.skeleton() = {"embed.weight", kind.head ? "lm_head.weight" : "embed.weight", "", {}, "norm_f",
                     kind.layer_norm};
  for (int i = 0; i < kind.layers; ++i) {
    const std::string sequence = block("seq_layers", i), ska = sequence + "ska.",
                      mlp = block("mlp_layers", i);
    if (kind.golden_ska && i == 1) {
      make.golden(2, sequence, "layer_ska_streaming");  // with its norm
    } else if (std::find(kind.ska.begin(), kind.ska.end(), i) != kind.ska.end()) {
      for (const char* name : {"key_proj", "query_proj"}) make.random(ska + name + ".weight", {8, width});
      for (const char* name : {"value_proj", "out_proj"}) make.random(ska + name + ".weight", {width, width});
      make.random(ska + "eta", {}, 1.5, 0.2);
      make.random(ska + "ssn_gamma", {}, 1.2, 0.1);
    } else if (i == 0) {
      make.golden(0, sequence + "mamba.", "layer_mamba2");
    } else {
      make.other(sequence + "mamba.", "layer_mamba2");
    }
    make.random(mlp + "lift.weight", {128, width});
    make.random(mlp + "gamma", {64}, 0.7, 0.5);  // some pairs beyond the unit circle
    make.random(mlp + "omega", {64}, 0, 0.8);
    make.random(mlp + "readout.weight", {width, 128});
    if (kind.gated) make.random(mlp + "gate.weight", {128, width});
    for (const std::string& name : {sequence + "norm", mlp + "norm"}) {
      make.skeleton().branch_norm.push_back(name);
      if (!kind.golden_ska || name != "seq_layers.1.norm") norm(name);
    }
  }
  return make.finish();
}

}  // namespace

}  // namespace recipes

std::vector<Recipe> echo_recipes() {
  using namespace recipes;
  const std::string common =
      R"("d_model":32,"vocab_size":24,"d_state":8,"d_conv":4,"mamba_expand":2,"mamba_headdim":16,
      "ska_n_heads":2,"ska_rank":4,"ska_power_K":2,"ska_scale":1.5,"ska_backend":"auto","max_seq_len":8192,
      "ska_overlap_fraction":0.5,"ska_decay_alpha":0.95,"ska_chunk_strategy":"standard","mlp_expand":2.667,)";
  std::vector<Recipe> all;
  const std::string released = R"("n_layers":4,"ska_ridge":0.001,"ska_chunk_size":8,"ska_layer_indices":[1,3],
      "mlp_spectral_norm":true,"mlp_gated":false,"tie_embeddings":true})";
  all.push_back(echo({.name = "echo",
                      .config = R"({"model_type":"koopman_lm",)" + common + released,
                      .seed = 30,
                      .layers = 4,
                      .ska = {1, 3}}));
  const std::string whitened = R"("n_layers":3,"ska_ridge":0.001,"ska_layer_indices":[1],
      "ska_operator":"whitened","ska_visibility":"inclusive","mlp_gated":true,"mlp_modulus":"circle",
      "tie_embeddings":false})";
  all.push_back(echo({.name = "echo, whitened",
                      .config = R"({"model_type":"echo",)" + common + whitened,
                      .seed = 31,
                      .layers = 3,
                      .ska = {1},
                      .gated = true,
                      .head = true,
                      .golden_ska = true}));
  const std::string unit_norm = R"("n_layers":2,"ska_layer_indices":[1],"ska_visibility":"exclusive",
      "ska_key_scale":"unit_norm","ska_mode":"replace","mlp_spectral_norm":false,"norm_type":"rmsnorm",
      "norm_eps":1e-5})";
  all.push_back(echo({.name = "echo, unit norm",
                      .config = R"({"model_type":"echo",)" + common + unit_norm,
                      .seed = 32,
                      .layers = 2,
                      .ska = {1},
                      .layer_norm = false}));
  Files& files = all.back().files;  // both aliases of the embedding, as torch saves them
  files.tensors["lm_head.weight"] = files["embed.weight"];
  return all;
}

}  // namespace linrec::test
