// Samples, curves and polynomials, made of the members of Tensor.
#include "graph/statistics.h"

#include <cmath>

#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::AllButFirst;
using internal::AllButLast;
using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::NormalAxis;
using internal::Show;
using internal::WideFloat;

Tensor Quantiles(const Tensor& x, const std::vector<double>& shares, std::optional<int> axis,
                 bool keepdim, QuantileMethod method, CallSite at) {
  Call call("Quantiles", at, x);
  if (shares.empty()) Fail("takes one share or more");
  std::vector<Tensor> each;
  for (const double q : shares) each.push_back(x.Quantile(q, axis, keepdim, method));
  return Stack(each, 0);
}

Tensor HistogramDd(const Tensor& points, const std::vector<HistogramAxis>& axes,
                   const Tensor& weights, CallSite at) {
  Call call("HistogramDd", at, points, weights);
  const auto d = static_cast<int64_t>(axes.size());
  if (d == 0 || points.rank() != 2 || !points.shape()[1].is_int(d)) {
    Fail("takes points [N, D] and a range for each of D axes, not ", Show(points), " and ", d);
  }
  const Tensor x = WideFloat(points);
  Tensor flat = Tensor::Zeros({points.shape()[0]}, kInt64), inside = flat == 0;
  Extents bins;
  int64_t boxes = 1;
  for (int i = 0; i < d; ++i) {
    const auto& [n, low, high] = axes[i];
    if (n < 1 || !(low < high) || !std::isfinite(high - low) || n > INT32_MAX / boxes) {
      Fail(
          "takes one interval or more between numbers in order, and no more boxes than i32 "
          "counts, ",
          "not ", n, " from ", low, " to ", high, " along axis ", i);
    }
    const Tensor c = x.Select(1, i), within = (c >= low) & (c <= high);
    const Tensor share = Where(within, (c - low) * (static_cast<double>(n) / (high - low)), 0);
    flat = flat * n + share.Floor().Cast(kInt64).Minimum(n - 1);
    inside = inside & within;
    bins.push_back(Extent(n));
    boxes *= n;
  }
  return Where(inside, flat, -1).BinCount(boxes, weights).Reshape(Dims(bins));
}

Tensor Histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& o, CallSite at) {
  Call call("Histogram", at, x, edges, o.weights);
  if (edges.rank() != 1 || edges.size(0) < 2) {
    Fail("takes a vector of two edges or more, not ", Show(edges));
  }
  const int64_t bins = edges.size(0) - 1;
  const DType both = Promote(x.dtype(), edges.dtype());
  const Tensor to = edges.Cast(both), from = x.Cast(both);
  const Tensor last = from == to.SliceAxis(0, {bins, {}}).Reshape({});
  const Tensor before = to.SearchSorted(from, /*right=*/true) - 1;
  const Tensor counts = Where(last, bins - 1, before).BinCount(bins, o.weights);
  if (!o.density) return counts;
  const DType type = FloatResult(Promote(counts.dtype(), edges.dtype()));
  const Tensor share = counts.Cast(AccumulateType(type));
  const Tensor widths = edges.Cast(share.dtype()).Diff();
  return (share / share.Sum() / widths).Cast(type);
}

Tensor HistogramEdges(const Tensor& x, int64_t bins, CallSite at) {
  Call call("HistogramEdges", at, x);
  if (bins < 1) Fail("takes one interval or more, not ", bins);
  return internal::InFloats(x, [&](const Tensor& t) {
    const Tensor share = Tensor::Arange(bins + 1, t.dtype()) / bins;
    if (t.shape().MaxElements() == 0) return share;
    const Tensor least = t.Min(), most = t.Max(), one = (least == most).Cast(t.dtype()) * 0.5;
    const Tensor low = least - one, high = most + one;
    return Where(share == 1, high, low + share * (high - low));
  });
}

namespace {

Tensor OfSamples(const Tensor& weights, const Tensor& x, DType type) {
  if (weights.rank() != 1 || !(weights.shape()[0] == x.shape()[1])) {
    Fail("the weights ", Show(weights), " must be a vector with one element for each sample of ",
         Show(x));
  }
  return weights.Cast(type);
}

}  // namespace

Tensor Cov(const Tensor& given, const CovOptions& o, CallSite at) {
  Call call("Cov", at, given, o.frequencies, o.weights);
  if (!o.frequencies && !o.weights) return given.Cov(o.correction);
  if (given.rank() > 2) Fail("takes [variables, samples] or [samples], not ", Show(given));
  const Tensor x =
      WideFloat(given.rank() == 2 ? given : given.Reshape({1, given.shape().Elements()}));
  if (o.frequencies) internal::CheckIndex(o.frequencies);
  const Tensor times = o.frequencies ? OfSamples(o.frequencies, x, x.dtype()) : Tensor();
  const Tensor weights = o.weights ? OfSamples(o.weights, x, x.dtype()) : Tensor();
  const Tensor each = !weights ? times : times ? times * weights : weights, sum = each.Sum();
  const Tensor apart = x - (x * each).Sum(1, /*keepdim=*/true) / sum;
  const Tensor lost = weights ? (each * weights).Sum() / sum : Tensor::Ones({}, x.dtype());
  const Tensor out = (apart * each).MatMul(apart.T()) / (sum - lost * o.correction).Maximum(0);
  return (given.rank() == 2 ? out : out.Reshape({})).Cast(FloatResult(given.dtype()));
}

