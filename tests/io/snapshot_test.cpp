// Snapshots: round trips of every bit, the layout of the file, and position with numbers (B32 of the faults).
#include "linrec/io/snapshot.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "linrec/kernels/mamba2.hpp"
#include "linrec/policy/taper.hpp"
#include "tests/catch.hpp"
#include "tests/io/safetensors_helpers.hpp"
#include "tests/io/snapshot_helpers.hpp"

namespace linrec::test::snapshot_test {

namespace {

template <class S>
void check_round_trip(S state, S fresh) {
  fill_with_all_sorts(state);
  const std::vector<std::uint64_t> expected = bits_of(state);
  const Bytes bytes = io::snapshot_bytes(state);
  CHECK(bits_of(state) == expected);
  if (state.sequences() > 0) CHECK(bits_of(fresh) != expected);
  io::load_snapshot_bytes(bytes, fresh);
  CHECK(bits_of(fresh) == expected);
  CHECK(io::snapshot_bytes(fresh) == bytes);

  const TemporaryDirectory directory;
  io::save_snapshot(directory / "state", state);
  CHECK(file_contents(directory / "state") == bytes);
  CHECK(directory.names().size() == 1);
  for (Index s = 0; s < fresh.sequences(); ++s) fresh.reset(s);
  io::load_snapshot(directory / "state", fresh);
  CHECK(bits_of(fresh) == expected);
}

template <class Scalar, class Sizes>
void check_states(Sizes dims) {
  for (const Index sequences : {0, 1, 3})
    check_round_trip(State<Scalar, Sizes>(dims, sequences), State<Scalar, Sizes>(dims, sequences));
}

}  // namespace

TEST_CASE("snapshot: a State comes back bit for bit") {
  check_states<float>(Dims<>(2, 3, 5));
  check_states<float>(Dims<>(1, 1, 1));
  check_states<float>(Dims<>(2, 4, 35));
  check_states<float>(Dims<2, 3, 16>());
  check_states<float>(Dims<Dynamic, 3, Dynamic>(2, 3, 33));
  check_states<double>(Dims<>(2, 3, 5));
  check_states<double>(Dims<1, 2, 8>());
}

TEST_CASE("snapshot: a LayerState comes back bit for bit, with and without a recurrent part") {
  const std::vector<LayerStateShape> shapes{
      {"mamba2", Dims<>(2, 3, 5), {{"conv", 3, 21}}},
      {"rwkv7", Dims<>(1, 4, 4), {{"shift", 1, 16}, {"a b", 2, 1}}},
      {"windows", {}, {{"conv", 4, 7}, {"no rows", 0, 7}, {"no channels", 2, 0}}},
      {"recurrent", Dims<>(1, 2, 3), {}},
      {"nothing", {}, {}},
  };
  for (const LayerStateShape& shape : shapes) {
    for (const Index sequences : {0, 1, 3}) {
      check_round_trip(LayerState<float>(shape, sequences, 10), LayerState<float>(shape, sequences));
      check_round_trip(LayerState<double>(shape, sequences), LayerState<double>(shape, sequences, 3));
    }
  }
}

TEST_CASE("snapshot: what lies in the file") {
  LayerState<double> state({"mamba2", Dims<>(1, 2, 3), {{"conv", 2, 1}}}, 2);
  Eigen::Matrix<double, 2, 3> s;
  s << 1, 2, 3, 4, 5, 6;
  for (Index b = 0; b < 2; ++b) {
    state.recurrent().set_matrix(b, 0, s * std::pow(10.0, static_cast<double>(b)));
    state.set_position(b, 7 + b);
    for (Index i = 0; i < 2; ++i) *state.window(0).row(b, i) = static_cast<double>(100 * b + i);
  }
  const auto file = io::SafetensorsFile::from_bytes(io::snapshot_bytes(state), "f");
  CHECK(file.names() == std::vector<std::string>{"state.position", "state.recurrent", "state.window.conv"});
  const auto position = file.tensor("state.position"), recurrent = file.tensor("state.recurrent"),
             conv = file.tensor("state.window.conv");
  CHECK(position.type == io::DataType::I64);
  CHECK(position.shape == std::vector<Index>{2});
  CHECK(position.to<int>() == std::vector{7, 8});
  CHECK(recurrent.type == io::DataType::F64);
  CHECK(recurrent.shape == std::vector<Index>{2, 1, 2, 3});
  CHECK(recurrent.to<double>() == std::vector<double>{1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60});
  CHECK(conv.shape == std::vector<Index>{2, 2, 1});
  CHECK(conv.to<double>() == std::vector<double>{0, 1, 100, 101});
  CHECK(file.metadata() ==
        std::map<std::string, std::string>{{"linrec.snapshot", "1"},
                                           {"linrec.scalar", "F64"},
                                           {"linrec.checksum", "cb599837dabc4e72"},
                                           {"state.shape", "mamba2 [1, 2, 3] conv [2, 1]"}});
}

TEST_CASE("snapshot: what lay in the padding of the target is gone") {
  State<float> state(Dims<>(1, 2, 3)), target = state;
  fill_with_all_sorts(state);
  std::fill_n(target.panel(0, 0, 0), 2 * State<float>::lanes, std::numeric_limits<float>::quiet_NaN());
  io::load_snapshot_bytes(io::snapshot_bytes(state), target);
  CHECK(bits_of(target) == bits_of(state));
  for (Index k = 0; k < 2; ++k)
    for (Index j = 3; j < State<float>::lanes; ++j)
      CHECK(target.panel(0, 0, 0)[k * State<float>::lanes + j] == 0);
}

TEST_CASE("B32: after a snapshot, decoding goes on at the right position") {
  using Kernel = Mamba2<float, FreeSpectrum, GivenTaper>;
  const auto make = [] {
    const auto rates = Eigen::ArrayXd::Constant(1, std::log(std::log(16.0)));
    return Kernel(Dims<>(1, 1, 1), FreeSpectrum(rates), GivenTaper(Eigen::ArrayXd::Ones(1)));
  };
  const float zero = 0, one = 1;
  const TokenView<const float> x(&zero, 1, 1, 1, 1), ones(&one, 1, 1, 1, 1);
  Bytes bytes;
  {
    const Kernel kernel = make();
    State<float> state = kernel.initial_state();
    float y = 0;
    for (int t = 0; t < 3; ++t)
      kernel.step({.x = x, .dt = ones, .B = ones, .C = ones}, state, TokenView<float>(&y, 1, 1, 1, 1));
    state.set_matrix(0, 0, Eigen::Matrix<float, 1, 1>(8.0f));
    bytes = io::snapshot_bytes(state);
  }
  const Kernel kernel = make();
  State<float> state = kernel.initial_state();
  io::load_snapshot_bytes(bytes, state);
  CHECK(state.position(0) == 3);
  float y = 0;
  kernel.step({.x = x, .dt = ones, .B = ones, .C = ones}, state, TokenView<float>(&y, 1, 1, 1, 1));
  CHECK(y == 4.0f);
  CHECK(state.matrix(0, 0)(0, 0) == 4.0f);
  CHECK(state.position(0) == 4);
}

TEST_CASE("snapshot: the states of a model, under names") {
  const auto make = [] {
    return std::vector<LayerState<float>>{
        LayerState<float>({"mamba2", Dims<>(2, 3, 5), {{"conv", 3, 21}}}, 2),
        LayerState<float>({"windows", {}, {{"shift", 1, 4}}}, 2),
    };
  };
  const std::vector<std::string> names{"layer.1", "layer.0"};
  std::vector<LayerState<float>> states = make(), fresh = make();
  for (LayerState<float>& state : states) fill_with_all_sorts(state);
  const Bytes bytes = io::snapshot_bytes(states, names);
  io::load_snapshot_bytes(bytes, fresh, names);
  for (std::size_t i = 0; i < 2; ++i) CHECK(bits_of(fresh[i]) == bits_of(states[i]));

  const TemporaryDirectory directory;
  io::save_snapshot(directory / "model", std::span<const LayerState<float>>(states), names);
  CHECK(file_contents(directory / "model") == bytes);
  std::vector<LayerState<float>> again = make();
  io::load_snapshot(directory / "model", std::span<LayerState<float>>(again), names);
  for (std::size_t i = 0; i < 2; ++i) CHECK(bits_of(again[i]) == bits_of(states[i]));

  // The building blocks, in any order, with other states too.
  State<float> own(Dims<>(1, 2, 2));
  fill_with_all_sorts(own);
  io::SnapshotWriter writer;
  writer.add("own", own);
  writer.add(names[0], states[0]);
  std::vector<LayerState<float>> third = make();
  State<float> own_again(Dims<>(1, 2, 2));
  auto reader = io::SnapshotReader::from_bytes(writer.bytes(), "f");
  reader.add(names[0], third[0]);
  reader.add("own", own_again);
  CHECK(bits_of(third[0]) == bits_of(make()[0]));  // not before load()
  reader.load();
  CHECK(bits_of(third[0]) == bits_of(states[0]));
  CHECK(bits_of(own_again) == bits_of(own));
  third[0].reset(0);
  reader.load();  // once is all
  CHECK(bits_of(third[0]) != bits_of(states[0]));

  const std::vector<State<float>> none;
  std::vector<State<float>> no_targets;
  io::load_snapshot_bytes(io::snapshot_bytes(none, {}), no_targets, {});
}

}  // namespace linrec::test::snapshot_test
