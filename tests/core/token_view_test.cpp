#include "linrec/core/token_view.hpp"

#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tests/catch.hpp"

namespace linrec::test::token_view_test {

namespace {

// The number at [b, t, h, d] says where it is.
constexpr Index B = 2, T = 3, H = 4, D = 5;
constexpr double number(Index b, Index t, Index h, Index d) {
  return static_cast<double>(1000 * b + 100 * t + 10 * h + d);
}
std::vector<double> contiguous() {
  std::vector<double> numbers;
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < H; ++h)
        for (Index d = 0; d < D; ++d) numbers.push_back(number(b, t, h, d));
  return numbers;
}

// Every way to read the view must find number(b, t, h, d) at [b, t, h, d].
bool reads_right(const TokenView<const double>& view) {
  bool right = true;
  for (Index b = 0; b < view.batch(); ++b) {
    for (Index t = 0; t < view.tokens(); ++t)
      for (Index h = 0; h < view.heads(); ++h)
        for (Index d = 0; d < view.dim(); ++d) {
          const double expected = number(b, t, h, d);
          right = right && view.data(b, t, h)[d] == expected && view.at(b, t, h)[d] == expected &&
                  view.tokens(b, h)(t, d) == expected && view.heads(b, t)(h, d) == expected;
        }
  }
  return right;
}

}  // namespace

static_assert(std::is_convertible_v<TokenView<float>, TokenView<const float>>);
static_assert(!std::is_convertible_v<TokenView<const float>, TokenView<float>>);
static_assert(!std::is_convertible_v<TokenView<float>, TokenView<const double>>);

TEST_CASE("TokenView: contiguous, [B, T, H, D]") {
  std::vector<double> numbers = contiguous();
  const TokenView<double> view(numbers.data(), B, T, H, D);
  CHECK(view.batch() == B);
  CHECK(view.tokens() == T);
  CHECK(view.heads() == H);
  CHECK(view.dim() == D);
  CHECK(view.size() == B * T * H * D);
  CHECK(view.shape() == "[2, 3, 4, 5]");
  CHECK(reads_right(view));
  CHECK(view.tokens(1, 2).rows() == T);
  CHECK(view.tokens(1, 2).cols() == D);
  CHECK(view.heads(1, 2).rows() == H);
  CHECK(view.at(1, 2, 3).size() == D);
}

TEST_CASE("TokenView: writes through") {
  std::vector<double> numbers = contiguous();
  const TokenView<double> view(numbers.data(), B, T, H, D);
  view.at(1, 2, 3).setConstant(-1);
  CHECK(numbers.back() == -1);
  view.tokens(0, 0).setConstant(-2);
  CHECK(numbers[0] == -2);
  CHECK(numbers[D] == number(0, 0, 1, 0));
  view.heads(1, 0) *= 0;
  CHECK(numbers[T * H * D + D] == 0);
  const TokenView<double> single(numbers.data(), B, T, H * D);
  CHECK(single.dim() == 1);
  single(1, 2, H * D - 1) = 7;
  CHECK(numbers.back() == 7);
}

TEST_CASE("TokenView: heads outside of tokens, and a part of something bigger") {
  constexpr Index width = 3 * D;  // q, k and v side by side, say
  std::vector<double> numbers(B * H * T * width, -1);
  const TokenView<double> view(numbers.data() + D, {B, T, H, D}, {H * T * width, width, T * width});
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < H; ++h)
        for (Index d = 0; d < D; ++d) view.data(b, t, h)[d] = number(b, t, h, d);
  CHECK(reads_right(view));
  CHECK(std::count(numbers.begin(), numbers.end(), -1.0) == B * H * T * 2 * D);
}

TEST_CASE("TokenView: strides of 0 and below") {
  std::vector<double> numbers;
  for (Index t = T; t-- > 0;)
    for (Index d = 0; d < D; ++d) numbers.push_back(number(0, t, 0, d));
  const TokenView<const double> backwards(numbers.data() + (T - 1) * D, {1, T, 1, D}, {0, -D, 0});
  CHECK(reads_right(backwards));
  const TokenView<const double> repeated(numbers.data(), {7, T, 9, D}, {0, D, 0});
  CHECK((repeated.at(6, 1, 8) == repeated.at(0, 1, 0)));
  CHECK((repeated.heads(3, 1).row(8) == repeated.heads(0, 1).row(0)));
}

TEST_CASE("TokenView: slices of tokens") {
  std::vector<double> numbers = contiguous();
  const TokenView<double> view(numbers.data(), B, T, H, D);
  const TokenView<double> part = view.slice(1, 2);
  CHECK(part.extents() == std::array<Index, 4>{B, 2, H, D});
  CHECK(part.data(1, 0, 2) == view.data(1, 1, 2));
  CHECK(part.slice(1, 1).data(1, 0, 2) == view.data(1, 2, 2));
  CHECK(view.slice(0, 3).data(0, 0, 0) == view.data(0, 0, 0));
  CHECK(view.slice(3, 0).size() == 0);
  CHECK(TokenView<double>(nullptr, B, 0, H, D).slice(0, 0).tokens() == 0);
  for (const auto& [first, count] : std::vector<std::array<Index, 2>>{{-1, 1}, {0, 4}, {2, 2}, {1, -1}})
    REQUIRE_THROWS_MATCHES(
        view.slice(first, count), ShapeError,
        message_contains(
            linrec::message("TokenView::slice: expected a part of 3 tokens, got ", count, " from ", first)));
}

TEST_CASE("TokenView: no elements need no data") {
  CHECK(TokenView<float>().size() == 0);
  CHECK(TokenView<float>().shape() == "[0, 0, 0, 0]");
  CHECK(TokenView<float>(nullptr, 0, T, H, D).size() == 0);
  CHECK(TokenView<const float>(nullptr, B, 0, H, D).tokens(1, 0).rows() == 0);
}

TEST_CASE("TokenView: sizes and slices beyond the range of an Index") {
  float x = 0;
  const Index huge = Index{1} << 32;
  REQUIRE_THROWS_MATCHES(TokenView<float>(&x, huge, huge, huge, 1), ShapeError,
                         message_contains("below 2^63"));
  const TokenView<float> view(&x, 1, 1, 1, 1);
  CHECK_THROWS_AS(view.slice(std::numeric_limits<Index>::max(), 1), ShapeError);
  CHECK_THROWS_AS(view.slice(1, std::numeric_limits<Index>::max()), ShapeError);
}

TEST_CASE("TokenView: what it refuses") {
  REQUIRE_THROWS_MATCHES(
      TokenView<float>(nullptr, 1, 2, 3, 4), ValueError,
      message_contains("TokenView: expected data for the shape [1, 2, 3, 4], got a null pointer"));
  float x = 0;
  REQUIRE_THROWS_MATCHES(TokenView<float>(&x, 1, -2, 3, 4), ShapeError,
                         message_contains("TokenView: expected extents of at least 0, got [1, -2, 3, 4]"));
  REQUIRE_THROWS_MATCHES(TokenView<float>(nullptr, -1, -2, 3, 4), ShapeError,
                         message_contains("[-1, -2, 3, 4]"));
}

}  // namespace linrec::test::token_view_test
