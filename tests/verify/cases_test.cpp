// Case files that a user may come with: with little in them, with other things, and broken.
#include <functional>

#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tool.hpp"

using namespace linrec;
using namespace linrec::test;

namespace {

using Change = std::function<void(CaseFile&)>;

/// Runs the tool on a golden file with a change and on one without.
ToolRun run_changed(const std::string& name, const Change& change) {
  const TemporaryDirectory directory;
  CaseFile file(name);
  change(file);
  return run_tool(quoted(file.write(directory / "changed.safetensors")) + quoted(golden("gdn_T1")));
}

Change option(const std::string& key, const std::string& value) {
  return [=](CaseFile& file) { file.metadata[key] = value; };
}
Change without_option(const std::string& key) {
  return [=](CaseFile& file) { REQUIRE(file.metadata.erase(key) == 1); };
}
Change reshaped(const std::string& tensor, std::vector<Index> shape) {
  return [=](CaseFile& file) { file.tensors.at(tensor).shape = shape; };
}
Change without(const std::string& tensor) {
  return [=](CaseFile& file) { REQUIRE(file.tensors.erase(tensor) == 1); };
}

struct Expectation {
  std::string name;
  Change change;
  std::string reason;
};

/// The changed file gives one row with that result and reason, the other file runs, and the status is 1.
void check_refused(const std::string& result, const std::vector<Expectation>& expectations) {
  for (const auto& [name, change, reason] : expectations) {
    const ToolRun run = run_changed(name, change);
    CAPTURE(name, reason, run.output);
    CHECK(run.status == 1);
    CHECK(run.rows("ok", "gdn_T1").size() == 6);
    CHECK(run.lines().back() == (result == "unknown" ? "2 files: 6 ok, 0 FAIL, 1 unknown, 0 error"
                                                     : "2 files: 6 ok, 0 FAIL, 0 unknown, 1 error"));
    const auto rows = run.rows(result, "changed");
    REQUIRE(rows.size() == 1);
    CHECK_THAT(rows[0], contains("changed.safetensors': ") && contains(reason));
  }
}

}  // namespace

TEST_CASE("verify: what it does not know is unknown and no pass") {
  const Change new_input = [](CaseFile& file) { file.tensors["in.mask"] = file.tensors.at("in.v"); };
  check_refused(
      "unknown",
      {{"gla_T1", option("kernel", "mega"), "kernel 'mega'"},
       {"gla_T1", without_option("kernel"), "option 'kernel' is missing"},
       {"gla_T1", new_input, "in.mask: not an input of this kernel"},
       {"gla_T1", option("state", "S[B,H,V,K]"), "option 'state': expected 'S[B,H,K,V]', got 'S[B,H,V,K]'"},
       {"ssd_T1", option("scale", "0.5"), "option 'scale': expected 1, got '0.5'"},
       {"rwkv7_T130", option("scale", "0.5"), "option 'scale': expected 1, got '0.5'"},
       {"rwkv7_T130", option("mode", "eagle"), "option 'mode': 'eagle'"},
       {"post_fixed_N5", option("alpha_mode", "free"), "option 'alpha_mode': 'free'"},
       {"post_init_gla", option("kind", "retnet"), "option 'kind': 'retnet'"},
       {"post_learnable_N8", option("alpha_mode", "fixed"), "in.alpha_logits: not an input of this kernel"}});
}

