// Reductions and what is composed of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Fail;
using internal::NormalAxes;
using internal::NormalAxis;
using internal::Show;

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
  return Tensor(CastTo(Reduced(op, wide, NormalAxes(axes, t.rank()), keepdim), result));
}

Tensor Extreme(Op op, const Tensor& t, const Axes& axes, bool keepdim) {
  return Tensor(Reduced(op, t.uop(), NormalAxes(axes, t.rank()), keepdim));
}

// The number of elements that a reduction over the axes combines, as a float.
Operand CountOf(const Tensor& t, const Axes& axes) {
  Extent n = 1;
  for (int64_t a : NormalAxes(axes, t.rank())) n = n * t.shape()[static_cast<int>(a)];
  if (n.is_int()) return static_cast<double>(n.value());
  return n;
}

// Narrow floats in f32, integers too: what means and norms are computed in.
Tensor Wide(const Tensor& t) {
  return t.Cast(t.dtype().IsFloat() ? AccumulateType(t.dtype()) : kFloat32);
}

DType FloatResult(DType t) { return t.IsFloat() ? t : kFloat32; }

}  // namespace

Tensor Tensor::Sum(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Sum", at);
  return Accumulated(Op::kAdd, *this, axes, keepdim);
}

Tensor Tensor::Prod(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Prod", at);
  return Accumulated(Op::kMul, *this, axes, keepdim);
}

Tensor Tensor::Mean(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Mean", at);
  const Tensor sum = Wide(*this).Sum(axes, keepdim);
  return (sum / CountOf(*this, axes)).Cast(FloatResult(dtype()));
}

Tensor Tensor::Max(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Max", at);
  return Extreme(Op::kMax, *this, axes, keepdim);
}

Tensor Tensor::Min(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Min", at);
  return Extreme(Op::kMin, *this, axes, keepdim);
}

Tensor Tensor::Any(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Any", at);
  return Extreme(Op::kOr, Cast(kBool), axes, keepdim);
}

Tensor Tensor::All(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("All", at);
  return Extreme(Op::kAnd, Cast(kBool), axes, keepdim);
}

Tensor Tensor::Var(const Axes& axes, int correction, bool keepdim, CallSite at) const {
  Call call("Var", at);
  const Tensor x = Wide(*this);
  const Tensor squares = (x - x.Mean(axes, /*keepdim=*/true)).Square().Sum(axes, keepdim);
  const Operand n = CountOf(x, axes);
  const Tensor variance = n.extent()
                              ? squares / (FromExtent(Extent(n.extent()), x.dtype()) - correction)
                              : squares / std::max(0.0, n.number().AsDouble() - correction);
  return variance.Cast(FloatResult(dtype()));
}

Tensor Tensor::Std(const Axes& axes, int correction, bool keepdim, CallSite at) const {
  Call call("Std", at);
  return Wide(*this).Var(axes, correction, keepdim).Sqrt().Cast(FloatResult(dtype()));
}

// The largest element is subtracted first, unless it is infinite.
Tensor Tensor::LogSumExp(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("LogSumExp", at);
  const Tensor x = Wide(*this);
  const Tensor max = x.Max(axes, /*keepdim=*/true);
  const Tensor shift = Where(max.IsInf(), 0, max);
  const Tensor sum = (x - shift).Exp().Sum(axes, /*keepdim=*/true).Log() + shift;
  const Tensor result = keepdim || rank() == 0 ? sum : sum.Squeeze(NormalAxes(axes, rank()));
  return result.Cast(FloatResult(dtype()));
}

Tensor Tensor::Softmax(int axis, CallSite at) const {
  Call call("Softmax", at);
  const int a = rank() == 0 ? 0 : NormalAxis(axis, rank());
  const Axes over = rank() == 0 ? Axes() : Axes(a);
  const Tensor x = Wide(*this);
  const Tensor e = (x - x.Max(over, /*keepdim=*/true)).Exp();
  return (e * e.Sum(over, /*keepdim=*/true).Reciprocal()).Cast(FloatResult(dtype()));
}

