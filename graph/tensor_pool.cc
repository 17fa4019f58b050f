// Pools: reductions of windows.
#include <algorithm>
#include <cmath>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_windows.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;
using internal::Windowing;

namespace {

// With the padding that was asked for, and not what ceil_mode needs.
Windowing Asked(const Tensor& x, const PoolOptions& o) {
  const Ints size = internal::PerAxis("size", o.size, std::max(1, x.rank() - 2), 2, 1);
  return internal::NormalWindowing(x, size, o.stride.empty() ? size : o.stride, o.padding,
                                   o.dilation, o.ceil_mode);
}

}  // namespace

Windowing internal::PoolWindowing(const Tensor& x, const PoolOptions& o) {
  Windowing w = Asked(x, o);
  if (!o.ceil_mode) return w;
  for (int i = 0; i < w.axes(); ++i) {
    if (!x.shape()[2 + i].is_int()) {
      Fail("the last window over axis ", 2 + i, " of ", Show(x),
           " with ceil_mode depends on its extent; pad it, without ceil_mode");
    }
    const int64_t n = x.size(2 + i), reach = w.dilation[i] * (w.size[i] - 1) + 1;
    const int64_t slack = w.before[i] + n + w.after[i] - reach;
    int64_t positions = (slack + w.stride[i] - 1) / w.stride[i] + 1;
    if ((positions - 1) * w.stride[i] >= w.before[i] + n) --positions;
    const int64_t needed = (positions - 1) * w.stride[i] + reach - w.before[i] - n;
    w.after[i] = std::max<int64_t>(0, needed);
  }
  return w;
}

namespace {

Number Lowest(DType type) {
  const tessera::Scalar lowest = LowestScalar(type);
  if (type.IsFloat()) return lowest.AsFloat();
  if (type.IsBool()) return false;
  return lowest.AsInt();
}

Ints WindowAxes(const Windowing& w) {
  Ints axes;
  for (int i = 0; i < w.axes(); ++i) axes.push_back(2 + w.axes() + i);
  return axes;
}

Tensor MaxOf(const Tensor& x, const PoolOptions& o) {
  const Windowing w = internal::PoolWindowing(x, o);
  return internal::WindowsOf(x, w, Lowest(x.dtype())).Max(WindowAxes(w));
}

// How many elements each window has: a product of what it has along each axis.
Tensor Counts(const Tensor& x, const PoolOptions& o, const Windowing& w, DType type) {
  const Windowing asked = Asked(x, o);
  Tensor count;
  for (int i = 0; i < w.axes(); ++i) {
    const Extent& n = x.shape()[2 + i];
    const bool all = o.count_padding;  // what was asked for, and not what ceil_mode adds
    const int64_t before = all ? 0 : w.before[i];
    const int64_t padding = all ? w.before[i] + std::min(asked.after[i], w.after[i]) : 0;
    const int64_t after = w.before[i] + w.after[i] - before - padding;
    const Tensor ones = Tensor::Ones({n + Extent(padding)}, type).Pad({{before, after}});
    const Tensor windows = ones.Window(0, {w.size[i]}, {w.stride[i]}, {w.dilation[i]});
    Extents dims(w.axes(), 1);
    dims[i] = windows.shape()[0];
    const Tensor along = windows.Sum(1).Reshape(dims);
    count = count ? count * along : along;
  }
  return count;
}

Tensor AverageOf(const Tensor& t, const PoolOptions& o) {
  const Tensor x = WideFloat(t);
  const Windowing w = internal::PoolWindowing(x, o);
  const Tensor sum = internal::WindowsOf(x, w, 0).Sum(WindowAxes(w));
  if (o.divisor) {
    if (*o.divisor == 0) Fail("cannot divide by the divisor 0");
    return (sum / *o.divisor).Cast(FloatResult(t.dtype()));
  }
  if (o.count_padding && !o.ceil_mode) {
    int64_t elements = 1;
    for (int64_t n : w.size) elements *= n;
    return (sum / elements).Cast(FloatResult(t.dtype()));
  }
  return (sum / Counts(x, o, w, x.dtype())).Cast(FloatResult(t.dtype()));
}

void CheckImages(const Tensor& x) {
  if (x.rank() != 4) Fail("takes images [N, C, H, W], not ", Show(x));
}

}  // namespace

Tensor Tensor::MaxPool(const PoolOptions& o, CallSite at) const {
  Call call("MaxPool", at, *this);
  return MaxOf(*this, o);
}
Tensor Tensor::AvgPool(const PoolOptions& o, CallSite at) const {
  Call call("AvgPool", at, *this);
  return AverageOf(*this, o);
}
Tensor Tensor::MaxPool2d(const PoolOptions& o, CallSite at) const {
  Call call("MaxPool2d", at, *this);
  CheckImages(*this);
  return MaxOf(*this, o);
}
Tensor Tensor::AvgPool2d(const PoolOptions& o, CallSite at) const {
  Call call("AvgPool2d", at, *this);
  CheckImages(*this);
  return AverageOf(*this, o);
}

Tensor Tensor::LpPool(double p, const PoolOptions& o, CallSite at) const {
  Call call("LpPool", at, *this);
  if (!(p > 0) || std::isinf(p)) Fail("takes a finite p above 0, not ", p);
  const Tensor x = WideFloat(*this);
  const Windowing w = internal::PoolWindowing(x, o);
  const Tensor sum = internal::WindowsOf(internal::PowersOf(x, p), w, 0).Sum(WindowAxes(w));
  return internal::RootOf(sum, p).Cast(FloatResult(dtype()));
}

