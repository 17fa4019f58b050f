// Groups of fused values: what they read, joining, and their order.
#include <algorithm>
#include <queue>

#include "absl/container/flat_hash_set.h"
#include "graph/fault.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "schedule/localise.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

bool IsLeaf(const UOp& u) { return Info(u.op()).cls == OpClass::kLeaf; }

const Shape& LoopShape(const UOp& u) { return u.is(Op::kAssign) ? u.src(1).shape() : u.shape(); }

bool SameLoops(const Shape& a, const Shape& b) {
  if (!FaultPlanted(Fault::kJoinTransposed)) return a == b;
  // Loops that stay within both: wrong values, and no memory that is not ours.
  bool within = a.rank() >= b.rank() && a.MaxElements() == b.MaxElements();
  for (int i = 0; within && i < b.rank(); ++i) within = a[i].max() <= b[i].max();
  return within;
}

// What must agree between groups that are joined, beside their loops: the reduction they hold.
struct GroupTraits {
  bool joinable = true;
  const Node* reduced = nullptr;  // what the group's reductions run over
  Ints axes;
};

// Visits a group's own nodes, roots included, and what it reads.
template <typename Own, typename Read>
void WalkGroup(const FusedGroup& group, const Fusion& fusion, Own own, Read read) {
  absl::flat_hash_set<const Node*> seen;
  std::vector<UOp> stack(group.roots.rbegin(), group.roots.rend());
  absl::flat_hash_set<const Node*> roots;
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
    if (IsLeaf(u)) continue;
    own(u);
    if (u.is(Op::kAssign)) {  // its view is written, not read
      stack.push_back(u.src(2));
      stack.push_back(u.src(0));
      continue;
    }
    for (int i = u.size() - 1; i >= 0; --i) stack.push_back(u.src(i));
  }
}

GroupTraits TraitsOf(const FusedGroup& group, const Fusion& fusion) {
  GroupTraits t;
  for (const UOp& r : group.roots) {
    t.joinable &= !IsTransfer(r) && !r.is(Op::kAssign) && !r.is(Op::kScatter);
  }
  WalkGroup(
      group, fusion,
      [&](const UOp& u) {
        if (!u.is(Op::kReduce)) return;
        if (IsContraction(u)) t.joinable = false;
        if (t.reduced != nullptr && t.reduced != u.src(0).get()) t.joinable = false;
        t.reduced = u.src(0).get();
        t.axes = u.arg<ReduceArg>().axes;
      },
      [](const UOp&) {});
  return t;
}

}  // namespace

std::vector<UOp> GroupInputs(const FusedGroup& group, const Fusion& fusion) {
  std::vector<UOp> inputs;
  WalkGroup(
      group, fusion, [](const UOp&) {}, [&](const UOp& u) { inputs.push_back(u); });
  return inputs;
}

void JoinGroups(Fusion& fusion) {
  const int n = static_cast<int>(fusion.groups.size());
  std::vector<GroupTraits> traits(n);
  std::vector<std::vector<UOp>> inputs(n);
  // The last group reached through each input whose loops have this shape, to look among few.
  absl::flat_hash_map<const Node*, std::vector<int>> readers;
  std::vector<std::vector<int>> depends(n);
  std::vector<int> merged_into(n);
  // Whether group `a` depends on group `b`, by search over direct dependencies; b < a.
  const auto reaches = [&](int a, int b) {
    if (FaultPlanted(Fault::kJoinDespitePath)) return false;
    std::vector<int> stack = {a};
    absl::flat_hash_set<int> seen;
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      if (g == b) return true;
      if (!seen.insert(g).second) continue;
      for (int d : depends[g]) {
        if (merged_into[d] >= b) stack.push_back(merged_into[d]);
      }
      if (seen.size() > 256) return true;  // too far to tell: assume so
    }
    return false;
  };
  for (int g = 0; g < n; ++g) {
    merged_into[g] = g;
    traits[g] = TraitsOf(fusion.groups[g], fusion);
    inputs[g] = GroupInputs(fusion.groups[g], fusion);
    for (const UOp& in : inputs[g]) {
      if (auto it = fusion.group_of.find(in.get()); it != fusion.group_of.end()) {
        depends[g].push_back(it->second);
      }
    }
    if (!traits[g].joinable) continue;
    const Shape& shape = LoopShape(fusion.groups[g].roots[0]);
    int host = -1;
    for (const UOp& in : inputs[g]) {
      if (in.shape().MaxElements() <= 1) continue;
      for (int other : readers[in.get()]) {
        if (host >= 0 || fusion.groups[other].roots.size() >= 8) break;
        const GroupTraits& t = traits[other];
        if (t.reduced != traits[g].reduced || !(t.axes == traits[g].axes)) continue;
        if (!SameLoops(LoopShape(fusion.groups[other].roots[0]), shape)) continue;
        if (!(fusion.groups[other].roots[0].device() == fusion.groups[g].roots[0].device()))
          continue;
        if (!reaches(g, other)) host = other;
      }
    }
    const int home = host >= 0 ? host : g;
    if (host >= 0) {
      for (UOp& r : fusion.groups[g].roots) fusion.groups[host].roots.push_back(r);
      fusion.groups[g].roots.clear();
      merged_into[g] = host;
      depends[host].insert(depends[host].end(), depends[g].begin(), depends[g].end());
    }
    for (const UOp& in : inputs[g]) {
      auto& list = readers[in.get()];
      if (std::find(list.begin(), list.end(), home) == list.end()) list.push_back(home);
    }
  }
  fusion.groups.erase(std::remove_if(fusion.groups.begin(), fusion.groups.end(),
                                     [](const FusedGroup& g) { return g.roots.empty(); }),
                      fusion.groups.end());
  for (size_t g = 0; g < fusion.groups.size(); ++g) {
    for (const UOp& r : fusion.groups[g].roots) fusion.group_of[r.get()] = static_cast<int>(g);
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
    for (const UOp& in : GroupInputs(fusion.groups[g], fusion)) {
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
    // What was moved out goes back, so that the caller may try otherwise.
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
      for (int i = 0; i < earlier + (earlier > 0); ++i) {
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
