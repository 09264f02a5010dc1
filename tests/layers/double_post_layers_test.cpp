// The layers in double, with PoST.
#include "tests/layers/typed_layer.hpp"

namespace linrec::test {

template LayerPointerOf<double> make_typed_layer<double, true>(const LayerSpec&);

}  // namespace linrec::test
