// Number formats of model files as Tensor operations: a matrix stays as it is stored, and its
// values are an expression over the stored bytes, which fuses into whatever reads it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/quant_blocks.h"
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

// ---- products of integers

// Numbers as integers of eight bits in blocks of 16 or 32, in the order of the values; one axis or
// several count the blocks, and one or several the numbers of a block.
struct IntegerBlocks {
  Tensor integers;         // i8 or u8 [..., axes of blocks, axes of numbers]
  Tensor scales, offsets;  // f32 [..., axes of blocks]; a value is integer * scale + offset
};

// Whether the format's values are such numbers.
bool HasIntegers(WeightFormat format);
IntegerBlocks Integers(const Blocks& stored, WeightFormat format);

// Blocks in panels, made at once, for products on CPUs: those of several rows take half the time.
// Of [columns, blocks, bytes] in formats that gain by it, where the columns fill panels.
bool HasPanels(const Tensor& stored, WeightFormat format);
Blocks InPanels(const Tensor& stored, WeightFormat format);

// Rounded f32 values [..., columns]: in each block of 32 the number of greatest magnitude is 127
// times the scale, which is then rounded to f16, as in blocks of Q8_0. What is not finite stays so
// in its block. Stored, so that all products of the values share them.
struct RoundedRows {
  Tensor integers;  // i8 [..., blocks, 32]
  Tensor scales;    // f32 [..., blocks], of numbers of f16
  Tensor sums;      // f32 [..., blocks], of each block's rounded values
  explicit operator bool() const { return static_cast<bool>(integers); }
};
RoundedRows Quantise(const Tensor& values);

// [..., rows, columns] of [..., rows, n] and [..., columns, n], in batches of no or one axis: the
// integers' products are summed exactly within blocks, and blocks in f32.
Tensor Product(const RoundedRows& rows, const IntegerBlocks& columns);

}  // namespace tessera::llm
