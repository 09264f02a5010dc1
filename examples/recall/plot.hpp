// Draws comparisons with gnuplot, if it is installed: recall against the number of pairs, a panel a kind of
// keys.
#pragma once

#include <filesystem>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

#include "../common/gnuplot.hpp"
#include "report.hpp"

namespace recall {

namespace detail {

/// gnuplot's words for the methods, in order, and for what K = 2 looks ahead to.
inline constexpr const char* styles[] = {
    "lc rgb '#c0392b' lw 3 pt 7 ps 0.6",        "lc rgb '#e67e22' lw 2 pt 7 ps 0.5",
    "lc rgb '#2471a3' lw 2 pt 5 ps 0.5",        "lc rgb '#1e8449' lw 2 pt 9 ps 0.6",
    "lc rgb '#2471a3' lw 1.5 dt 2 pt 4 ps 0.5", "lc rgb '#1e8449' lw 1.5 dt 2 pt 8 ps 0.6"};
inline constexpr const char* ahead_style = "lc rgb '#e67e22' lw 1.5 dt 3";

inline void write_data(std::ostream& script, const Comparison& comparison, std::size_t panel) {
  script << "$data" << panel << " << EOD\n";
  for (std::size_t i = 0; i < comparison.pairs.size(); ++i) {
    script << comparison.pairs[i];
    for (const Method& method : comparison.methods) script << ' ' << method.scores[i].recall;
    script << ' ' << comparison.ahead[i] << '\n';
  }
  script << "EOD\n";
}

inline void write_panel(std::ostream& script, const Comparison& comparison, std::size_t panel,
                        const Settings& settings) {
  write_data(script, comparison, panel);
  const double first = static_cast<double>(comparison.pairs.front()),
               last = static_cast<double>(comparison.pairs.back()),
               full = static_cast<double>(settings.rank) / static_cast<double>(1 + settings.distractors);
  script << "set title " << gnuplot::single_quoted(title_of(comparison.keys))
         << "\nunset arrow\nunset label\n"
         << "set xrange [" << 0.95 * first << ':' << 1.05 * last << "]\n";
  if (full >= first && full <= last)
    script << "set arrow from " << full << ",-0.02 to " << full << ",1.05 nohead lc rgb '#888888' dt 4\n"
           << "set label 'r tokens' at " << full << ",1.09 center tc rgb '#666666'\n";
  script << "plot ";
  for (std::size_t j = 0; j < comparison.methods.size(); ++j)
    script << "$data" << panel << " using 1:" << j + 2 << " with linespoints " << styles[j] << ", ";
  script << "$data" << panel << " using 1:" << comparison.methods.size() + 2 << " with lines " << ahead_style
         << '\n';
}

/// One legend for all panels: a plot of nothing.
inline void write_legend(std::ostream& script, const std::vector<Method>& methods, std::size_t rows) {
  script << "unset title\nunset arrow\nunset label\nunset border\nunset tics\nunset grid\nunset xlabel\n"
            "unset ylabel\nunset logscale\nset lmargin 0\nset rmargin 0\nset xrange [0:1]\nset yrange [0:1]\n"
            "set key center center vertical maxrows "
         << rows << " Left reverse samplen 3\nplot ";
  for (std::size_t j = 0; j < methods.size(); ++j)
    script << "NaN with linespoints " << styles[j] << " title "
           << gnuplot::single_quoted(linrec::message(methods[j].name, ", keys of ", methods[j].key, ": ",
                                                     methods[j].bytes, " bytes"))
           << ", ";
  script << "NaN with lines " << ahead_style << " title 'SKA, K = 2: cosine, value two tokens on'\n";
}

}  // namespace detail

/// The whole script; the file's ending chooses the format, .png or else SVG.
inline std::string plot_script(const std::vector<Comparison>& comparisons, const Settings& settings,
                               const std::filesystem::path& output) {
  const bool png = output.extension() == ".png";
  const double width = 1 / static_cast<double>(comparisons.size()), legend = 0.18;
  std::ostringstream script;
  script.imbue(std::locale::classic());
  script << "set terminal " << (png ? "pngcairo" : "svg background rgb 'white'") << " noenhanced size "
         << (comparisons.size() > 1 ? 1300 : 760) << ",560" << (png ? " font 'sans,10'" : " font 'sans,12'")
         << "\nset output " << gnuplot::output_path(output)
         << "\nset multiplot\nunset key\nset grid lc rgb '#dddddd' lt 1\nset border 3\nset tics nomirror\n"
         << "set logscale x 2\nset format x '%.0f'\nset xlabel 'pairs stored, " << settings.distractors
         << (settings.distractors == 1 ? " distractor" : " distractors")
         << " after each'\nset ylabel 'share of keys with the right value'\nset yrange [-0.02:1.12]\n"
         << "set ytics 0,0.2,1\nset lmargin 8\nset rmargin 3\nset size " << width << ',' << 1 - legend
         << '\n';
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    script << "set origin " << width * static_cast<double>(i) << ',' << legend << '\n';
    detail::write_panel(script, comparisons[i], i, settings);
  }
  script << "set size 1," << legend << "\nset origin 0,0\n";
  detail::write_legend(script, comparisons.front().methods, comparisons.size() > 1 ? 3 : 4);
  script << "unset multiplot\nset output\n";
  return script.str();
}

/// @throws linrec::Error if gnuplot cannot draw, for want of a writable file mostly.
inline void draw(const std::vector<Comparison>& comparisons, const Settings& settings,
                 const std::filesystem::path& output) {
  gnuplot::run(plot_script(comparisons, settings, output), output);
}

}  // namespace recall
