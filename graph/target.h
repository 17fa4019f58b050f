// What a compiler stage must know of the chip it compiles for: a plain struct, filled by the
// runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/dtype.h"

namespace tessera {

// A product of matrices that the threads of a warp do as one: sums [16, 16] of what is in rows of
// 32 bytes of each operand (so many steps of the sum), of which every thread holds a fragment (see
// codegen/matrix.h). Or one that four warps do, 16 rows each: of rows of 128 bytes, which stay
// where they are in shared memory, and of many columns. `name` is the prelude's function for it.
struct MatrixShape {
  DType operand, sum;
  std::string name;
  int64_t warps = 1;
  int64_t steps() const { return 32 * warps / operand.bytes(); }
};

enum class Dialect : uint8_t { kCpp, kCuda };

struct Target {
  Dialect dialect = Dialect::kCpp;
  std::string arch = "generic";         // CPU name as Clang spells it, or sm_90
  std::string features;                 // comma-separated +feature,-feature list for the compiler
  int vector_bytes = 32;                // width of one vector register
  int vector_registers = 16;            // how many of them
  int cores = 1;                        // cores that one kernel may use
  int64_t l1_bytes = 32 << 10;          // per core
  int64_t l2_bytes = 512 << 10;         // per core
  int64_t cache_bytes = 0;              // last level, of all cores; what is larger leaves it unread
  int tile_vectors = 2;                 // of columns, in a register tile of a product
  int64_t stream_ahead = 0;             // bytes by which streams are asked for; 0: hardware does
  int64_t span_limit = INT64_MAX;       // bytes that one core may address in one tensor
  int max_params = 512;                 // buffers of one kernel
  int max_nodes = 20000;                // nodes of one kernel graph
  int max_lanes = 256;                  // of one vector value
  int64_t max_unroll = 4096;            // copies of a body
  int64_t max_grid = int64_t{1} << 40;  // points of the grid ranges of one kernel
  int max_threads = 1;                  // of one block
  int64_t shared_bytes = 0;             // of one block
  bool fetches = false;                 // from memory to a block's own without waiting
  std::vector<MatrixShape> mma;         // products of its matrix units

  // Everything above that changes the generated code, as one string: part of every cache key.
  std::string Key() const;
};

// Fills in, for a CUDA target, what its arch (sm_80 and up) has for tiles of products. Products of
// f32 in f32 are among them only with TF32=1.
void DescribeMatrixUnits(Target& target);

}  // namespace tessera
