// Elementwise functions and operators.
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Combine;
using internal::CommonType;
using internal::Fail;
using internal::Show;

namespace {

// ---- two operands

Tensor Logical(Op op, const Operand& a, const Operand& b) { return Combine(op, kBool, a, b); }

void RefuseBool(DType type, const Operand& a, const Operand& b) {
  if (type.IsBool()) {
    Fail("does not take bools (", Show(a), " and ", Show(b),
         "); cast them to i32, or use the logical functions");
  }
}

Tensor Arith(Op op, const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  RefuseBool(type, a, b);
  return Combine(op, type, a, b);
}

DType FloatOf(DType type) { return type.IsFloat() ? type : kFloat32; }

Tensor Integers(Op op, const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  if (!type.IsInt()) {
    Fail("takes integers, not ", Show(a), " and ", Show(b), "; cast them to an integer dtype");
  }
  return Combine(op, type, a, b);
}

Tensor Bitwise(Op op, const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  if (type.IsFloat()) {
    Fail("takes integers or bools, not ", Show(a), " and ", Show(b),
         "; cast or bitcast them to an integer dtype");
  }
  return Combine(op, type, a, b);
}

// Of bools, + is "or" and * is "and".
Tensor SumOf(const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  return Combine(type.IsBool() ? Op::kOr : Op::kAdd, type, a, b);
}
Tensor ProductOf(const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  return Combine(type.IsBool() ? Op::kAnd : Op::kMul, type, a, b);
}
Tensor QuotientOf(const Operand& a, const Operand& b) {
  return Combine(Op::kDiv, FloatOf(CommonType(a, b)), a, b);
}

// x to a power whose products or root cost less than POW; of others nothing. What is rounded more
// than once is computed in at least f32.
Tensor KnownPower(const Tensor& given, double power) {
  if (power == 2) return given * given;
  const DType type = given.dtype();
  const Tensor x = type.IsFloat() ? internal::WideFloat(given) : given;
  if (power == 3) return (x * x * x).Cast(type);
  if (power == 4) return (x * x).Square().Cast(type);
  if (!type.IsFloat()) return Tensor();
  if (power == -1) return x.Reciprocal().Cast(type);
  if (power == -2) return x.Reciprocal().Square().Cast(type);
  if (power != 0.5) return Tensor();
  // A power of -0 is 0, that of -infinity infinite: no root is.
  const double infinity = std::numeric_limits<double>::infinity();
  return Where(x == -infinity, infinity, x.Sqrt() + 0.0).Cast(type);
}

// Whole quotients of floats are those of IEEE division, cut off.
Tensor CutQuotient(const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  RefuseBool(type, a, b);
  if (type.IsInt()) return Combine(Op::kTruncDiv, type, a, b);
  return Tensor(Build(Op::kTrunc, {Combine(Op::kDiv, type, a, b).uop()}));
}

// The floored quotient is the one that FlooredRemainder leaves: what is left after taking an exact
// remainder off divides evenly, but for rounding. The division's own quotient may have been rounded
// up to the next whole number.
Tensor FlooredQuotient(const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  RefuseBool(type, a, b);
  if (type.IsInt()) return Combine(Op::kFloorDiv, type, a, b);
  const Tensor x = Tensor(internal::AsNode(a, type)).Detach(),
               by = Tensor(internal::AsNode(b, type)).Detach();
  const Tensor r = Combine(Op::kTruncMod, type, x, by), quotient = x / by;
  const Tensor even = (x - r) / by;
  const Tensor below = Where((r != 0) & ((r < 0) != (by < 0)), even - 1, even);
  const Tensor floor = below.Floor(), whole = Where(below - floor > 0.5, floor + 1, floor);
  return Where((by == 0) | quotient.IsNan(), quotient, Where(below == 0, quotient * 0, whole));
}

// The remainder with the sign of b, also where it is 0. Of floats it is fmod, which is exact, moved
// by b where the signs differ; adding 0 makes a zero positive.
Tensor FlooredRemainder(const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  RefuseBool(type, a, b);
  if (type.IsInt()) return Combine(Op::kFloorMod, type, a, b);
  const Tensor r = Combine(Op::kTruncMod, type, a, b), by(internal::AsNode(b, type));
  const Tensor moved = Where(((r < 0) != (by < 0)) & (r != 0), r + by, r);
  return Where(by < 0, -(0 - moved), moved + 0);
}

// Of a number beside a tensor of integers: -1 where it is below all that their dtype holds, 1 where
// it is above, else 0.
int BeyondIntegers(const Operand& o, DType dtype) {
  if (o.tensor() != nullptr || o.extent() || !dtype.IsInt()) return 0;
  const Number& n = o.number();
  if (n.cls == KindClass::kUint) return dtype.kind() == Kind::kU64 ? 0 : 1;
  if (n.cls != KindClass::kInt) return 0;
  const int64_t v = n.value.AsInt();
  const int digits = dtype.bits() - (dtype.IsUnsigned() ? 0 : 1);
  if (v < 0 && dtype.IsUnsigned()) return -1;
  if (digits >= 63) return 0;
  return v >= int64_t{1} << digits ? 1 : v < -(int64_t{1} << digits) ? -1 : 0;
}

Tensor Compare(Op op, const Operand& a, const Operand& b) {
  const DType type = CommonType(a, b);
  const int left = BeyondIntegers(a, type), right = BeyondIntegers(b, type);
  if ((left == 0 && right == 0) || (a.tensor() == nullptr && b.tensor() == nullptr)) {
    return Combine(op, type, a, b);
  }
  // The same for all elements: as of 0 beside 1, or of 1 beside 0.
  const int number = left + right > 0 ? 1 : 0;
  const Tensor same = Tensor(internal::AsNode(left != 0 ? b : a, type)) * 0 + (1 - number);
  return left != 0 ? Combine(op, type, number, same) : Combine(op, type, same, number);
}

// Both operands carry a call site; the left one's comes first in the text.
#define TESSERA_BINARY(name, member, symbol, ...)              \
  Tensor operator symbol(const Operand& a, const Operand& b) { \
    Call call(name, a.site(), a, b);                           \
    return __VA_ARGS__;                                        \
  }                                                            \
  Tensor Tensor::member(const Operand& b) const {              \
    Call call(name, b.site(), *this, b);                       \
    const Operand a(*this);                                    \
    return __VA_ARGS__;                                        \
  }
}  // namespace

