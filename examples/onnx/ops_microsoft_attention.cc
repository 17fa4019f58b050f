// Attention of com.microsoft: of encoders, of decoders that give their keys and values back, and of
// grouped heads.
#include <cmath>

#include "examples/onnx/attention.h"
#include "examples/onnx/call.h"
#include "examples/onnx/quantize.h"

namespace tessera::onnx {
namespace {

// [batch, length, heads * size] as [batch, heads, length, size], and back.
Tensor SplitHeads(Call& c, const Tensor& x, int64_t heads) {
  if (x.rank() != 3 || heads < 1 || x.size(2) % heads != 0) {
    c.Fail("an input of ", heads, " heads has shape ", x.shape().ToString());
  }
  return x.Reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).Permute({0, 2, 1, 3});
}
Tensor JoinHeads(const Tensor& x) {
  return x.Permute({0, 2, 1, 3}).Reshape({x.size(0), x.size(2), -1});
}
Tensor CatPast(const Tensor& past, const Tensor& now) {
  return past ? Cat(std::vector<Tensor>{past, now}, 2) : now;
}

// What is added to the scores of queries for keys.
struct Bias {
  Tensor sum;
  void Add(const Tensor& t) { sum = sum ? sum + t : t; }
};
struct Scoring {
  double scale = 1;
  double cap = 0;  // 0: none
  Tensor bias;
  Tensor sink;  // of each head, one more score that no key has
};
// All are [batch, heads, length, size]; in f32 or wider.
struct Attended {
  Tensor y, scores;
};
Attended Attend(const Tensor& q, Tensor k, Tensor v, const Scoring& how) {
  ShareHeads(q, k, v);
  const DType wide = Promote(q.dtype(), kFloat32);
  Tensor scores = (q.Cast(wide) * how.scale).MatMul(k.Cast(wide).Transpose());
  if (how.cap > 0) scores = (scores / how.cap).Tanh() * how.cap;
  if (how.bias) scores = scores + how.bias.Cast(wide);
  Tensor weights;
  if (how.sink) {
    const Tensor sink = how.sink.Cast(wide)
                            .Reshape({1, -1, 1, 1})
                            .BroadcastTo({scores.size(0), scores.size(1), scores.size(2), 1});
    weights = Cat(std::vector<Tensor>{scores, sink}, 3).Softmax(-1);
    weights = weights.SliceAxis(3, {0, scores.size(3)});
  } else {
    weights = scores.Softmax(-1);
  }
  return {weights.MatMul(v.Cast(wide)).Cast(q.dtype()), scores};
}
double ScaleOf(Call& c, const Tensor& q) {
  const double given = c.Float("scale", 0);
  return given != 0 ? given : 1 / std::sqrt(static_cast<double>(q.size(3)));
}

// A mask of padding, for [batch, 1, queries, keys]: how many keys there are, where they begin and
// end, or which there are, for all queries or for each.
Tensor MaskBias(Call& c, const Tensor& mask, int64_t batch, int64_t keys) {
  const Tensor key = Tensor::Arange(keys, kInt64);
  Tensor hidden;
  if (mask.rank() == 1 && mask.size(0) == batch) {
    hidden = key >= mask.Cast(kInt64).Reshape({batch, 1, 1, 1});
  } else if (mask.rank() == 1 && mask.size(0) == 2 * batch) {
    const Tensor ends = mask.Cast(kInt64).Reshape({2, batch, 1, 1, 1});
    hidden = (key >= ends.Select(0, 0)) | (key < ends.Select(0, 1));
  } else if (mask.rank() == 2 && mask.size(1) == keys) {
    hidden = (mask <= 0).Reshape({mask.size(0), 1, 1, keys});
  } else if (mask.rank() == 3 && mask.size(2) == keys) {
    hidden = (mask <= 0).Unsqueeze(1);
  } else {
    c.Unsupported("a mask of shape ", mask.shape().ToString(), " for ", keys, " keys");
  }
  return Where(hidden, Tensor::Full({}, c.Float("mask_filter_value", -10000), kFloat32),
               Tensor::Full({}, 0.0, kFloat32));
}
// Keys after each query, where the queries are the last of them.
Tensor Causal(int64_t queries, int64_t keys) {
  const Tensor at = Tensor::Arange(queries, kInt64).Unsqueeze(1) + (keys - queries);
  return Hidden(Tensor::Arange(keys, kInt64) > at, kFloat32);
}
// By the inputs and attributes that Attention and MultiHeadAttention share.
Scoring ScoringOf(Call& c, const Tensor& q, int64_t keys, int mask, int more) {
  Bias bias;
  if (c.Has(mask)) bias.Add(MaskBias(c, c.In(mask), q.size(0), keys));
  if (c.Int("unidirectional", 0) != 0) bias.Add(Causal(q.size(2), keys));
  if (c.Has(more)) bias.Add(c.In(more));
  return {ScaleOf(c, q), 0, bias.sum, {}};
}

// Queries, keys and values lie side by side; the past has keys and values stacked.
struct PackedInputs {
  int mask, past, more;  // more to add to the scores
};
void PackedAttention(Call& c, const Tensor& all, const PackedInputs& at) {
  const int64_t heads = c.Int("num_heads"), width = all.size(2), third = width / 3;
  if (c.Int("do_rotary", 0) != 0) c.Unsupported("do_rotary");
  if (c.Int("past_present_share_buffer", 0) != 0) c.Unsupported("past_present_share_buffer");
  const std::vector<int64_t> sizes = c.Ints("qkv_hidden_sizes", {third, third, third});
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] != sizes[1] ||
      sizes[0] > width || sizes[2] != width - 2 * sizes[0]) {
    c.Fail("qkv_hidden_sizes do not fit weights of ", width, " columns");
  }
  const auto part = [&](int64_t from, int64_t size) {
    return SplitHeads(c, all.SliceAxis(2, {from, from + size}), heads);
  };
  const Tensor q = part(0, sizes[0]);
  Tensor k = part(sizes[0], sizes[0]), v = part(2 * sizes[0], sizes[2]);
  if (c.Has(at.past)) {
    k = CatPast(c.In(at.past).Select(0, 0), k);
    v = CatPast(c.In(at.past).Select(0, 1), v);
  }
  c.OutOf(JoinHeads(Attend(q, k, v, ScoringOf(c, q, k.size(2), at.mask, at.more)).y), 0);
  if (c.Wants(1)) c.OutOf(Stack(std::vector<Tensor>{k, v}, 0), 0);
}
void CheckProjection(Call& c) {
  const Tensor x = c.In(0), w = c.In(1);
  if (x.rank() != 3 || w.rank() != 2) {
    c.Fail("of ", x.shape().ToString(), " and weights ", w.shape().ToString());
  }
}

