// Models from checkpoints, in both precisions. All layers of all architectures take minutes to compile with
// all spectra and tapers; they are compiled once, in loaded_double_test.cpp and loaded_float_test.cpp.
#pragma once

#include "linrec/io/checkpoint.hpp"
#include "linrec/models/language_model.hpp"

namespace linrec {

extern template class LanguageModel<double>;
extern template class LanguageModel<float>;

namespace test {

LanguageModel<double> load_double(const io::Checkpoint& checkpoint);
LanguageModel<float> load_float(const io::Checkpoint& checkpoint);

template <class Scalar>
LanguageModel<Scalar> load(const io::Checkpoint& checkpoint) {
  if constexpr (std::is_same_v<Scalar, double>)
    return load_double(checkpoint);
  else
    return load_float(checkpoint);
}

}  // namespace test

}  // namespace linrec
