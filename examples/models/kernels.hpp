// The loops of the kernels, which are most of what takes time to compile, once for the tools and the tests:
// every law, for sizes that are known at run time.
#pragma once

#include "linrec/kernels/recurrence.hpp"

namespace linrec::detail {

inline constexpr Law all_laws[] = {
    {Decay::none, Correction::none},          {Decay::per_head, Correction::none},
    {Decay::per_channel, Correction::none},   {Decay::none, Correction::along_key},
    {Decay::per_head, Correction::along_key}, {Decay::per_channel, Correction::rank_one}};

// keyword is `extern template` or `template`
#define LINREC_SCAN(keyword, law, Scalar)                                                               \
  keyword void scan<all_laws[law], Dynamic, Dynamic>(Head<Scalar, Scalar>, const Terms<Scalar>*, Index, \
                                                     Index, Ahead&) noexcept
#define LINREC_CHUNKS(keyword, law, Scalar)                                                                  \
  keyword void run_chunks<all_laws[law]>(Chunk<all_laws[law], Scalar, Scalar>&, const Head<Scalar, Scalar>&, \
                                         Block<Scalar>&, Index, Ahead&) noexcept
#define LINREC_KERNELS(keyword, Scalar) \
  LINREC_SCAN(keyword, 0, Scalar);      \
  LINREC_SCAN(keyword, 1, Scalar);      \
  LINREC_SCAN(keyword, 2, Scalar);      \
  LINREC_SCAN(keyword, 3, Scalar);      \
  LINREC_SCAN(keyword, 4, Scalar);      \
  LINREC_SCAN(keyword, 5, Scalar);      \
  LINREC_CHUNKS(keyword, 0, Scalar);    \
  LINREC_CHUNKS(keyword, 1, Scalar);    \
  LINREC_CHUNKS(keyword, 2, Scalar);    \
  LINREC_CHUNKS(keyword, 3, Scalar);    \
  LINREC_CHUNKS(keyword, 4, Scalar)

LINREC_KERNELS(extern template, float);
LINREC_KERNELS(extern template, double);

}  // namespace linrec::detail
