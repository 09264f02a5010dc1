// recall: texts under keys in a state of constant size; a comparison of such memories, or answers to queries.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "memory_file.hpp"
#include "plot.hpp"

namespace {

using recall::Index;

struct Arguments {
  std::string file, keys;  // empty: the glossary; both kinds to compare, n-grams to answer
  std::vector<Index> pairs;
  std::optional<Index> rank, value_dim;
  std::optional<double> eps;
  Index distractors = 1;
  std::uint64_t seed = 1;
  std::vector<std::string> queries;
  std::string save, load, plot = "recall.svg";
  bool no_plot = false;

  bool answers() const { return !queries.empty() || !save.empty() || !load.empty(); }
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("--file", a.file,
                 "Pairs, KEY<TAB>VALUE a line (default: a glossary of linrec's own headers, \"kernels/state "
                 "matrix\" and what the comment there says)");
  const std::vector<CLI::Option*> makes{
      app.add_option("--rank", a.rank,
                     "r, the length of SKA's keys (default: 32; with --query 2 a pair, 64 to 1024)")
          ->check(CLI::Range(1, 2048)),
      app.add_option("--value-dim", a.value_dim, "P, the length of values (default: 32; with --query 256)")
          ->check(CLI::Range(32, 4096)),  // shorter ones could be equal for different texts
      app.add_option("--eps", a.eps, "The ridge (default: 0.001; with --query 0.1)")
          ->check(CLI::Range(1e-12, 1e6)),
      app.add_option("--keys", a.keys,
                     "whole: keys are nearly orthogonal; ngrams: alike where their texts are "
                     "(default: a table of each; with --query ngrams, which mostly forgive a typing error)")
          ->check(CLI::IsMember({"whole", "ngrams"})),
      app.add_option("--seed", a.seed, "Seed of orders and vectors (default: 1)")
          ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 53))};
  const std::vector<CLI::Option*> stores{
      app.add_option(
          "--query", a.queries,
          "Stores all pairs and prints KEY<TAB>VALUE<TAB>CONFIDENCE for each of these keys; - reads "
          "keys from standard input, one a line"),
      app.add_option("--save", a.save, "Stores all pairs, and writes the memory to this file"),
      app.add_option("--load", a.load,
                     "Starts from a file of --save; the pairs of --file, if any, come on top")};
  for (CLI::Option* option : makes) option->excludes(stores[2]);
  auto* plot = app.add_option("--plot", a.plot,
                              "Picture of the curves, .svg or .png (default: recall.svg); needs gnuplot");
  const std::vector<CLI::Option*> compares{
      app.add_option("--pairs", a.pairs, "Numbers of pairs to measure at, as in 8,16,32 (default: 4 to 512)")
          ->delimiter(',')
          ->check(CLI::Range(1, 100000)),
      app.add_option("--distractors", a.distractors,
                     "Tokens with random keys and values after each pair (default: 1)")
          ->check(CLI::Range(0, 100)),
      app.add_flag("--no-plot", a.no_plot, "Draw nothing")->excludes(plot), plot};
  for (CLI::Option* option : compares)
    for (CLI::Option* other : stores) option->excludes(other);
}

/// The numbers of pairs to measure at, rising.
std::vector<Index> counts_of(const Arguments& a, Index available) {
  std::set<Index> counts(a.pairs.begin(), a.pairs.end());
  if (counts.empty()) {
    for (const Index n : {4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512})
      if (n <= available) counts.insert(n);
    if (available < 512) counts.insert(available);
  }
  if (*counts.rbegin() > available)
    throw linrec::ValueError(linrec::message("--pairs: expected at most ", available,
                                             ", as many as there are, got ", *counts.rbegin()));
  return {counts.begin(), counts.end()};
}

std::size_t repeated_keys(const std::vector<recall::Pair>& pairs) {
  std::unordered_set<std::string> keys;
  for (const recall::Pair& pair : pairs) keys.insert(pair.key);
  return pairs.size() - keys.size();
}

