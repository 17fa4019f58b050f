// Regions of images, pooled.
#include <algorithm>
#include <limits>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// How much each element along an axis counts in each bin's mean, [regions, bins, extent]. A region
// from `begin` on, of `length`, [regions, 1], has ceil(length / bins) points a bin, which are at
// most 1 apart and, where there are several, at least 1/2: so few of them lie within 1 of an
// element, and however large a region is, no shape follows from it.
Tensor SharesOf(const Tensor& begin, const Tensor& length, int64_t bins, int64_t extent) {
  constexpr int64_t kMost = 6;  // points in an interval of 2, and one to spare at either end
  const auto axis = [&](int64_t n, int at) {
    std::vector<int64_t> shape(4, 1);
    shape[at] = n;
    return Tensor::Arange(n).Cast(begin.dtype()).Reshape(shape);
  };  // [regions, bins, extent, points]
  const auto region = [](const Tensor& t) { return t.Unsqueeze(-1).Unsqueeze(-1); };
  const Tensor size = region(length / static_cast<double>(bins));
  const Tensor points = size.Ceil().Maximum(0), step = size / points.Maximum(1);
  const Tensor from = region(begin) + axis(bins, 1) * size, element = axis(extent, 2);
  const Tensor below = ((element - 1 - from) / step - 0.5).Floor();
  // Of bins with one point that one, whatever the rest gives.
  const Tensor first = Where(points <= 1, 0, below.Maximum(0).Minimum(points.Maximum(1) - 1));
  const Tensor point = first + axis(kMost, 3);
  const Tensor at = from + (point + 0.5) * step, cut = at.Clip(0, extent - 1);
  const Tensor counts = (point < points) & (at >= -1) & (at <= extent);
  const Tensor share = Where(counts, (1 - (cut - element).Abs()).Maximum(0), 0).Sum(3);
  return share / points.Maximum(1).Squeeze(3);
}

// Regions of interest: each bin of a region is the mean, or the maximum, of points in it.
void RoiAlign(Call& c) {
  const Tensor x = c.In(0), rois = c.In(1);
  const int64_t count = rois.size(0), height = x.size(2), width = x.size(3);
  const int64_t rows = c.Int("output_height", 1), columns = c.Int("output_width", 1);
  const int64_t points = c.Int("sampling_ratio", 0);
  const bool mean = c.Choice("mode", {"avg", "max"}) == "avg";
  if (rows < 1 || columns < 1 || rows > 1 << 20 || columns > 1 << 20 || points > 1 << 20) {
    c.Fail("of ", rows, " x ", columns, " bins of ", points, " points");
  }
  if (points <= 0 && !mean) {
    c.Unsupported("mode is max and sampling_ratio ", points,
                  ": how many points are compared would follow from data");
  }
  const std::string corners =
      c.Choice("coordinate_transformation_mode", {"half_pixel", "output_half_pixel"});
  const bool half = c.opset() >= 16 && corners == "half_pixel";
  const Tensor box =
      rois.Cast(Promote(x.dtype(), kFloat32)) * c.Float("spatial_scale", 1) - (half ? 0.5 : 0.0);
  const auto corner = [&](int i) { return box.SliceAxis(1, {i, i + 1}); };  // [regions, 1]
  const auto length_of = [&](int first) {
    const Tensor length = corner(first + 2) - corner(first);
    return half ? length : length.Maximum(1);
  };
  if (points <= 0) {
    const Tensor v = SharesOf(corner(1), length_of(1), rows, height);
    const Tensor h = SharesOf(corner(0), length_of(0), columns, width);
    // What has no share is left out, not multiplied by 0: it may be infinite.
    const auto mean_of = [](const Tensor& share, const Tensor& t) {
      return Where(share > 0, share * t, 0).Sum(-1);
    };
    const Tensor images = x.Take(c.In(2), 0).Cast(v.dtype());  // [regions, channels, height, width]
    const Tensor in_rows = mean_of(h.Unsqueeze(1).Unsqueeze(1), images.Unsqueeze(3));
    const Tensor y = mean_of(v.Unsqueeze(1).Unsqueeze(3), in_rows.Transpose(2, 3).Unsqueeze(2));
    return c.Out(y.Cast(x.dtype()));
  }
  // The points of an axis, [regions, bins * points], their lower neighbours, and how far beyond.
  struct Axis {
    Tensor inside, low, high, far;
  };
  const auto along = [&](int first, int64_t bins, int64_t extent) {
    const Tensor begin = corner(first), length = length_of(first);
    const Tensor i = Tensor::Arange(bins * points).Cast(begin.dtype());
    const Tensor at = begin + (i + 0.5) * (length / static_cast<double>(bins * points));
    const Tensor cut = at.Clip(0, extent - 1);
    const Tensor low = cut.Floor();
    return Axis{(at >= -1) & (at <= extent), low, (low + 1).Minimum(extent - 1), cut - low};
  };
  const Axis v = along(1, rows, height), h = along(0, columns, width);
  const Tensor planes = x.Take(c.In(2), 0).Reshape({count, x.size(1), height * width});
  const int64_t nv = rows * points, nh = columns * points;
  const auto vertical = [&](const Tensor& t) { return t.Unsqueeze(2); };
  const auto horizontal = [&](const Tensor& t) { return t.Unsqueeze(1); };
  const Tensor inside = vertical(v.inside) & horizontal(h.inside);
  std::vector<Tensor> terms;
  for (const bool down : {false, true}) {
    for (const bool right : {false, true}) {
      const Tensor y = vertical(down ? v.high : v.low), z = horizontal(right ? h.high : h.low);
      const Tensor weight =
          vertical(down ? v.far : 1 - v.far) * horizontal(right ? h.far : 1 - h.far);
      const Tensor index = (y * width + z).Cast(kInt32).Reshape({count, 1, nv * nh});
      const Tensor value = planes.Gather(2, index.BroadcastTo({count, x.size(1), nv * nh}));
      const Tensor share = Where(inside, weight, 0).Reshape({count, 1, nv * nh});
      terms.push_back(value * share);
    }
  }
  Tensor all = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) all = mean ? all + terms[i] : all.Maximum(terms[i]);
  all = all.Reshape({count, x.size(1), rows, points, columns, points});
  c.Out((mean ? all.Mean({3, 5}) : all.Max({3, 5})).Cast(x.dtype()));
}

