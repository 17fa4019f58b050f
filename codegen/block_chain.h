// Chained products on GPUs, as attention is: a block of threads takes rows of queries through the
// whole chain.
//
// On a CPU a core keeps whole rows of scores (codegen/product_chain.h). A block's shared memory
// holds 64 of them only up to some 700 keys. So a block keeps the scores of 32 or 64 keys at a
// time. Memory beside the operands and the result: none, whatever the number of keys.
//
// Of softmax it goes over the keys once (codegen/one_pass.h): in each tile of them the scores, what
// of them is the largest of each row so far, the exponentials as the operand of the second product,
// their sums; and the sums of both kinds, in registers, are multiplied by what the maximum grew by,
// a multiplication for each of a thread's 32 sums, a thirty-second or less of the second product's.
// Two products, keys and values read once, one exponential a score and one for each row and tile.
// What matrix units take of up to 128 steps of a query stays in registers for all tiles: of a tile
// of 32 keys that is half of what the first product would read from shared memory. Where units take
// both products, of at least 64 rows, the scores stay in registers as well (codegen/warp_chain.h).
//
// Any other reductions of rows take a pass over the keys each, then one for the second product, and
// each computes the scores again. Nothing is rescaled there, so that any will do. Of f32 without
// matrix units each pass takes about half of the time of both products.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel as tiles, its loops all plain ones; or nothing where it is no chain for blocks.
UOp TileChainBlocks(const UOp& sink, const Target& target);

}  // namespace tessera
