// Statistics: extremes with their positions, weighted means, what leaves out NaNs, areas and
// slopes, intervals, and covariances.
#include <cmath>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::NormalAxis;
using internal::Show;
using internal::WideFloat;

ValuesAndIndices Tensor::MaxWithIndices(int axis, bool keepdim, CallSite at) const {
  Call call("MaxWithIndices", at, *this);
  return {Max(axis, keepdim), ArgMax(axis, keepdim)};
}

ValuesAndIndices Tensor::MinWithIndices(int axis, bool keepdim, CallSite at) const {
  Call call("MinWithIndices", at, *this);
  return {Min(axis, keepdim), ArgMin(axis, keepdim)};
}

Tensor Tensor::Ptp(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Ptp", at, *this);
  return Max(axes, keepdim) - Min(axes, keepdim);
}

Tensor Tensor::Dist(const Tensor& b, double p, CallSite at) const {
  Call call("Dist", at, *this, b);
  return (*this - b).Norm(p);
}

Tensor Tensor::Average(const Tensor& weights, const Axes& axes, bool keepdim, CallSite at) const {
  Call call("Average", at, *this, weights);
  Tensor w = weights;
  const Ints reduced = internal::AxesAlong(axes, rank());
  if (w.rank() == 1 && rank() > 1 && reduced.size() == 1) {
    Extents dims(rank(), 1);
    dims[reduced[0]] = w.shape()[0];
    w = w.Reshape(dims);
  }
  const DType type = FloatResult(Promote(dtype(), weights.dtype()));
  const Tensor x = WideFloat(Cast(type));
  w = w.Cast(x.dtype()).Expand(shape());
  return ((x * w).Sum(axes, keepdim) / w.Sum(axes, keepdim)).Cast(type);
}

namespace {

// The first position of the extreme, which is no NaN; where there is none, -1.
Tensor PositionOf(const Tensor& x, const Tensor& extreme, std::optional<int> axis, bool keepdim) {
  const Tensor found = x == extreme;
  const Tensor any = axis ? found.Any(*axis, keepdim) : found.Any({}, keepdim);
  return Where(any, found.Cast(kUInt8).ArgMax(axis, keepdim), -1);
}

Axes AxesOf(std::optional<int> axis) { return axis ? Axes(*axis) : Axes(); }

}  // namespace

Tensor Tensor::NanArgMax(std::optional<int> axis, bool keepdim, CallSite at) const {
  Call call("NanArgMax", at, *this);
  if (!dtype().IsFloat()) return ArgMax(axis, keepdim);
  return PositionOf(*this, NanMax(AxesOf(axis), /*keepdim=*/true), axis, keepdim);
}

Tensor Tensor::NanArgMin(std::optional<int> axis, bool keepdim, CallSite at) const {
  Call call("NanArgMin", at, *this);
  if (!dtype().IsFloat()) return ArgMin(axis, keepdim);
  return PositionOf(*this, NanMin(AxesOf(axis), /*keepdim=*/true), axis, keepdim);
}

Tensor Tensor::NanProd(const Axes& axes, bool keepdim, CallSite at) const {
  Call call("NanProd", at, *this);
  return dtype().IsFloat() ? Where(IsNan(), 1, *this).Prod(axes, keepdim) : Prod(axes, keepdim);
}

Tensor Tensor::NanVar(const Axes& axes, int correction, bool keepdim, CallSite at) const {
  Call call("NanVar", at, *this);
  if (!dtype().IsFloat()) return Var(axes, correction, keepdim);
  const Tensor x = WideFloat(*this), nan = IsNan();
  const Tensor count = nan.LogicalNot().Cast(x.dtype()).Sum(axes, keepdim);
  const Tensor apart = Where(nan, 0, x - x.NanMean(axes, /*keepdim=*/true));
  return (apart.Square().Sum(axes, keepdim) / (count - correction).Maximum(0)).Cast(dtype());
}

Tensor Tensor::NanStd(const Axes& axes, int correction, bool keepdim, CallSite at) const {
  Call call("NanStd", at, *this);
  return NanVar(axes, correction, keepdim).Sqrt();
}

// NaNs are above all in order, so that the others' middle follows from how many there are.
ValuesAndIndices Tensor::NanMedian(int axis, bool keepdim, CallSite at) const {
  Call call("NanMedian", at, *this);
  if (rank() == 0) return Median(axis);
  const int a = NormalAxis(axis, rank());
  if (!dtype().IsFloat()) return Median(a, keepdim);
  if (shape()[a].max() == 0) Fail("of nothing, axis ", a, " of ", Show(*this));
  const Tensor order = ArgSort(a);
  const Tensor count = IsNan().LogicalNot().Cast(kInt32).Sum(a, /*keepdim=*/true);
  const Tensor middle = ((count - 1) / 2.0).Floor().Maximum(0).Cast(kInt32);
  const Tensor index = order.Gather(a, middle), value = Gather(a, index);
  if (keepdim) return {value, index};
  return {value.Squeeze(a), index.Squeeze(a)};
}

namespace {

// Between neighbours along an axis.
Tensor Areas(const Tensor& t, double dx, int axis) {
  const Tensor x = WideFloat(t);
  if (x.shape()[axis].is_int(0)) return x;
  return (internal::AllButFirst(x, axis) + internal::AllButLast(x, axis)) * (dx / 2);
}

}  // namespace

