// Joining of groups: one loop nest for values of one shape that read the same, or one another.
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

// What the loops of a value's kernel run over.
const Shape& LoopsOf(const UOp& root) {
  return root.is(Op::kAssign) ? root.src(1).shape() : WrittenFor(root).shape();
}

bool WritesPart(const UOp& root) { return root.is(Op::kAssign) && !(root.src(0) == root.src(1)); }

// What decides over joining, of a group as it is so far.
struct Traits {
  bool joinable = true;
  bool lasts = false;             // it is made of nothing but lasting leaves
  bool kept = false;              // it has a result of the plan, which is made each time
  bool apart = false;             // its values are kept apart on purpose
  const Node* reduced = nullptr;  // what the group's reductions run over
  Ints axes;
  int nodes = 0;
};

class Joiner {
 public:
  Joiner(Fusion& fusion, absl::Span<const UOp> kept, const Targets& targets,
         const std::vector<bool>& lasting)
      : fusion_(fusion), targets_(targets), lasting_(lasting) {
    for (const UOp& k : kept) kept_.insert(k.get());
    const size_t n = fusion.groups.size();
    traits_.resize(n);
    home_.resize(n);
    needs_.resize(n);
    needed_by_.resize(n);
    level_.assign(n, 0);
    seen_.assign(n, -1);
  }

  void Run() {
    for (int g = 0; g < Size(); ++g) home_[g] = g;
    if (!FindNeeds()) return;  // OrderGroups will find the circle, and all is decided anew
    for (int g = 0; g < Size(); ++g) {
      traits_[g] = TraitsOf(fusion_.groups[g]);
      if (!traits_[g].joinable) continue;
      std::optional<int> host = NeededHostOf(g);
      if (!host) host = SiblingOf(g);
      if (host) Join(*host, g);
      for (const UOp& in : fusion_.groups[g].inputs) {
        std::vector<int>& readers = readers_[in.get()];
        if (readers.empty() || readers.back() != home_[g]) readers.push_back(home_[g]);
      }
    }
    for (int g = 0; g < Size(); ++g) {
      if (home_[g] != g) fusion_.groups[g] = {};
    }
    DropInner();
    RemoveEmptyGroups(fusion_);
  }

 private:
  int Size() const { return static_cast<int>(home_.size()); }

  // A group needs those whose values it reads; one that overwrites, those that read what it
  // overwrites. False where some are in a circle.
  bool FindNeeds() {
    absl::flat_hash_map<const Node*, std::vector<int>> readers;
    for (int g = 0; g < Size(); ++g) {
      for (const UOp& in : fusion_.groups[g].inputs) {
        readers[in.get()].push_back(g);
        if (auto it = fusion_.group_of.find(in.get()); it != fusion_.group_of.end()) {
          Need(g, it->second);
        }
      }
    }
    for (int g = 0; g < Size(); ++g) {
      for (const UOp& r : fusion_.groups[g].roots) {
        if (!r.is(Op::kAssign)) continue;
        for (int reader : readers[r.src(0).get()]) {
          if (reader != g) Need(g, reader);
        }
      }
    }
    std::vector<int> waits(home_.size()), ready;
    for (int g = 0; g < Size(); ++g) {
      waits[g] = static_cast<int>(needs_[g].size());
      if (waits[g] == 0) ready.push_back(g);
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      for (int above : needed_by_[ready[i]]) {
        level_[above] = std::max(level_[above], level_[ready[i]] + 1);
        if (--waits[above] == 0) ready.push_back(above);
      }
    }
    return ready.size() == home_.size();
  }

  // Whether what a group reads is a lasting leaf, or was made of such alone.
  bool Lasts(const UOp& in) const {
    if (const auto group = fusion_.group_of.find(in.get()); group != fusion_.group_of.end()) {
      return traits_[home_[group->second]].lasts;
    }
    const size_t slot = in.is(Op::kParam) ? in.arg<ParamArg>().slot : lasting_.size();
    return slot < lasting_.size() && lasting_[slot];
  }

