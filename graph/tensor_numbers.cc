// Elementwise functions of whole numbers, and of what floats are made of.
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"

namespace tessera {

using internal::AsNode;
using internal::Call;
using internal::CommonType;
using internal::Fail;
using internal::FloatResult;
using internal::InFloats;
using internal::Show;

namespace {

Tensor Floats(const Tensor& t) { return t.Cast(FloatResult(t.dtype())); }

// Magnitudes as numbers without a sign, which hold that of the lowest one too.
Tensor Magnitude(const Tensor& t) {
  return t.dtype().IsUnsigned() ? t : t.Abs().Bitcast(UnsignedOf(t.dtype()));
}

// Euclid's steps, as many as two neighbours in Fibonacci's sequence need.
Tensor GreatestDivisor(const Tensor& x, const Tensor& y) {
  const int steps = static_cast<int>(std::ceil(1.45 * 8 * x.dtype().bytes())) + 1;
  Tensor a = x, b = y;
  for (int i = 0; i < steps; ++i) {
    const Tensor rest = a % b;
    a = Where(b == 0, a, b);
    b = Where(b == 0, 0, rest);
  }
  return a;
}

struct TwoIntegers {
  Tensor a, b;
  DType type;
  TwoIntegers(const Tensor& x, const Operand& y) : type(CommonType(x, y)) {
    if (!type.IsInt()) {
      Fail("takes integers, not ", Show(x), " and ", Show(y), "; cast them to an integer dtype");
    }
    a = Magnitude(x.Cast(type));
    b = Magnitude(Tensor(AsNode(y, type)));
  }
};

// 2^k in f64, of k that is normal there.
Tensor PowerOfTwo(const Tensor& k) { return ((k + 1023) << 52).Bitcast(kFloat64); }

}  // namespace

Tensor Tensor::Gcd(const Operand& of) const {
  Call call("Gcd", of.site(), *this, of);
  const auto [a, b, type] = TwoIntegers(*this, of);
  return GreatestDivisor(a, b).Cast(type);
}

Tensor Tensor::Lcm(const Operand& of) const {
  Call call("Lcm", of.site(), *this, of);
  const auto [a, b, type] = TwoIntegers(*this, of);
  return (a.TruncDiv(GreatestDivisor(a, b)) * b).Cast(type);
}

// Pairs of bits, fours, bytes; a product adds up the bytes.
Tensor Tensor::PopCount(CallSite at) const {
  Call call("PopCount", at, *this);
  if (dtype().IsFloat()) Fail("takes integers or bools, not ", Show(*this), "; bitcast it");
  const Tensor bits = dtype().IsBool() ? Cast(kUInt64) : Bitcast(UnsignedOf(dtype())).Cast(kUInt64);
  const auto every = [](uint64_t mask) { return Tensor::Full({}, mask, kUInt64); };
  Tensor x = bits - ((bits >> 1) & every(0x5555555555555555));
  x = (x & every(0x3333333333333333)) + ((x >> 2) & every(0x3333333333333333));
  x = (x + (x >> 4)) & every(0x0f0f0f0f0f0f0f0f);
  return ((x * every(0x0101010101010101)) >> 56).Cast(kInt32);
}

// In f64 one product is exact for narrower floats; f64 itself takes three, of factors that are
// numbers.
Tensor Tensor::LdExp(const Operand& of) const {
  Call call("LdExp", of.site(), *this, of);
  const bool number = of.tensor() == nullptr,
             parts = number && of.number().cls == KindClass::kFloat;
  const Tensor power(AsNode(of, parts ? kFloat64 : number ? kInt64 : of.tensor()->dtype()));
  if (power.dtype().IsFloat()) {
    // A whole power, and a factor above 1/2, of which no product is too large.
    const DType type = number ? FloatResult(dtype()) : FloatResult(CommonType(*this, of));
    const Tensor p = power.Cast(kFloat64).Clip(-2400.0, 2400.0), whole = p.Ceil();
    return (Cast(kFloat64) * (p - whole).Exp2()).LdExp(whole.Cast(kInt64)).Cast(type);
  }
  if (!power.dtype().IsInt()) Fail("multiplies by 2 to a power, not ", Show(power));
  const Tensor x = Floats(*this), k = power.Cast(kInt64).Clip(-2400, 2400);
  if (x.dtype() != kFloat64) {
    return (x.Cast(kFloat64) * PowerOfTwo(k.Clip(-600, 600))).Cast(x.dtype());
  }
  const Tensor third = k.TruncDiv(3);
  return x * PowerOfTwo(third) * PowerOfTwo(third) * PowerOfTwo(k - third * 2);
}

std::pair<Tensor, Tensor> Tensor::FrExp(CallSite at) const {
  Call call("FrExp", at, *this);
  const Tensor x = Floats(*this), wide = x.Cast(kFloat64);
  const Tensor none = (x == 0) | x.IsFinite().LogicalNot();
  const Tensor small = wide.Abs() < std::numeric_limits<double>::min();
  const Tensor bits = Where(small, wide * 0x1p54, wide).Bitcast(kUInt64);
  const Tensor field = ((bits >> 52) & 0x7ff).Cast(kInt32) - 1022;
  const Tensor half = (bits & Full({}, uint64_t{0x800fffffffffffff}, kUInt64)) |
                      Full({}, uint64_t{1022} << 52, kUInt64);
  const Tensor fraction = Where(none, wide, half.Bitcast(kFloat64)).Cast(x.dtype());
  const Tensor exponent = Where(none, 0, field - Where(small, 54, 0)).Cast(kInt32);
  const Tensor scaled = x.LdExp(-exponent);  // the same number, by way of x
  return {fraction.WithDerivativeOf(scaled), exponent};
}

// Numbers of one sign are in the order of their bits.
Tensor Tensor::NextAfter(const Operand& of) const {
  Call call("NextAfter", of.site(), *this, of);
  const DType type = FloatResult(CommonType(*this, of)), bits = SignedOf(type);
  const Tensor x = Cast(type), y(AsNode(of, type));
  const Tensor grows = (x < y) == (x > 0);
  const Tensor moved = (x.Bitcast(bits) + Where(grows, 1, -1).Cast(bits)).Bitcast(type);
  const Tensor least = Ones({}, bits).Bitcast(type);
  const Tensor next = Where(x == 0, Where(y > 0, least, -least), moved);
  return Where(x.IsNan() | y.IsNan(), x + y, Where(x == y, y, next));
}

Tensor Tensor::FMax(const Operand& of) const {
  Call call("FMax", of.site(), *this, of);
  const DType type = CommonType(*this, of);
  const Tensor a = Cast(type), b(AsNode(of, type));
  if (!type.IsFloat()) return a.Maximum(b);
  return Where(a.IsNan(), b, Where(b.IsNan(), a, a.Maximum(b)));
}

Tensor Tensor::FMin(const Operand& of) const {
  Call call("FMin", of.site(), *this, of);
  const DType type = CommonType(*this, of);
  const Tensor a = Cast(type), b(AsNode(of, type));
  if (!type.IsFloat()) return a.Minimum(b);
  return Where(a.IsNan(), b, Where(b.IsNan(), a, a.Minimum(b)));
}

Tensor Tensor::LogAddExp2(const Operand& of) const {
  Call call("LogAddExp2", of.site(), *this, of);
  return InFloats(*this, of, [](const Tensor& a, const Tensor& b) {
    return (a * std::numbers::ln2).LogAddExp(b * std::numbers::ln2) * std::numbers::log2e;
  });
}

Tensor Tensor::XLog1pY(const Operand& of) const {
  Call call("XLog1pY", of.site(), *this, of);
  return InFloats(*this, of, [](const Tensor& x, const Tensor& y) {
    const Tensor none = (x == 0) & ((y <= -1) | y.IsInf());
    return Where(none, 0, x * Where(none, 0, y).Log1p());
  });
}

Tensor Tensor::AddCMul(const Operand& a, const Operand& b, double value) const {
  Call call("AddCMul", a.site(), *this, a, b);
  const Tensor product = Tensor(AsNode(a, CommonType(*this, a))).Mul(b);
  const bool whole = !product.dtype().IsFloat() && value == std::floor(value);
  return *this + (value == 1 ? product
                  : whole    ? product * static_cast<int64_t>(value)
                             : product * value);
}

Tensor Tensor::AddCDiv(const Operand& a, const Operand& b, double value) const {
  Call call("AddCDiv", a.site(), *this, a, b);
  return *this + Tensor(AsNode(a, CommonType(*this, a))).Div(b) * value;
}

Tensor Tensor::Cbrt(CallSite at) const {
  Call call("Cbrt", at, *this);
  return InFloats(*this, [](const Tensor& x) { return x.Abs().Pow(1.0 / 3).CopySign(x); });
}

Tensor Tensor::Deg2Rad(CallSite at) const {
  Call call("Deg2Rad", at, *this);
  return InFloats(*this, [](const Tensor& x) { return x * (std::numbers::pi / 180); });
}

Tensor Tensor::Rad2Deg(CallSite at) const {
  Call call("Rad2Deg", at, *this);
  return InFloats(*this, [](const Tensor& x) { return x * (180 / std::numbers::pi); });
}

Tensor Tensor::RoundTo(int decimals, CallSite at) const {
  Call call("RoundTo", at, *this);
  if (!dtype().IsFloat()) {
    if (decimals >= 0) return Tensor(uop());
    Fail("rounds floats before the point, not ", Show(*this), "; cast it");
  }
  const int most = dtype() == kFloat64 ? 308 : 38;  // of which the power of 10 is finite
  if (decimals > most || decimals < -most)
    Fail("takes at most ", most, " decimals, not ", decimals);
  const double scale = std::pow(10.0, std::abs(decimals));
  return InFloats(*this, [&](const Tensor& x) {
    if (decimals < 0) return (x / scale).Round() * scale;
    const Tensor scaled = x * scale;  // where that overflows no digit is left to round
    return Where(scaled.IsFinite(), scaled.Round() / scale, x);
  });
}

// What is read as bits has no derivative.
Tensor Tensor::Detach(CallSite at) const {
  Call call("Detach", at, *this);
  return dtype().IsFloat() ? Bitcast(UnsignedOf(dtype())).Bitcast(dtype()) : Tensor(uop());
}

Tensor Tensor::WithDerivativeOf(const Tensor& other, CallSite at) const {
  Call call("WithDerivativeOf", at, *this, other);
  if (!(shape() == other.shape()) || !(dtype() == other.dtype()) || !dtype().IsFloat()) {
    Fail("takes floats of one shape and dtype; got ", Show(*this), " and ", Show(other));
  }
  const bool alike = !device() || !other.device() || device() == other.device();
  return Tensor(
      internal::Build(Op::kStandIn, {uop(), alike ? other.uop() : other.To(device()).uop()}));
}

}  // namespace tessera