Tensor Tensor::Trapezoid(double dx, int axis, CallSite at) const {
  Call call("Trapezoid", at, *this);
  const int a = NormalAxis(axis, rank());
  return Areas(*this, dx, a).Sum(a).Cast(FloatResult(dtype()));
}

Tensor Tensor::CumTrapezoid(double dx, int axis, CallSite at) const {
  Call call("CumTrapezoid", at, *this);
  const int a = NormalAxis(axis, rank());
  return Areas(*this, dx, a).CumSum(a).Cast(FloatResult(dtype()));
}

Tensor Tensor::Gradient(double dx, int axis, CallSite at) const {
  Call call("Gradient", at, *this);
  const int a = NormalAxis(axis, rank());
  const Extent n = shape()[a];
  if (n.min() < 2) Fail("takes at least two elements along axis ", a, " of ", Show(*this));
  const Tensor x = WideFloat(*this);
  const auto part = [&](const Extent& begin, const Extent& end) {
    return x.SliceAxis(a, {begin, end});
  };
  const Tensor first = part(1, 2) - part(0, 1);
  const Tensor last = part(n - Extent(1), n) - part(n - Extent(2), n - Extent(1));
  const Tensor inside = (part(2, n) - part(0, n - Extent(2))) / 2;
  return (Cat({first, inside, last}, a) / dx).Cast(FloatResult(dtype()));
}

Tensor Tensor::Histogram(int64_t bins, double low, double high, CallSite at) const {
  Call call("Histogram", at, *this);
  if (bins < 1 || !(low < high) || !std::isfinite(high - low)) {
    Fail("takes one interval or more between numbers in order, not ", bins, " from ", low, " to ",
         high);
  }
  const Tensor x = WideFloat(*this);
  const Tensor inside = (x >= low) & (x <= high);
  const Tensor share = Where(inside, (x - low) * (static_cast<double>(bins) / (high - low)), -1);
  return share.Floor().Cast(kInt32).Minimum(bins - 1).BinCount(bins);
}

Tensor Tensor::Bucketize(const Tensor& boundaries, bool right, CallSite at) const {
  Call call("Bucketize", at, *this, boundaries);
  if (boundaries.rank() != 1) Fail("the boundaries ", Show(boundaries), " must be a vector");
  return boundaries.SearchSorted(*this, right);
}

Tensor Tensor::IsIn(const Tensor& values, CallSite at) const {
  Call call("IsIn", at, *this, values);
  return (Unsqueeze(-1) == values.Flatten()).Any(-1);
}

Tensor Tensor::Interp(const Tensor& x, const Tensor& y, CallSite at) const {
  Call call("Interp", at, *this, x, y);
  if (x.rank() != 1 || !(x.shape() == y.shape()) || x.shape()[0].min() < 1) {
    Fail("takes vectors of points of one size, not ", Show(x), " and ", Show(y));
  }
  const DType type = FloatResult(Promote(Promote(dtype(), x.dtype()), y.dtype()));
  const DType wide = AccumulateType(type);
  const Tensor to = Cast(wide), xs = x.Cast(wide), ys = y.Cast(wide);
  const Tensor last = Tensor::FromExtent(x.shape()[0] - Extent(1));
  const Tensor right = xs.SearchSorted(to, /*right=*/true).Minimum(last);
  const Tensor left = (right - 1).Maximum(0);
  const Tensor x0 = xs.Take(left), y0 = ys.Take(left), dx = xs.Take(right) - x0;
  const Tensor y1 = ys.Take(right), slope = (y1 - y0) / Where(dx == 0, 1, dx);
  // Beyond the ends it is as at them; NaN stays NaN.
  const Tensor held = to.Maximum(xs.Take(Scalar(0))).Minimum(xs.Take(last));
  const Tensor between = y0 + slope * (held - x0);
  // At a point it is y there, however steep the line is that begins; of equal points the last.
  const Tensor at_point = Where((held == x0) & slope.IsFinite().LogicalNot(), y0, between);
  return Where((dx == 0) & (to >= x0), y1, at_point).Cast(type);
}

Tensor Tensor::Cov(int correction, CallSite at) const {
  Call call("Cov", at, *this);
  if (rank() > 2) Fail("takes [variables, samples] or [samples], not ", Show(*this));
  const Tensor x = WideFloat(rank() == 2 ? *this : Reshape({1, shape().Elements()}));
  const Tensor apart = x - x.Mean({1}, /*keepdim=*/true);
  const Tensor count = Tensor::FromExtent(x.shape()[1]).Cast(x.dtype());
  const Tensor out = apart.MatMul(apart.T()) / (count - correction).Maximum(0);
  return (rank() == 2 ? out : out.Reshape({})).Cast(FloatResult(dtype()));
}

Tensor Tensor::CorrCoef(CallSite at) const {
  Call call("CorrCoef", at, *this);
  const Tensor cov = WideFloat(*this).Cov();
  if (rank() < 2) return (cov / cov).Cast(FloatResult(dtype()));
  const Tensor deviation = cov.Diagonal().Sqrt();
  const Tensor ratio = cov / deviation.Unsqueeze(1) / deviation;
  return ratio.Clip(-1.0, 1.0).Cast(FloatResult(dtype()));
}

}  // namespace tessera
