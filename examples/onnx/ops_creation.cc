// Constants, ranges, shapes as values, random numbers, windows.
#include <algorithm>
#include <cmath>

#include "examples/onnx/call.h"
#include "examples/onnx/import.h"
#include "examples/onnx/strings.h"

namespace tessera::onnx {
namespace {

constexpr double kPi = 3.14159265358979323846;

void Constant(Call& c) {
  if (c.Find("value") != nullptr) return c.Out(MakeValue(c.TensorOf("value"), "CPU", true));
  const auto known = [&](const Tensor& t) { c.Out(Value{t, true}); };
  if (c.Find("value_int") != nullptr) {
    return known(Tensor::From(std::vector<int64_t>{c.Int("value_int")}, {}, "CPU"));
  }
  if (const Attribute* a = c.Find("value_float")) {
    return known(Tensor::From(std::vector<float>{a->f}, {}, "CPU"));
  }
  if (const Attribute* a = c.Find("value_ints")) {
    return known(Tensor::From(a->ints, {static_cast<int64_t>(a->ints.size())}, "CPU"));
  }
  if (const Attribute* a = c.Find("value_floats")) {
    return known(Tensor::From(a->floats, {static_cast<int64_t>(a->floats.size())}, "CPU"));
  }
  if (const Attribute* a = c.Find("value_string")) {
    return OutStrings(c, {std::string(a->s)}, {});
  }
  if (c.Find("value_strings") != nullptr) {
    const std::vector<std::string> texts = c.Strings("value_strings");
    return OutStrings(c, texts, {static_cast<int64_t>(texts.size())});
  }
  c.Unsupported("it holds neither a tensor nor numbers nor strings");
}

// The one element of a tensor attribute, as a number of its dtype.
Number NumberOf(const TensorData& t) {
  const DType dtype = *t.dtype();
  const Scalar s = LoadScalar(t.bytes().data(), dtype);
  if (dtype.IsFloat()) return s.AsFloat();
  if (dtype == kUInt64) return s.bits;
  return s.AsInt();
}
void ConstantOfShape(Call& c) {
  const std::vector<int64_t> shape = c.HostInts(0);
  if (c.Find("value") == nullptr) return c.Out(Tensor::Zeros(shape));
  const TensorData& t = c.TensorOf("value");
  if (!t.dtype()) c.Unsupported(ElementName(t.element), " is none of a Tensor");
  if (t.bytes().empty()) c.Fail("its value has no element");
  c.OutOf(Tensor::Full(shape, NumberOf(t), *t.dtype()), t.element);
}

void EyeLike(Call& c) {
  const Tensor x = c.In(0);
  if (x.rank() != 2) c.Fail("the input has shape ", x.shape().ToString(), "; it is a matrix");
  const int64_t k = c.Int("k", 0);
  const Tensor rows = Tensor::Arange(x.size(0), kInt64).Unsqueeze(1);
  c.Out((Tensor::Arange(x.size(1), kInt64) - rows == k).Cast(c.Type("dtype", x.dtype())));
}

// start + i * delta, for i below the ceiling of (limit - start) / delta.
void Range(Call& c) {
  const DType dtype = c.Input(0).tensor.dtype();
  if (dtype.IsFloat()) {
    const double start = c.HostFloat(0), limit = c.HostFloat(1), delta = c.HostFloat(2);
    const double n = std::ceil((limit - start) / delta);
    if (!(n < 1e15)) c.Fail("from ", start, " to ", limit, " by ", delta, " never ends");
    const auto count = static_cast<int64_t>(std::max(n, 0.0));
    return c.Out((Tensor::Arange(count, kInt64).Cast(kFloat64) * delta + start).Cast(dtype));
  }
  const int64_t start = c.HostInt(0), limit = c.HostInt(1), delta = c.HostInt(2);
  if (delta == 0) c.Fail("delta is 0");
  // In 128 bits nothing overflows.
  const __int128 span = static_cast<__int128>(limit) - start, step = delta;
  const __int128 n = (span + step + (step > 0 ? -1 : 1)) / step;
  if (n > int64_t{1} << 50) c.Fail("from ", start, " to ", limit, " by ", delta, " is too long");
  const auto count = static_cast<int64_t>(std::max<__int128>(n, 0));
  c.Out((Tensor::Arange(count, kInt64) * delta + start).Cast(dtype));
}

void ShapeOf(Call& c) {
  const std::vector<int64_t> shape = Sizes(c.Input(0).tensor);
  const auto rank = static_cast<int64_t>(shape.size());
  const auto bound = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = bound(c.Int("start", 0)), end = bound(c.Int("end", rank));
  std::vector<int64_t> part;
  for (int64_t i = begin; i < end; ++i) part.push_back(shape[i]);
  c.Out(Tensor::From(part, {static_cast<int64_t>(part.size())}, "CPU"));
}
void SizeOf(Call& c) {
  c.Out(Tensor::From(std::vector<int64_t>{c.Input(0).tensor.elements()}, {}, "CPU"));
}

// Windows: sums of cosines over [0, n) where they are periodic, else over [0, n - 1].
void Window(Call& c, double a0, double a1, double a2) {
  const int64_t n = c.HostInt(0);
  if (n < 0) c.Fail("its size is ", n);
  const bool periodic = c.Int("periodic", 1) != 0;
  const double span = static_cast<double>(periodic ? n : std::max<int64_t>(n - 1, 1));
  const Tensor angle = Tensor::Arange(n, kInt64).Cast(kFloat64) * (2 * kPi / span);
  const Tensor w = a0 - a1 * angle.Cos() + a2 * (2 * angle).Cos();
  c.Out(w.Cast(c.Type("output_datatype", kFloat32)));
}
void HannWindow(Call& c) { Window(c, 0.5, 0.5, 0); }
void HammingWindow(Call& c) { Window(c, 25.0 / 46, 21.0 / 46, 0); }
void BlackmanWindow(Call& c) { Window(c, 0.42, 0.5, 0.08); }

// Random numbers follow Tensor's generator: their bits are not those of other runtimes.
DType RandomType(Call& c, DType other) { return c.Type("dtype", other); }
Tensor UniformOf(Call& c, const std::vector<int64_t>& shape, DType dtype) {
  c.importer().CountDraw();
  return Tensor::Uniform(c.Float("low", 0), c.Float("high", 1), shape, kFloat32).Cast(dtype);
}
Tensor NormalOf(Call& c, const std::vector<int64_t>& shape, DType dtype) {
  c.importer().CountDraw();
  return (Tensor::RandN(shape) * c.Float("scale", 1) + c.Float("mean", 0)).Cast(dtype);
}
void RandomUniform(Call& c) { c.Out(UniformOf(c, c.Ints("shape"), RandomType(c, kFloat32))); }
void RandomNormal(Call& c) { c.Out(NormalOf(c, c.Ints("shape"), RandomType(c, kFloat32))); }
void RandomUniformLike(Call& c) {
  const Tensor& x = c.Input(0).tensor;
  c.Out(UniformOf(c, Sizes(x), RandomType(c, x.dtype())));
}
void RandomNormalLike(Call& c) {
  const Tensor& x = c.Input(0).tensor;
  c.Out(NormalOf(c, Sizes(x), RandomType(c, x.dtype())));
}
void Bernoulli(Call& c) {
  c.importer().CountDraw();
  const Tensor x = c.In(0);
  c.Out((Tensor::Rand(x.shape()) < x).Cast(RandomType(c, x.dtype())));
}
// Positions of the last axis, drawn by the logarithms of their weights.
void Multinomial(Call& c) {
  c.importer().CountDraw();
  const Tensor weights = c.In(0).Softmax(-1);
  const int64_t n = c.Int("sample_size", 1);
  const Tensor below = weights.CumSum(-1).Unsqueeze(1);  // [batch, 1, classes]
  const Tensor u = Tensor::Rand({weights.size(0), n, 1});
  const Tensor drawn = (u >= below).Cast(kInt32).Sum({2}).Minimum(weights.size(1) - 1);
  c.Out(drawn.Cast(RandomType(c, kInt32)));
}

void Dropout(Call& c) {
  const Tensor x = c.In(0);
  const bool training = c.opset() >= 12 && c.Has(2) && c.HostInt(2) != 0;
  const double ratio = c.opset() < 12 ? c.Float("ratio", 0.5) : c.Has(1) ? c.HostFloat(1) : 0.5;
  if (!training || ratio == 0) {
    c.Out(x);
    if (c.Wants(1)) c.Out(Tensor::Full(x.shape(), true).Cast(c.opset() < 10 ? x.dtype() : kBool));
    return;
  }
  if (!(ratio > 0 && ratio < 1)) c.Fail("ratio is ", ratio, "; it is from 0 to below 1");
  c.importer().CountDraw();
  const Tensor kept = Tensor::Rand(x.shape()) >= ratio;
  c.Out(Where(kept, x / (1 - ratio), 0));
  c.Out(kept);
}

constexpr OpRow kRows[] = {
    {"Bernoulli", Bernoulli},
    {"BlackmanWindow", BlackmanWindow, HostInput({0})},
    {"Constant", Constant},
    {"ConstantOfShape", ConstantOfShape, HostInput({0})},
    {"Dropout", Dropout, HostInput({1, 2})},
    {"EyeLike", EyeLike},
    {"HammingWindow", HammingWindow, HostInput({0})},
    {"HannWindow", HannWindow, HostInput({0})},
    {"Multinomial", Multinomial},
    {"RandomNormal", RandomNormal},
    {"RandomNormalLike", RandomNormalLike},
    {"RandomUniform", RandomUniform},
    {"RandomUniformLike", RandomUniformLike},
    {"Range", Range, HostInput({0, 1, 2})},
    {"Shape", ShapeOf, 0, Flow::kAny, true},
    {"Size", SizeOf, 0, Flow::kAny, true},
};

}  // namespace

absl::Span<const OpRow> CreationOps() { return kRows; }

}  // namespace tessera::onnx
