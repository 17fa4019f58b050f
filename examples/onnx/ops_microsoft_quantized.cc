// Ops of com.microsoft on quantised numbers, as ONNX Runtime's quantiser writes them.
#include <string>

#include "absl/strings/strip.h"
#include "examples/onnx/quantize.h"
#include "examples/onnx/run_as.h"

namespace tessera::onnx {
namespace {

// A scale or zero point: of the whole tensor.
Tensor Only(Call& c, int input) {
  const Tensor t = c.In(input);
  if (t.elements() != 1) {
    c.Fail("input ", input, " has ", t.elements(), " elements; it is of a whole tensor");
  }
  return t.Reshape({});
}
Tensor Dequantised(Call& c, int input) {
  const Tensor x = c.In(input).Cast(kFloat32);
  return (c.Has(input + 2) ? x - Only(c, input + 2).Cast(kFloat32) : x) * Only(c, input + 1);
}
// An output: y under the scale at an input and the zero point after it, which may be left out.
void OutUnder(Call& c, const Tensor& y, int scale, int64_t element) {
  const Tensor zero = c.Has(scale + 1) ? Only(c, scale + 1) : Tensor();
  OutQuantised(c, y / Only(c, scale), zero, element);
}

// QLinearOP is OP on what is dequantised, then quantised. After `plain` inputs each operand has a
// scale and a zero point after it, and last come those of the result; QLinearConcat has them first.
template <int plain = 0, bool result_first = false>
void QLinear(Call& c) {
  constexpr int kFirst = result_first ? 2 : plain;
  const int operands = (c.inputs() - plain - 1) / 3;  // the last zero point may be left out
  if (operands < 1) c.Fail("has ", c.inputs(), " inputs");
  const bool channels_last = c.Int("channels_last", 0) != 0;
  std::vector<Tensor> inputs;
  for (int i = 0; i < plain; ++i) inputs.push_back(c.In(i));
  for (int i = 0; i < operands; ++i) {
    const Tensor x = Dequantised(c, kFirst + 3 * i);
    inputs.push_back(channels_last ? ChannelsFirst(x) : x);
  }
  const std::string op(absl::StripPrefix(c.op(), "QLinear"));
  Tensor y = RunAs(c, op, c.Int("opset", 13), inputs)[0].tensor;
  if (channels_last) y = ChannelsLast(y);
  OutUnder(c, y, result_first ? 0 : plain + 3 * operands, ElementOf(c.Input(kFirst)));
}

// Sums of integers by their scales. The bias is a sum as well.
void QGemm(Call& c) {
  const bool flip = c.Int("transB", 0) != 0;
  Tensor a = Integers(c, 0, 2, 0), b = Integers(c, 3, 5, flip ? 0 : 1);
  if (a.rank() != 2 || b.rank() != 2) {
    c.Fail("of ", a.shape().ToString(), " and ", b.shape().ToString(), "; both are matrices");
  }
  Tensor sum = (c.Int("transA", 0) != 0 ? a.T() : a).MatMul(flip ? b.T() : b);
  if (c.Has(6)) sum = sum + c.In(6);
  const Tensor scale = Only(c, 1) * ScaleAlong(c, 4, 1, 2) * c.Float("alpha", 1);
  const Tensor y = sum.Cast(kFloat32) * scale;
  if (!c.Has(7)) return c.OutOf(y, 0);
  OutUnder(c, y, 7, ElementOf(c.Input(0)));
}

void MatMulIntegerToFloat(Call& c) {
  const Tensor sum = Integers(c, 0, 4, -2).MatMul(Integers(c, 1, 5, -1));
  const Tensor scale = ScaleAlong(c, 2, -2, sum.rank()) * ScaleAlong(c, 3, -1, sum.rank());
  const Tensor y = sum.Cast(scale.dtype()) * scale;
  c.OutOf(c.Has(6) ? y + c.In(6) : y, 0);
}

void DynamicQuantizeMatMul(Call& c) {
  const Quantised a = QuantisedByRange(c.In(0));
  const Tensor sum = (a.y - a.zero_point).Cast(kInt32).MatMul(Integers(c, 1, 3, -1));
  const Tensor y = sum.Cast(kFloat32) * (a.scale * ScaleAlong(c, 2, -1, sum.rank()));
  c.OutOf(c.Has(4) ? y + c.In(4) : y, 0);
}

// ONNX's own, but for the place of the channels.
void QLinearConv(Call& c) {
  std::vector<Tensor> inputs;
  for (int i = 0; i < c.inputs(); ++i) inputs.push_back(c.InOr(i));
  const bool channels_last = c.Int("channels_last", 0) != 0;
  if (channels_last) inputs[0] = ChannelsFirst(c.In(0));
  const Tensor y = RunAs(c, "QLinearConv", 10, inputs)[0].tensor;
  c.OutOf(channels_last ? ChannelsLast(y) : y, 0);
}

// An embedding that is looked up, and a vector, by the input of the numbers; the scales of the five
// begin at input 8, their zero points at 13.
void QEmbedLayerNormalization(Call& c) {
  const auto dequantised = [&](int input, int which, const Tensor& numbers) {
    if (!c.Has(input)) return Tensor();
    return (numbers.Cast(kFloat32) - Only(c, 13 + which).Cast(kFloat32)) * Only(c, 8 + which);
  };
  std::vector<Tensor> inputs = {c.In(0), c.InOr(1)};
  for (int i = 0; i < 5; ++i) inputs.push_back(dequantised(2 + i, i, c.InOr(2 + i)));
  inputs.push_back(c.InOr(7));
  for (const Value& v : RunAs(c, "com.microsoft.EmbedLayerNormalization", 1, inputs)) c.Out(v);
}

// The same as ONNX's of version 21, which came later.
void SameAsOnnx(Call& c) {
  std::vector<Tensor> inputs;
  for (int i = 0; i < c.inputs(); ++i) inputs.push_back(c.InOr(i));
  for (const Value& v : RunAs(c, c.op(), 21, inputs)) c.Out(v);
}

constexpr Flow kEach = Flow::kElementwise;
constexpr OpRow kRows[] = {
    {"com.microsoft.DequantizeLinear", SameAsOnnx},
    {"com.microsoft.DynamicQuantizeMatMul", DynamicQuantizeMatMul},
    {"com.microsoft.MatMulIntegerToFloat", MatMulIntegerToFloat},
    {"com.microsoft.QEmbedLayerNormalization", QEmbedLayerNormalization},
    {"com.microsoft.QGemm", QGemm},
    {"com.microsoft.QLinearAdd", QLinear<>, 0, kEach},
    {"com.microsoft.QLinearAveragePool", QLinear<>, 0, Flow::kBatch},
    {"com.microsoft.QLinearConcat", QLinear<0, true>},
    {"com.microsoft.QLinearConv", QLinearConv, 0, Flow::kBatch},
    {"com.microsoft.QLinearGlobalAveragePool", QLinear<>, 0, Flow::kBatch},
    {"com.microsoft.QLinearLeakyRelu", QLinear<>, 0, kEach},
    {"com.microsoft.QLinearMul", QLinear<>, 0, kEach},
    {"com.microsoft.QLinearSigmoid", QLinear<>, 0, kEach},
    {"com.microsoft.QLinearSoftmax", QLinear<>},
    {"com.microsoft.QLinearWhere", QLinear<1>},
    {"com.microsoft.QuantizeLinear", SameAsOnnx},
};

}  // namespace

absl::Span<const OpRow> MicrosoftQuantizedOps() { return kRows; }

}  // namespace tessera::onnx
