// A checkpoint's own test: that it passes where it should, and sees every tensor that is wrong.
#include "linrec/io/self_test.hpp"

#include "tests/catch.hpp"
#include "tests/models/self_test_helpers.hpp"

namespace linrec::test::self_test_test {

TEST_CASE("the self-test of every architecture passes to the last bit, and in the other precision nearly") {
  for (const Recipe& each : all_recipes()) {
    INFO(each.name);
    const Checkpoint checkpoint = as_checkpoint(each.files);
    const auto single = load_float(checkpoint);
    const auto tokens = random_tokens(21, single.vocabulary());
    SafetensorsWriter writer;
    io::add_self_test<float>(writer, single, tokens, 0);
    const auto same = io::run_self_test(opened(writer), single);
    CHECK(same.passed());
    CHECK(same.tokens == 21);
    CHECK(same.tolerance == 0);
    CHECK(same.largest == 0);

    const auto other = io::run_self_test(opened(writer), load_double(checkpoint));
    CHECK_FALSE(other.passed());
    CHECK(other.largest > 0);
    CHECK(other.largest < 1e-3);
  }
}

TEST_CASE("a self-test has the documented tensors") {
  const TestParts parts(example().writer);
  const auto state = example().model.initial_state();
  CHECK(parts.tensors.at("tokens").shape == std::vector<Index>{20});
  CHECK(parts.tensors.at("tokens").type == DataType::I64);
  CHECK(parts.tensors.at("logits").shape == std::vector<Index>{20, example().model.vocabulary()});
  CHECK(parts.tensors.at("logits").numbers.size() ==
        static_cast<std::size_t>(20 * example().model.vocabulary()));
  CHECK(parts.metadata.at("linrec.test.tolerance") == "0.0001");
  std::size_t count = 2;
  for (std::size_t i = 0; i < state.layers().size(); ++i) {
    const LayerStateShape& shape = state.layers()[i].shape();
    if (shape.recurrent) {
      const auto& part = parts.tensors.at(message("state.", i, ".recurrent"));
      CHECK(part.shape ==
            std::vector<Index>{shape.recurrent->heads(), shape.recurrent->key(), shape.recurrent->value()});
      ++count;
    }
    for (const auto& window : shape.windows) {
      const auto& part = parts.tensors.at(message("state.", i, ".window.", window.name));
      CHECK(part.shape == std::vector<Index>{window.rows, window.channels});
      ++count;
    }
  }
  CHECK(parts.tensors.size() == count);
}

TEST_CASE("every tensor that differs is named, with the place") {
  const TestParts parts(example().writer);
  for (const auto& [name, part] : parts.tensors) {
    if (name == "tokens") continue;
    INFO(name);
    TestParts wrong = parts;
    wrong.tensors.at(name).numbers.back() += 0.5;
    const auto result = io::run_self_test(wrong.checkpoint(), example().model);
    CHECK(result.largest == Approx(0.5));
    REQUIRE(result.differences.size() == 2);
    CHECK(result.differences[0].starts_with(name + " by prefill: largest difference "));
    CHECK(result.differences[1].starts_with(name + " by steps: largest difference "));
  }
  TestParts wrong = parts;
  const Index vocabulary = example().model.vocabulary();
  wrong.tensors.at("logits").numbers[static_cast<std::size_t>(3 * vocabulary + 17)] += 0.5;
  CHECK(io::run_self_test(wrong.checkpoint(), example().model).differences[0] ==
        "logits by prefill: largest difference 0.5 at token 3, entry 17; at most 0.0001 was expected");
  wrong = parts;
  const auto& shape = wrong.tensors.at("state.0.recurrent").shape;
  wrong.tensors.at("state.0.recurrent").numbers[static_cast<std::size_t>(2 * shape[2] + 1)] += 8;
  CHECK_THAT(io::run_self_test(wrong.checkpoint(), example().model).differences[1],
             contains("state.0.recurrent by steps: largest difference 8") &&
                 contains(" at head 0, key 2, value 1;"));
}

TEST_CASE("loading runs the self-test on request") {
  const TemporaryDirectory folder;
  const Files& files = recipe("blinkdl rwkv7").files;
  SafetensorsWriter good = with_weights(files), wrong = with_weights(files);
  io::add_self_test<float>(good, example().model, example().tokens, 1e-4);
  for (auto& [name, part] : TestParts(good).tensors) {
    if (name == "logits") part.numbers[5] += 1;
    if (part.type == DataType::I64)
      wrong.add(self_test_prefix + name, part.shape,
                std::vector<std::int64_t>(part.numbers.begin(), part.numbers.end()));
    else
      wrong.add(self_test_prefix + name, part.shape, part.numbers);
  }
  wrong.set_metadata(self_test_prefix + "tolerance", "1e-4");
  good.write(folder / "good");
  wrong.write(folder / "wrong");
  with_weights(files).write(folder / "none");

  const auto model = io::load_model<float>(folder / "good", io::LoadOptions{.self_test = true});
  auto a = model.initial_state(), b = example().model.initial_state();
  CHECK(model.prefill(example().tokens, a) == example().model.prefill(example().tokens, b));
  CHECK_THAT(error_text<FormatError>(
                 [&] { io::load_model<float>(folder / "wrong", io::LoadOptions{.self_test = true}); }),
             contains("': the self-test does not pass:\n  logits by prefill: largest difference ") &&
                 contains(" at token 0, entry 5; at most 0.0001 was expected\n  logits by steps: "));
  CHECK_THAT(error_text<FormatError>(
                 [&] { io::load_model<float>(folder / "none", io::LoadOptions{.self_test = true}); }),
             contains("has no self-test"));
  CHECK_NOTHROW(io::load_model<float>(folder / "wrong", io::LoadOptions{}));
  CHECK_NOTHROW(io::load_model<float>(folder / "wrong"));
}

}  // namespace linrec::test::self_test_test