TESSERA_BINARY("Add", Add, +, SumOf(a, b))
TESSERA_BINARY("Sub", Sub, -, Arith(Op::kSub, a, b))
TESSERA_BINARY("Mul", Mul, *, ProductOf(a, b))
TESSERA_BINARY("Div", Div, /, QuotientOf(a, b))
TESSERA_BINARY("Mod", Mod, %, FlooredRemainder(a, b))
TESSERA_BINARY("BitAnd", BitAnd, &, Bitwise(Op::kAnd, a, b))
TESSERA_BINARY("BitOr", BitOr, |, Bitwise(Op::kOr, a, b))
TESSERA_BINARY("BitXor", BitXor, ^, Bitwise(Op::kXor, a, b))
TESSERA_BINARY("Shl", Shl, <<, Integers(Op::kShl, a, b))
TESSERA_BINARY("Shr", Shr, >>, Integers(Op::kShr, a, b))
#undef TESSERA_BINARY

#define TESSERA_COMPARE(name, symbol, op, left, right)         \
  Tensor operator symbol(const Operand& a, const Operand& b) { \
    Call call(name, a.site(), a, b);                           \
    return Compare(Op::op, left, right);                       \
  }
TESSERA_COMPARE("Equal", ==, kCmpEq, a, b)
TESSERA_COMPARE("NotEqual", !=, kCmpNe, a, b)
TESSERA_COMPARE("Less", <, kCmpLt, a, b)
TESSERA_COMPARE("LessEqual", <=, kCmpLe, a, b)
TESSERA_COMPARE("Greater", >, kCmpLt, b, a)
TESSERA_COMPARE("GreaterEqual", >=, kCmpLe, b, a)
#undef TESSERA_COMPARE

