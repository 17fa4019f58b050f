// What the fuzzer draws from.
#include "tests/fuzz/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {

RandomTensors::RandomTensors(uint64_t seed) : rng_(seed * 0x9E3779B97F4A7C15u + 1) {
  style_ = Chance(0.45) ? kDyadic : Chance(0.4) ? kSpecial : kSmooth;
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 37, 64, 65, 70};
  for (int64_t i = Int(2, 4); i > 0; --i) {
    const bool small = Chance(0.6);
    sizes_.push_back(kSizes[Int(0, small ? 7 : std::size(kSizes) - 1)]);
  }
  if (Chance(0.03)) sizes_.push_back(0);
  max_elements_ = Chance(0.1) ? 8000 : 700;
}

DType RandomTensors::AnyType() {
  constexpr DType kTypes[] = {kBool,    kBool,     kInt8,       kInt16,      kInt32,   kInt32,
                              kInt32,   kInt64,    kUInt8,      kUInt16,     kUInt32,  kUInt64,
                              kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat64, kFloat64};
  return Chance(0.45) ? kFloat32 : kTypes[Int(0, std::size(kTypes) - 1)];
}
DType RandomTensors::FloatType() {
  constexpr DType kTypes[] = {kFloat16, kBFloat16, kFloat64, kFloat8E4M3};
  return Chance(0.75) ? kFloat32 : kTypes[Int(0, 3)];
}
DType RandomTensors::IntType() {
  constexpr DType kTypes[] = {kInt8, kInt16, kInt64, kUInt8, kUInt16, kUInt32, kUInt64};
  return Chance(0.5) ? kInt32 : kTypes[Int(0, 6)];
}

int64_t RandomTensors::Size() {
  return Chance(0.1) ? Int(1, 6) : sizes_[Int(0, static_cast<int64_t>(sizes_.size()) - 1)];
}

std::vector<int64_t> RandomTensors::RandomShape(int max_rank) {
  std::vector<int64_t> shape;
  int64_t n = 1;
  for (int64_t rank = Chance(0.05) ? 0 : Int(1, max_rank); rank > 0; --rank) {
    int64_t d = Chance(0.1) ? 1 : Size();
    if (n * d > max_elements_) d = Int(1, 2);
    n *= d;
    shape.push_back(d);
  }
  std::shuffle(shape.begin(), shape.end(), rng_);
  return shape;
}

double RandomTensors::FloatValue() {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double kSpecials[] = {0.0,
                                  -0.0,
                                  std::numeric_limits<double>::quiet_NaN(),
                                  inf,
                                  -inf,
                                  1e-40,
                                  -1e-45,
                                  3.4028234663852886e38,
                                  -65504,
                                  448,
                                  1e-8,
                                  5e-324,
                                  1.7976931348623157e308,
                                  0x1p-126,
                                  0x1p-14,
                                  2147483648.0,
                                  -1e10};
  const double special = style_ == kSpecial ? 0.4 : style_ == kSmooth ? 0.004 : 0.0;
  if (Chance(special)) return kSpecials[Int(0, std::size(kSpecials) - 1)];
  if (style_ == kSmooth) {
    return std::normal_distribution<double>(0, 1)(rng_) * (Chance(0.05) ? 100 : 1);
  }
  if (Chance(0.06)) return -0.0;
  return static_cast<double>(Int(-16, 16)) / (Chance(0.5) ? 1 : 4);
}

int64_t RandomTensors::IntValue(DType t) {
  if (t.IsBool()) return Int(0, 1);
  if (style_ == kSpecial && Chance(0.3)) {
    const int64_t low = MinInt(t), high = MaxInt(t);
    const int64_t specials[] = {low, high, low + 1, high - 1, high / 2, 31, 63, 64, -1};
    return specials[Int(0, 8)];
  }
  return Int(Chance(0.3) ? -20 : 0, 9);
}

Tensor RandomTensors::LeafOf(DType t, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<uint8_t> bytes(n * t.bytes());
  for (int64_t i = 0; i < n; ++i) {
    const tessera::Scalar v = t.IsFloat() ? Convert(Scalar::Float(FloatValue()), kFloat64, t)
                                          : Convert(Scalar::Int(IntValue(t)), kInt64, t);
    StoreScalar(&bytes[i * t.bytes()], t, v);
  }
  return Tensor::FromBytes(bytes.data(), shape, t);
}

