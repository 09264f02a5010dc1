// The layers in double, without PoST.
#include "tests/layers/typed_layer.hpp"

namespace linrec::test {

template LayerPointerOf<double> make_typed_layer<double, false>(const LayerSpec&);

}  // namespace linrec::test
