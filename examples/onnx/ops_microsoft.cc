// Ops of com.microsoft into which ONNX Runtime's optimiser fuses products, activations and norms.
#include "examples/onnx/run_as.h"

namespace tessera::onnx {
namespace {

// ---- products

// Rows, batches and columns [M, B1, ..., K] as [B1, ..., M, K].
Tensor BatchesFirst(const Tensor& x) { return x.MoveAxis(0, x.rank() - 2); }

void FusedMatMul(Call& c) {
  const auto operand = [&](int i, const char* flip, const char* flip_batch) {
    Tensor x = c.In(i);
    if (x.rank() > 2 && c.Int(flip_batch, 0) != 0) x = BatchesFirst(x);
    return x.rank() > 1 && c.Int(flip, 0) != 0 ? x.Transpose() : x;
  };
  const Tensor a = operand(0, "transA", "transBatchA"), b = operand(1, "transB", "transBatchB");
  const double alpha = c.Float("alpha", 1);
  const Tensor y = a.MatMul(b);
  c.Out((alpha == 1 ? y : y * alpha).Cast(a.dtype()));
}

void FusedGemm(Call& c) {
  const Tensor y = RunAs(c, "Gemm", 13, {c.In(0), c.In(1), c.InOr(2)})[0].tensor;
  std::vector<double> numbers;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    if (c.Find(name) != nullptr) numbers.push_back(c.Float(name, 0));
  }
  c.Out(Activated(c, y, numbers));
}

void FusedConv(Call& c) {
  Tensor y = RunAs(c, "Conv", 11, {c.In(0), c.In(1), c.InOr(2)})[0].tensor;
  if (c.Has(3)) y = y + c.In(3);
  c.Out(Activated(c, y, c.Floats("activation_params")));
}

void NhwcMaxPool(Call& c) {
  c.Out(ChannelsLast(RunAs(c, "MaxPool", 12, {ChannelsFirst(c.In(0))})[0].tensor));
}

// ---- activations

// Computed in f32 or wider, and rounded once.
template <typename Fn>
void Activate(Call& c, bool bias, Fn fn) {
  const Tensor x = c.In(0);
  const DType wide = Promote(x.dtype(), kFloat32);
  const Tensor in = bias ? x.Cast(wide) + c.In(1).Cast(wide) : x.Cast(wide);
  c.Out(fn(in).Cast(x.dtype()));
}
void Gelu(Call& c) {
  Activate(c, false, [](const Tensor& x) { return x.Gelu(); });
}
void BiasGelu(Call& c) {
  Activate(c, true, [](const Tensor& x) { return x.Gelu(); });
}
void FastGelu(Call& c) {
  Activate(c, c.Has(1), [](const Tensor& x) { return x.GeluTanh(); });
}
void QuickGelu(Call& c) {
  const double alpha = c.Float("alpha", 1.702f);
  Activate(c, false, [alpha](const Tensor& x) { return x * (x * alpha).Sigmoid(); });
}

// ---- norms of the last axes

struct Normed {
  Tensor y, mean, inverse;
};
// In f32 or wider; without a mean to subtract where `simplified`.
Normed NormOf(const Tensor& x, const std::vector<int64_t>& axes, double epsilon, bool simplified) {
  const Tensor wide = x.Cast(Promote(x.dtype(), kFloat32));
  const Tensor mean = simplified ? Tensor() : wide.Mean(axes, true);
  const Tensor centred = simplified ? wide : wide - mean;
  const Tensor inverse = (centred.Square().Mean(axes, true) + epsilon).Rsqrt();
  return {centred * inverse, mean, inverse};
}

// The result has the scale's type.
void SimplifiedLayerNormalization(Call& c) {
  const Tensor x = c.In(0), scale = c.In(1);
  std::vector<int64_t> axes;
  for (int a = c.Axis(c.Int("axis", -1), x.rank()); a < x.rank(); ++a) axes.push_back(a);
  const Normed n = NormOf(x, axes, c.Float("epsilon", 1e-5f), true);
  c.Out((n.y * scale.Cast(n.y.dtype())).Cast(scale.dtype()));
  c.Out(n.inverse);
}

// What is normed is a sum, which is a result as well.
template <bool simplified>
void SkipLayerNormalization(Call& c) {
  constexpr int kBias = simplified ? 3 : 4;
  const Tensor x = c.In(0), skip = c.In(1), gamma = c.In(2);
  const DType wide = Promote(x.dtype(), kFloat32);
  Tensor sum = x.Cast(wide) + skip.Cast(wide);
  if (c.Has(kBias)) sum = sum + c.In(kBias).Cast(wide);
  const Normed n = NormOf(sum, {-1}, c.Float("epsilon", 1e-12f), simplified);
  Tensor y = n.y * gamma.Cast(wide);
  if (!simplified && c.Has(3)) y = y + c.In(3).Cast(wide);
  c.Out(y.Cast(x.dtype()));
  c.Out(simplified ? Value{n.inverse, c.all_known()} : Value{n.mean, c.all_known()});
  c.Out(n.inverse);
  c.Out(sum.Cast(x.dtype()));
}

// The sum of a word's, its position's and its segment's embedding, normed.
void EmbedLayerNormalization(Call& c) {
  const Tensor ids = c.In(0);
  if (ids.rank() != 2) c.Fail("ids of shape ", ids.shape().ToString(), "; their rank is 2");
  const int64_t length = ids.size(1);
  const Tensor words = c.In(2).Take(ids, 0), positions = c.In(3);
  Tensor sum = words + (c.Has(8) ? positions.Take(c.In(8), 0)
                                 : positions.Take(Tensor::Arange(length, kInt64), 0));
  if (c.Has(1)) sum = sum + c.In(4).Take(c.In(1), 0);
  const Normed n = NormOf(sum, {-1}, c.Float("epsilon", 1e-12f), false);
  c.Out((n.y * c.In(5) + c.In(6)).Cast(words.dtype()));
  // How many words each row has.
  c.Out(c.Has(7) ? (c.In(7) == 1).Cast(kInt32).Sum({1}).Cast(kInt32)
                 : Tensor::Zeros({ids.size(0)}, kInt32));
  c.Out(sum);
}

constexpr Flow kEach = Flow::kElementwise;
constexpr OpRow kRows[] = {
    {"SimplifiedLayerNormalization", SimplifiedLayerNormalization},  // as ONNX Runtime writes it
    {"com.microsoft.BiasGelu", BiasGelu, 0, kEach},
    {"com.microsoft.EmbedLayerNormalization", EmbedLayerNormalization},
    {"com.microsoft.FastGelu", FastGelu, 0, kEach},
    {"com.microsoft.FusedConv", FusedConv, 0, Flow::kBatch},
    {"com.microsoft.FusedGemm", FusedGemm},
    {"com.microsoft.FusedMatMul", FusedMatMul},
    {"com.microsoft.Gelu", Gelu, 0, kEach},
    {"com.microsoft.NhwcMaxPool", NhwcMaxPool, 0, Flow::kBatch},
    {"com.microsoft.QuickGelu", QuickGelu, 0, kEach},
    {"com.microsoft.SkipLayerNormalization", SkipLayerNormalization<false>},
    {"com.microsoft.SkipSimplifiedLayerNormalization", SkipLayerNormalization<true>},
    {"com.microsoft.TransposeMatMul", FusedMatMul},  // its older name
};

}  // namespace

absl::Span<const OpRow> MicrosoftOps() { return kRows; }

}  // namespace tessera::onnx
