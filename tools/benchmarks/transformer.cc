// The transformer, in Tensor operations alone.
#include "tools/benchmarks/transformer.h"

#include <cmath>

#include "graph/buffer.h"

namespace tessera::benchmarks {

Tensor GivenBuffer(const Dims& dims, DType dtype, Device device) {
  const Tensor t = Tensor::Empty(dims, dtype, device);
  t.uop().arg<BufferArg>().buffer->storage = std::make_shared<Storage>();
  return t;
}

Transformer::Transformer(const TransformerShape& s, Device device) : shape_(s) {
  const auto weight = [&](const Dims& dims) { return GivenBuffer(dims, s.dtype, device); };
  const int64_t kv = s.kv_heads * s.head_dim();
  embedding_ = weight({s.vocab, s.dim});
  norm_ = weight({s.dim});
  for (int64_t i = 0; i < s.layers; ++i) {
    Layer layer;
    layer.attention_norm = weight({s.dim});
    layer.wq = weight({s.dim, s.dim});
    layer.wk = weight({kv, s.dim});
    layer.wv = weight({kv, s.dim});
    layer.wo = weight({s.dim, s.dim});
    layer.ffn_norm = weight({s.dim});
    layer.gate = weight({s.ffn, s.dim});
    layer.up = weight({s.ffn, s.dim});
    layer.down = weight({s.dim, s.ffn});
    layer.keys = weight({s.kv_heads, s.context, s.head_dim()});
    layer.values = weight({s.kv_heads, s.context, s.head_dim()});
    layers_.push_back(std::move(layer));
  }
}

// Rotary position embedding of [heads, head_dim]: the two halves of a head are the coordinates.
Tensor Transformer::Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) const {
  const int64_t half = shape_.head_dim() / 2;
  const Tensor a = x.SliceAxis(1, {0, half}), b = x.SliceAxis(1, {half, 2 * half});
  return Cat({a * cos - b * sin, b * cos + a * sin}, 1);
}

Tensor Transformer::Attention(Layer& layer, const Tensor& x, const Extent& position) {
  const int64_t head = shape_.head_dim(), group = shape_.heads / shape_.kv_heads;
  const Tensor frequency =
      (Tensor::Arange(head / 2).Cast(kFloat32) * (-2.0 / head * std::log(500000.0))).Exp();
  const Tensor angle = frequency * Tensor::FromExtent(position).Cast(kFloat32);
  const Tensor cos = angle.Cos(), sin = angle.Sin();
  const Tensor q = Rotate(x.Linear(layer.wq).Reshape({shape_.heads, head}), cos, sin);
  const Tensor k = Rotate(x.Linear(layer.wk).Reshape({shape_.kv_heads, head}), cos, sin);
  const Tensor v = x.Linear(layer.wv).Reshape({shape_.kv_heads, head});
  layer.keys.Select(1, position).Assign(k);
  layer.values.Select(1, position).Assign(v);
  const Slice seen{0, position + 1};
  const Tensor keys = layer.keys.SliceAxis(1, seen), values = layer.values.SliceAxis(1, seen);
  const Tensor scores = q.Reshape({shape_.kv_heads, group, head}).MatMul(keys.Transpose());
  const Tensor mixed = (scores * (1 / std::sqrt(static_cast<double>(head)))).Softmax();
  return mixed.MatMul(values).Reshape({1, shape_.dim}).Linear(layer.wo);
}

Tensor Transformer::Step(const Tensor& token, const Extent& position) {
  Tensor x = embedding_.Embedding(token);
  for (Layer& layer : layers_) {
    x = x + Attention(layer, x.RmsNorm(layer.attention_norm, 1e-5), position);
    const Tensor y = x.RmsNorm(layer.ffn_norm, 1e-5);
    x = x + (y.Linear(layer.gate).Silu() * y.Linear(layer.up)).Linear(layer.down);
  }
  return x.RmsNorm(norm_, 1e-5).Linear(embedding_).Reshape({shape_.vocab});
}

std::vector<Tensor> Transformer::Caches() const {
  std::vector<Tensor> out;
  for (const Layer& l : layers_) {
    out.push_back(l.keys);
    out.push_back(l.values);
  }
  return out;
}

}  // namespace tessera::benchmarks
