// Rows of functions of elements: the C++ library's, or a line that says the same.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "tests/support/dtype_rows.h"

namespace tessera {

namespace {

using One = std::function<double(double)>;
using Two = std::function<double(double, double)>;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

DType Same(DType t) { return t; }
DType Float(DType t) { return t.IsFloat() ? t : kFloat32; }
DType Bool(DType) { return kBool; }
DType I32(DType) { return kInt32; }
DType BesideInts(DType t) { return t.IsBool() ? kInt32 : t; }  // what a number in C++ makes of it

std::function<Numbers(const Numbers&, const Numbers&)> Each(One f) {
  return [f](const Numbers& x, const Numbers&) {
    Numbers out;
    for (double v : x) out.push_back(f(v));
    return out;
  };
}

std::function<Numbers(const Numbers&, const Numbers&)> Each(Two f) {
  return [f](const Numbers& x, const Numbers& y) {
    Numbers out;
    for (size_t i = 0; i < x.size(); ++i) out.push_back(f(x[i], y[i]));
    return out;
  };
}

// By its recurrence, then its series far from 0.
double DigammaOf(double x) {
  if (x <= 0 && x == std::floor(x)) return x == 0 ? -kInfinite : kNone;
  double below = 0;
  for (; x < 200; ++x) below += 1 / x;
  const double s = 1 / (x * x);
  return std::log(x) - 0.5 / x - s * (1.0 / 12 - s * (1.0 / 120 - s / 252)) - below;
}

// Where erf has a value, by halving.
double ErfInvOf(double p) {
  if (std::fabs(p) >= 1) return std::fabs(p) > 1 ? kNone : std::copysign(kInfinite, p);
  double low = -6, high = 6;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erf(middle) < p ? low : high) = middle;
  }
  return low;
}

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }
double SoftplusOf(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double FlooredMod(double a, double b) { return a - b * std::floor(a / b); }

#define ONE(function, gives, takes, value)                                                \
  rows.push_back({#function, [](const Tensor& x, const Tensor&) { return x.function(); }, \
                  Each(One([](double x) -> double { return value; })), gives, Takes::takes})
#define ONE_WITH(function, call, gives, takes, value)                               \
  rows.push_back({#function, [](const Tensor& x, const Tensor&) { return x.call; }, \
                  Each(One([](double x) -> double { return value; })), gives, Takes::takes})
#define TWO(function, gives, takes, value)                                                   \
  rows.push_back({#function, [](const Tensor& x, const Tensor& y) { return x.function(y); }, \
                  Each(Two([](double x, double y) -> double { return value; })), gives,      \
                  Takes::takes})
#define TWO_WITH(function, call, gives, takes, value)                                   \
  rows.push_back({#function, [](const Tensor& x, const Tensor& y) { return call; },     \
                  Each(Two([](double x, double y) -> double { return value; })), gives, \
                  Takes::takes})

void AddOfOne(std::vector<DTypeRow>& rows) {
  ONE(Neg, Same, kNumbers, -x);
  ONE(Abs, Same, kAll, std::fabs(x));
  ONE(Sign, Same, kAll, (x > 0) - (x < 0));
  ONE(Square, Same, kAll, x * x);
  ONE(Frac, Same, kNumbers, 0 * x);
  ONE(Floor, Same, kAll, x);
  ONE(Ceil, Same, kAll, x);
  ONE(Trunc, Same, kAll, x);
  ONE(Round, Same, kAll, x);
  ONE_WITH(RoundTo, RoundTo(1), Same, kAll, x);
  ONE(Detach, Same, kAll, x);
  ONE(NanToNum, Same, kAll, x);
  ONE_WITH(Clip, Clip(1, 3), BesideInts, kAll, std::fmin(std::fmax(x, 1), 3));
  ONE_WITH(
      Cast, Cast(kInt64), [](DType) { return kInt64; }, kAll, x);
  ONE(Reciprocal, Float, kAll, 1 / x);
  ONE(Sqrt, Float, kAll, std::sqrt(x));
  ONE(Rsqrt, Float, kAll, 1 / std::sqrt(x));
  ONE(Cbrt, Float, kAll, std::cbrt(x));
  ONE(Exp, Float, kAll, std::exp(x));
  ONE(Exp2, Float, kAll, std::exp2(x));
  ONE(Expm1, Float, kAll, std::expm1(x));
  ONE(Log, Float, kAll, std::log(x));
  ONE(Log2, Float, kAll, std::log2(x));
  ONE(Log10, Float, kAll, std::log10(x));
  ONE(Log1p, Float, kAll, std::log1p(x));
  ONE(Sin, Float, kAll, std::sin(x));
  ONE(Cos, Float, kAll, std::cos(x));
  ONE(Tan, Float, kAll, std::tan(x));
  ONE(Asin, Float, kAll, std::asin(x));
  ONE(Acos, Float, kAll, std::acos(x));
  ONE(Atan, Float, kAll, std::atan(x));
  ONE(Sinh, Float, kAll, std::sinh(x));
  ONE(Cosh, Float, kAll, std::cosh(x));
  ONE(Tanh, Float, kAll, std::tanh(x));
  ONE(Asinh, Float, kAll, std::asinh(x));
  ONE(Acosh, Float, kAll, std::acosh(x));
  ONE(Atanh, Float, kAll, std::atanh(x));
  ONE_WITH(Sinc, Cast(Float(x.dtype())).Mul(0.25).Sinc(), Float, kAll, [&] {
    const double angle = x * std::numbers::pi / 4;
    return x == 0 ? 1 : std::sin(angle) / angle;
  }());
  ONE(Erf, Float, kAll, std::erf(x));
  ONE(Erfc, Float, kAll, std::erfc(x));
  ONE_WITH(ErfInv, Cast(Float(x.dtype())).Mul(0.25).ErfInv(), Float, kAll, ErfInvOf(x / 4));
  ONE(Lgamma, Float, kAll, std::lgamma(x));
  ONE(Digamma, Float, kAll, DigammaOf(x));
  ONE(Deg2Rad, Float, kAll, x * (std::numbers::pi / 180));
  ONE(Rad2Deg, Float, kAll, x * (180 / std::numbers::pi));
  ONE_WITH(FrExp, FrExp().first, Float, kAll, [&] {
    int power;
    return std::frexp(x, &power);
  }());
  ONE(LogicalNot, Bool, kAll, x == 0);
  ONE(IsNan, Bool, kAll, 0 * x);
  ONE(IsInf, Bool, kAll, 0 * x);
  ONE(IsFinite, Bool, kAll, 1 + 0 * x);
  ONE(IsPosInf, Bool, kAll, 0 * x);
  ONE(IsNegInf, Bool, kAll, 0 * x);
  ONE(SignBit, Bool, kAll, x < 0);
}

void AddActivations(std::vector<DTypeRow>& rows) {
  ONE(Relu, Same, kAll, std::fmax(x, 0));
  ONE(Relu6, BesideInts, kAll, std::fmin(std::fmax(x, 0), 6));
  ONE(LeakyRelu, Float, kAll, x > 0 ? x : x * 0.01);
  ONE(Elu, Float, kAll, x > 0 ? x : std::expm1(x));
  ONE(Sigmoid, Float, kAll, SigmoidOf(x));
  ONE(LogSigmoid, Float, kAll, -SoftplusOf(-x));
  ONE(HardSigmoid, Float, kAll, std::fmin(std::fmax(x / 6 + 0.5, 0), 1));
  ONE(HardSwish, Float, kAll, x * std::fmin(std::fmax(x / 6 + 0.5, 0), 1));
  ONE(Silu, Float, kAll, x * SigmoidOf(x));
  ONE(Softplus, Float, kAll, SoftplusOf(x));
  ONE(Mish, Float, kAll, x * std::tanh(SoftplusOf(x)));
  ONE(Gelu, Float, kAll, x * (0.5 * std::erfc(-x / std::numbers::sqrt2)));
  ONE(GeluTanh, Float, kAll,
      x * (0.5 + 0.5 * std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))));
  ONE(QuickGelu, Float, kAll, x * SigmoidOf(1.702 * x));
  ONE(Celu, Float, kAll, x > 0 ? x : std::expm1(x));
  ONE(Selu, Float, kAll, 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)));
  ONE_WITH(Swish, Swish(2), Float, kAll, x * SigmoidOf(2 * x));
  ONE(Softsign, Float, kAll, x / (1 + std::fabs(x)));
  ONE(Softshrink, Float, kAll, x > 0 ? std::fmax(x - 0.5, 0) : std::fmin(x + 0.5, 0));
  ONE(Hardshrink, Float, kAll, x);
  ONE(Tanhshrink, Float, kAll, x - std::tanh(x));
  ONE(Hardtanh, Float, kAll, std::fmin(std::fmax(x, -1), 1));
  ONE(ThresholdedRelu, Float, kAll, x > 1 ? x : 0);
  ONE_WITH(Threshold, Threshold(1, 5), Float, kAll, x > 1 ? x : 5);
  ONE_WITH(Logit, Logit(0.25), Float, kAll, [&] {
    const double inside = std::fmin(std::fmax(x, 0.25), 0.75);
    return std::log(inside / (1 - inside));
  }());
  TWO(Prelu, Same, kAll, x < 0 ? x * y : x);
}

