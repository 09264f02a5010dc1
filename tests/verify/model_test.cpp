// linrec-verify --model: a model small enough to know its answers, and the trained one where it is at hand.
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tool.hpp"

using namespace linrec;
using namespace linrec::test;

namespace {

constexpr Index vocabulary = 5, width = 4, layers = 2, heads = 2, head_size = 2, hidden = 6, rank = 3;

double head_weight(Index token, Index channel) {
  return 0.5 * static_cast<double>(token) - 0.25 * static_cast<double>(channel);
}

/// RWKV-7 with zeros for weights: all norms give their biases, so that every token has the same logits, and
/// so do the states.
CaseFile tiny_model() {
  CaseFile file;
  const auto add = [&](const std::string& name, std::vector<Index> shape, double number = 0) {
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    file.tensors[name] = {io::DataType::F32, std::move(shape),
                          std::vector<double>(static_cast<std::size_t>(size), number)};
  };
  const auto add_norm = [&](const std::string& name, double bias) {
    add(name + ".weight", {width}), add(name + ".bias", {width}, bias);
  };
  add("emb.weight", {vocabulary, width});
  add_norm("blocks.0.ln0", 0);
  for (Index i = 0; i < layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    add_norm(block + "ln1", 0.5), add_norm(block + "ln2", -0.25 * static_cast<double>(i + 1));
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "k_k", "k_a", "w0", "a0"})
      add(block + "att." + name, {1, 1, width});
    for (const std::string letter : {"w", "a", "g", "v"})
      add(block + "att." + letter + "1", {width, rank}), add(block + "att." + letter + "2", {rank, width});
    add(block + "att.v0", {width});
    add(block + "att.r_k", {heads, head_size});
    for (const char* name : {"receptance", "key", "value", "output"})
      add(block + "att." + name + ".weight", {width, width});
    add_norm(block + "att.ln_x", 0);
    add(block + "ffn.x_k", {width});
    add(block + "ffn.key.weight", {hidden, width}), add(block + "ffn.value.weight", {width, hidden});
  }
  add_norm("ln_out", 1);
  add("head.weight", {vocabulary, width});
  for (Index i = 0; i < vocabulary * width; ++i)
    file.tensors.at("head.weight").numbers[static_cast<std::size_t>(i)] = head_weight(i / width, i % width);
  return file;
}

/// What it gives for two texts.
CaseFile tiny_answers() {
  CaseFile file;
  const auto add = [&](const std::string& name, std::vector<Index> shape, auto&& number) {
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    CaseFile::Entry& entry = file.tensors[name] = {io::DataType::F64, std::move(shape), {}};
    for (Index i = 0; i < size; ++i) entry.numbers.push_back(number(i));
  };
  const auto logit = [](Index i) {
    double sum = 0;
    for (Index channel = 0; channel < width; ++channel) sum += head_weight(i % vocabulary, channel);
    return sum;
  };
  for (const auto& [name, tokens] : {std::pair("a", Index(3)), std::pair("b", Index(150))}) {
    const std::string prefix = std::string(name) + ".";
    add(prefix + "token_ids", {tokens}, [](Index i) { return static_cast<double>(i % vocabulary); });
    file.tensors.at(prefix + "token_ids").type = io::DataType::I64;
    add(prefix + "logits", {tokens, vocabulary}, logit);
  }
  add("a.state.att_x_prev", {layers, width}, [](Index) { return 0.5; });
  add("a.state.ffn_x_prev", {layers, width}, [](Index i) { return i < width ? -0.25 : -0.5; });
  add("a.state.wkv", {layers, heads, head_size, head_size}, [](Index) { return 0.0; });
  add("a.rwkv_cpp_logits_last", {vocabulary}, logit);
  return file;
}

struct Files {
  TemporaryDirectory directory;
  CaseFile model = tiny_model(), answers = tiny_answers();

  ToolRun run(const std::string& arguments = "") const {
    return run_tool(arguments + " --model" + quoted(model.write(directory / "model.safetensors")) +
                    " --expected" + quoted(answers.write(directory / "tiny.safetensors")));
  }
};

