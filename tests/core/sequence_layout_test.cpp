#include "linrec/core/sequence_layout.hpp"

#include <array>
#include <vector>

#include "tests/catch.hpp"

namespace linrec::test::sequence_layout_test {

namespace {

using Runs = std::vector<std::array<Index, 3>>;  // row, first, count

Runs runs(const SequenceLayout& layout, Index sequence, Index tokens) {
  Runs all;
  layout.for_each_run(sequence, tokens, [&](Index row, Index first, Index count) {
    all.push_back({row, first, count});
  });
  return all;
}
Runs padding(const SequenceLayout& layout, Index sequence, Index tokens) {
  Runs all;
  layout.for_each_padding(sequence, tokens, [&](Index row, Index first, Index count) {
    all.push_back({row, first, count});
  });
  return all;
}

template <class Numbers>
void check_refuses(SequenceLayout (*make)(Numbers), Numbers numbers, Index batch, Index tokens,
                   const char* text) {
  REQUIRE_THROWS_MATCHES(make(numbers).check(batch, tokens), ShapeError, message_contains(text));
}

}  // namespace

TEST_CASE("SequenceLayout: dense") {
  const SequenceLayout layout;
  CHECK_NOTHROW(layout.check(3, 7));
  CHECK(layout.sequences(3) == 3);
  CHECK(runs(layout, 2, 7) == Runs{{2, 0, 7}});
  CHECK(padding(layout, 2, 7).empty());
  CHECK(runs(layout, 0, 0).empty());
}

TEST_CASE("SequenceLayout: lengths") {
  const std::vector<Index> lengths{3, 0, 7};
  const SequenceLayout layout = SequenceLayout::with_lengths(lengths);
  CHECK_NOTHROW(layout.check(3, 7));
  CHECK(layout.sequences(3) == 3);
  CHECK(runs(layout, 0, 7) == Runs{{0, 0, 3}});
  CHECK(padding(layout, 0, 7) == Runs{{0, 3, 4}});
  CHECK(runs(layout, 1, 7).empty());
  CHECK(padding(layout, 1, 7) == Runs{{1, 0, 7}});
  CHECK(runs(layout, 2, 7) == Runs{{2, 0, 7}});
  CHECK(padding(layout, 2, 7).empty());
  CHECK_NOTHROW(SequenceLayout::with_lengths({}).check(0, 7));
}

TEST_CASE("SequenceLayout: masks") {
  const std::vector<std::uint8_t> mask{0, 0, 1, 255, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0};
  const SequenceLayout layout = SequenceLayout::with_mask(mask);
  CHECK_NOTHROW(layout.check(3, 5));
  CHECK(layout.sequences(3) == 3);
  CHECK(runs(layout, 0, 5) == Runs{{0, 2, 3}});
  CHECK(padding(layout, 0, 5) == Runs{{0, 0, 2}});
  CHECK(runs(layout, 1, 5) == Runs{{1, 0, 1}, {1, 2, 1}, {1, 4, 1}});
  CHECK(padding(layout, 1, 5) == Runs{{1, 1, 1}, {1, 3, 1}});
  CHECK(runs(layout, 2, 5).empty());
  CHECK(padding(layout, 2, 5) == Runs{{2, 0, 5}});
}

TEST_CASE("SequenceLayout: packed") {
  const std::vector<Index> offsets{0, 0, 3, 3, 8};
  const SequenceLayout layout = SequenceLayout::packed(offsets);
  CHECK_NOTHROW(layout.check(1, 8));
  CHECK(layout.sequences(1) == 4);
  CHECK(runs(layout, 0, 8).empty());
  CHECK(runs(layout, 1, 8) == Runs{{0, 0, 3}});
  CHECK(runs(layout, 2, 8).empty());
  CHECK(runs(layout, 3, 8) == Runs{{0, 3, 5}});
  for (Index s = 0; s < 4; ++s) CHECK(padding(layout, s, 8).empty());
  const std::vector<Index> none{0};
  CHECK_NOTHROW(SequenceLayout::packed(none).check(1, 0));
  CHECK(SequenceLayout::packed(none).sequences(1) == 0);
}

TEST_CASE("SequenceLayout: what it refuses") {
  const auto lengths = [](std::vector<Index> numbers, Index batch, Index tokens, const char* text) {
    check_refuses<std::span<const Index>>(SequenceLayout::with_lengths, numbers, batch, tokens, text);
  };
  lengths({3}, 2, 7, "lengths: expected B = 2 entries, got 1");
  lengths({3, 8}, 2, 7, "lengths[1]: expected 0 to T = 7, got 8");
  lengths({-1, 3}, 2, 7, "lengths[0]: expected 0 to T = 7, got -1");

  const std::vector<std::uint8_t> mask{1, 1, 1};
  check_refuses<std::span<const std::uint8_t>>(SequenceLayout::with_mask, mask, 2, 2,
                                               "mask: expected [B, T] = [2, 2] = 4 entries, got 3");

  const auto packed = [](std::vector<Index> numbers, Index batch, Index tokens, const char* text) {
    check_refuses<std::span<const Index>>(SequenceLayout::packed, numbers, batch, tokens, text);
  };
  packed({0, 3}, 2, 3, "offsets: expected B = 1 in a packed batch, got 2");
  packed({}, 1, 3, "offsets: expected at least 1 entry, got 0");
  packed({1, 3}, 1, 3, "offsets[0]: expected 0, got 1");
  packed({0, 2, 1, 3}, 1, 3, "offsets[2]: expected at least offsets[1] = 2, got 1");
  packed({0, 2}, 1, 3, "offsets[1]: expected T = 3, got 2");
  packed({0, 4}, 1, 3, "offsets[1]: expected T = 3, got 4");
}

}  // namespace linrec::test::sequence_layout_test