TEST_CASE("verify: cases that contradict themselves") {
  const Change no_outputs = [](CaseFile& file) {
    for (const std::string& name : file.outputs()) file.tensors.erase(name);
  };
  const auto number = [](const std::string& tensor, double value) -> Change {
    return [=](CaseFile& file) { file.tensors.at(tensor).numbers[0] = value; };
  };
  check_refused(
      "error",
      {{"gla_tiny", without("in.k"), "has no tensor 'in.k'"},
       {"gla_tiny", without("in.q"), "has no tensor 'in.q'"},
       {"rwkv7_post_offset", option("mode", "dplr"), "has no tensor 'in.a'"},
       {"post_fixed_N5", option("alpha_mode", "learnable"), "has no tensor 'in.alpha_logits'"},
       {"gla_tiny", no_outputs, "there is no out.* tensor"},
       {"gla_tiny", reshaped("in.k", {2, 7, 5, 3}),
        "in.k: expected [B, T, H, K] = [2, 7, 3, 5], got [2, 7, 5, 3]"},
       {"gla_tiny", reshaped("in.k", {14, 3, 5}),
        "in.k: expected [B, T, H, K] = [2, 7, 3, 5], got [14, 3, 5]"},
       {"gla_tiny", reshaped("in.q", {14, 3, 5}), "in.q: expected 4 extents, got [14, 3, 5]"},
       {"gla_tiny", reshaped("in.initial_state", {2, 3, 9, 5}), "in.initial_state: expected"},
       {"gla_tiny", reshaped("out.o", {2, 7, 9, 3}), "out.o: expected [2, 7, 3, 9]"},
       {"gdn_tiny", reshaped("in.beta", {2, 3, 7}), "in.beta: expected [B, T, H] = [2, 7, 3], got [2, 3, 7]"},
       {"ssd_groups_T130", reshaped("in.B", {1, 65, 4, 5}), "in.B: expected [B, T, G, N] = [1, 130, 4, 5]"},
       {"ssd_T1", reshaped("in.A", {2, 1}), "in.A: expected [H] = [2], got [2, 1]"},
       {"ssd_raw_dt", reshaped("in.D", {4, 3}), "in.D: expected [H] = [3] or [H, P] = [3, 4], got [4, 3]"},
       {"post_fixed_N5", reshaped("out.scale", {5, 9}), "out.scale: expected [9, 5]"},
       {"post_init_gla", option("N", "9"), "out.target: expected [9]"},
       {"gla_tiny", option("T", "8"), "option 'T' is 8, but the tensors have 7"},
       {"gla_tiny", option("K", "9"), "option 'K' is 9, but the tensors have 5"},
       {"ssd_groups_T130", option("G", "4"), "option 'G' is 4, but the tensors have 2"},
       {"ssd_T1", option("has_D", "0"), "option 'has_D' is 0, but in.D is there"},
       {"ssd_noD_noh0_T64", option("has_D", "1"), "option 'has_D' is 1, but in.D is not there"},
       {"gla_tiny", without("in.initial_state"),
        "option 'has_initial_state' is 1, but in.initial_state is not there"},
       {"gla_post_offset", option("position_offset", "12x"),
        "option 'position_offset': expected an integer of at least 0, got '12x'"},
       {"gla_post_offset", option("position_offset", ""), "got ''"},
       {"gla_post_offset", option("position_offset", "1.5"), "got '1.5'"},
       {"gla_post_offset", option("position_offset", "-1"), "expected an integer of at least 0, got -1"},
       {"gla_post_offset", option("position_offset", "99999999999999999999"), "got '99999999999999999999'"},
       {"gla_tiny", option("scale", "half"), "option 'scale': expected a number, got 'half'"},
       {"gla_tiny", option("scale", "nan"), "option 'scale': expected a number, got 'nan'"},
       {"gla_tiny", option("scale", "0"), "option 'scale': expected a number other than 0"},
       {"gdn_tiny", option("qk_l2norm", "True"), "option 'qk_l2norm': expected 0 or 1, got 'True'"},
       {"rwkv7_post_offset", without_option("train_length"), "option 'train_length' is missing"},
       {"gla_tiny", number("in.gk", 0.5), "expected a log-decay of at most 0, got 0.5"},
       {"gla_post_offset", number("in.alpha", 2), "alpha[0]: expected a number in [0, 1], got 2"},
       {"ssd_T1", number("in.A", 1), "in.A[0]: expected a finite number of at most 0, got 1"}});
}

TEST_CASE("verify: layers with something that it does not know") {
  check_refused(
      "unknown",
      {{"layer_gla_post", option("alpha_mode", "fixed"), "option 'alpha_mode': 'fixed'"},
       {"layer_gla", option("feature_map", "relu"), "option 'feature_map': expected 'identity'"},
       {"layer_retnet", option("rotary", "interleaved"), "option 'rotary': expected 'half-split, "},
       {"layer_rwkv7_channel_mix", option("activation", "gelu"),
        "option 'activation': expected 'relu squared', got 'gelu'"},
       {"koopman_mlp", option("residual", "none"), "option 'residual': expected 'included', got 'none'"},
       {"layer_rwkv7_time_mix", option("layer_id", "0"), "in.v_first: not an input of this kernel"}});
}

