// Attention and the rotation of its queries and keys.
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// [batch, length, heads * size] as [batch, heads, length, size].
Tensor SplitHeads(Call& c, const Tensor& x, const char* attribute) {
  if (x.rank() == 4) return x;
  if (x.rank() != 3) c.Fail("an input has shape ", x.shape().ToString(), "; its rank is 3 or 4");
  const int64_t heads = c.Int(attribute);
  if (heads < 1 || x.size(2) % heads != 0) {
    c.Fail(attribute, " is ", heads, " for an input of shape ", x.shape().ToString());
  }
  return x.Reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).Permute({0, 2, 1, 3});
}

// What is added to the scores of queries [L] for keys [S]: 0, or -inf where a key is hidden.
struct Bias {
  Tensor sum;
  void Add(const Tensor& t) { sum = sum ? sum + t : t; }
};
Tensor Hidden(const Tensor& hidden, DType dtype) {
  return Where(hidden, Tensor::Full({}, -INFINITY, dtype), Tensor::Full({}, 0.0, dtype));
}

void Attention(Call& c) {
  Tensor q = SplitHeads(c, c.In(0), "q_num_heads");
  Tensor k = SplitHeads(c, c.In(1), "kv_num_heads");
  Tensor v = SplitHeads(c, c.In(2), "kv_num_heads");
  const bool flat = c.Input(0).tensor.rank() == 3;
  const DType dtype = q.dtype();
  int64_t past = 0;
  if (c.Has(4)) {
    past = c.Input(4).tensor.size(2);
    k = Cat(std::vector<Tensor>{c.In(4), k}, 2);
  }
  if (c.Has(5)) v = Cat(std::vector<Tensor>{c.In(5), v}, 2);
  const Tensor present_key = k, present_value = v;
  const int64_t queries = q.size(2), keys = k.size(2);

  Bias bias;
  if (c.Has(3)) {
    Tensor mask = c.In(3);
    if (mask.dtype().IsBool()) mask = Hidden(mask.LogicalNot(), dtype);
    if (const int64_t missing = keys - mask.size(-1); missing > 0) {
      Pairs pairs(mask.rank());
      pairs[mask.rank() - 1].second = missing;
      mask = mask.Pad(pairs, -INFINITY);
    }
    bias.Add(mask);
  }
  if (c.Int("is_causal", 0) != 0) {
    const Tensor row = Tensor::Arange(queries).Unsqueeze(1);
    bias.Add(Hidden(Tensor::Arange(keys) > row + past, dtype));
  }
  if (c.Has(6)) {  // how many keys of each batch are none
    const Tensor length = c.In(6).Cast(kInt64).Reshape({-1, 1, 1, 1});
    bias.Add(Hidden(Tensor::Arange(keys, kInt64) >= length, dtype));
  }

  const int64_t groups = q.size(1) / std::max<int64_t>(k.size(1), 1);
  if (groups > 1) {  // several heads of queries share one of keys
    k = k.RepeatInterleave(groups, 1);
    v = v.RepeatInterleave(groups, 1);
  }
  // Each side is scaled by the root, so that products of f16 stay in range.
  const double scale = c.Float("scale", 1 / std::sqrt(static_cast<double>(q.size(3))));
  const double root = std::sqrt(scale);
  const Tensor product = (q * root).MatMul((k * root).Transpose());
  Tensor scores = bias.sum ? product + bias.sum : product;
  const Tensor biased = scores;
  if (const double cap = c.Float("softcap", 0); cap > 0) scores = (scores / cap).Tanh() * cap;
  const Tensor capped = scores;
  if (c.Int("softmax_precision", 0) != 0) scores = scores.Cast(c.Type("softmax_precision", dtype));
  const Tensor weights = scores.Softmax(-1);
  Tensor y = weights.Cast(dtype).MatMul(v).Cast(dtype);
  if (flat) y = y.Permute({0, 2, 1, 3}).Reshape({y.size(0), queries, -1});
  c.Out(y);
  c.Out(present_key);
  c.Out(present_value);
  const int64_t mode = c.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) c.Fail("qk_matmul_output_mode is ", mode, "; it is 0 to 3");
  c.Out((mode == 0 ? product : mode == 1 ? biased : mode == 2 ? capped : weights).Cast(dtype));
}

void RotaryEmbedding(Call& c) {
  const Tensor in = c.In(0);
  Tensor x = in;  // as [batch, length, heads, size]
  if (in.rank() == 4) {
    x = in.Permute({0, 2, 1, 3});
  } else if (in.rank() == 3) {
    const int64_t heads = c.Int("num_heads");
    if (heads < 1 || in.size(2) % heads != 0) {
      c.Fail("num_heads is ", heads, " for an input of shape ", in.shape().ToString());
    }
    x = in.Reshape({in.size(0), in.size(1), heads, in.size(2) / heads});
  } else {
    c.Fail("the input has shape ", in.shape().ToString(), "; its rank is 3 or 4");
  }
  const int64_t size = x.size(3), given = c.Int("rotary_embedding_dim", 0);
  const int64_t rotated = given == 0 ? size : given;
  if (rotated < 0 || rotated > size || rotated % 2 != 0) {
    c.Fail("rotary_embedding_dim is ", given, " for heads of ", size);
  }
  Tensor cos = c.In(1), sin = c.In(2);
  if (c.Has(3)) {
    const Tensor position = c.In(3);
    cos = cos.Take(position, 0);
    sin = sin.Take(position, 0);
  }
  cos = cos.Unsqueeze(2);
  sin = sin.Unsqueeze(2);
  const Tensor turning = x.SliceAxis(3, {0, rotated}), rest = x.SliceAxis(3, {rotated, size});
  const bool interleaved = c.Int("interleaved", 0) != 0;
  const Tensor a =
      interleaved ? turning.SliceAxis(3, {0, rotated, 2}) : turning.SliceAxis(3, {0, rotated / 2});
  const Tensor b = interleaved ? turning.SliceAxis(3, {1, rotated, 2})
                               : turning.SliceAxis(3, {rotated / 2, rotated});
  const std::vector<Tensor> turned = {cos * a - sin * b, sin * a + cos * b};
  Tensor y = interleaved ? Stack(turned, 4).Reshape(turning.shape()) : Cat(turned, 3);
  if (rotated < size) y = Cat(std::vector<Tensor>{y, rest}, 3);
  c.Out(in.rank() == 4 ? y.Permute({0, 2, 1, 3}) : y.Reshape(in.shape()));
}

constexpr OpRow kRows[] = {
    {"Attention", Attention},
    {"RotaryEmbedding", RotaryEmbedding},
};

}  // namespace

absl::Span<const OpRow> AttentionOps() { return kRows; }

}  // namespace tessera::onnx
