// Tensors read between their elements: resized axes, grids of points.
//
// A point is a few taps, neighbours with weights. Positions are computed in f64 by counting, so
// they have no device, and the weights are rounded to the tensor's dtype.
#include <algorithm>
#include <cmath>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;

namespace {

// ---- weights of neighbours by distance

Tensor LinearWeight(const Tensor& distance) { return (1 - distance.Abs()).Maximum(0); }

Tensor CubicWeight(const Tensor& distance, double a) {
  const Tensor d = distance.Abs();
  const Tensor near = ((d * (a + 2) - (a + 3)) * d) * d + 1;
  const Tensor far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a;
  return Where(d <= 1, near, Where(d < 2, far, 0));
}

// ---- resized axes

// An extent as a number to compute with.
Tensor AsFloat(const Extent& n, DType type = kFloat64) {
  if (n.is_int()) return Tensor::Scalar(static_cast<double>(n.value()), type);
  return Tensor::FromExtent(n, kInt64).Cast(type);
}

// Results over the source, along the index-th of the resized axes.
Tensor ScaleOf(const Extent& in, int64_t out, int index, const ResizeOptions& o) {
  if (!o.scale.empty()) return Tensor::Scalar(o.scale[index], kFloat64);
  return static_cast<double>(out) / AsFloat(in);
}

// The point of the source, along an axis of `in`, for each of `out` positions.
Tensor SourcePoints(const Extent& in, int64_t out, int index, const ResizeOptions& o) {
  const Tensor n = AsFloat(in), scale = ScaleOf(in, out, index, o);
  const Tensor i = Tensor::Arange(out, kFloat64);
  // Rounded once: of 56 elements as 72 the ninth result's is the seventh, and not just before it.
  const auto of_source = [&](const Tensor& at) {
    return o.scale.empty() ? at * n / static_cast<double>(out) : at / scale;
  };
  if (!o.region.empty()) {
    const auto [begin, end] = o.region[index];
    if (out == 1) return i * 0 + (begin + end) * (n - 1) / 2;
    return i * ((end - begin) * (n - 1) / static_cast<double>(out - 1)) + begin * (n - 1);
  }
  switch (o.coordinates) {
    case ResizeCoordinates::kAlignCorners: {
      const Tensor length = scale * n;
      if (out == 1) return i * 0;
      return Where(length == 1, 0, i * (n - 1) / Where(length == 1, 1, length - 1));
    }
    case ResizeCoordinates::kAsymmetric:
      return of_source(i);
    case ResizeCoordinates::kPytorchHalfPixel:
      if (out == 1) return i * 0;
      break;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      const Tensor share = static_cast<double>(out) / (scale * n);
      return of_source(i + 0.5) - 0.5 + n / 2 * (1 - share);
    }
    case ResizeCoordinates::kHalfPixel:
      break;
  }
  return of_source(i + 0.5) - 0.5;
}

Tensor Nearest(const Tensor& point, ResizeRounding rounding) {
  switch (rounding) {
    case ResizeRounding::kRoundPreferFloor:
      return (point - 0.5).Ceil();
    case ResizeRounding::kRoundPreferCeil:
      return (point + 0.5).Floor();
    case ResizeRounding::kFloor:
      return point.Floor();
    case ResizeRounding::kCeil:
      break;
  }
  return point.Ceil();
}

// Whether the nearest elements are all of the source, each as often as the others.
bool RepeatsAlike(int64_t in, int64_t out, double scale, const ResizeOptions& o) {
  if (in == 0 || out % in != 0 || scale != static_cast<double>(out / in) || !o.region.empty()) {
    return false;
  }
  const bool rounds = o.rounding == ResizeRounding::kRoundPreferFloor ||
                      o.rounding == ResizeRounding::kRoundPreferCeil;
  if (o.coordinates == ResizeCoordinates::kAsymmetric) return o.rounding == ResizeRounding::kFloor;
  return rounds && o.coordinates != ResizeCoordinates::kAlignCorners;
}