Tensor operator-(const Operand& a) {
  Call call("Neg", a.site(), a);
  return a.tensor()->Neg(a.site());
}
Tensor operator~(const Operand& a) {
  Call call("BitNot", a.site(), a);
  return a.tensor()->BitNot(a.site());
}

Tensor Tensor::FloorDiv(const Operand& b) const {
  Call call("FloorDiv", b.site(), *this, b);
  return FlooredQuotient(*this, b);
}
Tensor Tensor::TruncDiv(const Operand& b) const {
  Call call("TruncDiv", b.site(), *this, b);
  return CutQuotient(*this, b);
}
Tensor Tensor::Fmod(const Operand& b) const {
  Call call("Fmod", b.site(), *this, b);
  return Arith(Op::kTruncMod, *this, b);
}
Tensor Tensor::Pow(const Operand& b) const {
  Call call("Pow", b.site(), *this, b);
  if (b.tensor() == nullptr && !b.extent()) {
    const DType type = CommonType(*this, b);
    RefuseBool(type, *this, b);
    if (const Tensor power = KnownPower(Cast(type), b.number().AsDouble())) return power;
  }
  return Arith(Op::kPow, *this, b);
}
Tensor Tensor::Maximum(const Operand& b) const {
  Call call("Maximum", b.site(), *this, b);
  return Combine(Op::kMax, CommonType(*this, b), *this, b);
}
Tensor Tensor::Minimum(const Operand& b) const {
  Call call("Minimum", b.site(), *this, b);
  return Combine(Op::kMin, CommonType(*this, b), *this, b);
}
Tensor Tensor::LogicalAnd(const Operand& b) const {
  Call call("LogicalAnd", b.site(), *this, b);
  return Logical(Op::kAnd, *this, b);
}
Tensor Tensor::LogicalOr(const Operand& b) const {
  Call call("LogicalOr", b.site(), *this, b);
  return Logical(Op::kOr, *this, b);
}
Tensor Tensor::LogicalXor(const Operand& b) const {
  Call call("LogicalXor", b.site(), *this, b);
  return Logical(Op::kXor, *this, b);
}
Tensor Tensor::Lerp(const Operand& end, const Operand& weight) const {
  Call call("Lerp", end.site(), *this, end, weight);
  // Between integers there is no room for the difference of some.
  const DType type = CommonType(*this, weight);
  const Tensor from = type.IsFloat() ? Cast(type) : *this;
  return from + (end - from) * weight;
}

Tensor Where(const Operand& condition, const Operand& a, const Operand& b) {
  Call call("Where", condition.site(), condition, a, b);
  const DType type = CommonType(a, b);
  if (condition.tensor() != nullptr && !condition.tensor()->dtype().IsBool()) {
    Fail("the condition ", Show(condition), " must be bool; compare it with 0");
  }
  UOp srcs[3] = {internal::AsNode(condition, kBool), internal::AsNode(a, type),
                 internal::AsNode(b, type)};
  Shape shape = internal::BroadcastShape(srcs[1].shape(), srcs[2].shape());
  shape = internal::BroadcastShape(srcs[0].shape(), shape);
  for (UOp& s : srcs) s = internal::BroadcastTo(s, shape, /*keep_scalar=*/true);
  return Tensor(Build(Op::kWhere, srcs));
}

// ---- one operand

