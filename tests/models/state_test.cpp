// States of models: as values, of other models, marked, and saved.
#include "linrec/core/state_marks.hpp"
#include "linrec/io/snapshot.hpp"
#include "tests/catch.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test::state_test {

namespace {

LanguageModel<double> model_of(const Files& files) { return load_double(as_checkpoint(files)); }

/// The text with which a state is refused by everything that takes one, and stays as it was.
std::string refusal(const LanguageModel<double>& model, ModelState<double> state) {
  const ModelState<double> before = state;
  const std::vector<TokenId> tokens(static_cast<std::size_t>(state.sequences()), 1);
  const std::string text = error_text<Error>([&] { model.validate(tokens, state); });
  CHECK(error_text<Error>([&] { model.prefill(tokens, state); }) == text);
  CHECK(error_text<Error>([&] { model.prefill_last(tokens, state); }) == text);
  CHECK(error_text<Error>([&] { model.step(tokens, state); }) == text);
  CHECK(state == before);
  return text;
}

}  // namespace

TEST_CASE("model state: another model's is refused") {
  const auto gla = model_of(recipe("fla gla").files), gdn = model_of(recipe("fla gated_deltanet").files),
             grouped = model_of(recipe("fla gla, grouped, convolutions").files);
  const auto other_model = [](const LanguageModel<double>& model, const LanguageModel<double>& other) {
    return "state: expected one of the model " + model.initial_state().model() + ", got one of " +
           other.initial_state().model();
  };
  CHECK(gla.initial_state().model().size() == 4 + 16);
  CHECK_THAT(gla.initial_state().model(), contains("gla "));
  CHECK(refusal(gla, gdn.initial_state(2)) == other_model(gla, gdn));
  CHECK(refusal(gla, grouped.initial_state(2)) == other_model(gla, grouped));
  // Of one architecture and all sizes the same, but for other weights.
  Files files = recipe("fla gla").files;
  files["model.layers.1.attn.q_proj.weight"].values[3] += 1;
  const auto trained_further = model_of(files);
  CHECK(refusal(gla, trained_further.initial_state(2)) == other_model(gla, trained_further));
  // From the same files, but loaded twice.
  CHECK_NOTHROW(model_of(recipe("fla gla").files).validate(random_tokens(2, 24), gla.initial_state(2)));
}

TEST_CASE("model state: layers that are not the model's are refused") {
  const auto gla = model_of(recipe("fla gla").files),
             grouped = model_of(recipe("fla gla, grouped, convolutions").files);
  auto state = gla.initial_state(2);
  state.layers().pop_back();
  CHECK(refusal(gla, state) == "state: expected 2 layers, got 1");
  state = gla.initial_state(2);
  state.layers().push_back(state.layers().front());
  CHECK(refusal(gla, state) == "state: expected 2 layers, got 3");
  state = gla.initial_state(2);
  state.layers()[1] = grouped.initial_state(2).layers()[1];
  CHECK(refusal(gla, state) ==
        "state: layer 1: expected gla [4, 4, 8], got gla [4, 4, 8] q_conv [4, 16] k_conv [4, 8] v_conv [4, "
        "16]");
  state = gla.initial_state(2);
  state.layers()[1] = gla.initial_state(3).layers()[1];
  CHECK(refusal(gla, state) == "state: layer 1: expected 2 sequences, got 3");
  state.layers() = gla.initial_state(3).layers();
  CHECK(refusal(gla, state) == "state: layer 0: expected 2 sequences, got 3");
  CHECK_THROWS_AS(gla.initial_state(-5), ValueError);
}

TEST_CASE("model state: layers at different positions are refused") {
  const auto model = model_of(recipe("blinkdl rwkv7").files);
  for (const std::size_t layer : std::vector<std::size_t>{1, 4}) {  // a channel mixing, a time mixing
    auto state = model.initial_state(3);
    for (Index s = 0; s < 3; ++s)
      for (auto& one : state.layers()) one.set_position(s, 5);
    CHECK_NOTHROW(model.validate(random_tokens(3, 24), state));
    state.layers()[layer].set_position(2, 6);
    CHECK(refusal(model, state) == "state: layer " + std::to_string(layer) +
                                       ", sequence 2: expected the position 5 of the first layer, got 6");
  }
}

TEST_CASE("model state: one without scratch memory is as good as a model's own") {
  const auto model = model_of(recipe("fla gla").files);
  for (const Index sequences : {3, 70}) {
    auto own = model.initial_state(sequences);
    std::vector<LayerStateShape> shapes;
    for (const auto& layer : own.layers()) shapes.push_back(layer.shape());
    ModelState<double> bare("gla", shapes, sequences, 0, own.fingerprint());
    const auto tokens = random_tokens(sequences, 24);
    CHECK(model.step(tokens, bare) == model.step(tokens, own));
    CHECK(own == bare);
  }
}