Tensor RandomTensors::Leaf() {
  const std::vector<int64_t> shape = RandomShape(Chance(0.15) ? 5 : 3);
  if (Chance(0.9)) return LeafOf(AnyType(), shape);
  if (Chance(0.2)) return Counter();
  switch (Int(0, 4)) {
    case 0: {
      const DType t = AnyType();
      if (t.IsFloat()) return Tensor::Full(shape, FloatValue(), t);
      return Tensor::Full(shape, t.IsBool() ? Number(Chance(0.5)) : Number(Int(0, 9)), t);
    }
    case 1:
      return Tensor::Arange(Size(), Chance(0.5) ? IntType() : FloatType());
    case 2:
      return Tensor::Rand(shape, FloatType());
    case 3:
      return Tensor::RandInt(0, 9, shape, IntType());
    default:
      return Tensor::Eye(Size(), Size(), AnyType());
  }
}

Axes RandomTensors::SomeAxes(int rank) {
  Ints axes;
  for (int i = 0; i < rank; ++i) {
    if (Chance(0.45)) axes.push_back(i);
  }
  if (axes.empty() && rank > 0 && Chance(0.8)) axes.push_back(Int(0, rank - 1));
  std::shuffle(axes.begin(), axes.end(), rng_);
  return Axes(axes);
}

Tensor RandomTensors::Unary(const Tensor& a) {
  const bool smooth = style_ == kSmooth ? Chance(0.6) : Chance(0.15);
  if (smooth && a.dtype().IsFloat()) {
    switch (Int(0, 25)) {
      case 0:
        return a.Exp();
      case 1:
        return a.Exp2();
      case 2:
        return a.Expm1();
      case 3:
        return a.Log();
      case 4:
        return a.Log2();
      case 5:
        return a.Log1p();
      case 6:
        return a.Sin();
      case 7:
        return a.Cos();
      case 8:
        return a.Tan();
      case 9:
        return a.Asin();
      case 10:
        return a.Acos();
      case 11:
        return a.Atan();
      case 12:
        return a.Sinh();
      case 13:
        return a.Cosh();
      case 14:
        return a.Tanh();
      case 15:
        return a.Erf();
      case 16:
        return a.Sigmoid();
      case 17:
        return a.Gelu();
      case 18:
        return a.Silu();
      case 19:
        return a.Softplus();
      case 20:
        return a.Log10();
      case 21:
        return a.Rsqrt();
      case 22:
        return a.Abs().Log();
      case 23:
        return a.Pow(1.5);
      case 24:
        return a.Erfc();
      default:
        return a.Tanh().Asin();
    }
  }
  switch (Int(0, 20)) {
    case 0:
      return a.Neg();
    case 1:
      return a.Abs();
    case 2:
      return a.Sign();
    case 3:
      return a.Square();
    case 4:
      return a.Reciprocal();
    case 5:
      return a.Sqrt();
    case 6:
      return a.Floor();
    case 7:
      return a.Ceil();
    case 8:
      return a.Trunc();
    case 9:
      return a.Round();
    case 10:
      return a.LogicalNot();
    case 11:
      return a.BitNot();
    case 12:
      return a.IsNan();
    case 13:
      return a.IsInf();
    case 14:
      return a.IsFinite();
    case 15:
      return a.NanToNum();
    case 16:
      return a.Relu();
    case 17:
      return a.Clip(-1, 2);
    case 18:
      return a.LeakyRelu(0.5);
    case 19:
      return a.Neg().Neg();
    default: {
      for (DType t : {kFloat32, kInt32, kUInt16, kFloat16, kInt8, kFloat64, kUInt64}) {
        if (t.bits() == a.dtype().bits() && !(t == a.dtype())) return a.Bitcast(t);
      }
      return a.Bitcast(a.dtype());
    }
  }
}

