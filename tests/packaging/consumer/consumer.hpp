#pragma once

#include <linrec/linrec.hpp>
#ifdef CONSUMER_USES_IO
#include <linrec/io/safetensors.hpp>
#endif
#ifdef CONSUMER_USES_EIGEN_POOL
#include <linrec/parallel/eigen_pool.hpp>
#endif
#ifdef CONSUMER_USES_TBB
#include <linrec/parallel/tbb.hpp>
#endif
#ifdef CONSUMER_USES_OPENMP
#include <linrec/parallel/openmp.hpp>
#endif

linrec::Index elements(linrec::TokenView<const float> view);
/// Whether all executors that the consumer links run all items.
bool executors_run();
