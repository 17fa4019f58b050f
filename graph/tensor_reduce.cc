// Reductions and what is composed of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::AxesAlong;
using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;

namespace {

UOp Reduced(Op op, const UOp& u, const Ints& axes, bool keepdim) {
  if (axes.empty()) return u;
  const UOp r = Build(Op::kReduce, {u}, ReduceArg{op, axes});
  if (keepdim) return r;
  Extents dims;
  for (int i = 0; i < u.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) dims.push_back(u.shape()[i]);
  }
  return internal::ReshapeTo(r, dims);
}

// Sums and products: added up in the type of SumType or, for narrow floats, in f32.
Tensor Accumulated(Op op, const Tensor& t, const Axes& axes, bool keepdim) {
  const DType result = SumType(t.dtype());
  const UOp wide = CastTo(t.uop(), AccumulateType(result));
  return Tensor(CastTo(Reduced(op, wide, AxesAlong(axes, t.rank()), keepdim), result));
}

Tensor Extreme(Op op, const Tensor& t, const Axes& axes, bool keepdim) {
  if (t.dtype().IsBool() && (op == Op::kMax || op == Op::kMin)) {  // others' are refused below
    for (int64_t a : AxesAlong(axes, t.rank())) {
      if (t.shape()[static_cast<int>(a)].max() > 0) continue;
      Fail("axis ", a, " is empty, and ", Info(op).text, " of nothing has no value");
    }
  }
  return Tensor(Reduced(op, t.uop(), AxesAlong(axes, t.rank()), keepdim));
}

// The number of elements that a reduction over the axes combines, as a float.
Operand CountOf(const Tensor& t, const Axes& axes) {
  Extent n = 1;
  for (int64_t a : AxesAlong(axes, t.rank())) n = n * t.shape()[static_cast<int>(a)];
  if (n.is_int()) return static_cast<double>(n.value());
  return n;
}

}  // namespace

Tensor internal::WideFloat(const Tensor& t) {
  return t.Cast(t.dtype().IsFloat() ? AccumulateType(t.dtype()) : kFloat32);
}

DType internal::FloatResult(DType t) { return t.IsFloat() ? t : kFloat32; }

Tensor Tensor::Sum(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Sum", at, *this);
  return Accumulated(Op::kAdd, *this, axes, keepdim);
}

Tensor Tensor::Prod(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Prod", at, *this);
  return Accumulated(Op::kMul, *this, axes, keepdim);
}

Tensor Tensor::Mean(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Mean", at, *this);
  const Tensor sum = WideFloat(*this).Sum(axes, keepdim);
  return (sum / CountOf(*this, axes)).Cast(FloatResult(dtype()));
}

Tensor Tensor::Max(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Max", at, *this);
  return Extreme(Op::kMax, *this, axes, keepdim);
}

Tensor Tensor::Min(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Min", at, *this);
  return Extreme(Op::kMin, *this, axes, keepdim);
}

Tensor Tensor::Any(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Any", at, *this);
  return Extreme(Op::kOr, Cast(kBool), axes, keepdim);
}

Tensor Tensor::All(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("All", at, *this);
  return Extreme(Op::kAnd, Cast(kBool), axes, keepdim);
}

Tensor Tensor::Var(const Axes& axes, int correction, bool keepdim, CallSite at) const {
  Call call("Var", at, *this);
  const Tensor x = WideFloat(*this);
  const Tensor squares = (x - x.Mean(axes, /*keepdim=*/true)).Square().Sum(axes, keepdim);
  const Operand n = CountOf(x, axes);
  const Tensor variance =
      n.extent() ? squares / (FromExtent(Extent(n.extent()), x.dtype()) - correction).Maximum(0)
                 : squares / std::max(0.0, n.number().AsDouble() - correction);
  return variance.Cast(FloatResult(dtype()));
}

Tensor internal::RootOf(const Tensor& sum, double p) {
  const Tensor none = sum == 0, safe = Where(none, 1, sum);
  const double of_none = p < 0 ? std::numeric_limits<double>::infinity() : 0;
  return Where(none, of_none, p == 2 ? safe.Sqrt() : safe.Pow(1 / p));
}

Tensor internal::PowersOf(const Tensor& x, double p) {
  if (p == 2) return x.Square();
  if (p >= 1) return x.Abs().Pow(p);
  const Tensor none = x == 0;
  const double of_none = p < 0 ? std::numeric_limits<double>::infinity() : 0;
  return Where(none, of_none, Where(none, 1, x).Abs().Pow(p));
}

Tensor Tensor::Std(const Axes& axes, int correction, bool keepdim, CallSite at) const {
  Call call("Std", at, *this);
  const Tensor variance = WideFloat(*this).Var(axes, correction, keepdim);
  return internal::RootOf(variance, 2).Cast(FloatResult(dtype()));
}

std::pair<Tensor, Tensor> Tensor::VarMean(const Axes& axes, int correction, bool keepdim,
                                          CallSite at) const {
  Call call("VarMean", at, *this);
  return {Var(axes, correction, keepdim), Mean(axes, keepdim)};
}

Tensor Tensor::Norm(double p, const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Norm", at, *this);
  if (std::isnan(p)) Fail("takes a number or an infinity for p");
  const DType result = FloatResult(dtype());
  const Tensor given = WideFloat(*this), x = given.Abs();
  if (p == 0) return (x != 0).Cast(x.dtype()).Sum(axes, keepdim).Cast(result);
  if (std::isinf(p)) return (p > 0 ? x.Max(axes, keepdim) : x.Min(axes, keepdim)).Cast(result);
  if (p == 1) return x.Sum(axes, keepdim).Cast(result);
  return internal::RootOf(internal::PowersOf(given, p).Sum(axes, keepdim), p).Cast(result);
}

