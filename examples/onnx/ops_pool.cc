// Pooling.
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

void MaxPool(Call& c) {
  const Tensor x = c.In(0);
  const PoolOptions options = OptionsOf(c, x);
  if (!c.Wants(1)) return c.Out(x.MaxPool(options));
  const ValuesAndIndices y = x.MaxPoolWithIndices(options);
  c.Out(y.values);
  c.Out(WholePositions(y.indices, x, c.Int("storage_order", 0) != 0));
}
void AveragePool(Call& c) {
  const Tensor x = c.In(0);
  c.Out(x.AvgPool(OptionsOf(c, x)).Cast(x.dtype()));
}
void LpPool(Call& c) {
  const Tensor x = c.In(0);
  c.Out(x.LpPool(static_cast<double>(c.Int("p", 2)), OptionsOf(c, x)));
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