// Functions that need floats take integers and bools as f32.
#define TESSERA_FLOAT_UNARY(name, op)                                \
  Tensor Tensor::name(CallSite at) const {                           \
    Call call(#name, at, *this);                                     \
    return Tensor(Build(Op::op, {CastTo(uop(), FloatOf(dtype()))})); \
  }
TESSERA_FLOAT_UNARY(Sqrt, kSqrt)
TESSERA_FLOAT_UNARY(Exp, kExp)
TESSERA_FLOAT_UNARY(Exp2, kExp2)
TESSERA_FLOAT_UNARY(Expm1, kExpm1)
TESSERA_FLOAT_UNARY(Log, kLog)
TESSERA_FLOAT_UNARY(Log2, kLog2)
TESSERA_FLOAT_UNARY(Log1p, kLog1p)
TESSERA_FLOAT_UNARY(Sin, kSin)
TESSERA_FLOAT_UNARY(Cos, kCos)
TESSERA_FLOAT_UNARY(Tan, kTan)
TESSERA_FLOAT_UNARY(Asin, kAsin)
TESSERA_FLOAT_UNARY(Acos, kAcos)
TESSERA_FLOAT_UNARY(Atan, kAtan)
TESSERA_FLOAT_UNARY(Sinh, kSinh)
TESSERA_FLOAT_UNARY(Cosh, kCosh)
TESSERA_FLOAT_UNARY(Tanh, kTanh)
TESSERA_FLOAT_UNARY(Erf, kErf)
TESSERA_FLOAT_UNARY(Erfc, kErfc)
#undef TESSERA_FLOAT_UNARY

#define TESSERA_ROUNDING(name, op)                \
  Tensor Tensor::name(CallSite at) const {        \
    Call call(#name, at, *this);                  \
    if (!dtype().IsFloat()) return Tensor(uop()); \
    return Tensor(Build(Op::op, {uop()}));        \
  }
TESSERA_ROUNDING(Floor, kFloor)
TESSERA_ROUNDING(Ceil, kCeil)
TESSERA_ROUNDING(Trunc, kTrunc)
TESSERA_ROUNDING(Round, kRound)
#undef TESSERA_ROUNDING

Tensor Tensor::Neg(CallSite at) const {
  Call call("Neg", at, *this);
  if (dtype().IsBool()) Fail("does not take ", Show(*this), "; use LogicalNot, or cast it to i32");
  return Tensor(Build(Op::kNeg, {uop()}));
}
Tensor Tensor::Abs(CallSite at) const {
  Call call("Abs", at, *this);
  return dtype().IsBool() ? *this : Tensor(Build(Op::kAbs, {uop()}));
}
Tensor Tensor::Sign(CallSite at) const {
  Call call("Sign", at, *this);
  if (dtype().IsBool()) return Tensor(uop());
  // Flat at zero, too, and keeping NaN.
  const Tensor up = Where(*this > 0, 1, dtype().IsFloat() ? Detach() : *this);
  return dtype().IsUnsigned() ? up : Where(*this < 0, -1, up);
}
Tensor Tensor::Square(CallSite at) const {
  Call call("Square", at, *this);
  return *this * *this;
}
Tensor Tensor::Reciprocal(CallSite at) const {
  Call call("Reciprocal", at, *this);
  return 1 / *this;
}
Tensor Tensor::Rsqrt(CallSite at) const {
  Call call("Rsqrt", at, *this);
  return internal::InFloats(*this, [](const Tensor& x) { return 1 / x.Sqrt(); });
}
Tensor Tensor::Log10(CallSite at) const {
  Call call("Log10", at, *this);
  return internal::InFloats(
      *this, [](const Tensor& x) { return x.Log2() * (std::numbers::ln2 / std::numbers::ln10); });
}
Tensor Tensor::LogicalNot(CallSite at) const {
  Call call("LogicalNot", at, *this);
  return Logical(Op::kXor, *this, true);
}
Tensor Tensor::BitNot(CallSite at) const {
  Call call("BitNot", at, *this);
  if (dtype().IsFloat()) Fail("takes integers or bools, not ", Show(*this));
  const tessera::Scalar ones = Convert(tessera::Scalar::Int(-1), kInt64, dtype());
  return Tensor(Build(Op::kXor, {uop(), UOp::Const(dtype(), ones)}));
}
Tensor Tensor::IsNan(CallSite at) const {
  Call call("IsNan", at, *this);
  return *this != *this;
}
Tensor Tensor::IsInf(CallSite at) const {
  Call call("IsInf", at, *this);
  if (!dtype().IsFloat()) return Zeros(shape(), kBool, device());
  return Abs() == std::numeric_limits<double>::infinity();
}

Tensor Tensor::IsFinite(CallSite at) const {
  Call call("IsFinite", at, *this);
  if (!dtype().IsFloat()) return Ones(shape(), kBool, device());
  return Abs() <= LargestFinite(dtype());
}

Tensor Tensor::NanToNum(Number nan, std::optional<Number> positive, std::optional<Number> negative,
                        CallSite at) const {
  Call call("NanToNum", at, *this);
  if (!dtype().IsFloat()) return Tensor(uop());
  const double top = LargestFinite(dtype());
  Tensor t = Clip(-top, top);
  if (positive) t = Where(IsPosInf(), *positive, t);
  if (negative) t = Where(IsNegInf(), *negative, t);
  return Where(IsNan(), nan, t);
}

// NaN stays NaN, as Max and Min keep it.
Tensor Tensor::Clip(std::optional<Number> low, std::optional<Number> high, CallSite at) const {
  Call call("Clip", at, *this);
  if (!low && !high) Fail("needs a lower or an upper bound");
  Tensor t = *this;
  if (low) t = t.Maximum(*low);
  return high ? t.Minimum(*high) : t;
}

Tensor Tensor::Cast(DType to, CallSite at) const {
  Call call("Cast", at, *this);
  return Tensor(CastTo(uop(), to));
}

namespace {

// Each element as the `parts` elements of a narrower dtype that it consists of.
Tensor InParts(const Tensor& t, DType narrow, int parts) {
  const Tensor bits = t.Bitcast(UnsignedOf(t.dtype()));
  const Tensor from = Tensor::Arange(parts, bits.dtype()) * narrow.bits();
  return (bits.Unsqueeze(-1) >> from).Cast(UnsignedOf(narrow)).Bitcast(narrow).Flatten(-2);
}

// The elements of a wider dtype that so many neighbours each are.
Tensor OfParts(const Tensor& t, DType wide, int parts) {
  const Tensor bits = t.Bitcast(UnsignedOf(t.dtype())).Unflatten(-1, {-1, parts});
  Tensor out;
  for (int i = 0; i < parts; ++i) {
    const Tensor part = bits.Select(-1, i).Cast(UnsignedOf(wide)) << (i * t.dtype().bits());
    out = out ? out | part : part;
  }
  return out.Bitcast(wide);
}

}  // namespace

Tensor Tensor::Bitcast(DType to, CallSite at) const {
  Call call("Bitcast", at, *this);
  if (dtype() == to) return Tensor(uop());
  const int from_bits = dtype().bits(), to_bits = to.bits();
  if (from_bits == to_bits || dtype().IsBool() || to.IsBool()) {
    return Tensor(Build(Op::kBitcast, to, {uop()}, {}));
  }
  if (rank() == 0) {
    Fail(Show(*this), " has no axis for ", to.ToString(),
         ", which has another width; Unsqueeze(0) gives it one");
  }
  if (to_bits < from_bits) return InParts(*this, to, from_bits / to_bits);
  const int parts = to_bits / from_bits;
  const Extent& last = shape()[rank() - 1];
  if (last.is_int() && last.value() % parts != 0) {
    Fail("the last axis of ", Show(*this), " is no multiple of ", parts, " elements, as ",
         to.ToString(), " takes; pad or slice it first");
  }
  return OfParts(*this, to, parts);
}

}  // namespace tessera
