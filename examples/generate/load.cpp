#include "load.hpp"

namespace generate {

linrec::LanguageModel<float> load(const linrec::io::Checkpoint& checkpoint) {
  return linrec::io::load_model<float>(checkpoint);
}

linrec::io::SelfTestResult self_test(const linrec::io::Checkpoint& checkpoint,
                                     const linrec::LanguageModel<float>& model) {
  return linrec::io::run_self_test(checkpoint, model);
}

}  // namespace generate
