// Images resized, read at points of a grid, and read in regions.
#include <algorithm>
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

ResizeMode ModeOf(Call& c, const std::string& mode) {
  if (mode == "nearest") return ResizeMode::kNearest;
  if (mode == "linear" || mode == "bilinear") return ResizeMode::kLinear;
  if (mode == "cubic" || mode == "bicubic") return ResizeMode::kCubic;
  c.Fail("mode '", mode, "' is none; it is nearest, linear or cubic");
}
ResizeRounding RoundingOf(Call& c) {
  const std::string mode = c.String("nearest_mode", "round_prefer_floor");
  if (mode == "round_prefer_floor") return ResizeRounding::kRoundPreferFloor;
  if (mode == "round_prefer_ceil") return ResizeRounding::kRoundPreferCeil;
  if (mode == "floor") return ResizeRounding::kFloor;
  if (mode == "ceil") return ResizeRounding::kCeil;
  c.Fail("nearest_mode '", mode, "' is none");
}

// What of a resize is said for each axis.
struct Plan {
  std::vector<int64_t> axes, extents;
  std::vector<double> scale;
  std::vector<std::pair<double, double>> region;  // empty, or for each axis
};

// The nearest elements along an axis. Their positions are computed in f32, as ONNX's own runtimes
// do: which of two elements is nearer hangs on the last bit. `at_middle` is a mode that Tensor's
// function lacks.
struct Along {
  int axis;
  int64_t extent;
  double scale;
  std::optional<std::pair<double, double>> region;
};
Tensor PointsOf(const Along& along, int64_t in, bool at_middle, const ResizeOptions& o) {
  const auto n = static_cast<float>(in), out = static_cast<float>(along.extent);
  const auto scale = static_cast<float>(along.scale);
  const Tensor i = Tensor::Arange(along.extent, kFloat32);
  if (along.region) {
    const auto begin = static_cast<float>(along.region->first);
    const auto end = static_cast<float>(along.region->second);
    if (along.extent == 1) return i * 0 + 0.5f * (begin + end) * (n - 1);
    return i * (end - begin) * (n - 1) / (out - 1) + begin * (n - 1);
  }
  if (at_middle) return (i + 0.5) / scale;
  switch (o.coordinates) {
    case ResizeCoordinates::kAlignCorners: {
      const float length = scale * n;
      return length == 1 || along.extent == 1 ? i * 0 : i * (n - 1) / (length - 1);
    }
    case ResizeCoordinates::kAsymmetric:
      return i / scale;
    case ResizeCoordinates::kPytorchHalfPixel:
      if (along.extent == 1) return i * 0;
      break;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      const float offset = n / 2 * (1 - out / (scale * n));
      return (i + 0.5) / scale + offset - 0.5;
    }
    case ResizeCoordinates::kHalfPixel:
      break;
  }
  return (i + 0.5) / scale - 0.5;
}
Tensor NearestAlong(const Tensor& x, const Along& along, bool at_middle, const ResizeOptions& o) {
  const int64_t in = x.size(along.axis);
  const Tensor point = PointsOf(along, in, at_middle, o);
  Tensor index;
  switch (o.rounding) {
    case ResizeRounding::kRoundPreferFloor:
      index = (point - 0.5).Ceil();
      break;
    case ResizeRounding::kRoundPreferCeil:
      index = (point + 0.5).Floor();
      break;
    case ResizeRounding::kFloor:
      index = point.Floor();
      break;
    case ResizeRounding::kCeil:
      index = point.Ceil();
      break;
  }
  const Tensor y = x.Take(index.Clip(0, in - 1).Cast(kInt64), along.axis);
  if (!along.region) return y;
  std::vector<int64_t> shape(x.rank(), 1);
  shape[along.axis] = along.extent;
  return Where(((point < 0) | (point > in - 1)).Reshape(shape),
               Tensor::Scalar(o.outside, kFloat64).Cast(y.dtype()), y);
}

