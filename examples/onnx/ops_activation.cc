// Activations.
#include "absl/strings/match.h"
#include "examples/onnx/activation.h"
#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

using Unary = Tensor (*)(const Tensor& x);
template <Unary fn>
void One(Call& c) {
  c.Out(fn(c.In(0)));
}

Tensor Relu(const Tensor& x) { return x.Relu(); }
Tensor Sigmoid(const Tensor& x) { return x.Sigmoid(); }
Tensor Tanh(const Tensor& x) { return x.Tanh(); }
Tensor Softplus(const Tensor& x) { return x.Softplus(); }
Tensor Softsign(const Tensor& x) { return x / (x.Abs() + 1); }
Tensor Mish(const Tensor& x) { return x.Mish(); }
Tensor HardSwish(const Tensor& x) { return x.HardSwish(); }

void Celu(Call& c) {
  const Tensor x = c.In(0);
  const double alpha = c.Float("alpha", 1);
  c.Out(x.Maximum(0) + ((x / alpha).Expm1() * alpha).Minimum(0));
}
void Elu(Call& c) { c.Out(c.In(0).Elu(c.Float("alpha", 1))); }
void Gelu(Call& c) {
  c.Out(c.Choice("approximate", {"none", "tanh"}) == "tanh" ? c.In(0).GeluTanh() : c.In(0).Gelu());
}
void HardSigmoid(Call& c) {
  c.Out((c.In(0) * c.Float("alpha", 0.2) + c.Float("beta", 0.5)).Clip(0, 1));
}
void LeakyRelu(Call& c) { c.Out(c.In(0).LeakyRelu(c.Float("alpha", 0.01))); }
void PRelu(Call& c) {
  const Tensor x = c.In(0);
  Tensor slope = c.In(1);
  // Before version 7 a slope for each channel had no axes after it.
  if (c.opset() < 7 && slope.rank() == 1 && x.rank() > 1) {
    std::vector<int64_t> shape(x.rank() - 1, 1);
    shape[0] = slope.size(0);
    slope = slope.Reshape(shape);
  }
  c.Out(Where(x < 0, x * slope, x));
}
void Selu(Call& c) {
  const Tensor x = c.In(0);
  const double alpha = c.Float("alpha", 1.67326319217681884765625);
  const double gamma = c.Float("gamma", 1.05070102214813232421875);
  c.Out(Where(x > 0, x, x.Minimum(0).Expm1() * alpha) * gamma);
}
void Shrink(Call& c) {
  const Tensor x = c.In(0);
  const double bias = c.Float("bias", 0), lambda = c.Float("lambd", 0.5);
  const DType dtype = x.dtype();
  const Tensor wide = dtype.IsFloat() ? x : x.Cast(kFloat32);
  c.Out(Where(wide < -lambda, wide + bias, Where(wide > lambda, wide - bias, 0)).Cast(dtype));
}
void Swish(Call& c) {
  const Tensor x = c.In(0);
  c.Out(x * (x * c.Float("alpha", 1)).Sigmoid());
}
void SwiGlu(Call& c) {
  const Tensor gate = c.In(0);
  c.Out(gate.Swish(c.Float("alpha", 1)) * c.In(1));
}
void ThresholdedRelu(Call& c) {
  const Tensor x = c.In(0);
  c.Out(Where(x > c.Float("alpha", 1), x, 0));
}

constexpr Flow kEach = Flow::kElementwise;
constexpr OpRow kRows[] = {
    {"Celu", Celu, 0, kEach},
    {"Elu", Elu, 0, kEach},
    {"Gelu", Gelu, 0, kEach},
    {"HardSigmoid", HardSigmoid, 0, kEach},
    {"HardSwish", One<HardSwish>, 0, kEach},
    {"LeakyRelu", LeakyRelu, 0, kEach},
    {"Mish", One<Mish>, 0, kEach},
    {"PRelu", PRelu, 0, kEach},
    {"Relu", One<Relu>, 0, kEach},
    {"Selu", Selu, 0, kEach},
    {"Shrink", Shrink, 0, kEach},
    {"Sigmoid", One<Sigmoid>, 0, kEach},
    {"Softplus", One<Softplus>, 0, kEach},
    {"Softsign", One<Softsign>, 0, kEach},
    {"SwiGLU", SwiGlu, 0, kEach},
    {"Swish", Swish, 0, kEach},
    {"Tanh", One<Tanh>, 0, kEach},
    {"ThresholdedRelu", ThresholdedRelu, 0, kEach},
};

constexpr NamedActivation kActivations[] = {
    {"Affine", 2, 1, 0, [](const Tensor& x, double a, double b) { return x * a + b; }},
    {"Celu", 1, 1, 0,
     [](const Tensor& x, double a, double) {
       return x.Maximum(0) + ((x / a).Expm1() * a).Minimum(0);
     }},
    {"Elu", 1, 1, 0, [](const Tensor& x, double a, double) { return x.Elu(a); }},
    {"HardSigmoid", 2, 0.2, 0.5,
     [](const Tensor& x, double a, double b) { return (x * a + b).Clip(0, 1); }},
    {"LeakyRelu", 1, 0.01, 0, [](const Tensor& x, double a, double) { return x.LeakyRelu(a); }},
    {"Relu", 0, 0, 0, [](const Tensor& x, double, double) { return x.Relu(); }},
    {"ScaledTanh", 2, 1, 1, [](const Tensor& x, double a, double b) { return (x * b).Tanh() * a; }},
    {"Selu", 2, 1.67326319217681884765625, 1.05070102214813232421875,
     [](const Tensor& x, double a, double b) {
       return Where(x > 0, x, x.Minimum(0).Expm1() * a) * b;
     }},
    {"Sigmoid", 0, 0, 0, [](const Tensor& x, double, double) { return x.Sigmoid(); }},
    {"Softplus", 0, 0, 0, [](const Tensor& x, double, double) { return x.Softplus(); }},
    {"Softsign", 0, 0, 0, [](const Tensor& x, double, double) { return x / (x.Abs() + 1); }},
    {"Tanh", 0, 0, 0, [](const Tensor& x, double, double) { return x.Tanh(); }},
    {"ThresholdedRelu", 1, 1, 0,
     [](const Tensor& x, double a, double) { return Where(x > a, x, 0); }},
};

}  // namespace

const NamedActivation* FindActivation(const std::string& name) {
  for (const NamedActivation& a : kActivations) {
    if (absl::EqualsIgnoreCase(a.name, name)) return &a;
  }
  return nullptr;
}

absl::Span<const OpRow> ActivationOps() { return kRows; }

}  // namespace tessera::onnx