Tensor RandomTensors::Binary(const Tensor& a, const Tensor& b) {
  switch (Int(0, 31)) {
    case 0 ... 4:
      return a + b;
    case 5 ... 7:
      return a - b;
    case 8 ... 11:
      return a * b;
    case 12:
      return a / b;
    case 13:
      return a % b;
    case 14:
      return a.FloorDiv(b);
    case 15:
      return a.TruncDiv(b);
    case 16:
      return a.Fmod(b);
    case 17:
      return style_ == kSmooth || !a.dtype().IsFloat() ? a.Pow(b) : a * b;
    case 18 ... 19:
      return a.Maximum(b);
    case 20 ... 21:
      return a.Minimum(b);
    case 22:
      return a & b;
    case 23:
      return a | b;
    case 24:
      return a ^ b;
    case 25:
      return Chance(0.4) ? a << b : a >> b;
    case 26:
      return a == b;
    case 27:
      return a != b;
    case 28:
      return a < b;
    case 29:
      return a <= b;
    case 30:
      return a > b;
    default:
      return a.LogicalXor(b);
  }
}

Tensor RandomTensors::BinaryWithNumber(const Tensor& a) {
  // Numbers that rules look for, now and then.
  const Number n = a.dtype().IsFloat() && Chance(0.2)   ? Number(Chance(0.5) ? 0.0 : -0.0)
                   : a.dtype().IsFloat() && Chance(0.5) ? Number(FloatValue())
                   : Chance(0.2)                        ? Number(Int(0, 1))
                                 : Number(Int(a.dtype().IsUnsigned() ? 0 : -3, 8));
  if (a.dtype().IsInt() && Chance(0.4)) return IntegerRule(a);
  switch (Int(0, 9)) {
    case 0 ... 1:
      return a + n;
    case 2:
      return n - a;
    case 3 ... 4:
      return a * n;
    case 5:
      return a.dtype().IsFloat() ? a / n : a.FloorDiv(n);
    case 6:
      return a % n;
    case 7:
      return a.Maximum(n);
    case 8:
      return a < n;
    default:
      return a == n;
  }
}

Tensor RandomTensors::IntegerRule(const Tensor& a) {
  const int64_t n = Chance(0.8) ? Int(1, 9) : 16 * Int(1, 3),
                m = Int(a.dtype().IsUnsigned() ? 0 : -9, 20);
  switch (Int(0, 7)) {
    case 0:
      return (a * n + m).FloorDiv(n);
    case 1:
      return (a * n + m) % n;
    case 2:
      return (a + m) < a;
    case 3:
      return (a * n) >= a + m;
    case 4:
      return a.FloorDiv(n).FloorDiv(Int(1, 4));
    case 5:
      return (a % (n * 2)).FloorDiv(n);
    case 6:
      return Chance(0.5) ? a >> Int(0, 7) : a << Int(0, 7);
    default:
      return a.FloorDiv(n) * n + a % n;
  }
}

Tensor RandomTensors::Counter() {
  const int64_t m = Int(-9, 9);
  const Tensor count = Tensor::Arange(Size(), kInt32) * Int(1, 9) + m;
  const Tensor narrow = count.Cast(Chance(0.5) ? kInt8 : IntType());
  return Chance(0.7) ? BinaryWithNumber(narrow) : narrow;
}

Tensor RandomTensors::CastAround(const Tensor& a) {
  const DType through = a.dtype().IsInt() && Chance(0.6) ? IntType() : AnyType();
  const bool back = Chance(0.5);
  return a.Cast(through).Cast(back ? a.dtype() : AnyType());
}