void Attention(Call& c) {
  CheckProjection(c);
  if (c.Has(6)) c.Unsupported("past_sequence_length");
  const Tensor x = c.In(0), all = x.MatMul(c.In(1)).Cast(x.dtype());
  PackedAttention(c, c.Has(2) ? all + c.In(2) : all, {3, 4, 5});
}
// The same of integers.
void QAttention(Call& c) {
  CheckProjection(c);
  const Tensor sum = Integers(c, 0, 6, 2).MatMul(Integers(c, 1, 7, 1));
  const Tensor scale = ScaleAlong(c, 3, 2, 3) * ScaleAlong(c, 4, 2, 3);
  PackedAttention(c, sum.Cast(scale.dtype()) * scale + c.In(2), {5, 8, c.inputs()});
}

// Queries, keys and values come by themselves, or packed [batch, length, heads, 2 or 3, size].
void MultiHeadAttention(Call& c) {
  const int64_t heads = c.Int("num_heads");
  if (c.Has(8) || c.Has(9)) c.Unsupported("past_sequence_length and cache_indirection");
  const auto packed = [&](const Tensor& x, int64_t count) {
    if (x.rank() != 5 || x.size(2) != heads || x.size(3) != count) {
      c.Fail("packed inputs of shape ", x.shape().ToString(), ", not ", count, " of each head");
    }
    return x.Permute({3, 0, 2, 1, 4});
  };
  Tensor bias_q, bias_k, bias_v;  // [heads, 1, size]
  const auto with = [](const Tensor& x, const Tensor& bias) { return bias ? x + bias : x; };
  const auto set_bias = [&](int64_t size, int64_t value_size) {
    if (!c.Has(3)) return;
    const Tensor bias = c.In(3);
    const int64_t n = heads * size;
    bias_q = bias.SliceAxis(0, {0, n}).Reshape({heads, 1, size});
    bias_k = bias.SliceAxis(0, {n, 2 * n}).Reshape({heads, 1, size});
    bias_v = bias.SliceAxis(0, {2 * n, bias.size(0)}).Reshape({heads, 1, value_size});
  };
  Tensor q, k, v;
  if (!c.Has(1)) {
    const Tensor all = packed(c.In(0), 3);
    q = all.Select(0, 0);
    k = all.Select(0, 1);
    v = all.Select(0, 2);
    set_bias(q.size(3), v.size(3));
  } else {
    q = SplitHeads(c, c.In(0), heads);
    const Tensor key = c.In(1);
    if (!c.Has(2)) {
      const Tensor both = packed(key, 2);
      k = both.Select(0, 0);
      v = both.Select(0, 1);
    } else {
      // Those of rank 4 are a cache as it is: no bias is added.
      k = key.rank() == 4 ? key : SplitHeads(c, key, heads);
      v = key.rank() == 4 ? c.In(2) : SplitHeads(c, c.In(2), heads);
    }
    set_bias(q.size(3), v.size(3));
    if (key.rank() == 4) bias_k = bias_v = {};
  }
  q = with(q, bias_q);
  k = CatPast(c.InOr(6), with(k, bias_k));
  v = CatPast(c.InOr(7), with(v, bias_v));
  const Attended a = Attend(q, k, v, ScoringOf(c, q, k.size(2), 4, 5));
  c.Out(JoinHeads(a.y));
  c.Out(k);
  c.Out(v);
}

