// The passes of code generation in the order in which codegen.cc runs them, each followed by its
// parts; UseMatrixUnits (codegen/matrix.h) and UseTiles (codegen/cpu_tiles.h) come before Expand.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// Chooses tiles, unrolling, vector lanes and staging, and splits the ranges accordingly.
UOp Optimise(const UOp& sink, const Target& target);

// The same for a kernel with UPDATEs or RUNNINGs.
UOp OptimiseInOrder(const UOp& sink, const Target& target);
// For GPUs: ranges bound to blocks, rows and threads, and vectors.
UOp BindRanges(const UOp& sink, const Target& target);

// Arithmetic on floats narrower than f32 is done in f32 and rounded after each op.
UOp WidenFloats(const UOp& sink);

// Ranges of kind kUnroll and kVector go: a copy of their users for each value, and vectors.
UOp Expand(const UOp& sink, const Target& target);

// What depends on four bits of a lane alone, and takes several ops, is looked up where the target's
// registers hold the table: those of AVX2 for bytes, of AVX-512 for 32 bits.
UOp Tabulate(const UOp& sink, const Target& target);

// Stores of single lanes that make up a square of vectors store the square's other side instead.
UOp JoinTransposed(const UOp& sink);

// Statements in order: loops opened and closed, values computed once in the outermost loop that
// they depend on, reductions in registers, independent ones over the same ranges in one loop.
// For GPUs, grid ranges become blocks, and thread and row ranges their threads.
struct Lowered {
  UOp program;
  int64_t scratch_bytes = 0;
  UOp grid = UOp::Index(1);   // how many blocks, over VARs
  int threads = 1, rows = 1;  // of a block
};
absl::StatusOr<Lowered> Lower(const UOp& sink, const std::string& name, const Target& target);

// The C++ text of a program, after its prelude.
absl::StatusOr<std::string> RenderCpp(const UOp& program,
                                      const std::vector<std::string>& variables);

// The CUDA text of a program, after its prelude, and the slots of the function's parameters: its
// buffers, then its variables.
struct GpuText {
  std::string text;
  std::vector<int> buffers, variables;
};
absl::StatusOr<GpuText> RenderGpu(const Lowered& lowered,
                                  const std::vector<std::string>& variables);

}  // namespace tessera
