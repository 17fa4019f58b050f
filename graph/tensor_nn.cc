// Contractions, convolutions, pooling, norms and attention, as compositions of primitives.
#include <cmath>
#include <limits>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Fail;
using internal::ReshapeTo;
using internal::Show;

namespace {

// What a product of two tensors is summed in, and given back in: narrow integers as Sum gives them,
// narrow floats in f32 and rounded at the end.
struct ContractionTypes {
  DType wide, result;
};

ContractionTypes TypesOf(const Tensor& a, const Tensor& b) {
  const DType result = SumType(Promote(a.dtype(), b.dtype()));
  return {AccumulateType(result), result};
}

// The sum over one axis of the products of two nodes that broadcast to `shape`, the axis dropped.
Tensor Contract(const UOp& a, const UOp& b, const Shape& shape, int axis, DType result) {
  const UOp product = Build(
      Op::kMul, {internal::BroadcastTo(a, shape, true), internal::BroadcastTo(b, shape, true)});
  const UOp sum = Build(Op::kReduce, {product}, ReduceArg{Op::kAdd, {axis}});
  Extents dims = shape.ToExtents();
  dims.erase(dims.begin() + axis);
  return Tensor(CastTo(ReshapeTo(sum, dims), result));
}

Extents WithAxis(const Shape& shape, int axis) {
  Extents dims = shape.ToExtents();
  dims.insert(dims.begin() + axis, 1);
  return dims;
}

}  // namespace

// Rows [..., M, K, 1] times columns [..., 1, K, N], summed over K. The operands need no transpose.
Tensor Tensor::MatMul(const Tensor& b, CallSite at) const {
  Call call("MatMul", at);
  if (rank() == 0 || b.rank() == 0) {
    Fail("takes vectors and matrices, not ", Show(*this), " and ", Show(b), "; use *");
  }
  const int inner = b.rank() == 1 ? 0 : b.rank() - 2;
  if (!(shape()[rank() - 1] == b.shape()[inner])) {
    Fail("the last axis of ", Show(*this), " and axis ", inner, " of ", Show(b),
         " differ: ", shape()[rank() - 1].ToString(), " and ", b.shape()[inner].ToString());
  }
  const auto [wide, result] = TypesOf(*this, b);
  const UOp x = CastTo(uop(), wide), y = CastTo(b.uop(), wide);
  if (b.rank() == 1) return Contract(x, y, shape(), rank() - 1, result);
  if (rank() == 1) {
    const UOp column = ReshapeTo(x, {shape()[0], 1});
    return Contract(column, y, b.shape(), b.rank() - 2, result);
  }
  const UOp rows = ReshapeTo(x, WithAxis(shape(), rank()));
  const UOp columns = ReshapeTo(y, WithAxis(b.shape(), b.rank() - 2));
  const Shape all = internal::BroadcastShape(rows.shape(), columns.shape());
  return Contract(rows, columns, all, all.rank() - 2, result);
}

Tensor Tensor::Dot(const Tensor& b, CallSite at) const {
  Call call("Dot", at);
  return MatMul(b, at);
}

Tensor Tensor::Linear(const Tensor& weight, const Tensor& bias, CallSite at) const {
  Call call("Linear", at);
  if (weight.rank() != 2 || rank() == 0 || !(shape()[rank() - 1] == weight.shape()[1])) {
    Fail("the weight ", Show(weight), " must be [out, in], and `in` the last axis of ",
         Show(*this));
  }
  const auto [wide, result] = TypesOf(*this, weight);
  const UOp x = CastTo(uop(), wide), w = CastTo(weight.uop(), wide);
  const UOp rows = ReshapeTo(x, WithAxis(shape(), rank() - 1));
  const Shape all = internal::BroadcastShape(rows.shape(), w.shape());
  const Tensor product = Contract(rows, w, all, all.rank() - 1, result);
  return bias ? product + bias : product;
}

// ---- convolution and pooling

namespace {

void CheckPair(const char* what, const Ints& v, int64_t least) {
  if (v.size() != 2 || v[0] < least || v[1] < least) {
    Fail("the ", what, " must be two numbers, height and width, from ", least, " up");
  }
}

Tensor Padded(const Tensor& x, const Ints& padding, Number value) {
  if (padding[0] == 0 && padding[1] == 0) return x;
  return x.Pad({{0, 0}, {0, 0}, {padding[0], padding[0]}, {padding[1], padding[1]}}, value);
}

// Windows of images, [N, C, positions, positions, h, w].
Tensor Windows(const Tensor& x, const Pool2dOptions& o, Number padding) {
  CheckPair("size", o.size, 1);
  CheckPair("padding", o.padding, 0);
  CheckPair("dilation", o.dilation, 1);
  const Ints stride = o.stride.empty() ? o.size : o.stride;
  CheckPair("stride", stride, 1);
  if (x.rank() != 4) Fail("takes images [N, C, H, W], not ", Show(x));
  return Padded(x, o.padding, padding).Window({2, 3}, o.size, stride, o.dilation);
}

}  // namespace

Tensor Tensor::Conv2d(const Tensor& weight, CallSite at) const {
  return Conv2d(weight, Conv2dOptions(), at);
}

