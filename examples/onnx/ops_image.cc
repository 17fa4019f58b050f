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

// The axes that change go last, are resized, and go back.
Tensor Resized(const Tensor& x, const Plan& plan, ResizeOptions options) {
  std::vector<int64_t> order, changed;
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    const bool same =
        plan.scale[i] == 1 && plan.extents[i] == x.size(static_cast<int>(plan.axes[i]));
    if (!same || !plan.region.empty()) changed.push_back(static_cast<int64_t>(i));
  }
  if (changed.empty()) return x;
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
  const double size = std::floor(static_cast<double>(extent) * scale);
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
    const std::string policy = c.String("keep_aspect_ratio_policy", "stretch");
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
    return c.Out(Resized(x, ScaledPlan(c, x, c.HostFloats(1)), options).Cast(x.dtype()));
  }
  options.rounding = RoundingOf(c);
  options.antialias = c.Int("antialias", 0) != 0;
  options.cubic = c.Float("cubic_coeff_a", -0.75);
  options.exclude_outside = c.Int("exclude_outside", 0) != 0;
  options.outside = c.Float("extrapolation_value", 0);
  const std::string mode = c.String("coordinate_transformation_mode", "half_pixel");
  bool crop = false;
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
  } else {
    c.Unsupported("coordinate_transformation_mode '", mode, "'");
  }
  c.Out(Resized(x, PlanOf(c, x, crop), options).Cast(x.dtype()));
}

void Upsample(Call& c) {
  const Tensor x = c.In(0);
  ResizeOptions options;
  options.mode = ModeOf(c, c.String("mode", "nearest"));
  options.coordinates = ResizeCoordinates::kAsymmetric;
  options.rounding = ResizeRounding::kFloor;
  const Plan plan = ScaledPlan(c, x, c.Has(1) ? c.HostFloats(1) : c.Floats("scales"));
  c.Out(Resized(x, plan, options).Cast(x.dtype()));
}

void GridSample(Call& c) {
  GridSampleOptions options;
  options.mode = ModeOf(c, c.String("mode", c.opset() < 20 ? "bilinear" : "linear"));
  const std::string padding = c.String("padding_mode", "zeros");
  if (padding == "border") options.padding = PadMode::kReplicate;
  if (padding == "reflection") options.padding = PadMode::kReflect;
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    c.Fail("padding_mode '", padding, "' is none; it is zeros, border or reflection");
  }
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