Tensor Resized(const Tensor& x, int axis, int64_t out, int index, const ResizeOptions& o) {
  const Extent& in = x.shape()[axis];
  // The least scale decides how far taps may reach.
  const double scale =
      o.scale.empty() ? static_cast<double>(out) / static_cast<double>(in.max()) : o.scale[index];
  if (in.is_int(out) && scale == 1 && o.region.empty()) return x;
  if (o.mode == ResizeMode::kNearest && in.is_int() && RepeatsAlike(in.value(), out, scale, o)) {
    return x.RepeatInterleave(out / in.value(), axis);
  }
  const Tensor point = SourcePoints(in, out, index, o);
  const Tensor last = AsFloat(in) - 1;
  // Tables, not found anew for each row of what is resized.
  const auto position = [&](const Tensor& p) {
    return p.Maximum(0).Minimum(last).Cast(internal::IndexType(in)).Contiguous();
  };
  Tensor y;
  if (o.mode == ResizeMode::kNearest) {
    y = x.Take(position(Nearest(point, o.rounding)), axis);
  } else {
    // Taps reach as far as the kernel does, which a smaller result makes wider.
    const double shrink = o.antialias ? std::min(1.0, scale) : 1;
    const double reach = o.mode == ResizeMode::kLinear ? 1 : 2;
    const auto first = static_cast<int64_t>(std::floor(-reach / shrink)) + 1;
    const Tensor base = point.Floor().Unsqueeze(1);
    const Tensor tap = base + Tensor::Arange(first, 2 - first).Cast(kFloat64);
    const Tensor apart = tap - point.Unsqueeze(1);
    const Tensor distance = in.is_int() || !o.antialias
                                ? apart * shrink
                                : apart * ScaleOf(in, out, index, o).Minimum(1.0);
    Tensor weight =
        o.mode == ResizeMode::kLinear ? LinearWeight(distance) : CubicWeight(distance, o.cubic);
    if (o.exclude_outside) weight = Where((tap >= 0) & (tap <= last), weight, 0);
    if (o.exclude_outside || o.antialias) weight = weight / weight.Sum(1, /*keepdim=*/true);
    Extents dims(x.rank() - axis + 1, 1);
    dims[0] = out;
    dims[1] = weight.shape()[1];
    y = x.Take(position(tap), axis);
    y = (y * weight.Cast(x.dtype()).Contiguous().Reshape(dims)).Sum(axis + 1);
  }
  if (o.region.empty()) return y;
  Extents dims(x.rank() - axis, 1);
  dims[0] = out;
  const Tensor outside = ((point < 0) | (point > last)).Reshape(dims);
  return Where(outside, Tensor(internal::NumberAs(o.outside, y.dtype())), y);
}

}  // namespace

Tensor Tensor::Resize(const Ints& extents, const ResizeOptions& o, CallSite at) const {
  Call call("Resize", at, *this);
  const int axes = static_cast<int>(extents.size());
  if (axes > rank() || (!o.scale.empty() && static_cast<int>(o.scale.size()) != axes) ||
      (!o.region.empty() && static_cast<int>(o.region.size()) != axes)) {
    Fail("takes an extent for each of the last axes of ", Show(*this),
         ", and as many scales and "
         "regions or none, not ",
         axes, ", ", o.scale.size(), " and ", o.region.size());
  }
  const bool nearest = o.mode == ResizeMode::kNearest;
  Tensor x = nearest ? *this : WideFloat(*this);
  for (int i = 0; i < axes; ++i) {
    const int axis = rank() - axes + i;
    if (extents[i] < 0 || (extents[i] > 0 && shape()[axis].min() == 0) ||
        (!o.scale.empty() && !(o.scale[i] > 0))) {
      Fail("cannot make ", extents[i], " positions of axis ", axis, " of ", Show(*this));
    }
    x = Resized(x, axis, extents[i], i, o);
  }
  return nearest ? x : x.Cast(FloatResult(dtype()));
}

// ---- grids

namespace {

// A position mirrored at the ends of an axis until it is inside.
Tensor Reflected(const Tensor& p, double low, const Tensor& high) {
  const Tensor span = high - low, some = Where(span > 0, span, 1);
  const Tensor from = (p - low).Abs(), turns = (from / some).Floor();
  const Tensor rest = from - turns * span;
  const Tensor odd = (turns - (turns / 2).Floor() * 2) != 0;
  return Where(span > 0, Where(odd, high - rest, low + rest), p * 0);
}

Tensor Inside(const Tensor& p, const Tensor& last, const GridSampleOptions& o) {
  if (o.padding == PadMode::kConstant) return p;
  Tensor turned = p;
  if (o.padding != PadMode::kReplicate) {
    turned = o.align_corners ? Reflected(p, 0, last) : Reflected(p, -0.5, last + 0.5);
  }
  return turned.Maximum(0).Minimum(last);
}

// Neighbours of the points along one axis, and what each of them counts: [N, taps, points].
struct Taps {
  Tensor position, weight;
};

Taps TapsOf(const Tensor& coordinate, const Extent& n, const GridSampleOptions& o) {
  const Tensor size = AsFloat(n, coordinate.dtype()), last = size - 1;
  const auto counted = [&](int64_t from, int64_t to) {
    return Tensor::Arange(from, to).Cast(coordinate.dtype()).Unsqueeze(-1);
  };
  const Tensor point =
      o.align_corners ? (coordinate + 1) * (last / 2) : ((coordinate + 1) * size - 1) / 2;
  Taps taps;
  if (o.mode == ResizeMode::kCubic) {
    const Tensor base = point.Floor();
    const Tensor tap = base.Unsqueeze(1) + counted(-1, 3);
    taps.weight = CubicWeight(tap - point.Unsqueeze(1), -0.75);
    taps.position = Inside(tap, last, o);
  } else {
    const Tensor inside = Inside(point, last, o);
    if (o.mode == ResizeMode::kNearest) {
      taps.position = inside.Round().Unsqueeze(1);
      taps.weight = Tensor::Ones(taps.position.shape(), point.dtype());
    } else {
      taps.position = inside.Floor().Unsqueeze(1) + counted(0, 2);
      taps.weight = LinearWeight(taps.position - inside.Unsqueeze(1));
    }
  }
  const Tensor there = (taps.position >= 0) & (taps.position <= last);
  taps.weight = Where(there, taps.weight, 0);
  taps.position = Where(there, taps.position, 0).Round().Cast(kInt64);
  return taps;
}

}  // namespace

