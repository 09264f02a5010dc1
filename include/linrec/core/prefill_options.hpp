// PrefillOptions: how a batch is laid out, where its scratch memory comes from, and how it is computed.
#pragma once

#include "linrec/core/sequence_layout.hpp"
#include "linrec/core/workspace.hpp"

namespace linrec {

/// Which of two ways prefill computes in. They are equal up to rounding.
enum class PrefillMode {
  fast,          ///< a few tokens at a time, as small matrix products
  reproducible,  ///< token by token: equal to `step` in every bit, however a sequence is split
};

struct PrefillOptions {
  SequenceLayout layout = {};
  Workspace* workspace = nullptr;  ///< kept by the caller; none: allocated for the call
  PrefillMode mode = PrefillMode::fast;
};

}  // namespace linrec