Tensor RavelIndex(absl::Span<const Tensor> positions, const Ints& extents, CallSite at) {
  Call call("RavelIndex", at, positions);
  if (positions.size() != extents.size() || positions.empty()) {
    Fail("takes positions along each of the axes of ",
         Shape(Extents(extents.begin(), extents.end())).ToString(), ", not along ",
         positions.size());
  }
  int64_t elements = 1;
  for (int64_t e : extents) {
    if (e >= 0 && !__builtin_mul_overflow(elements, e, &elements)) continue;
    Fail("takes positions in a tensor of at most 2^63 - 1 elements, not of ",
         Shape(Extents(extents.begin(), extents.end())).ToString());
  }
  Tensor flat, inside;
  for (size_t i = 0; i < positions.size(); ++i) {
    internal::CheckIndex(positions[i]);
    const Tensor p = positions[i].Cast(kInt64), within = (p >= 0) & (p < extents[i]);
    flat = flat ? flat * extents[i] + p : p;
    inside = inside ? inside & within : within;
  }
  return Where(inside, flat, -1);
}

namespace {

// Whether there is an x for each y: along the axis, and along another one, or the same for all.
bool FitsBeside(const Shape& x, const Shape& y, int axis) {
  bool fits = x.rank() == y.rank();
  for (int i = 0; fits && i < y.rank(); ++i) {
    fits = x[i] == y[i] || (i != axis && x[i].is_int(1));
  }
  return fits;
}

// y and the distances of its neighbours along the axis, in the dtype in which both are computed.
struct Curve {
  Tensor y, steps;
  int axis;
  DType type;
  Curve(const Tensor& of_y, const Tensor& of_x, int of_axis)
      : axis(NormalAxis(of_axis, of_y.rank())),
        type(FloatResult(Promote(of_y.dtype(), of_x.dtype()))) {
    Tensor x = of_x;
    if (x.rank() == 1 && of_y.rank() > 1 && x.shape()[0] == of_y.shape()[axis]) {
      Extents dims(of_y.rank(), 1);
      dims[axis] = x.shape()[0];
      x = x.Reshape(dims);
    } else if (!FitsBeside(x.shape(), of_y.shape(), axis)) {
      Fail("x must be a vector along axis ", axis, " of ", Show(of_y), ", or of its shape, not ",
           Show(of_x));
    }
    y = of_y.Cast(AccumulateType(type));
    x = x.Cast(AccumulateType(type));
    steps = x.shape()[axis].is_int(0) ? x : AllButFirst(x, axis) - AllButLast(x, axis);
  }
  Tensor Areas() const {
    if (y.shape()[axis].is_int(0)) return y;
    return (AllButFirst(y, axis) + AllButLast(y, axis)) * 0.5 * steps;
  }
};

}  // namespace

Tensor Trapezoid(const Tensor& y, const Tensor& x, int axis, CallSite at) {
  Call call("Trapezoid", at, y, x);
  const Curve c(y, x, axis);
  return c.Areas().Sum(c.axis).Cast(c.type);
}

Tensor CumTrapezoid(const Tensor& y, const Tensor& x, int axis, CallSite at) {
  Call call("CumTrapezoid", at, y, x);
  const Curve c(y, x, axis);
  return c.Areas().CumSum(c.axis).Cast(c.type);
}

// Inside, the slope of the parabola through a point and both neighbours.
Tensor Gradient(const Tensor& y, const Tensor& x, int axis, CallSite at) {
  Call call("Gradient", at, y, x);
  const Curve c(y, x, axis);
  const Extent n = y.shape()[c.axis];
  if (n.min() < 2) Fail("takes at least two elements along axis ", c.axis, " of ", Show(y));
  const Tensor slopes = (AllButFirst(c.y, c.axis) - AllButLast(c.y, c.axis)) / c.steps;
  const auto first = slopes.SliceAxis(c.axis, {0, 1});
  const auto last = slopes.SliceAxis(c.axis, {n - Extent(2), n - Extent(1)});
  const Tensor before = AllButLast(c.steps, c.axis), after = AllButFirst(c.steps, c.axis);
  const Tensor inside =
      (AllButLast(slopes, c.axis) * after + AllButFirst(slopes, c.axis) * before) /
      (before + after);
  return Cat({first, inside, last}, c.axis).Cast(c.type);
}

