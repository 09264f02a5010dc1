// The parts of layers against plain loops in double, with sizes around packets and cache lines.
#include <complex>
#include <functional>

#include "linrec/core/activation.hpp"
#include "linrec/layers/feature_map.hpp"
#include "linrec/layers/gated_mlp.hpp"
#include "linrec/layers/linear.hpp"
#include "linrec/layers/low_rank.hpp"
#include "linrec/layers/norm.hpp"
#include "linrec/layers/rotary.hpp"
#include "linrec/layers/short_convolution.hpp"
#include "linrec/layers/token_shift.hpp"
#include "tests/catch.hpp"
#include "tests/kernels/tensor.hpp"

namespace linrec::test::parts_test {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

std::size_t index(Index i) { return static_cast<std::size_t>(i); }

template <class Scalar>
constexpr double tolerance() {
  return std::is_same_v<Scalar, float> ? 1e-5 : 1e-13;
}

/// Rows at odd addresses, with 7 after each number that is nobody's.
template <class Scalar>
struct Matrix {
  Index count, width, stride;
  std::vector<Scalar> numbers;

  Matrix(Index n, Index w, Index gap = 3)
      : count(n), width(w), stride(w + gap), numbers(index(1 + n * (w + gap)), Scalar(7)) {}
  Matrix(Index n, Index w, Random& random, double low = -1, double high = 1) : Matrix(n, w) {
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < w; ++j) (*this)(i, j) = static_cast<Scalar>(random.uniform(low, high));
  }
  Scalar& operator()(Index i, Index j) { return numbers[index(1 + i * stride + j)]; }
  double operator()(Index i, Index j) const {
    return static_cast<double>(numbers[index(1 + i * stride + j)]);
  }
  Rows<Scalar> rows() { return {numbers.data() + 1, count, width, stride}; }
  Rows<const Scalar> rows() const { return {numbers.data() + 1, count, width, stride}; }
  bool gaps_are_untouched() const {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const Index column = (static_cast<Index>(i) - 1) % stride;
      if ((i == 0 || column >= width) && numbers[i] != 7) return false;
    }
    return true;
  }
};

/// Weights at an odd address.
template <class Scalar>
Parameter<Scalar> random_parameter(std::vector<Index> shape, Random& random) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  auto numbers = std::make_shared<std::vector<Scalar>>(index(count + 1));
  for (Scalar& x : *numbers) x = static_cast<Scalar>(random.uniform(-1, 1));
  return {numbers->data() + 1, count, std::move(shape), numbers};
}
template <class Scalar>
double at(const Parameter<Scalar>& parameter, Index i) {
  return parameter.present() ? static_cast<double>(parameter.data()[i]) : 0;
}

/// The largest difference to f(i, j).
template <class Scalar, class F>
double largest_error(const Matrix<Scalar>& got, F&& f) {
  double error = 0;
  for (Index i = 0; i < got.count; ++i)
    for (Index j = 0; j < got.width; ++j) {
      const double e = std::abs(got(i, j) - f(i, j));
      error = std::isnan(e) ? infinity : std::max(error, e);
    }
  return error;
}

