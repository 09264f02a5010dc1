// The layers in float, with PoST.
#include "tests/layers/typed_layer.hpp"

namespace linrec::test {

template LayerPointerOf<float> make_typed_layer<float, true>(const LayerSpec&);

}  // namespace linrec::test
