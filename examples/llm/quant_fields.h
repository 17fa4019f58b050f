// Fields of blocks of bytes, along the last axis.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/tensor.h"

namespace tessera::llm {

// Bytes begin..end of every block.
inline Tensor Bytes(const Tensor& blocks, int64_t begin, int64_t end) {
  return blocks.SliceAxis(-1, {begin, end});
}

// The two bytes from `at` as a number of half precision, in f32: [..., 1].
inline Tensor Half(const Tensor& blocks, int64_t at) {
  const Tensor low = Bytes(blocks, at, at + 1).Cast(kUInt16);
  const Tensor high = Bytes(blocks, at + 1, at + 2).Cast(kUInt16);
  return (low | (high << 8)).Bitcast(kFloat16).Cast(kFloat32);
}

// Four bytes as one number: [..., 1].
inline Tensor Word(const Tensor& blocks, int64_t at) {
  Tensor word = Bytes(blocks, at, at + 1).Cast(kUInt32);
  for (int i = 1; i < 4; ++i) {
    word = word | (Bytes(blocks, at + i, at + i + 1).Cast(kUInt32) << (8 * i));
  }
  return word;
}

// Fields of `width` bits: of bytes [..., n] the fields from the lowest, [..., 8 / width, n].
inline Tensor Fields(const Tensor& bytes, int width) {
  std::vector<Tensor> fields;
  for (int at = 0; at < 8; at += width) fields.push_back((bytes >> at) & ((1 << width) - 1));
  return Stack(fields, -2);
}

// The last axis cut into rows of n.
inline Tensor Cut(const Tensor& t, int64_t rows, int64_t n) { return t.Unflatten(-1, {rows, n}); }

}  // namespace tessera::llm
