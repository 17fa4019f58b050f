// Elementwise functions composed of others.
#include <cmath>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"

namespace tessera {

using internal::Call;
using internal::CommonType;
using internal::Fail;
using internal::InFloats;
using internal::kInfinity;
using internal::Show;

namespace {

// |x| whose derivative at 0 is that of one side, by the sign of the zero: what is odd in x and made
// of it, with that sign, then has its derivative there.
Tensor Magnitude(const Tensor& x) { return Where(x.SignBit(), -x, x); }

}  // namespace

// ---- two operands

// By the quotient that is at most 1, so that nothing overflows: then the octant, then the signs.
Tensor Tensor::Atan2(const Operand& of) const {
  Call call("Atan2", of.site(), *this, of);
  return InFloats(*this, of, [](const Tensor& y, const Tensor& x) {
    const Tensor ax = Magnitude(x), ay = Magnitude(y);
    const Tensor steep = ay > ax;  // and no Minimum, whose adjoint is another where both are equal
    const Tensor small = Where(steep, ax, ay), large = Where(steep, ay, ax);
    const Tensor both_infinite = ax.IsInf() & ay.IsInf();
    const Tensor none = large == 0;
    const Tensor ratio = Where(both_infinite, 1, Where(none, 0, small / Where(none, 1, large)));
    Tensor angle = ratio.Atan();
    angle = Where(steep, std::numbers::pi / 2 - angle, angle);
    angle = Where(x.SignBit(), std::numbers::pi - angle, angle);
    angle = angle.CopySign(y);
    return Where(x.IsNan() | y.IsNan(), std::nan(""), angle);
  });
}

Tensor Tensor::Hypot(const Operand& of) const {
  Call call("Hypot", of.site(), *this, of);
  return InFloats(*this, of, [](const Tensor& a, const Tensor& b) {
    const Tensor x = Magnitude(a), y = Magnitude(b), first = (x > y) | x.IsNan();
    const Tensor large = Where(first, x, y), small = Where(first, y, x), none = large == 0;
    const Tensor ratio = small / Where(none | large.IsInf(), 1, large);
    const Tensor length = Where(none, 0, large * (ratio * ratio + 1).Sqrt());
    return Where(a.IsInf() | b.IsInf(), kInfinity, length);
  });
}

// The larger, and what the smaller adds to it; alike infinities stay.
Tensor Tensor::LogAddExp(const Operand& of) const {
  Call call("LogAddExp", of.site(), *this, of);
  return InFloats(*this, of, [](const Tensor& a, const Tensor& b) {
    const Tensor first = a > b, large = Where(first, a, b), small = Where(first, b, a);
    const Tensor below = Where((a == b) & a.IsInf(), 0, small - large);
    return large + below.Exp().Log1p();
  });
}

Tensor Tensor::CopySign(const Operand& of) const {
  Call call("CopySign", of.site(), *this, of);
  const DType type = internal::FloatResult(CommonType(*this, of));
  const Tensor a = Cast(type), b(internal::AsNode(of, type));
  return Where(a.SignBit() == b.SignBit(), a, -a);
}

Tensor Tensor::Heaviside(const Operand& b) const {
  Call call("Heaviside", b.site(), *this, b);
  const DType type = CommonType(*this, b);
  const Tensor x = Cast(type), at_zero(internal::AsNode(b, type));
  const Tensor step = Where(x == 0, at_zero, (x > 0).Cast(type));
  return type.IsFloat() ? Where(x.IsNan(), x, step) : step;
}

Tensor Tensor::XLogY(const Operand& of) const {
  Call call("XLogY", of.site(), *this, of);
  return InFloats(*this, of, [](const Tensor& x, const Tensor& y) {
    // The logarithm of 1 where it does not count keeps NaN out of the adjoint as well.
    const Tensor none = (x == 0) & ((y <= 0) | (y == kInfinity));
    return Where(none, 0, x * Where(none, 1, y).Log());
  });
}

Tensor Tensor::Remainder(const Operand& b) const {
  Call call("Remainder", b.site(), *this, b);
  return Mod(b);
}

Tensor Tensor::Clamp(const Operand& low, const Operand& high) const {
  Call call("Clamp", low.site(), *this, low, high);
  return Maximum(low).Minimum(high);
}

Tensor Tensor::MaskedFill(const Tensor& mask, const Operand& value) const {
  Call call("MaskedFill", value.site(), *this, mask, value);
  if (!mask.dtype().IsBool()) Fail("the mask ", Show(mask), " must be bool; compare it with 0");
  return Where(mask, Tensor(internal::AsNode(value, dtype())), *this);
}

Tensor Tensor::IsClose(const Operand& of, double rtol, double atol, bool equal_nan) const {
  Call call("IsClose", of.site(), *this, of);
  const DType type = CommonType(*this, of);
  const DType wide = type.IsFloat() ? type : kFloat64;  // whole numbers differ by whole numbers
  const Tensor a = Cast(wide), b = Tensor(internal::AsNode(of, type)).Cast(wide);
  const Tensor near = ((a - b).Abs() <= b.Abs() * rtol + atol) & b.IsFinite();
  const Tensor close = near | (a == b);
  return equal_nan ? close | (a.IsNan() & b.IsNan()) : close;
}

Tensor Tensor::AllClose(const Operand& b, double rtol, double atol, bool equal_nan) const {
  Call call("AllClose", b.site(), *this, b);
  return IsClose(b, rtol, atol, equal_nan).All();
}

// ---- one operand

// Of the magnitude, where nothing cancels; log(2x) where x^2 would overflow.
Tensor Tensor::Asinh(CallSite at) const {
  Call call("Asinh", at, *this);
  return InFloats(*this, [](const Tensor& x) {
    const Tensor a = Magnitude(x);
    const double large = x.dtype() == kFloat64 ? 1e150 : 1e15;
    const Tensor capped = a.Minimum(large);
    const Tensor square = capped * capped;
    const Tensor near = (capped + square / ((square + 1).Sqrt() + 1)).Log1p();
    const Tensor far = a.Maximum(1).Log() + std::numbers::ln2;  // at 0 its adjoint would be NaN
    const Tensor value = Where(a > large, far, near);
    return Where(x.SignBit(), -value, value);
  });
}

Tensor Tensor::Acosh(CallSite at) const {
  Call call("Acosh", at, *this);
  return InFloats(*this, [](const Tensor& x) {
    const double large = x.dtype() == kFloat64 ? 1e150 : 1e15;
    const Tensor t = x.Minimum(large) - 1;
    const Tensor near = (t + t.Sqrt() * (t + 2).Sqrt()).Log1p();
    const Tensor value = Where(x > large, x.Log() + std::numbers::ln2, near);
    return Where(x < 1, std::nan(""), value);
  });
}

Tensor Tensor::Atanh(CallSite at) const {
  Call call("Atanh", at, *this);
  return InFloats(*this, [](const Tensor& x) { return (x.Log1p() - (-x).Log1p()) * 0.5; });
}

Tensor Tensor::Sinc(CallSite at) const {
  Call call("Sinc", at, *this);
  return InFloats(*this, [](const Tensor& of) {
    const Tensor x = of * std::numbers::pi, near = x.Abs() < 0.1, far = Where(near, 1, x);
    // By its series, whose derivatives keep their digits.
    const Tensor t = Where(near, x, 0).Square();
    const Tensor series = 1 - t / 6 * (1 - t / 20 * (1 - t / 42 * (1 - t / 72 * (1 - t / 110))));
    return Where(near, series, far.Sin() / far);
  });
}

Tensor Tensor::Entr(CallSite at) const {
  Call call("Entr", at, *this);
  return InFloats(*this, [](const Tensor& x) { return Where(x < 0, -kInfinity, -x.XLogY(x)); });
}

Tensor Tensor::Frac(CallSite at) const {
  Call call("Frac", at, *this);
  return *this - Trunc();
}

Tensor Tensor::IsPosInf(CallSite at) const {
  Call call("IsPosInf", at, *this);
  if (!dtype().IsFloat()) return Zeros(shape(), kBool, device());
  return *this == kInfinity;
}

Tensor Tensor::IsNegInf(CallSite at) const {
  Call call("IsNegInf", at, *this);
  if (!dtype().IsFloat()) return Zeros(shape(), kBool, device());
  return *this == -kInfinity;
}

Tensor Tensor::SignBit(CallSite at) const {
  Call call("SignBit", at, *this);
  if (dtype().IsUnsigned() || dtype().IsBool()) return Zeros(shape(), kBool, device());
  if (!dtype().IsFloat()) return *this < 0;
  return Bitcast(SignedOf(dtype())) < 0;
}

Tensor Tensor::Logit(std::optional<double> eps, CallSite at) const {
  Call call("Logit", at, *this);
  return InFloats(*this, [&](const Tensor& given) {
    const Tensor x = eps ? given.Clip(*eps, 1 - *eps) : given;
    return x.Log() - (-x).Log1p();
  });
}

}  // namespace tessera
