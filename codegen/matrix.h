// Matrix units of GPUs: sums of products that the threads of a warp do together.
//
// A unit multiplies [16, steps] by [steps, 16]. Of the 16 x 16 sums thread `lane` of the warp has
// eight: in rows lane / 4 and 8 below, of columns 2 * (lane % 4) and the next one, and of those 8
// to the right. So a kernel says it: each thread sums its own eight elements over a RANGE of kind
// kMatrix, of one unit's steps. That is right by itself; UseMatrixUnits makes fragments of it.
//
// A unit of four warps multiplies [64, steps] by [steps, 8 n], of which each warp has 16 rows, and
// each thread these two pairs of every eight columns. It reads both operands where they are staged
// (block_tiler.h says how they lie there), so that no warp reads what another one has read.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The ranges of a unit. Their ids follow one another, which is how they are found again.
struct MatrixRanges {
  UOp steps;        // of the sum, kMatrix
  UOp row_half;     // 0 or 1: 8 rows below
  UOp column_part;  // so many times 8 columns to the right
  UOp pair;         // 0 or 1: the next column
};
// The pairs are lanes of a vector if `vectors`, else copies.
MatrixRanges MakeMatrixRanges(int64_t first_id, int64_t steps, int64_t columns, bool vectors);

// The row and the pair of columns of a thread's sums within the unit.
UOp MatrixRow(const MatrixRanges& ranges, const UOp& lane);
UOp MatrixColumnPair(const MatrixRanges& ranges, const UOp& lane);

// Whether a FRAGMENT says where rows begin, which a unit of several warps reads there by itself.
bool ReadInPlace(const UOp& u);

// Sums over kMatrix ranges, of what lies in scratch, by the units of the target: operands are read
// as fragments of 16 bytes a thread (eight rows of 16 bytes make a matrix, four matrices a
// fragment), and the sums of a thread are the lanes of one vector. What the target cannot do, and
// what does not lie in rows of 16 bytes, stays a loop.
UOp UseMatrixUnits(const UOp& sink, const Target& target);

}  // namespace tessera
