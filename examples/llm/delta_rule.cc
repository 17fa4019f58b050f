// Layers with a memory in place of attention, written by the gated delta rule (Qwen3-Next,
// Qwen3.5).
//
// A head's memory S maps keys to values. A position makes it forget, S a, and then corrects what it
// gives for the position's key k towards the value v by a share b: S += k (b (v - k S)). What a
// query q gets is q S. The corrections of some positions together are the solution of a triangle,
// as each depends on those before it; so the positions of a step are taken in blocks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/llm/transformer.h"

namespace tessera::llm {
namespace {

constexpr int64_t kMostInBlock = 16;  // positions; their triangles are solved row by row

// What is read and written by T positions, [heads, T, ...].
struct Accesses {
  Tensor q, k, v;
  Tensor share;  // [heads, T], of what is written: 0 writes nothing
  Tensor kept;   // [heads, T], the logarithm of what is kept: 0 forgets nothing
};

// The results [heads, T, values]; *memory [heads, keys, values] becomes the one after.
Tensor Access(const Accesses& a, Tensor* memory) {
  const int64_t heads = a.q.size(0), tokens = a.q.size(1);
  if (tokens == 1) {
    const Tensor old = *memory * a.kept.Exp().Unsqueeze(-1);
    const Tensor wrong = a.v - a.k.MatMul(old);
    *memory = old + a.k.Transpose().MatMul(wrong * a.share.Unsqueeze(-1));
    return a.q.MatMul(*memory);
  }
  int64_t size = std::min(kMostInBlock, tokens);
  while (tokens % size != 0) --size;
  const int64_t blocks = tokens / size;
  const auto in_blocks = [&](const Tensor& t) {
    return t.Reshape({heads, blocks, size, t.size(2)});
  };
  const Tensor q = in_blocks(a.q), k = in_blocks(a.k);
  const Tensor share = a.share.Reshape({heads, blocks, size, 1});
  const Tensor since = a.kept.Reshape({heads, blocks, size, 1}).CumSum(2);  // the block's beginning
  const Tensor place = Tensor::Arange(size, kInt32);
  const Tensor before = place <= place.Unsqueeze(1);
  const Tensor between =
      Where(before, since - since.Transpose(), -std::numeric_limits<float>::infinity()).Exp();
  const Tensor others = (k * share).MatMul(k.Transpose()) * between;
  const Tensor triangle = Where(place == place.Unsqueeze(1), 1.0f, others);
  // Of values, and of keys as the memory at the block's beginning sees them.
  const int64_t values = a.v.size(2), keys = a.k.size(2);
  const Tensor solved =
      triangle.SolveTriangular(Cat({in_blocks(a.v) * share, k * share * since.Exp()}, -1));
  const Tensor among = (q.MatMul(k.Transpose()) * between).Contiguous();
  const Tensor end = since.SliceAxis(2, {size - 1, size});
  const Tensor q_since = q * since.Exp(), k_until = k * (end - since).Exp();
  std::vector<Tensor> out;
  for (int64_t i = 0; i < blocks; ++i) {
    const Tensor own = solved.Select(1, i);
    const Tensor written = (own.SliceAxis(-1, {0, values}) -
                            own.SliceAxis(-1, {values, values + keys}).MatMul(*memory))
                               .Contiguous();
    out.push_back(q_since.Select(1, i).MatMul(*memory) + among.Select(1, i).MatMul(written));
    *memory = (*memory * end.Select(1, i).Exp() + k_until.Select(1, i).Transpose().MatMul(written))
                  .Contiguous();
  }
  return out.size() == 1 ? out[0] : Cat(out, 1);
}

Tensor OfLengthOne(const Tensor& x) {
  constexpr double kEps = 1e-6;
  return x * (x.Square().Sum({-1}, /*keepdim=*/true) + kEps).Rsqrt();
}

}  // namespace

Tensor Transformer::Memory(size_t layer, const Tensor& x, Parts parts) const {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.layers[layer];
  const int64_t groups = c.memory_key_heads, heads = c.memory_value_heads;
  const int64_t keys = groups * c.memory_key_dim, each = heads / groups;
  const Rows rows = RowsFor(
      x, {w.memory_q, w.memory_k, w.memory_v, w.memory_gate, w.memory_write, w.memory_keep});
  const auto of_input = [&](const Matrix& m) { return Project(rows, m); };
  const Tensor inputs = Cat({of_input(w.memory_q), of_input(w.memory_k), of_input(w.memory_v)}, -1);
  const Tensor rate = (of_input(w.memory_keep) + w.memory_keep_bias).Softplus() * w.memory_rate;
  const Tensor share = of_input(w.memory_write).Sigmoid();

  const Tensor results = ForEachPart(parts, [&](const Part& part, const auto& own) {
    // Queries, keys and values are sums of what a position and the last few have. What is padded
    // beyond `count` positions neither is kept nor makes the memory forget.
    const int64_t tokens = part.tokens;
    Tensor last = part.caches[layer].keys, memory = part.caches[layer].values;
    const Tensor read = Cat({last, own(inputs)}, 0).Contiguous();
    Tensor sum;
    for (int64_t i = 0; i < c.taps; ++i) {
      const Tensor tap =
          read.SliceAxis(0, {i, i + tokens}) * w.memory_taps.SliceAxis(0, {i, i + 1});
      sum = sum ? sum + tap : tap;
    }
    const Tensor mixed = sum.Silu().Contiguous();
    last.Assign(read.SliceAxis(0, {part.count, part.count + (c.taps - 1)}));

    const auto of_heads = [&](const Tensor& of_groups) {  // [groups, T, keys]
      const int64_t keys_of = c.memory_key_dim;
      const Dims shape = c.memory_tiled ? Dims{each, groups, tokens, keys_of}
                                        : Dims{groups, each, tokens, keys_of};
      return of_groups.Unsqueeze(c.memory_tiled ? 0 : 1).BroadcastTo(shape).Flatten(0, 1);
    };
    const auto columns = [&](int64_t begin, int64_t count_of, int64_t length) {
      return mixed.SliceAxis(-1, {begin, begin + count_of * length})
          .Reshape({tokens, count_of, length})
          .Permute({1, 0, 2});
    };
    const double scale = 1 / std::sqrt(static_cast<double>(c.memory_key_dim));
    const Tensor there = tokens == 1 ? Tensor::Ones({1, 1})
                                     : (Tensor::Arange(tokens, kInt32) < part.count).Cast(kFloat32);
    const auto of_position = [&](const Tensor& t) { return own(t).Transpose() * there; };
    Tensor next = memory;
    const Tensor gives =
        Access(
            {of_heads(OfLengthOne(columns(0, groups, c.memory_key_dim)) * scale),
             of_heads(OfLengthOne(columns(keys, groups, c.memory_key_dim))),
             columns(2 * keys, heads, c.memory_value_dim), of_position(share), of_position(rate)},
            &next)
            .Contiguous();
    memory.Assign(next);
    return gives.Permute({1, 0, 2});
  });
  const Tensor normed = results.RmsNorm(w.memory_norm, c.norm_eps);
  return Project(normed.Flatten(1, 2) * of_input(w.memory_gate).Silu(), w.memory_out);
}

}  // namespace tessera::llm
