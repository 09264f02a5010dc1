// forecast: streams series through banks of exponential memories, and compares one-step forecasts.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "csv.hpp"
#include "plot.hpp"
#include "report.hpp"

namespace {

struct Arguments {
  std::vector<std::string> files = {LINREC_EXAMPLE_DATA "/treering.csv", LINREC_EXAMPLE_DATA "/sunspots.csv"};
  std::size_t column = 2;
  forecast::Settings settings;
  std::string plot = "forecast.svg";
  bool no_plot = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("FILE", arguments.files,
                 "CSV files, a label and a number a line, header optional (default: tree rings, sunspots)");
  app.add_option("--column", arguments.column, "Column of the numbers, counted from 1 (default: 2)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--memories", arguments.settings.memories, "Memories in a bank (default: 24)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--ridge", arguments.settings.ridge,
                 "Pull of the readout towards persistence, in observations (default: 1)")
      ->check(CLI::Range(1e-12, 1e12));
  app.add_option("--seed", arguments.settings.seed, "First seed of the random rates (default: 1)");
  auto* plot = app.add_option("--plot", arguments.plot,
                              "Picture of the curves, .svg or .png (default: forecast.svg); needs gnuplot");
  app.add_flag("--no-plot", arguments.no_plot, "Draw nothing")->excludes(plot);
}

void run(const Arguments& arguments) {
  std::vector<forecast::Series> all;  // all are read before anything is printed
  for (const std::string& file : arguments.files) all.push_back(forecast::read_csv(file, arguments.column));
  std::vector<forecast::Report> reports;
  for (const forecast::Series& series : all) {
    reports.push_back(forecast::run_all(series, arguments.settings));
    forecast::print(std::cout, reports.back());
  }
  forecast::print_reading_aid(std::cout, arguments.settings);
  if (arguments.no_plot) return;
  if (!gnuplot::is_installed()) {
    std::cout << "\nNo plot: gnuplot is not installed.\n";
    return;
  }
  std::cout << std::flush;
  forecast::draw(reports, arguments.plot);
  std::cout << "\nCurves: " << arguments.plot << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Forecasts series one step ahead while they stream: a bank of exponential memories\n"
      "(a retention kernel with a PoST spectrum and taper), read out by online ridge\n"
      "regression. No training. Prints how it compares with persistence and autoregression.");
  Arguments arguments;
  declare(app, arguments);
  CLI11_PARSE(app, argc, argv);
  try {
    run(arguments);
  } catch (const std::exception& error) {
    std::cerr << "forecast: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
