// Runs all methods over a series, and prints the table.
#pragma once

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "autoregression.hpp"
#include "csv.hpp"
#include "forecaster.hpp"

namespace forecast {

struct Settings {
  Index memories = 24;
  double ridge = 1;
  std::uint64_t seed = 1;
};

/// Random rates are drawn this many times, so that one lucky draw tells nothing.
inline constexpr Index draws = 5;

/// One line of the table: one run, or several runs that differ in the seed only.
struct Row {
  std::string method;
  std::vector<double> rmse = {};       ///< on the second half, one a run
  std::vector<double> forecasts = {};  ///< of the last run
  std::vector<Index> in_use = {};      ///< channels at report_positions, run after run; empty: no channels
  double rate = 0;                     ///< observations a second; 0: not measured
};

struct Report {
  const Series& series;
  std::vector<Row> rows = {};

  std::size_t half() const { return series.values.size() / 2; }
  const Row& row(const std::string& method) const {
    return *std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.method == method; });
  }
};

/// The positions where channels are counted: 100, 1000 and the end.
inline std::vector<std::size_t> report_positions(const Series& series) {
  std::vector<std::size_t> positions{100};
  if (series.values.size() > 1000) positions.push_back(1000);
  if (series.values.size() > positions.back()) positions.push_back(series.values.size());
  return positions;
}

inline std::string bank_name(Spread spread, bool tapered) {
  return linrec::message("bank, ", name_of(spread), " rates", tapered ? ", taper" : "");
}

template <linrec::TaperPolicy Taper>
Row bank_row(const Report& report, Spread spread, const Settings& settings, const Taper& taper) {
  const Series& series = report.series;
  const double length = static_cast<double>(series.values.size());
  Row row{bank_name(spread, !std::same_as<Taper, linrec::NoTaper>)};
  double seconds = 0;
  const Index runs = spread == Spread::random ? draws : 1;
  for (Index i = 0; i < runs; ++i) {
    const std::uint64_t seed = settings.seed + static_cast<std::uint64_t>(i);
    const Eigen::ArrayXd log_rates = bank_log_rates<Taper>(spread, settings.memories, length, seed);
    Run run = stream(Forecaster<Taper>(log_rates, taper, settings.ridge), series.values);
    seconds += run.seconds;
    row.rmse.push_back(rmse(series.values, run.forecasts, report.half()));
    row.forecasts = std::move(run.forecasts);
    for (const std::size_t t : report_positions(series))
      row.in_use.push_back(
          linrec::channels_in_use(log_rates, taper.exponents(log_rates), static_cast<double>(t)));
  }
  row.rate = static_cast<double>(runs) * length / seconds;
  return row;
}

template <class Model>
Row model_row(const Report& report, std::string method, const Model& model) {
  Run run = stream(model, report.series.values);
  const double error = rmse(report.series.values, run.forecasts, report.half());
  return Row{std::move(method), {error}, std::move(run.forecasts)};
}

inline const char* const persistence_name = "persistence";
inline const char* const online_autoregression_name = "autoregression, learning on";

inline std::string autoregression_name(Index order) {
  return linrec::message("autoregression, order ", order);
}

/// The number that the values of the first half are as large as.
inline double typical_size(const Report& report) {
  const Eigen::Map<const Eigen::VectorXd> values(report.series.values.data(),
                                                 static_cast<Index>(report.half()));
  const double size = values.norm() / std::sqrt(static_cast<double>(values.size()));
  return size > 0 ? size : 1;
}

inline Report run_all(const Series& series, const Settings& settings) {
  Report report{series};
  const Index half = static_cast<Index>(report.half());
  const Index order = Autoregression::best_order(series.values, half);
  report.rows.push_back(model_row(report, persistence_name, Persistence()));
  report.rows.push_back(
      model_row(report, autoregression_name(order), Autoregression::fit(series.values, order, half)));
  report.rows.push_back(
      model_row(report, online_autoregression_name, OnlineAutoregression(order, typical_size(report))));
  for (const Spread spread : {Spread::random, Spread::linear, Spread::geometric}) {
    report.rows.push_back(bank_row(report, spread, settings, linrec::NoTaper()));
    report.rows.push_back(bank_row(report, spread, settings, linrec::LinearTaper()));
  }
  return report;
}

