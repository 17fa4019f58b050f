// The incomplete gamma function, in f64: P, the share of the integral up to x, and Q, the one
// beyond.
//
// Three ways. Up to about a, P by its power series; beyond, Q by its continued fraction; and where
// a is large and x near it, where both would take many steps, both by Temme's expansion: the error
// function of eta, with eta^2 / 2 = x / a - 1 - ln(x / a), and a correction in powers of eta and 1
// / a.
#include <cmath>
#include <iterator>
#include <numbers>
#include <vector>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_polynomial.h"

namespace tessera {

using internal::Call;
using internal::FloatResult;
using internal::kInfinity;
using internal::kNan;
using internal::LessLog1p;
using internal::Polynomial;

namespace {

constexpr int kSteps = 60;     // of the series and the fraction, enough for all digits
constexpr double kLarge = 25;  // from which on the expansion is good, for x / a from 0.6 to 1.7

// The root of 2 (m - ln(1 + m)) with the sign of m, whose derivative at 0 is 1.
Tensor Eta(const Tensor& m) {
  const Tensor near = m.Abs() < 1e-8, far = Where(near, 1, m);
  const Tensor root = (LessLog1p(far) * 2).Sqrt();
  return Where(near, m - m * m / 3, Where(far < 0, -root, root));
}

// x^a e^-x / gamma(a + 1).
Tensor Density(const Tensor& a, const Tensor& x) {
  const Tensor large = a >= 10, big = Where(large, a, 10), small = Where(large, 1, a);
  const Tensor s = 1 / (big * big);
  const Tensor beyond = Polynomial(s, {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188,
                                       -691.0 / 360360, 1.0 / 156}) /
                        big;  // of Stirling's formula
  const Tensor by_peak =
      -(big * LessLog1p(x / big - 1)) - beyond - (big * (2 * std::numbers::pi)).Log() * 0.5;
  const Tensor plain = small * x.Log() - x - (small + 1).Lgamma();
  return Where(large, by_peak, plain).Exp();
}

// P over the density.
Tensor Series(const Tensor& a, const Tensor& x) {
  Tensor sum = Tensor::Ones({}, kFloat64);
  for (int k = kSteps; k > 0; --k) sum = sum * x / (a + k) + 1;
  return sum;
}

// Q over the density.
Tensor Fraction(const Tensor& a, const Tensor& x) {
  Tensor below = x - a + (2 * kSteps + 1);
  for (int k = kSteps; k > 0; --k) below = x - a + (2 * k - 1) - (k - a) * k / below;
  return a / below;
}

struct Shares {
  Tensor p, q;
};

Shares NearPeak(const Tensor& a, const Tensor& x) {
  const Tensor eta = Eta(x / a - 1), inverse = 1 / a;
  const std::vector<double> terms[] = {
      {-0.33333333333333333, 0.083333333333333333, -0.014814814814814815, 0.0011574074074074074,
       0.0003527336860670194, -0.00017875514403292181, 3.9192631785224378e-5,
       -2.1854485106799922e-6, -1.85406221071516e-6, 8.296711340953086e-7, -1.7665952736826079e-7,
       6.7078535434014986e-9, 1.0261809784240308e-8, -4.3820360184533532e-9, 9.1476995822367902e-10,
       -2.551419399494625e-11, -5.8307721325504251e-11, 2.4361948020667416e-11,
       -5.0276692801141756e-12},
      {-0.0018518518518518519, -0.0034722222222222222, 0.0026455026455026455,
       -0.00099022633744855967, 0.00020576131687242798, -4.0187757201646091e-7,
       -1.8098550334489978e-5, 7.6491609160811101e-6, -1.6120900894563446e-6, 4.6471278028074343e-9,
       1.378633446915721e-7, -5.752545603517705e-8, 1.1951628599778147e-8, -1.7543241719747648e-11,
       -1.0091543710600413e-9, 4.1627929918425826e-10, -8.5639070264929806e-11},
      {0.0041335978835978836, -0.0026813271604938272, 0.00077160493827160494, 2.0093878600823045e-6,
       -0.00010736653226365161, 5.2923448829120125e-5, -1.2760635188618728e-5,
       3.4235787340961381e-8, 1.3721957309062933e-6, -6.298992138380055e-7, 1.4280614206064242e-7,
       -2.0477098421990866e-10, -1.4092529910867521e-8, 6.228974084922022e-9,
       -1.3670488396617113e-9, 9.4283561590146782e-13, 1.2872252400089318e-10},
      {0.00064943415637860082, 0.00022947209362139918, -0.00046918949439525571,
       0.00026772063206283885, -7.5618016718839764e-5, -2.3965051138672967e-7,
       1.1082654115347302e-5, -5.6749528269915966e-6, 1.4230900732435884e-6,
       -2.7861080291528142e-11, -1.6958404091930277e-7, 8.0994649053880824e-8,
       -1.9111168485973654e-8, 2.3928620439808118e-12, 2.0620131815488798e-9},
      {-0.0008618882909167117, 0.00078403922172006663, -0.00029907248030319018,
       -1.4638452578843418e-6, 6.6414982154651222e-5, -3.9683650471794347e-5, 1.1375726970678419e-5,
       2.5074972262375328e-10, -1.6954149536558306e-6, 8.9075075322053097e-7,
       -2.2929348340008049e-7, 2.956794137544049e-11, 2.8865829742708784e-8,
       -1.4189739437803219e-8},
      {-0.00033679855336635815, -6.9728137583658578e-5, 0.00027727532449593921,
       -0.00019932570516188848, 6.7977804779372078e-5, 1.419062920643967e-7, -1.3594048189768693e-5,
       8.0184702563342015e-6, -2.2914811765080952e-6, -3.252473551298454e-10, 3.4652846491085265e-7,
       -1.8447187191171343e-7},
      {0.00053130793646399222, -0.00059216643735369388, 0.00027087820967180448,
       7.9023532326603279e-7, -8.1539693675619688e-5, 5.6116827531062497e-5, -1.8329116582843376e-5,
       -3.0796134506033048e-9, 3.4651553688036091e-6, -2.0291327396058604e-6},
      {0.00034436760689237767, 5.1717909082605922e-5, -0.00033493161081142236,
       0.0002812695154763237, -0.00010976582244684731, -1.2741009095484485e-7,
       2.7744451511563644e-5, -1.8263488805711333e-5},
      {-0.00065262391859530942, 0.00083949872067208728, -0.00043829709854172101,
       -6.969091458420552e-7, 0.00016644846642067548, -0.00012783517679769219},
      {-0.00059676129019274625, -7.2048954160200106e-5, 0.00067823088376673284,
       -0.00064014752602627585},
  };
  Tensor sum;
  for (size_t k = std::size(terms); k-- > 0;) {
    const Tensor term = Polynomial(eta, terms[k]);
    sum = sum ? sum * inverse + term : term;
  }
  const Tensor half = a * eta * eta * 0.5;
  const Tensor rest = (-half).Exp() / (a * (2 * std::numbers::pi)).Sqrt() * sum;
  const Tensor z = eta * (a * 0.5).Sqrt();
  return {(-z).Erfc() * 0.5 - rest, z.Erfc() * 0.5 + rest};
}

Shares SharesOf(const Tensor& a, const Tensor& x) {
  const Tensor usual = (a > 0) & (x > 0) & a.IsFinite() & x.IsFinite();
  const Tensor safe_a = Where(usual, a, 1), safe_x = Where(usual, x, 1);
  const Tensor near = (safe_a >= kLarge) & (safe_x >= safe_a * 0.6) & (safe_x <= safe_a * 1.7);
  const Tensor low = near.LogicalNot() & ((safe_x < safe_a + 1) | (safe_x < 1.5));
  const Tensor high = (near | low).LogicalNot();
  const Shares peak = NearPeak(Where(near, safe_a, kLarge), Where(near, safe_x, kLarge));
  const Tensor density = Density(safe_a, safe_x);
  const Tensor by_series = density * Series(Where(low, safe_a, 1), Where(low, safe_x, 1));
  const Tensor by_fraction = density * Fraction(Where(high, safe_a, 1), Where(high, safe_x, 2));
  const Tensor p = Where(near, peak.p, Where(low, by_series, 1 - by_fraction));
  const Tensor q = Where(near, peak.q, Where(low, 1 - by_series, by_fraction));
  // At the edges: all of it lies at 0 of a = 0, and nowhere of an infinite a.
  const Tensor outside =
      (a < 0) | (x < 0) | a.IsNan() | x.IsNan() | ((a == 0) & (x == 0)) | (a.IsInf() & x.IsInf());
  const Tensor all = Where(outside, kNan, ((a == 0) | (x == kInfinity)).Cast(kFloat64));
  return {Where(usual, p, all), Where(usual, q, 1 - all)};
}

Shares OfOperands(const Tensor& a, const Operand& x, DType type) {
  return SharesOf(a.Cast(kFloat64), Tensor(internal::AsNode(x, type)).Cast(kFloat64));
}

}  // namespace

Tensor Tensor::GammaInc(const Operand& x) const {
  Call call("GammaInc", x.site(), *this, x);
  const DType type = FloatResult(internal::CommonType(*this, x));
  return OfOperands(*this, x, type).p.Cast(type);
}

Tensor Tensor::GammaIncC(const Operand& x) const {
  Call call("GammaIncC", x.site(), *this, x);
  const DType type = FloatResult(internal::CommonType(*this, x));
  return OfOperands(*this, x, type).q.Cast(type);
}

}  // namespace tessera
