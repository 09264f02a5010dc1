// Models of checkpoints in both precisions, compiled once for the tools and the tests: all layers of all
// architectures, plain and PoST, take half a minute each.
#pragma once

#include "examples/models/layers.hpp"
#include "linrec/io/checkpoint.hpp"
#include "linrec/io/load_model.hpp"
#include "linrec/io/self_test.hpp"
#include "linrec/models/language_model.hpp"

namespace linrec {

extern template class LanguageModel<float>;
extern template class LanguageModel<double>;

namespace io {

extern template LanguageModel<float> load_model(const Checkpoint&, WeightStorage);
extern template LanguageModel<double> load_model(const Checkpoint&, WeightStorage);
extern template SelfTestResult run_self_test(const Checkpoint&, const LanguageModel<float>&);
extern template SelfTestResult run_self_test(const Checkpoint&, const LanguageModel<double>&);

}  // namespace io

}  // namespace linrec