// The axes that change go last, are resized, and go back.
Tensor Resized(Call& c, Tensor x, const Plan& plan, ResizeOptions options, bool at_middle = false) {
  std::vector<int64_t> order, changed;
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    const bool same =
        plan.scale[i] == 1 && plan.extents[i] == x.size(static_cast<int>(plan.axes[i]));
    if (!same || !plan.region.empty()) changed.push_back(static_cast<int64_t>(i));
  }
  if (changed.empty()) return x;
  if (options.mode == ResizeMode::kNearest) {
    for (const int64_t i : changed) {
      const int axis = static_cast<int>(plan.axes[i]);
      if (plan.extents[i] < 0 || !(plan.scale[i] > 0) || x.size(axis) == 0) {
        c.Fail("cannot make ", plan.extents[i], " positions of axis ", axis, " of ",
               x.shape().ToString());
      }
      Along along{axis, plan.extents[i], plan.scale[i], {}};
      if (!plan.region.empty()) along.region = plan.region[i];
      x = NearestAlong(x, along, at_middle, options);
    }
    return x;
  }
  std::vector<bool> moves(x.rank());
  for (const int64_t i : changed) moves[plan.axes[i]] = true;
  for (int a = 0; a < x.rank(); ++a) {
    if (!moves[a]) order.push_back(a);
  }
  Ints extents;
  for (const int64_t i : changed) {
    order.push_back(plan.axes[i]);
    extents.push_back(plan.extents[i]);
    options.scale.push_back(plan.scale[i]);
    if (!plan.region.empty()) options.region.push_back(plan.region[i]);
  }
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return x.Permute(order).Resize(extents, options).Permute(back);
}

int64_t ScaledExtent(Call& c, int64_t extent, double scale) {
  // In f32, as the scale is: 5 times what 2.6 is in f32 are 13.
  const double size = std::floor(static_cast<float>(extent) * static_cast<float>(scale));
  if (!(scale > 0 && size < 1e15)) c.Fail("a scale is ", scale);
  return static_cast<int64_t>(size);
}
// Scales of all axes.
Plan ScaledPlan(Call& c, const Tensor& x, const std::vector<double>& scale) {
  if (static_cast<int>(scale.size()) != x.rank()) {
    c.Fail(scale.size(), " scales for ", x.shape().ToString());
  }
  Plan plan;
  plan.scale = scale;
  for (int a = 0; a < x.rank(); ++a) {
    plan.axes.push_back(a);
    plan.extents.push_back(ScaledExtent(c, x.size(a), scale[a]));
  }
  return plan;
}

