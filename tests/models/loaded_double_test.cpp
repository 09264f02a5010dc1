#include "linrec/io/load_model.hpp"
#include "tests/models/loaded.hpp"

namespace linrec {

template class LanguageModel<double>;

namespace test {

LanguageModel<double> load_double(const io::Checkpoint& checkpoint) {
  return io::load_model<double>(checkpoint);
}

}  // namespace test

}  // namespace linrec
