// The identity of a graph up to which buffers it reads: what plans are cached by.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// A graph as words, equal for two graphs that differ only in their buffers, and those buffers in
// the order of their first use. Realised nodes count as the buffers they were computed into. The
// words are the whole structure, so equal keys are equal graphs.
struct PlanKey {
  std::vector<uint64_t> words;
  std::vector<UOp> order;   // the nodes, sources first, down to leaves
  std::vector<UOp> leaves;  // BUFFERs by slot
  bool on_meshes = false;   // some node is on a Sharding
};

PlanKey MakePlanKey(absl::Span<const UOp> roots);

// The roots with each leaf as the PARAM of its slot.
std::vector<UOp> WithParams(absl::Span<const UOp> roots, const PlanKey& key);

}  // namespace tessera
