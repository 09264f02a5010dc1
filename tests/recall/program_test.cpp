// The tool as a user meets it: exit status, standard output, standard error.
#include <array>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/run_program.hpp"

namespace linrec::test::program_test {

using linrec::test::content, linrec::test::Outcome, linrec::test::run_program, linrec::test::TemporaryFile;

namespace {

Outcome call(const std::string& arguments) { return run_program(LINREC_RECALL_EXE, arguments); }

/// A line of a table.
struct Row {
  double pairs, tokens;
  std::array<double, 6> recall, cosine;
  double ahead;
};

std::vector<Row> rows_of(const std::string& out) {
  std::vector<Row> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    for (char& c : line)
      if (c == '(' || c == ')') c = ' ';
    std::istringstream words(line);
    Row row{};
    words >> row.pairs >> row.tokens;
    for (std::size_t j = 0; j < 6; ++j) words >> row.recall[j] >> row.cosine[j];
    if (words >> row.ahead) rows.push_back(row);
  }
  return rows;
}

/// The numbers behind a label, as "bytes  25104 25104".
std::vector<double> numbers_behind(const std::string& out, const std::string& label) {
  std::istringstream words(out.substr(out.find('\n' + label) + 1 + label.size()));
  std::vector<double> numbers;
  for (double x; words >> x;) numbers.push_back(x);
  return numbers;
}

std::string pair_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "key " + std::to_string(i) + "\tvalue " + std::to_string(i) + '\n';
  return text;
}

}  // namespace

TEST_CASE("the glossary makes a table for each kind of keys") {
  const Outcome outcome =
      call("--no-plot --pairs 4,8,12,16,24,32,64,128,192");  // all of it takes sanitizers long
  CHECK(outcome.status == 0);
  CHECK(outcome.error.empty());
  CHECK_THAT(outcome.out, contains("1 distractor after each pair"));
  CHECK_THAT(outcome.out, contains("nearly orthogonal"));
  const std::vector<Row> rows = rows_of(outcome.out);
  REQUIRE(rows.size() == 18);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    CAPTURE(row.pairs);
    CHECK(row.tokens == 2 * row.pairs);
    for (std::size_t j = 0; j < 6; ++j) {
      CAPTURE(j);
      CHECK((row.recall[j] >= 0 && row.recall[j] <= 1));
      CHECK(std::abs(row.cosine[j]) <= 1);
      // Falls as more is stored, but for what five streams leave to chance; K = 2 never rises.
      const bool first = i % (rows.size() / 2) == 0;
      if (!first && j != 1) CHECK(row.recall[j] <= rows[i - 1].recall[j] + 0.15);
    }
    CHECK(row.recall[1] < 0.3);
    if (row.tokens <= 24) {
      // Keys that differ in case only are one key to the second table.
      CHECK(row.recall[0] >= (i < rows.size() / 2 ? 1 : 0.9));
      CHECK(row.ahead > 0.9);
    }
    if (row.tokens > 300) CHECK(row.recall[0] < 0.5);
  }
  const std::vector<double> bytes = numbers_behind(outcome.out, "bytes");
  REQUIRE(bytes.size() == 6);
  CHECK(bytes[0] == bytes[1]);
  CHECK(bytes[2] == bytes[3]);
  CHECK((bytes[2] <= bytes[0] && bytes[2] > bytes[0] - 4 * 32));
}

TEST_CASE("a file is measured as asked") {
  const TemporaryFile file(pair_lines(30) + "key 0\tanother\n", "pairs.tsv");
  const Outcome outcome =
      call("--no-plot --keys whole --pairs 31,4 --distractors 0 --rank 40 --file '" + file.path() + "'");
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, contains("31 pairs, 31 different values, 0 distractors after each pair"));
  CHECK_THAT(outcome.out, contains("1 pair repeats a key"));
  const std::vector<Row> rows = rows_of(outcome.out);
  REQUIRE(rows.size() == 2);
  CHECK((rows[0].pairs == 4 && rows[0].tokens == 4));
  CHECK(rows[0].recall[0] == 1);
  CHECK(rows[1].recall[3] >= 0.9);
  const std::vector<Row> all = rows_of(call("--no-plot --file '" + file.path() + "'").out);
  REQUIRE(all.size() == 12);  // 4, 8, 12, 16, 24, 31, twice
  CHECK((all[0].pairs == 4 && all[5].pairs == 31 && all[5].tokens == 62));
  CHECK_THAT(call("--no-plot --pairs 3 --file '" + file.path() + "'").out,
             contains("The first 3 of 31 pairs"));
}

