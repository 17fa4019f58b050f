// The decoder: embedding, layers of attention and feed-forward, output, as Tensor expressions.
#pragma once

#include <vector>

#include "examples/llm/model.h"
#include "graph/tensor.h"

namespace tessera::llm {

class Transformer {
 public:
  // With empty caches of this dtype for `context` positions. The model must outlive it.
  Transformer(const Model& model, int64_t context, DType cache);

  // The last hidden states [T, dim], normed, of tokens [T] (i32) at position, position + 1, ...;
  // writes their keys and values into the caches.
  Tensor Hidden(const Tensor& tokens, const Extent& position);
  // [..., vocabulary] of hidden states [..., dim], where the model's division wants them.
  Tensor Logits(const Tensor& hidden) const;

  int64_t context() const { return context_; }
  uint64_t cache_bytes() const;

 private:
  struct Cache {
    Tensor keys, values;  // [kv_heads, context, head_dim]
  };
  Tensor Attention(const LayerWeights& w, Cache& cache, const Tensor& x, const Extent& position);
  Tensor Rotate(const Tensor& x, const Extent& position) const;
  Tensor Mask(int64_t tokens, const Extent& position) const;

  const Model& model_;
  int64_t context_;
  Tensor cos_, sin_;  // [context, head_dim / 2]
  std::vector<Cache> caches_;
};

}  // namespace tessera::llm
