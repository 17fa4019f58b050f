// Arithmetic, comparisons, logic, casts: ops whose elements are made one by one.
#include <cmath>

#include "examples/onnx/call.h"
#include "examples/onnx/strings.h"

namespace tessera::onnx {
namespace {

using Binary = Tensor (*)(const Tensor& a, const Tensor& b);
using Unary = Tensor (*)(const Tensor& x);

// The second operand of ops before version 7, whose axes began at an attribute's.
Tensor SecondOperand(Call& c, const Tensor& a) {
  const Tensor b = c.In(1);
  if (c.opset() >= 7 || c.Int("broadcast", 0) == 0 || c.Find("axis") == nullptr) return b;
  const int axis = c.Axis(c.Int("axis"), a.rank());
  std::vector<int64_t> shape = Sizes(b);
  while (static_cast<int>(shape.size()) < a.rank() - axis) shape.push_back(1);
  return b.Reshape(shape);
}
template <Binary fn>
void Two(Call& c) {
  const Tensor a = c.In(0);
  c.Out(fn(a, SecondOperand(c, a)));
}
template <Unary fn>
void One(Call& c) {
  c.Out(fn(c.In(0)));
}
template <Binary fn>
void Fold(Call& c) {
  Tensor out = c.In(0);
  for (int i = 1; i < c.inputs(); ++i) out = fn(out, c.In(i));
  c.Out(out);
}

Tensor Add(const Tensor& a, const Tensor& b) { return a + b; }
Tensor Sub(const Tensor& a, const Tensor& b) { return a - b; }
Tensor Mul(const Tensor& a, const Tensor& b) { return a * b; }
Tensor Div(const Tensor& a, const Tensor& b) { return a.dtype().IsFloat() ? a / b : a.TruncDiv(b); }
Tensor Maximum(const Tensor& a, const Tensor& b) { return a.Maximum(b); }
Tensor Minimum(const Tensor& a, const Tensor& b) { return a.Minimum(b); }
Tensor And(const Tensor& a, const Tensor& b) { return a & b; }
Tensor Or(const Tensor& a, const Tensor& b) { return a | b; }
Tensor Xor(const Tensor& a, const Tensor& b) { return a ^ b; }
Tensor Equal(const Tensor& a, const Tensor& b) { return a == b; }
Tensor Less(const Tensor& a, const Tensor& b) { return a < b; }
Tensor LessOrEqual(const Tensor& a, const Tensor& b) { return a <= b; }
Tensor Greater(const Tensor& a, const Tensor& b) { return a > b; }
Tensor GreaterOrEqual(const Tensor& a, const Tensor& b) { return a >= b; }
// Of the base's dtype; a mixed pair meets in f64, which holds what the two can.
Tensor Pow(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.Pow(b);
  if (a.dtype().IsInt() && b.dtype().IsInt()) return a.Pow(b.Cast(a.dtype()));
  return a.Cast(kFloat64).Pow(b.Cast(kFloat64)).Cast(a.dtype());
}

Tensor Neg(const Tensor& x) { return x.Neg(); }
Tensor Abs(const Tensor& x) { return x.Abs(); }
Tensor Sign(const Tensor& x) { return x.Sign(); }
Tensor Not(const Tensor& x) { return x.LogicalNot(); }
Tensor BitNot(const Tensor& x) { return x.BitNot(); }
Tensor Reciprocal(const Tensor& x) { return x.Reciprocal(); }
Tensor Sqrt(const Tensor& x) { return x.Sqrt(); }
Tensor Exp(const Tensor& x) { return x.Exp(); }
Tensor Log(const Tensor& x) { return x.Log(); }
Tensor Sin(const Tensor& x) { return x.Sin(); }
Tensor Cos(const Tensor& x) { return x.Cos(); }
Tensor Tan(const Tensor& x) { return x.Tan(); }
Tensor Asin(const Tensor& x) { return x.Asin(); }
Tensor Acos(const Tensor& x) { return x.Acos(); }
Tensor Atan(const Tensor& x) { return x.Atan(); }
Tensor Sinh(const Tensor& x) { return x.Sinh(); }
Tensor Cosh(const Tensor& x) { return x.Cosh(); }
Tensor Acosh(const Tensor& x) { return x.Acosh(); }
Tensor Asinh(const Tensor& x) { return x.Asinh(); }
Tensor Atanh(const Tensor& x) { return x.Atanh(); }
Tensor Erf(const Tensor& x) { return x.Erf(); }
Tensor Floor(const Tensor& x) { return x.Floor(); }
Tensor Ceil(const Tensor& x) { return x.Ceil(); }
Tensor Round(const Tensor& x) { return x.Round(); }
Tensor IsNan(const Tensor& x) { return x.IsNan(); }

void Mod(Call& c) {
  const Tensor a = c.In(0), b = c.In(1);
  c.Out(c.Int("fmod", 0) != 0 ? a.Fmod(b) : a.Mod(b));
}
void BitShift(Call& c) {
  const std::string direction = c.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") c.Fail("direction '", direction, "' is none");
  c.Out(direction == "LEFT" ? c.In(0).Shl(c.In(1)) : c.In(0).Shr(c.In(1)));
}
void Mean(Call& c) {
  Fold<Add>(c);
  c.outputs()[0].tensor = c.outputs()[0].tensor / c.inputs();
}
void IsInf(Call& c) {
  const Tensor x = c.In(0);
  Tensor out = x.IsInf();
  if (c.Int("detect_negative", 1) == 0) out = out & (x > 0);
  if (c.Int("detect_positive", 1) == 0) out = out & (x < 0);
  c.Out(out);
}
void Select(Call& c) { c.OutOf(Where(c.In(0), c.In(1), c.In(2)), c.Input(1).element); }

// A bound of Clip: an attribute before version 11, then an input.
void Clip(Call& c) {
  Tensor x = c.In(0);
  if (c.opset() < 11) {
    if (c.Find("min") != nullptr) x = x.Maximum(c.Float("min", 0));
    if (c.Find("max") != nullptr) x = x.Minimum(c.Float("max", 0));
  } else {
    if (c.Has(1)) x = x.Maximum(c.In(1));
    if (c.Has(2)) x = x.Minimum(c.In(2));
  }
  c.Out(x);
}

void Same(Call& c) {
  if (c.Has(0)) return c.Out(c.In(0));
  c.Out(c.Any(0));
}
void CastTo(Call& c, int64_t to) {
  if (IsStrings(c.Input(0)) || to == kElementString) return CastStrings(c, to);
  OutAs(c, c.In(0), to);
}
void Cast(Call& c) { CastTo(c, c.Int("to")); }
void CastLike(Call& c) { CastTo(c, ElementOf(c.Input(1))); }
void BitCast(Call& c) {
  if (c.Find("to") == nullptr) c.Fail("attribute 'to' is missing");
  const DType to = c.Type("to", kFloat32);
  const Tensor x = c.In(0);
  // A bool is a byte of 0 or 1.
  if (x.dtype().IsBool()) return c.Out(x.Cast(kUInt8).Bitcast(to));
  if (to.IsBool()) return c.Out(x.Bitcast(kUInt8).Cast(kBool));
  c.Out(x.Bitcast(to));
}

constexpr Flow kEach = Flow::kElementwise;
constexpr OpRow kRows[] = {
    {"Abs", One<Abs>, 0, kEach},
    {"Acos", One<Acos>, 0, kEach},
    {"Acosh", One<Acosh>, 0, kEach},
    {"Add", Two<Add>, 0, kEach},
    {"And", Two<And>, 0, kEach},
    {"Asin", One<Asin>, 0, kEach},
    {"Asinh", One<Asinh>, 0, kEach},
    {"Atan", One<Atan>, 0, kEach},
    {"Atanh", One<Atanh>, 0, kEach},
    {"BitCast", BitCast, 0, kEach},
    {"BitShift", BitShift, 0, kEach},
    {"BitwiseAnd", Two<And>, 0, kEach},
    {"BitwiseNot", One<BitNot>, 0, kEach},
    {"BitwiseOr", Two<Or>, 0, kEach},
    {"BitwiseXor", Two<Xor>, 0, kEach},
    {"Cast", Cast, 0, kEach},
    {"CastLike", CastLike},
    {"Ceil", One<Ceil>, 0, kEach},
    {"Clip", Clip, 0, kEach},
    {"Cos", One<Cos>, 0, kEach},
    {"Cosh", One<Cosh>, 0, kEach},
    {"Div", Two<Div>, 0, kEach},
    {"Equal", Two<Equal>, 0, kEach},
    {"Erf", One<Erf>, 0, kEach},
    {"Exp", One<Exp>, 0, kEach},
    {"Floor", One<Floor>, 0, kEach},
    {"Greater", Two<Greater>, 0, kEach},
    {"GreaterOrEqual", Two<GreaterOrEqual>, 0, kEach},
    {"Identity", Same, 0, kEach},
    {"IsInf", IsInf, 0, kEach},
    {"IsNaN", One<IsNan>, 0, kEach},
    {"Less", Two<Less>, 0, kEach},
    {"LessOrEqual", Two<LessOrEqual>, 0, kEach},
    {"Log", One<Log>, 0, kEach},
    {"Max", Fold<Maximum>, 0, kEach},
    {"Mean", Mean, 0, kEach},
    {"Min", Fold<Minimum>, 0, kEach},
    {"Mod", Mod, 0, kEach},
    {"Mul", Two<Mul>, 0, kEach},
    {"Neg", One<Neg>, 0, kEach},
    {"Not", One<Not>, 0, kEach},
    {"Or", Two<Or>, 0, kEach},
    {"Pow", Two<Pow>, 0, kEach},
    {"Reciprocal", One<Reciprocal>, 0, kEach},
    {"Round", One<Round>, 0, kEach},
    {"Sign", One<Sign>, 0, kEach},
    {"Sin", One<Sin>, 0, kEach},
    {"Sinh", One<Sinh>, 0, kEach},
    {"Sqrt", One<Sqrt>, 0, kEach},
    {"Sub", Two<Sub>, 0, kEach},
    {"Sum", Fold<Add>, 0, kEach},
    {"Tan", One<Tan>, 0, kEach},
    {"Where", Select, 0, kEach},
    {"Xor", Two<Xor>, 0, kEach},
};

}  // namespace

absl::Span<const OpRow> ArithmeticOps() { return kRows; }

}  // namespace tessera::onnx