template <class Scalar>
void check_linear(Index inputs, Index outputs, Random& random) {
  const Parameter<Scalar> weight = random_parameter<Scalar>({outputs, inputs}, random);
  const Parameter<Scalar> bias =
      random.integer(0, 1) == 0 ? Parameter<Scalar>() : random_parameter<Scalar>({outputs}, random);
  const Linear<Scalar> linear("w", outputs, inputs, weight, bias);
  const Matrix<Scalar> x(9, inputs, random);
  Matrix<Scalar> expected(9, outputs);
  for (Index n = 1; n <= 9; ++n) {
    Matrix<Scalar> y(n, outputs);
    linear.apply({x.rows().data, n, inputs, x.stride}, y.rows());
    const double error = largest_error(y, [&](Index i, Index o) {
      double sum = at(bias, o);
      for (Index j = 0; j < inputs; ++j) sum += x(i, j) * at(weight, o * inputs + j);
      return sum;
    });
    // And a row's bits do not depend on how many there are.
    if (n == 1) {
      for (Index i = 0; i < 9; ++i)
        linear.apply({x.rows()[i], 1, inputs, x.stride}, {expected.rows()[i], 1, outputs, expected.stride});
    }
    bool same = y.gaps_are_untouched();
    for (Index i = 0; i < n; ++i)
      for (Index o = 0; o < outputs; ++o)
        same = same && y(i, o) == static_cast<const Matrix<Scalar>&>(expected)(i, o);
    if (!same || !(error <= tolerance<Scalar>())) {
      INFO(n << " rows, " << inputs << " inputs, " << outputs << " outputs");
      CHECK(same);
      CHECK(error <= tolerance<Scalar>());
    }
  }
}

}  // namespace

TEST_CASE("Linear: all remainders of rows, inputs and outputs, at any address") {
  Random random(1);
  for (Index inputs = 1; inputs <= 40; ++inputs)
    for (Index outputs = 1; outputs <= 20; ++outputs) {
      check_linear<float>(inputs, outputs, random);
      check_linear<double>(inputs, outputs, random);
    }
  check_linear<float>(768, 130, random);
  CHECK(true);
}

namespace {

/// The nearest bfloat16 to the numbers, at an address that is a multiple of 2 only.
template <class Scalar>
Parameter<Scalar> narrowed(const Parameter<Scalar>& parameter) {
  auto numbers = std::make_shared<std::vector<BFloat16>>(index(parameter.size() + 1));
  for (Index i = 0; i < parameter.size(); ++i)
    (*numbers)[index(i + 1)] = BFloat16(static_cast<float>(parameter.data()[i]));
  return Parameter<Scalar>::from_bfloat16(numbers->data() + 1, parameter.size(), parameter.shape(), numbers);
}

/// Up to 9 rows at once against sums in double, and against each row by itself. The bar is four roundings of
/// the sum of the magnitudes: the products of floats are those of doubles, the order of the sums is not.
template <class Scalar>
void check_bfloat16_linear(Index inputs, Index outputs, Random& random) {
  const Parameter<Scalar> weight = narrowed(random_parameter<Scalar>({outputs, inputs}, random));
  const Parameter<Scalar> bias =
      random.integer(0, 1) == 0 ? Parameter<Scalar>() : random_parameter<Scalar>({outputs}, random);
  const Linear<Scalar> linear("w", outputs, inputs, weight, bias);
  const Eigen::ArrayXd w = weight.to_double();
  const Matrix<Scalar> x(9, inputs, random);
  Matrix<Scalar> single(9, outputs);
  double error = 0;
  for (Index i = 0; i < 9; ++i) {
    linear.apply({x.rows()[i], 1, inputs, x.stride}, {single.rows()[i], 1, outputs, single.stride});
    for (Index o = 0; o < outputs; ++o) {
      double sum = at(bias, o), magnitude = std::abs(sum);
      for (Index j = 0; j < inputs; ++j) {
        sum += x(i, j) * w[o * inputs + j];
        magnitude += std::abs(x(i, j) * w[o * inputs + j]);
      }
      const double got = static_cast<const Matrix<Scalar>&>(single)(i, o);
      error = std::max(error, std::abs(got - sum) / magnitude);
    }
  }
  bool same = true;
  for (Index n = 2; n <= 9; ++n) {
    Matrix<Scalar> y(n, outputs);
    linear.apply({x.rows().data, n, inputs, x.stride}, y.rows());
    same = same && y.gaps_are_untouched();
    for (Index i = 0; i < n; ++i)
      same = same && std::equal(y.rows()[i], y.rows()[i] + outputs, single.rows()[i]);
  }
  if (!same || !(error <= 4 * std::numeric_limits<Scalar>::epsilon())) {
    INFO(inputs << " inputs, " << outputs << " outputs");
    CHECK(same);
    CHECK(error <= 4 * std::numeric_limits<Scalar>::epsilon());
  }
}

/// The value of a sum that has infinities and NaNs among its terms.
bool same_kind(double a, double b) {
  return std::isfinite(b) ? std::abs(a - b) <= 1e-5 : std::isnan(b) ? std::isnan(a) : a == b;
}

template <class Scalar>
void check_bfloat16_extremes(Index inputs, Index rows) {
  const Index outputs = 7;
  const auto scalar = [](double value) { return static_cast<Scalar>(value); };
  std::vector<Scalar> numbers(index(outputs * inputs), Scalar(0.5));
  numbers[index(1 * inputs + inputs - 1)] = scalar(nan);
  numbers[index(3 * inputs)] = scalar(infinity);
  numbers[index(4 * inputs + inputs / 2)] = scalar(-infinity);
  numbers[index(5 * inputs)] = scalar(infinity);
  numbers[index(5 * inputs + inputs - 1)] = scalar(-infinity);
  const Parameter<Scalar> weight = narrowed(Parameter<Scalar>(std::move(numbers), {outputs, inputs}));
  const Linear<Scalar> linear("w", outputs, inputs, weight);
  const Eigen::ArrayXd w = weight.to_double();
  Matrix<Scalar> x(rows, inputs), y(rows, outputs);
  for (const double last : {0.0, 1.0, -2.0, infinity, nan}) {
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < inputs; ++j) x(i, j) = 1;
      x(i, inputs - 1) = scalar(i == 0 ? 1 : last);  // what becomes of one row is no matter of another
    }
    linear.apply(x.rows(), y.rows());
    bool same = true;
    for (Index i = 0; i < rows; ++i)
      for (Index o = 0; o < outputs; ++o) {
        double sum = 0;
        for (Index j = 0; j < inputs; ++j) sum += static_cast<double>(x(i, j)) * w[o * inputs + j];
        same = same && same_kind(static_cast<double>(y(i, o)), sum);
      }
    INFO(inputs << " inputs, " << rows << " rows, the last input " << last);
    CHECK(same);
  }
}

}  // namespace

