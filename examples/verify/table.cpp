#include "table.hpp"

#include <cstdio>
#include <ostream>

namespace linrec::verify {

namespace {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::fail:
      return "FAIL";
    case Verdict::unknown:
      return "unknown";
    case Verdict::error:
      return "error";
  }
  return "";
}

std::string number_text(double x, const char* format) {
  char text[32];
  std::snprintf(text, sizeof(text), format, x);
  return text;
}

std::string details_of(const Row& row) {
  std::string text;
  for (const Check& check : row.checks) {
    text += text.empty() ? "" : "  ";
    if (check.computed)
      text += check.output + " " + number_text(check.error, "%.1e") + (check.ok() ? " <= " : " > ") +
              number_text(check.bar, "%.1e");
    else
      text += check.output + " is nothing that this kernel computes under these options";
  }
  return text + row.reason;
}

/// Files can hold any text; this much of it may reach a terminal.
std::string printable(std::string text) {
  constexpr std::size_t limit = 600;
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string padded_to(std::size_t width, std::string text) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

}  // namespace

Table::Table(std::ostream& out, std::size_t name_width, bool quiet)
    : out_(out), name_width_(name_width), quiet_(quiet) {}

void Table::add(const std::string& name, const Row& row) {
  ++counts_[row.verdict];
  for (const Check& check : row.checks)
    if (Worst& worst = worst_[row.scalar];
        check.computed && check.bar > 0 && check.error / check.bar > worst.ratio)
      worst = {check.error / check.bar, name + " " + row.way + " " + check.output};
  if (quiet_ && row.verdict == Verdict::ok) return;
  if (!header_printed_) print("case", "scalar", "way", "result", "worst error of each output, and its bar");
  header_printed_ = true;
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  print(name, or_dash(row.scalar), or_dash(row.way), name_of(row.verdict), details_of(row));
}

void Table::print(const std::string& name, const std::string& scalar, const std::string& way,
                  const std::string& result, const std::string& details) {
  out_ << padded_to(name_width_, printable(name)) << "  " << padded_to(6, scalar) << "  " << padded_to(7, way)
       << "  " << padded_to(7, result) << "  " << printable(details) << '\n';
}

void Table::print_summary(std::size_t files) const {
  for (const auto& [scalar, worst] : worst_)
    if (worst.ratio >= 0)
      out_ << "largest error / bar in " << scalar << ": " << number_text(worst.ratio, "%.2g") << " ("
           << printable(worst.where) << ")\n";
  out_ << files << (files == 1 ? " file: " : " files: ") << count(Verdict::ok) << " ok, "
       << count(Verdict::fail) << " FAIL, " << count(Verdict::unknown) << " unknown, "
       << count(Verdict::error) << " error\n";
}

bool Table::all_ok() const {
  return count(Verdict::ok) > 0 &&
         count(Verdict::fail) + count(Verdict::unknown) + count(Verdict::error) == 0;
}

std::size_t Table::count(Verdict verdict) const {
  const auto found = counts_.find(verdict);
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace linrec::verify