std::filesystem::path shared_model(const std::string& name) {
  return std::filesystem::path(LINREC_SHARED_MODELS) / (name + ".safetensors");
}

/// Whether the trained model is at hand; says so if not.
bool has_shared_model() {
  const bool there = std::filesystem::exists(shared_model("tiny-rwkv-7v0-834K"));
  if (!there) WARN("skipped: there is no " << shared_model("tiny-rwkv-7v0-834K").string());
  return there;
}

}  // namespace

TEST_CASE("verify: a model, its logits and its states") {
  const Files files;
  const ToolRun run = files.run();
  CAPTURE(run.output);
  CHECK(run.status == 0);
  CHECK(run.rows("ok", "tiny/a").size() == 6);
  CHECK(run.rows("ok", "tiny/b").size() == 6);
  CHECK(run.lines().back() == "1 file: 12 ok, 0 FAIL, 0 unknown, 0 error");
  for (const std::string& row : run.rows("ok", "tiny/a"))
    for (const char* answer :
         {"logits", "rwkv_cpp_logits_last", "state.att_x_prev", "state.ffn_x_prev", "state.wkv"})
      CHECK_THAT(row, contains("  " + std::string(answer) + " "));
  const ToolRun some = files.run("--way splits --scalar float" + quoted(golden("gla_T1")));
  CHECK(some.lines().back() == "2 files: 3 ok, 0 FAIL, 0 unknown, 0 error");
  const std::string folder =  // model.safetensors lies in it
      run_tool("--model" + quoted(files.directory.path()) + " --expected" +
               quoted(files.directory / "tiny.safetensors"))
          .output;
  CHECK(folder == run.output);
}

TEST_CASE("verify: a model with other answers fails, with absolute bars") {
  const auto rows = [](const std::string& answer, double error, const std::string& arguments = "") {
    Files files;
    files.answers.tensors.at(answer).numbers.back() += error;
    const ToolRun run = files.run(arguments);
    CHECK(run.count("ok") + run.count("FAIL") == 12);
    CHECK(run.status == (run.count("FAIL") > 0));
    return run.count("FAIL");
  };
  CHECK(rows("b.logits", 1e-3) == 6);
  CHECK(rows("b.logits", 1e-6) == 3);  // in double
  CHECK(rows("b.logits", 1e-10) == 0);
  CHECK(rows("b.logits", 1e-6, "--tolerance-double 1e-5") == 0);
  CHECK(rows("b.logits", 1e-3, "--tolerance-float 1e-2") == 3);
  for (const char* state : {"a.state.att_x_prev", "a.state.ffn_x_prev", "a.state.wkv"}) {
    CHECK(rows(state, 1e-3) == 6);
    CHECK(rows(state, 1e-6) == 3);
  }
  CHECK(rows("a.rwkv_cpp_logits_last", 1e-3) == 6);
  CHECK(rows("a.rwkv_cpp_logits_last", 1e-5) == 0);
  CHECK(rows("a.rwkv_cpp_logits_last", 1e-3, "--tolerance-double 1 --tolerance-float 1") == 6);
}

TEST_CASE("verify: expected files that make no sense") {
  const auto check = [](const std::string& result, const std::string& reason, auto&& change) {
    Files files;
    change(files.answers.tensors);
    const ToolRun run = files.run();
    CAPTURE(reason, run.output);
    CHECK(run.status == 1);
    CHECK(run.count("ok") == 6);  // the other text
    const auto rows = run.rows(result, "tiny/a");
    REQUIRE(rows.size() == 1);
    CHECK_THAT(rows[0], contains("tiny.safetensors': " + reason));
  };
  check("error", "tokens[0, 2]: expected 0 to 4, got 5", [](auto& t) { t.at("a.token_ids").numbers[2] = 5; });
  check("error", "tokens[0, 0]: expected 0 to 4, got -1",
        [](auto& t) { t.at("a.token_ids").numbers[0] = -1; });
  check("error", "tensor 'a.token_ids': element 1 is 1099511627776, which an integer of 4 bytes",
        [](auto& t) { t.at("a.token_ids").numbers[1] = 0x1p40; });
  check("error", "a.token_ids: expected [T], got [1, 3]", [](auto& t) {
    t.at("a.token_ids").shape = {1, 3};
  });
  check("error", "has no tensor 'a.logits'", [](auto& t) { t.erase("a.logits"); });
  check("error", "a.logits: expected [3, 5] from the model and the tokens, got [5, 3]", [](auto& t) {
    t.at("a.logits").shape = {5, 3};
  });
  check("error", "a.state.wkv: expected [2, 2, 2, 2]", [](auto& t) {
    t.at("a.state.wkv").shape = {2, 2, 4};
  });
  check("unknown", "a.state.ssm: not an answer of a model of rwkv7",
        [](auto& t) { t["a.state.ssm"] = t.at("a.state.wkv"); });
}

