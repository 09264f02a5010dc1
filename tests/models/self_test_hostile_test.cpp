// Self-tests that are missing, malformed, or of a model that gives NaN.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/models/self_test_helpers.hpp"

namespace linrec::test::self_test_hostile_test {

namespace {

std::string refusal(const TestParts& parts) {
  return error_text<FormatError>([&] { io::run_self_test(parts.checkpoint(), example().model); });
}

}  // namespace

TEST_CASE("a checkpoint without a self-test says so") {
  SafetensorsWriter writer;
  writer.add("linrec.tes", {1}, std::vector<float>{0});
  writer.add("linrec.testament", {1}, std::vector<float>{0});
  CHECK(error_text<FormatError>([&] { io::run_self_test(opened(writer), example().model); }) ==
        "checkpoint 'm': has no self-test: no tensor's name begins with 'linrec.test.'");
}

TEST_CASE("a malformed self-test is refused with all that is wrong") {
  TestParts parts(example().writer);
  SECTION("tensors that are missing, of another shape, or unknown") {
    parts.tensors.erase("state.0.recurrent");
    parts.tensors.at("logits").shape = {parts.tensors.at("logits").shape[1], 20};
    parts.tensors["state.99.recurrent"] = {DataType::F64, {1}, {0}};
    CHECK(refusal(parts) == message("checkpoint 'm': the self-test is none of this model:\n"
                                    "  wrong shape: 'linrec.test.logits': expected [20, ",
                                    example().model.vocabulary(), "], got [", example().model.vocabulary(),
                                    ", 20]\n",
                                    "  missing: 'linrec.test.state.0.recurrent'\n"
                                    "  unexpected: 'linrec.test.state.99.recurrent' [1]"));
  }
  SECTION("nothing but an unknown tensor") {
    parts.tensors = {{"x", {DataType::F64, {}, {1}}}};
    parts.metadata.clear();
    CHECK_THAT(refusal(parts), contains("missing: 'linrec.test.tokens'") &&
                                   contains("missing: metadata 'linrec.test.tolerance'"));
  }
  SECTION("tokens") {
    const auto with = [&](std::vector<double> numbers) {
      TestParts wrong = parts;
      const Index count = static_cast<Index>(numbers.size());
      wrong.tensors.at("tokens") = {DataType::I64, {count}, std::move(numbers)};
      return refusal(wrong);
    };
    CHECK_THAT(with({0, 1, 1e6}), contains("'linrec.test.tokens': token 2: expected 0 to "));
    CHECK_THAT(with({-1, 0, 1}), contains("'linrec.test.tokens': token 0: expected 0 to "));
    CHECK_THAT(with({4294967296.0}), contains("token 0: expected 0 to ") && contains(", got 4294967296"));
    CHECK_THAT(with({}),
               contains("'linrec.test.tokens': expected I64 [T] with at least 1 token, got I64 [0]"));
  }
  SECTION("tokens of another type or rank") {
    parts.tensors.at("tokens").type = DataType::F64;
    CHECK_THAT(refusal(parts),
               contains("'linrec.test.tokens': expected I64 [T] with at least 1 token, got F64 [20]"));
    parts.tensors.at("tokens") = {DataType::I64, {1, 2}, {0, 0}};
    CHECK_THAT(refusal(parts), contains("got I64 [1, 2]"));
  }
  SECTION("tolerance") {
    const std::string text = GENERATE("", "abc", "-1", "nan", "inf", "1e999", "[1]", "1 2", "\"1\"", "null");
    parts.metadata["linrec.test.tolerance"] = text;
    CHECK_THAT(
        refusal(parts),
        contains("metadata 'linrec.test.tolerance': expected a number of at least 0, got '" + text + "'"));
  }
  SECTION("numbers that are not finite") {
    const double bad = GENERATE(std::nan(""), HUGE_VAL, -HUGE_VAL);
    parts.tensors.at("state.0.recurrent").numbers[1] = bad;
    CHECK_THAT(refusal(parts), contains("'linrec.test.state.0.recurrent': expected finite numbers, got ") &&
                                   contains(" at head 0, key 0, value 1"));
  }
  SECTION("the test of another model") {
    const auto other = load_float(as_checkpoint(recipe("fla gla").files));
    CHECK_THAT(error_text<FormatError>([&] { io::run_self_test(parts.checkpoint(), other); }),
               contains("the self-test is none of this model:"));
  }
}

TEST_CASE("a model that gives NaN does not pass") {
  Files files = recipe("blinkdl rwkv7").files;
  files["head.weight"].values[0] = std::nanf("");
  const auto model = load_float(as_checkpoint(files));
  const auto result = io::run_self_test(opened(example().writer), model);
  REQUIRE(result.differences.size() == 2);
  CHECK_THAT(result.differences[0],
             contains("logits by prefill: largest difference nan at token 0, entry 0;"));
  CHECK(std::isnan(result.largest));

  SafetensorsWriter writer;
  CHECK_THAT(error_text<ValueError>([&] { io::add_self_test<float>(writer, model, example().tokens, 1); }),
             contains("self-test: logits: expected finite numbers, got nan at token 0, entry 0"));
  CHECK(writer.bytes() == SafetensorsWriter().bytes());
}

TEST_CASE("a self-test that makes no sense is not written") {
  const LanguageModel<float>& model = example().model;
  SafetensorsWriter writer;
  const auto refused = [&](std::span<const TokenId> tokens, double tolerance) {
    return error_text<ValueError>([&] { io::add_self_test<float>(writer, model, tokens, tolerance); });
  };
  const std::vector<TokenId> bad{0, -1};
  CHECK(refused({}, 1) == "self-test: expected at least 1 token, got 0");
  CHECK_THAT(refused(bad, 1), contains("tokens[0, 1]: expected 0 to "));
  for (const double tolerance : {-1.0, HUGE_VAL, std::nan("")})
    CHECK_THAT(refused(example().tokens, tolerance),
               contains("expected a tolerance of at least 0 that is finite, got "));
  CHECK(writer.bytes() == SafetensorsWriter().bytes());
  writer = example().writer;
  CHECK_THAT(refused(example().tokens, 1), contains("'linrec.test.tokens': added twice"));
  CHECK(writer.bytes() == example().writer.bytes());
}

}  // namespace linrec::test::self_test_hostile_test