Tensor Unwrap(const Tensor& x, double period, int axis, CallSite at) {
  Call call("Unwrap", at, x);
  if (!(period > 0) || std::isinf(period)) Fail("takes a period above 0, not ", period);
  const int a = NormalAxis(axis, x.rank());
  return internal::InFloats(x, [&](const Tensor& t) {
    if (t.shape()[a].max() < 2) return t;
    const Tensor step = AllButFirst(t, a) - AllButLast(t, a);
    const Tensor turned = (step + period / 2) % period - period / 2;
    const Tensor least = Where((turned == -period / 2) & (step > 0), period / 2, turned);
    const Tensor more = Where(step.Abs() < period / 2, 0, least - step).CumSum(a);
    Pairs pairs(t.rank(), {0, 0});
    pairs[a] = {1, 0};
    return t + more.Pad(pairs).Detach();
  });
}

Tensor Diff(const Tensor& x, const Tensor& before, const Tensor& after, int n, int axis,
            CallSite at) {
  Call call("Diff", at, x, before, after);
  const int a = NormalAxis(axis, x.rank());
  std::vector<Tensor> parts;
  for (const Tensor& part : {before, x, after}) {
    if (!part) continue;
    Extents dims = x.shape().ToExtents();
    dims[a] = 1;
    parts.push_back(part.rank() == 0 ? part.Expand(Dims(dims)) : part);
  }
  return Cat(parts, a).Diff(n, a);
}

Tensor NanCumSum(const Tensor& x, int axis, CallSite at) {
  Call call("NanCumSum", at, x);
  return (x.dtype().IsFloat() ? Where(x.IsNan(), 0, x) : x).CumSum(axis);
}

Tensor NanCumProd(const Tensor& x, int axis, CallSite at) {
  Call call("NanCumProd", at, x);
  return (x.dtype().IsFloat() ? Where(x.IsNan(), 1, x) : x).CumProd(axis);
}

Tensor Correlate(const Tensor& a, const Tensor& b, absl::string_view mode, CallSite at) {
  Call call("Correlate", at, a, b);
  if (b.rank() != 1) Fail("takes vectors, not ", Show(b));
  return a.Convolve(b.Flip(0), mode);
}

Tensor PDist(const Tensor& x, double p, CallSite at) {
  Call call("PDist", at, x);
  if (x.rank() != 2) Fail("takes rows [N, E], not ", Show(x));
  const int64_t n = x.size(0);
  const Tensor i = Tensor::Arange(n), later = i.Unsqueeze(1) < i;
  return x.CDist(x, p).MaskedSelect(later, n * (n - 1) / 2);
}

// Columns are divided by their norms, as the powers of what is far from 1 are far apart.
Tensor PolyFit(const Tensor& x, const Tensor& y, int degree, CallSite at) {
  Call call("PolyFit", at, x, y);
  if (degree < 0) Fail("takes a degree from 0 on, not ", degree);
  if (x.rank() != 1 || y.rank() < 1 || y.rank() > 2 || !(y.shape()[0] == x.shape()[0])) {
    Fail("takes points x [N], y [N] or [N, K], not ", Show(x), " and ", Show(y));
  }
  const DType type = FloatResult(Promote(x.dtype(), y.dtype())), wide = AccumulateType(type);
  const Tensor powers = x.Cast(wide).Vander(degree + 1);
  const Tensor scale = powers.Norm(2, 0), safe = Where(scale == 0, 1, scale);
  const Tensor fit = (powers / safe).LstSq(y.Cast(wide));
  return (fit / (y.rank() == 1 ? safe : safe.Unsqueeze(-1))).Cast(type);
}

namespace {

void CheckCoefficients(const Tensor& c) {
  if (c.rank() != 1) Fail("takes a vector of coefficients, not ", Show(c));
}

// n, n - 1, ... down to `last`, beside a vector of floats.
Tensor Descending(const Tensor& beside, int64_t last) {
  const int64_t n = beside.size(0);
  return (n - 1 + last - Tensor::Arange(n, beside.dtype()));
}

}  // namespace

Tensor PolyVal(const Tensor& coefficients, const Tensor& x, CallSite at) {
  Call call("PolyVal", at, coefficients, x);
  CheckCoefficients(coefficients);
  const DType type = FloatResult(Promote(coefficients.dtype(), x.dtype()));
  const Tensor c = coefficients.Cast(AccumulateType(type)), t = x.Cast(AccumulateType(type));
  Tensor sum = t * 0;
  for (int64_t i = 0; i < c.size(0); ++i) sum = sum * t + c.Select(0, i);
  return sum.Cast(type);
}

Tensor PolyDer(const Tensor& coefficients, CallSite at) {
  Call call("PolyDer", at, coefficients);
  CheckCoefficients(coefficients);
  const Tensor c = WideFloat(coefficients);
  const int64_t n = c.size(0);
  if (n < 2) return Tensor::Zeros({0}, FloatResult(coefficients.dtype()));
  return (c * Descending(c, 0)).SliceAxis(0, {0, n - 1}).Cast(FloatResult(coefficients.dtype()));
}

Tensor PolyInt(const Tensor& coefficients, CallSite at) {
  Call call("PolyInt", at, coefficients);
  CheckCoefficients(coefficients);
  const Tensor c = WideFloat(coefficients);
  return (c / Descending(c, 1)).Pad({{0, 1}}).Cast(FloatResult(coefficients.dtype()));
}

}  // namespace tessera
