// Fusion: which values get a buffer, and which are computed inside the kernels that read them.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/uop.h"
#include "schedule/targets.h"

namespace tessera {

inline constexpr int kCheapOps = 6;           // elementwise ops that each reader does again
inline constexpr int kMostKernelNodes = 600;  // of one kernel, about

// Values computed by one kernel: one loop nest over their common shape. More than one, sources
// first, where they share shape and inputs or some are read by others. A COPY is a group of its
// own.
struct FusedGroup {
  std::vector<UOp> roots;
  std::vector<UOp> inputs;  // what it reads: values of other groups, and leaves with storage
};

struct Fusion {
  std::vector<FusedGroup> groups;                  // producers before consumers
  absl::flat_hash_map<const Node*, int> group_of;  // of each value that gets a buffer
};

// Decides from the roots down. A value gets a buffer where it must (a root, a COPY and what it
// reads, CONTIGUOUS, what an ASSIGN overwrites), where computing it in each reader costs more than
// keeping it, and where its kernel would outgrow its target's limits. A reduction is computed
// inside its reader where its outer axes are the reader's own loops: then it is hoisted and nothing
// is computed twice.
absl::StatusOr<Fusion> Fuse(absl::Span<const UOp> roots, const Targets& targets);

// What the kernel of a value that gets a buffer computes: of one that only reshapes, what it
// reshapes, as that lies in memory as the value does. Loops run over its shape.
UOp WrittenFor(const UOp& value);

// What an op makes of a kernel's text, in nodes: a PAD adds a condition to all below it, and of
// lookups in what lookups give each is within the conditions of the one before.
int KernelNodesOf(const UOp& u);

// Whether a REDUCE is a sum of products whose operands each lack an axis of the result: a matmul.
bool IsContraction(const UOp& reduce);
// Whether a GATHER shows many elements for each of its indices.
bool ShowsLongRows(const UOp& gather);

// Whether a REDUCE sums products of integers of eight bits each in i32.
bool IsByteProduct(const UOp& reduce);

// Whether a REDUCE sums such sums, each times something and plus something, in f32.
bool IsScaledDots(const UOp& reduce);

}  // namespace tessera
