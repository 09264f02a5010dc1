// linrec-verify on the golden files, and on golden files with a number changed.
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tool.hpp"

using namespace linrec::test;

namespace {

std::vector<std::string> forward_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden("").parent_path())) {
    const std::string name = entry.path().stem().string();
    for (const char* prefix :
         {"ssd_", "ret_", "gla_", "gdn_", "rwkv7_", "post_", "layer_", "koopman_", "ska_"})
      if (name.starts_with(prefix)) names.push_back(name);
  }
  return names;
}

bool has_tokens(const std::string& name) {
  return !name.starts_with("post_") && !name.starts_with("ska_specnorm");
}

/// Rows of a case: by three ways, or by the one, in one scalar.
std::size_t rows_of(const std::string& name) { return has_tokens(name) ? 3 : 1; }

// One file of each kernel and mode, with all the outputs that there are.
const std::vector<std::string> representatives{"ssd_post_offset",
                                               "ret_tiny",
                                               "gla_tiny",
                                               "gdn_tiny",
                                               "rwkv7_dplr_T100",
                                               "rwkv7_post_offset",
                                               "post_learnable_N8",
                                               "post_rwkv7_N16",
                                               "post_init_mamba2",
                                               "layer_mamba2_post",
                                               "layer_gdn_post",
                                               "layer_gla_mqa_conv",
                                               "layer_retnet",
                                               "layer_rwkv7_time_mix_first",
                                               "layer_rwkv7_post_fla",
                                               "layer_rwkv7_channel_mix",
                                               "koopman_mlp_gated",
                                               "ska_prefix_base",
                                               "ska_stream_base",
                                               "ska_chunk_released",
                                               "ska_specnorm",
                                               "layer_ska_streaming",
                                               "layer_ska_released_chunk"};

}  // namespace

TEST_CASE("verify: all golden files pass, every way, every output") {
  const std::vector<std::string> names = forward_cases();
  REQUIRE(names.size() == 108);
  std::string arguments;
  std::size_t rows = 0;
  for (const std::string& name : names) {
    arguments += quoted(golden(name));
    rows += 2 * rows_of(name);
  }
  const ToolRun run = run_tool(arguments);
  CAPTURE(run.output);
  CHECK(run.status == 0);
  CHECK(run.count("ok") == rows);
  CHECK(run.lines().back() == "108 files: " + std::to_string(rows) + " ok, 0 FAIL, 0 unknown, 0 error");
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto rows_of_case = run.rows("ok", name);
    CHECK(rows_of_case.size() == 2 * rows_of(name));
    for (const std::string& row : rows_of_case)
      for (const std::string& output : CaseFile(name).outputs())
        CHECK_THAT(row, contains("  " + CaseFile::shown(output) + " "));
  }
}

TEST_CASE("verify: a wrong number in any output fails in every way") {
  const TemporaryDirectory directory;
  for (const std::string& name : representatives)
    for (const std::string& output : CaseFile(name).outputs()) {
      CaseFile changed(name);
      changed.disturb(output, 1e-6);
      const ToolRun run = run_tool("--scalar double" + quoted(changed.write(directory / "case.safetensors")));
      CAPTURE(name, output, run.output);
      CHECK(run.status == 1);
      CHECK(run.count("FAIL") == rows_of(name));
      CHECK(run.count("ok") == 0);
      CHECK(run.has("  " + CaseFile::shown(output) + " 1.0e-06 > 1.0e-11"));
    }
}

TEST_CASE("verify: the bar in double is 1e-11") {
  const TemporaryDirectory directory;
  for (const double part : {5e-12, 2e-11}) {
    CaseFile changed("gla_tiny");
    changed.disturb("out.o", part);
    CHECK(run_tool("--scalar double" + quoted(changed.write(directory / "case.safetensors"))).status ==
          (part > 1e-11));
  }
}

