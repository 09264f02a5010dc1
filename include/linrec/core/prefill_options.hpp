// PrefillOptions: how a batch is laid out, and where its scratch memory comes from.
#pragma once

#include "linrec/core/sequence_layout.hpp"
#include "linrec/core/workspace.hpp"

namespace linrec {

struct PrefillOptions {
  SequenceLayout layout = {};
  Workspace* workspace = nullptr;  ///< kept by the caller; none: allocated for the call
};

}  // namespace linrec