  Traits TraitsOf(const FusedGroup& group) const {
    Traits t;
    t.lasts = !lasting_.empty() && std::all_of(group.inputs.begin(), group.inputs.end(),
                                               [&](const UOp& in) { return Lasts(in); });
    for (const UOp& r : group.roots) {
      t.joinable &= !IsTransfer(r) && !r.is(Op::kScatter);
      t.apart |= r.is(Op::kContiguous);
      t.kept |= kept_.contains(r.get());
    }
    if (!t.joinable) return t;
    WalkGroup(
        group, fusion_,
        [&](const UOp& u) {
          t.nodes += KernelNodesOf(u);
          for (const UOp& s : u.srcs()) t.lasts &= !s.is(Op::kVar);
          if (!u.is(Op::kReduce)) return;
          if (IsContraction(u) || IsScaledDots(u)) t.joinable = false;
          if (t.reduced != nullptr && t.reduced != u.src(0).get()) t.joinable = false;
          t.reduced = u.src(0).get();
          t.axes = u.arg<ReduceArg>().axes;
        },
        [](const UOp&) {});
    return t;
  }

  // A group that computes what g reads, each element for the same one of g: g's loops have it.
  std::optional<int> NeededHostOf(int g) {
    if (traits_[g].reduced != nullptr) return std::nullopt;
    for (const UOp& in : fusion_.groups[g].inputs) {
      const auto found = fusion_.group_of.find(in.get());
      if (found == fusion_.group_of.end()) continue;
      const int host = home_[found->second];
      const Traits& t = traits_[host];
      if (!t.joinable || t.reduced != nullptr || t.apart) continue;
      if (Alike(g, host) && ReadsAtItsLoops(g, host) && !Reaches(g, host, /*through=*/true) &&
          !Reaches(host, g)) {
        return host;
      }
    }
    return std::nullopt;
  }

  // A group that reads what g reads.
  std::optional<int> SiblingOf(int g) {
    for (const UOp& in : fusion_.groups[g].inputs) {
      if (in.shape().MaxElements() <= 1) continue;
      const auto found = readers_.find(in.get());
      if (found == readers_.end()) continue;
      const std::vector<int>& readers = found->second;
      const size_t end = readers.size() - std::min(readers.size(), kMostCandidates);
      for (size_t i = readers.size(); i-- > end;) {
        const int host = readers[i];
        if (traits_[host].reduced == traits_[g].reduced && traits_[host].axes == traits_[g].axes &&
            Alike(g, host) && !Reaches(g, host) && !Reaches(host, g)) {
          return host;
        }
      }
    }
    return std::nullopt;
  }

  bool Alike(int g, int host) const {
    const FusedGroup &to = fusion_.groups[host], &from = fusion_.groups[g];
    if (to.roots.size() >= kMostRoots) return false;
    const size_t params = to.inputs.size() + from.inputs.size() + kMostRoots;
    if (params > static_cast<size_t>(targets_.Of(to.roots[0].device()).max_params)) return false;
    if (traits_[g].nodes + traits_[host].nodes > kMostKernelNodes) return false;
    if (traits_[g].lasts != traits_[host].lasts) return false;
    if (traits_[g].lasts && traits_[g].kept != traits_[host].kept) return false;
    const UOp &a = to.roots[0], &b = from.roots[0];
    return SameLoops(LoopsOf(a), LoopsOf(b)) && a.device() == b.device() &&
           !OverwritesValueOf(to, from) && !OverwritesValueOf(from, to);
  }

  // Whether one group writes over what another one reads or computes.
  static bool OverwritesValueOf(const FusedGroup& writer, const FusedGroup& other) {
    if (FaultPlanted(Fault::kJoinOverwritten)) return false;
    return std::any_of(writer.roots.begin(), writer.roots.end(), [&](const UOp& r) {
      if (!r.is(Op::kAssign)) return false;
      const auto is_base = [&](const UOp& u) { return u == r.src(0); };
      return std::any_of(other.inputs.begin(), other.inputs.end(), is_base) ||
             std::any_of(other.roots.begin(), other.roots.end(), is_base);
    });
  }

