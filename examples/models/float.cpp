#include "models.hpp"

namespace linrec {

LINREC_LAYERS(template, float);
template class LanguageModel<float>;

namespace io {

template LanguageModel<float> load_model(const Checkpoint&, WeightStorage);
template SelfTestResult run_self_test(const Checkpoint&, const LanguageModel<float>&);

}  // namespace io

}  // namespace linrec
