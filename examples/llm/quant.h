// Number formats of model files as Tensor operations: a matrix stays as it is stored, and its
// values are an expression over the stored bytes, which fuses into whatever reads it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "graph/tensor.h"
#include "runtime/weight_file.h"

namespace tessera::llm {

// Whether Values knows the format, and the names of all it knows.
bool CanCompute(WeightFormat format);
std::string ComputableFormats();

// The tensor as it is stored, over the mapping itself where that is aligned for its dtype: numbers
// as their own dtype, [..., columns]; blocks as u8, [..., blocks, bytes of a block].
Tensor Stored(const Weight& weight);

// The f32 values of what Stored gave, or of any rows of it: [..., columns].
Tensor Values(const Tensor& stored, WeightFormat format);

}  // namespace tessera::llm
