// Layers that were loaded in a project's names give the right outputs of golden layers: so names,
// orientations and sizes are read as they are meant.
#include <map>
#include <typeindex>

#include "linrec/layers/gated_delta_net_layer.hpp"
#include "linrec/layers/gla_layer.hpp"
#include "linrec/layers/mamba2_layer.hpp"
#include "linrec/layers/retnet_layer.hpp"
#include "linrec/layers/rwkv7_channel_mix.hpp"
#include "linrec/layers/rwkv7_time_mix.hpp"
#include "linrec/layers/ska_layer.hpp"
#include "tests/catch.hpp"
#include "tests/models/branches.hpp"
#include "tests/models/loaded.hpp"

namespace linrec::test::golden_layers_test {

namespace {

template <class Layer>
std::type_index branch_type() {
  return typeid(LayerBranch<Layer>);
}

/// What a golden file must have become.
std::type_index expected_type(const std::string& golden) {
  static const std::map<std::string, std::type_index> types{
      {"layer_mamba2", branch_type<Mamba2Layer<double>>()},
      {"layer_mamba2_groups", branch_type<Mamba2Layer<double>>()},
      {"layer_mamba2_post", branch_type<Mamba2Layer<double, PostSpectrum, GivenTaper>>()},
      {"layer_gdn", branch_type<GatedDeltaNetLayer<double>>()},
      {"layer_gdn_gva_negeig_nogate", branch_type<GatedDeltaNetLayer<double>>()},
      {"layer_gdn_post", branch_type<GatedDeltaNetLayer<double, PostSpectrum, GivenTaper>>()},
      {"layer_gla", branch_type<GLALayer<double>>()},
      {"layer_gla_mqa_conv", branch_type<GLALayer<double>>()},
      {"layer_gla_post", branch_type<GLALayer<double, PostSpectrum, GivenTaper>>()},
      {"layer_gla_post_learnable", branch_type<GLALayer<double, PostSpectrum, GivenTaper>>()},
      {"layer_retnet", branch_type<RetNetLayer<double>>()},
      {"layer_rwkv7_time_mix", branch_type<RWKV7TimeMix<double>>()},
      {"layer_rwkv7_time_mix_first", branch_type<RWKV7TimeMix<double>>()},
      {"layer_rwkv7_post_fla", branch_type<RWKV7TimeMix<double, PostSpectrum, GivenTaper>>()},
      {"layer_rwkv7_channel_mix", branch_type<RWKV7ChannelMix<double>>()},
      {"layer_ska_streaming", branch_type<SKALayer<double>>()}};
  return types.at(golden);
}

const Branch<double>& branch(const LanguageModel<double>& model, std::size_t i) {
  return *model.blocks().at(i).branch;
}

template <class Layer>
const Layer& layer(const LanguageModel<double>& model, std::size_t i) {
  const auto* found = dynamic_cast<const LayerBranch<Layer>*>(&branch(model, i));
  REQUIRE(found != nullptr);
  return found->layer();
}

/// All rows of x [n, 32] as branch i of a model has them normalised.
std::vector<double> normalised_rows(const Recipe& recipe, std::size_t i, const std::vector<double>& x) {
  std::vector<double> result;
  for (std::size_t row = 0; row < x.size(); row += 32) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row);
    const Row y = normalised(recipe.files, recipe.skeleton.branch_norm[i], recipe.skeleton.layer_norm,
                             recipe.skeleton.norm_eps, Row(begin, begin + 32));
    result.insert(result.end(), y.begin(), y.end());
  }
  return result;
}

}  // namespace

TEST_CASE("golden layers inside the models of every project") {
  std::map<std::string, int> seen;
  for (const Recipe& recipe : all_recipes()) {
    INFO(recipe.name);
    const LanguageModel<double> model = load_double(as_checkpoint(recipe.files));
    REQUIRE(model.blocks().size() == recipe.skeleton.branch_norm.size());
    for (const auto& [i, name] : recipe.golden) {
      INFO(name << " in branch " << i);
      ++seen[name];
      const Branch<double>& found = branch(model, i);
      REQUIRE(std::type_index(typeid(found)) == expected_type(name));
      const io::SafetensorsFile golden = golden_layer(name);
      std::vector<double> v_first;
      if (golden.contains("in.v_first")) v_first = golden.tensor("in.v_first").to<double>();
      const auto x = golden.tensor("in.x").to<double>();
      const bool whole_block = golden.contains("norm.bias");  // x + f(norm(x)), with a LayerNorm
      auto y = run_branch(found, 2, whole_block ? normalised_rows(recipe, i, x) : x, v_first);
      for (std::size_t at = 0; whole_block && at < y.size(); ++at) y[at] += x[at];
      CHECK(relative_error(y, golden.tensor("out.y").to<double>()) < 1e-11);
    }
  }
  // All that a project can express. (PoST's own config derives GDN's head_dim from other sizes than its
  // golden layer has, which therefore lies in fla's names.)
  CHECK(seen.size() == 16);
}

TEST_CASE("the configs of the layers, where outputs alone might not tell") {
  const auto mamba = [](const char* name) { return load_double(as_checkpoint(recipe(name).files)); };
  {
    const auto model = mamba("transformers mamba2, version 5");
    CHECK(std::isinf(layer<Mamba2Layer<double>>(model, 0).config().dt_max));
    CHECK(layer<Mamba2Layer<double>>(model, 0).config().dt_min == 0);
  }
  {
    const auto model = mamba("transformers mamba2, groups");
    CHECK(layer<Mamba2Layer<double>>(model, 0).config().norm_groups == 2);
    CHECK(layer<Mamba2Layer<double>>(model, 0).config().dt_min == 0.01);
    CHECK(layer<Mamba2Layer<double>>(model, 0).config().dt_max == 2);
  }
  {
    const auto model = mamba("fla rwkv7");
    CHECK(layer<RWKV7TimeMix<double>>(model, 0).config().first_layer);
    CHECK_FALSE(layer<RWKV7TimeMix<double>>(model, 2).config().first_layer);
    CHECK(layer<RWKV7TimeMix<double>>(model, 2).config().kk_eps == 0);
  }
  // With fused norms, fla adds 1e-6 under the root of kk's norm.
  const auto fused = load_double(as_checkpoint(with_key(recipe("fla rwkv7").files, "fuse_norm", true)));
  CHECK(layer<RWKV7TimeMix<double>>(fused, 2).config().kk_eps == 1e-6);
}

}  // namespace linrec::test::golden_layers_test