// cos and sin at positions [batch or 1, length].
Tensor Turned(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& at,
              bool interleaved) {
  const DType wide = Promote(x.dtype(), kFloat32);
  return Rotated(x.Cast(wide), cos.Take(at, 0).Cast(wide), sin.Take(at, 0).Cast(wide),
                 2 * cos.size(1), interleaved)
      .Cast(x.dtype());
}

void RotaryEmbedding(Call& c) {
  const Tensor in = c.In(0), cos = c.In(2), sin = c.In(3);
  if (c.Int("is_packed_batching", 0) != 0) c.Unsupported("is_packed_batching");
  Tensor x = in;  // as [batch, length, heads, size]
  if (in.rank() == 4) {
    x = in.Permute({0, 2, 1, 3});
  } else if (in.rank() == 3) {
    const int64_t given = c.Int("num_heads", 0);
    const int64_t size = given > 0 ? in.size(2) / given : 2 * cos.size(1);
    if (size < 1 || in.size(2) % size != 0) {
      c.Fail("num_heads is ", given, " for an input of shape ", in.shape().ToString());
    }
    x = in.Reshape({in.size(0), in.size(1), -1, size});
  } else {
    c.Fail("the input has shape ", in.shape().ToString(), "; its rank is 3 or 4");
  }
  if (cos.rank() != 2 || 2 * cos.size(1) > x.size(3)) {
    c.Fail("cos of shape ", cos.shape().ToString(), " for heads of ", x.size(3));
  }
  Tensor at = c.In(1);
  if (at.elements() == 1) {  // of the first
    at = (at.Reshape({}) + Tensor::Arange(x.size(1), kInt64)).Unsqueeze(0);
  }
  // ONNX Runtime has an attribute `scale` and does not scale by it.
  const Tensor y = Turned(x, cos, sin, at, c.Int("interleaved", 0) != 0);
  c.Out(in.rank() == 4 ? y.Permute({0, 2, 1, 3}) : y.Reshape(in.shape()));
}

// ---- grouped heads, with a cache

// Each head's numbers over the root of their mean square.
Tensor RmsNormed(const Tensor& x, const Tensor& weight, double epsilon) {
  const Tensor wide = x.Cast(Promote(x.dtype(), kFloat32));
  const Tensor y = wide * (wide.Square().Mean({-1}, true) + epsilon).Rsqrt();
  return (y * weight.Cast(wide.dtype())).Cast(x.dtype());
}

// What a cache [batch, heads, P, size] holds after the new ones come after the first `before`
// [batch, 1, 1, 1] of it: as many positions as it had, or as `total` needs.
Tensor Cached(const Tensor& past, const Tensor& now, const Tensor& before, int64_t total) {
  const int64_t had = past ? past.size(2) : 0, length = std::max(had, total);
  const Tensor all = CatPast(past, now);
  const Tensor at = Tensor::Arange(length, kInt64).Reshape({1, 1, length, 1});
  // What lies beyond the new ones is outside of both, and reads 0.
  const Tensor from = Where(at < before, at, at - before + had);
  return all.Gather(2, from.BroadcastTo({now.size(0), now.size(1), length, now.size(3)}));
}

void CheckGrouped(Call& c) {
  for (const char* type : {"k_quant_type", "v_quant_type"}) {
    if (c.String(type, "NONE") != "NONE") c.Unsupported(type, " ", c.String(type, ""));
  }
  if (c.Int("sliding_window_cache", 0) != 0) c.Unsupported("sliding_window_cache");
  if (c.Has(16)) c.Unsupported("query_seqlens");
  if (c.Wants(3)) c.Unsupported("the output of scores");
}

