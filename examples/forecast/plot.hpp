// Draws the reports with gnuplot, if it is installed: for each series its last values with forecasts, and how
// the error of each method develops over the second half.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "../common/gnuplot.hpp"
#include "report.hpp"

namespace forecast {

/// A method as it is drawn.
struct Curve {
  std::string method;
  const char* style;  ///< gnuplot's words
};

namespace detail {

/// Root mean square error from the half up to t, divided by that of persistence, as lines "t value" from
/// `skip` values after the half on: before that a few errors decide. At most some 500 lines.
inline void write_running_error(std::ostream& script, const Report& report, const Row& row) {
  const std::vector<double>& x = report.series.values;
  const std::vector<double>& base = report.row(persistence_name).forecasts;
  const std::size_t skip = (x.size() - report.half()) / 10, stride = x.size() / 1000 + 1;
  double squares = 0, base_squares = 0;
  for (std::size_t t = report.half(); t < x.size(); ++t) {
    squares += (x[t] - row.forecasts[t]) * (x[t] - row.forecasts[t]);
    base_squares += (x[t] - base[t]) * (x[t] - base[t]);
    if (t >= report.half() + skip && (t % stride == 0 || t + 1 == x.size()))
      script << t + 1 << ' ' << (base_squares > 0 ? std::sqrt(squares / base_squares) : 1) << '\n';
  }
}

inline void write_tail(std::ostream& script, const std::vector<double>& x, std::size_t first) {
  for (std::size_t t = first; t < x.size(); ++t) script << t + 1 << ' ' << x[t] << '\n';
}

inline std::size_t first_shown(const Report& report) {
  const std::size_t size = report.series.values.size();
  return size - std::min<std::size_t>(200, size / 2);
}

/// The data of series i, as gnuplot's data blocks.
inline void write_data(std::ostream& script, const Report& report, std::size_t i,
                       const std::vector<Curve>& curves) {
  script << "$values" << i << " << EOD\n";
  write_tail(script, report.series.values, first_shown(report));
  script << "EOD\n";
  for (std::size_t j = 0; j < curves.size(); ++j) {
    const Row& row = report.row(curves[j].method);
    script << "$forecasts" << i << '_' << j << " << EOD\n";
    write_tail(script, row.forecasts, first_shown(report));
    script << "EOD\n$errors" << i << '_' << j << " << EOD\n";
    write_running_error(script, report, row);
    script << "EOD\n";
  }
}

}  // namespace detail

/// What is drawn of a report: the first two in the left panel, all in the right one.
inline std::vector<Curve> curves_of(const Report& report) {
  return {{bank_name(Spread::geometric, true), "lc rgb '#c0392b' lw 2"},
          {report.rows[1].method, "lc rgb '#2471a3' lw 1.5 dt 2"},
          {online_autoregression_name, "lc rgb '#2471a3' lw 1.5"},
          {bank_name(Spread::geometric, false), "lc rgb '#e67e22' lw 1.5"},
          {bank_name(Spread::linear, false), "lc rgb '#7d3c98' lw 1.5 dt 4"}};
}

namespace detail {

inline void write_panels(std::ostream& script, const Report& report, std::size_t i) {
  const std::vector<Curve> curves = curves_of(report);
  write_data(script, report, i, curves);
  script << "set title "
         << gnuplot::single_quoted(report.series.name + ": the last values, forecast one step ahead")
         << "\nset xlabel 'observation'\nset ylabel " << gnuplot::single_quoted(report.series.quantity)
         << "\nplot $values" << i
         << " using 1:2 with linespoints lc rgb '#555555' pt 7 ps 0.3 lw 1 title 'observed'";
  for (std::size_t j = 0; j < 2; ++j)
    script << ", $forecasts" << i << '_' << j << " using 1:2 with lines " << curves[j].style << " title "
           << gnuplot::single_quoted(curves[j].method);
  script << "\nset title " << gnuplot::single_quoted(report.series.name + ": error so far in the second half")
         << "\nset ylabel 'RMSE / RMSE of persistence'\nplot ";
  for (std::size_t j = 0; j < curves.size(); ++j)
    script << (j == 0 ? "" : ", ") << "$errors" << i << '_' << j << " using 1:2 with lines "
           << curves[j].style << " title " << gnuplot::single_quoted(curves[j].method);
  script << '\n';
}

}  // namespace detail

/// The whole script; the file's ending chooses the format, .png or else SVG.
inline std::string plot_script(const std::vector<Report>& reports, const std::filesystem::path& output) {
  const bool png = output.extension() == ".png";
  std::ostringstream script;
  script.precision(10);
  script << "set terminal " << (png ? "pngcairo" : "svg background rgb 'white'") << " noenhanced size 1300,"
         << 460 * reports.size() << (png ? " font 'sans,10'" : " font 'sans,12'") << "\nset output "
         << gnuplot::output_path(output) << "\nset multiplot layout " << reports.size() << ",2\n"
         << "set grid lc rgb '#dddddd' lt 1\nset border 3\nset tics nomirror\nset key outside bottom center "
            "horizontal Left reverse height 1\n"
         << "set format x '%.0f'\nset rmargin 3\n";
  for (std::size_t i = 0; i < reports.size(); ++i) detail::write_panels(script, reports[i], i);
  script << "unset multiplot\nset output\n";
  return script.str();
}

/// @throws linrec::Error if gnuplot cannot draw, for want of a writable file mostly.
inline void draw(const std::vector<Report>& reports, const std::filesystem::path& output) {
  gnuplot::run(plot_script(reports, output), output);
}

}  // namespace forecast
