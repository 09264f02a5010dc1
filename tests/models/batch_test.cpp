// However tokens come - one by one, in parts, in ragged or packed batches - a model computes the same bits.
#include <algorithm>
#include <cstring>

#include "tests/catch.hpp"
#include "tests/core/thread_executor.hpp"
#include "tests/io/snapshot_helpers.hpp"
#include "tests/models/loaded.hpp"
#include "tests/models/recipes.hpp"

namespace linrec::test::batch_test {

namespace {

template <class Scalar>
using Logits = typename LanguageModel<Scalar>::Logits;

template <class Scalar>
std::vector<std::uint64_t> bits_of(const ModelState<Scalar>& state) {
  std::vector<std::uint64_t> bits;
  for (const auto& layer : state.layers()) {
    const auto more = test::bits_of(layer);
    bits.insert(bits.end(), more.begin(), more.end());
  }
  return bits;
}

/// Of one sequence of a batch.
template <class Scalar>
std::vector<std::uint64_t> bits_of(const ModelState<Scalar>& state, Index s) {
  std::vector<std::uint64_t> bits;
  for (const LayerState<Scalar>& layer : state.layers()) {
    LayerState<Scalar> one(layer.shape());
    one.set_position(0, layer.position(s));
    if (layer.shape().recurrent)
      for (Index h = 0; h < layer.shape().recurrent->heads(); ++h)
        one.recurrent().set_matrix(0, h, layer.recurrent().matrix(s, h));
    if (layer.shape().ska)
      for (Index h = 0; h < layer.shape().ska->heads; ++h) {
        one.ska().now(0, h) = layer.ska().now(s, h);
        if (layer.shape().ska->chunk > 0) one.ska().past(0, h) = layer.ska().past(s, h);
      }
    for (Index w = 0; w < static_cast<Index>(layer.shape().windows.size()); ++w)
      for (Index row = 0; row < layer.window(w).rows(); ++row)
        std::copy_n(layer.window(w).row(s, row), layer.window(w).channels(), one.window(w).row(0, row));
    const auto more = test::bits_of(one);
    bits.insert(bits.end(), more.begin(), more.end());
  }
  return bits;
}

template <class Matrix>
bool same_bits(const Matrix& a, const Matrix& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::memcmp(a.data(), b.data(), sizeof(*a.data()) * static_cast<std::size_t>(a.size())) == 0;
}

/// Calls f(name, model) for every recipe in both precisions.
template <class F>
void for_each_model(F&& f) {
  for (const Recipe& recipe : all_recipes()) {
    const io::Checkpoint checkpoint = as_checkpoint(recipe.files);
    INFO(recipe.name);
    f(load_double(checkpoint));
    f(load_float(checkpoint));
  }
}

/// What a sequence gives by itself, token by token.
template <class Scalar>
struct Alone {
  Alone(const LanguageModel<Scalar>& model, std::span<const TokenId> tokens)
      : logits(static_cast<Index>(tokens.size()), model.vocabulary()), state(model.initial_state()) {
    for (std::size_t t = 0; t < tokens.size(); ++t)
      logits.row(static_cast<Index>(t)) = model.step(tokens.subspan(t, 1), state);
  }
  Logits<Scalar> logits;
  ModelState<Scalar> state;
};

constexpr TokenId outside = -7;

}  // namespace

TEST_CASE("model: prefill, steps and any split give the same bits") {
  for_each_model([&]<class Scalar>(const LanguageModel<Scalar>& model) {
    const auto tokens = random_tokens(70, model.vocabulary());  // more than a chunk of 64
    const std::span<const TokenId> all(tokens);
    const Alone<Scalar> alone(model, all);
    CHECK(alone.state.position(0) == 70);
    CHECK(alone.logits.allFinite());
    Workspace workspace;
    for (const std::size_t first : std::vector<std::size_t>{0, 1, 3, 64, 65, 70}) {
      INFO("split after " << first);
      auto state = model.initial_state();
      Logits<Scalar> logits(70, model.vocabulary());
      logits.topRows(static_cast<Index>(first)) = model.prefill(all.first(first), state);
      logits.bottomRows(static_cast<Index>(70 - first)) =
          model.prefill(all.subspan(first), state, {.workspace = &workspace});
      CHECK(same_bits(logits, alone.logits));
      CHECK((bits_of(state) == bits_of(alone.state)));
      CHECK(state == alone.state);
      auto again = model.initial_state();
      model.prefill_last(all.first(first), again);
      const Logits<Scalar> last = model.prefill_last(all.subspan(first), again);
      if (first < 70)
        CHECK(same_bits(last, Logits<Scalar>(alone.logits.bottomRows(1))));
      else
        CHECK((last.rows() == 1 && last.isZero(0)));  // a call without tokens
      CHECK((bits_of(again) == bits_of(alone.state)));
    }
  });
}

TEST_CASE("model: threads give the same bits") {
  for_each_model([&]<class Scalar>(const LanguageModel<Scalar>& model) {
    const auto tokens = random_tokens(2 * 40, model.vocabulary());
    auto serial = model.initial_state(2);
    const Logits<Scalar> expected = model.prefill(tokens, serial);
    Workspace workspace;
    for (const Index threads : {2, 7}) {
      const ThreadExecutor executor{threads};
      auto state = model.initial_state(2), again = state;
      CHECK(same_bits(model.prefill(tokens, state, {}, executor), expected));
      CHECK((bits_of(state) == bits_of(serial)));
      const Logits<Scalar> last = model.prefill_last(tokens, again, {.workspace = &workspace}, executor);
      CHECK(same_bits(Logits<Scalar>(last.row(1)), Logits<Scalar>(expected.bottomRows(1))));
      CHECK((bits_of(again) == bits_of(serial)));
      // One token of each sequence, as in a step.
      auto stepped = serial;
      const auto two = std::span(tokens).first(2);
      const Logits<Scalar> next = model.step(two, stepped);
      CHECK(same_bits(model.prefill(two, state, {.workspace = &workspace}, executor), next));
      CHECK((bits_of(state) == bits_of(stepped)));
    }
  });
}

TEST_CASE("model: ragged, masked and packed batches are their sequences alone") {
  for_each_model([&]<class Scalar>(const LanguageModel<Scalar>& model) {
    const Index T = 66;
    const std::vector<Index> lengths{13, 0, T};
    std::vector<std::vector<TokenId>> sequences;
    std::vector<Alone<Scalar>> alone;
    for (std::size_t s = 0; s < 3; ++s) {
      sequences.push_back(random_tokens(lengths[s], model.vocabulary(), 10 + s));
      alone.emplace_back(model, sequences.back());
    }
    const auto check = [&](const std::vector<TokenId>& tokens, const SequenceLayout& layout,
                           auto&& row_of_token) {  // (s, t), t of the sequence
      auto state = model.initial_state(3);
      const Logits<Scalar> logits = model.prefill(tokens, state, {.layout = layout});
      Logits<Scalar> expected = Logits<Scalar>::Zero(static_cast<Index>(tokens.size()), model.vocabulary());
      Logits<Scalar> last = Logits<Scalar>::Zero(3, model.vocabulary());
      for (Index s = 0; s < 3; ++s) {
        const auto& own = alone[static_cast<std::size_t>(s)];
        for (Index t = 0; t < lengths[static_cast<std::size_t>(s)]; ++t)
          last.row(s) = expected.row(row_of_token(s, t)) = own.logits.row(t);
        CHECK(state.position(s) == lengths[static_cast<std::size_t>(s)]);
        CHECK((bits_of(state, s) == bits_of(own.state)));
      }
      CHECK(same_bits(logits, expected));
      auto again = model.initial_state(3);
      CHECK(same_bits(model.prefill_last(tokens, again, {.layout = layout}), last));
      CHECK((bits_of(again) == bits_of(state)));
    };
    // Padding may be anything, tokens outside the vocabulary too.
    std::vector<TokenId> right(static_cast<std::size_t>(3 * T), outside), left = right, packed;
    std::vector<std::uint8_t> mask(right.size(), 0);
    for (std::size_t s = 0; s < 3; ++s) {
      const auto begin = static_cast<std::ptrdiff_t>(s) * T;
      const auto shift = begin + T - lengths[s];
      std::copy(sequences[s].begin(), sequences[s].end(), right.begin() + begin);
      std::copy(sequences[s].begin(), sequences[s].end(), left.begin() + shift);
      std::fill_n(mask.begin() + shift, lengths[s], std::uint8_t{1});
      packed.insert(packed.end(), sequences[s].begin(), sequences[s].end());
    }
    const std::vector<Index> offsets{0, 13, 13, 13 + T};
    {
      INFO("ragged");
      check(right, SequenceLayout::with_lengths(lengths), [&](Index s, Index t) { return s * T + t; });
    }
    {
      INFO("left-padded");
      check(left, SequenceLayout::with_mask(mask),
            [&](Index s, Index t) { return s * T + T - lengths[static_cast<std::size_t>(s)] + t; });
    }
    {
      INFO("packed");
      check(packed, SequenceLayout::packed(offsets),
            [&](Index s, Index t) { return offsets[static_cast<std::size_t>(s)] + t; });
    }
  });
}

TEST_CASE("model: more sequences than a chunk has rows, and none") {
  for_each_model([&]<class Scalar>(const LanguageModel<Scalar>& model) {
    const Index B = 67, T = 2;
    const auto tokens = random_tokens(B * T, model.vocabulary(), 3);
    auto state = model.initial_state(B), whole = model.initial_state(B);
    const Logits<Scalar> prefilled = model.prefill(tokens, whole);
    std::vector<Logits<Scalar>> stepped;
    for (Index t = 0; t < T; ++t) {
      std::vector<TokenId> now;
      for (Index s = 0; s < B; ++s) now.push_back(tokens[static_cast<std::size_t>(s * T + t)]);
      stepped.push_back(model.step(now, state));
    }
    CHECK((bits_of(state) == bits_of(whole)));
    for (const Index s : {0, 1, 63, 64, 66}) {
      const Alone<Scalar> alone(model, std::span(tokens).subspan(static_cast<std::size_t>(s * T), T));
      CHECK(same_bits(alone.logits, Logits<Scalar>(prefilled.middleRows(s * T, T))));
      for (Index t = 0; t < T; ++t)
        CHECK(same_bits(Logits<Scalar>(alone.logits.row(t)),
                        Logits<Scalar>(stepped[static_cast<std::size_t>(t)].row(s))));
      CHECK((bits_of(alone.state) == bits_of(state, s)));
    }
    auto none = model.initial_state(0);
    CHECK(model.prefill({}, none).rows() == 0);
    CHECK(model.step({}, none).rows() == 0);
    CHECK(model.prefill_last({}, none).rows() == 0);
  });
}

TEST_CASE("model: tokens outside the vocabulary are refused, and nothing has changed") {
  const auto model = load_double(as_checkpoint(recipe("fla gla").files));
  auto state = model.initial_state(2);
  model.prefill(random_tokens(6, 24), state);
  const auto before = bits_of(state);
  for (const TokenId bad :
       {-1, 24, std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min()}) {
    const std::vector<TokenId> tokens{0, 1, 2, 3, bad, 5};
    const std::string text = "tokens[1, 1]: expected 0 to 23, got " + std::to_string(bad);
    CHECK(error_text<ValueError>([&] { model.prefill(tokens, state); }) == text);
    CHECK(error_text<ValueError>([&] { model.prefill_last(tokens, state); }) == text);
    CHECK(error_text<ValueError>([&] { model.validate(tokens, state); }) == text);
    CHECK(error_text<ValueError>([&] { model.step(std::span(tokens).subspan(3, 2), state); }) ==
          "tokens[1, 0]: expected 0 to 23, got " + std::to_string(bad));
    const std::vector<Index> offsets{0, 2, 6};
    CHECK(error_text<ValueError>([&] {
            model.prefill(tokens, state, {.layout = SequenceLayout::packed(offsets)});
          }) == "tokens[0, 4]: expected 0 to 23, got " + std::to_string(bad));
    const std::vector<Index> lengths{3, 2};
    CHECK_THROWS_AS(model.validate(tokens, state, SequenceLayout::with_lengths(lengths)), ValueError);
    const std::vector<Index> shorter{3, 1};
    CHECK_NOTHROW(model.validate(tokens, state, SequenceLayout::with_lengths(shorter)));
  }
  CHECK(error_text<ShapeError>([&] { model.prefill(std::vector<TokenId>(5, 0), state); }) ==
        "tokens: expected a multiple of the 2 sequences of the state, got 5");
  // A step takes one token of each sequence, not a multiple of them, and not none.
  for (const std::size_t count : std::vector<std::size_t>{0, 1, 3, 4})
    CHECK(error_text<ShapeError>([&] { model.step(std::vector<TokenId>(count, 0), state); }) ==
          "tokens: expected one for each of the 2 sequences of the state, got " + std::to_string(count));
  std::vector<double> numbers(2 * 3 * 24, 7);
  CHECK_THROWS_AS(model.prefill(std::vector<TokenId>(6, 0), state, {numbers.data(), 2, 3, 1, 23}),
                  ShapeError);
  CHECK_THROWS_AS(model.prefill_last(std::vector<TokenId>(6, 0), state, {numbers.data(), 2, 3, 1, 24}),
                  ShapeError);
  const std::vector<Index> offsets{0, 1, 2, 6};
  CHECK(error_text<ShapeError>([&] {
          model.prefill(std::vector<TokenId>(6, 0), state, {.layout = SequenceLayout::packed(offsets)});
        }) == "state: expected 3 sequences, got 2");
  CHECK((bits_of(state) == before));
  CHECK(std::count(numbers.begin(), numbers.end(), 7.0) == 2 * 3 * 24);
}

}  // namespace linrec::test::batch_test
