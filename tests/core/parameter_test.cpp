// Parameter: shared numbers with a shape, and the texts of what does not fit.
#include "linrec/core/parameter.hpp"

#include <limits>

#include "tests/catch.hpp"
#include "tests/error_of.hpp"

namespace linrec::test::parameter_test {

namespace {

using P = Parameter<float>;
using Shape = std::vector<Index>;

P counted(Shape shape, Index count) {
  std::vector<float> numbers;
  for (Index i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
  return {std::move(numbers), std::move(shape)};
}

}  // namespace

TEST_CASE("Parameter: absent, a number, a vector, a matrix") {
  CHECK(!P().present());
  CHECK(P().size() == 0);
  CHECK(P().data() == nullptr);
  CHECK(counted({}, 1).size() == 1);
  CHECK(counted({3}, 3).shape() == Shape{3});
  const P matrix = counted({2, 3}, 6);
  CHECK(matrix.present());
  CHECK(matrix.size() == 6);
  CHECK(matrix.data()[4] == 4);
  CHECK((matrix.to_double() == Eigen::ArrayXd::LinSpaced(6, 0, 5)).all());
  CHECK(counted({0, 3}, 0).present());
  CHECK(counted({0, 3}, 0).size() == 0);
}

TEST_CASE("Parameter: copies and parts share the numbers, and keep their owner") {
  std::weak_ptr<const void> owner;
  P part;
  {
    auto numbers = std::make_shared<std::vector<float>>(6, 1.5f);
    owner = numbers;
    const P all(numbers->data(), 6, {3, 2}, numbers);
    CHECK(P(all).data() == numbers->data());
    part = all.rows(1, 2).reshaped({4});
    CHECK(part.data() == numbers->data() + 2);
  }
  CHECK(!owner.expired());
  CHECK(part.shape() == Shape{4});
  CHECK(part.data()[3] == 1.5f);
  part = P();
  CHECK(owner.expired());
}

TEST_CASE("Parameter: bfloat16 numbers widen to what they are, and are not taken for others") {
  const P narrow = counted({4, 3}, 12).narrowed();
  CHECK(narrow.is_bfloat16());
  CHECK(narrow.size() == 12);
  CHECK(narrow.bfloat16_data()[5].value() == 5);
  CHECK((narrow.to_double() == Eigen::ArrayXd::LinSpaced(12, 0, 11)).all());
  CHECK(narrow.widened().data()[7] == 7);
  CHECK(narrow.narrowed().bfloat16_data() == narrow.bfloat16_data());
  const P part = narrow.rows(1, 2).reshaped({6});
  CHECK(part.bfloat16_data() == narrow.bfloat16_data() + 3);
  float copied[2];
  part.copy(1, 2, copied);
  CHECK((copied[0] == 4 && copied[1] == 5));
  CHECK(P({1.00390625F}, {}).narrowed().to_double()[0] == 1);  // a tie, to even

  const P wide = counted({2}, 2);
  CHECK(!wide.is_bfloat16());
  CHECK(wide.bfloat16_data() == nullptr);
  CHECK(wide.widened().data() == wide.data());
  wide.copy(1, 1, copied);
  CHECK(copied[0] == 1);
  CHECK(!P().narrowed().present());

  CHECK_NOTHROW(narrow.check_matrix("w", {4, 3}));
  CHECK(error_of([&] { narrow.check_matrix("w", {3, 4}); }) == "ShapeError: w: expected [3, 4], got [4, 3]");
  const std::string text =
      ": expected float numbers, got bfloat16, which only matrices of linear maps and embeddings may be";
  CHECK(error_of([&] { narrow.check("norm", {4, 3}); }) == "ValueError: norm" + text);
  CHECK(error_of([&] { static_cast<void>(narrow.data()); }) == "ValueError: parameter" + text);
  CHECK(error_of([&] { P::from_bfloat16(std::vector<BFloat16>(3), {2}); }) ==
        "ShapeError: parameter: expected as many numbers as the shape [2] has elements, got 3");
}

TEST_CASE("Parameter: rows of a matrix and entries of a vector") {
  const P matrix = counted({4, 3}, 12), vector = counted({5}, 5);
  CHECK(matrix.rows(1, 2).shape() == Shape{2, 3});
  CHECK(matrix.rows(1, 2).data()[0] == 3);
  CHECK(matrix.rows(4, 0).size() == 0);
  CHECK(vector.rows(3, 2).data()[1] == 4);
  CHECK(counted({0, 3}, 0).rows(0, 0).size() == 0);
  constexpr Index huge = std::numeric_limits<Index>::max();
  for (const auto& [first, count] :
       std::vector<std::array<Index, 2>>{{-1, 1}, {0, 5}, {3, 2}, {1, -1}, {5, 0}, {huge, 1}, {1, huge}})
    REQUIRE_THROWS_MATCHES(
        matrix.rows(first, count), ShapeError,
        message_contains(message("rows: expected a part of 4 rows, got ", count, " from ", first)));
  CHECK_THROWS_AS(P().rows(0, 1), ShapeError);
}

TEST_CASE("Parameter: what it refuses") {
  REQUIRE_THROWS_MATCHES(
      counted({2, 3}, 5), ShapeError,
      message_contains("parameter: expected as many numbers as the shape [2, 3] has elements, got 5"));
  CHECK_THROWS_AS(counted({2, 3}, 6).reshaped({5}), ShapeError);
  CHECK_THROWS_AS(counted({-1, -6}, 6), ShapeError);
  CHECK_THROWS_AS(counted({-1}, 0), ShapeError);
  CHECK_THROWS_AS(counted({0, -1}, 0), ShapeError);
  constexpr Index huge = Index{1} << 40;
  CHECK_THROWS_AS(counted({huge, huge}, 1), ShapeError);
  REQUIRE_THROWS_MATCHES(P().check("w", {2}), ShapeError, message_contains("w: expected [2], got no tensor"));
  REQUIRE_THROWS_MATCHES(counted({3}, 3).check("w", {2, 1}), ShapeError,
                         message_contains("w: expected [2, 1], got [3]"));
  CHECK_NOTHROW(counted({2, 3}, 6).check("w", {2, 3}));
}

}  // namespace linrec::test::parameter_test