Tensor Tensor::LogSoftmax(int axis, CallSite at) const {
  Call call("LogSoftmax", at);
  const int a = rank() == 0 ? 0 : NormalAxis(axis, rank());
  const Axes over = rank() == 0 ? Axes() : Axes(a);
  const Tensor x = Wide(*this);
  const Tensor y = x - x.Max(over, /*keepdim=*/true);
  return (y - y.Exp().Sum(over, /*keepdim=*/true).Log()).Cast(FloatResult(dtype()));
}

namespace {

// The least position among those that hold the extreme. Where there is a NaN it is the extreme, and
// the only elements that differ from themselves are NaNs.
Tensor ArgExtreme(Op op, const Tensor& t, std::optional<int> axis, bool keepdim) {
  if (!axis) {
    const Tensor flat = ArgExtreme(op, t.Flatten(), 0, false);
    return keepdim ? flat.Reshape(std::vector<int64_t>(t.rank(), 1)) : flat;
  }
  if (t.rank() == 0) return Tensor::Scalar(0, kInt32);
  const int a = NormalAxis(*axis, t.rank());
  const Extent n = t.shape()[a];
  const DType index = n.max() > INT32_MAX ? kInt64 : kInt32;
  Tensor found = t == Extreme(op, t, a, /*keepdim=*/true);
  if (t.dtype().IsFloat()) found = found | t.IsNan();
  Extents dims(t.rank() - a, 1);
  dims[0] = n;
  const Tensor position = Tensor::Arange(n, index).Reshape(dims);
  return Where(found, position, MaxInt(index)).Min(a, keepdim).Cast(kInt32);
}

}  // namespace

Tensor Tensor::ArgMax(std::optional<int> axis, bool keepdim, CallSite at) const {
  Call call("ArgMax", at);
  return ArgExtreme(Op::kMax, *this, axis, keepdim);
}

Tensor Tensor::ArgMin(std::optional<int> axis, bool keepdim, CallSite at) const {
  Call call("ArgMin", at);
  return ArgExtreme(Op::kMin, *this, axis, keepdim);
}

namespace {

// Running sums along the last axis, of type AccumulateType already. Each is the sum of a window
// over zeros and what comes before; a long axis is cut into blocks, which add what all earlier
// blocks sum to. The depth of the recursion is the logarithm of the extent.
Tensor RunningSums(const Tensor& x) {
  constexpr int64_t kBlock = 256;
  const int last = x.rank() - 1;
  const int64_t n = x.size(last);
  const auto padded = [&](const Tensor& t, int64_t before, int64_t after) {
    Pairs pairs(t.rank(), {0, 0});
    pairs.back() = {before, after};
    return t.Pad(pairs);
  };
  if (n <= 2 * kBlock) {
    if (n <= 1) return x;
    return padded(x, n - 1, 0).Window(last, {n}).Sum(-1);
  }
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const Tensor parts = padded(x, 0, blocks * kBlock - n).Unflatten(last, {blocks, kBlock});
  const Tensor within = RunningSums(parts);
  const Tensor totals = within.Select(-1, kBlock - 1);
  const Tensor before = padded(RunningSums(totals).SliceAxis(last, {0, blocks - 1}), 1, 0);
  return (within + before.Unsqueeze(-1)).Flatten(last).SliceAxis(last, {0, n});
}

}  // namespace

Tensor Tensor::CumSum(int axis, CallSite at) const {
  Call call("CumSum", at);
  const DType result = SumType(dtype());
  const int a = NormalAxis(axis, rank());
  const Tensor x = Cast(AccumulateType(result)).Transpose(a, -1);
  const Tensor sums = RunningSums(x).Transpose(a, -1);
  return Tensor(CastTo(sums.uop(), result));
}

}  // namespace tessera
