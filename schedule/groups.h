// Walks over the groups of a fusion.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "schedule/fuse.h"

namespace tessera {

// Visits a group's own nodes, roots included, and what it reads: PARAMs, BUFFERs and values of
// other groups, each once, in the order of their first use.
template <typename Own, typename Read>
void WalkGroup(const FusedGroup& group, const Fusion& fusion, Own own, Read read) {
  absl::flat_hash_set<const Node*> seen, roots;
  std::vector<UOp> stack(group.roots.rbegin(), group.roots.rend());
  for (const UOp& r : group.roots) roots.insert(r.get());
  while (!stack.empty()) {
    UOp u = std::move(stack.back());
    stack.pop_back();
    if (!seen.insert(u.get()).second) continue;
    const bool boundary = !roots.contains(u.get()) && fusion.group_of.contains(u.get());
    if (boundary || u.is(Op::kParam) || u.is(Op::kBuffer)) {
      read(u);
      continue;
    }
    if (Info(u.op()).cls == OpClass::kLeaf) continue;
    own(u);
    if (u.is(Op::kAssign)) {  // its view is written, not read
      stack.push_back(u.src(2));
      stack.push_back(u.src(0));
      continue;
    }
    if (u.is(Op::kReshape) && roots.contains(u.get())) {
      stack.push_back(WrittenFor(u));
      continue;
    }
    for (int i = u.size() - 1; i >= 0; --i) stack.push_back(u.src(i));
  }
}

// What a group reads, as its `inputs` have it.
std::vector<UOp> InputsOf(const FusedGroup& group, const Fusion& fusion);

// Takes out groups without roots and numbers the others anew.
void RemoveEmptyGroups(Fusion& fusion);

}  // namespace tessera
