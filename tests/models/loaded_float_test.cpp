#include "linrec/io/load_model.hpp"
#include "tests/models/loaded.hpp"

namespace linrec {

template class LanguageModel<float>;
template LanguageModel<float> io::load_model<float>(const io::Checkpoint&);  // for self_test_test.cpp

namespace test {

LanguageModel<float> load_float(const io::Checkpoint& checkpoint) {
  return io::load_model<float>(checkpoint);
}

}  // namespace test

}  // namespace linrec
