// Walks over graphs.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "graph/node_map.h"
#include "graph/uop.h"

namespace tessera {

// The first node below the roots, in the order of TopoSort, that `wanted` holds for; null if none
// does. The roots keep it alive.
template <typename Fn>
const UOp* FindBelow(absl::Span<const UOp> roots, Fn wanted, bool with_extents = false) {
  constexpr int kNotSeen = -1;
  struct Frame {
    const UOp* node;
    int next;  // source, after the nodes in the argument
  };
  absl::InlinedVector<Frame, 32> stack;
  SeenNodes seen;
  const auto enter = [&](const UOp& u) {
    if (!seen.Insert(u.get())) return;
    stack.push_back({&u, 0});
    if (!with_extents) return;
    ForEachArgUOp(u.arg(), [&](const UOp& e) { stack.push_back({&e, kNotSeen}); });
  };
  for (const UOp& r : roots) {
    if (r) enter(r);
    while (!stack.empty()) {
      const UOp& u = *stack.back().node;
      int& next = stack.back().next;
      if (next == kNotSeen) {
        stack.pop_back();
        enter(u);
      } else if (next < u.size()) {
        enter(u.src(next++));
      } else {
        stack.pop_back();
        if (wanted(u)) return &u;
      }
    }
  }
  return nullptr;
}

// From the roots to their sources: `into` sees each node once, and says whether to go on to what it
// reads. The roots keep the nodes alive.
template <typename Fn>
void WalkDown(absl::Span<const UOp> roots, Fn into) {
  absl::InlinedVector<const UOp*, 32> stack;
  SeenNodes seen;
  const auto push = [&](absl::Span<const UOp> nodes) {
    for (const UOp& u : nodes) stack.push_back(&u);
  };
  push(roots);
  while (!stack.empty()) {
    const UOp& u = *stack.back();
    stack.pop_back();
    if (seen.Insert(u.get()) && into(u)) push(u.srcs());
  }
}

}  // namespace tessera
