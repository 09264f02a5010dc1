#include "examples/recall/pairs.hpp"

#include "tests/catch.hpp"
#include "tests/forecast/helpers.hpp"

namespace linrec::test::pairs_test {

using forecast::test::TemporaryFile;
using recall::glossary;
using recall::Pair;
using recall::read_pairs;

namespace {

std::vector<Pair> read(const std::string& bytes) {
  return read_pairs(TemporaryFile(bytes, "pairs.tsv").path());
}

/// What reading the bytes throws, without the path.
std::string error_of(const std::string& bytes) {
  const TemporaryFile file(bytes, "pairs.tsv");
  try {
    read_pairs(file.path());
  } catch (const linrec::FormatError& error) {
    const std::string text = error.what();
    REQUIRE(text.rfind(file.path(), 0) == 0);
    return text.substr(file.path().size());
  }
  return "nothing";
}

}  // namespace

TEST_CASE("pairs are read, with the freedoms that files take") {
  const std::vector<Pair> expected{{"a key", "a value"}, {"b", "c d"}, {"a key", "again"}};
  CHECK(read("a key\ta value\nb\tc d\na key\tagain\n") == expected);
  CHECK(read("\xEF\xBB\xBF"
             "a key \t a value\r\n\r\nb\tc d\r\n  \na key\tagain") == expected);
  CHECK(read("\xc3\xa9\t\xe2\x82\xac\n") == std::vector<Pair>{{"\xc3\xa9", "\xe2\x82\xac"}});
}

TEST_CASE("a bad line is named") {
  CHECK(error_of("a\tb\n\nword\n") == ", line 3: expected KEY<TAB>VALUE, got no tab in \"word\"");
  CHECK(error_of("a\tb\tc\n") == ", line 1: expected KEY<TAB>VALUE, got more than one tab in \"a?b?c\"");
  CHECK(error_of("a\tb\n\tc\n") == ", line 2: expected KEY<TAB>VALUE, got no key before \"c\"");
  CHECK(error_of("a\tb\nc\t \n") == ", line 2: expected KEY<TAB>VALUE, got no value after \"c\"");
  CHECK(error_of("a\tb\x1b[2J\n") ==
        ", line 1: expected KEY<TAB>VALUE, got a control character in \"b?[2J\"");
  CHECK(error_of(std::string("a\tb\0c\n", 6)) ==
        ", line 1: expected KEY<TAB>VALUE, got a control character in \"b?c\"");
  CHECK(error_of("a\t" + std::string(20000, 'b')) ==
        ", line 1: expected KEY<TAB>VALUE, got a line of 20002 bytes");
  CHECK(error_of(std::string(50, 'x')) ==
        ", line 1: expected KEY<TAB>VALUE, got no tab in \"" + std::string(40, 'x') + "...\"");
}

TEST_CASE("a file without pairs is refused") {
  CHECK(error_of("") == ": expected at least one pair, got none");
  CHECK(error_of("\n \r\n") == ": expected at least one pair, got none");
  REQUIRE_THROWS_MATCHES(read_pairs("/nonexistent.tsv"), linrec::FormatError,
                         message_contains("/nonexistent.tsv: expected a file of pairs, cannot open it"));
  const std::string folder = std::filesystem::temp_directory_path().string();
  REQUIRE_THROWS_MATCHES(read_pairs(folder), linrec::FormatError, message_contains("got a directory"));
}

TEST_CASE("the glossary finds what headers declare") {
  CHECK(recall::detail::declared_name("  Index size() const { return size_; }") == "size");
  CHECK(recall::detail::declared_name("class Foo {") == "Foo");
  CHECK(recall::detail::declared_name("inline constexpr double limit = 1e-6;") == "limit");
  CHECK(recall::detail::declared_name("bool operator==(const A&, const A&)") == "operator");
  CHECK(recall::detail::declared_name("}").empty());

  const std::vector<Pair> pairs = glossary(LINREC_TEST_DATA "/../include/linrec");
  CHECK(pairs.size() > 300);
  const auto found = std::find_if(pairs.begin(), pairs.end(),
                                  [](const Pair& pair) { return pair.key == "kernels/state matrix"; });
  REQUIRE(found != pairs.end());
  CHECK(found->value == "A copy of S [K, V] of one head.");
  REQUIRE_THROWS_MATCHES(glossary("/nonexistent"), linrec::FormatError,
                         message_contains("/nonexistent: expected a folder of headers, found none"));
}

}  // namespace linrec::test::pairs_test
