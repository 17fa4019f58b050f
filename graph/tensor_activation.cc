// Activation functions.
#include <cmath>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::InFloats;
using internal::Show;

namespace {

// -|x|, whose derivative at 0 is 1: what is chosen up to 0 and made of it has its own derivative
// there, and is nothing infinite where it is not chosen, which its adjoint would make NaN.
Tensor Below(const Tensor& x) { return Where(x > 0, -x, x); }

// x / (1 + e^-z).
Tensor Gated(const Tensor& x, const Tensor& z) {
  const Tensor e = Below(z).Exp();
  return Where(z > 0, x, x * e) / (e + 1);
}

}  // namespace

Tensor Tensor::Relu(CallSite at) const {
  Call call("Relu", at, *this);
  if (!dtype().IsFloat()) return Maximum(dtype().IsBool() ? Operand(false) : Operand(0));
  return Where(*this <= 0, 0, *this);  // flat at zero, which a maximum is not; NaN stays
}

Tensor Tensor::Relu6(CallSite at) const {
  Call call("Relu6", at, *this);
  return dtype().IsFloat() ? Hardtanh(0, 6) : Clip(0, 6);
}

Tensor Tensor::LeakyRelu(double slope, CallSite at) const {
  Call call("LeakyRelu", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Where(x > 0, x, x * slope); });
}

Tensor Tensor::Elu(double alpha, CallSite at) const {
  Call call("Elu", at, *this);
  return InFloats(*this,
                  [&](const Tensor& x) { return Where(x > 0, x, Below(x).Expm1() * alpha); });
}

Tensor Tensor::Sigmoid(CallSite at) const {
  Call call("Sigmoid", at, *this);
  return InFloats(*this, [](const Tensor& x) {
    const Tensor e = Below(x).Exp();
    return Where(x > 0, 1, e) / (e + 1);
  });
}

Tensor Tensor::LogSigmoid(CallSite at) const {
  Call call("LogSigmoid", at, *this);
  return InFloats(*this, [](const Tensor& x) { return x.Neg().Softplus().Neg(); });
}

Tensor Tensor::HardSigmoid(double alpha, double beta, CallSite at) const {
  Call call("HardSigmoid", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return (x * alpha + beta).Clip(0, 1); });
}

Tensor Tensor::HardSwish(CallSite at) const {
  Call call("HardSwish", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return x * (x + 3).Relu6() / 6; });
}

Tensor Tensor::Silu(CallSite at) const {
  Call call("Silu", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Gated(x, x); });
}

// log(1 + e^x), without the overflow of e^x.
Tensor Tensor::Softplus(CallSite at) const {
  Call call("Softplus", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return x.Relu() + Below(x).Exp().Log1p(); });
}

Tensor Tensor::Softplus(double beta, double threshold, CallSite at) const {
  Call call("Softplus", at, *this);
  if (beta == 0) Fail("divides by beta, which is 0");
  return InFloats(*this, [&](const Tensor& x) {
    const Tensor scaled = x * beta;
    return Where(scaled > threshold, x, scaled.Softplus() / beta);
  });
}

Tensor Tensor::Softmin(int axis, CallSite at) const {
  Call call("Softmin", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return x.Neg().Softmax(axis); });
}

Tensor Tensor::Threshold(double threshold, double value, CallSite at) const {
  Call call("Threshold", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Where(x <= threshold, value, x); });
}

Tensor Tensor::Mish(CallSite at) const {
  Call call("Mish", at, *this);
  return InFloats(*this, [](const Tensor& x) { return x * x.Softplus().Tanh(); });
}

Tensor Tensor::Gelu(CallSite at) const {
  Call call("Gelu", at, *this);
  return InFloats(*this, [&](const Tensor& x) {
    return x * 0.5 * ((x * (1 / std::numbers::sqrt2)).Erf() + 1);
  });
}

