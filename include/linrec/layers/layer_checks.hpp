// What layers refuse in their configs and weights, beyond wrong shapes.
#pragma once

#include <string>

#include "linrec/core/parameter.hpp"

namespace linrec {

/// @throws ValueError, naming the size, if it is below 1.
inline void check_size(const char* name, Index size) {
  if (size < 1) throw ValueError(message(name, ": expected at least 1, got ", size));
}

/// @throws ValueError, naming the number of groups, if it does not divide the number of heads.
inline void check_groups(const char* name, Index groups, Index heads) {
  if (groups < 1 || heads % groups != 0)
    throw ValueError(message(name, ": expected a number that divides H = ", heads, ", got ", groups));
}

/// A weight that the config has no use for is a config that does not belong to the weights.
/// @throws ShapeError, naming the parameter, if it is present.
template <class Scalar>
void check_absent(const std::string& name, const Parameter<Scalar>& parameter) {
  if (parameter.present())
    throw ShapeError(message(name, ": expected no tensor, got ", shape_text(parameter.shape())));
}

}  // namespace linrec
