// Code generation: a kernel in index form and a Target in, the text of one function out.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

struct Program {
  UOp statements;             // PROGRAM: what the text says, statement by statement
  std::string text;           // with its prelude, ready for the compiler
  std::string entry;          // the function
  int64_t scratch_bytes = 0;  // that each worker, or block, needs

  // Of a GPU: the launch, and the slots of the function's parameters in order.
  UOp grid;                        // blocks, over VARs
  int threads = 1;                 // of a block
  int rows = 1;                    // into which the threads are divided
  std::vector<int> buffers;        // slots of the first parameters
  std::vector<int> variables;      // of the rest, among the kernel's variables
  std::vector<std::string> names;  // of the kernel's variables
};

// Generates the kernel `sink` (a SINK of STOREs) as a function `name` whose VARs are in the order
// of `variables`.
absl::StatusOr<Program> Codegen(const UOp& sink, const std::string& name,
                                const std::vector<std::string>& variables, const Target& target);

}  // namespace tessera