TEST_CASE("model state: a value - forked, compared, reset, measured") {
  const auto model = model_of(recipe("fla gla").files);
  const auto first = random_tokens(12, 24, 1), second = random_tokens(12, 24, 2);
  auto state = model.initial_state(2);
  CHECK(state.architecture() == "gla");
  CHECK(state.sequences() == 2);
  CHECK(state.bytes_per_sequence() == 2 * (4 * 4 * 8 * 8 + 8));  // two layers [4, 4, 8] in double, positions
  CHECK(load_float(as_checkpoint(recipe("fla gla").files)).initial_state().bytes_per_sequence() ==
        2 * (4 * 4 * 8 * 4 + 8));
  CHECK(model_of(recipe("blinkdl rwkv7").files).initial_state().bytes_per_sequence() ==
        3 * ((4 * 8 * 8 + 32) * 8 + 8 + 32 * 8 + 8));  // time and channel mixings, each with a shift
  CHECK(state == model.initial_state(2));
  CHECK_FALSE(state == model.initial_state(1));
  model.prefill(first, state);
  CHECK(state.position(0) == 6);
  CHECK_FALSE(state == model.initial_state(2));

  auto fork = state;
  CHECK(fork == state);
  const auto logits = model.prefill(second, state);
  CHECK_FALSE(fork == state);
  CHECK(model.prefill(second, fork) == logits);
  CHECK(fork == state);

  state.reset(1);
  CHECK(state.position(0) == 12);
  CHECK(state.position(1) == 0);
  auto fresh = model.initial_state(2);
  const auto after = model.prefill(first, state), from_start = model.prefill(first, fresh);
  CHECK(after.bottomRows(6) == from_start.bottomRows(6));
  CHECK(after.topRows(6) != from_start.topRows(6));
  for (Index s = 0; s < 2; ++s) state.reset(s);
  CHECK(state == model.initial_state(2));
}

TEST_CASE("model state: back to any of the last marks, exactly, and no further") {
  for (const char* name : {"blinkdl rwkv7", "fla gla, grouped, convolutions", "post mamba2", "fla retnet",
                           "echo", "echo, whitened"}) {
    INFO(name);
    const auto model = model_of(recipe(name).files);
    const auto tokens = random_tokens(2 * 24, model.vocabulary());
    const Index kept = 3;
    for (Index back = 0; back < kept; ++back) {
      StateMarks<ModelState<double>> marks(kept);
      std::vector<ModelState<double>> seen;
      auto state = model.initial_state(2);
      for (Index i = 0; i < 5; ++i) {  // mark, decode four tokens, and again
        marks.mark(state);
        seen.push_back(state);
        for (Index t = 0; t < 4; ++t)
          model.step(std::span(tokens).subspan(static_cast<std::size_t>(2 * (4 * i + t)), 2), state);
      }
      CHECK(marks.size() == kept);
      CHECK(error_text<ValueError>([&] { marks.restore(state, kept); }) ==
            "back: expected 0 to 2, as 3 of at most 3 marks are kept, got 3");
      CHECK(state.position(0) == 20);
      marks.restore(state, back);
      auto& expected = seen[static_cast<std::size_t>(4 - back)];
      CHECK(state.position(1) == 4 * (4 - back));
      CHECK(state == expected);
      // What follows is as if nothing had been decoded since.
      CHECK(model.prefill(tokens, state) == model.prefill(tokens, expected));
      CHECK(state == expected);
    }
  }
}

TEST_CASE("model state: saved and loaded, a sequence goes on with the same bits") {
  for (const Recipe& recipe : all_recipes()) {
    INFO(recipe.name);
    const auto model = model_of(recipe.files);
    auto state = model.initial_state(2);
    const auto tokens = random_tokens(2 * 9, model.vocabulary());
    model.prefill(tokens, state);
    const auto bytes = io::snapshot_bytes(state);
    auto loaded = model.initial_state(2);
    io::load_snapshot_bytes(bytes, loaded);
    CHECK(loaded == state);
    CHECK(model.prefill(tokens, loaded) == model.prefill(tokens, state));
    CHECK(loaded == state);

    auto other = model.initial_state(1);
    CHECK_THROWS_AS(io::load_snapshot_bytes(bytes, other), FormatError);
    CHECK(other == model.initial_state(1));
    auto single = load_float(as_checkpoint(recipe.files)).initial_state(2);
    CHECK_THROWS_AS(io::load_snapshot_bytes(bytes, single), FormatError);
  }
}

TEST_CASE("model state: a snapshot belongs to one model, and needs no model to be read") {
  const auto gla = model_of(recipe("fla gla").files);
  auto state = gla.initial_state();
  gla.prefill(random_tokens(5, 24), state);
  const TemporaryDirectory folder;
  io::save_snapshot(folder / "state", state);
  Files files = recipe("fla gla").files;
  files["model.layers.0.attn.v_proj.weight"].values[0] = 2;  // the same shapes, other weights
  for (const Files& other : {files, recipe("fla gated_deltanet").files}) {
    auto target = model_of(other).initial_state();
    const auto before = target;
    CHECK_THAT(error_text<FormatError>([&] { io::load_snapshot(folder / "state", target); }),
               contains("'linrec.model': expected '" + target.model() + "'") && contains(state.model()));
    CHECK(target == before);
  }
  auto target = gla.initial_state();
  io::load_snapshot(folder / "state", target);
  CHECK(target == state);
  CHECK(target.position(0) == 5);
  const io::SafetensorsFile file(folder / "state");
  CHECK(file.metadata().at("linrec.model") == state.model());
  CHECK(file.tensor("layer.1.recurrent").shape == std::vector<Index>{1, 4, 4, 8});
}

}  // namespace linrec::test::state_test