Tensor RandomTensors::Moved(const Tensor& a) {
  if (a.rank() == 0) return a.Reshape({1, 1}).Expand({Int(1, 3), Size()});
  // One long axis of what a variable sizes: an index that is divided by it.
  if (!a.shape().is_static() && Chance(0.25)) return a.Flatten();
  const int axis = static_cast<int>(Int(0, a.rank() - 1));
  const int64_t n = a.size(axis);
  switch (Int(0, 17)) {
    case 0: {
      // Split an axis, or merge two, or both.
      for (int64_t d : {Int(2, 5), int64_t{2}, int64_t{3}}) {
        if (n > 0 && n % d == 0) return a.Unflatten(axis, {d, n / d});
      }
      return a.Flatten();
    }
    case 1:
      return a.Flatten(axis, static_cast<int>(Int(axis, a.rank() - 1)));
    case 2: {
      std::vector<int64_t> shape;
      int64_t rest = a.elements();
      for (int64_t d = 2; rest > 1 && d <= 40; ++d) {
        if (rest % d == 0 && Chance(0.6)) shape.push_back(d), rest /= d;
      }
      shape.push_back(rest);
      std::shuffle(shape.begin(), shape.end(), rng_);
      return a.Reshape(shape);
    }
    case 3 ... 4: {
      Ints order;
      for (int i = 0; i < a.rank(); ++i) order.push_back(i);
      std::shuffle(order.begin(), order.end(), rng_);
      return a.Permute(order);
    }
    case 5: {
      std::vector<int64_t> shape;
      for (int i = 0; i < a.rank(); ++i) {
        shape.push_back(a.shape()[i].is_int(1) ? Size() : a.size(i));
      }
      return a.Expand(shape);
    }
    case 6:
      return a.Unsqueeze(axis).RepeatInterleave(Int(1, 4), axis);
    case 7 ... 8: {
      Pairs pairs;
      for (int i = 0; i < a.rank(); ++i) {
        pairs.emplace_back(Chance(0.5) ? Int(0, 3) : 0, Chance(0.5) ? Int(0, 3) : 0);
      }
      return Chance(0.3) && !a.dtype().IsBool() ? a.Pad(pairs, Int(0, 2)) : a.Pad(pairs);
    }
    case 9 ... 10: {
      Pairs pairs;
      for (int i = 0; i < a.rank(); ++i) {
        const int64_t begin = Int(0, std::max<int64_t>(0, a.size(i) - 1));
        pairs.emplace_back(begin, Int(std::min(begin + 1, a.size(i)), a.size(i)));
      }
      return a.Shrink(pairs);
    }
    case 11:
      return a.SliceAxis(axis, {{}, {}, std::vector<int64_t>{2, 3, -1, -2}[Int(0, 3)]});
    case 12:
      return a.Flip(SomeAxes(a.rank()));
    case 13 ... 14: {
      const int64_t size = Int(1, std::clamp<int64_t>(n, 1, 4)), stride = Int(1, 3);
      const int64_t dilation = size > 1 && (n - 1) / (size - 1) > 1 && Chance(0.4) ? 2 : 1;
      return a.Window(axis, {size}, {stride}, {dilation});
    }
    case 15:
      return a.Roll(Int(-5, 5), axis);
    case 16:
      return a.Repeat(Ints(a.rank(), Int(1, 2)));
    default:
      return a.rank() >= 2 ? (Chance(0.5) ? a.Tril(Int(-2, 2)) : a.Triu(Int(-2, 2))) : a.T();
  }
}

Tensor RandomTensors::Reduced(const Tensor& a) {
  const Axes axes = SomeAxes(a.rank());
  const bool keep = Chance(0.4);
  const int axis = a.rank() == 0 ? 0 : static_cast<int>(Int(0, a.rank() - 1));
  switch (Int(0, style_ == kSmooth ? 18 : 12)) {
    case 0 ... 3:
      return a.Sum(axes, keep);
    case 4 ... 5:
      return a.Max(axes, keep);
    case 6:
      return a.Min(axes, keep);
    case 7:
      return a.Any(axes, keep);
    case 8:
      return a.All(axes, keep);
    case 9:
      return a.ArgMax(axis, keep);
    case 10:
      return a.ArgMin(axis, keep);
    case 11:
      return a.CumSum(axis);
    case 12:
      return a.Prod(axes, keep);
    case 13:
      return a.Mean(axes, keep);
    case 14:
      return a.Softmax(axis);
    case 15: {  // what is costly and wanted twice
      const Tensor x = Chance(0.3) ? Unary(a) : Chance(0.5) ? a.Tanh() : a.Sin();
      return Chance(0.5) ? x + x.Softmax(axis) : x.Softmax(axis) * x.Sum({axis}, /*keep=*/true);
    }
    case 16:
      return a.LogSumExp(axes, keep);
    case 17:
      return a.rank() > 0 ? a.LayerNorm() : a.Mean();
    default:
      return a.Var(axes, 0, keep);
  }
}

}  // namespace tessera
