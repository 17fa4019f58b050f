// Reductions of GPUs down the columns of a matrix (sums over axis 0, a vector by a matrix in rows,
// what attention of one query does with its values), of too few columns for a chip full of threads.
//
// A thread for each column would read whole rows together with its neighbours, but leave most of
// the chip idle; a block for each column would use an eighth of each sector that it reads, or less.
// So each warp of a block takes the same 32 columns, or vectors of them, and every so many rows;
// what the warps have is combined in shared memory. Of products of a few rows by the matrix a
// thread takes up some at once, so that each element is read once for them.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel so, its loops all plain ones; or nothing where it is none of these.
UOp ReduceColumnBlocks(const UOp& sink, const Target& target);

}  // namespace tessera
