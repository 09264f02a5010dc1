// generate: continues a text with a language model, on the CPU, token by token.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "options.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
  CLI::App app(
      "Continues a text, or a list of tokens, with a Mamba-2, RWKV-7, Gated DeltaNet, GLA, RetNet or\n"
      "Echo language model in safetensors form.");
  generate::Options options;
  generate::declare(app, options);
  try {
    app.parse(argc, argv);
    generate::finish(app, options);
    generate::run(options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::cerr << "generate: " << error.what() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
