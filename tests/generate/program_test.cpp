// The program as a user meets it: what it prints, how a run goes on, what it refuses.
#include <sstream>

#include "helpers.hpp"

using namespace generate::test;

namespace {

void check_resumes(const std::string& model_and_prompt, const std::string& model,
                   const std::string& sampling) {
  INFO(sampling);
  const TemporaryDirectory folder;
  const std::string file = " '" + (folder / "state").string() + "'";
  const Outcome whole = call(model_and_prompt + sampling + " --length 40");
  const Outcome first = call(model_and_prompt + sampling + " --length 20 --save-state" + file);
  const Outcome second = call(model + sampling + " --length 19 --load-state" + file + " --save-state" + file);
  const Outcome third = call(model + sampling + " --length 1 --load-state" + file);
  for (const Outcome* each : {&whole, &first, &second, &third}) CHECK(each->status == 0);
  CHECK_FALSE(whole.out.empty());
  CHECK(first.out + second.out + third.out == whole.out);
}

}  // namespace

TEST_CASE("a run goes on where it was saved, byte for byte") {
  const Models models;
  const std::string bytes = models.option("model", "bytes"), words = models.option("model", "words");
  for (const char* sampling :
       {"", " --temperature 0.9", " --temperature 2 --top-k 40 --top-p 0.9 --seed 11"}) {
    check_resumes(bytes + " --prompt 'Once upon'", bytes, sampling);
    check_resumes(words + " --tokens 1,2,999", words, sampling);
  }
}

TEST_CASE("a prompt may be read first and continued later, or come behind a saved run") {
  const Models models;
  const std::string model = models.option("model", "bytes"), save = models.option("save-state", "s"),
                    load = models.option("load-state", "s");
  const Outcome whole = call(model + " --prompt 'Once upon' --length 10");
  for (const auto& [first, second] :
       {std::pair("Once upon", ""), {"Once ", " --prompt upon"}, {"O", " --prompt 'nce upon'"}}) {
    const Outcome read = call(model + " --length 0 --prompt '" + first + "'" + save);
    CHECK(read.status == 0);
    CHECK(read.out.empty());
    CHECK(call(model + load + second + " --length 10").out == whole.out);
  }
}

TEST_CASE("text and tokens are the same bytes") {
  const Models models;
  const std::string model = models.option("model", "bytes");
  const Outcome text = call(model + " --prompt A+ --length 30"),
                ids = call(model + " --tokens '65, 43' --length 30");
  CHECK(text.status == 0);
  CHECK(text.out.size() == 30);
  std::istringstream numbers(ids.out);
  std::string bytes;
  for (int id = 0; numbers >> id;) bytes += static_cast<char>(static_cast<unsigned char>(id));
  CHECK(bytes == text.out);
  CHECK(call(model + " --prompt A+").out.size() == 128);
}

TEST_CASE("figures go to standard error") {
  const Models models;
  const Outcome outcome = call(models.option("model", "bytes") + " --prompt abc --length 5");
  CHECK_THAT(outcome.error, contains("prefill 3 tokens, ") && contains(" a second; decode 4 tokens, ") &&
                                contains(" a second; state "));
  // Two layers of a matrix [8, 8] and two windows [1, 8], in float; and the position in each of the four
  // states.
  CHECK_THAT(outcome.error, contains("; state " + std::to_string(2 * (4 * (64 + 8 + 8) + 16)) + " bytes\n"));
}

TEST_CASE("seeds differ, and one seed does not") {
  const Models models;
  const std::string start = models.option("model", "bytes") + " --prompt abc --temperature 1 --seed ";
  CHECK(call(start + "1").out == call(start + "1").out);
  CHECK(call(start + "1").out != call(start + "2").out);
}

TEST_CASE("another seed branches off a saved run") {
  const Models models;
  const std::string model = models.option("model", "bytes") + " --temperature 1 ",
                    load = models.option("load-state", "s");
  call(model + "--seed 1 --prompt abc --length 2" + models.option("save-state", "s"));
  CHECK(call(model + load).out == call(model + load + " --seed 1").out);
  CHECK(call(model + load).out != call(model + load + " --seed 2").out);
}

