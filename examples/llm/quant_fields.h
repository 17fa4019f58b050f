// Fields of blocks of bytes, along the last axis.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/llm/quant_blocks.h"
#include "graph/tensor.h"

namespace tessera::llm {

inline Tensor Bytes(const Blocks& b, int64_t begin, int64_t end) { return b.Bytes(begin, end); }
inline Tensor Half(const Blocks& b, int64_t at) { return b.Half(at); }
inline Tensor Word(const Blocks& b, int64_t at) { return b.Word(at); }

// Fields of `width` bits: of bytes [..., n] the fields from the lowest, [..., 8 / width, n].
inline Tensor Fields(const Tensor& bytes, int width) {
  std::vector<Tensor> fields;
  for (int at = 0; at < 8; at += width) fields.push_back((bytes >> at) & ((1 << width) - 1));
  return Stack(fields, -2);
}

// The last axis cut into rows of n.
inline Tensor Cut(const Tensor& t, int64_t rows, int64_t n) { return t.Unflatten(-1, {rows, n}); }

}  // namespace tessera::llm