TEST_CASE("Linear of bfloat16: all remainders of rows, inputs and outputs, at any address") {
  Random random(3);
  std::vector<Index> sizes{511, 512, 513, 1023, 1024, 1025, 1026, 2048};
  for (Index inputs = 1; inputs <= 70; ++inputs) sizes.push_back(inputs);
  for (const Index inputs : sizes)
    for (Index outputs = 1; outputs <= 17; ++outputs) {
      check_bfloat16_linear<float>(inputs, outputs, random);
      check_bfloat16_linear<double>(inputs, outputs, random);
    }
  for (const Index inputs : {3000, 4097, 9000}) check_bfloat16_linear<float>(inputs, 3, random);
  CHECK(true);
}

TEST_CASE("Linear of bfloat16: infinities and NaNs stay where they belong") {
  for (const Index inputs : {2, 3, 8, 31, 33, 1025})
    for (const Index rows : {1, 2, 5}) {
      check_bfloat16_extremes<float>(inputs, rows);
      check_bfloat16_extremes<double>(inputs, rows);
    }
}

TEST_CASE("Linear of bfloat16: no inputs, no outputs, no rows") {
  const auto weights = [](std::vector<Index> shape) { return Parameter<float>::from_bfloat16({}, shape); };
  const Linear<float> biased("w", 3, 0, weights({3, 0}), Parameter<float>({1, 2, 3}, {3}));
  for (const Index rows : {1, 5}) {
    Matrix<float> x(rows, 0), y(rows, 3);
    biased.apply(x.rows(), y.rows());
    CHECK(largest_error(y, [](Index, Index o) { return static_cast<double>(o + 1); }) == 0);
  }
  Matrix<float> two(5, 2), nothing(5, 0), no_input(0, 0), no_rows(0, 3);
  Linear<float>("w", 0, 2, weights({0, 2})).apply(two.rows(), nothing.rows());
  biased.apply(no_input.rows(), no_rows.rows());
  CHECK(nothing.gaps_are_untouched());
  CHECK(no_rows.gaps_are_untouched());
}