namespace detail {

inline double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

/// "0.2345", in as many digits as tell methods apart.
inline std::string shown(double x) {
  std::ostringstream text;
  text << std::setprecision(5) << std::showpoint << x;
  return text.str();
}

/// "12", or "9-12" over several runs.
inline std::string channels(const Row& row, std::size_t position, std::size_t positions) {
  if (row.in_use.empty()) return "-";
  Index fewest = row.in_use[position], most = fewest;
  for (std::size_t i = position; i < row.in_use.size(); i += positions) {
    fewest = std::min(fewest, row.in_use[i]);
    most = std::max(most, row.in_use[i]);
  }
  return fewest == most ? linrec::message(fewest) : linrec::message(fewest, "-", most);
}

/// Columns that together have room for their heading.
inline int channels_width(std::size_t positions) { return 24 / static_cast<int>(positions); }

inline void print_row(std::ostream& out, const Row& row, double persistence, std::size_t positions) {
  const double error = mean(row.rmse);
  out << std::left << std::setw(30) << row.method << std::right << std::setw(9) << shown(error)
      << std::setw(9);
  if (persistence > 0)
    out << std::fixed << std::setprecision(4) << error / persistence << std::defaultfloat;
  else
    out << "-";
  for (std::size_t i = 0; i < positions; ++i)
    out << std::setw(channels_width(positions)) << channels(row, i, positions);
  out << std::setw(11);
  if (row.rate > 0)
    out << std::fixed << std::setprecision(0) << row.rate << std::defaultfloat;
  else
    out << "-";
  if (row.rmse.size() > 1) {
    const auto [low, high] = std::minmax_element(row.rmse.begin(), row.rmse.end());
    out << "   " << shown(*low) << " to " << shown(*high);
  }
  out << '\n';
}

}  // namespace detail

inline void print(std::ostream& out, const Report& report) {
  const std::vector<std::size_t> positions = report_positions(report.series);
  const std::size_t size = report.series.values.size();
  const int width = detail::channels_width(positions.size());
  out << report.series.name << " (" << report.series.quantity << "): " << size
      << " values; errors of the last " << size - report.half() << "\n\n"
      << std::left << std::setw(30) << "" << std::right << std::setw(9) << "" << std::setw(9) << "/ per-"
      << std::setw(24) << "channels in use at t =" << std::setw(11) << "values a" << '\n'
      << std::left << std::setw(30) << "method" << std::right << std::setw(9) << "RMSE" << std::setw(9)
      << "sistence";
  for (const std::size_t t : positions) out << std::setw(width) << t;
  out << std::setw(11) << "second"
      << "   RMSE of " << draws << " draws\n";
  const double persistence = report.row(persistence_name).rmse.front();
  for (const Row& row : report.rows) detail::print_row(out, row, persistence, positions.size());
  out << '\n';
}

inline void print_reading_aid(std::ostream& out, const Settings& settings) {
  const std::uint64_t last_seed = settings.seed + static_cast<std::uint64_t>(draws) - 1;
  out << R"(How to read this
  RMSE             root mean square error of forecasts one step ahead over the second half, in the
                   units of the series; "/ persistence": as a part of that of "the next value is the
                   last one"
  autoregression   least squares on the first half, order 1 to 30 by AIC on the first half;
                   "learning on": of that order, refitted at every value, as the banks are
)"
      << "  bank             " << settings.memories
      << " exponential memories, read out by online ridge regression (ridge " << settings.ridge << R"();
                   no training: each value is forecast first and learned from next
  rates, taper     without the taper from 1/T to e, so the length T is told in advance; with it from
                   1 to e at t = 1, and stretched as t grows, so that at t they span 1/t to e
)"
      << "  random rates     the mean of " << draws << " draws, seeds " << settings.seed << " to "
      << last_seed << R"(
  channels in use  memories whose time constant 1/rate is at most t at position t; the others have
                   not forgotten anything yet, and cannot be told apart
)";
}

}  // namespace forecast
