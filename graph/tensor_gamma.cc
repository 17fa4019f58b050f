// The inverse of the error function, the logarithm of the gamma function and its derivative. All
// are computed in f64, by approximations good to its last digits but one or two.
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::FloatResult;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Coefficients from the constant on.
Tensor Polynomial(const Tensor& x, std::initializer_list<double> coefficients) {
  Tensor sum;
  for (const double* c = std::data(coefficients) + coefficients.size();
       c-- != coefficients.begin();)
    sum = sum ? sum * x + *c : Tensor::Full({}, *c, kFloat64);
  return sum;
}

// What lies below 1/2 is found at 1 - x.
struct Reflected {
  Tensor below, z;
  explicit Reflected(const Tensor& x) : below(x < 0.5), z(Where(below, 1 - x, x)) {}
};

// pi x, less a multiple of pi.
Tensor Turned(const Tensor& x) { return (x - x.Round()) * std::numbers::pi; }

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

// The quantiles of the normal distribution by rational functions (Wichura, 1988: AS 241), in the
// middle of the distance from it, in the tails of the root of the logarithm of what is beyond.
Tensor WideErfInv(const Tensor& x) {
  const Tensor size = x.Abs(), q = x * 0.5, r = 0.180625 - q * q;
  const Tensor middle =
      q *
      Polynomial(r, {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
                     1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                     3.3430575583588128105e+4, 2.5090809287301226727e+3}) /
      Polynomial(r, {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
                     5.3941960214247511077e+3, 2.1213794301586595867e+4, 3.9307895800092710610e+4,
                     2.8729085735721942674e+4, 5.2264952788528545610e+3});
  const Tensor root = (-((1 - size) * 0.5).Log()).Sqrt();
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
  const Tensor tail = Where(root <= 5, near, far).CopySign(x);
  return Where(size <= 0.85, middle, tail) * (1 / std::numbers::sqrt2);
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

// Lanczos' sum of nine terms for g = 7, as one fraction: all coefficients are positive then, and it
// takes one division. Its value is the leading one's long before powers of z overflow.
Tensor Tensor::Lgamma(CallSite at) const {
  Call call("Lgamma", at, *this);
  const Tensor x = Cast(kFloat64);
  const Reflected from(x);
  const Tensor z = from.z - 1, t = z + 7.5, w = z.Minimum(1e17);
  const Tensor sum = Polynomial(w, {10619610.099075994, 11246929.484659927, 5210869.0177608309,
                                    1379496.2658786706, 228235.21549971451, 24165.510665029535,
                                    1599.0425347220457, 60.458333333342033, 0.99999999999980993}) /
                     Polynomial(w, {40320, 109584, 118124, 67284, 22449, 4536, 546, 36, 1});
  const double half_log_of_two_pi = 0.91893853320467274178;
  const Tensor above = (z + 0.5) * t.Log() - t + sum.Log() + half_log_of_two_pi;
  const Tensor sine = Turned(x).Sin().Abs();
  const Tensor pole = sine == 0;
  const Tensor below = std::log(std::numbers::pi) - Where(pole, 1, sine).Log() - above;
  const Tensor y = Where(from.below, Where(pole, kInfinity, below), above);
  return Where(x.IsInf(), kInfinity, y).Cast(FloatResult(dtype()));
}

// Moved up by 8, where the asymptotic series is good.
Tensor Tensor::Digamma(CallSite at) const {
  Call call("Digamma", at, *this);
  const Tensor x = Cast(kFloat64);
  const Reflected from(x);
  const Tensor w = from.z + 8, s = 1 / (w * w);
  Tensor above = w.Log() - 0.5 / w -
                 s * Polynomial(s, {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132,
                                    -691.0 / 32760, 1.0 / 12});
  for (int k = 0; k < 8; ++k) above = above - 1 / (from.z + k);
  const Tensor angle = Turned(x);
  const Tensor pole = angle == 0;
  const Tensor below = above - std::numbers::pi / Where(pole, 1, angle).Tan();
  const Tensor at_pole = Where(x == 0, (x * 0 - kInfinity).CopySign(-x), kNan);
  const Tensor y = Where(from.below, Where(pole, at_pole, below), above);
  return Where(x.IsInf(), Where(x > 0, kInfinity, kNan), y).Cast(FloatResult(dtype()));
}

}  // namespace tessera
