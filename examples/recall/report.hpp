// The tables of a comparison, and how to read them.
#pragma once

#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "comparison.hpp"

namespace recall {

inline const char* title_of(TextKind kind) {
  return kind == TextKind::whole ? "Keys hashed whole: nearly orthogonal"
                                 : "Keys hashed by runs of three letters: alike where the texts are";
}

namespace detail {

inline constexpr int label_width = 12, cell_width = 13, last_width = 9;

template <class Text>
void print_line(std::ostream& out, const std::string& label, const std::vector<Method>& methods,
                const Text& text, const std::string& last = "") {
  out << std::left << std::setw(label_width) << label << std::right;
  for (const Method& method : methods) out << std::setw(cell_width) << text(method);
  if (!last.empty()) out << std::setw(last_width) << last;
  out << '\n';
}

/// "0.97"
inline std::string shown(double x) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << x + 0.0;
  return text.str() == "-0.00" ? "0.00" : text.str();
}

}  // namespace detail

inline void print(std::ostream& out, const Comparison& comparison, const Settings& settings) {
  const std::vector<Method>& methods = comparison.methods;
  const auto part = [](bool first) {
    return [first](const Method& m) {
      const std::size_t space = m.name.find(' ');
      return first ? m.name.substr(0, space) : m.name.substr(space + 1);
    };
  };
  out << title_of(comparison.keys) << "\n\n";
  detail::print_line(out, "", methods, part(true), "K = 2:");
  detail::print_line(out, "", methods, part(false), "two on");
  detail::print_line(out, "key length", methods, [](const Method& m) { return m.key; });
  detail::print_line(out, "bytes", methods, [](const Method& m) { return m.bytes; });
  out << "pairs tokens\n";
  for (std::size_t i = 0; i < comparison.pairs.size(); ++i) {
    const Index n = comparison.pairs[i];
    out << std::setw(5) << n << std::setw(7) << n * (1 + settings.distractors);
    for (const Method& m : methods)
      out << std::setw(detail::cell_width)
          << detail::shown(m.scores[i].recall) + " (" + detail::shown(m.scores[i].cosine) + ")";
    out << std::setw(detail::last_width) << detail::shown(comparison.ahead[i]) << '\n';
  }
  out << '\n';
}

inline void print_reading_aid(std::ostream& out, const Settings& settings) {
  out << R"(How to read this
  0.97 (0.58)  recall: the share of the keys so far whose value is the nearest, of all values, to what
               comes back; and the cosine between the two. Means of )"
      << draws << R"( streams with other orders and
               other vectors
  tokens       pairs and distractors: all are stored, pairs alone are asked for
  bytes        of the state, however much is stored. SKA keeps 2 r^2 + P r + 2 r + 1 doubles, here with
               r = )"
      << settings.rank << ", P = " << settings.value_dim
      << R"(; the others keep (key length) P floats: as many bytes, to a row, in
               the first two of their columns, and keys of length r in the last two
  SKA, K = 0   the regression of values on keys, with the ridge )"
      << settings.ridge << R"(: exact but for that, however
               alike keys are, up to r independent ones; beyond, r directions must do for more keys,
               and recall must fall, in the end to that of linear attention with keys as short
  SKA, K = 2   moves the key on, twice, to the one that followed it: it answers with the value two tokens
               on, and the last column is the cosine with that one. It is meant for keys that a model
               has learned, and that follow one another; for pairs in no order it is no memory
  linear attention, delta rule
               have longer keys in the same bytes. Random ones are nearly orthogonal by themselves, and
               a rough answer will do as long as its value is the nearest; keys that are alike get in
               each other's way
Keys and values are hashes, and nothing is learned: this says how much a state can hold, and nothing of how
a trained model would use it.
)";
}

}  // namespace recall
