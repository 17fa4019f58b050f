// Pooling.
#include <algorithm>
#include <limits>

#include "examples/onnx/call.h"
#include "examples/onnx/convolution.h"

namespace tessera::onnx {
namespace {

PoolOptions OptionsOf(Call& c, const Tensor& x) {
  if (c.Find("kernel_shape") == nullptr) c.Fail("attribute 'kernel_shape' is missing");
  const Windows windows = WindowsOf(c, SpatialExtents(x), {});
  PoolOptions options;
  options.size = windows.size;
  options.stride = windows.stride;
  options.dilation = windows.dilation;
  options.padding = windows.padding;
  options.ceil_mode = c.Int("ceil_mode", 0) != 0;
  options.count_padding = c.Int("count_include_pad", 0) != 0;
  return options;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Kind { kMax, kMean, kNorm };

// What an axis has for the window at each of its positions, padding left out, reduced. Where a
// window may reach it, the element is found by its index: what is outside costs nothing.
Tensor ReducedAlong(const Tensor& x, const PoolOptions& o, size_t i, Kind kind, double p) {
  const int axis = static_cast<int>(i) + 2;
  const int64_t extent = x.size(axis), step = o.dilation[i];
  const int64_t places = x.MaxPool(o).size(axis), most = (extent + step - 1) / step;
  const Tensor begin = (Tensor::Arange(places, kInt64) * o.stride[i] - o.padding[i]).Unsqueeze(1);
  const Tensor skipped = (-begin + (step - 1)).FloorDiv(step).Maximum(0);
  const Tensor tap = skipped + Tensor::Arange(most, kInt64);
  const Tensor at = begin + tap * step;  // [places, most]
  const Tensor inside = (tap < o.size[i]) & (at < extent);
  std::vector<int64_t> shape(x.rank() + 1, 1);
  shape[axis] = places;
  const auto along = [&](const Tensor& t, int64_t n) {
    shape[axis + 1] = n;
    return t.Reshape(shape);
  };
  const Tensor found = x.Take(at.Clip(0, extent - 1), axis), is_there = along(inside, most);
  if (kind == Kind::kMax) {
    const Tensor known = x.dtype().IsFloat() ? Where(is_there, found, -kInfinity)
                                             : Where(is_there, found, MinInt(x.dtype()));
    return known.Max(axis + 1);
  }
  const Tensor parts = Where(is_there, found, 0);
  if (kind == Kind::kNorm) return parts.Norm(p, {axis + 1});
  const int64_t end = extent + o.padding[o.size.size() + i];
  const Tensor count = o.count_padding
                           ? (end - begin + (step - 1)).FloorDiv(step).Minimum(o.size[i])
                           : inside.Cast(kInt64).Sum(1);
  return parts.Sum(axis + 1) / along(count, 1).Squeeze(axis + 1).Cast(x.dtype());
}

// x reduced along those axes on which a window has far more elements than x; the options are what
// is left to do on the others.
Tensor Narrowed(Tensor x, PoolOptions& o, Kind kind, double p = 0) {
  for (size_t i = 0; i < o.size.size(); ++i) {
    const int64_t extent = x.size(static_cast<int>(i) + 2);
    if (extent == 0 || o.size[i] / 4 * o.dilation[i] <= extent) continue;
    x = ReducedAlong(x, o, i, kind, p);
    o.size[i] = o.stride[i] = o.dilation[i] = 1;
    o.padding[i] = o.padding[o.size.size() + i] = 0;
  }
  return x;
}

// Positions within [D1, ...], counted in one, as ONNX counts: in the whole tensor, by rows or,
// where `by_columns` says so, with the first of these axes running fastest.
Tensor WholePositions(const Tensor& index, const Tensor& x, bool by_columns) {
  const std::vector<int64_t> extents = SpatialExtents(x);
  Tensor at = index.Cast(kInt64);
  if (by_columns) {
    Tensor rest = at, sum;
    int64_t step = Product(extents);
    for (size_t i = extents.size(); i-- > 0;) {
      step /= std::max<int64_t>(extents[i], 1);
      const Tensor term = rest.Mod(extents[i]) * step;
      rest = rest.FloorDiv(extents[i]);
      sum = sum ? sum + term : term;
    }
    at = sum;
  }
  std::vector<int64_t> planes(x.rank(), 1);
  planes[0] = x.size(0);
  planes[1] = x.size(1);
  const Tensor plane = Tensor::Arange(planes[0] * planes[1], kInt64).Reshape(planes);
  return at + plane * Product(extents);
}

constexpr double kMostCompared = 1ll << 32;

void MaxPool(Call& c) {
  const Tensor x = c.In(0);
  PoolOptions options = OptionsOf(c, x);
  if (!c.Wants(1)) {
    const Tensor y = Narrowed(x, options, Kind::kMax);
    return c.Out(y.MaxPool(options));
  }
  double compared = static_cast<double>(x.MaxPool(options).elements());
  for (const int64_t n : options.size) compared *= static_cast<double>(n);
  if (compared > kMostCompared) {
    c.Unsupported("windows of ", compared, " elements in all, for indices; without indices only ",
                  "those in the input count");
  }
  const ValuesAndIndices y = x.MaxPoolWithIndices(options);
  c.Out(y.values);
  c.Out(WholePositions(y.indices, x, c.Int("storage_order", 0) != 0));
}
void AveragePool(Call& c) {
  const Tensor x = c.In(0);
  PoolOptions options = OptionsOf(c, x);
  const Tensor y = Narrowed(x.Cast(Promote(x.dtype(), kFloat32)), options, Kind::kMean);
  c.Out(y.AvgPool(options).Cast(x.dtype()));
}
void LpPool(Call& c) {
  const Tensor x = c.In(0);
  const auto p = static_cast<double>(c.Int("p", 2));
  PoolOptions options = OptionsOf(c, x);
  const Tensor y = Narrowed(x.Cast(Promote(x.dtype(), kFloat32)), options, Kind::kNorm, p);
  c.Out(y.LpPool(p, options).Cast(x.dtype()));
}
void GlobalAveragePool(Call& c) { c.Out(c.In(0).GlobalAvgPool()); }
void GlobalMaxPool(Call& c) { c.Out(c.In(0).GlobalMaxPool()); }
void GlobalLpPool(Call& c) {
  const Tensor x = c.In(0);
  std::vector<int64_t> axes;
  for (int a = 2; a < x.rank(); ++a) axes.push_back(a);
  c.Out(x.Norm(static_cast<double>(c.Int("p", 2)), axes, true));
}

// Each value at its position in what the pooling saw; a given shape may have zeros after that.
void MaxUnpool(Call& c) {
  const Tensor x = c.In(0), index = c.In(1);
  const std::vector<int64_t> extents = SpatialExtents(x);
  const Windows windows = WindowsOf(c, extents, {});
  const size_t n = extents.size();
  std::vector<int64_t> shape = {x.size(0), x.size(1)};
  for (size_t i = 0; i < n; ++i) {
    shape.push_back((extents[i] - 1) * windows.stride[i] + windows.size[i] - windows.padding[i] -
                    windows.padding[n + i]);
  }
  const Tensor flat = Tensor::Zeros({Product(shape)}, x.dtype())
                          .Scatter(0, index.Flatten(), x.Flatten())
                          .Reshape(shape);
  if (!c.Has(2)) return c.Out(flat);
  const std::vector<int64_t> wanted = c.HostInts(2);
  if (wanted.size() != shape.size()) c.Fail("output_shape has ", wanted.size(), " extents");
  Pairs pairs(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) pairs[i].second = wanted[i] - shape[i];
  c.Out(flat.PadBy(PadMode::kConstant, pairs));
}

constexpr OpRow kRows[] = {
    {"AveragePool", AveragePool, 0, Flow::kBatch},
    {"GlobalAveragePool", GlobalAveragePool, 0, Flow::kBatch},
    {"GlobalLpPool", GlobalLpPool, 0, Flow::kBatch},
    {"GlobalMaxPool", GlobalMaxPool, 0, Flow::kBatch},
    {"LpPool", LpPool, 0, Flow::kBatch},
    {"MaxPool", MaxPool, 0, Flow::kBatch},
    {"MaxUnpool", MaxUnpool, HostInput({2})},
};

}  // namespace

absl::Span<const OpRow> PoolOps() { return kRows; }

}  // namespace tessera::onnx