TEST_CASE("Linear: no inputs, no outputs, no rows") {
  Random random(2);
  const Linear<double> biased("w", 3, 0, Parameter<double>({}, {3, 0}), Parameter<double>({1, 2, 3}, {3}));
  Matrix<double> x(5, 0), y(5, 3);
  biased.apply(x.rows(), y.rows());
  CHECK(largest_error(y, [](Index, Index o) { return static_cast<double>(o + 1); }) == 0);
  const Linear<double> none("w", 0, 2, Parameter<double>({}, {0, 2}));
  Matrix<double> two(5, 2, random), nothing(5, 0);
  none.apply(two.rows(), nothing.rows());
  CHECK(nothing.gaps_are_untouched());
  Matrix<double> no_rows(0, 3);
  biased.apply({x.rows().data, 0, 0, x.stride}, no_rows.rows());
  CHECK(no_rows.gaps_are_untouched());
}

namespace {

template <class Scalar>
void check_norm(typename Norm<Scalar>::Kind kind, Index groups, Index group, Index weights, bool biased,
                Random& random) {
  const Index width = groups * group;
  const double eps = 1e-3;
  const auto parameter = [&](Index n) {
    return n == 0 ? Parameter<Scalar>() : random_parameter<Scalar>({n}, random);
  };
  const Parameter<Scalar> weight = parameter(weights), bias = parameter(biased ? weights : 0);
  const Norm<Scalar> norm("norm", kind, width, group, eps, weight, bias);
  CHECK(norm.width() == width);
  const Matrix<Scalar> x(3, width, random, -1, 2);
  Matrix<Scalar> y(3, width), in_place = x;
  norm.apply(x.rows(), y.rows());
  norm.apply(in_place.rows(), in_place.rows());
  const double error = largest_error(y, [&](Index i, Index c) {
    const Index first = c / group * group, of_weight = weights == group ? c - first : c;
    double mean = 0, square = 0;
    if (kind == Norm<Scalar>::Kind::layer)
      for (Index j = 0; j < group; ++j) mean += x(i, first + j) / static_cast<double>(group);
    for (Index j = 0; j < group; ++j)
      square += std::pow(x(i, first + j) - mean, 2) / static_cast<double>(group);
    const double normed = (x(i, c) - mean) / std::sqrt(square + eps);
    return normed * (weights == 0 ? 1 : at(weight, of_weight)) + at(bias, of_weight);
  });
  INFO(groups << " groups of " << group << ", " << weights << " weights");
  CHECK(error <= tolerance<Scalar>());
  CHECK(y.gaps_are_untouched());
  CHECK(in_place.numbers == y.numbers);
}

template <class Scalar>
void check_norms() {
  using Kind = typename Norm<Scalar>::Kind;
  Random random(3);
  for (const Index groups : {1, 2, 3})
    for (const Index group : {1, 2, 3, 5, 8, 16, 17, 33})
      for (const Index weights : {Index{0}, group, groups * group}) {
        check_norm<Scalar>(Kind::rms, groups, group, weights, false, random);
        check_norm<Scalar>(Kind::layer, groups, group, weights, false, random);
        if (weights > 0) check_norm<Scalar>(Kind::layer, groups, group, weights, true, random);
      }
}

}  // namespace

TEST_CASE("Norm: rms, layer and group norm, in place too") {
  check_norms<float>();
  check_norms<double>();
}

