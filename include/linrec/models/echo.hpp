// Where Echo (arXiv 2605.06997) has SKA in the place of Mamba-2.
#pragma once

#include <vector>

#include "linrec/core/errors.hpp"
#include "linrec/core/types.hpp"

namespace linrec {

/// `count` of the sequence layers 0 ... n_layers - 1, evenly spaced, never the first or the last: layer j of
/// them, from 0, is floor((j + 1) n_layers / (count + 1)). These are the paper's {8, 16} of 24 layers and
/// {7, 14, 21} of 28; others of its models, which have SKA in the last layer, are laid out in other ways.
/// @throws ValueError if there are not so many.
inline std::vector<Index> echo_ska_layers(Index n_layers, Index count) {
  if (n_layers < 1) throw ValueError(message("n_layers: expected at least 1, got ", n_layers));
  const Index most = n_layers > 2 ? n_layers - 2 : 0;
  if (count < 0 || count > most)
    throw ValueError(message("count: expected 0 to ", most, " of ", n_layers,
                             " layers, for SKA is never in the first or the last, got ", count));
  std::vector<Index> layers;
  for (Index j = 0; j < count; ++j) layers.push_back((j + 1) * n_layers / (count + 1));
  return layers;
}

}  // namespace linrec
