// Maps of GPUs that read along one axis and write along another, as transposes do.
//
// Element by element either the loads or the stores of a warp's 32 threads would each touch a
// sector of memory of their own, of which they use an eighth. So a block of threads takes a
// rectangle: reads it by rows into shared memory, and writes it by columns. Rows of shared memory
// are 33 elements apart, so that a column's elements lie in different banks, whatever their size.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel in such rectangles, its loops all plain ones; or nothing where it is none, or too
// small for them.
UOp TurnBlocks(const UOp& sink, const Target& target);

}  // namespace tessera