void compare(const Arguments& a, std::vector<recall::Pair> pairs) {
  const std::vector<Index> counts = counts_of(a, static_cast<Index>(pairs.size()));
  const std::string all = static_cast<std::size_t>(counts.back()) < pairs.size()
                              ? linrec::message("The first ", counts.back(), " of ", pairs.size())
                              : linrec::message(pairs.size());
  pairs.resize(static_cast<std::size_t>(counts.back()));
  const recall::Settings settings{a.rank.value_or(32), a.value_dim.value_or(32), a.distractors,
                                  a.eps.value_or(1e-3), a.seed};
  std::set<std::string> values;
  for (const recall::Pair& pair : pairs) values.insert(pair.value);
  std::cout << all << " pairs, " << values.size() << " different values, " << a.distractors
            << (a.distractors == 1 ? " distractor" : " distractors") << " after each pair\n";
  if (const std::size_t repeated = repeated_keys(pairs))
    std::cout << repeated << (repeated == 1 ? " pair repeats" : " pairs repeat")
              << " a key: the later value counts as right. The delta rule overwrites; the others mix both\n";
  std::cout << '\n';
  std::vector<recall::Comparison> comparisons;
  for (const auto& [name, kind] :
       {std::pair{"whole", recall::TextKind::whole}, {"ngrams", recall::TextKind::ngrams}}) {
    if (!a.keys.empty() && a.keys != name) continue;
    comparisons.push_back(recall::compare(pairs, counts, settings, kind));
    recall::print(std::cout, comparisons.back(), settings);
  }
  recall::print_reading_aid(std::cout, settings);
  if (a.no_plot) return;
  if (!gnuplot::is_installed()) {
    std::cout << "\nNo plot: gnuplot is not installed.\n";
    return;
  }
  std::cout << std::flush;
  recall::draw(comparisons, settings, a.plot);
  std::cout << "\nCurves: " << a.plot << '\n';
}

/// The memory of --load, or a new one with room for the pairs; and the pairs stored in it.
recall::AssociativeMemory filled_memory(const Arguments& a, const std::vector<recall::Pair>& pairs) {
  const std::size_t repeated = repeated_keys(pairs);
  const Index distinct = static_cast<Index>(pairs.size() - repeated);
  auto memory = a.load.empty()
                    ? recall::AssociativeMemory(
                          {.rank = a.rank.value_or(std::clamp<Index>(2 * distinct, 64, 1024)),
                           .value_dim = a.value_dim.value_or(256),
                           .ridge = a.eps.value_or(0.1),
                           .keys = a.keys == "whole" ? recall::TextKind::whole : recall::TextKind::ngrams,
                           .seed = a.seed})
                    : recall::load_memory(a.load);
  for (const recall::Pair& pair : pairs) memory.store(pair.key, pair.value);
  std::cerr << "recall: " << memory.size() << " pairs in " << memory.bytes()
            << " bytes; confidence is a cosine, and lower for keys that were never stored\n";
  if (repeated > 0)
    std::cerr << "recall: " << repeated << (repeated == 1 ? " pair repeats" : " pairs repeat")
              << " a key: its values are mixed, not replaced\n";
  if (memory.size() > memory.options().rank)
    std::cerr << "recall: more pairs than r = " << memory.options().rank << ": expect wrong answers\n";
  return memory;
}

void answer(const Arguments& a, const std::vector<recall::Pair>& pairs) {
  recall::AssociativeMemory memory = filled_memory(a, pairs);
  if (!a.save.empty()) recall::save_memory(a.save, memory);
  const auto reply = [&](const std::string& key) {
    const auto [value, confidence] = memory.recall(key);
    std::cout << key << '\t' << value << '\t' << recall::detail::shown(confidence) << std::endl;
  };
  for (const std::string& query : a.queries) {
    if (query != "-") {
      reply(query);
      continue;
    }
    std::string line;
    while (std::getline(std::cin, line))
      if (const std::string_view key = text::trimmed(line); !key.empty()) reply(std::string(key));
  }
}

std::vector<recall::Pair> pairs_of(const Arguments& a) {
  if (!a.file.empty()) return recall::read_pairs(a.file);
  if (!a.load.empty()) return {};
  return recall::glossary(LINREC_HEADERS);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "An associative memory of constant size, without training: texts under keys in the state\n"
      "of spectral Koopman attention. Prints how many pairs it remembers, next to linear\n"
      "attention and the delta rule with as many bytes; or, with --query, answers.");
  Arguments arguments;
  declare(app, arguments);
  CLI11_PARSE(app, argc, argv);
  try {
    if (arguments.eps && std::isnan(*arguments.eps))  // which no range excludes
      throw linrec::ValueError("--eps: expected a number, got nan");
    std::vector<recall::Pair> pairs = pairs_of(arguments);
    if (arguments.answers())
      answer(arguments, pairs);
    else
      compare(arguments, std::move(pairs));
  } catch (const std::exception& error) {
    std::cerr << "recall: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