// Queries, keys and values as [batch, length, heads, size], of one input or of three.
struct Grouped {
  Tensor q, k, v;
};
Grouped GroupedInputs(Call& c) {
  const int64_t heads = c.Int("num_heads"), kv_heads = c.Int("kv_num_heads");
  const Tensor x = c.In(0);
  if (kv_heads < 1 || heads < 1 || heads % kv_heads != 0 || x.rank() != 3 || heads > x.size(2)) {
    c.Fail("num_heads is ", heads, " and kv_num_heads ", kv_heads, " for an input of shape ",
           x.shape().ToString());
  }
  const auto split = [&](const Tensor& t, int64_t n) {
    if (t.rank() != 3 || t.size(2) % n != 0) {
      c.Fail("an input of ", n, " heads has shape ", t.shape().ToString());
    }
    return t.Reshape({t.size(0), t.size(1), n, t.size(2) / n});
  };
  if (c.Has(1)) return {split(x, heads), split(c.In(1), kv_heads), split(c.In(2), kv_heads)};
  const Tensor all = split(x, heads + 2 * kv_heads);
  return {all.SliceAxis(2, {0, heads}), all.SliceAxis(2, {heads, heads + kv_heads}),
          all.SliceAxis(2, {heads + kv_heads, heads + 2 * kv_heads})};
}

void GroupQueryAttention(Call& c) {
  CheckGrouped(c);
  Grouped in = GroupedInputs(c);
  if (c.Has(14)) {
    const double epsilon = c.Float("qk_norm_epsilon", 1e-6f);
    in.q = RmsNormed(in.q, c.In(14), c.Float("q_norm_epsilon", epsilon));
    in.k = RmsNormed(in.k, c.In(15), c.Float("k_norm_epsilon", epsilon));
  }
  const int64_t batch = in.q.size(0), queries = in.q.size(1), total = c.HostInt(6);
  const int64_t had = c.Has(3) ? c.In(3).size(2) : 0;
  if (total < queries || total > had + queries) {
    c.Fail("total_sequence_length is ", total, " for ", queries, " new ones and a past of ", had);
  }
  // How many keys each row of the batch has, with the new ones; a prompt may be padded after them.
  const Tensor ends = c.In(5).Cast(kInt64).Reshape({batch, 1, 1, 1}) + 1;
  const Tensor before =
      total == queries ? Tensor::Zeros({1, 1, 1, 1}, kInt64) : (ends - queries).Maximum(0);
  const Tensor row = Tensor::Arange(queries, kInt64);
  if (c.Int("do_rotary", 0) != 0) {
    const Tensor at = c.Has(9) ? c.In(9) : before.Reshape({-1, 1}) + row;
    const bool interleaved = c.Int("rotary_interleaved", 0) != 0;
    in.q = Turned(in.q, c.In(7), c.In(8), at, interleaved);
    in.k = Turned(in.k, c.In(7), c.In(8), at, interleaved);
  }
  const auto heads_first = [](const Tensor& t) { return t.Permute({0, 2, 1, 3}); };
  const Tensor q = heads_first(in.q);
  const Tensor k = Cached(c.InOr(3), heads_first(in.k), before, total);
  const Tensor v = Cached(c.InOr(4), heads_first(in.v), before, total);

  const Tensor key = Tensor::Arange(k.size(2), kInt64);
  const Tensor at = row.Unsqueeze(1) + before;  // of each query
  Tensor hidden = key >= ends;
  if (c.Int("causal", 1) != 0) hidden = hidden | (key > at);
  const int64_t window = c.Int("local_window_size", -1);
  if (window >= 0) hidden = hidden | (key <= at - window);
  Bias bias;
  bias.Add(Hidden(hidden, kFloat32));
  if (c.Has(10)) {
    Tensor more = c.In(10);
    Pairs pairs(more.rank());
    pairs.back().second = std::max<int64_t>(k.size(2) - more.size(-1), 0);
    bias.Add(more.Pad(pairs));
  }
  Scoring how{ScaleOf(c, q), c.Float("softcap", 0), bias.sum, c.InOr(11)};
  if (!how.sink && c.Int("smooth_softmax", 0) == 1) how.sink = Tensor::Zeros({q.size(1)});
  c.Out(JoinHeads(Attend(q, k, v, how).y));
  c.Out(k);
  c.Out(v);
}

constexpr OpRow kRows[] = {
    {"com.microsoft.Attention", Attention, 0, Flow::kBatch},
    {"com.microsoft.GroupQueryAttention", GroupQueryAttention, HostInput({6}), Flow::kBatch},
    {"com.microsoft.MultiHeadAttention", MultiHeadAttention, 0, Flow::kBatch},
    {"com.microsoft.QAttention", QAttention, 0, Flow::kBatch},
    {"com.microsoft.RotaryEmbedding", RotaryEmbedding},
};

}  // namespace

absl::Span<const OpRow> MicrosoftAttentionOps() { return kRows; }

}  // namespace tessera::onnx
