// Modified Bessel functions of the first kind, in f64: up to 12 by their series, all terms of which
// are positive; beyond it sqrt(x) e^-x times them is a polynomial in 24 / x - 1, by interpolation
// at the Chebyshev points.
#include <cmath>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_polynomial.h"

namespace tessera {

using internal::Call;
using internal::FloatResult;
using internal::Polynomial;

namespace {

constexpr double kBound = 12;

// The sum of (x^2 / 4)^k / (k! (k + order)!).
Tensor Series(const Tensor& x, int order) {
  constexpr int kTerms = 30;
  const Tensor t = x * x * 0.25;
  Tensor sum = Tensor::Ones({}, kFloat64);
  for (int k = kTerms; k > 0; --k) sum = sum * t * (1.0 / k / (k + order)) + 1;
  return sum;
}

// Of order 0 or 1, times e^-|x|.
Tensor Scaled(const Tensor& x, int order) {
  const Tensor size = Where(x < 0, -x, x), is_far = size > kBound;
  const Tensor low = Where(is_far, kBound, size);
  const Tensor near = Series(low, order) * (-low).Exp();
  const Tensor high = Where(is_far, size, kBound).Minimum(1e300), u = 2 * kBound / high - 1;
  const Tensor far =
      (order == 0
           ? Polynomial(u, {0.4010710650668474, 0.002182168172116924, 5.598482533613999e-05,
                            2.7977070210871058e-06, 2.1716045058815457e-07, 2.3688388291931826e-08,
                            3.4438524419422337e-09, 6.484451782767092e-10, 1.5458112995382473e-10,
                            4.643502995671488e-11, 2.2247054228456793e-11, 1.4737338101162444e-11,
                            4.507268668621701e-12, -2.5576937467106677e-12, -2.1734292427742053e-12,
                            -3.702367011935871e-13})
           : Polynomial(u, {0.39262449420411655, -0.006405453603482354, -9.124755355327459e-05,
                            -3.827951357230162e-06, -2.726844948175256e-07, -2.825365475506028e-08,
                            -3.967976935084793e-09, -7.285769567311706e-10, -1.7048562230620517e-10,
                            -5.0443073126316166e-11, -2.3588692108470508e-11,
                            -1.5487935103236137e-11, -4.943809973160954e-12, 2.5214619852738195e-12,
                            2.2999334362553604e-12, 4.215139011132995e-13})) /
      high.Sqrt();
  // An odd one is made of the sign that its argument has.
  const Tensor value =
      Where(is_far, order == 0 ? far : Where(x < 0, -far, far), order == 0 ? near : near * x * 0.5);
  return Where(x.IsInf(), 0, value);
}

// e^|x| in two factors, as it overflows where the product does not.
Tensor Whole(const Tensor& t, int order) {
  const Tensor x = t.Cast(kFloat64), half = (Where(x < 0, -x, x).Minimum(2000) * 0.5).Exp();
  const Tensor scaled = Scaled(Where(x.IsInf(), x.Sign(), x), order);
  return (scaled * half * half).Cast(FloatResult(t.dtype()));
}

}  // namespace

Tensor Tensor::BesselI0(CallSite at) const {
  Call call("BesselI0", at, *this);
  return Whole(*this, 0);
}

Tensor Tensor::BesselI1(CallSite at) const {
  Call call("BesselI1", at, *this);
  return Whole(*this, 1);
}

Tensor Tensor::BesselI0e(CallSite at) const {
  Call call("BesselI0e", at, *this);
  return Scaled(Cast(kFloat64), 0).Cast(FloatResult(dtype()));
}

Tensor Tensor::BesselI1e(CallSite at) const {
  Call call("BesselI1e", at, *this);
  return Scaled(Cast(kFloat64), 1).Cast(FloatResult(dtype()));
}

}  // namespace tessera