TEST_CASE("Norm: zero rows stay zero, and a common offset does not matter to layer norm") {
  const Norm<float> rms("norm", Norm<float>::Kind::rms, 5, 5, 1e-5, {}),
      layer("norm", Norm<float>::Kind::layer, 5, 5, 1e-5, {});
  Matrix<float> zero(1, 5), y(1, 5);
  std::fill(zero.numbers.begin(), zero.numbers.end(), 0.0f);
  rms.apply(zero.rows(), y.rows());
  CHECK(largest_error(y, [](Index, Index) { return 0.0; }) == 0);
  // 4096 + (0, 1, 2, 3, 4): the variance is 2, and mean(x^2) - mean(x)^2 in float would lose it.
  for (Index j = 0; j < 5; ++j) zero(0, j) = 4096 + static_cast<float>(j);
  layer.apply(zero.rows(), y.rows());
  CHECK(largest_error(y, [](Index, Index j) { return static_cast<double>(j - 2) / std::sqrt(2 + 1e-5); }) <
        1e-6);
}

namespace {

/// Sequences of these lengths in one chunk, one behind the other.
struct Chunk {
  std::vector<Index> offsets{0}, source;
  explicit Chunk(const std::vector<Index>& counts) {
    for (const Index n : counts) offsets.push_back(offsets.back() + n);
    source.resize(index(offsets.back()));
  }
  PackedRows rows() const { return {offsets, source}; }
};

/// Runs f on pieces of three sequences, whose inputs are x; calls f(chunk, x, y). Returns y by sequence.
template <class Scalar, class F>
std::vector<Matrix<Scalar>> in_pieces(const std::vector<Matrix<Scalar>>& x, Index width, Random& random,
                                      F&& f) {
  std::vector<Matrix<Scalar>> y;
  for (const auto& sequence : x) y.emplace_back(sequence.count, width);
  std::vector<Index> done(x.size(), 0);
  for (bool left = true; left;) {
    left = false;
    std::vector<Index> counts;
    for (std::size_t s = 0; s < x.size(); ++s) {
      counts.push_back(std::min(random.integer(0, 6), x[s].count - done[s]));
      left = left || done[s] + counts[s] < x[s].count;
    }
    const Chunk chunk(counts);
    Matrix<Scalar> in(chunk.rows().count(), x[0].width), out(chunk.rows().count(), width);
    const auto copy = [&](auto&& g) {
      for (std::size_t s = 0; s < x.size(); ++s)
        for (Index i = 0; i < counts[s]; ++i)
          g(s, done[s] + i, chunk.rows().first(static_cast<Index>(s)) + i);
    };
    copy([&](std::size_t s, Index from, Index to) {
      std::copy_n(x[s].rows()[from], x[0].width, in.rows()[to]);
    });
    f(chunk.rows(), static_cast<const Matrix<Scalar>&>(in).rows(), out.rows());
    CHECK(out.gaps_are_untouched());
    copy([&](std::size_t s, Index to, Index from) { std::copy_n(out.rows()[from], width, y[s].rows()[to]); });
    for (std::size_t s = 0; s < x.size(); ++s) done[s] += counts[s];
  }
  return y;
}

template <class Scalar>
void check_convolution(Index channels, Index width, bool biased, bool activated, Random& random) {
  using Convolution = ShortConvolution<Scalar>;
  const Parameter<Scalar> weight = random_parameter<Scalar>({channels, 1, width}, random);
  const Parameter<Scalar> bias = biased ? random_parameter<Scalar>({channels}, random) : Parameter<Scalar>();
  const Convolution convolution("conv", channels, width, weight, bias,
                                activated ? Convolution::Activation::silu : Convolution::Activation::none);
  CHECK(convolution.width() == width);
  std::vector<Matrix<Scalar>> x;
  for (const Index count : {11, 1, 17}) x.emplace_back(count, channels, random);
  Window<Scalar> window(3, width, channels);
  const auto y = in_pieces(x, channels, random, [&](const PackedRows& chunk, auto in, auto out) {
    convolution.apply(chunk, in, window, out);
  });
  INFO(channels << " channels, " << width << " taps");
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(largest_error(y[s], [&](Index t, Index c) {
            double sum = at(bias, c);
            for (Index j = 0; j < width; ++j)
              if (t - (width - 1) + j >= 0) sum += x[s](t - (width - 1) + j, c) * at(weight, c * width + j);
            return activated ? silu(sum) : sum;
          }) <= tolerance<Scalar>());
    // What is left in the window: the last inputs, zero before the first.
    for (Index i = 0; i < width; ++i) {
      const Index t = x[s].count - width + i;
      for (Index c = 0; c < channels; ++c)
        CHECK(static_cast<double>(window.row(static_cast<Index>(s), i)[c]) == (t >= 0 ? x[s](t, c) : 0));
    }
  }
}

}  // namespace

