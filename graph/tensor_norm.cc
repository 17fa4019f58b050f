// Normalisations.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;

namespace {

Ints LastAxes(const Tensor& x, int n) {
  if (n < 1 || n > x.rank()) Fail("cannot normalise the last ", n, " axes of ", Show(x));
  Ints last;
  for (int i = 0; i < n; ++i) last.push_back(x.rank() - n + i);
  return last;
}

}  // namespace

Tensor Tensor::LayerNorm(const Tensor& weight, const Tensor& bias, double eps, int axes,
                         CallSite at) const {
  Call call("LayerNorm", at, *this, weight, bias);
  const Ints last = LastAxes(*this, axes);
  const Tensor x = WideFloat(*this);
  const Tensor centred = x - x.Mean(last, /*keepdim=*/true);
  const Tensor variance = centred.Square().Mean(last, /*keepdim=*/true);
  Tensor y = (centred * (variance + eps).Rsqrt()).Cast(FloatResult(dtype()));
  if (weight) y = y * weight;
  return bias ? y + bias : y;
}

Tensor Tensor::RmsNorm(const Tensor& weight, double eps, int axes, CallSite at) const {
  Call call("RmsNorm", at, *this, weight);
  const Tensor x = WideFloat(*this);
  const Ints last = LastAxes(*this, axes);
  const Tensor scale = (x.Square().Mean(last, /*keepdim=*/true) + eps).Rsqrt();
  const Tensor y = (x * scale).Cast(FloatResult(dtype()));
  return weight ? y * weight : y;
}

Tensor Tensor::BatchNorm(const Tensor& mean, const Tensor& variance, const Tensor& weight,
                         const Tensor& bias, double eps, CallSite at) const {
  Call call("BatchNorm", at, *this, mean, variance, weight, bias);
  if (rank() < 2) Fail("takes [N, C, ...], not ", Show(*this));
  Extents dims(rank() - 1, 1);
  dims[0] = shape()[1];
  const auto per_channel = [&](const Tensor& t) {
    if (!(t.shape().Elements() == shape()[1])) {
      Fail(Show(t), " must have one element for each channel (axis 1) of ", Show(*this));
    }
    return WideFloat(t).Reshape(dims);
  };
  Tensor scale = (per_channel(variance) + eps).Rsqrt();
  if (weight) scale = scale * per_channel(weight);
  Tensor y = (WideFloat(*this) - per_channel(mean)) * scale;
  if (bias) y = y + per_channel(bias);
  return y.Cast(FloatResult(dtype()));
}

namespace {

// One element a channel, along axis 1.
Tensor PerChannel(const Tensor& of, const Tensor& x) {
  if (!(of.shape().Elements() == x.shape()[1])) {
    Fail(Show(of), " must have one element for each channel (axis 1) of ", Show(x));
  }
  Extents dims(x.rank() - 1, 1);
  dims[0] = x.shape()[1];
  return WideFloat(of).Reshape(dims);
}

Tensor Scaled(Tensor y, const Tensor& like, const Tensor& weight, const Tensor& bias) {
  if (weight) y = y * PerChannel(weight, like);
  if (bias) y = y + PerChannel(bias, like);
  return y.Cast(FloatResult(like.dtype()));
}

// By groups of so many channels each. The channels stay apart by groups up to the result: what is
// known of a group is then known where the result is computed.
Tensor Grouped(const Tensor& t, const Extent& groups, const Extent& each, const Tensor& weight,
               const Tensor& bias, double eps) {
  Extents split = {t.shape()[0], groups, each};
  for (int i = 2; i < t.rank(); ++i) split.push_back(t.shape()[i]);
  Ints axes;
  for (int i = 2; i < static_cast<int>(split.size()); ++i) axes.push_back(i);
  const auto by_groups = [&](const Tensor& of) {
    Extents dims(t.rank(), 1);
    dims[0] = groups;
    dims[1] = each;
    return PerChannel(of, t).Reshape(dims);
  };
  const Tensor x = WideFloat(t).Reshape(split);
  const Tensor centred = x - x.Mean(axes, /*keepdim=*/true);
  const Tensor variance = centred.Square().Mean(axes, /*keepdim=*/true);
  Tensor y = centred * (variance + eps).Rsqrt();
  if (weight) y = y * by_groups(weight);
  if (bias) y = y + by_groups(bias);
  return y.Cast(FloatResult(t.dtype())).Reshape(t.shape());
}

}  // namespace

Tensor Tensor::GroupNorm(int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                         CallSite at) const {
  Call call("GroupNorm", at, *this, weight, bias);
  const auto each = rank() < 2 ? std::nullopt : internal::Divided(shape()[1], groups);
  if (!each) Fail("takes [N, C, ...] with C a multiple of ", groups, " groups, not ", Show(*this));
  return Grouped(*this, groups, *each, weight, bias, eps);
}

Tensor Tensor::InstanceNorm(const Tensor& weight, const Tensor& bias, double eps,
                            CallSite at) const {
  Call call("InstanceNorm", at, *this, weight, bias);
  if (rank() < 3) Fail("takes [N, C, D1, ...], not ", Show(*this));
  return Grouped(*this, shape()[1], 1, weight, bias, eps);
}

Normalised Tensor::BatchNormTraining(const Tensor& weight, const Tensor& bias, double eps,
                                     int correction, CallSite at) const {
  Call call("BatchNormTraining", at, *this, weight, bias);
  if (rank() < 2) Fail("takes [N, C, ...], not ", Show(*this));
  Ints axes = {0};
  Extent n = shape()[0];
  for (int i = 2; i < rank(); ++i) {
    axes.push_back(i);
    n = n * shape()[i];
  }
  const Tensor x = WideFloat(*this);
  const Tensor mean = x.Mean(axes, /*keepdim=*/true), centred = x - mean;
  const Tensor variance = centred.Square().Mean(axes, /*keepdim=*/true);
  const Tensor y = Scaled(centred * (variance + eps).Rsqrt(), *this, weight, bias);
  Tensor given = variance.Squeeze(axes);
  if (correction != 0)
    given = given * FromExtent(n, x.dtype()) / FromExtent(n - correction, x.dtype());
  return {y, mean.Squeeze(axes), given};
}

// Of an even size, one channel more after than before.
Tensor Tensor::LocalResponseNorm(int64_t size, double alpha, double beta, double bias,
                                 CallSite at) const {
  Call call("LocalResponseNorm", at, *this);
  if (rank() < 2 || size < 1) {
    Fail("takes [N, C, ...] and at least one channel, not ", Show(*this), " and ", size);
  }
  const Tensor x = WideFloat(*this);
  if (shape()[1].is_int(0)) return x.Cast(FloatResult(dtype()));
  Pairs pairs(rank(), {0, 0});
  pairs[1] = {(size - 1) / 2, size / 2};
  const Tensor sum = x.Square().Pad(pairs).Window(1, {size}).Sum(-1);
  const Tensor scale = sum * (alpha / static_cast<double>(size)) + bias;
  return (x / scale.Pow(beta)).Cast(FloatResult(dtype()));
}

Tensor Tensor::LpNormalize(double p, int axis, double eps, CallSite at) const {
  Call call("LpNormalize", at, *this);
  const Tensor x = WideFloat(*this);
  return (x / x.Norm(p, axis, /*keepdim=*/true).Maximum(eps)).Cast(FloatResult(dtype()));
}

}  // namespace tessera
