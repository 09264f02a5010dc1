// The layers in float, without PoST.
#include "tests/layers/typed_layer.hpp"

namespace linrec::test {

template LayerPointerOf<float> make_typed_layer<float, false>(const LayerSpec&);

}  // namespace linrec::test
