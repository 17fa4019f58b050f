// What keeps a state from one token to the next: attention without a softmax, and the convolution
// that comes before it.
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// [batch, length, heads * size] as [batch, heads, length, size], in f32.
Tensor Heads(Call& c, int input, int64_t heads) {
  const Tensor x = c.In(input);
  if (x.rank() != 3 || x.size(2) % heads != 0) {
    c.Fail("input ", input, " has shape ", x.shape().ToString(),
           "; it is [batch, length, heads * size] of ", heads, " heads");
  }
  const Dims split = {x.size(0), x.size(1), heads, x.size(2) / heads};
  return x.Reshape(split).Permute({0, 2, 1, 3}).Cast(kFloat32);
}

// S of each head takes up key x value of one token after the other, and each query reads it.
void LinearAttention(Call& c) {
  const std::string rule = c.String("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") c.Fail("there is no update_rule '", rule, "'");
  if (gated != c.Has(4)) c.Fail("the rule '", rule, "' takes ", gated ? "a" : "no", " decay");
  if (delta != c.Has(5)) c.Fail("the rule '", rule, "' takes ", delta ? "a" : "no", " beta");
  const int64_t heads = c.Int("q_num_heads"), kept = c.Int("kv_num_heads");
  if (kept < 1 || heads < 1 || heads % kept != 0) {
    c.Fail(heads, " heads of queries are no multiple of ", kept, " heads of keys");
  }
  const Tensor q = Heads(c, 0, heads), k = Heads(c, 1, kept), v = Heads(c, 2, kept);
  const int64_t batch = q.size(0), length = q.size(2), size = q.size(3), groups = heads / kept;
  const Dims shape = {batch, kept, size, v.size(3)};
  Tensor state = c.Has(3) ? c.In(3).Cast(kFloat32) : Tensor::Zeros(shape);
  // By head, or by number of each key; and [batch, length, 1] is by neither.
  const Tensor decay = gated ? Heads(c, 4, kept).Exp() : Tensor();
  const Tensor beta = delta ? Heads(c, 5, c.Input(5).tensor.size(-1) == 1 ? 1 : kept) : Tensor();
  const double given = c.Float("scale", 0);
  const double scale = given == 0 ? 1 / std::sqrt(static_cast<double>(size)) : given;

  std::vector<Tensor> read;
  for (int64_t t = 0; t < length; ++t) {
    const auto token = [&](const Tensor& x) { return x.Select(2, t).Unsqueeze(-1); };
    const Tensor key = token(k);
    Tensor value = token(v).Transpose();
    if (gated) state = state * token(decay);
    if (delta) value = token(beta) * (value - key.Transpose().MatMul(state));
    state = state + key * value;
    const Tensor shared = groups == 1 ? state : state.RepeatInterleave(groups, 1);
    read.push_back(token(q).Transpose().MatMul(shared) * scale);
  }
  if (read.empty()) read.push_back(Tensor::Zeros({batch, heads, 0, v.size(3)}));
  const Tensor y = Cat(read, 2).Permute({0, 2, 1, 3});
  c.Out(y.Reshape({batch, length, heads * v.size(3)}).Cast(c.In(0).dtype()));
  c.Out(state.Cast(c.Has(3) ? c.In(3).dtype() : c.In(0).dtype()));
}

// Each channel under a window of its own that ends at the position; what comes before the input is
// the state.
void CausalConvWithState(Call& c) {
  const Tensor x = c.In(0), w = c.In(1);
  if (x.rank() != 3 || w.rank() != 3 || w.size(2) < 1) {
    c.Fail("takes [batch, channels, length] and weights [channels, 1, size], not ",
           x.shape().ToString(), " and ", w.shape().ToString());
  }
  const std::string activation = c.String("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") {
    c.Fail("there is no activation '", activation, "'");
  }
  const int64_t past = w.size(2) - 1, channels = x.size(1);
  const Dims before = {x.size(0), channels, past};
  const Tensor state = c.Has(3) ? c.In(3) : Tensor::Zeros(before, x.dtype());
  const Tensor all = Cat(std::vector<Tensor>{state, x}, 2);
  ConvOptions options;
  options.groups = channels;
  if (c.Has(2)) options.bias = c.In(2);
  const Tensor y = all.Conv1d(w, options);
  c.Out(activation == "none" ? y : y.Silu());
  c.Out(all.SliceAxis(2, {x.size(2), x.size(2) + past}));
}

constexpr OpRow kRows[] = {
    {"CausalConvWithState", CausalConvWithState, 0, Flow::kBatch},
    {"LinearAttention", LinearAttention, 0, Flow::kBatch},
};

}  // namespace

absl::Span<const OpRow> LinearAttentionOps() { return kRows; }

}  // namespace tessera::onnx
