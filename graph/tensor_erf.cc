// The error function beside Erf and Erfc: its inverse, what is scaled, and the normal distribution.
// All are computed in f64, by approximations good to its last digits but one or two.
#include <cmath>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_polynomial.h"

namespace tessera {

using internal::Call;
using internal::FloatResult;
using internal::kInfinity;
using internal::kNan;
using internal::Polynomial;

namespace {

// Of floats narrower than f64, in f64: erfinv(x) / x by polynomials in w = -log(1 - x^2), or in its
// root, fitted to 3e-9 up to where the last f32 below 1 is.
Tensor NarrowErfInv(const Tensor& x) {
  const Tensor w = -((1 - x) * (1 + x)).Log(), near = w < 5;
  const Tensor s = Where(near, w - 2.5, Where(near, 5, w).Sqrt() - 3);  // no root of 0
  constexpr double kFitted[][2] = {
      {1.5014093535139468, 2.8329768008866116},
      {0.24664028763584636, 1.0016752352580793},
      {-0.00417733940503426, 0.0094453416969800721},
      {-0.0012527446625215028, -0.0076427053360925128},
      {0.00021828263104357027, 0.0056872987958803689},
      {-4.9619107849648044e-06, -0.0035675412424910871},
      {-3.4346114386946326e-06, 0.0014765713777617512},
      {4.6589185072406127e-07, -0.00011894422129409772},
      {1.8037127979101112e-08, -0.00027974520532239079},
      {-8.772804739272561e-09, 0.00015971577604202082},
      {3.3554607141814694e-10, -2.8235651097239248e-05},
  };
  Tensor sum;
  for (size_t i = std::size(kFitted); i-- > 0;) {
    const auto [of_near, of_far] = kFitted[i];
    const Tensor c = Where(near, of_near, Tensor::Full({}, of_far, kFloat64));
    sum = sum ? sum * s + c : c;
  }
  return sum * x;
}

// The quantiles of the normal distribution by rational functions (Wichura, 1988: AS 241), of
// shares q from the middle with `beyond` in the tail: in the middle of the distance from it, in the
// tails of the root of the logarithm of what is beyond.
Tensor NormalQuantile(const Tensor& q, const Tensor& beyond) {
  const Tensor r = 0.180625 - q * q;
  const Tensor middle =
      q *
      Polynomial(r, {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
                     1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                     3.3430575583588128105e+4, 2.5090809287301226727e+3}) /
      Polynomial(r, {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
                     5.3941960214247511077e+3, 2.1213794301586595867e+4, 3.9307895800092710610e+4,
                     2.8729085735721942674e+4, 5.2264952788528545610e+3});
  const Tensor root = (-beyond.Log()).Sqrt();
  const Tensor s = root - 1.6, t = root - 5;
  const Tensor near =
      Polynomial(s, {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                     2.27238449892691845833e-2, 7.74545014278341407640e-4}) /
      Polynomial(
          s, {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
              1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
              1.05075007164441684324e-9});
  const Tensor far = Polynomial(t, {6.65790464350110377720e0, 5.46378491116411436990e0,
                                    1.78482653991729133580e0, 2.96560571828504891230e-1,
                                    2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7}) /
                     Polynomial(t, {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
                                    1.48753612908506148525e-2, 7.86869131145613259100e-4,
                                    1.84631831751005468180e-5, 1.42151175831644588870e-7,
                                    2.04426310338993978564e-15});
  const Tensor tail = Where(root <= 5, near, far).CopySign(q);
  return Where(q.Abs() <= 0.425, middle, tail);
}

Tensor WideErfInv(const Tensor& x) {
  return NormalQuantile(x * 0.5, (1 - x.Abs()) * 0.5) * (1 / std::numbers::sqrt2);
}

// e^(x^2) times e to the square of a part of few bits, which is exact, and to the rest.
Tensor ExpOfSquare(const Tensor& x) {
  const Tensor part = (x * 16).Round().Detach() / 16;
  return (part * part).Exp() * ((x - part) * (x + part)).Exp();
}

// Of x >= 0. From 2 on x times it is a polynomial in 4 / x - 1, by interpolation at the Chebyshev
// points.
Tensor ScaledErfc(const Tensor& x) {
  const Tensor below = x < 2, low = Where(below, x, 2), high = Where(below, 2, x);
  const Tensor near = (low * low).Exp() * low.Erfc();
  const Tensor far =
      Polynomial(4 / high - 1,
                 {0.5479978305002455,     -0.029861732979901964,   -0.01048663686200437,
                  0.0034298906724517238,  -0.00010971184708808945, -0.00026637073779015816,
                  0.00010036643668930063, -5.97521913303141e-06,   -1.080537221278686e-05,
                  5.641268860261006e-06,  -9.730918421066136e-07,  -4.5853321467235737e-07,
                  4.1435728399016204e-07, -1.4163379940302807e-07, 2.821936564400709e-10,
                  2.7787541691791845e-08, -1.811435288090842e-08,  6.6396490991836505e-09,
                  8.994814789370525e-10,  -3.085134204685735e-09,  1.1121705282213555e-09,
                  3.57098251514607e-10,   -2.1618040129669665e-10}) /
      high;
  return Where(below, near, far);
}

}  // namespace

Tensor Tensor::ErfInv(CallSite at) const {
  Call call("ErfInv", at, *this);
  const DType type = FloatResult(dtype());
  const Tensor wide = Cast(kFloat64), size = wide.Abs(), inside = size < 1;
  const Tensor x = Where(inside, wide, 0);
  const Tensor y = type == kFloat64 ? WideErfInv(x) : NarrowErfInv(x);
  const Tensor edge = Where(size == 1, Where(wide > 0, kInfinity, -kInfinity), kNan);
  return Where(inside, y, edge).Cast(type);
}

Tensor Tensor::Erfcx(CallSite at) const {
  Call call("Erfcx", at, *this);
  const Tensor x = Cast(kFloat64), below = x < 0;
  const Tensor scaled = ScaledErfc(Where(below, -x, x).Minimum(1e300));
  const Tensor far = x < -27;  // where it is above all floats, and so steep
  const Tensor other = ExpOfSquare(Where(below & ~far, x, 0)) * 2 - scaled;
  const Tensor near = Where(x == kInfinity, 0, Where(below, other, scaled));
  return Where(far, Where(far, x, -1) * -kInfinity, near).Cast(FloatResult(dtype()));
}

Tensor Tensor::Ndtr(CallSite at) const {
  Call call("Ndtr", at, *this);
  const Tensor x = Cast(kFloat64) * (-1 / std::numbers::sqrt2);
  return (x.Erfc() * 0.5).Cast(FloatResult(dtype()));
}

Tensor Tensor::LogNdtr(CallSite at) const {
  Call call("LogNdtr", at, *this);
  const Tensor x = Cast(kFloat64), z = x * (-1 / std::numbers::sqrt2), left = x < -1;
  const Tensor right = (Where(left, 0, -z).Erfc() * -0.5).Log1p();
  const Tensor scaled = ScaledErfc(Where(left, z, 1).Minimum(1e300));
  const Tensor tail = (scaled * 0.5).Log() - Where(left, z, 0).Square();
  return Where(left, tail, right).Cast(FloatResult(dtype()));
}

Tensor Tensor::Ndtri(CallSite at) const {
  Call call("Ndtri", at, *this);
  const Tensor share = Cast(kFloat64), inside = (share > 0) & (share < 1);
  const Tensor p = Where(inside, share, 0.5), q = p - 0.5;
  const Tensor value = NormalQuantile(q, Where(q < 0, p, 1 - p));
  const Tensor edge =
      Where(share == 0, -kInfinity, Where(share == 1, Tensor::Full({}, kInfinity, kFloat64), kNan));
  return Where(inside, value, edge).Cast(FloatResult(dtype()));
}

}  // namespace tessera