// Products over [N, groups, out / groups, in / groups, positions, positions, h, w].
Tensor Tensor::Conv2d(const Tensor& weight, const Conv2dOptions& o, CallSite at) const {
  Call call("Conv2d", at);
  if (rank() != 4 || weight.rank() != 4) {
    Fail("takes images [N, C, H, W] and a weight [out, C / groups, h, w], not ", Show(*this),
         " and ", Show(weight));
  }
  const int64_t g = o.groups, in = size(1), out = weight.size(0);
  if (g < 1 || in % g != 0 || out % g != 0 || weight.size(1) != in / g) {
    Fail("the weight ", Show(weight), " does not fit ", Show(*this), " in ", g,
         " groups: it must be [out, ", g < 1 ? 0 : in / g, ", h, w], and both ", in, " and ", out,
         " multiples of the groups");
  }
  const auto [wide, result] = TypesOf(*this, weight);
  const int64_t h = weight.size(2), w = weight.size(3);
  const Tensor windows =
      Windows(Cast(wide), {{h, w}, o.stride, o.padding, o.dilation, /*count_padding=*/true}, 0);
  const Extent n = shape()[0];
  const int64_t rows = windows.size(2), columns = windows.size(3);
  const Tensor x = windows.Reshape({n, g, 1, in / g, rows, columns, h, w});
  const Tensor k = weight.Cast(wide).Reshape({1, g, out / g, in / g, 1, 1, h, w});
  const Tensor y = (x * k).Sum({3, 6, 7}).Reshape({n, out, rows, columns}).Cast(result);
  return o.bias ? y + o.bias.Reshape({o.bias.shape().Elements(), 1, 1}) : y;
}

Tensor Tensor::MaxPool2d(const Pool2dOptions& o, CallSite at) const {
  Call call("MaxPool2d", at);
  const tessera::Scalar lowest = LowestScalar(dtype());
  const Number padding = dtype().IsFloat() ? Number(lowest.AsFloat()) : Number(lowest.AsInt());
  return Windows(*this, o, padding).Max({-2, -1});
}

Tensor Tensor::AvgPool2d(const Pool2dOptions& o, CallSite at) const {
  Call call("AvgPool2d", at);
  const Tensor x = Cast(dtype().IsFloat() ? AccumulateType(dtype()) : kFloat32);
  const DType result = dtype().IsFloat() ? dtype() : kFloat32;
  const Tensor sum = Windows(x, o, 0).Sum({-2, -1});
  if (o.count_padding) return (sum / (o.size[0] * o.size[1])).Cast(result);
  const Tensor ones = Ones({1, 1, shape()[2], shape()[3]}, x.dtype());
  return (sum / Windows(ones, o, 0).Sum({-2, -1})).Cast(result);
}

// ---- norms

namespace {
Tensor WideFloat(const Tensor& t) {
  return t.Cast(t.dtype().IsFloat() ? AccumulateType(t.dtype()) : kFloat32);
}
DType FloatResult(const Tensor& t) { return t.dtype().IsFloat() ? t.dtype() : kFloat32; }
}  // namespace

Tensor Tensor::LayerNorm(const Tensor& weight, const Tensor& bias, double eps, int axes,
                         CallSite at) const {
  Call call("LayerNorm", at);
  if (axes < 1 || axes > rank()) Fail("cannot normalise the last ", axes, " axes of ", Show(*this));
  Ints last;
  for (int i = 0; i < axes; ++i) last.push_back(rank() - axes + i);
  const Tensor x = WideFloat(*this);
  const Tensor centred = x - x.Mean(last, /*keepdim=*/true);
  const Tensor variance = centred.Square().Mean(last, /*keepdim=*/true);
  Tensor y = (centred * (variance + eps).Rsqrt()).Cast(FloatResult(*this));
  if (weight) y = y * weight;
  return bias ? y + bias : y;
}

Tensor Tensor::RmsNorm(const Tensor& weight, double eps, CallSite at) const {
  Call call("RmsNorm", at);
  if (rank() == 0) Fail("takes at least one axis");
  const Tensor x = WideFloat(*this);
  const Tensor scale = (x.Square().Mean(-1, /*keepdim=*/true) + eps).Rsqrt();
  const Tensor y = (x * scale).Cast(FloatResult(*this));
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
  return y.Cast(FloatResult(*this));
}

// ---- attention

Tensor Tensor::ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                         CallSite at) const {
  return ScaledDotProductAttention(key, value, AttentionOptions(), at);
}

Tensor Tensor::ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                         const AttentionOptions& o, CallSite at) const {
  Call call("ScaledDotProductAttention", at);
  if (rank() < 2 || key.rank() < 2 || value.rank() < 2 ||
      !(shape()[rank() - 1] == key.shape()[key.rank() - 1]) ||
      !(key.shape()[key.rank() - 2] == value.shape()[value.rank() - 2])) {
    Fail("takes queries [..., L, E], keys [..., S, E] and values [..., S, F], not ", Show(*this),
         ", ", Show(key), " and ", Show(value));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const double scale = o.scale ? *o.scale : 1 / std::sqrt(static_cast<double>(size(-1)));
  Tensor scores = WideFloat(*this).MatMul(WideFloat(key).Transpose()) * scale;
  if (o.mask) {
    scores = o.mask.dtype().IsBool() ? Where(o.mask, scores, -infinity) : scores + o.mask;
  }
  if (o.causal) {
    const Extent queries = shape()[rank() - 2], keys = key.shape()[key.rank() - 2];
    const Tensor row = Arange(queries, kInt64).Unsqueeze(1), column = Arange(keys, kInt64);
    scores = Where(column <= (queries == keys ? row : row + (keys - queries)), scores, -infinity);
  }
  return scores.Softmax().MatMul(WideFloat(value)).Cast(FloatResult(*this));
}

}  // namespace tessera