Tensor Tensor::GridSample(const Tensor& grid, const GridSampleOptions& o, CallSite at) const {
  Call call("GridSample", at, *this, grid);
  const int axes = rank() - 2;
  if (axes < 1 || grid.rank() != rank() || !(grid.shape()[0] == shape()[0]) ||
      grid.size(-1) != axes || o.padding == PadMode::kCircular ||
      o.padding == PadMode::kSymmetric) {
    Fail("takes [N, C, D1, ...], points [N, d1, ..., ", std::max(axes, 0),
         "] and no circular padding, not ", Show(*this), " and ", Show(grid));
  }
  const Tensor x = WideFloat(*this), g = WideFloat(grid).Cast(x.dtype());
  const Extent n = shape()[0], c = shape()[1];
  Extents points(grid.shape().begin() + 1, grid.shape().end() - 1);
  const Extent m = Shape(points).Elements();
  // [N, taps of the first axis, of the second, ..., points]
  Tensor position, weight;
  for (int i = 0; i < axes; ++i) {
    const Extent& length = shape()[2 + i];
    if (length.min() == 0) Fail(Show(*this), " has nothing to read");
    const Taps taps = TapsOf(g.Select(-1, axes - 1 - i).Reshape({n, m}), length, o);
    Extents dims = {n};
    for (int j = 0; j < axes; ++j) dims.push_back(j == i ? taps.position.shape()[1] : Extent(1));
    dims.push_back(m);
    const Tensor p = taps.position.Reshape(dims), w = taps.weight.Reshape(dims);
    position = position ? position * FromExtent(length, kInt64) + p : p;
    weight = weight ? weight * w : w;
  }
  // Kept, for every channel asks for the same; the points last, as they are the longest loop.
  position = position.Flatten(1, axes).Contiguous();
  weight = weight.Flatten(1, axes).Contiguous();
  const Extent taps = position.shape()[1];
  const Tensor index = position.Reshape({n, 1, taps * m}).Expand({n, c, taps * m});
  const Tensor values = x.Flatten(2).Gather(2, index).Reshape({n, c, taps, m});
  Extents dims = {n, c};
  dims.insert(dims.end(), points.begin(), points.end());
  const Tensor sum = (values * weight.Unsqueeze(1)).Sum(2);
  return sum.Reshape(dims).Cast(FloatResult(dtype()));
}

Tensor Tensor::AffineGrid(const Ints& extents, bool align_corners, CallSite at) const {
  Call call("AffineGrid", at, *this);
  const int axes = static_cast<int>(extents.size()) - 2;
  if (axes < 1 || rank() != 3 || size(1) != axes || size(2) != axes + 1 ||
      !shape()[0].is_int(extents[0])) {
    Fail("takes maps [N, axes, axes + 1] and the extents N, C, D1, ..., not ", Show(*this), " and ",
         extents.size(), " extents");
  }
  const Tensor theta = WideFloat(*this);
  Extents spatial(extents.begin() + 2, extents.end());
  std::vector<Tensor> columns;  // the last axis first, then 1
  for (int i = axes; i-- > 0;) {
    const auto n = static_cast<double>(extents[2 + i]);
    const Tensor count = CountAlong(i, axes, extents[2 + i], theta.dtype());
    const Tensor middle = count * 2 - (n - 1);
    const double span = align_corners ? std::max(1.0, n - 1) : n;
    columns.push_back((middle / span).Expand(spatial).Flatten());
  }
  columns.push_back(Ones(columns[0].shape(), theta.dtype()));
  const Tensor grid = Stack(columns, -1).MatMul(theta.Transpose(1, 2));
  Extents dims = {shape()[0]};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  dims.push_back(axes);
  return grid.Reshape(dims).Cast(FloatResult(dtype()));
}

}  // namespace tessera
