#include "models.hpp"

namespace linrec {

LINREC_LAYERS(template, double);
template class LanguageModel<double>;

namespace io {

template LanguageModel<double> load_model(const Checkpoint&, WeightStorage);
template SelfTestResult run_self_test(const Checkpoint&, const LanguageModel<double>&);

}  // namespace io

}  // namespace linrec
