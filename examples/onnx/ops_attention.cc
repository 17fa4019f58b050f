// Attention and the rotation of its queries and keys.
#include "examples/onnx/attention.h"

#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {

Tensor Hidden(const Tensor& hidden, DType dtype) {
  return Where(hidden, Tensor::Full({}, -INFINITY, dtype), Tensor::Full({}, 0.0, dtype));
}

void ShareHeads(const Tensor& q, Tensor& k, Tensor& v) {
  const int64_t groups = q.size(1) / std::max<int64_t>(k.size(1), 1);
  if (groups <= 1) return;
  k = k.RepeatInterleave(groups, 1);
  v = v.RepeatInterleave(groups, 1);
}

Tensor Rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t rotated,
               bool interleaved) {
  const Tensor turning = x.SliceAxis(3, {0, rotated}), rest = x.SliceAxis(3, {rotated, x.size(3)});
  const Tensor a =
      interleaved ? turning.SliceAxis(3, {0, rotated, 2}) : turning.SliceAxis(3, {0, rotated / 2});
  const Tensor b = interleaved ? turning.SliceAxis(3, {1, rotated, 2})
                               : turning.SliceAxis(3, {rotated / 2, rotated});
  const Tensor u = cos.Unsqueeze(2), v = sin.Unsqueeze(2);
  const std::vector<Tensor> turned = {u * a - v * b, v * a + u * b};
  const Tensor y = interleaved ? Stack(turned, 4).Reshape(turning.shape()) : Cat(turned, 3);
  return rotated < x.size(3) ? Cat(std::vector<Tensor>{y, rest}, 3) : y;
}

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

  // How many keys of each batch there are; the others are padding.
  const Tensor length = c.Has(6) ? c.In(6).Cast(kInt64).Reshape({-1, 1, 1, 1}) : Tensor();
  // Those before the first query: of the past, or in a cache that the model keeps itself.
  const Tensor before = length && !c.Has(4) ? length - queries : Tensor::Scalar(past, kInt64);
  const Tensor key = Tensor::Arange(keys, kInt64);
  const Tensor at = Tensor::Arange(queries, kInt64).Unsqueeze(1) + before;  // of each query

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
  if (c.Int("is_causal", 0) != 0) bias.Add(Hidden(key > at, dtype));
  const int64_t left = c.Int("left_window_size", -1), right = c.Int("right_window_size", -1);
  if (left < -1 || right < -1) c.Fail("windows of ", left, " and ", right, "; -1 is the least");
  if (left >= 0) bias.Add(Hidden(key < at - left, dtype));
  if (right >= 0) bias.Add(Hidden(key > at + right, dtype));
  if (length) bias.Add(Hidden(key >= length, dtype));

  ShareHeads(q, k, v);
  // Each side is scaled by the root, so that products of f16 stay in range.
  const double scale = c.Float("scale", 1 / std::sqrt(static_cast<double>(q.size(3))));
  const double root = std::sqrt(scale);
  const Tensor product = (q * root).MatMul((k * root).Transpose());
  // The scores are capped and hidden; versions before 25 do it in the other order.
  const double cap = c.Float("softcap", 0);
  const auto capped = [&](const Tensor& t) { return cap > 0 ? (t / cap).Tanh() * cap : t; };
  const auto biased = [&](const Tensor& t) { return bias.sum ? t + bias.sum : t; };
  const bool caps_first = c.opset() >= 25;
  const Tensor first = caps_first ? capped(product) : biased(product);
  Tensor second = caps_first ? biased(first) : capped(first);
  // What is hidden stays so, whatever its score is capped to.
  if (!caps_first && cap > 0 && bias.sum) second = Where(bias.sum == -INFINITY, bias.sum, second);
  Tensor scores = second;
  if (c.Int("softmax_precision", 0) != 0) scores = scores.Cast(c.Type("softmax_precision", dtype));
  Tensor weights = scores.Softmax(-1);
  if (bias.sum && keys > 0) {  // a query that sees no key gets zeros
    weights = Where(scores.Max({-1}, true) == -INFINITY, 0, weights);
  }
  Tensor y = weights.Cast(dtype).MatMul(v).Cast(dtype);
  if (flat) y = y.Permute({0, 2, 1, 3}).Reshape({y.size(0), queries, -1});
  c.Out(y);
  c.Out(present_key);
  c.Out(present_value);
  const int64_t mode = c.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) c.Fail("qk_matmul_output_mode is ", mode, "; it is 0 to 3");
  c.Out((mode == 0 ? product : mode == 1 ? first : mode == 2 ? second : weights).Cast(dtype));
}

// Scores and their softmax pass through graphs of the model, in f32 or wider.
void FlexAttention(Call& c) {
  const Tensor q = c.In(0);
  Tensor k = c.In(1), v = c.In(2);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    c.Fail("takes [batch, heads, length, size], not ", q.shape().ToString(), ", ",
           k.shape().ToString(), " and ", v.shape().ToString());
  }
  ShareHeads(q, k, v);
  const double scale = c.Float("scale", 1 / std::sqrt(static_cast<double>(q.size(3))));
  const double root = std::sqrt(scale);
  const auto modified = [&](const char* graph, const Tensor& t) {
    if (c.Find(graph) == nullptr) return t;
    const std::vector<Value> out = c.RunGraph(graph, {{t, false}});
    if (out.size() != 1) c.Fail(graph, " gives ", out.size(), " results instead of one");
    return out[0].tensor;
  };
  const DType wide = q.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const DType precision = c.Type("softmax_precision", wide);
  const Tensor product = (q * root).MatMul((k * root).Transpose()).Cast(precision);
  const Tensor weights = modified("prob_mod", modified("score_mod", product).Softmax(-1));
  c.Out(weights.MatMul(v.Cast(precision)).Cast(v.dtype()));
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
  const Tensor y = Rotated(x, cos, sin, rotated, c.Int("interleaved", 0) != 0);
  c.Out(in.rank() == 4 ? y.Permute({0, 2, 1, 3}) : y.Reshape(in.shape()));
}

constexpr OpRow kRows[] = {
    {"Attention", Attention, 0, Flow::kBatch},
    {"RotaryEmbedding", RotaryEmbedding},
    {"ai.onnx.preview.FlexAttention", FlexAttention, 0, Flow::kBatch},
};

}  // namespace

absl::Span<const OpRow> AttentionOps() { return kRows; }

}  // namespace tessera::onnx
