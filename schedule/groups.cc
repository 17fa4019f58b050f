// Groups of fused values: what they read, and their order.
#include "schedule/groups.h"

#include <algorithm>
#include <queue>

#include "absl/container/flat_hash_set.h"
#include "graph/fault.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "schedule/passes.h"

namespace tessera {
std::vector<UOp> InputsOf(const FusedGroup& group, const Fusion& fusion) {
  std::vector<UOp> inputs;
  WalkGroup(
      group, fusion, [](const UOp&) {}, [&](const UOp& u) { inputs.push_back(u); });
  return inputs;
}

void RemoveEmptyGroups(Fusion& fusion) {
  auto& groups = fusion.groups;
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const FusedGroup& g) { return g.roots.empty(); }),
               groups.end());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const UOp& r : groups[g].roots) fusion.group_of[r.get()] = static_cast<int>(g);
  }
}

absl::Status OrderGroups(Fusion& fusion) {
  const int n = static_cast<int>(fusion.groups.size());
  std::vector<std::vector<int>> after(n);
  std::vector<int> waits(n, 0);
  const auto edge = [&](int first, int second) {
    if (first == second) return;
    after[first].push_back(second);
    ++waits[second];
  };
  absl::flat_hash_map<const Node*, std::vector<int>> readers;
  for (int g = 0; g < n; ++g) {
    for (const UOp& in : fusion.groups[g].inputs) {
      readers[in.get()].push_back(g);
      if (auto it = fusion.group_of.find(in.get()); it != fusion.group_of.end())
        edge(it->second, g);
    }
  }
  for (int g = 0; g < n; ++g) {
    for (const UOp& r : fusion.groups[g].roots) {
      if (!r.is(Op::kAssign) || FaultPlanted(Fault::kReaderEdgeLost)) continue;
      for (int reader : readers[r.src(0).get()]) edge(reader, g);
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (int g = 0; g < n; ++g) {
    if (waits[g] == 0) ready.push(g);
  }
  std::vector<FusedGroup> ordered;
  while (!ready.empty()) {
    const int g = ready.top();
    ready.pop();
    ordered.push_back(std::move(fusion.groups[g]));
    for (int next : after[g]) {
      if (--waits[next] == 0) ready.push(next);
    }
  }
  if (static_cast<int>(ordered.size()) < n) {
    // The caller fuses anew: the groups have been moved out.
    return absl::FailedPreconditionError(
        "assign: a value that needs the old content comes after one that needs the new");
  }
  fusion.groups = std::move(ordered);
  for (int g = 0; g < n; ++g) {
    for (const UOp& r : fusion.groups[g].roots) fusion.group_of[r.get()] = g;
  }
  return absl::OkStatus();
}

std::vector<UOp> CopyOverwritten(absl::Span<const UOp> roots) {
  const std::vector<UOp> order = TopoSort(roots);
  absl::flat_hash_set<const Node*> overwritten;
  for (const UOp& u : order) {
    if (u.is(Op::kAssign)) overwritten.insert(u.src(0).get());
  }
  // The most copies of copies that others read, one of each version that is overwritten among them.
  absl::flat_hash_map<const Node*, int> copies;
  int most = 0;
  for (const UOp& u : order) {
    const int below = u.is(Op::kContiguous) ? copies[u.src(0).get()] + 1 : 0;
    most = std::max(most, copies[u.get()] = below + overwritten.contains(u.get()));
  }
  // Each node twice: as it stands below an ASSIGN's base and view, and as others read it.
  Substitution read;
  absl::flat_hash_map<const Node*, int> writers;
  for (const UOp& u : order) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(read.at(s));
    if (u.is(Op::kAssign)) {
      // The base in place; a base that is computed is computed over the copies as well. A second
      // ASSIGN of one version writes into a copy that nobody reads.
      const UOp base = u.src(0);
      UOp target = read.at(base).src(0);
      const int earlier = writers[base.get()]++;
      for (int i = 0; earlier > 0 && i < most + earlier; ++i) {
        target = UOp::Make(Op::kContiguous, {target});
      }
      srcs[0] = target;
      srcs[1] = Substitute(u.src(1), {{base, target}});
    }
    UOp built = u.WithSrcs(srcs);
    if (overwritten.contains(u.get())) built = UOp::Make(Op::kContiguous, {built});
    read.emplace(u, built);
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) {
    const UOp& v = read.at(r);
    out.push_back(overwritten.contains(r.get()) ? UOp(v.src(0)) : v);
  }
  return out;
}

}  // namespace tessera
