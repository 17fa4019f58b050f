// One derivative an elementwise op.
#include "graph/grad_rules.h"

#include <cmath>
#include <numbers>

#include "graph/tensor_internal.h"

namespace tessera {
namespace {

// Half where two extremes tie.
Tensor OfExtreme(const Tensor& own, const Tensor& other, bool max, const Tensor& g) {
  const Tensor wins = max ? own > other : own < other;
  return g * Where(wins, 1.0, Where(own == other, 0.5, 0.0)).Cast(g.dtype());
}

Tensor OfPow(const Tensor& a, const Tensor& b, const Tensor& r, int i, const Tensor& g) {
  // What is not chosen is finite: its own derivative would be times 0.
  if (i == 0) return g * Where(b == 0, 0, b * a.Pow(Where(b == 0, 1, b - 1)));
  return g * Where(a == 0, 0, r * Where(a == 0, 1, a).Log());
}

}  // namespace

Tensor ElementwiseCotangent(const UOp& u, int i, const Tensor& g) {
  const Tensor r(u), a(u.src(0)), b(u.src(u.size() > 1 ? 1 : 0)), c(u.src(u.size() > 2 ? 2 : 0));
  switch (u.op()) {
    case Op::kAdd:
      return g;
    case Op::kSub:
      return i == 0 ? g : -g;
    case Op::kMul:
      return g * (i == 0 ? b : a);
    case Op::kDiv:
      return i == 0 ? g / b : -(g * r) / b;
    case Op::kTruncMod:  // a / b may have been rounded up to the next whole number
      return i == 0 ? g : -g * ((a - r) / b).Round();
    case Op::kMax:
    case Op::kMin:
      return OfExtreme(i == 0 ? a : b, i == 0 ? b : a, u.is(Op::kMax), g);
    case Op::kPow:
      return OfPow(a, b, r, i, g);
    case Op::kWhere:
      return i == 1 ? Where(a, g, 0) : Where(a, 0, g);
    case Op::kCast:
      return g.Cast(a.dtype());
    case Op::kNeg:
      return -g;
    case Op::kAbs:
      return g * a.Sign();
    case Op::kSqrt:
      return g / (r * 2);
    case Op::kExp:
      return g * r;
    case Op::kExp2:
      return g * r * std::numbers::ln2;
    case Op::kExpm1:
      return g * (r + 1);
    case Op::kLog:
      return g / a;
    case Op::kLog2:
      return g / (a * std::numbers::ln2);
    case Op::kLog1p:
      return g / (a + 1);
    case Op::kSin:
      return g * a.Cos();
    case Op::kCos:
      return -g * a.Sin();
    case Op::kTan:
      return g * (r * r + 1);
    case Op::kAsin:
      return g * (1 - a * a).Rsqrt();
    case Op::kAcos:
      return -g * (1 - a * a).Rsqrt();
    case Op::kAtan:
      return g / (a * a + 1);
    case Op::kSinh:
      return g * a.Cosh();
    case Op::kCosh:
      return g * a.Sinh();
    case Op::kTanh:
      return g * (1 - r * r);
    case Op::kErf:
    case Op::kErfc:
      return g * (-(a * a)).Exp() * ((u.is(Op::kErf) ? 2 : -2) * std::numbers::inv_sqrtpi);
    case Op::kFma:
      return i == 2 ? g : g * (i == 0 ? b : a);
    case Op::kTruncDiv:  // of whole numbers
    case Op::kFloorDiv:
    case Op::kFloorMod:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kShl:
    case Op::kShr:
    case Op::kThreefry:
    case Op::kBitcast:
    case Op::kCmpLt:
    case Op::kCmpLe:
    case Op::kCmpEq:
    case Op::kCmpNe:
    case Op::kFloor:  // flat almost everywhere
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRound:
      return Tensor();
    default:
      internal::Fail(Info(u.op()).text, " has no derivative; give it one in graph/grad_rules.cc");
  }
}

}  // namespace tessera
