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
    for (const char* prefix : {"ssd_", "ret_", "gla_", "gdn_", "rwkv7_", "post_"})
      if (name.starts_with(prefix)) names.push_back(name);
  }
  return names;
}

bool has_tokens(const std::string& name) { return !name.starts_with("post_"); }

/// Rows of a case: by three ways, or by the one, in one scalar.
std::size_t rows_of(const std::string& name) { return has_tokens(name) ? 3 : 1; }

// One file of each kernel and mode, with all the outputs that there are.
const std::vector<std::string> representatives{"ssd_post_offset",   "ret_tiny",        "gla_tiny",
                                               "gdn_tiny",          "rwkv7_dplr_T100", "rwkv7_post_offset",
                                               "post_learnable_N8", "post_rwkv7_N16",  "post_init_mamba2"};

}  // namespace

TEST_CASE("verify: all golden files pass, every way, every output") {
  const std::vector<std::string> names = forward_cases();
  REQUIRE(names.size() == 57);
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
  CHECK(run.lines().back() == "57 files: " + std::to_string(rows) + " ok, 0 FAIL, 0 unknown, 0 error");
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto rows_of_case = run.rows("ok", name);
    CHECK(rows_of_case.size() == 2 * rows_of(name));
    for (const std::string& row : rows_of_case)
      for (const std::string& output : CaseFile(name).outputs())
        CHECK_THAT(row, contains("  " + output.substr(4) + " "));
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
      CHECK(run.has("  " + output.substr(4) + " 1.0e-06 > 1.0e-11"));
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
