// Parts of attention that ONNX's own ops and those of com.microsoft share.
#pragma once

#include "graph/tensor.h"

namespace tessera::onnx {

// What is added to scores: 0, or -inf where a key is hidden.
Tensor Hidden(const Tensor& hidden, DType dtype);

// Several heads of queries may share one of keys and values, all [batch, heads, length, size].
void ShareHeads(const Tensor& q, Tensor& k, Tensor& v);

// The first `rotated` numbers of each head of x [batch, length, heads, size] turned in pairs, which
// are beside each other or half of them apart; cos and sin are [batch or 1, length, rotated / 2].
Tensor Rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t rotated,
               bool interleaved);

}  // namespace tessera::onnx
