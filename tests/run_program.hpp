// Runs a program as a user does: exit status, standard output, standard error.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/catch.hpp"
#include "tests/temporary_file.hpp"

namespace linrec::test {

struct Outcome {
  int status;
  std::string out, error;
};

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Outcome run_program(const std::string& executable, const std::string& arguments) {
  const TemporaryFile out("", "out"), error("", "error");
  const std::string command =
      "'" + executable + "' " + arguments + " > '" + out.path() + "' 2> '" + error.path() + "'";
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), content(out.path()), content(error.path())};
}

}  // namespace linrec::test