TEST_CASE("verify: layers whose weights are not what they should be") {
  const Change extra = [](CaseFile& file) { file.tensors["A_log"] = file.tensors.at("A_log_delta"); };
  const Change two = [](CaseFile& file) {
    file.tensors.erase("q_proj.weight");
    file.tensors.at("o_proj.weight").shape = {16, 64};
  };
  check_refused(
      "error",
      {{"layer_mamba2", without("out_proj.weight"),
        "the tensors are not those of the model: missing: 'out_proj.weight' [32, 64]"},
       {"layer_mamba2_post", without("A_log_deltas"), "missing: 'A_log_deltas' [3]"},
       {"layer_gla", without("gk_proj.0.weight"), "missing: 'gk_proj.0.weight'"},
       {"layer_rwkv7_time_mix", without("v1"), "missing: 'v1'"},
       {"layer_rwkv7_channel_mix", without("value.weight"), "missing: 'value.weight' [32, 64]"},
       {"layer_gdn", reshaped("a_proj.weight", {32, 2}),
        "wrong shape: 'a_proj.weight': expected [2, 32], got [32, 2] (transposed)"},
       {"layer_gdn_post", extra, "unexpected: 'A_log' [1]"},
       {"layer_retnet", two,
        "missing: 'q_proj.weight' [32, 32]; wrong shape: 'o_proj.weight': expected [32, 32], got [16, 64]"},
       {"layer_mamba2", option("nheads", "5"), "wrong shape: 'in_proj.weight': expected [181, 32]"},
       {"layer_mamba2", option("ngroups", "3"), "wrong shape: 'in_proj.weight': expected [180, 32]"},
       {"layer_gla", option("num_heads", "3"), "wrong shape: 'q_proj.weight': expected [12, 32]"}});
}

TEST_CASE("verify: layers that contradict themselves") {
  check_refused(
      "error",
      {{"layer_gla", without_option("cache_mid_after"), "option 'cache_mid_after' is missing"},
       {"layer_gla", option("cache_mid_after", "14"), "expected at most T = 13, got 14"},
       {"layer_gla", without_option("num_heads"), "option 'num_heads' is missing"},
       {"layer_gla", option("alpha_mode", "analytical"), "is analytical, but A_log_base is not there"},
       {"layer_gla_post", option("alpha_mode", "learnable"), "is learnable, but alpha_logits is not there"},
       {"layer_gla_post_learnable", option("alpha_mode", "analytical"),
        "is analytical, but alpha_logits is there"},
       {"layer_mamba2_post", without_option("train_length"), "option 'train_length' is missing"},
       {"layer_mamba2_post", option("train_length", "1"), "expected a finite number > 1, got 1"},
       {"layer_mamba2", option("d_model", "64"), "option 'd_model' is 64, but the tensors have 32"},
       {"layer_mamba2", option("nheads", "99999999999"), "option 'nheads': expected at most 16777216"},
       {"layer_mamba2", reshaped("in.x", {26, 32}), "in.x: expected 3 extents, got [26, 32]"},
       {"layer_mamba2_groups", option("norm_group_size", "24"), "divides nheads headdim = 64, got 24"},
       {"layer_mamba2_groups", option("dt_limit", "0.01"), "expected two numbers, (a, b), got '0.01'"},
       {"layer_mamba2_groups", option("dt_limit", "(0.01, x)"), "expected two numbers, (a, b), got 'x'"},
       {"layer_rwkv7_time_mix", without("in.v_first"), "has no tensor 'in.v_first'"},
       {"layer_rwkv7_time_mix", without_option("layer_id"), "option 'layer_id' is missing"},
       {"layer_rwkv7_time_mix", option("head_size", "5"), "divides d_model = 32, got 5"},
       {"layer_rwkv7_time_mix", option("head_size", "0"), "divides d_model = 32, got 0"},
       {"koopman_mlp", option("gated", "1"), "option 'gated' is 1, but gate.weight is not there"},
       {"koopman_mlp_gated", option("gated", "0"), "option 'gated' is 0, but gate.weight is there"},
       {"koopman_mlp", option("d_k", "32"), "option 'd_k' is 32, but the tensors have 64"},
       {"koopman_mlp", reshaped("omega", {2, 16}), "wrong shape: 'omega': expected [32], got [2, 16]"},
       {"layer_gdn", reshaped("out.cache.conv_state_q", {2, 4, 16}),
        "out.cache.conv_state_q: expected [2, 16, 4]"},
       {"layer_gdn", reshaped("cache_mid.recurrent_state", {2, 2, 16, 8}),
        "cache_mid.recurrent_state: expected [2, 2, 8, 16]"}});
}

