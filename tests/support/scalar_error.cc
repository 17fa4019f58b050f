// The rules: derivatives of smooth ops, intervals at steps, rounding by what the dtype holds.
#include "tests/support/scalar_error.h"

#include <algorithm>
#include <cmath>

#include "graph/fold.h"
#include "graph/status.h"

namespace tessera {
namespace {

struct Format {
  double unit;      // half of the distance from 1 to the next number
  double smallest;  // positive number
  double largest;
};

Format FormatOf(DType t) {
  switch (t.kind()) {
    case Kind::kF8E4M3:
      return {0x1p-4, 0x1p-9, 448};
    case Kind::kF8E5M2:
      return {0x1p-3, 0x1p-16, 57344};
    case Kind::kF16:
      return {0x1p-11, 0x1p-24, 65504};
    case Kind::kBF16:
      return {0x1p-8, 0x1p-133, 0x1.fep127};
    case Kind::kF32:
      return {0x1p-24, 0x1p-149, 0x1.fffffep127};
    default:
      return {0x1p-53, 0x1p-1074, 0x1.fffffffffffffp1023};
  }
}

// Units in the last place by which a function of the C library, or one of our own, may be off.
constexpr double kFunctionUlps = 4;

// The rounding of the result itself, `units` times.
double Rounding(DType t, double magnitude, double units) {
  const Format f = FormatOf(t);
  return units * std::max(2 * f.unit * magnitude, f.smallest);
}

double Apply(Op op, double x) {
  return EvaluateScalarOp(op, kFloat64, kFloat64, {Scalar::Float(x)}).AsFloat();
}

// The exponent of the lowest bit set in a finite number other than 0.
int LowestBit(double x) {
  int exponent;
  double m = std::fabs(std::frexp(x, &exponent));
  const auto bits = static_cast<uint64_t>(std::ldexp(m, 53));
  return exponent - 53 + std::countr_zero(bits);
}

// Bounds |f(y) - f(x)| for |y - x| <= e.
double Spread(Op op, double x, double e) {
  if (op == Op::kSin || op == Op::kCos) return std::min(e, 2.0);
  if (op == Op::kCosh) return Apply(op, std::fabs(x) + e) - Apply(op, x);
  if (op == Op::kTan) {
    const double turn = std::floor((x - e) / M_PI + 0.5);
    if (turn != std::floor((x + e) / M_PI + 0.5) || std::fabs(x) > 1e6) return kUnknown;
  }
  const double y = Apply(op, x), low = Apply(op, x - e), high = Apply(op, x + e);
  if (std::isnan(low) || std::isnan(high)) return kUnknown;  // partly outside its domain
  return std::max(std::fabs(high - y), std::fabs(low - y));
}

double FunctionError(const UOp& u, ScalarWithError arg, double result) {
  const double x = arg.value.AsFloat(), e = arg.error;
  const Format f = FormatOf(u.dtype());
  if (std::isnan(x)) return 0;
  if (x == 0 && e == 0 && result == 0) return 0;
  const double exact = Apply(u.op(), x);
  // An infinity is certain where no rounding could have kept the value finite.
  if (std::isinf(exact)) return e == 0 ? 0 : kUnknown;
  if (std::isnan(exact)) return e == 0 ? 0 : kUnknown;
  if (std::fabs(exact) > f.largest) {
    return std::fabs(exact) * (1 - 64 * f.unit) - e > f.largest && e == 0 ? 0 : kUnknown;
  }
  const double spread = e == 0 ? 0 : Spread(u.op(), x, e);
  if (!(std::fabs(exact) + spread < f.largest * (1 - 64 * f.unit))) return kUnknown;
  const double units = u.dtype().bits() < 32 ? 1.01 : kFunctionUlps;
  return spread + Rounding(u.dtype(), std::fabs(result) + spread, units);
}

double PowError(const UOp& u, const ScalarWithError* a, double result) {
  const double x = a[0].value.AsFloat(), y = a[1].value.AsFloat();
  const Format f = FormatOf(u.dtype());
  if (std::isnan(result) && a[0].error == 0 && a[1].error == 0) return 0;
  if (a[0].error == 0 && a[1].error == 0) {
    const double exact = std::pow(x, y);
    if (x == 0 || std::isinf(x) || std::isinf(y) || y == 0 || x == 1) return 0;
    if (std::isinf(exact) || std::fabs(exact) > f.largest * (1 - 64 * f.unit)) {
      return std::fabs(exact) * (1 - 64 * f.unit) > f.largest ? 0 : kUnknown;
    }
    return Rounding(u.dtype(), std::fabs(result), kFunctionUlps);
  }
  if (!(x - a[0].error > 0) || !std::isfinite(result)) return kUnknown;
  double spread = 0;
  for (double dx : {-a[0].error, a[0].error}) {
    for (double dy : {-a[1].error, a[1].error}) {
      spread = std::max(spread, std::fabs(std::pow(x + dx, y + dy) - std::pow(x, y)));
    }
  }
  if (!(std::fabs(result) + spread < f.largest * (1 - 64 * f.unit))) return kUnknown;
  return spread + Rounding(u.dtype(), std::fabs(result) + spread, kFunctionUlps);
}

// Ops on bools and integers: an operand that may be anything makes the result anything, unless
// another one decides alone.
double IntegerError(const UOp& u, const ScalarWithError* a) {
  if (u.size() == 2) {
    for (int i : {0, 1}) {
      if (a[i].error != 0) continue;
      const bool zero = a[i].value.bits == 0;
      if (zero && (u.is(Op::kAnd) || u.is(Op::kMul))) return 0;
      if (!zero && u.is(Op::kOr) && u.dtype().IsBool()) return 0;
    }
  }
  return kUnknown;
}

double CompareError(const ScalarWithError* a, DType operand) {
  for (int i : {0, 1}) {
    if (a[i].error == kUnknown) return kUnknown;
    if (operand.IsFloat() && a[i].error == 0 && std::isnan(a[i].value.AsFloat())) return 0;
  }
  if (!operand.IsFloat()) return kUnknown;
  const double distance = std::fabs(a[0].value.AsFloat() - a[1].value.AsFloat());
  return distance > a[0].error + a[1].error ? 0 : kUnknown;
}

double CastError(const UOp& u, ScalarWithError a, DType from, double result) {
  if (a.error == kUnknown || !from.IsFloat()) return kUnknown;
  const double x = a.value.AsFloat();
  if (u.dtype().IsBool()) return std::fabs(x) > a.error ? 0 : kUnknown;
  if (!u.dtype().IsFloat()) {
    const auto to = [&](double v) { return Convert(Scalar::Float(v), kFloat64, u.dtype()); };
    return to(x - a.error) == to(x + a.error) ? 0 : kUnknown;
  }
  const Format f = FormatOf(u.dtype());
  if (!(std::fabs(x) + a.error < f.largest)) return kUnknown;
  return a.error + Rounding(u.dtype(), std::fabs(result) + a.error, 1.01);
}

// The arithmetic that IEEE rounds correctly, on finite operands that are off.
double ArithmeticError(const UOp& u, const ScalarWithError* a) {
  const auto x = [&](int i) { return a[i].value.AsFloat(); };
  const auto e = [&](int i) { return a[i].error; };
  switch (u.op()) {
    case Op::kAdd:
    case Op::kSub:
      return e(0) + e(1);
    case Op::kMul:
      return std::fabs(x(0)) * e(1) + std::fabs(x(1)) * e(0) + e(0) * e(1);
    case Op::kFma:
      return std::fabs(x(0)) * e(1) + std::fabs(x(1)) * e(0) + e(0) * e(1) + e(2);
    case Op::kDiv: {
      const double least = std::fabs(x(1)) - e(1);
      return least > 0 ? (e(0) + std::fabs(x(0) / x(1)) * e(1)) / least : kUnknown;
    }
    case Op::kSqrt:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
    case Op::kRound: {
      const double low = Apply(u.op(), x(0) - e(0)), high = Apply(u.op(), x(0) + e(0));
      return std::isnan(high - low) ? kUnknown : high - low;
    }
    default:
      return kUnknown;
  }
}

}  // namespace

bool IsExact(const UOp& u) {
  const bool powers = u.is(Op::kPow) && u.dtype().IsFloat();
  const bool function = HasProperty(u.op(), kExpensive) && !u.is(Op::kThreefry);
  // The bits of a NaN are nobody's business.
  const bool bits = u.is(Op::kBitcast) && u.src(0).dtype().IsFloat();
  return !powers && !function && !bits;
}

double ErrorOf(const UOp& u, const ScalarWithError* a, Scalar result) {
  bool clean = true, unknown = false, nan = false;
  for (int i = 0; i < u.size(); ++i) {
    clean &= a[i].error == 0;
    unknown |= a[i].error == kUnknown;
    nan |= u.src(i).dtype().IsFloat() && a[i].error == 0 && std::isnan(a[i].value.AsFloat());
  }
  if (clean && IsExact(u)) return 0;
  const DType operand = u.src(u.size() - 1).dtype();
  const double r = result.AsFloat();
  switch (u.op()) {
    case Op::kWhere:
      if (a[0].error == 0) return a[a[0].value.bits ? 1 : 2].error;
      return a[1].error == 0 && a[2].error == 0 && a[1].value == a[2].value ? 0 : kUnknown;
    case Op::kCmpLt:
    case Op::kCmpLe:
    case Op::kCmpEq:
    case Op::kCmpNe:
      return CompareError(a, operand);
    case Op::kBitcast:
      return a[0].error == 0 && !nan ? 0 : kUnknown;
    case Op::kCast:
      return nan ? 0 : CastError(u, a[0], operand, r);
    case Op::kThreefry:
      return kUnknown;
    default:
      break;
  }
  if (!u.dtype().IsFloat()) return IntegerError(u, a);
  if (nan && !u.is(Op::kPow)) return 0;
  if (unknown) return kUnknown;
  if (u.is(Op::kPow)) return PowError(u, a, r);
  if (HasProperty(u.op(), kExpensive)) return FunctionError(u, a[0], r);
  if (u.is(Op::kNeg) || u.is(Op::kAbs)) return a[0].error;
  if (u.is(Op::kMax) || u.is(Op::kMin)) return std::max(a[0].error, a[1].error);
  if (!std::isfinite(r)) {
    // An exact infinity swallows a finite error in sums.
    const bool sum = u.is(Op::kAdd) || u.is(Op::kSub);
    for (int i : {0, 1}) {
      if (sum && a[i].error == 0 && std::isinf(a[i].value.AsFloat())) return 0;
    }
    return kUnknown;
  }
  const double carried = ArithmeticError(u, a);
  const Format f = FormatOf(u.dtype());
  if (!(std::fabs(r) + carried < f.largest * (1 - 64 * f.unit))) return kUnknown;
  return carried + Rounding(u.dtype(), std::fabs(r) + carried, 1.01);
}

void ReduceError::Add(ScalarWithError x, double unrounded) {
  ++count_;
  if (!dtype_.IsFloat()) {
    unknown_ |= x.error != 0;
    return;
  }
  const double v = x.value.AsFloat();
  if (x.error == kUnknown || (unrounded == kUnknown && op_ == Op::kAdd)) {
    unknown_ = true;
    return;
  }
  if (op_ != Op::kAdd) unrounded = 0;
  errors_ += x.error + unrounded;
  worst_ = std::max(worst_, x.error);
  if (std::isnan(v)) {
    nan_ = true;
  } else if (std::isinf(v)) {
    (v > 0 ? plus_ : minus_) = true;
    unknown_ |= x.error != 0;
  } else if (v == 0) {
    zero_ = true;
    relative_ = x.error == 0 ? relative_ : kUnknown;
  } else {
    magnitude_ += std::fabs(v) + x.error;
    finest_ = std::min(finest_, LowestBit(v));
    relative_ += (x.error + unrounded) / std::fabs(v);
    (std::fabs(v) > 1 ? up_ : down_) += std::log2(std::fabs(v));
    odd_ *= std::ldexp(std::fabs(v), -LowestBit(v));
  }
}

double ReduceError::SumError(double result) const {
  const DType wide = AccumulateType(dtype_);
  const Format f = FormatOf(wide);
  if (plus_ && minus_) return 0;
  if (!(magnitude_ < f.largest / 2)) return kUnknown;
  if (plus_ || minus_) return 0;
  const bool fits =
      errors_ == 0 && (magnitude_ == 0 || magnitude_ <= std::ldexp(0.5 / f.unit, finest_));
  if (fits) return 0;
  double error = errors_ + (static_cast<double>(count_) + 1) * 1.01 *
                               std::max(f.unit * magnitude_, f.smallest);
  if (wide == dtype_) return error + Rounding(dtype_, std::fabs(result), 0.5);
  if (!(std::fabs(result) + error < FormatOf(dtype_).largest)) return kUnknown;
  return error + Rounding(dtype_, std::fabs(result) + error, 1.01);
}

double ReduceError::ProductError(double result) const {
  const DType wide = AccumulateType(dtype_);
  const Format f = FormatOf(wide);
  const bool infinite = plus_ || minus_;
  if (zero_ && infinite) return relative_ == 0 ? 0 : kUnknown;
  if (infinite) return relative_ < 0.5 && down_ > std::log2(f.smallest) + 2 ? 0 : kUnknown;
  const double top = std::log2(f.largest) - 1, bottom = std::log2(f.smallest) + 60;
  if (!(up_ < top)) return kUnknown;
  if (zero_) return relative_ == 0 ? 0 : kUnknown;
  const double least = wide.kind() == Kind::kF64 ? bottom : -120;
  if (!(down_ > least)) return kUnknown;
  if (relative_ == 0 && odd_ * f.unit <= 0.5) return 0;
  const double relative = relative_ + 2.02 * f.unit * static_cast<double>(count_ + 1);
  if (!(relative < 0.1)) return kUnknown;
  const double error = std::fabs(result) * relative * 1.1;
  if (wide == dtype_) return error;
  return error + Rounding(dtype_, std::fabs(result) + error, 1.01);
}

double ReduceError::Error(Scalar result) const {
  if (!dtype_.IsFloat()) return unknown_ ? kUnknown : 0;
  if (nan_) return 0;
  if (unknown_) return kUnknown;
  switch (op_) {
    case Op::kAdd:
      return SumError(result.AsFloat());
    case Op::kMul:
      return ProductError(result.AsFloat());
    default:
      return worst_;
  }
}

}  // namespace tessera