TEST_CASE("ShortConvolution: any pieces, silu or not, and what stays in the window") {
  Random random(4);
  for (const Index channels : {1, 3, 8, 19})
    for (const Index width : {1, 2, 3, 4, 7})
      for (const bool biased : {false, true})
        for (const bool activated : {false, true}) {
          check_convolution<float>(channels, width, biased, activated, random);
          check_convolution<double>(channels, width, biased, activated, random);
        }
}

namespace {

template <class Scalar>
void check_token_shift(Index width, Random& random) {
  std::vector<Matrix<Scalar>> x;
  for (const Index count : {9, 1, 14}) x.emplace_back(count, width, random);
  const Parameter<Scalar> mu = random_parameter<Scalar>({width}, random);
  Window<Scalar> window(3, 1, width);
  const auto mixed = in_pieces(x, width, random, [&](const PackedRows& chunk, auto in, auto out) {
    Matrix<Scalar> delta(in.count, in.width);
    token_shift<Scalar>(chunk, in, window, delta.rows());
    mix_tokens<Scalar>(in, delta.rows(), mu, out);
  });
  for (std::size_t s = 0; s < 3; ++s)
    CHECK(largest_error(mixed[s], [&](Index t, Index c) {
            const double before = t == 0 ? 0 : x[s](t - 1, c);
            return x[s](t, c) + (before - x[s](t, c)) * at(mu, c);
          }) <= tolerance<Scalar>());
}

}  // namespace

TEST_CASE("token shift: the token before, across pieces, and 0 before the first") {
  Random random(5);
  for (const Index width : {1, 5, 16, 21}) {
    check_token_shift<float>(width, random);
    check_token_shift<double>(width, random);
  }
}

namespace {

template <class Scalar>
void check_rotary(Index key, Index heads, double base, std::int64_t position, Random& random) {
  const Rotary<Scalar> rotary(key, base);
  const Matrix<Scalar> x(1, heads * key, random);
  Matrix<Scalar> y = x;
  std::vector<Scalar> scratch(index(rotary.scratch_size()));
  rotary.prepare(position, scratch.data());
  rotary.apply(y.rows()[0], heads, scratch.data());
  INFO("K " << key << ", position " << position);
  CHECK(largest_error(y, [&](Index, Index column) {
          const Index first = column / key * key, i = (column - first) % (key / 2);
          const long double angle =
              static_cast<long double>(position) * std::pow(static_cast<long double>(base), -2.0L * i / key);
          const std::complex<double> turned =
              std::complex<double>(x(0, first + i), x(0, first + key / 2 + i)) *
              std::polar(1.0, static_cast<double>(std::remainder(angle, 2 * std::acos(-1.0L))));
          return column - first < key / 2 ? turned.real() : turned.imag();
        }) <= (std::is_same_v<Scalar, float> ? 1e-6 : 1e-14 + 1e-15 * static_cast<double>(position)));
  CHECK(y.gaps_are_untouched());
}

}  // namespace

