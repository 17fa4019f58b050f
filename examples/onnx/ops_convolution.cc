// Convolutions, transposed and deformable ones, and columns of windows added up.
#include <algorithm>

#include "examples/onnx/call.h"
#include "examples/onnx/convolution.h"

namespace tessera::onnx {

std::vector<int64_t> SpatialExtents(const Tensor& x) {
  std::vector<int64_t> out;
  for (int a = 2; a < x.rank(); ++a) out.push_back(x.size(a));
  return out;
}

Windows WindowsOf(Call& c, const std::vector<int64_t>& extents, const std::vector<int64_t>& size) {
  const size_t n = extents.size();
  const std::vector<int64_t> kernel = c.Ints("kernel_shape", size);
  const std::vector<int64_t> strides = c.Ints("strides", std::vector<int64_t>(n, 1));
  const std::vector<int64_t> dilations = c.Ints("dilations", std::vector<int64_t>(n, 1));
  std::vector<int64_t> pads = c.Ints("pads", std::vector<int64_t>(2 * n, 0));
  if (kernel.size() != n || strides.size() != n || dilations.size() != n || pads.size() != 2 * n) {
    c.Fail("kernel_shape, strides, dilations or pads do not fit ", n, " axes");
  }
  const auto far = [](int64_t v) { return v < -(1ll << 31) || v > 1ll << 31; };
  const auto any_far = [&](const std::vector<int64_t>& list) {
    return std::any_of(list.begin(), list.end(), far);
  };
  if (any_far(kernel) || any_far(strides) || any_far(dilations) || any_far(pads)) {
    c.Fail("an attribute is beyond 2^31");
  }
  for (size_t i = 0; i < n; ++i) {
    if (kernel[i] < 1 || strides[i] < 1 || dilations[i] < 1) {
      c.Fail("a window of ", kernel[i], " with stride ", strides[i], " and dilation ",
             dilations[i]);
    }
  }
  const std::string automatic =
      c.Choice("auto_pad", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
  if (automatic == "VALID") pads.assign(2 * n, 0);
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (size_t i = 0; i < n; ++i) {
      const int64_t positions = (extents[i] + strides[i] - 1) / strides[i];
      const int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      const int64_t all = std::max<int64_t>((positions - 1) * strides[i] + reach - extents[i], 0);
      pads[i] = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      pads[n + i] = all - pads[i];
    }
  }
  const auto ints = [](const std::vector<int64_t>& v) { return Ints(v.begin(), v.end()); };
  return {ints(kernel), ints(strides), ints(dilations), ints(pads)};
}

Tensor Convolution(Call& c, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Windows windows = WindowsOf(c, SpatialExtents(x), SpatialExtents(w));
  ConvOptions options;
  options.bias = bias;
  options.stride = windows.stride;
  options.padding = windows.padding;
  options.dilation = windows.dilation;
  options.groups = c.Int("group", 1);
  return x.Conv(w, options);
}

namespace {

Tensor WithBias(Call& c, int input, const Tensor& y) {
  if (!c.Has(input)) return y;
  std::vector<int64_t> shape(y.rank(), 1);
  shape[1] = y.size(1);
  return y + c.In(input).Reshape(shape);
}

void Conv(Call& c) {
  const Tensor x = c.In(0);
  c.Out(WithBias(c, 2, Convolution(c, x, c.In(1), {})).Cast(x.dtype()));
}

// All that the windows reach is made first; then what the pads say is cut off, or zeros are put
// where the output is wider.
void ConvTranspose(Call& c) {
  const Tensor x = c.In(0), w = c.In(1);
  const std::vector<int64_t> extents = SpatialExtents(x);
  const size_t n = extents.size();
  const Windows windows = WindowsOf(c, extents, SpatialExtents(w));
  const std::vector<int64_t> more = c.Ints("output_padding", std::vector<int64_t>(n, 0));
  std::vector<int64_t> wanted = c.Ints("output_shape");
  const std::string automatic = c.String("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (wanted.empty() && same) {
    for (size_t i = 0; i < n; ++i) wanted.push_back(extents[i] * windows.stride[i]);
  }
  if (wanted.size() == n + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (more.size() != n || (!wanted.empty() && wanted.size() != n)) {
    c.Fail("output_padding or output_shape do not fit ", n, " axes");
  }
  ConvTransposeOptions options;
  options.stride = windows.stride;
  options.dilation = windows.dilation;
  options.groups = c.Int("group", 1);
  const Tensor all = x.ConvTranspose(w, options);
  Pairs pairs(x.rank());
  for (size_t i = 0; i < n; ++i) {
    const int64_t made = all.size(static_cast<int>(i) + 2);
    int64_t begin = windows.padding[i];
    int64_t out = made + more[i] - windows.padding[i] - windows.padding[n + i];
    if (!wanted.empty()) {
      out = wanted[i];
      const int64_t cut = std::max<int64_t>(made + more[i] - out, 0);
      begin = automatic == "SAME_UPPER" ? cut / 2 : cut - cut / 2;
    }
    pairs[i + 2] = {-begin, out - (made - begin)};
  }
  c.Out(WithBias(c, 2, all.PadBy(PadMode::kConstant, pairs)).Cast(x.dtype()));
}

// A plane [.., H W] read at points between its elements: 0 outside. `y` and `x` are [.., points],
// the plane's other axes are broadcast.
Tensor Bilinear(const Tensor& plane, int64_t height, int64_t width, const Tensor& y,
                const Tensor& x) {
  const Tensor y0 = y.Floor(), x0 = x.Floor();
  const int last = plane.rank() - 1;
  Tensor sum;
  for (const int dy : {0, 1}) {
    for (const int dx : {0, 1}) {
      const Tensor yi = y0 + dy, xi = x0 + dx;
      const Tensor inside = (yi >= 0) & (yi < height) & (xi >= 0) & (xi < width);
      const Tensor weight = (1 - (y - yi).Abs()) * (1 - (x - xi).Abs());
      const Tensor index = Where(inside, yi * width + xi, 0).Cast(kInt32);
      std::vector<int64_t> shape = Sizes(plane);
      shape[last] = index.size(-1);
      const Tensor term = plane.Gather(last, index.BroadcastTo(shape)) * Where(inside, weight, 0);
      sum = sum ? sum + term : term;
    }
  }
  return sum;
}

void DeformConv(Call& c) {
  const Tensor x = c.In(0), w = c.In(1), offset = c.In(2);
  if (x.rank() != 4) c.Unsupported("of ", x.shape().ToString(), "; it is made for images, rank 4");
  const Windows windows = WindowsOf(c, SpatialExtents(x), SpatialExtents(w));
  const int64_t batch = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t groups = c.Int("group", 1), maps = c.Int("offset_group", 1);
  const int64_t kernel = windows.size[0] * windows.size[1];
  const int64_t rows = offset.size(2), columns = offset.size(3), places = rows * columns;
  if (maps < 1 || groups < 1 || maps > channels || groups > channels || kernel > 1 << 20 ||
      channels % maps != 0 || w.size(0) % groups != 0 || channels != w.size(1) * groups ||
      offset.size(1) != maps * kernel * 2) {
    c.Fail("of ", x.shape().ToString(), " under ", w.shape().ToString(), " by offsets ",
           offset.shape().ToString());
  }
  // Where the kernel's elements lie without offsets, as [kernel, places].
  const auto regular = [&](int axis) {
    const bool vertical = axis == 0;
    const Tensor i = Tensor::Arange(kernel), p = Tensor::Arange(places);
    const Tensor k = vertical ? i.FloorDiv(windows.size[1]) : i.Mod(windows.size[1]);
    const Tensor at = vertical ? p.FloorDiv(columns) : p.Mod(columns);
    return (k * windows.dilation[axis]).Unsqueeze(1) + at * windows.stride[axis] -
           windows.padding[axis];
  };
  const Tensor moves = offset.Reshape({batch, maps, kernel, 2, places});
  const auto points = [&](int axis) {
    return (moves.Select(3, axis) + regular(axis).Cast(offset.dtype()))
        .Reshape({batch, maps, 1, kernel * places});
  };
  const Tensor planes = x.Reshape({batch, maps, channels / maps, height * width});
  Tensor values = Bilinear(planes, height, width, points(0), points(1));
  if (c.Has(4)) values = values * c.In(4).Reshape({batch, maps, 1, kernel * places});
  const Tensor taken = values.Reshape({batch, groups, channels / groups * kernel, places});
  const Tensor weight = w.Reshape({1, groups, w.size(0) / groups, w.size(1) * kernel});
  const Tensor y = weight.MatMul(taken).Reshape({batch, w.size(0), rows, columns});
  c.Out(WithBias(c, 3, y).Cast(x.dtype()));
}

void Col2Im(Call& c) {
  const Tensor x = c.In(0);
  const std::vector<int64_t> image = c.HostInts(1), block = c.HostInts(2);
  const Windows windows = WindowsOf(c, image, block);
  PoolOptions options;
  options.size = windows.size;
  options.stride = windows.stride;
  options.dilation = windows.dilation;
  options.padding = windows.padding;
  c.Out(x.Col2Im(Ints(image.begin(), image.end()), options));
}

constexpr OpRow kRows[] = {
    {"Col2Im", Col2Im, HostInput({1, 2})},
    {"Conv", Conv, 0, Flow::kBatch},
    {"ConvTranspose", ConvTranspose, 0, Flow::kBatch},
    {"DeformConv", DeformConv},
};

}  // namespace

absl::Span<const OpRow> ConvolutionOps() { return kRows; }

}  // namespace tessera::onnx
