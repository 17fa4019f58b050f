// Chained products on GPUs, as attention is: a block of threads takes rows of queries through the
// whole chain.
//
// On a CPU a core keeps whole rows of scores (codegen/product_chain.h). A block's shared memory
// holds 64 of them only up to some 700 keys. So a block keeps the scores of 32 or 64 keys at a time
// and goes over the keys once for each reduction of rows (the maximum, the sum of exponentials) and
// once more for the second product, and computes the scores again each time. Of softmax that is
// three products for one; each score then costs 6 d flops more than one that is kept, which pays
// 8 bytes to write it and read it back at least twice: of bf16 by matrix units a tenth of the time,
// of f32 without them about as long. Memory beside the operands and the result: none, whatever the
// number of keys. Nothing is rescaled, so that any reduction of rows will do, and results are what
// the composed operations give.
//
// One pass over the keys, with a running maximum and sums that are scaled anew where it grows,
// would do two products instead of four (and read keys once instead of three times): up to half of
// the time. It would cost one multiplication for each of the 32 sums of a thread in every tile of
// 32 or 64 keys, a sixty-fourth of the second product's, and a barrier. It takes a reduction whose
// value is a maximum, a sum and a row at once, which kernels in index form do not have.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel as tiles, its loops all plain ones; or nothing where it is no chain for blocks.
UOp TileChainBlocks(const UOp& sink, const Target& target);

}  // namespace tessera
