// Products of matrices.
#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

void MatMul(Call& c) {
  const Tensor a = c.In(0);
  c.Out(a.MatMul(c.In(1)).Cast(a.dtype()));  // narrow integers give wide sums
}

void Gemm(Call& c) {
  Tensor a = c.In(0), b = c.In(1);
  if (a.rank() != 2 || b.rank() != 2) {
    c.Fail("of ", a.shape().ToString(), " and ", b.shape().ToString(), "; both are matrices");
  }
  const DType dtype = a.dtype();
  if (c.Int("transA", 0) != 0) a = a.T();
  if (c.Int("transB", 0) != 0) b = b.T();
  const double alpha = c.Float("alpha", 1), beta = c.Float("beta", 1);
  Tensor y = a.MatMul(b);
  if (alpha != 1) y = y * alpha;
  if (c.Has(2)) y = y + (beta == 1 ? c.In(2) : c.In(2) * beta);
  c.Out(y.Cast(dtype));
}

// Integers less a zero point, as i32: one number, or one for each row of a and column of b.
Tensor Centred(Call& c, int input, int zero_point, bool rows) {
  Tensor x = c.In(input).Cast(kInt32);
  if (!c.Has(zero_point)) return x;
  Tensor zero = c.In(zero_point).Cast(kInt32);
  if (rows && zero.rank() == 1 && zero.size(0) > 1) zero = zero.Unsqueeze(1);
  return x - (zero.elements() == 1 ? zero.Reshape({}) : zero);
}
void MatMulInteger(Call& c) {
  c.Out(Centred(c, 0, 2, true).MatMul(Centred(c, 1, 3, false)).Cast(kInt32));
}

void EinsumOf(Call& c) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < c.inputs(); ++i) tensors.push_back(c.In(i));
  if (tensors.empty()) c.Fail("there is no input");
  const DType dtype = tensors[0].dtype();
  c.Out(Einsum(c.String("equation", ""), tensors).Cast(dtype));
}

void Det(Call& c) { c.Out(c.In(0).Det()); }

constexpr OpRow kRows[] = {
    {"Det", Det},
    {"Einsum", EinsumOf},
    {"Gemm", Gemm},
    {"MatMul", MatMul},
    {"MatMulInteger", MatMulInteger},
};

}  // namespace

absl::Span<const OpRow> LinearOps() { return kRows; }

}  // namespace tessera::onnx
