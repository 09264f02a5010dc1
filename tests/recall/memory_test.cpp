// Vectors of texts, the memory, and the comparison with others.
#include "examples/recall/memory.hpp"

#include "examples/recall/comparison.hpp"
#include "tests/catch.hpp"
#include "tests/error_of.hpp"

namespace linrec::test::memory_test {

using recall::AssociativeMemory;
using recall::Index;
using recall::Pair;
using recall::TextCode;
using recall::TextKind;

namespace {

std::vector<Pair> numbered_pairs(int count) {
  std::vector<Pair> pairs;
  for (int i = 0; i < count; ++i) pairs.push_back({"key " + std::to_string(i), "value " + std::to_string(i)});
  return pairs;
}

void store(AssociativeMemory& memory, const std::vector<Pair>& pairs) {
  for (const Pair& pair : pairs) memory.store(pair.key, pair.value);
}

bool same_sums(const AssociativeMemory& a, const AssociativeMemory& b) {
  const linrec::SkaStatistics &x = a.state().statistics(0, 0), &y = b.state().statistics(0, 0);
  return x.G().isApprox(y.G(), 1e-13) && x.M().isApprox(y.M(), 1e-13) && x.Cv().isApprox(y.Cv(), 1e-13) &&
         x.last_key() == y.last_key() && x.first_key() == y.first_key() && x.position() == y.position();
}

}  // namespace

TEST_CASE("a text has the same vector everywhere") {
  std::string signs, others;
  for (const float x : TextCode(24, 7).vector("kernels/state matrix")) signs += x > 0 ? '+' : '-';
  for (const float x : TextCode(24, 8).vector("kernels/state matrix")) others += x > 0 ? '+' : '-';
  CHECK(signs == "---++---++--+++-+-+++++-");
  CHECK(others != signs);
  std::string runs;
  for (const float x : TextCode(5, 7, TextKind::ngrams).vector("Ab"))
    runs += std::to_string(std::lround(x * 1000)) + ' ';
  CHECK(runs == "-577 0 577 0 577 ");
}

TEST_CASE("vectors of whole texts are nearly orthogonal, and of length 1") {
  const Index n = 256, count = 300;
  const TextCode code(n, 1);
  Eigen::MatrixXf all(n, count);
  for (Index i = 0; i < count; ++i) all.col(i) = code.vector("key " + std::to_string(i));
  Eigen::MatrixXf dots = all.transpose() * all;
  CHECK((dots.diagonal().array() - 1).abs().maxCoeff() < 1e-6f);
  dots.diagonal().setZero();
  CHECK(dots.cwiseAbs().maxCoeff() < 6 / std::sqrt(static_cast<float>(n)));
  const double mean_square = dots.squaredNorm() / static_cast<double>(count * (count - 1));
  CHECK(mean_square * n == Approx(1).epsilon(0.05));
  CHECK(std::abs(all.mean()) < 4 / std::sqrt(static_cast<float>(all.size() * n)));
}

TEST_CASE("vectors by runs of letters are alike where the texts are") {
  const TextCode code(256, 1, TextKind::ngrams);
  const auto cosine = [&](const char* a, const char* b) { return code.vector(a).dot(code.vector(b)); };
  CHECK(cosine("associative memory", "associative memory") == Approx(1));
  CHECK(cosine("associative memory", "Associative Memory") == Approx(1));
  CHECK(cosine("associative memory", "asociative memory") > 0.7f);
  CHECK(std::abs(cosine("associative memory", "linear kernel")) < 0.3f);
  for (const char* text : {"", "a", "\xc3\xa9"}) CHECK(code.vector(text).norm() == Approx(1));
  CHECK(TextCode(1, 3, TextKind::ngrams).vector("abcdef").norm() == Approx(1));  // where runs may cancel
  CHECK(error_of([] { TextCode(0, 1); }) == "ValueError: size: expected at least 1, got 0");
}

TEST_CASE("what was stored comes back, up to r / 2 pairs exactly") {
  const TextKind kind = GENERATE(TextKind::whole, TextKind::ngrams);
  AssociativeMemory memory({.rank = 64, .value_dim = 64, .ridge = 1e-6, .keys = kind});
  const std::vector<Pair> pairs = numbered_pairs(32);
  store(memory, pairs);
  for (const Pair& pair : pairs) {
    const auto [value, confidence] = memory.recall(pair.key);
    CHECK(value == pair.value);
    CHECK(confidence > (kind == TextKind::whole ? 0.999 : 0.9));
    CHECK(confidence < 1 + 1e-6);
  }
  CHECK(memory.recall("something else").confidence < 0.75);
  CHECK(memory.size() == 32);
}

TEST_CASE("a typing error is forgiven where keys are hashed by runs") {
  AssociativeMemory memory({.rank = 128, .value_dim = 128, .ridge = 0.1, .keys = TextKind::ngrams});
  memory.store("kernels/state matrix", "A copy of S");
  memory.store("kernels/state set_matrix", "Replaces S");
  memory.store("ska/statistics merge", "Two segments");
  CHECK(memory.recall("kernel/state matrx").value == "A copy of S");
  CHECK(memory.recall("ska/statistic merge").value == "Two segments");
}

TEST_CASE("a memory has the same size whatever is stored") {
  const Index r = 16, P = 32;
  AssociativeMemory memory({.rank = r, .value_dim = P});
  const Index bytes = memory.bytes();
  CHECK(bytes == 8 * (2 * r * r + P * r + 2 * r + 1) + 8);
  CHECK(memory.recall("anything").value.empty());
  CHECK(memory.recall("anything").confidence == 0);
  store(memory, numbered_pairs(200));
  CHECK(memory.bytes() == bytes);
}

TEST_CASE("two values under one key are both remembered") {
  AssociativeMemory memory({.rank = 64, .value_dim = 256, .ridge = 1e-6});
  memory.store("key", "one");
  memory.store("key", "two");
  const Eigen::VectorXf y = memory.retrieve(memory.keys().vector("key")).normalized();
  for (Index i : {0, 1}) CHECK(y.dot(memory.values().vector(i)) == Approx(std::sqrt(0.5)).epsilon(0.1));
}

TEST_CASE("with K = 2 the answer is the value two further on") {
  AssociativeMemory memory({.rank = 64, .value_dim = 64, .ridge = 1e-6, .power = 2});
  const std::vector<Pair> pairs = numbered_pairs(20);
  store(memory, pairs);
  for (std::size_t i = 0; i + 2 < pairs.size(); ++i) {
    CHECK(memory.recall(pairs[i].key).value == pairs[i + 2].value);
    CHECK(memory.recall(pairs[i].key).confidence > 0.99);
  }
}

TEST_CASE("a merge is what storing in order gives") {
  const recall::MemoryOptions options{.rank = 24, .value_dim = 32, .power = 2};
  const std::vector<Pair> pairs = numbered_pairs(30);
  AssociativeMemory whole(options), first(options), second(options), third(options);
  store(whole, pairs);
  store(first, {pairs.begin(), pairs.begin() + 7});
  store(second, {pairs.begin() + 7, pairs.begin() + 8});
  store(third, {pairs.begin() + 8, pairs.end()});
  second.merge(third);
  first.merge(second);
  CHECK(same_sums(whole, first));
  CHECK(first.size() == 30);
  for (const Pair& pair : pairs) {
    CHECK(first.recall(pair.key).value == whole.recall(pair.key).value);
    CHECK(first.recall(pair.key).confidence == Approx(whole.recall(pair.key).confidence).epsilon(1e-6));
  }
  first.merge(AssociativeMemory(options));
  CHECK(same_sums(whole, first));
  CHECK(error_of([&] {
          first.merge(AssociativeMemory({.rank = 24, .value_dim = 32, .power = 2, .seed = 2}));
        }) == "ValueError: later: expected a memory with the same options, got one with others");
}

TEST_CASE("linear attention adds up, the delta rule overwrites, and reading changes neither") {
  const Index K = 64, P = 32;
  const TextCode keys(K, 1), values(P, 2);
  const Eigen::VectorXf z = keys.vector("key"), one = values.vector("one"), two = values.vector("two");
  recall::KernelMemory<linrec::LinearAttention<float>> linear(K, P);
  recall::KernelMemory<linrec::DeltaNet<float>> delta(K, P);
  CHECK(linear.bytes() == 4 * K * P + 8);
  for (const Eigen::VectorXf& value : {one, two}) {
    linear.absorb(z, value);
    delta.absorb(z, value);
  }
  for (int reading : {1, 2}) {
    CAPTURE(reading);
    CHECK(linear.retrieve(z).isApprox(one + two, 1e-5f));
    CHECK(delta.retrieve(z).isApprox(two, 1e-5f));
  }
}

TEST_CASE("states that are compared are equal in bytes, to a row") {
  for (const Index r : {8, 32, 100})
    for (const Index P : {32, 64}) {
      CAPTURE(r, P);
      const recall::Settings settings{.rank = r, .value_dim = P};
      const Index ska = AssociativeMemory({.rank = r, .value_dim = P}).bytes();
      const Index other =
          recall::KernelMemory<linrec::DeltaNet<float>>(recall::key_of_equal_bytes(settings), P).bytes();
      CHECK(other <= ska);
      CHECK(other > ska - 4 * P);
    }
}

TEST_CASE("a comparison gives shares and cosines, and the same ones again") {
  const recall::Settings settings{.rank = 16, .value_dim = 32, .distractors = 1};
  std::vector<Pair> pairs = numbered_pairs(39);
  pairs.push_back({"key 0", "value 20"});  // a key that comes again
  const recall::Comparison comparison = compare(pairs, {1, 8, 40}, settings, TextKind::whole);
  for (const recall::Method& method : comparison.methods)
    for (const recall::Score& score : method.scores) {
      CHECK(score.recall >= 0);
      CHECK(score.recall <= 1 + 1e-12);
      CHECK(std::abs(score.cosine) <= 1 + 1e-6);
    }
  const std::vector<recall::Score>& regression = comparison.methods[0].scores;
  CHECK(regression[0].recall == Approx(1));
  CHECK(regression[1].recall == Approx(1));
  CHECK(regression[1].cosine > 0.9);
  CHECK(regression[2].recall < 0.9);
  CHECK(comparison.ahead[1] > 0.8);
  const recall::Comparison again = compare(pairs, {1, 8, 40}, settings, TextKind::whole);
  for (std::size_t j = 0; j < comparison.methods.size(); ++j)
    CHECK(again.methods[j].scores[2].recall == Approx(comparison.methods[j].scores[2].recall));
}

}  // namespace linrec::test::memory_test