void AddOfTwo(std::vector<DTypeRow>& rows) {
  TWO(Add, Same, kAll, x + y);
  TWO(Sub, Same, kNumbers, x - y);
  TWO(Mul, Same, kAll, x * y);
  TWO(Div, Float, kAll, x / y);
  TWO(FloorDiv, Same, kNumbers, std::floor(x / y));
  TWO(TruncDiv, Same, kNumbers, std::trunc(x / y));
  TWO(Mod, Same, kNumbers, FlooredMod(x, y));
  TWO(Remainder, Same, kNumbers, FlooredMod(x, y));
  TWO(Fmod, Same, kNumbers, std::fmod(x, y));
  TWO(Pow, Same, kNumbers, std::pow(x, y));
  TWO(Maximum, Same, kAll, std::fmax(x, y));
  TWO(Minimum, Same, kAll, std::fmin(x, y));
  TWO(FMax, Same, kAll, std::fmax(x, y));
  TWO(FMin, Same, kAll, std::fmin(x, y));
  TWO(BitAnd, Same, kBits, static_cast<double>(int64_t(x) & int64_t(y)));
  TWO(BitOr, Same, kBits, static_cast<double>(int64_t(x) | int64_t(y)));
  TWO(BitXor, Same, kBits, static_cast<double>(int64_t(x) ^ int64_t(y)));
  TWO(Shl, Same, kIntegers, x * std::exp2(y));
  TWO(Shr, Same, kIntegers, std::floor(x / std::exp2(y)));
  TWO(LogicalAnd, Bool, kAll, x != 0 && y != 0);
  TWO(LogicalOr, Bool, kAll, x != 0 || y != 0);
  TWO(LogicalXor, Bool, kAll, (x != 0) != (y != 0));
  TWO_WITH(Lerp, x.Lerp(y, 0.5), Float, kAll, (x + y) / 2);
  TWO(Atan2, Float, kAll, std::atan2(x, y));
  TWO(Hypot, Float, kAll, std::hypot(x, y));
  TWO(LogAddExp, Float, kAll, std::fmax(x, y) + std::log1p(std::exp(-std::fabs(x - y))));
  TWO(LogAddExp2, Float, kAll,
      std::fmax(x, y) + std::log1p(std::exp2(-std::fabs(x - y))) / std::numbers::ln2);
  TWO(CopySign, Float, kAll, std::fabs(x));
  TWO(Heaviside, Same, kAll, x == 0 ? y : x > 0);
  TWO(XLogY, Float, kAll, x == 0 ? 0 : x * std::log(y));
  TWO(XLog1pY, Float, kAll, x == 0 ? 0 : x * std::log1p(y));
  TWO_WITH(NextAfter, x.NextAfter(x), Float, kAll, x + 0 * y);
  TWO(Gcd, Same, kIntegers, static_cast<double>(std::gcd(int64_t(x), int64_t(y))));
  TWO(Lcm, Same, kIntegers, static_cast<double>(std::lcm(int64_t(x), int64_t(y))));
  TWO(LdExp, Float, kNumbers, x * std::exp2(y));
  TWO_WITH(AddCMul, x.AddCMul(y, y, 2), BesideInts, kAll, x + 2 * y * y);
  TWO_WITH(AddCDiv, x.AddCDiv(y, y, 2), Float, kAll, x + 2 * (y / y));
  TWO_WITH(Clamp, x.Clamp(y, y), Same, kAll, y + 0 * x);
  TWO_WITH(MaskedFill, x.MaskedFill(x > y, 1), Same, kAll, x > y ? 1 : x);
  TWO_WITH(IsClose, x.IsClose(y, 0, 1.5), Bool, kAll, std::fabs(x - y) <= 1.5);
  TWO_WITH(Where, Where(x > y, x, y), Same, kAll, std::fmax(x, y));
  TWO_WITH(Equal, x == y, Bool, kAll, x == y);
  TWO_WITH(NotEqual, x != y, Bool, kAll, x != y);
  TWO_WITH(Less, x < y, Bool, kAll, x < y);
  TWO_WITH(LessEqual, x <= y, Bool, kAll, x <= y);
  TWO_WITH(Greater, x > y, Bool, kAll, x > y);
  TWO_WITH(GreaterEqual, x >= y, Bool, kAll, x >= y);
}

}  // namespace

void AddElementwiseRows(std::vector<DTypeRow>& rows) {
  AddOfOne(rows);
  AddActivations(rows);
  AddOfTwo(rows);
  // Of a bool the other one.
  rows.push_back({"BitNot", [](const Tensor& x, const Tensor&) { return x.BitNot(); },
                  [](const Numbers& x, const Numbers&) {
                    const bool bools = *std::max_element(x.begin(), x.end()) == 1;
                    Numbers out;
                    for (double v : x) out.push_back(bools ? 1 - v : -1 - v);
                    return out;
                  },
                  Same, Takes::kBits});
  rows.push_back({"PopCount", [](const Tensor& x, const Tensor&) { return x.Abs().PopCount(); },
                  Each(One([](double x) -> double {
                    return __builtin_popcountll(static_cast<uint64_t>(std::fabs(x)));
                  })),
                  I32, Takes::kBits});
}

}  // namespace tessera