// Regions [count, 5] of an image's number and corners, which are rounded to elements and belong to
// the region: each bin is the maximum of what it touches within the image, 0 where that is nothing.
void MaxRoiPool(Call& c) {
  const Tensor x = c.In(0), rois = c.In(1);
  const std::vector<int64_t> bins = c.Ints("pooled_shape");
  if (x.rank() != 4 || rois.rank() != 2 || rois.size(1) != 5) {
    c.Fail("of ", x.shape().ToString(), " and regions of ", rois.shape().ToString(),
           "; they are [N, C, H, W] and [count, 5]");
  }
  if (bins.size() != 2 || std::min(bins[0], bins[1]) < 1 || std::max(bins[0], bins[1]) > 1 << 20) {
    c.Fail("pooled_shape has to be two numbers from 1 to ", 1 << 20);
  }
  const Tensor wide = rois.Cast(Promote(x.dtype(), kFloat32));
  // Halves are rounded away from 0.
  const Tensor scaled = wide * c.Float("spatial_scale", 1);
  const Tensor box = Where(scaled < 0, (scaled - 0.5).Ceil(), (scaled + 0.5).Floor());
  // Which elements of an axis are in which bin, [count, bins, extent].
  const auto inside = [&](int first, int64_t n, int64_t extent) {
    const auto corner = [&](int i) { return box.SliceAxis(1, {i, i + 1}).Unsqueeze(2); };
    const Tensor begin = corner(first), length = (corner(first + 2) - begin + 1).Maximum(1);
    const Tensor size = length / static_cast<double>(n);
    const Tensor bin = Tensor::Arange(n).Cast(box.dtype()).Unsqueeze(1);
    const Tensor element = Tensor::Arange(extent).Cast(box.dtype());
    return (element >= (bin * size).Floor() + begin) &
           (element < ((bin + 1) * size).Ceil() + begin);
  };
  const Tensor v = inside(2, bins[0], x.size(2)), h = inside(1, bins[1], x.size(3));
  const auto most = [](const Tensor& in, const Tensor& t) {
    return Where(in, t, -std::numeric_limits<double>::infinity()).Max(-1);
  };
  const Tensor images = x.Take(rois.Select(1, 0).Cast(kInt64), 0);  // [count, channels, H, W]
  const Tensor in_rows = most(h.Unsqueeze(1).Unsqueeze(1), images.Unsqueeze(3));
  const Tensor y = most(v.Unsqueeze(1).Unsqueeze(3), in_rows.Transpose(2, 3).Unsqueeze(2));
  const Tensor some = v.Any(2).Unsqueeze(2) & h.Any(2).Unsqueeze(1);
  c.Out(Where(some.Unsqueeze(1), y, 0).Cast(x.dtype()));
}

constexpr OpRow kRows[] = {{"MaxRoiPool", MaxRoiPool}, {"RoiAlign", RoiAlign}};

}  // namespace

absl::Span<const OpRow> RegionOps() { return kRows; }

}  // namespace tessera::onnx
