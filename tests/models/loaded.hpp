// Models from checkpoints, in both precisions.
#pragma once

#include "examples/models/models.hpp"

namespace linrec::test {

template <class Scalar>
LanguageModel<Scalar> load(const io::Checkpoint& checkpoint,
                           io::WeightStorage storage = io::WeightStorage::widened) {
  return io::load_model<Scalar>(checkpoint, storage);
}
inline LanguageModel<double> load_double(const io::Checkpoint& checkpoint) {
  return io::load_model<double>(checkpoint);
}
inline LanguageModel<float> load_float(const io::Checkpoint& checkpoint) {
  return io::load_model<float>(checkpoint);
}

}  // namespace linrec::test