Plan PlanOf(Call& c, const Tensor& x, bool crop) {
  Plan plan;
  for (const int64_t a : c.Ints("axes")) plan.axes.push_back(c.Axis(a, x.rank()));
  for (int a = 0; a < x.rank() && c.Find("axes") == nullptr; ++a) plan.axes.push_back(a);
  const std::string policy =
      c.Choice("keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  const size_t n = plan.axes.size();
  const auto extent = [&](size_t i) { return x.size(static_cast<int>(plan.axes[i])); };
  if (c.Has(2) && c.Input(2).tensor.elements() > 0) {
    plan.scale = c.HostFloats(2);
    if (plan.scale.size() != n) c.Fail(plan.scale.size(), " scales for ", n, " axes");
    for (size_t i = 0; i < n; ++i) {
      plan.extents.push_back(ScaledExtent(c, extent(i), plan.scale[i]));
    }
  } else {
    plan.extents = c.HostInts(3);
    if (plan.extents.size() != n) c.Fail(plan.extents.size(), " sizes for ", n, " axes");
    for (size_t i = 0; i < n; ++i) {
      plan.scale.push_back(static_cast<double>(plan.extents[i]) / static_cast<double>(extent(i)));
    }
    if (policy != "stretch") {
      const double scale = policy == "not_larger"
                               ? *std::min_element(plan.scale.begin(), plan.scale.end())
                               : *std::max_element(plan.scale.begin(), plan.scale.end());
      for (size_t i = 0; i < n; ++i) {
        plan.extents[i] =
            static_cast<int64_t>(std::floor(scale * static_cast<double>(extent(i)) + 0.5));
        plan.scale[i] = scale;
      }
    }
  }
  if (crop) {
    const std::vector<double> roi = c.HostFloats(1);
    if (roi.size() != 2 * n) c.Fail("roi has ", roi.size(), " numbers for ", n, " axes");
    for (size_t i = 0; i < n; ++i) plan.region.emplace_back(roi[i], roi[n + i]);
  }
  return plan;
}

void Resize(Call& c) {
  const Tensor x = c.In(0);
  ResizeOptions options;
  options.mode = ModeOf(c, c.String("mode", "nearest"));
  if (c.opset() < 11) {  // version 10 knew scales alone, as the second input
    options.coordinates = ResizeCoordinates::kAsymmetric;
    options.rounding = ResizeRounding::kFloor;
    return c.Out(Resized(c, x, ScaledPlan(c, x, c.HostFloats(1)), options).Cast(x.dtype()));
  }
  options.rounding = RoundingOf(c);
  options.antialias = c.Int("antialias", 0) != 0;
  options.cubic = c.Float("cubic_coeff_a", -0.75);
  options.exclude_outside = c.Int("exclude_outside", 0) != 0;
  options.outside = c.Float("extrapolation_value", 0);
  const std::string mode = c.String("coordinate_transformation_mode", "half_pixel");
  bool crop = false, at_middle = false;
  if (mode == "half_pixel") {
    options.coordinates = ResizeCoordinates::kHalfPixel;
  } else if (mode == "half_pixel_symmetric") {
    options.coordinates = ResizeCoordinates::kHalfPixelSymmetric;
  } else if (mode == "pytorch_half_pixel") {
    options.coordinates = ResizeCoordinates::kPytorchHalfPixel;
  } else if (mode == "align_corners") {
    options.coordinates = ResizeCoordinates::kAlignCorners;
  } else if (mode == "asymmetric") {
    options.coordinates = ResizeCoordinates::kAsymmetric;
  } else if (mode == "tf_crop_and_resize") {
    options.coordinates = ResizeCoordinates::kAlignCorners;
    crop = true;
  } else if (mode == "tf_half_pixel_for_nn" && options.mode == ResizeMode::kNearest) {
    at_middle = true;  // of version 11 alone
  } else {
    c.Unsupported("coordinate_transformation_mode '", mode, "'");
  }
  c.Out(Resized(c, x, PlanOf(c, x, crop), options, at_middle).Cast(x.dtype()));
}

void Upsample(Call& c) {
  const Tensor x = c.In(0);
  ResizeOptions options;
  options.mode = ModeOf(c, c.String("mode", "nearest"));
  options.coordinates = ResizeCoordinates::kAsymmetric;
  options.rounding = ResizeRounding::kFloor;
  const Plan plan = ScaledPlan(c, x, c.Has(1) ? c.HostFloats(1) : c.Floats("scales"));
  c.Out(Resized(c, x, plan, options).Cast(x.dtype()));
}

void GridSample(Call& c) {
  GridSampleOptions options;
  options.mode = ModeOf(c, c.String("mode", c.opset() < 20 ? "bilinear" : "linear"));
  const std::string padding = c.Choice("padding_mode", {"zeros", "border", "reflection"});
  if (padding == "border") options.padding = PadMode::kReplicate;
  if (padding == "reflection") options.padding = PadMode::kReflect;
  options.align_corners = c.Int("align_corners", 0) != 0;
  c.Out(c.In(0).GridSample(c.In(1), options));
}

void AffineGrid(Call& c) {
  const std::vector<int64_t> size = c.HostInts(1);
  c.Out(c.In(0).AffineGrid(Ints(size.begin(), size.end()), c.Int("align_corners", 0) != 0));
}

constexpr OpRow kRows[] = {
    {"AffineGrid", AffineGrid, HostInput({1})},
    {"GridSample", GridSample},
    {"Resize", Resize, HostInput({1, 2, 3})},
    {"Upsample", Upsample, HostInput({1})},
};

}  // namespace

absl::Span<const OpRow> ImageOps() { return kRows; }

}  // namespace tessera::onnx
