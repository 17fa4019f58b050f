// Regions of images, pooled.
#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// Regions of interest: each bin of a region is the mean, or the maximum, of points in it.
void RoiAlign(Call& c) {
  const Tensor x = c.In(0), rois = c.In(1);
  const int64_t count = rois.size(0), height = x.size(2), width = x.size(3);
  const int64_t rows = c.Int("output_height", 1), columns = c.Int("output_width", 1);
  const int64_t points = c.Int("sampling_ratio", 0);
  if (rows < 1 || columns < 1 || rows > 1 << 20 || columns > 1 << 20 || points > 1 << 20) {
    c.Fail("of ", rows, " x ", columns, " bins of ", points, " points");
  }
  if (points <= 0) {
    c.Unsupported("sampling_ratio is ", points,
                  ": how many points are read would follow from data");
  }
  const bool half =
      c.opset() >= 16 && c.String("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const Tensor box = rois * c.Float("spatial_scale", 1) - (half ? 0.5 : 0.0);
  const auto corner = [&](int i) { return box.SliceAxis(1, {i, i + 1}); };  // [regions, 1]
  // The points of an axis, [regions, bins * points], their lower neighbours, and how far beyond.
  struct Axis {
    Tensor inside, low, high, far;
  };
  const auto along = [&](int first, int64_t bins, int64_t extent) {
    const Tensor begin = corner(first);
    Tensor length = corner(first + 2) - begin;
    if (!half) length = length.Maximum(1);
    const Tensor i = Tensor::Arange(bins * points).Cast(x.dtype());
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
  const bool mean = c.String("mode", "avg") == "avg";
  Tensor all = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) all = mean ? all + terms[i] : all.Maximum(terms[i]);
  all = all.Reshape({count, x.size(1), rows, points, columns, points});
  c.Out((mean ? all.Mean({3, 5}) : all.Max({3, 5})).Cast(x.dtype()));
}

constexpr OpRow kRows[] = {{"RoiAlign", RoiAlign}};

}  // namespace

absl::Span<const OpRow> RegionOps() { return kRows; }

}  // namespace tessera::onnx