TEST_CASE("weights of bfloat16") {
  const Models models;
  const std::string model = models.option("model", "bytes"), start = model + " --prompt abc --length 20";
  const Outcome plain = call(start), narrow = call(start + " --weights bf16");
  CHECK(narrow.status == 0);
  CHECK(narrow.out.size() == 20);
  CHECK_THAT(narrow.error, contains("decode 19 tokens, "));
  CHECK(call(start + " --weights float").out == plain.out);
  CHECK(call(start + " --weights stored").out == plain.out);  // the file has float
  check_resumes(model + " --prompt abc --weights bf16", model + " --weights bf16", "");
  CHECK(call(model + " --temperature 1 --prompt abc").out !=
        call(model + " --temperature 1 --prompt abc --weights bf16").out);
}

TEST_CASE("the self-test of a checkpoint") {
  const Models models;
  SafetensorsWriter file = tiny_rwkv7(256);
  const auto zeros = [&](const std::string& name, std::vector<Index> shape) {
    Index size = 1;
    for (const Index extent : shape) size *= extent;
    file.add("linrec.test." + name, std::move(shape), std::vector<float>(static_cast<std::size_t>(size)));
  };
  file.add("linrec.test.tokens", {2}, std::vector<std::int64_t>{65, 66});
  zeros("logits", {2, 256});
  for (const std::string layer : {"0", "2"}) zeros("state." + layer + ".recurrent", {1, 8, 8});
  for (const std::string layer : {"0", "1", "2", "3"}) zeros("state." + layer + ".window.shift", {1, 8});
  file.set_metadata("linrec.test.tolerance", "1e30");
  file.write(models / "passes");
  file.set_metadata("linrec.test.tolerance", "1e-30");
  file.write(models / "fails");

  const Outcome passes = call(models.option("model", "passes") + " --check");
  CHECK(passes.error.starts_with("self-test of 2 tokens passed: largest difference "));
  CHECK(passes.status == 0);
  CHECK(passes.out.empty());
  CHECK(call(models.option("model", "passes") + " --check --prompt a --length 3").out.size() == 3);
  const Outcome fails = call(models.option("model", "fails") + " --check --prompt a");
  CHECK(fails.status == 1);
  CHECK(fails.out.empty());
  CHECK_THAT(fails.error, contains("does not pass: logits by prefill: largest difference "));
  CHECK(call(models.option("model", "fails") + " --prompt a --length 3").status == 0);
  const Outcome none = call(models.option("model", "bytes") + " --check");
  CHECK(none.status == 1);
  CHECK_THAT(none.error, contains("has no self-test"));
}

TEST_CASE("what makes no sense is refused in one line") {
  const Models models;
  const std::string bytes = models.option("model", "bytes"), words = models.option("model", "words");
  const auto refused = [](const std::string& arguments) {
    const Outcome outcome = call(arguments);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    CHECK(outcome.error.starts_with("generate: "));
    CHECK(outcome.error.find('\n') == outcome.error.size() - 1);
    return outcome.error;
  };
  CHECK_THAT(refused(""), contains("--model is required"));
  CHECK_THAT(refused(bytes), contains("expected --prompt, --tokens, --load-state or --check"));
  CHECK_THAT(refused(bytes + " --prompt ''"), contains("expected at least one token"));
  CHECK_THAT(refused(bytes + " --prompt a --tokens 1"), contains("excludes"));
  CHECK_THAT(refused(bytes + " --prompt a --length -1"), contains("length: expected at least 0, got -1"));
  CHECK_THAT(refused(bytes + " --prompt a --length many"), contains("--length"));
  CHECK_THAT(refused(bytes + " --prompt a --weights int8"),
             contains("weights: expected float, bf16 or stored, got 'int8'"));
  CHECK_THAT(refused(bytes + " --prompt a --temperature nan"), contains("temperature: expected"));
  CHECK_THAT(refused(bytes + " --prompt a --top-k 3"), contains("expected a temperature above 0"));
  CHECK_THAT(refused(bytes + " --tokens 1,x"), contains("expected whole numbers as in 1,2,3, got 'x'"));
  CHECK_THAT(refused(bytes + " --tokens 1,256"), contains("expected 0 to 255, got 256"));
  CHECK_THAT(refused(words + " --prompt a"),
             contains("vocabulary of 1000; tokenizers come later, and until then "
                      "--tokens takes ids, as in --tokens 1,2,3"));
  CHECK_THAT(refused(" --model /nonexistent --prompt a"), contains("/nonexistent"));
  CHECK_THAT(refused(bytes + " --load-state /nonexistent"), contains("/nonexistent"));
  const Outcome nowhere = call(bytes + " --prompt a --length 2 --save-state /nonexistent/state");
  CHECK(nowhere.status == 1);
  CHECK_THAT(nowhere.error, contains("/nonexistent/state"));
}