TEST_CASE("Rotary: halves of a head as complex numbers, positions from 0") {
  Random random(6);
  for (const Index key : {2, 4, 6, 16, 34})
    for (const std::int64_t position : {0, 1, 2, 1000, 1'000'000}) {
      check_rotary<float>(key, 3, 10000, position, random);
      check_rotary<double>(key, 3, 10000, position, random);
    }
  check_rotary<double>(10, 2, 500, 77, random);
  // Position 0 turns nothing, not even a bit.
  const Rotary<float> rotary(6);
  Matrix<float> x(1, 12, random), y = x;
  std::vector<float> scratch(index(rotary.scratch_size()));
  rotary.prepare(0, scratch.data());
  rotary.apply(y.rows()[0], 2, scratch.data());
  CHECK(y.numbers == x.numbers);
}

TEST_CASE("Rotary: what it refuses") {
  for (const Index key : {0, 1, 5, -2})
    REQUIRE_THROWS_MATCHES(Rotary<float>(key), ValueError,
                           message_contains(message("rotary: expected an even key dimension, got ", key)));
  for (const double base : {0.0, -1.0, nan, infinity})
    REQUIRE_THROWS_MATCHES(
        Rotary<float>(4, base), ValueError,
        message_contains(message("rotary: expected a base that is a finite number > 0, got ", base)));
}

TEST_CASE("LowRank and GatedMLP") {
  Random random(7);
  for (const Index width : {1, 5, 17})
    for (const Index middle : {1, 3, 9}) {
      const LowRankWeights<double> w{random_parameter<double>({middle, width}, random),
                                     random_parameter<double>({7, middle}, random),
                                     random_parameter<double>({7}, random)};
      const LowRank<double> low_rank("lora", 7, width, w);
      const Matrix<double> x(5, width, random);
      Matrix<double> scratch(5, middle + 2), y(5, 7);
      low_rank.apply(x.rows(), FeatureMap::tanh, scratch.rows(), y.rows());
      const auto product = [&](const Parameter<double>& matrix, Index row, Index i) {
        double sum = 0;
        for (Index j = 0; j < width; ++j) sum += at(matrix, row * width + j) * x(i, j);
        return sum;
      };
      CHECK(largest_error(y, [&](Index i, Index o) {
              double sum = at(w.bias, o);
              for (Index m = 0; m < middle; ++m)
                sum += at(w.up, o * middle + m) * std::tanh(product(w.down, m, i));
              return sum;
            }) < 1e-13);

      const GatedMLPWeights<double> of_mlp{random_parameter<double>({middle, width}, random),
                                           random_parameter<double>({middle, width}, random),
                                           random_parameter<double>({width, middle}, random)};
      const GatedMLP<double> mlp(width, middle, of_mlp);
      AlignedVector<double> memory(index(mlp.scratch_size(5)));
      Matrix<double> z = x, out(5, width);
      mlp.apply(x.rows(), out.rows(), memory.data());
      mlp.apply(z.rows(), z.rows(), memory.data());
      CHECK(z.numbers == out.numbers);
      CHECK(largest_error(out, [&](Index i, Index o) {
              double sum = 0;
              for (Index m = 0; m < middle; ++m)
                sum += at(of_mlp.down, o * middle + m) * silu(product(of_mlp.gate, m, i)) *
                       product(of_mlp.up, m, i);
              return sum;
            }) < 1e-13);
    }
}

