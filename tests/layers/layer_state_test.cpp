// LayerState and what it is made of: a value, whose every part counts.
#include "linrec/layers/layer_state.hpp"

#include "linrec/core/state_marks.hpp"
#include "linrec/layers/packed_rows.hpp"
#include "tests/catch.hpp"
#include "tests/layers/any_layer.hpp"

namespace linrec::test::layer_state_test {

namespace {

const LayerStateShape with_all{"test", Dims<>(2, 3, 5), {{"conv", 3, 7}, {"shift", 1, 4}}},
    with_windows{"windows", {}, {{"shift", 1, 4}}}, with_ska{"ska", {}, {{"shift", 1, 4}}, SkaShape{2, 3, 5}};

/// A change of one number; undone by another call with -change.
using Change = std::function<void(LayerState<float>&)>;

std::vector<Change> changes() {
  std::vector<Change> all;
  all.push_back([](LayerState<float>& s) { s.set_position(1, s.position(1) + 1); });
  for (const Index head : {0, 1})
    all.push_back([head](LayerState<float>& s) {
      auto S = s.recurrent().matrix(1, head);
      S(2, 4) += 1;
      s.recurrent().set_matrix(1, head, S);
    });
  all.push_back([](LayerState<float>& s) { s.window(0).row(1, 2)[6] += 1; });
  all.push_back([](LayerState<float>& s) { s.window(1).row(0, 0)[0] += 1; });
  return all;
}

}  // namespace

TEST_CASE("LayerState: copies are independent, and every part of it counts") {
  LayerState<float> state(with_all, 2);
  for (const Change& change : changes()) change(state);
  for (const Change& change : changes()) {
    LayerState<float> fork = state;
    CHECK(fork == state);
    change(fork);
    CHECK(!(fork == state));
    LayerState<float> assigned(with_all, 2);
    CHECK(!(assigned == state));
    assigned = fork;
    CHECK(assigned == fork);
    CHECK(!(assigned == state));
  }
  CHECK(!(LayerState<float>(with_all, 2) == LayerState<float>(with_all, 3)));
  CHECK(!(LayerState<float>(with_all, 2) == LayerState<float>(with_windows, 2)));
  LayerStateShape renamed = with_all;
  renamed.layer = "another";
  CHECK(!(LayerState<float>(with_all, 2) == LayerState<float>(renamed, 2)));
  // Scratch memory is nothing that a state remembers.
  CHECK(LayerState<float>(with_all, 2, 100) == LayerState<float>(with_all, 2));
}

TEST_CASE("LayerState: reset is of one sequence") {
  LayerState<float> state(with_all, 2);
  for (const Change& change : changes()) change(state);
  const LayerState<float> before = state;
  state.reset(1);
  CHECK(state.position(1) == 0);
  CHECK(state.recurrent().matrix(1, 0).isZero(0));
  CHECK(state.window(0).row(1, 2)[6] == 0);
  CHECK(state.window(1).row(0, 0)[0] == 1);
  CHECK(!(state == before));
  state.reset(0);
  CHECK(state == LayerState<float>(with_all, 2));
}

TEST_CASE("LayerState: statistics of SKA are a part like any other, and keep the position") {
  LayerState<float> state(with_ska, 2);
  state.set_position(1, 7);
  CHECK(state.position(1) == 7);
  CHECK(state.ska().position(1) == 7);
  CHECK(state.ska().position(0) == 0);
  const LayerState<float> before = state;
  const double key[] = {1, 2, 3}, value[] = {1, 2, 3, 4, 5};
  SkaStatistics sums(3, 5);
  sums.add(std::span<const double>(key), std::span<const double>(value));
  state.ska().set_statistics(1, 1, sums);
  CHECK(!(state == before));
  LayerState<float> fork = state;
  CHECK(fork == state);
  fork.reset(1);
  CHECK(fork == LayerState<float>(with_ska, 2));
  fork = state;
  fork.window(0).row(1, 0)[3] = 1;
  CHECK(!(fork == state));
  CHECK(!(LayerState<float>(with_ska, 2) == LayerState<float>(with_windows, 2)));
}

TEST_CASE("LayerState: sizes, texts and what it refuses") {
  CHECK(with_all.text() == "test [2, 3, 5] conv [3, 7] shift [1, 4]");
  CHECK(with_windows.text() == "windows shift [1, 4]");
  CHECK(LayerState<float>(with_all).bytes_per_sequence() == 4 * (2 * 3 * 5 + 3 * 7 + 4) + 8);
  CHECK(LayerState<double>(with_all, 10).bytes_per_sequence() == 8 * (2 * 3 * 5 + 3 * 7 + 4) + 8);
  CHECK(LayerState<float>(with_windows).bytes_per_sequence() == 4 * 4 + 8);
  CHECK(with_ska.text() == "ska shift [1, 4] [2, 3, 5] sequence_max");
  CHECK(LayerState<float>(with_ska).bytes_per_sequence() ==
        4 * 4 + 8 * 2 * (2 * 3 * 3 + 5 * 3 + 2 * 3 + 1) + 8);
  for (const LayerStateShape& shape : {with_all, with_windows, with_ska}) {
    LayerState<float> state(shape, 2);
    for (const Index s : {-1, 2}) {
      const auto says = message_contains(message("sequence: expected one of 2 counted from 0, got ", s));
      REQUIRE_THROWS_MATCHES(state.position(s), ValueError, says);
      REQUIRE_THROWS_MATCHES(state.set_position(s, 1), ValueError, says);
      REQUIRE_THROWS_MATCHES(state.reset(s), ValueError, says);
    }
    for (const std::int64_t position : {std::int64_t{-1}, (std::int64_t{1} << 53) + 1})
      REQUIRE_THROWS_MATCHES(state.set_position(0, position), ValueError,
                             message_contains(message("position: expected 0 to 2^53, got ", position)));
    state.set_position(0, std::int64_t{1} << 53);
    CHECK(state.position(0) == std::int64_t{1} << 53);
    CHECK(state.position(1) == 0);
  }
  LayerState<float> state(with_windows);
  REQUIRE_THROWS_MATCHES(state.recurrent(), ShapeError,
                         message_contains("state: windows has no recurrent state"));
  REQUIRE_THROWS_MATCHES(state.ska(), ShapeError,
                         message_contains("state: windows has no statistics of SKA"));
  REQUIRE_THROWS_MATCHES(LayerState<float>(with_all, -2), ValueError,
                         message_contains("sequences: expected at least 0, got -2"));
  CHECK(LayerState<float>(with_all, 0) == LayerState<float>(with_all, 0));
}

TEST_CASE("layers: mark, decode, return and go on gives the same bits") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    const LayerInputs prompt = random_layer_inputs(layer, 2, 10, 1),
                      taken = random_layer_inputs(layer, 2, 5, 2),
                      guess = random_layer_inputs(layer, 2, 7, 3);
    AnyLayerState straight = layer.initial_state(2);
    prefill(layer, prompt, straight);
    const LayerOutputs expected = steps(layer, taken, straight);

