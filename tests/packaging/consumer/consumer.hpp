#pragma once

#include <linrec/linrec.hpp>
#ifdef CONSUMER_USES_IO
#include <linrec/io/safetensors.hpp>
#endif

linrec::Index elements(linrec::TokenView<const float> view);