TEST_CASE("verify: tensors that belong to no text, and no text at all") {
  Files files;
  files.answers.tensors["c.logits"] = files.answers.tensors.at("a.logits");
  const ToolRun run = files.run();
  CHECK(run.status == 1);
  CHECK(run.count("ok") == 12);
  REQUIRE(run.rows("unknown", "tiny").size() == 1);
  CHECK(run.has("tiny.safetensors': c.logits: belongs to no NAME.token_ids"));
  for (const char* name : {"a.token_ids", "b.token_ids"}) files.answers.tensors.erase(name);
  CHECK(files.run().has("tiny.safetensors': there is no NAME.token_ids tensor"));
}

TEST_CASE("verify: a text without tokens") {
  Files files;
  auto& tensors = files.answers.tensors;
  tensors.erase("a.rwkv_cpp_logits_last");
  for (const char* name : {"a.token_ids", "a.logits"}) {
    tensors.at(name).shape[0] = 0;
    tensors.at(name).numbers.clear();
  }
  for (const char* name : {"a.state.att_x_prev", "a.state.ffn_x_prev"})
    for (double& number : tensors.at(name).numbers) number = 0;
  const ToolRun run = files.run();
  CAPTURE(run.output);
  CHECK(run.count("ok") == 12);
}

TEST_CASE("verify: models that cannot be read") {
  Files files;
  files.model.tensors.erase("head.weight");
  files.model.tensors["extra"] = files.model.tensors.at("ln_out.bias");
  const ToolRun run = files.run();
  CAPTURE(run.output);
  CHECK(run.status == 1);
  CHECK(run.has("missing: 'head.weight' [5, 4]; unexpected: 'extra' [4]"));
  CHECK(run.lines().back() == "1 file: 0 ok, 0 FAIL, 0 unknown, 1 error");
  const ToolRun none = run_tool("--model /nowhere/a --expected /nowhere/b" + quoted(golden("gla_T1")));
  CHECK(none.rows("error", "b").size() == 2);
  CHECK(none.rows("ok", "gla_T1").size() == 6);
}

TEST_CASE("verify: a trained RWKV-7 gives the logits of the reference") {
  if (!has_shared_model()) return;
  const std::string model = "--model" + quoted(shared_model("tiny-rwkv-7v0-834K")) + " --expected";
  const ToolRun run = run_tool(model + quoted(shared_model("tiny-rwkv-7v0-834K-expected")));
  CAPTURE(run.output);
  CHECK(run.status == 0);
  CHECK(run.rows("ok", "tiny-rwkv-7v0-834K-expected/short").size() == 6);
  CHECK(run.rows("ok", "tiny-rwkv-7v0-834K-expected/long").size() == 6);

  const TemporaryDirectory directory;
  CaseFile changed = CaseFile::read(shared_model("tiny-rwkv-7v0-834K-expected"));
  changed.tensors.at("long.logits").numbers[100 * 256 + 7] += 1e-3;
  changed.tensors.at("short.state.wkv").numbers[5000] += 1e-3;
  CHECK(run_tool(model + quoted(changed.write(directory / "changed.safetensors"))).count("FAIL") == 12);
}