TEST_CASE("verify: files that cannot be read") {
  const TemporaryDirectory directory;
  const Bytes whole = file_contents(golden("gla_tiny"));
  write_file(directory / "cut.safetensors", std::span(whole).first(whole.size() - 1));
  write_file(directory / "empty.safetensors", Bytes());
  const ToolRun run =
      run_tool(quoted(golden("gla_T1")) + quoted(directory / "cut.safetensors") +
               quoted(directory / "empty.safetensors") + quoted(directory / "none.safetensors") +
               quoted(directory.path()) + quoted(golden("gdn_T1")));
  CAPTURE(run.output);
  CHECK(run.status == 1);
  CHECK(run.rows("ok", "gla_T1").size() == 6);
  CHECK(run.rows("ok", "gdn_T1").size() == 6);
  for (const char* name : {"cut", "empty", "none"}) {
    const auto rows = run.rows("error", name);
    REQUIRE(rows.size() == 1);
    CHECK_THAT(rows[0], contains("file '" + (directory / name).string() + ".safetensors': "));
  }
  CHECK(run.lines().back() == "6 files: 12 ok, 0 FAIL, 0 unknown, 4 error");
}

TEST_CASE("verify: a text from a file does not reach the terminal as it is") {
  const ToolRun run = run_changed("gla_T1", option("kernel", "x\x1b[31m\n" + std::string(5000, 'y')));
  CHECK(run.has("kernel 'x?[31m?yyy"));
  CHECK_FALSE(run.has(std::string(1000, 'y')));
}

TEST_CASE("verify: a case needs no more than the kernel, its inputs and one output") {
  const TemporaryDirectory directory;
  CaseFile file("gla_tiny");
  file.metadata = {{"kernel", "gla"}};
  file.tensors.erase("out.final_state");
  const ToolRun run = run_tool(quoted(file.write(directory / "mine.safetensors")));
  CAPTURE(run.output);
  CHECK(run.status == 0);
  CHECK(run.count("ok") == 6);
}

TEST_CASE("verify: gated delta rule with more value heads than key heads") {
  const TemporaryDirectory directory;
  CaseFile file("gdn_long_T700");  // one head, which two value heads share here
  for (const char* name : {"in.v", "in.g", "in.beta", "in.initial_state", "out.o", "out.final_state"}) {
    auto& [type, shape, numbers] = file.tensors.at(name);
    const bool is_state = shape[1] == 1;
    const Index width = is_state ? shape[2] * shape[3] : shape.size() == 4 ? shape[3] : 1;
    std::vector<double> doubled;
    for (auto head = numbers.begin(); head != numbers.end(); head += width)
      for (int copy = 0; copy < 2; ++copy) doubled.insert(doubled.end(), head, head + width);
    numbers = doubled;
    shape[is_state ? 1 : 2] = 2;
  }
  file.metadata["HV"] = "2";
  CHECK(run_tool(quoted(file.write(directory / "a.safetensors"))).status == 0);
  file.metadata["H"] = "2";
  CHECK(run_tool(quoted(file.write(directory / "b.safetensors")))
            .has("option 'H' is 2, but the tensors have 1"));
  file.metadata.erase("HV");
  CHECK(run_tool(quoted(file.write(directory / "c.safetensors"))).status == 0);
  file.tensors.at("out.o").numbers.back() += 1;
  CHECK(run_tool(quoted(file.write(directory / "d.safetensors"))).count("FAIL") == 6);
}

TEST_CASE("verify: empty sequences and empty batches") {
  const TemporaryDirectory directory;
  CaseFile file("gla_tiny");
  file.metadata = {{"kernel", "gla"}};
  for (auto& [name, tensor] : file.tensors) {
    if (tensor.shape.size() != 4 || tensor.shape[1] != 7) continue;
    tensor.shape[1] = 0;
    tensor.numbers.clear();
  }
  file.tensors.at("out.final_state").numbers = file.tensors.at("in.initial_state").numbers;
  CHECK(run_tool(quoted(file.write(directory / "no_tokens.safetensors"))).count("ok") == 6);
  for (auto& [name, tensor] : file.tensors) {
    tensor.shape[0] = 0;
    tensor.numbers.clear();
  }
  CHECK(run_tool(quoted(file.write(directory / "no_batch.safetensors"))).count("ok") == 6);
}
