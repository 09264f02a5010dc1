// linrec-verify FILE...: checks kernels and layers, and with --model whole models, against files of right
// answers. See linrec-verify --help.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "file_format.hpp"
#include "table.hpp"
#include "verify_model.hpp"

namespace {

using namespace linrec::verify;

struct Arguments {
  std::vector<std::string> files;
  std::string model, expected;
  std::vector<std::string> scalars, ways;
  Settings settings;
  bool quiet = false;
};

using Choices = std::vector<std::string>;

/// An option that may come several times or as a list with commas, but does not swallow the files.
void add_choice(CLI::App& app, const std::string& name, Choices& chosen, const Choices& choices,
                const std::string& description) {
  app.add_option(name, chosen, description)
      ->check(CLI::IsMember(choices))
      ->delimiter(',')
      ->allow_extra_args(false);
}

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("FILE", arguments.files, "Cases, safetensors files; required without --model");
  CLI::Option* model =
      app.add_option("--model", arguments.model, "A model, a safetensors file or a folder of a checkpoint");
  CLI::Option* expected =
      app.add_option("--expected", arguments.expected, "What the model must give, a safetensors file");
  model->needs(expected);
  expected->needs(model);
  add_choice(app, "--scalar", arguments.scalars, {"double", "float"}, "Only these scalars");
  add_choice(app, "--way", arguments.ways, {"steps", "prefill", "splits"}, "Only these ways");
  app.add_option("--seed", arguments.settings.request.seed, "Of the random splits (1)");
  Tolerances& tolerances = arguments.settings.tolerances;
  app.add_option("--tolerance-double", tolerances.in_double, "The bar of all outputs in double")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--tolerance-float", tolerances.in_float, "The bar of all outputs in float")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--quiet", arguments.quiet, "Print only what is not ok, and the summary");
}

/// The values of `all` whose names were chosen, or all of them.
template <class T>
std::vector<T> chosen(const std::vector<T>& all, const Choices& names) {
  std::vector<T> result;
  for (const T value : all)
    if (names.empty() || std::find(names.begin(), names.end(), name_of(value)) != names.end())
      result.push_back(value);
  return result;
}

int verify(Arguments& arguments) {
  Settings& settings = arguments.settings;
  settings.scalars =
      chosen<ScalarType>({ScalarType::double_precision, ScalarType::float_precision}, arguments.scalars);
  settings.request.ways = chosen<Way>({Way::steps, Way::prefill, Way::splits}, arguments.ways);
  const auto stem = [](const std::string& file) { return std::filesystem::path(file).stem().string(); };
  std::vector<NamedRows> of_model;
  if (!arguments.model.empty()) of_model = verify_model(arguments.model, arguments.expected, settings);
  const auto name_in_model = [&](const std::string& name) {
    return stem(arguments.expected) + (name.empty() ? "" : "/" + name);
  };
  std::size_t width = 4;
  const auto make_room = [&](const std::string& name) {
    width = std::max(width, std::min<std::size_t>(name.size(), 40));
  };
  for (const NamedRows& one : of_model)
    if (!one.rows.empty()) make_room(name_in_model(one.name));
  for (const std::string& file : arguments.files) make_room(stem(file));

  Table table(std::cout, width, arguments.quiet);
  for (const NamedRows& one : of_model)
    for (const Row& row : one.rows) table.add(name_in_model(one.name), row);
  for (const std::string& file : arguments.files)
    for (const Row& row : verify_file(file, settings)) table.add(stem(file), row);
  table.print_summary(arguments.files.size() + (arguments.model.empty() ? 0 : 1));
  return table.all_ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Checks linrec's kernels, layers and models against files of right answers.", "linrec-verify");
  Arguments arguments;
  declare(app, arguments);
  try {
    app.parse(argc, argv);
    if (arguments.files.empty() && arguments.model.empty()) throw CLI::RequiredError("FILE");
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << file_format_text();
    return 0;
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return 2;
  }
  return verify(arguments);
}