namespace {

/// f in packets of every length from 1 to 20, at x + 0, x + 1/8, ...
template <class Scalar, class F, class G>
void check_elementwise(F&& in_packets, G&& expected, double accuracy) {
  for (Index n = 1; n <= 20; ++n)
    for (const double start : {-90.0, -20.0, -3.0, -0.5, 0.0, 0.25, 8.0, 80.0}) {
      Matrix<Scalar> x(1, n);
      for (Index j = 0; j < n; ++j) x(0, j) = static_cast<Scalar>(start + 0.125 * static_cast<double>(j));
      Matrix<Scalar> y = x;
      in_packets(y.rows());
      bool good = y.gaps_are_untouched();
      for (Index j = 0; j < n; ++j) {
        const double want = expected(static_cast<const Matrix<Scalar>&>(x)(0, j));
        const double got = static_cast<const Matrix<Scalar>&>(y)(0, j);
        // Relative, but for what is below the normal numbers of float.
        const bool equal = std::abs(got - want) <= accuracy * std::abs(want) + 1e-36;
        good = good && equal;
        if (!equal) CHECK(message(x.numbers[1], ": ", got) == message(want));
      }
      CHECK(good);
    }
}

template <class Scalar>
void check_feature_maps(double accuracy) {
  const auto map = [](FeatureMap f) { return [f](Rows<Scalar> x) { apply_feature_map(f, x); }; };
  check_elementwise<Scalar>(
      map(FeatureMap::identity), [](double x) { return x; }, 0);
  check_elementwise<Scalar>(
      map(FeatureMap::relu), [](double x) { return std::max(x, 0.0); }, 0);
  check_elementwise<Scalar>(
      map(FeatureMap::squared_relu), [](double x) { return x > 0 ? x * x : 0; }, accuracy);
  check_elementwise<Scalar>(
      map(FeatureMap::sigmoid), [](double x) { return sigmoid(x); }, accuracy);
  check_elementwise<Scalar>(
      map(FeatureMap::silu), [](double x) { return silu(x); }, accuracy);
  check_elementwise<Scalar>(
      map(FeatureMap::tanh), [](double x) { return std::tanh(x); }, accuracy);
  check_elementwise<Scalar>(
      [](Rows<Scalar> x) {
        map_rows(x, [](const auto& packet) LINREC_INLINE_LAMBDA { return log_sigmoid_packet(packet); });
      },
      [](double x) { return log_sigmoid(x); }, accuracy);
}

template <class Scalar>
void check_extremes() {
  const auto one = [](FeatureMap f, double x) {
    Matrix<Scalar> row(1, 1);
    row(0, 0) = static_cast<Scalar>(x);
    apply_feature_map(f, row.rows());
    return static_cast<double>(row(0, 0));
  };
  const auto log_sigmoid_of = [](double x) {
    Matrix<Scalar> row(1, 1);
    row(0, 0) = static_cast<Scalar>(x);
    map_rows(row.rows(), [](const auto& packet) LINREC_INLINE_LAMBDA { return log_sigmoid_packet(packet); });
    return static_cast<double>(row(0, 0));
  };
  for (const double x : {1e3, 1e30, infinity}) {
    CHECK(one(FeatureMap::sigmoid, x) == 1);
    CHECK(one(FeatureMap::sigmoid, -x) < 1e-37);
    CHECK(one(FeatureMap::sigmoid, -x) >= 0);
    CHECK(log_sigmoid_of(x) == 0);
    CHECK(log_sigmoid_of(-x) == static_cast<double>(static_cast<Scalar>(-x)));
  }
  CHECK(one(FeatureMap::silu, 1e30) == static_cast<double>(static_cast<Scalar>(1e30)));
  CHECK(one(FeatureMap::relu, -infinity) == 0);
  CHECK(log_sigmoid_of(0) == Approx(-std::log(2.0)).epsilon(1e-7));
  for (const FeatureMap f : {FeatureMap::identity, FeatureMap::relu, FeatureMap::sigmoid, FeatureMap::silu,
                             FeatureMap::squared_relu, FeatureMap::tanh})
    CHECK(std::isnan(one(f, nan)));
  CHECK(std::isnan(log_sigmoid_of(nan)));
}

}  // namespace

TEST_CASE("feature maps and log sigmoid: relative accuracy in both tails") {
  check_feature_maps<float>(6e-7);
  check_feature_maps<double>(4e-15);
  check_extremes<float>();
  check_extremes<double>();
}

}  // namespace linrec::test::parts_test
