// The logarithm of the gamma function, its derivatives, and what is made of it. All are computed in
// f64, by approximations good to its last digits but one or two.
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
using internal::Fail;
using internal::FloatResult;
using internal::kInfinity;
using internal::kNan;
using internal::Polynomial;

namespace {

// What lies below 1/2 is found at 1 - x.
struct Reflected {
  Tensor below, z;
  explicit Reflected(const Tensor& x) : below(x < 0.5), z(Where(below, 1 - x, x)) {}
};

// pi x, less a multiple of pi.
Tensor Turned(const Tensor& x) { return (x - x.Round()) * std::numbers::pi; }

}  // namespace

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
  const Tensor given = Cast(kFloat64), top = given == kInfinity;
  const Tensor x = Where(top, 1, given);  // what is not chosen has a derivative
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
  return Where(given.IsInf(), Where(top, kInfinity, kNan), y).Cast(FloatResult(dtype()));
}

namespace {

// The sum over k >= 0 of (k + q)^-s: ten terms, and the rest by the formula of Euler and Maclaurin.
// Where s is so large that powers of it overflow, those terms are nothing beside the first.
Tensor HurwitzZeta(const Tensor& s, const Tensor& q) {
  constexpr int kAlone = 10;
  constexpr double kBernoulli[] = {1.0 / 6,       -1.0 / 30,      1.0 / 42, -1.0 / 30,
                                   5.0 / 66,      -691.0 / 2730,  7.0 / 6,  -3617.0 / 510,
                                   43867.0 / 798, -174611.0 / 330};
  Tensor sum = q.Pow(-s);
  for (int k = 1; k < kAlone; ++k) sum = sum + (q + k).Pow(-s);
  const Tensor w = q + kAlone, by = s.Minimum(1e6), square = 1 / (w * w);
  // From the last term on: each is (s + 2j - 2) (s + 2j - 1) / w^2 / (2j) (2j + 1) of the one
  // before times the ratio of their numbers of Bernoulli.
  constexpr int kTerms = std::size(kBernoulli);
  Tensor tail = Tensor::Zeros({}, kFloat64);
  for (int j = kTerms - 1; j >= 0; --j) {
    double factorial = 1;  // of (2j + 2)
    for (int i = 2; i <= 2 * j + 2; ++i) factorial *= i;
    tail = tail * square * (by + 2 * j + 1) * (by + 2 * j + 2) + kBernoulli[j] / factorial;
  }
  return sum + w.Pow(-s) * (w / (s - 1) + 0.5 + tail * by / w);
}

// ln gamma(x) less Stirling's (x - 1/2) ln x - x + ln(2 pi) / 2, of x >= 10.
Tensor BeyondStirling(const Tensor& x) {
  const Tensor s = 1 / (x * x);
  return Polynomial(s, {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360,
                        1.0 / 156}) /
         x;
}

}  // namespace

Tensor Tensor::Zeta(const Operand& of) const {
  Call call("Zeta", of.site(), *this, of);
  const DType type = FloatResult(internal::CommonType(*this, of));
  const Tensor s = Cast(kFloat64), q = Tensor(internal::AsNode(of, type)).Cast(kFloat64);
  const Tensor inside = (s > 1) & (q > 0), pole = (q <= 0) & (q == q.Floor());
  const Tensor sum = HurwitzZeta(Where(inside, s, 2), Where(inside, q, 1));
  const Tensor edge = Where(((s == 1) & (q > 0)) | ((s >= 1) & pole), kInfinity, kNan);
  return Where(inside, sum, edge).Cast(type);
}

// Below 1/2 from the other side, by the derivatives of the cotangent, polynomials of it.
Tensor Tensor::Polygamma(int n, CallSite at) const {
  Call call("Polygamma", at, *this);
  if (n < 0 || n > 20) Fail("takes an order from 0 to 20, not ", n);
  if (n == 0) return Digamma();
  const Tensor x = Cast(kFloat64);
  const Reflected from(x);
  double scale = n % 2 == 0 ? -1 : 1;
  for (int i = 2; i <= n; ++i) scale *= i;
  const Tensor order = Tensor::Full({}, n + 1.0, kFloat64);
  const Tensor above = HurwitzZeta(order, from.z.Minimum(1e15)) * scale;
  std::vector<double> c = {0, 1};
  for (int i = 0; i < n; ++i) {  // -(1 + c^2) times the derivative
    std::vector<double> next(c.size() + 1, 0.0);
    for (size_t k = 1; k < c.size(); ++k) {
      const double slope = static_cast<double>(k) * c[k];
      next[k - 1] -= slope;
      next[k + 1] -= slope;
    }
    c = next;
  }
  const Tensor angle = Turned(x), pole = angle == 0;
  const Tensor cotangent = 1 / Where(pole | from.below.LogicalNot(), 1, angle).Tan();
  Tensor turned = Tensor::Zeros({}, kFloat64);
  for (size_t k = c.size(); k-- > 0;) turned = turned * cotangent + c[k];
  const double power = std::pow(std::numbers::pi, n + 1);
  const Tensor below = (n % 2 == 0 ? above : -above) - turned * power;
  const Tensor at_zero = (x * 0 - kInfinity).CopySign(-x);
  const Tensor at_pole =
      n % 2 == 1 ? Tensor::Full({}, kInfinity, kFloat64) : Where(x == 0, at_zero, kNan);
  const Tensor y = Where(from.below, Where(pole, at_pole, below), above);
  return Where(x.IsInf(), Where(x > 0, 0, kNan), y).Cast(FloatResult(dtype()));
}

Tensor Tensor::MvLgamma(int p, CallSite at) const {
  Call call("MvLgamma", at, *this);
  if (p < 1) Fail("takes matrices of one row or more, not ", p);
  const Tensor x = Cast(kFloat64);
  const double rows = p;
  const Tensor sum = (x.Unsqueeze(-1) - Tensor::Arange(p, kFloat64) * 0.5).Lgamma().Sum(-1) +
                     rows * (rows - 1) / 4 * std::log(std::numbers::pi);
  return Where(x > (p - 1) / 2.0, sum, kNan).Cast(FloatResult(dtype()));
}

// Of a large number, gamma of it over gamma of the sum is a power of it and little else: what that
// leaves is computed without the large logarithms, whose difference would have few digits.
Tensor Tensor::BetaLn(const Operand& of) const {
  Call call("BetaLn", of.site(), *this, of);
  const DType type = FloatResult(internal::CommonType(*this, of));
  const Tensor x = Cast(kFloat64), y = Tensor(internal::AsNode(of, type)).Cast(kFloat64);
  const Tensor inside = (x > 0) & (y > 0) & x.IsFinite() & y.IsFinite();
  const Tensor first = x < y, a = Where(inside, Where(first, x, y), 1),
               b = Where(inside, Where(first, y, x), 1);
  const Tensor is_large = b >= 10, large = Where(is_large, b, 10), small = Where(is_large, 1, b);
  const Tensor sum = a + large;
  const Tensor ratio = BeyondStirling(large) - BeyondStirling(sum) - a * large.Log() -
                       (sum - 0.5) * (a / large).Log1p() + a;
  const Tensor rest = small.Lgamma() - (a + small).Lgamma();
  const Tensor value = a.Lgamma() + Where(is_large, ratio, rest);
  const Tensor none = (x >= 0) & (y >= 0);
  const Tensor edge = Where(none, Where((x == 0) | (y == 0), kInfinity, -kInfinity), kNan);
  return Where(inside, value, edge).Cast(type);
}

}  // namespace tessera
