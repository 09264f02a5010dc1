// The trained RWKV-7 of the shared models, which is not part of the project: skipped where it is not there.
#include "tests/catch.hpp"
#include "tests/models/branches.hpp"
#include "tests/models/loaded.hpp"

namespace linrec::test::real_model_test {

namespace {

template <class Scalar>
void check_texts(double tolerance) {
  const std::filesystem::path folder(LINREC_SHARED_MODELS);
  const std::filesystem::path path = folder / "tiny-rwkv-7v0-834K.safetensors";
  if (!std::filesystem::exists(path)) {
    WARN("skipped: there is no " << path.string());
    return;
  }
  const LanguageModel<Scalar> model = load<Scalar>(io::Checkpoint(path));
  CHECK(model.architecture() == "rwkv7");
  CHECK(model.vocabulary() == 256);
  CHECK(model.width() == 64);
  CHECK(model.blocks().size() == 24);
  const io::SafetensorsFile expected(folder / "tiny-rwkv-7v0-834K-expected.safetensors");
  for (const std::string text : {"short", "long"}) {
    INFO(text);
    const auto tokens = expected.tensor(text + ".token_ids").to<TokenId>();
    const std::span<const TokenId> all(tokens);
    const auto right = expected.tensor(text + ".logits").to<double>();
    auto state = model.initial_state();
    const auto logits = model.prefill(tokens, state);
    REQUIRE(static_cast<std::size_t>(logits.size()) == right.size());
    double error = 0;
    for (std::size_t i = 0; i < right.size(); ++i)
      error = std::max(error, std::abs(static_cast<double>(logits.data()[i]) - right[i]));
    CHECK(error < tolerance);
    // Every other way gives the same bits, and so is as right.
    auto stepped = model.initial_state();
    bool same = true;
    for (std::size_t t = 0; t < tokens.size(); ++t)
      same = same && model.step(all.subspan(t, 1), stepped) == logits.row(static_cast<Index>(t));
    CHECK(same);
    CHECK(stepped == state);
    for (const std::size_t first : {std::size_t{1}, tokens.size() / 2, tokens.size() - 1}) {
      auto split = model.initial_state();
      CHECK(model.prefill(all.first(first), split) == logits.topRows(static_cast<Index>(first)));
      CHECK(model.prefill_last(all.subspan(first), split) == logits.bottomRows(1));
      CHECK(split == state);
    }
    if (text == "long") continue;
    // The state after the prompt, [layer, H, V, K], is the transpose of ours.
    const auto wkv = expected.tensor("short.state.wkv").to<double>();
    const auto att = expected.tensor("short.state.att_x_prev").to<double>();
    const auto ffn = expected.tensor("short.state.ffn_x_prev").to<double>();
    REQUIRE(state.layers().size() == 24);
    double worst = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const auto matrix = state.layers()[2 * i].recurrent().matrix(0, 0);
      for (std::size_t c = 0; c < 64; ++c) {
        const auto near = [&](Scalar ours, double theirs) {
          worst = std::max(worst, std::abs(static_cast<double>(ours) - theirs));
        };
        near(state.layers()[2 * i].window(0).row(0, 0)[c], att[i * 64 + c]);
        near(state.layers()[2 * i + 1].window(0).row(0, 0)[c], ffn[i * 64 + c]);
        for (std::size_t k = 0; k < 64; ++k)
          near(matrix(static_cast<Index>(k), static_cast<Index>(c)), wkv[(i * 64 + c) * 64 + k]);
      }
    }
    CHECK(worst < tolerance);
  }
}

}  // namespace

TEST_CASE("a trained RWKV-7: the logits at every position, in double") { check_texts<double>(1e-9); }
TEST_CASE("a trained RWKV-7: the logits at every position, in float") { check_texts<float>(1e-4); }

}  // namespace linrec::test::real_model_test
