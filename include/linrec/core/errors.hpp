// The error types, and how their texts are put together.
#pragma once

#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

namespace linrec {

/// Base of everything that linrec throws on bad input. The text names the argument, what was
/// expected and what came.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A shape, a length or an offset does not fit.
struct ShapeError : Error {
  using Error::Error;
};

/// A number lies outside of what the argument may hold.
struct ValueError : Error {
  using Error::Error;
};

/// A file does not hold what its format promises.
struct FormatError : Error {
  using Error::Error;
};

/// Concatenates its arguments as text, numbers in full precision.
template <class First, class... Parts>
std::string message(const First& first, const Parts&... parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(17);
  ((text << first) << ... << parts);
  return text.str();
}

}  // namespace linrec
