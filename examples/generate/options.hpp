// The command line, and what it says about tokens.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/io/weight_reader.hpp"
#include "sampling.hpp"

namespace generate {

struct Options {
  std::string model, prompt, ids, load_state, save_state, weights = "float";
  bool has_prompt = false, has_ids = false, has_seed = false, check = false;
  Index length = 128;
  linrec::io::WeightStorage storage{};
  Sampling sampling;
  std::uint64_t seed = 0;
  std::vector<TokenId> tokens;  ///< of prompt or ids
};

inline constexpr const char* examples = R"help(Examples:
  generate --model m.safetensors --prompt "In the beginning"
  generate --model m.safetensors --prompt "In the beginning" --temperature 0.8 --top-p 0.9 --seed 7
  generate --model folder --tokens 1,2,3 --length 16
  generate --model m.safetensors --prompt "$(cat book.txt)" --length 0 --save-state book.state
  generate --model m.safetensors --load-state book.state --prompt "And then"
  generate --model m.safetensors --check

The text goes to standard output, all else to standard error.)help";

inline void declare(CLI::App& app, Options& o) {
  app.add_option("--model", o.model, "Safetensors file, or folder with model.safetensors and config.json")
      ->required();
  auto* prompt = app.add_option("--prompt", o.prompt, "Text to continue; the model's tokens must be bytes");
  app.add_option("--tokens", o.ids, "Tokens to continue, as in 1,2,3; prints tokens, too")->excludes(prompt);
  app.add_option("--length", o.length, "Tokens to generate (default: 128)");
  app.add_option("--temperature", o.sampling.temperature,
                 "Above 0: draw at random (default: 0, the likeliest token)");
  app.add_option("--top-k", o.sampling.top_k, "Draw from the K likeliest tokens only");
  app.add_option("--top-p", o.sampling.top_p,
                 "Draw from the fewest tokens that have this probability together");
  app.add_option(
      "--seed", o.seed,
      "Of the random numbers (default: 0; those of --load-state go on, unless this is another seed)");
  app.add_option("--save-state", o.save_state, "File to write: where this run stopped");
  app.add_option("--load-state", o.load_state, "File of --save-state: go on there; a prompt comes behind it");
  app.add_option(
      "--weights", o.weights,
      "Of matrices in memory: float (default); bf16, half of it and faster, rounded if need be; or\n"
      "stored: bf16 if the file has it");
  app.add_flag("--check", o.check, "Run the test that the checkpoint carries; nothing else without a prompt");
  app.footer(examples);
}

/// The bytes of a text as tokens.
inline std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

/// "1,2,3" or "1 2 3" as tokens.
/// @throws linrec::ValueError if anything else is in it.
inline std::vector<TokenId> parse_ids(std::string_view text) {
  constexpr std::string_view separators = ", \t\n";
  std::vector<TokenId> tokens;
  for (std::size_t at = 0; (at = text.find_first_not_of(separators, at)) != text.npos;) {
    const std::string_view word = text.substr(at, text.find_first_of(separators, at) - at);
    TokenId token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size())
      throw linrec::ValueError(
          linrec::message("tokens: expected whole numbers as in 1,2,3, got '", word, "'"));
    tokens.push_back(token);
    at += word.size();
  }
  return tokens;
}

/// @throws linrec::ValueError if there is no such kind.
inline linrec::io::WeightStorage weight_storage(std::string_view kind) {
  using enum linrec::io::WeightStorage;
  if (kind == "float") return widened;
  if (kind == "bf16") return bfloat16;
  if (kind == "stored") return as_stored;
  throw linrec::ValueError(linrec::message("weights: expected float, bf16 or stored, got '", kind, "'"));
}

/// What the declarations cannot say.
/// @throws linrec::ValueError, naming the option.
inline void finish(const CLI::App& app, Options& o) {
  o.has_prompt = app.count("--prompt") > 0;
  o.has_ids = app.count("--tokens") > 0;
  o.has_seed = app.count("--seed") > 0;
  check(o.sampling);
  o.storage = weight_storage(o.weights);
  if (o.length < 0) throw linrec::ValueError(linrec::message("length: expected at least 0, got ", o.length));
  if (!o.has_prompt && !o.has_ids && o.load_state.empty() && !o.check)
    throw linrec::ValueError("expected --prompt, --tokens, --load-state or --check (--help says more)");
  o.tokens = o.has_ids ? parse_ids(o.ids) : bytes_of(o.prompt);
}

}  // namespace generate
