// Contractions of GPUs in tiles: a block of threads computes one tile of the result, step by step
// along the sum, from tiles of both operands in its shared memory.
//
// What staging evaluates is an operand's whole expression (a cast, a dequantisation, a mask, the
// window of a convolution), what storing evaluates is whatever the kernel does with the sums. An
// operand that is just read is fetched ahead, without waiting, where the chip can (`fetches` of
// the Target); any other is computed a step ahead. Tiles of 16- and 8-bit operands (and of f32 with
// TF32=1) are multiplied by the matrix units (codegen/matrix.h), others by one thread for each
// piece of 8 x 8 sums.
//
// In shared memory the range along which an operand is adjacent in memory is adjacent too, in rows
// of up to 128 bytes and 16 of padding: vectors of 16 bytes are stored there, and read by eight
// threads at a time (ldmatrix, or a vector each), from distinct banks, as 9 is odd. Rows of a
// turned operand are longer by as much.
//
// What a block of the largest tile, 128 x 128, costs for each step of a bf16 sum: it multiplies
// 2 * 128 * 128 = 32768 flops and reads (128 + 128) * 2 = 512 bytes, 64 flops a byte. A chip of 132
// multiprocessors that reads 3.3 TB/s would be held to 210 TF/s by them if all came from memory;
// blocks that run at one time form squares of the result, so that most of it comes from the L2
// cache, whose 5.5 TB/s allow 350 TF/s without any sharing between the blocks of a multiprocessor.
// Within a block each of the 4 warps reads (64 + 64) * 2 = 256 bytes a step: 1024 bytes of shared
// memory at 128 bytes a clock are 8 clocks for 16384 products, or 2048 a clock, which is what the
// matrix units do at best (16-bit, dense) and more than mma.sync reaches. Of f32 a block of 256
// threads does 16384 multiply-adds a step, 128 clocks at 128 a clock, and reads 2 * 256 * 16 bytes
// for each 8 by 8 of them: shared memory is busy for half of the time.
//
// On an H100 such tiles of bf16 came to 340 TF/s, the L2 cache busy for 83 % of the time (8192 x
// 8192 x 8192): as computed. So sm_90, whose units of four warps leave a thread's registers to its
// sums, has tiles of 128 x 256: 85 flops a byte, 256 threads with 128 sums each, one block to a
// multiprocessor, four stages of 48 KB. The next stage is fetched while the units multiply. That
// came to 663 TF/s, cuBLAS to 765.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel as tiles, its loops all plain ones; or nothing where it is no contraction, or too
// small to be worth it.
UOp TileBlocks(const UOp& sink, const Target& target);

}  // namespace tessera
