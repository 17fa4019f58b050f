// Chained products in one pass (codegen/one_pass.h) by the matrix units of warps: what lies between
// the products stays in registers.
//
// Each of four warps takes 16 rows of queries through tiles of 64 keys. Of a unit's 16 x 16 scores
// a thread has eight (codegen/matrix.h), which are, rounded, just what it holds of the left operand
// of a unit of the second product. So scores are never stored: each thread makes weights of its
// own, the four threads that share a row combine what they have of its maximum, and of the sums
// what they have in the end. Shared memory holds the queries, which each warp reads once, and keys
// and values, of which the next tile is fetched meanwhile; each tile takes one barrier.
//
// Of a head of 128 a warp does 2 * 2 * 16 * 64 * 128 flops a tile and reads 32 KB of shared memory,
// 256 clocks of it for 205 of a multiprocessor's units at the rate of mma.sync on an H100. 32 heads
// of 2048 x 128 in bf16 took 291 us there, 671 with scores in shared memory.
#pragma once

#include "codegen/one_pass.h"
#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel, its loops all plain ones; or nothing where units do not take both of its products, or
// there are few rows.
UOp TileWarpChain(const OnePass& pass, const Target& target);

}  // namespace tessera
