// Reads one column of numbers from a CSV file, and says exactly where a file is wrong.
//
// Fields are separated by commas, and may stand in double quotes ("" inside them is a quote). The first line
// may be a header. LF and CRLF line ends, a byte-order mark and blank lines at the end are fine; a hole, a
// word, NaN or an infinity among the numbers is not: a forecaster cannot go on past any of them in silence.
#pragma once

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../common/text.hpp"
#include "linrec/core/errors.hpp"

namespace forecast {

struct Series {
  std::string name;      ///< the file's name without its ending
  std::string quantity;  ///< what the header calls the column; "value" without a header
  std::vector<double> values;
};

/// With fewer values half a series is too short to fit anything to.
inline constexpr std::size_t fewest_values = 100;
/// Beyond this, squares of differences could overflow.
inline constexpr double largest_value = 1e100;

namespace detail {

/// Where a complaint points: "data.csv, line 3, column 2".
struct Place {
  std::string file;
  std::size_t line = 0;
  std::size_t column = 0;

  [[noreturn]] void fail(std::string_view expected, std::string_view got) const {
    throw linrec::FormatError(
        linrec::message(file, ", line ", line, ", column ", column, ": expected ", expected, ", got ", got));
  }
};

/// Takes the next field off the line, and says whether another one follows.
inline bool take_field(std::string_view& line, std::string& field, const Place& place) {
  field.clear();
  const std::string_view start = text::trimmed(line);
  std::size_t end = line.find(',');
  if (start.starts_with('"')) {
    std::size_t at = static_cast<std::size_t>(start.data() - line.data()) + 1;
    for (;; ++at) {
      if (at >= line.size()) place.fail("a closing quote", "the end of the line");
      if (line[at] == '"' && !line.substr(at + 1).starts_with('"')) break;
      if (line[at] == '"') ++at;
      field += line[at];
    }
    end = line.find(',', at);
    const std::string_view rest = text::trimmed(line.substr(at + 1, end == line.npos ? end : end - at - 1));
    if (!rest.empty()) place.fail("a comma after the closing quote", text::in_quotes(rest));
    field = text::trimmed(field);
  } else {
    field = text::trimmed(line.substr(0, end));
  }
  line = end == line.npos ? std::string_view() : line.substr(end + 1);
  return end != line.npos;
}

/// The field in the place's column.
inline std::string field_of(std::string_view line, const Place& place) {
  Place here = place;
  std::string field;
  for (here.column = 1;; ++here.column) {
    const bool more = take_field(line, field, here);
    if (here.column == place.column) return field;
    if (!more)
      place.fail("a number",
                 linrec::message("a line of ", here.column, here.column == 1 ? " column" : " columns"));
  }
}

/// @throws linrec::FormatError unless the whole field is a finite number.
inline double number_of(std::string_view field, const Place& place) {
  if (field.empty()) place.fail("a number", "nothing");
  std::string_view digits = field;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument)
    place.fail("a number", text::in_quotes(field));
  if (error != std::errc() || !(std::abs(value) <= largest_value))
    place.fail("a finite number of at most 1e100", text::in_quotes(field));
  return value;
}

/// Whether the first line names the column. What starts like a number is a number, right or wrong: a typing
/// error must not turn the first value into a header.
inline bool is_header(std::string_view field) {
  double number = 0;
  const bool parses = std::from_chars(field.data(), field.data() + field.size(), number).ec == std::errc();
  return !field.empty() && !parses &&
         std::string_view("0123456789+-.").find(field[0]) == std::string_view::npos;
}

inline std::ifstream opened(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw linrec::FormatError(linrec::message(path, ": expected a CSV file, got a directory"));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw linrec::FormatError(linrec::message(path, ": expected a CSV file, cannot open it"));
  return file;
}

}  // namespace detail

/// @param column counted from 1.
/// @throws linrec::FormatError that names the file, and line and column where there is one.
inline Series read_csv(const std::string& path, std::size_t column = 2) {
  std::ifstream file = detail::opened(path);
  Series series{std::filesystem::path(path).stem().string(), "value", {}};
  detail::Place place{path, 0, column};
  std::string line;
  std::size_t first_blank = 0;  // blank lines may end a file, but not interrupt it
  while (std::getline(file, line)) {
    ++place.line;
    std::string_view text = line;
    if (place.line == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (text::trimmed(text).empty()) {
      if (first_blank == 0) first_blank = place.line;
      continue;
    }
    if (first_blank != 0) detail::Place{path, first_blank, column}.fail("a number", "an empty line");
    const std::string field = detail::field_of(text, place);
    if (place.line == 1 && detail::is_header(field))
      series.quantity = field;
    else
      series.values.push_back(detail::number_of(field, place));
  }
  if (file.bad())
    throw linrec::FormatError(linrec::message(path, ": reading failed after line ", place.line));
  if (series.values.size() < fewest_values)
    throw linrec::FormatError(linrec::message(path, ": expected at least ", fewest_values,
                                              " values in column ", column, ", got ", series.values.size()));
  return series;
}

}  // namespace forecast