  // Whether g reads what the host computes by elementwise ops alone.
  bool ReadsAtItsLoops(int g, int host) const {
    const std::vector<UOp>& roots = fusion_.groups[host].roots;
    absl::flat_hash_map<const Node*, bool> seen;  // whether only elementwise
    std::vector<std::pair<UOp, bool>> stack;
    for (const UOp& r : fusion_.groups[g].roots) {
      if (r.is(Op::kAssign)) {
        stack.emplace_back(r.src(2), true);
      } else if (WrittenFor(r) == r) {
        for (const UOp& s : r.srcs()) stack.emplace_back(s, IsElementwise(r.op()));
      } else {
        stack.emplace_back(WrittenFor(r), true);
      }
    }
    while (!stack.empty()) {
      const auto [u, elementwise] = stack.back();
      stack.pop_back();
      const auto [before, fresh] = seen.emplace(u.get(), elementwise);
      if (!fresh && (elementwise || !before->second)) continue;
      before->second = elementwise;
      if (std::find(roots.begin(), roots.end(), u) != roots.end()) {
        if (!elementwise || WritesPart(u) || !(WrittenFor(u) == u)) return false;
        continue;
      }
      if (fusion_.group_of.contains(u.get())) continue;
      for (const UOp& s : u.srcs()) stack.emplace_back(s, elementwise && IsElementwise(u.op()));
    }
    return true;
  }

  // Whether group `from` needs what group `to` computes, perhaps through others; `through`: by
  // others alone.
  bool Reaches(int from, int to, bool through = false) {
    if (FaultPlanted(Fault::kJoinDespitePath)) return false;
    if (level_[from] <= level_[to]) return false;
    ++search_;
    int steps = 0;
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      for (int need : needs_[g]) {
        need = home_[need];
        if (need == to && (g != from || !through)) return true;
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
  }

  void Join(int host, int g) {
    FusedGroup &into = fusion_.groups[host], &from = fusion_.groups[g];
    home_[g] = host;
    into.roots.insert(into.roots.end(), from.roots.begin(), from.roots.end());
    for (const UOp& in : from.inputs) {
      const auto own = fusion_.group_of.find(in.get());
      if (own != fusion_.group_of.end() && home_[own->second] == host) continue;
      if (std::find(into.inputs.begin(), into.inputs.end(), in) == into.inputs.end()) {
        into.inputs.push_back(in);
      }
    }
    traits_[host].nodes += traits_[g].nodes;
    traits_[host].apart |= traits_[g].apart;
    needs_[host].insert(needs_[host].end(), needs_[g].begin(), needs_[g].end());
    needed_by_[host].insert(needed_by_[host].end(), needed_by_[g].begin(), needed_by_[g].end());
    for (int need : needs_[g]) {
      if (home_[need] != host) level_[host] = std::max(level_[host], level_[home_[need]] + 1);
    }
    // What needs the host lies above all that it needs now. Levels end, as there is no circle; with
    // a fault planted there may be one.
    std::vector<int> raised = {host};
    while (!raised.empty()) {
      const int below = raised.back();
      raised.pop_back();
      if (level_[below] > static_cast<int>(level_.size())) continue;
      for (int above : needed_by_[below]) {
        above = home_[above];
        if (above == below || level_[above] > level_[below]) continue;
        level_[above] = level_[below] + 1;
        raised.push_back(above);
      }
    }
  }

  // What only the group itself reads is not written.
  void DropInner() {
    absl::flat_hash_set<const Node*> read;
    for (const FusedGroup& g : fusion_.groups) {
      for (const UOp& in : g.inputs) read.insert(in.get());
    }
    for (FusedGroup& g : fusion_.groups) {
      if (g.roots.size() < 2) continue;
      const auto inner = std::stable_partition(g.roots.begin(), g.roots.end(), [&](const UOp& r) {
        return r.is(Op::kAssign) || read.contains(r.get()) || kept_.contains(r.get());
      });
      for (auto r = inner; r != g.roots.end(); ++r) fusion_.group_of.erase(r->get());
      g.roots.erase(inner, g.roots.end());
    }
  }

  Fusion& fusion_;
  absl::flat_hash_set<const Node*> kept_;  // the plan's results
  const Targets& targets_;
  const std::vector<bool>& lasting_;
  std::vector<Traits> traits_;
  std::vector<int> home_;  // the group that each has become part of
  // Direct needs, of homes also those of what they have taken up; and levels of homes above those
  // of all that they need.
  std::vector<std::vector<int>> needs_, needed_by_;
  std::vector<int> level_;
  std::vector<int> seen_;  // the last search that met it
  int search_ = 0;
  absl::flat_hash_map<const Node*, std::vector<int>> readers_;  // joinable ones, of each input
};

}  // namespace

void JoinGroups(Fusion& fusion, absl::Span<const UOp> roots, const Targets& targets,
                const std::vector<bool>& lasting) {
  Joiner(fusion, roots, targets, lasting).Run();
}

}  // namespace tessera