TEST_CASE("verify: the bar in float follows the file") {
  const TemporaryDirectory directory;
  const auto run_with = [&](const char* f32, double part) {
    CaseFile changed("gla_tiny");
    changed.disturb("out.o", part);
    changed.metadata.erase("f32.o");
    if (f32 != nullptr) changed.metadata["f32.o"] = f32;
    return run_tool("--scalar float" + quoted(changed.write(directory / "case.safetensors")));
  };
  CHECK(run_with("1e-6", 0).has("<= 4.0e-06"));
  CHECK(run_with("0.0e+00", 0).has("<= 2.4e-07"));  // 4 * 2^-24
  CHECK(run_with(nullptr, 0).has("<= 2.0e-06"));
  CHECK(run_with("1e-6", 3e-6).status == 0);
  CHECK(run_with("1e-6", 5e-6).status == 1);
  CHECK(run_with("0", 1e-6).count("FAIL") == 3);
  CHECK(run_with(nullptr, 1e-6).count("ok") == 3);
  CHECK(run_with(nullptr, 3e-6).count("FAIL") == 3);
  CHECK(run_with("lots", 0).has("option 'f32.o': expected a number, got 'lots'"));
  CHECK(run_with("-1", 0).has("option 'f32.o': expected a finite number of at least 0, got -1"));
}

TEST_CASE("verify: positions count from the offset") {
  const TemporaryDirectory directory;
  for (const char* name : {"ssd_post_offset", "gla_post_offset", "gdn_post_offset", "rwkv7_post_offset",
                           "post_fixed_N5", "post_rwkv7_N16"}) {
    CaseFile changed(name);
    changed.metadata.at("position_offset") =
        std::to_string(std::stoi(changed.metadata.at("position_offset")) + 1);
    const ToolRun run = run_tool(quoted(changed.write(directory / "case.safetensors")));
    CAPTURE(name, run.output);
    CHECK(run.status == 1);
    CHECK(run.count("FAIL") == 2 * rows_of(name));
  }
}

TEST_CASE("verify: layers count from an offset too") {
  for (const char* name : {"layer_gla_post", "layer_retnet"}) {
    const TemporaryDirectory directory;
    CaseFile changed(name);
    changed.metadata["position_offset"] = "1";
    const ToolRun run = run_tool(quoted(changed.write(directory / "case.safetensors")));
    CAPTURE(name, run.output);
    CHECK(run.count("FAIL") == 6);
  }
}

TEST_CASE("verify: a wrong weight of a layer fails in every way") {
  const std::pair<const char*, const char*> weights[] = {
      {"layer_mamba2", "conv1d.bias"},           {"layer_mamba2_groups", "norm.weight"},
      {"layer_gdn_post", "A_log_base"},          {"layer_gla_post_learnable", "alpha_logits"},
      {"layer_retnet", "g_proj.weight"},         {"layer_rwkv7_time_mix", "v0"},
      {"layer_rwkv7_post_fla", "w0_delta"},      {"layer_rwkv7_channel_mix", "x_k"},
      {"layer_gla_mqa_conv", "k_conv1d.weight"}, {"koopman_mlp", "omega"},
      {"koopman_mlp_gated", "gate.weight"},      {"koopman_mlp_nosn", "norm.bias"},
      {"layer_ska_streaming", "ska.eta"},        {"layer_ska_released_chunk", "ska.query_proj.weight"}};
  const TemporaryDirectory directory;
  for (const auto& [name, weight] : weights) {
    CaseFile changed(name);
    changed.disturb(weight, 1e-2);
    const ToolRun run = run_tool(quoted(changed.write(directory / "case.safetensors")));
    CAPTURE(name, weight, run.output);
    CHECK(run.status == 1);
    CHECK(run.count("FAIL") == 6);
  }
}

