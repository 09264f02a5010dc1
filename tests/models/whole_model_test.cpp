// Whole models against plain loops in double.
#include "tests/catch.hpp"
#include "tests/models/branches.hpp"
#include "tests/models/loaded.hpp"

namespace linrec::test::whole_model_test {

namespace {

std::vector<double> as_vector(const LanguageModel<double>::Logits& logits) {
  return {logits.data(), logits.data() + logits.size()};
}

/// out = W_down (silu(W_gate x) (W_up x))
Row gated_mlp(const Files& files, const KnownMLP& mlp, const Row& x) {
  const Files::Numbers& down = files[mlp.down];
  const Index hidden = down.shape[1];
  const bool packed = mlp.gate == mlp.up;
  const Row gate = product(files[mlp.gate], x, hidden, packed && mlp.up_first ? hidden : 0);
  Row up = product(files[mlp.up], x, hidden, packed && !mlp.up_first ? hidden : 0);
  for (std::size_t i = 0; i < up.size(); ++i) up[i] *= silu(gate[i]);
  return product(down, up, down.shape[0]);
}

/// The logits of one sequence: embedding, norms, residuals, MLPs and head from the files by plain loops, and
/// the mixers, which golden layers prove, from the model.
std::vector<double> expected_logits(const Recipe& recipe, const LanguageModel<double>& model,
                                    const std::vector<TokenId>& tokens) {
  const Files& files = recipe.files;
  const Skeleton& parts = recipe.skeleton;
  const Index width = model.width();
  const auto norm = [&](const std::string& name, const Row& x) {
    return normalised(files, name, parts.layer_norm, parts.norm_eps, x);
  };
  std::vector<Row> x;
  for (const TokenId token : tokens) {
    x.push_back(row_of(files[parts.embedding], token, width));
    if (!parts.embedding_norm.empty()) x.back() = norm(parts.embedding_norm, x.back());
  }
  std::vector<double> v_first;
  for (std::size_t i = 0; i < parts.branch_norm.size(); ++i) {
    std::vector<double> in, out;
    const KnownMLP* mlp = nullptr;
    for (const KnownMLP& known : recipe.mlps)
      if (known.branch == i) mlp = &known;
    for (const Row& row : x) {
      const Row normed = norm(parts.branch_norm[i], row);
      in.insert(in.end(), normed.begin(), normed.end());
      if (mlp == nullptr) continue;
      const Row y = gated_mlp(files, *mlp, normed);
      out.insert(out.end(), y.begin(), y.end());
    }
    if (mlp == nullptr) {
      std::vector<double> unused;
      const Branch<double>& branch = *model.blocks()[i].branch;
      out = run_branch(branch, 1, in, branch.value_width() > 0 ? v_first : unused);
    }
    for (std::size_t t = 0; t < x.size(); ++t)
      for (std::size_t c = 0; c < x[t].size(); ++c) x[t][c] += out[t * x[t].size() + c];
  }
  std::vector<double> logits;
  for (const Row& row : x) {
    const Row y = product(files[parts.head], norm(parts.final_norm, row), model.vocabulary());
    logits.insert(logits.end(), y.begin(), y.end());
  }
  return logits;
}

}  // namespace

TEST_CASE("embedding, norms, residuals, MLPs and head of every model") {
  for (const Recipe& recipe : all_recipes()) {
    INFO(recipe.name);
    const LanguageModel<double> model = load_double(as_checkpoint(recipe.files));
    CHECK(model.width() == 32);
    CHECK(model.vocabulary() == recipe.files[recipe.skeleton.embedding].shape[0]);
    const auto tokens = random_tokens(20, model.vocabulary());
    auto state = model.initial_state();
    const auto logits = as_vector(model.prefill(tokens, state));
    CHECK(relative_error(logits, expected_logits(recipe, model, tokens)) < 1e-12);
  }
}

// The recipes all have 1e-5, or its equivalent, because their golden layers do.
TEST_CASE("which norms a config's eps is for") {
  const auto check = [](const char* name, const char* key, double eps_of_blocks) {
    INFO(name);
    Recipe other = recipe(name);
    if (const auto at = other.files.config.find("Infinity"); at != std::string::npos)
      other.files.config.replace(at, 8, "1e300");
    other.files = with_key(other.files, key, 1e-3);
    other.skeleton.norm_eps = eps_of_blocks;
    const LanguageModel<double> model = load_double(as_checkpoint(other.files));
    const auto tokens = random_tokens(20, model.vocabulary());
    auto state = model.initial_state();
    const auto logits = as_vector(model.prefill(tokens, state));
    CHECK(relative_error(logits, expected_logits(other, model, tokens)) < 1e-12);
    // The mixers have it, too.
    const LanguageModel<double> usual = load_double(as_checkpoint(recipe(name).files));
    auto usual_state = usual.initial_state();
    CHECK(as_vector(usual.prefill(tokens, usual_state)) != logits);
  };
  for (const char* name : {"fla gla", "fla retnet", "fla gated_deltanet", "fla rwkv7", "post rwkv7"})
    check(name, "norm_eps", 1e-3);
  check("transformers mamba2", "layer_norm_epsilon", 1e-3);
  // PoST does not pass it on to the norms of its blocks.
  check("post mamba2", "norm_eps", 1e-5);
  check("post gated_deltanet", "norm_eps", 1e-5);
}

// Nothing of linrec but the loader: GLA as in the paper, one step of the recurrence a token.
TEST_CASE("a model of two GLA and two MLP blocks is what plain loops compute") {
  const Recipe& gla = recipe("fla gla");
  const Files& files = gla.files;
  const LanguageModel<double> model = load_double(as_checkpoint(files));
  const Index width = 32, heads = 4, key = 4, value = 8;
  const auto tokens = random_tokens(30, model.vocabulary(), 7);
  const auto norm = [&](const std::string& name, const Row& x) {
    return normalised(files, name, false, 1e-5, x);
  };
  std::vector<std::vector<double>> states(2, std::vector<double>(heads * key * value, 0.0));
  std::vector<double> expected;
  for (const TokenId token : tokens) {
    Row x = row_of(files["model.embeddings.weight"], token, width);
    for (std::size_t block = 0; block < 2; ++block) {
      const std::string prefix = "model.layers." + std::to_string(block) + ".", attn = prefix + "attn.";
      const Row in = norm(prefix + "attn_norm", x);
      const Row q = product(files[attn + "q_proj.weight"], in, heads * key),
                k = product(files[attn + "k_proj.weight"], in, heads * key),
                v = product(files[attn + "v_proj.weight"], in, heads * value),
                g = product(files[attn + "g_proj.weight"], in, heads * value);
      Row gate = product(files[attn + "gk_proj.1.weight"], product(files[attn + "gk_proj.0.weight"], in, 16),
                         heads * key);
      for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] += static_cast<double>(files[attn + "gk_proj.1.bias"].values[i]);
      Row out;
      for (Index h = 0; h < heads; ++h) {
        Row o(value, 0.0);
        double square = 0;
        for (Index j = 0; j < value; ++j) {
          for (Index i = 0; i < key; ++i) {
            const auto at = static_cast<std::size_t>(h * key + i),
                       to = static_cast<std::size_t>(h * value + j);
            const double decay = std::pow(1 / (1 + std::exp(-gate[at])), 1.0 / 16);
            double& s = states[block][at * value + static_cast<std::size_t>(j)];
            s = decay * s + k[at] * v[to];
            o[static_cast<std::size_t>(j)] += s * q[at] / std::sqrt(key);
          }
          square += o[static_cast<std::size_t>(j)] * o[static_cast<std::size_t>(j)] / value;
        }
        for (std::size_t j = 0; j < o.size(); ++j)
          out.push_back(o[j] / std::sqrt(square + 1e-5) *
                        static_cast<double>(files[attn + "g_norm_swish_gate.weight"].values[j]) *
                        silu(g[static_cast<std::size_t>(h * value) + j]));
      }
      const Row y = product(files[attn + "o_proj.weight"], out, width);
      for (std::size_t c = 0; c < x.size(); ++c) x[c] += y[c];
      const Row z = gated_mlp(files, gla.mlps[block], norm(prefix + "mlp_norm", x));
      for (std::size_t c = 0; c < x.size(); ++c) x[c] += z[c];
    }
    const Row logits = product(files["lm_head.weight"], norm("model.norm", x), model.vocabulary());
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  auto state = model.initial_state();
  CHECK(relative_error(as_vector(model.prefill(tokens, state)), expected) < 1e-12);
}

TEST_CASE("a float model computes what the double model does") {
  for (const Recipe& recipe : all_recipes()) {
    INFO(recipe.name);
    const io::Checkpoint checkpoint = as_checkpoint(recipe.files);
    const auto model = load_double(checkpoint);
    const auto single = load_float(checkpoint);
    const auto tokens = random_tokens(100, model.vocabulary());
    auto state = model.initial_state();
    auto single_state = single.initial_state();
    const auto right = as_vector(model.prefill(tokens, state));
    const auto logits = single.prefill(tokens, single_state);
    CHECK(relative_error({logits.data(), logits.data() + logits.size()}, right) < 2e-5);
  }
}

TEST_CASE("the same model in the names of two projects gives the same bits") {
  const auto logits = [](const Files& files) {
    const auto model = load_double(as_checkpoint(files));
    auto state = model.initial_state();
    return as_vector(model.prefill(random_tokens(40, 24), state));
  };
  const auto renamed = [](const Files& files, const std::vector<std::pair<std::string, std::string>>& names) {
    Files result{{}, files.config};
    for (const auto& [name, numbers] : files.tensors) {
      std::string theirs = name;
      for (const auto& [from, to] : names)
        if (const auto at = theirs.find(from); at != theirs.npos) theirs.replace(at, from.size(), to);
      result.tensors[theirs] = numbers;
    }
    return result;
  };
  SECTION("state-spaces and transformers") {
    Files ours =
        renamed(recipe("state-spaces mamba2").files, {{"backbone.embedding.", "backbone.embeddings."}});
    ours.config = with_key(recipe("transformers mamba2, groups").files, "n_groups", 1).config;
    ours = with_key(ours, "time_step_limit", nullptr);
    CHECK(logits(ours) == logits(recipe("state-spaces mamba2").files));
    // Files that were saved before the rename of the embedding.
    Files old = recipe("state-spaces mamba2").files;
    old.config = ours.config;
    CHECK(logits(old) == logits(ours));
  }
  SECTION("fla's packed and separate mu") {
    CHECK(logits(recipe("fla rwkv7, x_x").files) == logits(recipe("fla rwkv7").files));
  }
  SECTION("PoST's and fla's Gated DeltaNet, with MLPs that give zero") {
    Files theirs = recipe("post gated_deltanet").files;
    Files ours = renamed(theirs, {{"norm_f", "model.norm"},
                                  {"layers.", "model.layers."},
                                  {"mixer.", "attn."},
                                  {"0.norm.", "0.attn_norm."},
                                  {"1.norm.", "1.attn_norm."},
                                  {"embedding.", "model.embeddings."}});
    for (const std::string block : {"model.layers.0.", "model.layers.1."}) {
      ours.tensors[block + "mlp_norm.weight"] = {{32}, std::vector<float>(32, 1)};
      for (const char* name : {"gate", "up", "down"})
        ours.tensors[block + "mlp." + name + "_proj.weight"] = {{32, 32}, std::vector<float>(32 * 32, 0)};
    }
    ours.config =
        R"({"model_type":"gated_deltanet","hidden_size":32,"num_heads":4,"head_dim":8,"expand_v":1.5,
        "conv_size":3,"num_hidden_layers":2,"vocab_size":24,"norm_eps":1e-5,"intermediate_size":32,
        "train_length":128,"tie_word_embeddings":true})";
    CHECK(logits(ours) == logits(theirs));
    // use_post: false has A_log in the place of the two.
    for (int i = 0; i < 2; ++i) {
      const std::string mixer = "layers." + std::to_string(i) + ".mixer.";
      theirs.tensors.erase(mixer + "A_log_base");
      theirs.tensors.erase(mixer + "A_log_delta");
      theirs.tensors[mixer + "A_log"] = {{4}, {-1, -0.5F, 0, 0.5F}};
    }
    CHECK(logits(theirs) != logits(ours));
  }
}

}  // namespace linrec::test::whole_model_test