// The positions go through windows of their own, which have -1 where the padding is.
ValuesAndIndices Tensor::MaxPoolWithIndices(const PoolOptions& o, CallSite at) const {
  Call call("MaxPoolWithIndices", at, *this);
  const Windowing w = internal::PoolWindowing(*this, o);
  const Ints axes = WindowAxes(w);
  const Tensor windows = internal::WindowsOf(*this, w, Lowest(dtype()));
  const Tensor values = windows.Max(axes, /*keepdim=*/true);
  Extents spatial(shape().begin(), shape().end());
  spatial[0] = spatial[1] = 1;
  const Tensor count = Arange(Shape(spatial).Elements(), kInt64).Reshape(spatial);
  const Tensor position = internal::WindowsOf(count, w, -1);
  Tensor found = windows == values;
  if (dtype().IsFloat()) found = found | windows.IsNan();
  const Tensor first = Where(found & (position >= 0), position, MaxInt(kInt64)).Min(axes);
  return {values.Squeeze(axes), first};
}

Tensor Tensor::MaxUnpool(const Tensor& indices, const Ints& extents, CallSite at) const {
  Call call("MaxUnpool", at, *this, indices);
  if (rank() < 3 || !(indices.shape() == shape()) ||
      static_cast<int>(extents.size()) != rank() - 2) {
    Fail(
        "takes [N, C, D1, ...], indices of the same shape, and an extent for each axis after C, "
        "not ",
        Show(*this), " and ", Show(indices), " to ", extents.size(), " extents");
  }
  int64_t elements = 1;
  Extents dims = {shape()[0], shape()[1]};
  for (int64_t n : extents) {
    if (n < 0) Fail("an extent cannot be ", n);
    elements *= n;
    dims.push_back(n);
  }
  const Tensor zeros = Zeros({shape()[0], shape()[1], elements}, dtype());
  return zeros.Scatter(2, indices.Flatten(2), Flatten(2)).Reshape(dims);
}

// ---- pools of given results

// Window i covers elements floor(i size / n) to ceil((i + 1) size / n).
internal::EvenWindows::EvenWindows(const Tensor& x, int axis, int64_t n) {
  const Tensor size = Tensor::FromExtent(x.shape()[axis], kInt64);
  const int rank = x.rank() + 1;
  const Tensor i = CountAlong(axis, rank, n, kInt64);
  const Tensor begin = (i * size).FloorDiv(n), end = ((i + 1) * size + (n - 1)).FloorDiv(n);
  const Tensor element = CountAlong(axis + 1, rank, x.shape()[axis], kInt64);
  inside = (element >= begin) & (element < end);
  count = (end - begin).Squeeze(axis + 1);
}

void internal::CheckExtents(const Tensor& x, const Ints& extents) {
  const int axes = static_cast<int>(extents.size());
  if (axes == 0 || x.rank() < axes + 1) {
    Fail("takes an extent for each of the last axes, fewer than those of ", Show(x));
  }
  for (int i = 0; i < axes; ++i) {
    const int axis = x.rank() - axes + i;
    if (extents[i] < 0 || (extents[i] > 0 && x.shape()[axis].min() == 0)) {
      Fail("cannot make ", extents[i], " positions of axis ", axis, " of ", Show(x));
    }
  }
}

namespace {

Tensor Adapted(const Tensor& x, int axis, int64_t n, bool max) {
  const Extent& extent = x.shape()[axis];
  if (extent.is_int(n)) return x;
  if (extent.is_int() && extent.value() % n == 0) {
    const Tensor split = x.Unflatten(axis, {n, extent.value() / n});
    return max ? split.Max(axis + 1) : split.Mean(axis + 1);
  }
  const internal::EvenWindows windows(x, axis, n);
  const Tensor wide = x.Unsqueeze(axis);
  if (max) {
    const Tensor lowest(UOp::Const(x.dtype(), LowestScalar(x.dtype())));
    return Where(windows.inside, wide, lowest).Max(axis + 1);
  }
  return Where(windows.inside, wide, 0).Sum(axis + 1) / windows.count.Cast(x.dtype());
}

Tensor AdaptedTo(const Tensor& t, const Ints& extents, bool max) {
  internal::CheckExtents(t, extents);
  const int axes = static_cast<int>(extents.size());
  Tensor x = t;
  for (int i = 0; i < axes; ++i) {
    const int axis = t.rank() - axes + i;
    x = extents[i] == 0 ? x.SliceAxis(axis, {0, 0}) : Adapted(x, axis, extents[i], max);
  }
  return x;
}

Axes Spatial(const Tensor& t) {
  if (t.rank() < 3) Fail("takes [N, C, D1, ...], not ", Show(t));
  Ints axes;
  for (int i = 2; i < t.rank(); ++i) axes.push_back(i);
  return Axes(axes);
}

}  // namespace

Tensor Tensor::AdaptiveAvgPool(const Ints& extents, CallSite at) const {
  Call call("AdaptiveAvgPool", at, *this);
  return AdaptedTo(WideFloat(*this), extents, /*max=*/false).Cast(FloatResult(dtype()));
}
Tensor Tensor::AdaptiveMaxPool(const Ints& extents, CallSite at) const {
  Call call("AdaptiveMaxPool", at, *this);
  return AdaptedTo(*this, extents, /*max=*/true);
}
Tensor Tensor::GlobalAvgPool(CallSite at) const {
  Call call("GlobalAvgPool", at, *this);
  return Mean(Spatial(*this), /*keepdim=*/true);
}
Tensor Tensor::GlobalMaxPool(CallSite at) const {
  Call call("GlobalMaxPool", at, *this);
  return Max(Spatial(*this), /*keepdim=*/true);
}

}  // namespace tessera
