// Normalisations.
#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// One number for each channel, beside [N, C, D1, ...].
Tensor Channels(const Tensor& v, int rank) {
  std::vector<int64_t> shape(rank, 1);
  if (rank > 1) shape[1] = v.size(0);
  return v.Reshape(shape);
}
// All axes but the first two.
std::vector<int64_t> Spatial(int rank) {
  std::vector<int64_t> axes;
  for (int a = 2; a < rank; ++a) axes.push_back(a);
  return axes;
}
// The type that statistics are computed in: `stash_type`, but never one narrower than the input.
DType StashType(Call& c, DType dtype) { return Promote(dtype, c.Type("stash_type", kFloat32)); }

void BatchNormalization(Call& c) {
  const Tensor x = c.In(0);
  const DType dtype = x.dtype(), wide = Promote(dtype, kFloat32);
  const double eps = c.Float("epsilon", 1e-5);
  const Tensor scale = c.In(1), bias = c.In(2);
  Tensor mean = c.In(3), variance = c.In(4);
  // Before version 9 there could be numbers for each element, beside [N, C, D1, ...] without N.
  if (c.opset() < 9 && c.Int("spatial", 1) == 0) {
    const Tensor y = (x.Cast(wide) - mean.Cast(wide)) * (variance.Cast(wide) + eps).Rsqrt();
    return c.Out((y * scale.Cast(wide) + bias.Cast(wide)).Cast(dtype));
  }
  const bool training = c.opset() >= 14 && c.Int("training_mode", 0) != 0;
  if (training) {
    std::vector<int64_t> axes = Spatial(x.rank());
    axes.push_back(0);
    const double momentum = c.Float("momentum", 0.9);
    const Tensor own_mean = x.Cast(wide).Mean(axes), own_variance = x.Cast(wide).Var(axes, 0);
    const Tensor running_mean = mean * momentum + own_mean.Cast(mean.dtype()) * (1 - momentum);
    const Tensor running_variance =
        variance * momentum + own_variance.Cast(variance.dtype()) * (1 - momentum);
    const Tensor y = (x.Cast(wide) - Channels(own_mean, x.rank())) *
                     (Channels(own_variance, x.rank()) + eps).Rsqrt();
    c.Out((y * Channels(scale.Cast(wide), x.rank()) + Channels(bias.Cast(wide), x.rank()))
              .Cast(dtype));
    c.Out(running_mean);
    c.Out(running_variance);
    return;
  }
  mean = Channels(mean.Cast(wide), x.rank());
  variance = Channels(variance.Cast(wide), x.rank());
  const Tensor y = (x.Cast(wide) - mean) * (variance + eps).Rsqrt();
  c.Out(
      (y * Channels(scale.Cast(wide), x.rank()) + Channels(bias.Cast(wide), x.rank())).Cast(dtype));
}

// x with mean 0 and deviation 1 over the axes; outputs that are statistics keep those axes.
struct Standard {
  Tensor y, mean, inverse;
};
Standard Standardised(const Tensor& x, const Axes& axes, double eps) {
  const Tensor mean = x.Mean(axes, true), centred = x - mean;
  const Tensor inverse = (centred.Square().Mean(axes, true) + eps).Rsqrt();
  return {centred * inverse, mean, inverse};
}

void InstanceNormalization(Call& c) {
  const Tensor x = c.In(0), wide = x.Cast(Promote(x.dtype(), kFloat32));
  const Tensor y = Standardised(wide, Spatial(x.rank()), c.Float("epsilon", 1e-5)).y;
  const Tensor scale = Channels(c.In(1), x.rank()), bias = Channels(c.In(2), x.rank());
  c.Out((y * scale + bias).Cast(x.dtype()));
}

// Before version 21 scale and bias are one number a group, then one a channel.
void GroupNormalization(Call& c) {
  const Tensor x = c.In(0);
  const int64_t groups = c.Int("num_groups");
  if (x.rank() < 2 || groups < 1 || x.size(1) % groups != 0) {
    c.Fail("the channels of ", x.shape().ToString(), " are no multiple of ", groups, " groups");
  }
  const std::vector<int64_t> shape = Sizes(x);
  const int64_t each = shape[1] / groups;
  const Tensor in = x.Cast(StashType(c, x.dtype())).Reshape({shape[0], groups, -1});
  const Tensor y = Standardised(in, 2, c.Float("epsilon", 1e-5)).y.Cast(x.dtype());
  Tensor scale = c.In(1), bias = c.In(2);
  if (scale.size(0) == groups && each > 1) {
    scale = scale.RepeatInterleave(each, 0);
    bias = bias.RepeatInterleave(each, 0);
  }
  c.Out(y.Reshape(shape) * Channels(scale, x.rank()) + Channels(bias, x.rank()));
}

std::vector<int64_t> From(int axis, int rank) {
  std::vector<int64_t> axes;
  for (int a = axis; a < rank; ++a) axes.push_back(a);
  return axes;
}
void LayerNormalization(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", -1), x.rank());
  const Tensor wide = x.Cast(StashType(c, x.dtype()));
  const Standard s = Standardised(wide, From(axis, x.rank()), c.Float("epsilon", 1e-5));
  Tensor y = s.y.Cast(x.dtype()) * c.In(1);
  if (c.Has(2)) y = y + c.In(2);
  c.Out(y);
  if (c.Wants(1) || c.Wants(2)) c.Out(s.mean);
  if (c.Wants(2)) c.Out(s.inverse);
}
void RmsNormalization(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", -1), x.rank());
  const Tensor wide = x.Cast(StashType(c, x.dtype()));
  const Tensor mean = wide.Square().Mean(From(axis, x.rank()), true);
  c.Out((wide * (mean + c.Float("epsilon", 1e-5)).Rsqrt()).Cast(x.dtype()) * c.In(1));
}

void Lrn(Call& c) {
  c.Out(c.In(0).LocalResponseNorm(c.Int("size"), c.Float("alpha", 1e-4), c.Float("beta", 0.75),
                                  c.Float("bias", 1)));
}

constexpr OpRow kRows[] = {
    {"BatchNormalization", BatchNormalization},
    {"GroupNormalization", GroupNormalization, 0, Flow::kBatch},
    {"InstanceNormalization", InstanceNormalization, 0, Flow::kBatch},
    {"LRN", Lrn, 0, Flow::kBatch},
    {"LayerNormalization", LayerNormalization},
    {"RMSNormalization", RmsNormalization},
};

}  // namespace

absl::Span<const OpRow> NormOps() { return kRows; }

}  // namespace tessera::onnx
