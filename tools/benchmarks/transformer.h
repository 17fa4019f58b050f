// A Llama-like transformer over empty weights: one decode step of it is what graph rows measure.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace tessera::benchmarks {

struct TransformerShape {
  int64_t dim = 2048, layers = 16, heads = 32, kv_heads = 8, ffn = 8192, vocab = 128256;
  int64_t context = 4096;
  DType dtype = kFloat32;
  int64_t head_dim() const { return dim / heads; }
};

// A buffer that counts as given though it has no contents: on NULL nothing is ever read.
Tensor GivenBuffer(const Dims& dims, DType dtype, Device device);

class Transformer {
 public:
  // Weights and caches are storage on the device, without contents.
  Transformer(const TransformerShape& shape, Device device);

  // The logits [vocab] of one token, i32[1], at a position; writes its keys and values into the
  // caches. Nothing runs.
  Tensor Step(const Tensor& token, const Extent& position);

  // What a step leaves behind: realise these with its logits.
  std::vector<Tensor> Caches() const;

 private:
  struct Layer {
    Tensor attention_norm, wq, wk, wv, wo, ffn_norm, gate, up, down;
    Tensor keys, values;  // [kv_heads, context, head_dim]
  };
  Tensor Attention(Layer& layer, const Tensor& x, const Extent& position);
  Tensor Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) const;

  TransformerShape shape_;
  Tensor embedding_, norm_;
  std::vector<Layer> layers_;
};

}  // namespace tessera::benchmarks
