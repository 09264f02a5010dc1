#include "program.hpp"

#include <unistd.h>

#include <iomanip>
#include <iostream>

#include "examples/models/models.hpp"
#include "generator.hpp"
#include "state_file.hpp"

namespace generate {

namespace {

using linrec::message;
using linrec::io::Checkpoint;

/// Models of bytes have some tokens more at most; the smallest word pieces begin at about 512.
bool tokens_are_bytes(const Model& model) { return model.vocabulary() >= 256 && model.vocabulary() < 512; }

void check_model(const Checkpoint& checkpoint, const Model& model) {
  const auto result = linrec::io::run_self_test(checkpoint, model);
  if (result.passed()) {
    std::cerr << "self-test of " << result.tokens << " tokens passed: largest difference " << result.largest
              << ", at most " << result.tolerance << " is allowed\n";
    return;
  }
  std::string text = message("the self-test of '", checkpoint.name(), "' does not pass: ");
  for (std::size_t i = 0; i < result.differences.size(); ++i)
    text += (i > 0 ? " | " : "") + result.differences[i];
  throw linrec::FormatError(text);
}

/// As they come: a byte as it is, a number with a space behind it.
void print(TokenId token, bool as_byte) {
  if (as_byte)
    std::cout.put(static_cast<char>(static_cast<unsigned char>(token)));
  else
    std::cout << token << ' ';
  if (!std::cout.flush()) throw linrec::Error("standard output: cannot write to it");
}

void report(const Generator& generator) {
  if (::isatty(STDOUT_FILENO) != 0) std::cerr << '\n';  // the text has no end of line
  const auto phase = [](const char* name, const Phase& p) {
    std::cerr << name << ' ' << p.tokens << " tokens";
    if (p.rate() > 0) std::cerr << ", " << p.rate() << " a second";
    std::cerr << "; ";
  };
  std::cerr << std::fixed << std::setprecision(0);
  phase("prefill", generator.prefill());
  phase("decode", generator.decode());
  std::cerr << "state " << generator.state().bytes_per_sequence() << " bytes\n";
}

}  // namespace

void run(const Options& options) {
  const Checkpoint checkpoint(options.model);
  const Model model = linrec::io::load_model<float>(checkpoint, options.storage);
  if (options.check) {
    check_model(checkpoint, model);
    if (!options.has_prompt && !options.has_ids && options.load_state.empty()) return;
  }
  const bool bytes = !options.has_ids && tokens_are_bytes(model);
  if (options.has_prompt && !bytes)
    throw linrec::ValueError(
        message("prompt: expected a model whose tokens are bytes, got a vocabulary of ", model.vocabulary(),
                "; tokenizers come later, and until then --tokens takes ids, as in --tokens 1,2,3"));

  Model::State state = model.initial_state();
  std::vector<TokenId> tokens;
  Sampler sampler(options.sampling, options.seed);
  if (!options.load_state.empty()) {
    const Resume resume = load_state(options.load_state, model.vocabulary(), state);
    tokens.push_back(resume.last_token);
    if (!options.has_seed || options.seed == resume.seed)  // another seed begins its numbers anew
      sampler = Sampler(options.sampling, resume.seed, resume.draws);
  }
  tokens.insert(tokens.end(), options.tokens.begin(), options.tokens.end());
  if (tokens.empty())
    throw linrec::ValueError("expected at least one token in --prompt or --tokens, or a --load-state");

  Generator generator(model, std::move(state), std::move(sampler), bytes ? 256 : model.vocabulary());
  generator.run(std::move(tokens), options.length, [&](TokenId token) { print(token, bytes); });
  if (!options.save_state.empty())
    save_state(options.save_state, generator.state(),
               {generator.last_token(), generator.sampler().seed(), generator.sampler().draws()});
  report(generator);
}

}  // namespace generate
