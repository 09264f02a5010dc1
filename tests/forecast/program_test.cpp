// The tool as a user meets it: exit status, standard output, standard error.
#include "examples/forecast/plot.hpp"
#include "helpers.hpp"
#include "tests/catch.hpp"
#include "tests/run_program.hpp"

using forecast::test::csv_lines;
using linrec::test::content, linrec::test::Outcome, linrec::test::run_program, linrec::test::TemporaryFile;

namespace {

Outcome call(const std::string& arguments) { return run_program(LINREC_FORECAST_EXE, arguments); }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("the defaults print every row for both series") {
  const Outcome outcome = call("--no-plot");
  CHECK(outcome.status == 0);
  CHECK(outcome.error.empty());
  CHECK_THAT(outcome.out, contains("treering (width): 7980 values; errors of the last 3990"));
  CHECK_THAT(outcome.out, contains("sunspots (sunspots): 2820 values; errors of the last 1410"));
  for (const char* row :
       {"\npersistence ", "\nautoregression, order ", "\nautoregression, learning on ",
        "\nbank, random rates ", "\nbank, random rates, taper ", "\nbank, linear rates ",
        "\nbank, linear rates, taper ", "\nbank, geometric rates ", "\nbank, geometric rates, taper "}) {
    CAPTURE(row);
    CHECK(count(outcome.out, row) == 2);
  }
  CHECK(count(outcome.out, "nan") == 0);
}

TEST_CASE("a bad CSV ends the program before it prints anything") {
  const TemporaryFile good(csv_lines(150)), bad(csv_lines(150) + "z,word\n");
  const Outcome outcome = call("--no-plot '" + good.path() + "' '" + bad.path() + "'");
  CHECK(outcome.status == 1);
  CHECK(outcome.out.empty());
  CHECK(outcome.error ==
        "forecast: " + bad.path() + ", line 151, column 2: expected a number, got \"word\"\n");
}

TEST_CASE("a short and a constant series go through") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a,2.5,1\n";
  const TemporaryFile constant(text), line(csv_lines(101));
  const Outcome outcome = call("--no-plot '" + constant.path() + "' '" + line.path() + "'");
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "nan") == 0);
  CHECK(call("--no-plot --column 3 --memories 1 --ridge 0.5 --seed 9 '" + constant.path() + "'").status == 0);
}

TEST_CASE("wrong arguments are refused, and help is given") {
  CHECK(call("--memories 0 --no-plot").status != 0);
  CHECK(call("--ridge 0 --no-plot").status != 0);
  CHECK(call("--column 0 --no-plot").status != 0);
  CHECK(call("--no-plot /nonexistent.csv").status == 1);
  const Outcome help = call("--help");
  CHECK(help.status == 0);
  for (const char* option : {"--memories", "--ridge", "--seed", "--plot", "--no-plot", "--column"})
    CHECK_THAT(help.out, contains(option));
}

TEST_CASE("names reach gnuplot as text only") {
  const forecast::Series series{"it's `touch x`", "a\nb",
                                forecast::test::autoregressive_series({0.5}, 0, 200, 1)};
  const std::string script = forecast::plot_script({forecast::run_all(series, {})}, "|touch it's.svg");
  CHECK_THAT(script, contains("'it''s `touch x`: the last values, forecast one step ahead'"));
  CHECK_THAT(script, contains("set ylabel 'a?b'"));
  CHECK_THAT(script, contains("set output '/"));  // absolute: not a command
  CHECK_THAT(script, contains("|touch it''s.svg'"));
  CHECK(count(script, "nan") == 0);
}

TEST_CASE("the curves are drawn if gnuplot is installed") {
  const TemporaryFile data(csv_lines(150)), picture("", "it's.svg");
  const Outcome outcome = call("--plot \"" + picture.path() + "\" '" + data.path() + "'");
  CHECK(outcome.status == 0);
  if (gnuplot::is_installed())
    CHECK_THAT(content(picture.path()), contains("</svg>"));
  else
    CHECK_THAT(outcome.out, contains("No plot: gnuplot is not installed."));
}
