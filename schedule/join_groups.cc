// Joining of groups: one loop nest for values of one shape that read the same.
#include <algorithm>
#include <optional>

#include "graph/fault.h"
#include "schedule/groups.h"
#include "schedule/localise.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr size_t kMostRoots = 8;        // of a joined group
constexpr size_t kMostCandidates = 16;  // for each input, the latest first
constexpr int kMostSteps = 256;         // of a search for a path

bool SameLoops(const Shape& a, const Shape& b) {
  if (!FaultPlanted(Fault::kJoinTransposed)) return a == b;
  // Loops that stay within both: wrong values, and no memory that is not ours.
  bool within = a.rank() >= b.rank() && a.MaxElements() == b.MaxElements();
  for (int i = 0; within && i < b.rank(); ++i) within = a[i].max() <= b[i].max();
  return within;
}

// What must agree between groups that are joined, beside their loops: the reduction they hold.
struct Traits {
  bool joinable = true;
  const Node* reduced = nullptr;  // what the group's reductions run over
  Ints axes;
};

class Joiner {
 public:
  Joiner(Fusion& fusion, const Targets& targets) : fusion_(fusion), targets_(targets) {
    const size_t n = fusion.groups.size();
    traits_.resize(n);
    home_.resize(n);
    needs_.resize(n);
    needed_by_.resize(n);
    level_.assign(n, 0);
    seen_.assign(n, -1);
  }

  void Run() {
    for (int g = 0; g < static_cast<int>(home_.size()); ++g) {
      home_[g] = g;
      for (const UOp& in : fusion_.groups[g].inputs) {
        if (auto it = fusion_.group_of.find(in.get()); it != fusion_.group_of.end()) {
          Need(g, home_[it->second]);
        }
      }
      traits_[g] = TraitsOf(fusion_.groups[g]);
      if (!traits_[g].joinable) continue;
      if (const std::optional<int> host = HostOf(g)) Join(*host, g);
      for (const UOp& in : fusion_.groups[g].inputs) {
        std::vector<int>& readers = readers_[in.get()];
        if (readers.empty() || readers.back() != home_[g]) readers.push_back(home_[g]);
      }
    }
    for (FusedGroup& g : fusion_.groups) {
      if (home_[&g - fusion_.groups.data()] != &g - fusion_.groups.data()) g.roots.clear();
    }
    RemoveEmptyGroups(fusion_);
  }

 private:
  Traits TraitsOf(const FusedGroup& group) const {
    Traits t;
    for (const UOp& r : group.roots) {
      t.joinable &= !IsTransfer(r) && !r.is(Op::kAssign) && !r.is(Op::kScatter);
    }
    if (!t.joinable) return t;
    WalkGroup(
        group, fusion_,
        [&](const UOp& u) {
          if (!u.is(Op::kReduce)) return;
          if (IsContraction(u) || IsScaledDots(u)) t.joinable = false;
          if (t.reduced != nullptr && t.reduced != u.src(0).get()) t.joinable = false;
          t.reduced = u.src(0).get();
          t.axes = u.arg<ReduceArg>().axes;
        },
        [](const UOp&) {});
    return t;
  }

  std::optional<int> HostOf(int g) {
    for (const UOp& in : fusion_.groups[g].inputs) {
      if (in.shape().MaxElements() <= 1) continue;
      const auto found = readers_.find(in.get());
      if (found == readers_.end()) continue;
      const std::vector<int>& readers = found->second;
      const size_t end = readers.size() - std::min(readers.size(), kMostCandidates);
      for (size_t i = readers.size(); i-- > end;) {
        if (Alike(g, readers[i]) && !Reaches(g, readers[i])) return readers[i];
      }
    }
    return std::nullopt;
  }

  bool Alike(int g, int host) const {
    const FusedGroup &to = fusion_.groups[host], &from = fusion_.groups[g];
    if (to.roots.size() >= kMostRoots) return false;
    const size_t params = to.inputs.size() + from.inputs.size() + kMostRoots;
    if (params > static_cast<size_t>(targets_.Of(to.roots[0].device()).max_params)) return false;
    const UOp &a = to.roots[0], &b = from.roots[0];
    return traits_[host].reduced == traits_[g].reduced && traits_[host].axes == traits_[g].axes &&
           SameLoops(WrittenFor(a).shape(), WrittenFor(b).shape()) && a.device() == b.device();
  }

  // Whether group `from` needs what group `to` computes, perhaps through others.
  bool Reaches(int from, int to) {
    if (FaultPlanted(Fault::kJoinDespitePath)) return false;
    if (level_[from] <= level_[to]) return false;
    ++search_;
    int steps = 0;
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      for (int need : needs_[g]) {
        if (need == to) return true;
        if (level_[need] <= level_[to] || seen_[need] == search_) continue;
        seen_[need] = search_;
        if (++steps > kMostSteps) return true;  // too far to tell: assume so
        stack.push_back(need);
      }
    }
    return false;
  }

  void Need(int g, int need) {
    needs_[g].push_back(need);
    needed_by_[need].push_back(g);
    level_[g] = std::max(level_[g], level_[need] + 1);
  }

  void Join(int host, int g) {
    FusedGroup &into = fusion_.groups[host], &from = fusion_.groups[g];
    into.roots.insert(into.roots.end(), from.roots.begin(), from.roots.end());
    for (const UOp& in : from.inputs) {
      if (std::find(into.inputs.begin(), into.inputs.end(), in) == into.inputs.end()) {
        into.inputs.push_back(in);
      }
    }
    home_[g] = host;
    for (int need : needs_[g]) Need(host, need);
    // What needs the host lies above all that it needs now. Levels end, as there is no circle; with
    // a fault planted there may be one.
    std::vector<int> raised = {host};
    while (!raised.empty()) {
      const int below = raised.back();
      raised.pop_back();
      if (level_[below] > static_cast<int>(level_.size())) continue;
      for (int above : needed_by_[below]) {
        if (home_[above] != above || level_[above] > level_[below]) continue;
        level_[above] = level_[below] + 1;
        raised.push_back(above);
      }
    }
  }

  Fusion& fusion_;
  const Targets& targets_;
  std::vector<Traits> traits_;
  std::vector<int> home_;  // the group that each has become part of
  // Between homes: direct needs, and levels above those of all that is needed.
  std::vector<std::vector<int>> needs_, needed_by_;
  std::vector<int> level_;
  std::vector<int> seen_;  // the last search that met it
  int search_ = 0;
  absl::flat_hash_map<const Node*, std::vector<int>> readers_;  // joinable ones, of each input
};

}  // namespace

void JoinGroups(Fusion& fusion, const Targets& targets) { Joiner(fusion, targets).Run(); }

}  // namespace tessera
