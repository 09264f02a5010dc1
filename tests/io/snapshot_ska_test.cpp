// Snapshots of SKA: what follows is, bit for bit, what an unbroken run gives; the layout of the file; and
// what no state can have.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "linrec/io/snapshot.hpp"
#include "linrec/ska/retrieval.hpp"
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tests/io/snapshot_helpers.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test::snapshot_ska_test {

namespace {

constexpr Index B = 2;

using Attention = SpectralKoopmanAttention<float>;

std::vector<SpectralKoopmanAttentionConfig> configs() {
  using Config = SpectralKoopmanAttentionConfig;
  return {Config{.heads = 2, .key = 9, .value = 5},
          Config{.heads = 1, .key = 24, .value = 3, .visibility = Visibility::exclusive},
          Config{.heads = 2, .key = 4, .value = 9, .koopman_operator = KoopmanOperator::unwhitened},
          Config{.heads = 2,
                 .key = 5,
                 .value = 4,
                 .key_scale = KeyScale::unit_norm,
                 .koopman_operator = KoopmanOperator::unwhitened,
                 .visibility = Visibility::earlier_chunks,
                 .chunk = 8,
                 .boundary_transition = true},
          Config{.heads = 2, .key = 5, .value = 4, .ridge = 1e-16}};  // on the brink
}

/// Random tokens [B, T, ...], the same for the same seed; the first key is the longest.
struct Sequence {
  Sequence(const SpectralKoopmanAttentionConfig& c, Index T, std::uint64_t seed) : config(c), tokens(T) {
    Random random(seed);
    const auto fill = [&](std::vector<float>& numbers, Index dim) {
      numbers.resize(static_cast<std::size_t>(B * T * c.heads * dim));
      for (float& x : numbers) x = static_cast<float>(random.uniform(-1, 1));
    };
    fill(q, c.key), fill(k, c.key), fill(v, c.value);
    for (Index b = 0; b < B; ++b)
      for (Index i = 0; i < c.heads * c.key; ++i)
        k[static_cast<std::size_t>(b * T * c.heads * c.key + i)] = 1;
  }
  SpectralKoopmanAttentionInputs<float> slice(Index first, Index n) const {
    const auto view = [&](const std::vector<float>& numbers, Index dim) {
      return TokenView<const float>(numbers.data(), B, tokens, config.heads, dim).slice(first, n);
    };
    return {view(q, config.key), view(k, config.key), view(v, config.value)};
  }

  SpectralKoopmanAttentionConfig config;
  Index tokens;
  std::vector<float> q, k, v;
};

std::vector<float> prefill(const Attention& attention, const Sequence& sequence, Index first, Index n,
                           SkaState& state) {
  std::vector<float> y(static_cast<std::size_t>(B * n * attention.config().heads * attention.config().value));
  attention.prefill(sequence.slice(first, n), state,
                    {y.data(), B, n, attention.config().heads, attention.config().value});
  return y;
}

/// A state of the same shape that has seen something else.
template <class S>
S dirty(S state, const Attention& attention) {
  SkaState other = attention.initial_state(B);
  prefill(attention, Sequence(attention.config(), 70, 9), 0, 70, other);
  if constexpr (std::is_same_v<S, SkaState>)
    state = other;
  else
    state.ska() = other;
  return state;
}

SkaState& ska_of(SkaState& state) { return state; }
template <class Scalar>
SkaState& ska_of(LayerState<Scalar>& state) {
  return state.ska();
}

/// Goes on from a snapshot that was taken after so many tokens.
template <class S>
void check_goes_on(const Attention& attention, const S& initial, Index after) {
  INFO("after " << after << " tokens");
  const Sequence sequence(attention.config(), after + 80, 1);
  S unbroken = initial;
  prefill(attention, sequence, 0, after, ska_of(unbroken));
  const Bytes bytes = io::snapshot_bytes(unbroken);
  S loaded = dirty(initial, attention);
  io::load_snapshot_bytes(bytes, loaded);
  CHECK(loaded == unbroken);
  CHECK(loaded.position(1) == after);
  CHECK(io::snapshot_bytes(loaded) == bytes);
  CHECK(prefill(attention, sequence, after, 80, ska_of(loaded)) ==
        prefill(attention, sequence, after, 80, ska_of(unbroken)));
  CHECK(io::snapshot_bytes(loaded) == io::snapshot_bytes(unbroken));
}

}  // namespace

TEST_CASE("snapshot of SKA: it goes on as if nothing had been") {
  for (const SpectralKoopmanAttentionConfig& config : configs()) {
    const Attention attention(config);
    INFO(attention.state_shape().text());
    const LayerStateShape shape{"ska", {}, {{"shift", 1, 3}}, attention.state_shape()};
    for (const Index after : {0, 7, 8, 65}) {
      check_goes_on(attention, attention.initial_state(B), after);
      if (after >= 8) check_goes_on(attention, LayerState<float>(shape, B), after);
    }
    check_goes_on(attention, LayerState<double>(shape, B), 20);
    const SkaState none = attention.initial_state(0);
    SkaState target = none;
    io::load_snapshot_bytes(io::snapshot_bytes(none), target);
    CHECK(target == none);
  }
}

TEST_CASE("snapshot of SKA: queries without an answer are remembered, and why") {
  const Attention attention({.heads = 2, .key = 5, .value = 4, .ridge = 1e-17});  // lost to rounding
  SkaState state = attention.initial_state(B), loaded = state;
  prefill(attention, Sequence(attention.config(), 20, 1), 0, 20, state);
  io::load_snapshot_bytes(io::snapshot_bytes(state), loaded);
  CHECK(state.failures(1, 1) == 20);
  CHECK(state.status(1, 1) == FactorStatus::not_positive_definite);
  for (Index h = 0; h < 2; ++h) {
    CHECK(loaded.failures(1, h) == state.failures(1, h));
    CHECK(loaded.status(1, h) == state.status(1, h));
  }
  loaded.reset(1);
  CHECK(loaded.failures(1, 1) == 0);
}

TEST_CASE("snapshot of SKA: a segment can still be merged, and be merged into") {
  const Attention attention(configs().front());
  const Sequence sequence(attention.config(), 30, 2);
  SkaState first = attention.initial_state(B), second = first, loaded_first = first, loaded_second = first;
  prefill(attention, sequence, 0, 11, first);
  prefill(attention, sequence, 11, 19, second);
  io::load_snapshot_bytes(io::snapshot_bytes(first), loaded_first);
  io::load_snapshot_bytes(io::snapshot_bytes(second), loaded_second);
  for (Index s = 0; s < B; ++s) {
    first.merge(s, second, s);
    loaded_first.merge(s, loaded_second, s);
  }
  CHECK(loaded_first == first);
  CHECK(first.position(0) == 30);
  CHECK(loaded_second.statistics(1, 0).first_key() == second.statistics(1, 0).first_key());
  const Bytes merged = io::snapshot_bytes(first);
  io::load_snapshot_bytes(merged, loaded_second);
  CHECK(loaded_second == first);
}

TEST_CASE("snapshot of SKA: what lies in the file") {
  const SkaShape shape{.heads = 1, .key = 2, .value = 3, .chunk = 4};
  LayerState<float> state({"ska", {}, {}, shape}, 2);
  SkaStatistics sums(2, 3);
  const auto add = [&](std::vector<double> key, std::vector<double> value) {
    sums.add(std::span<const double>(key), std::span<const double>(value));
  };
  add({1, 2}, {1, 0, 0});
  add({3, -4}, {0, 1, 2});
  state.ska().set_statistics(1, 0, sums);
  state.set_position(1, 2);
  const auto file = io::SafetensorsFile::from_bytes(io::snapshot_bytes(state), "f");
  CHECK(file.metadata().at("linrec.scalar") == "F32");
  CHECK(file.metadata().at("state.shape") == "ska [1, 2, 3] sequence_max chunk 4");
  std::vector<std::string> names{"state.position", "state.ska.failures"};
  const auto check = [&](const std::string& name, io::DataType type, std::vector<Index> extents,
                         const std::vector<double>& right) {
    INFO(name);
    for (const std::string prefix : {"state.ska.", "state.ska.past."}) {
      const io::Tensor tensor = file.tensor(prefix + name);
      std::vector<Index> expected{2, 1};
      expected.insert(expected.end(), extents.begin(), extents.end());
      CHECK(tensor.type == type);
      CHECK(tensor.shape == expected);
      const std::vector<double> numbers = tensor.to<double>();
      if (prefix == "state.ska.")
        CHECK(std::vector<double>(numbers.end() - static_cast<std::ptrdiff_t>(right.size()), numbers.end()) ==
              right);
      names.push_back(prefix + name);
    }
  };
  using enum io::DataType;
  check("G", F64, {3}, {10, -10, 20});
  check("M", F64, {2, 2}, {3, 6, -4, -8});
  check("Cv", F64, {3, 2}, {1, 2, 3, -4, 6, -8});
  check("last_key", F64, {2}, {3, -4});
  check("first_key", F64, {2}, {1, 2});
  check("max_norm", F64, {}, {5});
  check("tokens", I64, {}, {2});
  check("empty", I64, {}, {0});
  check("factor.W", F64, {3}, {0, 0, 0});
  check("factor.status", I64, {}, {0});
  for (const char* name : {"factor.eps", "factor.ridge", "factor.residual"}) check(name, F64, {}, {0});
  for (const char* name : {"factor.updates", "factor.unread"}) check(name, I64, {}, {0});
  std::sort(names.begin(), names.end());
  std::vector<std::string> all = file.names();
  std::sort(all.begin(), all.end());
  CHECK(all == names);

  // W whitens G~.
  SpectralKoopmanAttention<double> attention({.heads = 1, .key = 2, .value = 3});
  SkaState whitened = attention.initial_state();
  whitened.set_statistics(0, 0, sums);
  double q[2] = {1, 1}, y[3];
  attention.retrieve({q, 1, 1, 1, 2}, whitened, {y, 1, 1, 1, 3});
  const auto w = io::SafetensorsFile::from_bytes(io::snapshot_bytes(whitened), "f")
                     .tensor("state.ska.factor.W")
                     .to<double>();
  CHECK(std::abs(w[0] - 1 / std::sqrt(10 + 25e-3)) < 1e-15);
}

namespace {

Bytes plain_ska_snapshot() {
  const Attention attention({.heads = 1, .key = 2, .value = 3});
  SkaState state = attention.initial_state(B);
  prefill(attention, Sequence(attention.config(), 5, 1), 0, 5, state);
  return io::snapshot_bytes(state);
}

/// The text with which a snapshot that was changed like this is refused; the target must not have changed.
std::string refusal_after(const std::function<void(Contents&)>& change) {
  Contents contents = contents_of(plain_ska_snapshot());
  change(contents);
  const Attention attention({.heads = 1, .key = 2, .value = 3});
  SkaState target = dirty(attention.initial_state(B), attention);
  const Bytes before = io::snapshot_bytes(target);
  const std::string text =
      error_text<FormatError>([&] { io::load_snapshot_bytes(sealed(contents), target); });
  CHECK((io::snapshot_bytes(target) == before) == (text != "(nothing was thrown)"));
  return text;
}
std::string refusal_of(const std::string& tensor, double value) {
  return refusal_after([&](Contents& c) { c.tensors.at("state.ska." + tensor).values[1] = value; });
}

}  // namespace

TEST_CASE("snapshot of SKA: numbers that no state can have") {
  const std::string loaded = "(nothing was thrown)";
  CHECK(refusal_after([](Contents&) {}) == loaded);
  const auto expected = [](const std::string& tensor, const std::string& text) {
    return "file '(memory)': tensor 'state.ska." + tensor + "': sequence 1, head 0: expected " + text;
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                   infinity = std::numeric_limits<double>::infinity();
  for (const char* name : {"tokens", "factor.updates", "factor.unread", "failures"}) {
    CHECK(refusal_of(name, -1) == expected(name, "0 to 9007199254740992, got -1"));
    CHECK(refusal_of(name, 9007199254740994.0) ==
          expected(name, "0 to 9007199254740992, got 9007199254740994"));
    CHECK(refusal_of(name, 9007199254740992.0) == loaded);
  }
  for (const double status : {-1.0, 4.0, 1e18})
    CHECK(refusal_of("factor.status", status) ==
          expected("factor.status", message("0 to 3, got ", static_cast<std::int64_t>(status))));
  for (const double status : {0.0, 1.0, 2.0, 3.0}) CHECK(refusal_of("factor.status", status) == loaded);
  CHECK(refusal_of("empty", 2) == expected("empty", "0 to 1, got 2"));
  CHECK(refusal_of("empty", -1) == expected("empty", "0 to 1, got -1"));
  for (const char* name : {"max_norm", "factor.eps", "factor.ridge", "factor.residual"}) {
    CHECK_THAT(refusal_of(name, nan), contains(expected(name, "at least 0, got ")) && contains("nan"));
    CHECK(refusal_of(name, -0.5) == expected(name, "at least 0, got -0.5"));
    CHECK(refusal_of(name, infinity) == loaded);  // keys that overflow make it so
  }
  // Sums are what they are: a layer lets NaN through to its own sequence.
  for (const char* name : {"G", "M", "Cv", "last_key", "first_key", "factor.W"})
    CHECK(refusal_of(name, nan) == loaded);
  CHECK(refusal_after([](Contents& c) { c.tensors.at("state.position").values[1] = -1; }) ==
        "file '(memory)': tensor 'state.position': sequence 1: position: expected 0 to 2^53, got -1");
}

TEST_CASE("snapshot of SKA: tensors of another type or shape, missing, or too many") {
  for (const char* name : {"state.ska.G", "state.ska.factor.W", "state.ska.factor.status"})
    CHECK_THAT(refusal_after([&](Contents& c) { c.tensors.erase(name); }),
               contains("has no tensor '" + std::string(name) + "'"));
  CHECK(
      refusal_after([](Contents& c) { c.tensors.at("state.ska.factor.updates").type = io::DataType::F64; }) ==
      "file '(memory)': tensor 'state.ska.factor.updates': expected I64 [S, H] = [2, 1], got F64 [2, 1]");
  CHECK(refusal_after([](Contents& c) { c.tensors.at("state.ska.M").type = io::DataType::F32; }) ==
        "file '(memory)': tensor 'state.ska.M': expected F64 [S, H, r, r] = [2, 1, 2, 2], got F32 [2, 1, 2, "
        "2]");
  CHECK_THAT(refusal_after([](Contents& c) {
               c.tensors.at("state.ska.G").shape = {2, 3};
             }),
             contains("'state.ska.G': expected F64 [S, H, r (r + 1) / 2] = [2, 1, 3], got F64 [2, 3]"));
  CHECK_THAT(refusal_after([](Contents& c) { c.tensors["state.ska.past.G"] = c.tensors.at("state.ska.G"); }),
             contains("tensor 'state.ska.past.G': belongs to none of the 1 expected states"));
}

TEST_CASE("snapshot of SKA: the state of something else") {
  const Bytes bytes = plain_ska_snapshot();
  const auto refusal_by = [&](auto target) {
    return error_text<FormatError>([&] { io::load_snapshot_bytes(bytes, target); });
  };
  const SkaShape same{.heads = 1, .key = 2, .value = 3};
  CHECK(refusal_by(SkaState(same, B)) == "(nothing was thrown)");
  std::vector<SkaShape> others(5, same);
  others[0].heads = 2, others[1].key = 3, others[2].value = 2, others[3].chunk = 8;
  others[4].scale = KeyScale::none;
  for (const SkaShape& other : others)
    CHECK(refusal_by(SkaState(other, B)) == "file '(memory)': metadata 'state.shape': expected 'ska_state " +
                                                other.text() + "', got 'ska_state [1, 2, 3] sequence_max'");
  CHECK_THAT(refusal_by(SkaState(same, 3)),
             contains("'state.position': expected I64 [S] = [3], got I64 [2]"));
  CHECK_THAT(refusal_by(LayerState<double>({"ska", {}, {}, same}, B)),
             contains("expected 'ska [1, 2, 3] sequence_max', got 'ska_state [1, 2, 3] sequence_max'"));
}

TEST_CASE("snapshot of SKA: any flipped bit is refused, and any length but the whole") {
  const Bytes whole = plain_ska_snapshot();
  SkaState target({.heads = 1, .key = 2, .value = 3}, B);
  const SkaState before = target;
  const auto loads = [&](const Bytes& bytes) {
    return error_text<FormatError>([&] { io::load_snapshot_bytes(bytes, target); }) == "(nothing was thrown)";
  };
  Bytes bytes = whole;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{1} << (i % 8);
    REQUIRE(!loads(bytes));
    bytes[i] = whole[i];
    REQUIRE(!loads(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i))));
  }
  CHECK(target == before);
}

}  // namespace linrec::test::snapshot_ska_test