TEST_CASE("a saved run that is damaged or not this model's is refused") {
  const Models models;
  const std::string bytes = models.option("model", "bytes"), load = models.option("load-state", "s");
  REQUIRE(call(bytes + " --prompt abc --length 2" + models.option("save-state", "s")).status == 0);
  const auto error = [&](const std::string& arguments) {
    const Outcome outcome = call(arguments);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    return outcome.error;
  };
  const auto file = linrec::io::SafetensorsFile::from_bytes(linrec::test::file_contents(models / "s"), "s");
  const auto rewritten = [&](const std::string& key, const std::string& value, std::int64_t token,
                             std::size_t damaged) {
    auto snapshot = file.tensor("snapshot").to<std::uint8_t>();
    if (damaged > 0) snapshot[snapshot.size() - damaged] ^= 1;
    SafetensorsWriter writer;
    writer.add("snapshot", {static_cast<Index>(snapshot.size())}, snapshot);
    writer.add("last_token", {1}, std::vector<std::int64_t>{token});
    for (const auto& [name, text] : file.metadata()) writer.set_metadata(name, text);
    writer.set_metadata(key, value);
    writer.write(models / "s");
    return error(bytes + load);
  };
  CHECK_THAT(rewritten("seed", "1x", 0, 0), contains("metadata 'seed': expected a whole number"));
  CHECK_THAT(rewritten("draws", "-1", 0, 0), contains("metadata 'draws': expected a whole number"));
  CHECK_THAT(rewritten("draws", "6", 0, 0),
             contains("metadata 'draws': expected no more than tokens, got 6"));
  CHECK_THAT(rewritten("linrec.generate", "2", 0, 0), contains("that --save-state of this version wrote"));
  CHECK_THAT(rewritten("note", "", 256, 0),
             contains("tensor 'last_token': expected one token from 0 to 255"));
  CHECK_THAT(rewritten("note", "", -1, 0), contains("tensor 'last_token': expected one token from 0 to 255"));
  CHECK_THAT(rewritten("note", "", 0, 9), contains("the snapshot in it: ") && contains("linrec.checksum"));
  CHECK_THAT(error(bytes + models.option("load-state", "bytes")),
             contains("that --save-state of this version wrote"));
}

TEST_CASE("help is given, with examples") {
  const Outcome help = call("--help");
  CHECK(help.status == 0);
  for (const char* text :
       {"--model", "--prompt", "--tokens", "--length", "--temperature", "--top-k", "--top-p", "--seed",
        "--save-state", "--load-state", "--weights", "--check", "Examples:"})
    CHECK_THAT(help.out, contains(text));
}

TEST_CASE("the trained model continues a text, in one go or in two") {
  const std::filesystem::path path =
      std::filesystem::path(LINREC_SHARED_MODELS) / "tiny-rwkv-7v0-834K.safetensors";
  if (!std::filesystem::exists(path)) {
    WARN("skipped: there is no " << path.string());
    return;
  }
  const std::string model = "--model '" + path.string() + "'";
  check_resumes(model + " --prompt 'In the beginning'", model, "");
  check_resumes(model + " --prompt 'In the beginning'", model, " --temperature 0.7 --top-p 0.8 --seed 3");
  CHECK_THAT(call(model + " --prompt 'In the beginning' --length 20").out, contains(" the "));
}