    AnyLayerState state = layer.initial_state(2);
    StateMarks<AnyLayerState> marks(2);
    prefill(layer, prompt, state);
    marks.mark(state);
    steps(layer, guess, state);
    marks.mark(state);
    prefill(layer, guess, state);
    marks.restore(state, 1);
    CHECK(state.position(1) == 10);
    const AnyLayerState fork = state;
    CHECK(difference(steps(layer, taken, state), expected) == "");
    CHECK(same_bits(state.numbers(), straight.numbers()));
    CHECK(state == straight);
    // The fork has seen none of it.
    CHECK(fork == marks.at(0));
    CHECK(!(fork == state));
  }
}

TEST_CASE("layers: a sequence that is reset starts afresh, beside one that goes on") {
  for (const LayerSpec& spec : all_layers()) {
    INFO(spec.name);
    const AnyLayer layer(spec);
    AnyLayerState state = random_layer_state(layer, 2, 4), other = layer.initial_state(2);
    state.reset(0);
    other.set_sequence(1, state, 1);
    CHECK(state == other);
    const LayerInputs inputs = random_layer_inputs(layer, 2, 6, 5);
    AnyLayerState fresh = layer.initial_state();
    const std::vector<std::array<Index, 2>> first{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}};
    CHECK(difference(prefill(layer, inputs, state).gather(first),
                     prefill(layer, inputs.gather(first), fresh)) == "");
  }
}

