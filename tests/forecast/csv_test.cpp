#include "examples/forecast/csv.hpp"

#include "helpers.hpp"
#include "tests/catch.hpp"

using forecast::read_csv;
using forecast::Series;
using forecast::test::csv_lines;
using forecast::test::TemporaryFile;
using linrec::FormatError;

namespace {

Series parsed(const std::string& text, std::size_t column = 2) {
  return read_csv(TemporaryFile(text).path(), column);
}

// What the reader says about the text, without the file's path; "" if it takes it.
std::string complaint(const std::string& text, std::size_t column = 2) {
  const TemporaryFile file(text);
  try {
    read_csv(file.path(), column);
  } catch (const FormatError& error) {
    const std::string what = error.what();
    REQUIRE(what.substr(0, file.path().size()) == file.path());
    return what.substr(file.path().size());
  }
  return "";
}

}  // namespace

TEST_CASE("a CSV with a header gives its numbers and its name") {
  const Series series = parsed("year,width\n" + csv_lines(100));
  CHECK(series.quantity == "width");
  CHECK(series.values.size() == 100);
  CHECK(series.values[0] == 0);
  CHECK(series.values[99] == 99);
  CHECK(read_csv(TemporaryFile(csv_lines(100), "no.header.csv").path()).name.find("no.header") !=
        std::string::npos);
}

TEST_CASE("a CSV without a header keeps its first value") {
  const Series series = parsed(csv_lines(100));
  CHECK(series.quantity == "value");
  CHECK(series.values.size() == 100);
}

TEST_CASE("CRLF, a byte-order mark, quotes, blanks and empty last lines do not matter") {
  const std::string text =
      "\xEF\xBB\xBF\"year\",\"tree, ring \"\"width\"\"\"\r\n\"a,b\", \"1.5\" ,x\r\nc, +2e1\t\r\nd,-.25\r\n";
  const Series series = parsed(text + csv_lines(100, "\r\n") + "\r\n \r\n");
  CHECK(series.quantity == "tree, ring \"width\"");
  REQUIRE(series.values.size() == 103);
  CHECK(series.values[0] == 1.5);
  CHECK(series.values[1] == 20);
  CHECK(series.values[2] == -0.25);
  CHECK(parsed(csv_lines(99) + "last,7").values.back() == 7);  // no line end at the end
}

TEST_CASE("another column can be read") {
  std::string three = "a,b,c\n", one;
  for (int i = 0; i < 100; ++i) {
    three += "1,word,4\n";
    one += "5\n";
  }
  CHECK(parsed(three, 3).quantity == "c");
  CHECK(parsed(three, 3).values.back() == 4);
  CHECK(parsed(one, 1).values.front() == 5);
}

TEST_CASE("what is wrong in a CSV is said with line and column") {
  const std::string good = "year,width\n" + csv_lines(120);
  CHECK(complaint(good + "z,\n") == ", line 122, column 2: expected a number, got nothing");
  CHECK(complaint(good + "z,  \n") == ", line 122, column 2: expected a number, got nothing");
  CHECK(complaint(good + "z,\"\"\n") == ", line 122, column 2: expected a number, got nothing");
  CHECK(complaint(good + "z,missing\n") == ", line 122, column 2: expected a number, got \"missing\"");
  CHECK(complaint(good + "z,1.5mm\n") == ", line 122, column 2: expected a number, got \"1.5mm\"");
  CHECK(complaint(good + "z,0x10\n") == ", line 122, column 2: expected a number, got \"0x10\"");
  CHECK(complaint(good + "z,+-1\n") == ", line 122, column 2: expected a number, got \"+-1\"");
  CHECK(complaint(good + "z\n") == ", line 122, column 2: expected a number, got a line of 1 column");
  CHECK(complaint(good + "z,3\n", 3) == ", line 1, column 3: expected a number, got a line of 2 columns");
  CHECK(complaint(good + "\nz,3\n") == ", line 122, column 2: expected a number, got an empty line");
  CHECK(complaint("\n" + good) == ", line 1, column 2: expected a number, got an empty line");
  CHECK(complaint(good + "z,\"3\n") ==
        ", line 122, column 2: expected a closing quote, got the end of the line");
  CHECK(complaint(good + "\"z\"y,3\n") ==
        ", line 122, column 1: expected a comma after the closing quote, got \"y\"");
  CHECK(complaint(good + "year,width\n") == ", line 122, column 2: expected a number, got \"width\"");
}

TEST_CASE("numbers that are none are refused in a CSV") {
  const std::string good = csv_lines(120);
  for (const std::string text : {"NaN", "nan", "inf", "-Infinity", "1e999", "1e101"}) {
    CAPTURE(text);
    CHECK(complaint(good + "z," + text + "\n") ==
          ", line 121, column 2: expected a finite number of at most 1e100, got \"" + text + "\"");
    if (text[0] != 'i') CHECK(complaint("z," + text + "\n" + good) != "");
  }
}

TEST_CASE("a typing error in the first line is not taken for a header") {
  CHECK(complaint("a,1.3.45\n" + csv_lines(120)) == ", line 1, column 2: expected a number, got \"1.3.45\"");
  CHECK(complaint("a,\n" + csv_lines(120)) == ", line 1, column 2: expected a number, got nothing");
}

TEST_CASE("messages show no control characters and no endless text") {
  CHECK(complaint(csv_lines(120) + "z,a\x1b[2J\n") ==
        ", line 121, column 2: expected a number, got \"a?[2J\"");
  CHECK(complaint(csv_lines(120) + "z," + std::string(1000, 'w') + "\n") ==
        ", line 121, column 2: expected a number, got \"" + std::string(40, 'w') + "...\"");
}

TEST_CASE("files that hold no series are refused") {
  CHECK(complaint("") == ": expected at least 100 values in column 2, got 0");
  CHECK(complaint("year,width\n") == ": expected at least 100 values in column 2, got 0");
  CHECK(complaint(csv_lines(99)) == ": expected at least 100 values in column 2, got 99");
  REQUIRE_THROWS_MATCHES(read_csv("/nonexistent/x.csv"), FormatError,
                         message_contains("/nonexistent/x.csv: expected a CSV file, cannot open it"));
  REQUIRE_THROWS_MATCHES(read_csv(std::filesystem::temp_directory_path().string()), FormatError,
                         message_contains("got a directory"));
}

TEST_CASE("the example's own data can be read") {
  CHECK(read_csv(LINREC_EXAMPLE_DATA "/treering.csv").values.size() == 7980);
  CHECK(read_csv(LINREC_EXAMPLE_DATA "/sunspots.csv").values.size() == 2820);
}
