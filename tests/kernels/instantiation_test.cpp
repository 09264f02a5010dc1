// Kernels with every policy of the library, and those that a user writes.
#include "linrec/kernels/gated_delta_net.hpp"
#include "linrec/kernels/gla.hpp"
#include "linrec/kernels/mamba2.hpp"
#include "linrec/kernels/retnet.hpp"
#include "linrec/kernels/rwkv7.hpp"
#include "linrec/policy/initial.hpp"
#include "tests/catch.hpp"

namespace linrec::test {

/// A spectrum of the user's own; the conversion to an array is Eigen's.
struct TwoRates {
  Eigen::Array2d log_rates() const { return {-1, 1}; }
};

}  // namespace linrec::test

template class linrec::Mamba2<float, linrec::PostSpectrum, linrec::LinearTaper>;
template class linrec::Mamba2<double, linrec::PostSpectrum, linrec::GapAwareTaper, linrec::Dims<2, 4, 8>>;
template class linrec::Mamba2<float, linrec::test::TwoRates, linrec::LearnedTaper>;
template class linrec::Mamba2<float, linrec::FreeSpectrum, linrec::GivenTaper>;
template class linrec::TokenView<float>;
template class linrec::TokenView<const double>;
template class linrec::Dims<>;
template class linrec::Dims<2, 4, 8>;
template class linrec::Dims<2, linrec::Dynamic, 8>;

namespace linrec::test {

TEST_CASE("every spectrum and taper makes a kernel") {
  const Dims<> dims(2, 4, 8);
  const PostSpectrum post = PostSpectrum::from_log_rates(geometric_log_rates(2, 0.1, 1));
  const PostSpectrum channels = PostSpectrum::from_log_rates(rwkv7_initial_logits(8, 100));
  CHECK(Mamba2<float, PostSpectrum, LinearTaper>(dims, post).dims() == dims);
  CHECK(Mamba2<double, PostSpectrum, GapAwareTaper, Dims<2, 4, 8>>({}, post, GapAwareTaper(64))
            .dims()
            .value() == 8);
  CHECK(Mamba2<float, TwoRates, LearnedTaper>(dims, {}, LearnedTaper(Eigen::ArrayXd::Zero(1))).dims() ==
        dims);
  CHECK(GLA<float, PostSpectrum, LinearTaper>(dims, post).scale() == 0.5f);
  CHECK(RetNet<float, TwoRates>(dims, {}).scale() == 0.5f);
  CHECK(GatedDeltaNet<float, PostSpectrum, GapAwareTaper>(dims, post, GapAwareTaper(64)).scale() == 0.5f);
  CHECK(RWKV7<float, PostSpectrum, GapAwareTaper>(dims, channels, GapAwareTaper(64)).scale() == 1);
}

}  // namespace linrec::test
