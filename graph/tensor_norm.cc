// Normalisations.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::NormalAxis;
using internal::Show;
using internal::WideFloat;

Tensor Tensor::LayerNorm(const Tensor& weight, const Tensor& bias, double eps, int axes,
                         CallSite at) const {
  Call call("LayerNorm", at);
  if (axes < 1 || axes > rank()) Fail("cannot normalise the last ", axes, " axes of ", Show(*this));
  Ints last;
  for (int i = 0; i < axes; ++i) last.push_back(rank() - axes + i);
  const Tensor x = WideFloat(*this);
  const Tensor centred = x - x.Mean(last, /*keepdim=*/true);
  const Tensor variance = centred.Square().Mean(last, /*keepdim=*/true);
  Tensor y = (centred * (variance + eps).Rsqrt()).Cast(FloatResult(dtype()));
  if (weight) y = y * weight;
  return bias ? y + bias : y;
}

Tensor Tensor::RmsNorm(const Tensor& weight, double eps, CallSite at) const {
  Call call("RmsNorm", at);
  if (rank() == 0) Fail("takes at least one axis");
  const Tensor x = WideFloat(*this);
  const Tensor scale = (x.Square().Mean(-1, /*keepdim=*/true) + eps).Rsqrt();
  const Tensor y = (x * scale).Cast(FloatResult(dtype()));
  return weight ? y * weight : y;
}

Tensor Tensor::BatchNorm(const Tensor& mean, const Tensor& variance, const Tensor& weight,
                         const Tensor& bias, double eps, CallSite at) const {
  Call call("BatchNorm", at);
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

}  // namespace tessera
