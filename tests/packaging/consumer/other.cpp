#include "consumer.hpp"

linrec::Index elements(linrec::TokenView<const float> view) { return view.size(); }