TEST_CASE("verify: caches half way are those after cache_mid_after tokens") {
  const TemporaryDirectory directory;
  CaseFile changed("layer_gdn");
  changed.metadata.at("cache_mid_after") = "7";
  const ToolRun run = run_tool(quoted(changed.write(directory / "case.safetensors")));
  CHECK(run.count("FAIL") == 6);
  for (const std::string& row : run.rows("FAIL")) {
    for (const char* cache : {"recurrent_state", "conv_state_q", "conv_state_k", "conv_state_v"})
      CHECK(row.find(std::string("cache_mid.") + cache + " 0") == row.npos);
    CHECK(row.find("  y ") > row.find(" <= "));
  }
  changed.metadata.erase("cache_mid_after");
  for (const std::string& name : changed.outputs())
    if (name.starts_with("cache_mid.")) changed.tensors.erase(name);
  CHECK(run_tool(quoted(changed.write(directory / "none.safetensors"))).count("ok") == 6);
}

TEST_CASE("verify: the bar of a cache in float, half way and at the end") {
  const TemporaryDirectory directory;
  CaseFile changed("layer_rwkv7_time_mix");
  changed.metadata["f32.cache.wkv_state"] = "3e-7";
  const ToolRun run = run_tool("--scalar float" + quoted(changed.write(directory / "case.safetensors")));
  REQUIRE(run.count("ok") == 3);
  for (const std::string& row : run.rows("ok")) {
    CHECK_THAT(row, contains("  cache.x_prev 0.0e+00 <= 2.4e-07"));  // 4 * 2^-24, for the file says 0
    CHECK_THAT(row, contains("  cache_mid.x_prev 0.0e+00 <= 2.4e-07"));
    CHECK(row.find("<= 1.2e-06") != row.rfind("<= 1.2e-06"));
  }
}

TEST_CASE("verify: the first RWKV-7 layer gives v_first") {
  const TemporaryDirectory directory;
  CaseFile changed("layer_rwkv7_time_mix_first");
  changed.tensors["out.v_first"] = changed.tensors.at("out.y");  // not right, but compared
  const ToolRun run = run_tool(quoted(changed.write(directory / "first.safetensors")));
  CHECK(run.count("FAIL") == 6);
  CHECK_FALSE(run.has("is nothing that"));
  CaseFile other("layer_rwkv7_time_mix");
  other.tensors["out.v_first"] = other.tensors.at("out.y");
  CHECK(run_tool(quoted(other.write(directory / "other.safetensors"))).has("v_first is nothing that"));
}

TEST_CASE("verify: the bias of dt is checked though it is an option") {
  const TemporaryDirectory directory;
  CaseFile changed("post_init_gdn");
  changed.metadata.at("dt_bias") = "-2.97062";
  const ToolRun run = run_tool("--scalar double" + quoted(changed.write(directory / "case.safetensors")));
  CHECK(run.status == 1);
  CHECK(run.has("  dt_bias 2.7e-06 > 1.0e-11"));
}

TEST_CASE("verify: an output that the kernel does not compute fails") {
  const TemporaryDirectory directory;
  for (const char* name : {"gla_tiny", "post_fixed_N5"}) {
    CaseFile changed(name);
    changed.tensors["out.logw"] = changed.tensors.at(has_tokens(name) ? "out.o" : "out.scale");
    const ToolRun run = run_tool(quoted(changed.write(directory / "case.safetensors")));
    CAPTURE(name, run.output);
    CHECK(run.status == 1);
    CHECK(run.count("FAIL") == 2 * rows_of(name));
    CHECK(run.has("logw is nothing that this kernel computes"));
  }
}

TEST_CASE("verify: NaN is not right unless it is the right answer") {
  const TemporaryDirectory directory;
  CaseFile changed("gla_tiny");
  changed.tensors.at("out.o").numbers[5] = std::nan("");
  CHECK(run_tool(quoted(changed.write(directory / "right.safetensors"))).count("FAIL") == 6);
  CaseFile with_input("gla_tiny");
  with_input.tensors.at("in.v").numbers[5] = std::nan("");
  const ToolRun run = run_tool(quoted(with_input.write(directory / "input.safetensors")));
  CHECK(run.count("FAIL") == 6);
  CHECK(run.has("o inf > 1.0e-11"));
}
