// The model, compiled apart: the layers of all architectures take a while.
#pragma once

#include "linrec/io/checkpoint.hpp"
#include "linrec/io/self_test.hpp"
#include "linrec/models/language_model.hpp"

namespace generate {

linrec::LanguageModel<float> load(const linrec::io::Checkpoint& checkpoint);
linrec::io::SelfTestResult self_test(const linrec::io::Checkpoint& checkpoint,
                                     const linrec::LanguageModel<float>& model);

}  // namespace generate