Tensor Tensor::CountNonzero(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("CountNonzero", at, *this);
  Extent most = 1;
  for (int64_t a : AxesAlong(axes, rank())) most = most * shape()[static_cast<int>(a)];
  return Cast(kBool).Cast(internal::IndexType(most)).Sum(axes, keepdim);
}

Tensor Tensor::NanSum(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("NanSum", at, *this);
  return dtype().IsFloat() ? Where(IsNan(), 0, *this).Sum(axes, keepdim) : Sum(axes, keepdim);
}

Tensor Tensor::NanMean(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("NanMean", at, *this);
  if (!dtype().IsFloat()) return Mean(axes, keepdim);
  const Tensor x = WideFloat(*this);
  const Tensor count = IsNan().LogicalNot().Cast(x.dtype()).Sum(axes, keepdim);
  return (x.NanSum(axes, keepdim) / count).Cast(dtype());
}

namespace {

// The extreme of what is no NaN; NaN where nothing else is.
Tensor NanExtreme(const Tensor& t, const Axes& axes, bool keepdim, bool max) {
  if (!t.dtype().IsFloat()) return max ? t.Max(axes, keepdim) : t.Min(axes, keepdim);
  const tessera::Scalar worst = max ? LowestScalar(t.dtype()) : HighestScalar(t.dtype());
  const Tensor masked = Where(t.IsNan(), Tensor(UOp::Const(t.dtype(), worst)), t);
  const Tensor most = max ? masked.Max(axes, keepdim) : masked.Min(axes, keepdim);
  return Where(t.IsNan().All(axes, keepdim), std::nan(""), most);
}

}  // namespace

Tensor Tensor::NanMax(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("NanMax", at, *this);
  return NanExtreme(*this, axes, keepdim, /*max=*/true);
}

Tensor Tensor::NanMin(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("NanMin", at, *this);
  return NanExtreme(*this, axes, keepdim, /*max=*/false);
}

namespace {
// Of nothing it is what the sum of nothing is the exponential of. A constant to derivatives: as
// what is made with it is the same whatever it is, theirs by it would be rounding errors alone, all
// of them at one element. (Of 137,216 numbers they were a 400th of the gradient's largest.)
Tensor MaxOrNone(const Tensor& x, const Axes& axes) {
  const Ints over = AxesAlong(axes, x.rank());
  const bool none = std::any_of(over.begin(), over.end(), [&](int64_t a) {
    return x.shape()[static_cast<int>(a)].is_int(0);
  });
  if (!none) return x.Max(axes, /*keepdim=*/true).Detach();
  return x.Sum(axes, /*keepdim=*/true) - std::numeric_limits<double>::infinity();
}
}  // namespace

// The largest element is subtracted first, unless it is infinite.
Tensor Tensor::LogSumExp(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("LogSumExp", at, *this);
  const Tensor x = WideFloat(*this);
  const Tensor max = MaxOrNone(x, axes);
  const Tensor shift = Where(max.IsInf(), 0, max);
  const Tensor sum = (x - shift).Exp().Sum(axes, /*keepdim=*/true).Log() + shift;
  const Tensor result = keepdim ? sum : sum.Squeeze(AxesAlong(axes, rank()));
  return result.Cast(FloatResult(dtype()));
}

Tensor Tensor::Softmax(int axis, CallSite at) const {
  Call call("Softmax", at, *this);
  const Tensor x = WideFloat(*this);
  const Tensor e = (x - MaxOrNone(x, axis)).Exp();
  return (e * e.Sum(axis, /*keepdim=*/true).Reciprocal()).Cast(FloatResult(dtype()));
}

Tensor Tensor::LogSoftmax(int axis, CallSite at) const {
  Call call("LogSoftmax", at, *this);
  const Tensor x = WideFloat(*this);
  const Tensor y = x - MaxOrNone(x, axis);
  return (y - y.Exp().Sum(axis, /*keepdim=*/true).Log()).Cast(FloatResult(dtype()));
}

namespace {

// The least position among those that hold the extreme. Where there is a NaN it is the extreme, and
// the only elements that differ from themselves are NaNs.
Tensor ArgExtreme(Op op, const Tensor& t, std::optional<int> axis, bool keepdim) {
  if (!axis) {
    const Tensor flat = ArgExtreme(op, t.Flatten(), 0, false);
    return keepdim ? flat.Reshape(std::vector<int64_t>(t.rank(), 1)) : flat;
  }
  const int a = internal::AxisAlong(*axis, t.rank());
  if (t.rank() == 0) return Tensor::Scalar(0, kInt32);
  const Extent n = t.shape()[a];
  const DType index = internal::IndexType(n);
  Tensor found = t == Extreme(op, t, a, /*keepdim=*/true);
  if (t.dtype().IsFloat()) found = found | t.IsNan();
  Extents dims(t.rank() - a, 1);
  dims[0] = n;
  const Tensor position = Tensor::Arange(n, index).Reshape(dims);
  const Tensor first = Where(found, position, MaxInt(index)).Min(a, keepdim);
  // Of an extent that turns out to be 0 there is none.
  return n.min() > 0 ? first : Where(Tensor::FromExtent(n, kInt64) == 0, -1, first);
}

}  // namespace

Tensor Tensor::ArgMax(std::optional<int> axis, bool keepdim, CallSite at) const {
  Call call("ArgMax", at, *this);
  return ArgExtreme(Op::kMax, *this, axis, keepdim);
}

Tensor Tensor::ArgMin(std::optional<int> axis, bool keepdim, CallSite at) const {
  Call call("ArgMin", at, *this);
  return ArgExtreme(Op::kMin, *this, axis, keepdim);
}

}  // namespace tessera