Tensor Tensor::GeluTanh(CallSite at) const {
  Call call("GeluTanh", at, *this);
  const double scale = std::sqrt(2 / std::numbers::pi);
  return InFloats(*this, [&](const Tensor& x) {
    return x * 0.5 * (((x + x * x * x * 0.044715) * scale).Tanh() + 1);
  });
}

Tensor Tensor::QuickGelu(CallSite at) const {
  Call call("QuickGelu", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Gated(x, x * 1.702); });
}

Tensor Tensor::Celu(double alpha, CallSite at) const {
  Call call("Celu", at, *this);
  if (alpha == 0) Fail("divides by alpha, which is 0");
  return InFloats(
      *this, [&](const Tensor& x) { return Where(x > 0, x, (Below(x) / alpha).Expm1() * alpha); });
}

Tensor Tensor::Selu(double alpha, double gamma, CallSite at) const {
  Call call("Selu", at, *this);
  return InFloats(
      *this, [&](const Tensor& x) { return Where(x > 0, x, Below(x).Expm1() * alpha) * gamma; });
}

Tensor Tensor::Swish(double beta, CallSite at) const {
  Call call("Swish", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Gated(x, x * beta); });
}

Tensor Tensor::Softsign(CallSite at) const {
  Call call("Softsign", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return x / (x.Abs() + 1); });
}

// NaN compares as nothing and goes through.
Tensor Tensor::Softshrink(double lambda, CallSite at) const {
  Call call("Softshrink", at, *this);
  return InFloats(*this, [&](const Tensor& x) {
    return Where(x.Abs() <= lambda, 0, Where(x > 0, x - lambda, x + lambda));
  });
}

Tensor Tensor::Hardshrink(double lambda, CallSite at) const {
  Call call("Hardshrink", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Where(x.Abs() <= lambda, 0, x); });
}

Tensor Tensor::Tanhshrink(CallSite at) const {
  Call call("Tanhshrink", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return x - x.Tanh(); });
}

Tensor Tensor::Hardtanh(double low, double high, CallSite at) const {
  Call call("Hardtanh", at, *this);
  if (!(low <= high)) Fail("the bounds ", low, " and ", high, " are in no order");
  return InFloats(*this, [&](const Tensor& x) {  // flat at the bounds
    return Where(x <= low, low, Where(x >= high, high, x));
  });
}

Tensor Tensor::ThresholdedRelu(double alpha, CallSite at) const {
  Call call("ThresholdedRelu", at, *this);
  return InFloats(*this, [&](const Tensor& x) { return Where(x <= alpha, 0, x); });
}

Tensor Tensor::Prelu(const Tensor& slope, CallSite at) const {
  Call call("Prelu", at, *this, slope);
  if (!(internal::BroadcastShape(shape(), slope.shape()) == shape())) {
    Fail("the slope ", Show(slope), " does not broadcast to ", Show(*this));
  }
  return Where(*this < 0, *this * slope, *this);
}

Tensor Tensor::Glu(int axis, CallSite at) const {
  Call call("Glu", at, *this);
  const int a = internal::NormalAxis(axis, rank());
  const Extent& n = shape()[a];
  const auto half = internal::Divided(n, 2);
  if (!half) Fail("axis ", a, " of ", Show(*this), " has no halves");
  return InFloats(*this, [&](const Tensor& x) {
    return internal::KnownPart(x, a, 0, *half) * internal::KnownPart(x, a, *half, n).Sigmoid();
  });
}

Tensor Tensor::Hardmax(int axis, CallSite at) const {
  Call call("Hardmax", at, *this);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() == 0) {
    return internal::OfElement(*this, [a](const Tensor& x) { return x.Hardmax(a); });
  }
  if (shape()[a].is_int(0)) return *this;  // nothing has no maximum, and the result no elements
  const Tensor first = ArgMax(a, /*keepdim=*/true);
  const Tensor position = internal::CountAlong(a, rank(), shape()[a], kInt32);
  return (first == position).Cast(dtype());
}

}  // namespace tessera