TEST_CASE("queries are answered") {
  const TemporaryFile file(pair_lines(20), "pairs.tsv"), keys("key 3\n\n key 4 \n", "keys");
  const Outcome outcome =
      call("--keys whole --query 'key 17' - 'unknown' --file '" + file.path() + "' < '" + keys.path() + "'");
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.error, contains("recall: 20 pairs in "));
  std::istringstream lines(outcome.out);
  std::vector<double> confidences;
  for (const std::string key : {"key 17", "key 3", "key 4", "unknown"}) {
    std::string asked, value;
    double confidence = 0;
    REQUIRE(std::getline(lines, asked, '\t'));
    REQUIRE(std::getline(lines, value, '\t'));
    REQUIRE(lines >> confidence);
    lines.ignore();
    CHECK(asked == key);
    if (key != "unknown") CHECK(value == "value " + key.substr(4));
    confidences.push_back(confidence);
  }
  CHECK(confidences[0] > 0.8);
  CHECK(confidences[3] < 0.6);
}

TEST_CASE("a memory is saved, and goes on") {
  const TemporaryFile first(pair_lines(20), "pairs.tsv"), more("later\tlast\n", "pairs.tsv"), memory;
  CHECK(call("--save '" + memory.path() + "' --file '" + first.path() + "'").status == 0);
  const Outcome outcome =
      call("--load '" + memory.path() + "' --file '" + more.path() + "' --query 'key 7' later");
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.error, contains("21 pairs in "));
  CHECK_THAT(outcome.out, contains("key 7\tvalue 7\t"));
  CHECK_THAT(outcome.out, contains("later\tlast\t"));

  std::string bytes = content(memory.path());
  bytes[bytes.find("value 7") + 6] = '8';
  const Outcome damaged = call("--query x --load '" + TemporaryFile(bytes).path() + "'");
  CHECK(damaged.status == 1);
  const TemporaryFile changed(bytes);
  CHECK_THAT(call("--query x --load '" + changed.path() + "'").error,
             contains("the options or the values are damaged"));
  CHECK(call("--query x --load '" + first.path() + "'").status == 1);
  CHECK(call("--query x --rank 8 --load '" + memory.path() + "'").status != 0);  // it has its own
}

TEST_CASE("bad input ends the program before it prints anything") {
  const TemporaryFile bad("a\tb\nword\n", "pairs.tsv"), empty("", "pairs.tsv"),
      few(pair_lines(5), "pairs.tsv");
  const Outcome outcome = call("--no-plot --file '" + bad.path() + "'");
  CHECK(outcome.status == 1);
  CHECK(outcome.out.empty());
  CHECK(outcome.error ==
        "recall: " + bad.path() + ", line 2: expected KEY<TAB>VALUE, got no tab in \"word\"\n");
  CHECK(call("--no-plot --file '" + empty.path() + "'").error ==
        "recall: " + empty.path() + ": expected at least one pair, got none\n");
  CHECK(call("--no-plot --pairs 6 --file '" + few.path() + "'").error ==
        "recall: --pairs: expected at most 5, as many as there are, got 6\n");
  CHECK(call("--no-plot --file /nonexistent.tsv").status == 1);
}

TEST_CASE("wrong arguments are refused, and help is given") {
  for (const char* arguments :
       {"--rank 0", "--rank x", "--value-dim 8", "--eps 0", "--eps nan", "--pairs 0", "--pairs 1,x",
        "--distractors -1", "--keys other", "--query a --pairs 4", "--seed -1", "--unknown"}) {
    CAPTURE(arguments);
    const Outcome outcome = call(std::string("--no-plot ") + arguments);
    CHECK(outcome.status != 0);
    CHECK(outcome.out.empty());
  }
  const Outcome help = call("--help");
  CHECK(help.status == 0);
  for (const char* option : {"--file", "--pairs", "--rank", "--value-dim", "--distractors", "--seed", "--eps",
                             "--keys", "--query", "--save", "--load", "--plot", "--no-plot"})
    CHECK_THAT(help.out, contains(option));
}

TEST_CASE("the curves are drawn if gnuplot is installed") {
  const TemporaryFile file(pair_lines(20), "pairs.tsv"), picture("", "it's.svg");
  const Outcome outcome =
      call("--rank 8 --pairs 2,20 --plot \"" + picture.path() + "\" --file '" + file.path() + "'");
  CHECK(outcome.status == 0);
  if (std::system("command -v gnuplot > /dev/null 2>&1") == 0)
    CHECK_THAT(content(picture.path()), contains("</svg>"));
  else
    CHECK_THAT(outcome.out, contains("No plot: gnuplot is not installed."));
}

}  // namespace linrec::test::program_test
