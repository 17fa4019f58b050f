// The incomplete beta function, and what a few known functions make.
//
// The share up to x is the integral over u = ln(t / (1 - t)), of which the density is
// f(u) = t^a (1 - t)^b: that has one peak, and beyond it falls from anywhere at least as fast as an
// exponential.
// Integrals from x downwards, and from the peak in both directions, are sums at points that lie
// doubly exponentially (Takahashi and Mori, 1974), in units of how far f takes to fall. Parameters
// below 1, for which f may be a plateau with steep ends, are made larger by 1, for which what that
// adds is known.
#include "graph/special_functions.h"

#include <cmath>

#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_polynomial.h"

namespace tessera {

using internal::AsNode;
using internal::Call;
using internal::CommonType;
using internal::FloatResult;
using internal::InFloats;
using internal::kInfinity;
using internal::kNan;
using internal::LessLog1p;

namespace {

constexpr int kPoints = 98;
constexpr double kFirst = -3.5, kStep = 0.075;  // where they lie, in the exponent of exponents

// The integral of f from x downwards, over f(x), for x up to the peak: of e^g, where
// g = a ln(t / x) + b ln((1 - t) / (1 - x)).
Tensor FallingFrom(const Tensor& x, const Tensor& a, const Tensor& b) {
  const Tensor slope = (a - (a + b) * x).Maximum(0), bend = (a + b) * x * (1 - x) * 2;
  const Tensor unit = (1 / a + 2 / (slope + (slope.Square() + bend).Sqrt())).Detach();
  const int rank = unit.rank();
  const Tensor v = internal::CountAlong(rank, rank + 1, kPoints, kFloat64) * kStep + kFirst;
  const Tensor fading = (-v).Exp(), point = (v - fading).Exp(), w = unit.Unsqueeze(-1) * point;
  const auto of_points = [](const Tensor& t) { return t.Unsqueeze(-1); };
  const Tensor g = -(of_points(a) * w) - of_points(a + b) * (of_points(x) * (-w).Expm1()).Log1p();
  return unit * kStep * (point * (fading + 1) * g.Exp()).Sum(-1);
}

// ln(f(x) / f(peak)) of one side, but for what both sides have in common; m = x / peak - 1.
Tensor LessOneSide(const Tensor& a, const Tensor& x, const Tensor& peak) {
  const Tensor ratio = x / peak, far = ratio < 0.5;
  return -(a *
           Where(far, ratio - 1 - Where(far, ratio, 1).Log(), LessLog1p(Where(far, 1, ratio) - 1)));
}

// Of 0 < x < 1, y = 1 - x.
Tensor ShareUpTo(const Tensor& given_a, const Tensor& given_b, const Tensor& given_x) {
  const Tensor more_a = (given_a < 1).Cast(kFloat64), more_b = (given_b < 1).Cast(kFloat64);
  const Tensor turned = given_x > (given_a + more_a) / (given_a + more_a + given_b + more_b);
  const auto either = [&](const Tensor& p, const Tensor& q) { return Where(turned, q, p); };
  const Tensor x = either(given_x, 1 - given_x), y = 1 - x;
  const Tensor own_a = either(given_a, given_b), own_b = either(given_b, given_a);
  const Tensor up_a = either(more_a, more_b), up_b = either(more_b, more_a);
  const Tensor a = own_a + up_a, b = own_b + up_b, peak = a / (a + b);
  const Tensor all = FallingFrom(peak, a, b) + FallingFrom(1 - peak, b, a);
  const Tensor density = (LessOneSide(a, x, peak) + LessOneSide(b, y, 1 - peak)).Exp() / all;
  const Tensor sum = own_a + own_b;
  const Tensor more =
      Where(up_a > 0, Where(up_b > 0, (own_b - x * sum) / (x * y * (sum + 1)), 1 / x),
            Where(up_b > 0, -(1 / y), 0));
  const Tensor share = density * (FallingFrom(x, a, b) + more / sum);
  return either(share, 1 - share);
}

}  // namespace

Tensor BetaInc(const Tensor& of_a, const Operand& of_b, const Operand& of_x) {
  Call call("BetaInc", of_x.site(), of_a, of_b, of_x);
  const DType type = FloatResult(Promote(CommonType(of_a, of_b), CommonType(of_a, of_x)));
  const auto wide = [type](const Operand& t) { return Tensor(AsNode(t, type)).Cast(kFloat64); };
  const std::vector<Tensor> all = BroadcastTensors({wide(of_a), wide(of_b), wide(of_x)});
  const Tensor &a = all[0], &b = all[1], &x = all[2];
  const Tensor valid =
      (a > 0) & (b > 0) & (x >= 0) & (x <= 1) & (a.IsInf() & b.IsInf()).LogicalNot();
  const Tensor usual = valid & a.IsFinite() & b.IsFinite() & (x > 0) & (x < 1);
  const Tensor share = ShareUpTo(Where(usual, a, 1), Where(usual, b, 1), Where(usual, x, 0.5));
  // All of it lies at 1 of an infinite a, and at 0 of an infinite b.
  const Tensor at_edge = (x == 1) | (b.IsInf() & (x > 0));
  return Where(usual, share, Where(valid, at_edge.Cast(kFloat64), kNan)).Cast(type);
}

Tensor Gamma(const Tensor& x, CallSite at) {
  Call call("Gamma", at, x);
  const DType type = FloatResult(x.dtype());
  const Tensor t = x.Cast(type).Cast(kFloat64), floor = t.Floor();
  const Tensor sign = Where((t < 0) & (floor % 2 != 0), -1, 1);
  const Tensor value = t.Lgamma().Exp() * sign.Cast(kFloat64);
  const Tensor none = ((t < 0) & (t == floor));
  return Where(none, kNan, Where(t == 0, t.Reciprocal(), value)).Cast(type);
}

namespace {

// Where both are above 0, what f makes of them; else 0 where x is 0 and y is not negative.
template <typename F>
Tensor OfPositive(const Tensor& x, const Tensor& y, F f) {
  const Tensor both = (x > 0) & (y > 0), nan = x.IsNan() | y.IsNan();
  const Tensor inside = f(Where(both, x, 1), Where(both, y, 1));
  const Tensor edge = Where(nan, kNan, Where((x == 0) & (y >= 0), 0.0, kInfinity));
  return Where(both, inside, edge.Cast(x.dtype()));
}

}  // namespace

Tensor RelEntr(const Tensor& of_x, const Operand& of_y) {
  Call call("RelEntr", of_y.site(), of_x, of_y);
  return InFloats(of_x, of_y, [](const Tensor& x, const Tensor& y) {
    return OfPositive(x, y, [](const Tensor& p, const Tensor& q) { return p * (p / q).Log(); });
  });
}

Tensor KlDiv(const Tensor& of_x, const Operand& of_y) {
  Call call("KlDiv", of_y.site(), of_x, of_y);
  return InFloats(of_x, of_y, [](const Tensor& x, const Tensor& y) {
    const Tensor all = OfPositive(
        x, y, [](const Tensor& p, const Tensor& q) { return p * (p / q).Log() - p + q; });
    return Where((x == 0) & (y >= 0), y, all);
  });
}

Tensor Log1mExp(const Tensor& of_x, CallSite at) {
  Call call("Log1mExp", at, of_x);
  return InFloats(of_x, [](const Tensor& x) {
    const Tensor near = x < 0.6931471805599453;
    return Where(near, (-(-Where(near, x, 0.5)).Expm1()).Log(),
                 (-(-Where(near, 1, x)).Exp()).Log1p());
  });
}

}  // namespace tessera