TEST_CASE("Window: the last inputs, however they come") {
  for (const Index rows : {1, 2, 4, 7}) {
    Window<double> window(2, rows, 3);
    std::vector<double> all(static_cast<std::size_t>(rows * 3), 0);  // of sequence 1, with zeros before
    Random random(static_cast<std::uint64_t>(rows));
    for (int piece = 0; piece < 40; ++piece) {
      const Index other = random.integer(0, 2), n = random.integer(0, 9);
      std::vector<double> x;
      for (Index i = 0; i < (other + n) * 3; ++i) x.push_back(random.uniform(-1, 1));
      all.insert(all.end(), x.begin() + other * 3, x.end());
      const std::vector<Index> offsets{0, other, other + n}, source(static_cast<std::size_t>(other + n));
      window.push(PackedRows{offsets, source}, Rows<const double>{x.data(), other + n, 3, 3});
      for (Index i = 0; i < rows; ++i)
        CHECK(std::equal(window.row(1, i), window.row(1, i) + 3, all.end() - (rows - i) * 3));
    }
  }
}

TEST_CASE("RowPacker: every real token once, in order, in chunks that are full but for the last") {
  std::vector<Batch> batches{Batch::dense(1, 200),
                             Batch::dense(3, 64),
                             Batch::dense(150, 1),
                             Batch::dense(0, 7),
                             Batch::with_lengths(70, {70, 0, 64, 1, 63, 0, 0}),
                             Batch::packed({0, 0, 64, 64, 65, 200, 200}),
                             Batch::packed({0}),
                             Batch::packed({0, 0})};
  std::vector<std::uint8_t> mask;
  Random random(1);
  for (Index i = 0; i < 3 * 90; ++i) mask.push_back(static_cast<std::uint8_t>(random.integer(0, 1)));
  batches.push_back(Batch::with_mask(90, mask));
  for (const Batch& batch : batches) {
    RowPacker packer(batch.count());
    for (int again = 0; again < 2; ++again) {  // it keeps nothing between calls
      std::vector<std::vector<std::array<Index, 2>>> seen(batch.sequences.size());
      std::vector<Index> sizes;
      packer.for_each_chunk(batch.layout(), batch.tokens, [&](const PackedRows& rows) {
        sizes.push_back(rows.count());
        REQUIRE(rows.sequences() == batch.count());
        CHECK(rows.first(0) == 0);
        for (Index s = 0; s < rows.sequences(); ++s)
          for (Index i = 0; i < rows.count(s); ++i) {
            const Index token = rows.token(rows.first(s) + i);
            seen[static_cast<std::size_t>(s)].push_back({token / batch.tokens, token % batch.tokens});
          }
        CHECK(rows.first(rows.sequences()) == rows.count());
        CHECK(rows.layout().sequences(1) == batch.count());
      });
      CHECK(seen == batch.sequences);
      for (std::size_t i = 0; i < sizes.size(); ++i)
        CHECK((i + 1 < sizes.size() ? sizes[i] == chunk_rows : sizes[i] > 0 && sizes[i] <= chunk_rows));
    }
  }
}

}  // namespace linrec::test::layer_state_test
