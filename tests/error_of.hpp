// What a call throws, as text.
#pragma once

#include <string>

#include "linrec/core/errors.hpp"

namespace linrec::test {

/// "ShapeError: text", "ValueError: text", or "nothing".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const ShapeError& error) {
    return message("ShapeError: ", error.what());
  } catch (const ValueError& error) {
    return message("ValueError: ", error.what());
  }
  return "nothing";
}

}  // namespace linrec::test
