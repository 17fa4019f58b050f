// Quantised numbers: integers or fp8 with a scale and a zero point.
#include "examples/onnx/quantize.h"

#include "examples/onnx/convolution.h"

namespace tessera::onnx {

void OutQuantised(Call& c, const Tensor& y, const Tensor& zero_point, int64_t to) {
  if (!DTypeOfElement(to)->IsInt()) c.Fail(ElementName(to), " is no type of quantised numbers");
  const Tensor shifted = zero_point ? y.Round() + zero_point.Cast(y.dtype()) : y.Round();
  const IntRange range = RangeOfElement(to);
  OutAs(c, shifted.Clip(range.least, range.most), to);
}

Tensor Integers(Call& c, int input, int zero_point, int axis) {
  const Tensor x = c.In(input).Cast(kInt32);
  if (!c.Has(zero_point)) return x;
  const Tensor zero = c.In(zero_point).Cast(kInt32);
  if (zero.elements() == 1) return x - zero.Reshape({});
  if (zero.rank() != 1) return x - zero;
  std::vector<int64_t> shape(x.rank(), 1);
  shape[c.Axis(axis, x.rank())] = zero.size(0);
  return x - zero.Reshape(shape);
}

Tensor ScaleAlong(Call& c, int input, int axis, int rank) {
  const Tensor s = c.In(input);
  if (s.elements() == 1) return s.Reshape({});
  if (s.rank() != 1) return s;
  std::vector<int64_t> shape(rank, 1);
  shape[c.Axis(axis, rank)] = s.size(0);
  return s.Reshape(shape);
}

Quantised QuantisedByRange(const Tensor& x) {
  const Tensor high = x.Max().Maximum(0), low = x.Min().Minimum(0);
  const Tensor scale = Where(high == low, 1.0f, high - low) / 255;
  const Tensor zero = (0 - low / scale).Clip(0, 255).Round();
  return {((x / scale).Round() + zero).Clip(0, 255), scale, zero};
}

namespace {

// A scale or zero point beside x: one number, one for each position of an axis, or one for each
// block of an axis.
Tensor Spread(Call& c, Tensor v, const Tensor& x) {
  if (v.elements() == 1) return v.Reshape({});
  const int axis = c.Axis(c.Int("axis", 1), x.rank());
  const int64_t block = c.Int("block_size", 0);
  if (block == 0 && v.rank() == 1) {
    std::vector<int64_t> shape(x.rank(), 1);
    shape[axis] = v.size(0);
    return v.Reshape(shape);
  }
  if (block < 1 || v.rank() != x.rank()) {
    c.Fail("a scale of shape ", v.shape().ToString(), " and block_size ", block, " for ",
           x.shape().ToString());
  }
  v = v.RepeatInterleave(block, axis);
  return v.size(axis) > x.size(axis) ? v.SliceAxis(axis, {0, x.size(axis)}) : v;
}

void QuantizeLinear(Call& c) {
  const Tensor x = c.In(0), scale = Spread(c, c.In(1), x);
  const int64_t to = c.Has(2) ? ElementOf(c.Input(2)) : c.Element("output_dtype", kElementUInt8);
  const DType in = c.Int("precision", 0) != 0 ? c.Type("precision", kFloat32)
                                              : Promote(scale.dtype(), x.dtype());
  const DType wide = in.IsFloat() ? in : kFloat32;
  const Tensor y = x.Cast(wide) / scale.Cast(wide);
  if (SmallFloatOf(to)) return OutAs(c, y, to);  // the zero point is 0
  // Sums with 16-bit zero points are exact in f32.
  const Tensor zero = c.Has(2) ? Spread(c, c.In(2), x) : Tensor();
  OutQuantised(c, y.Cast(Promote(wide, kFloat32)), zero, to);
}

void DequantizeLinear(Call& c) {
  const Tensor x = c.In(0), scale = Spread(c, c.In(1), x);
  Tensor y = x.Cast(Promote(kFloat32, scale.dtype()));
  if (c.Has(2)) y = y - Spread(c, c.In(2), x).Cast(y.dtype());
  OutAs(c, y * scale, c.Element("output_dtype", ElementOf(c.Input(1))));
}

void DynamicQuantizeLinear(Call& c) {
  const Quantised q = QuantisedByRange(c.In(0));
  c.Out(q.y.Cast(kUInt8));
  c.Out(q.scale);
  c.Out(q.zero_point.Cast(kUInt8));
}

// Rows of the first operand and columns of the second may have scales of their own.
//
// Scales are multiplied in their own type; sums of integers by them in f64, which holds both.
void QLinearMatMul(Call& c) {
  const Tensor sum = Integers(c, 0, 2, -2).MatMul(Integers(c, 3, 5, -1));
  const int rank = sum.rank();
  const Tensor scale =
      ScaleAlong(c, 1, -2, rank) * ScaleAlong(c, 4, -1, rank) / ScaleAlong(c, 6, -2, rank);
  const Tensor y = sum.Cast(kFloat64) * scale.Cast(kFloat64);
  const DType to = c.Input(7).tensor.dtype();
  // The standard's text says that the result saturates, and ONNX Runtime's does. Of i8 the results
  // that v1.21.0 records, all of version 21, wrap around, and so does this from there on.
  if (to == kUInt8 || c.opset() < 21) return OutQuantised(c, y, c.In(7), ElementOf(c.Input(7)));
  c.Out((y + c.In(7).Cast(kFloat64)).Round().Cast(kInt32).Cast(to));
}

void QLinearConv(Call& c) {
  const Tensor x = Integers(c, 0, 2, 1), w = Integers(c, 3, 5, 0);
  Tensor sum = Convolution(c, x, w, {});
  if (c.Has(8)) {
    std::vector<int64_t> shape(sum.rank(), 1);
    shape[1] = sum.size(1);
    sum = sum + c.In(8).Reshape(shape);
  }
  const Tensor scale = ScaleAlong(c, 1, 1, sum.rank()) * ScaleAlong(c, 4, 1, sum.rank()) /
                       ScaleAlong(c, 6, 1, sum.rank());
  OutQuantised(c, sum.Cast(kFloat64) * scale.Cast(kFloat64), c.In(7).Reshape({}),
               ElementOf(c.Input(7)));
}

void ConvInteger(Call& c) {
  c.Out(Convolution(c, Integers(c, 0, 2, 1), Integers(c, 1, 3, 0), {}).Cast(kInt32));
}

constexpr OpRow kRows[] = {
    {"ConvInteger", ConvInteger, 0, Flow::kBatch},
    {"DequantizeLinear", DequantizeLinear},
    {"DynamicQuantizeLinear", DynamicQuantizeLinear},
    {"QLinearConv", QLinearConv, 0, Flow::kBatch},
    {"QLinearMatMul", QLinearMatMul},
    {"QuantizeLinear", QuantizeLinear},
};

}  // namespace

absl::Span<const OpRow> QuantizeOps() { return kRows; }

}  // namespace tessera::onnx
