// The rules on kernel graphs: which ranges values are open in, who closes them, and the limits of a
// launch.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "graph/infer.h"
#include "graph/spec_graph.h"

namespace tessera {

namespace {

// Sets of ranges, so that the many nodes that depend on the same ones share one.
class OpenRanges {
 public:
  using Id = int;  // 0 is the empty set
  OpenRanges() { Intern({}); }

  Id Union(Id a, Id b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    const auto key = std::minmax(a, b);
    if (const auto it = unions_.find(key); it != unions_.end()) return it->second;
    std::vector<int> both;
    absl::c_set_union(sets_[a], sets_[b], std::back_inserter(both));
    return unions_[key] = Intern(std::move(both));
  }
  Id With(Id a, int range) { return Union(a, Intern({range})); }
  Id Without(Id a, absl::Span<const int> ranges) {
    std::vector<int> left;
    for (int r : sets_[a]) {
      if (!absl::c_linear_search(ranges, r)) left.push_back(r);
    }
    return Intern(std::move(left));
  }
  bool Contains(Id a, int range) const { return absl::c_binary_search(sets_[a], range); }
  bool Disjoint(Id a, Id b) const {
    return absl::c_none_of(sets_[a], [&](int r) { return Contains(b, r); });
  }
  absl::Span<const int> Elements(Id a) const { return sets_[a]; }  // ascending

 private:
  Id Intern(std::vector<int> set) {
    const auto [it, added] = ids_.emplace(std::move(set), static_cast<Id>(sets_.size()));
    if (added) sets_.push_back(it->first);
    return it->second;
  }
  std::vector<std::vector<int>> sets_;
  absl::flat_hash_map<std::vector<int>, Id> ids_;
  absl::flat_hash_map<std::pair<Id, Id>, Id> unions_;
};

int64_t Product(int64_t a, int64_t b) {
  int64_t p;
  return __builtin_mul_overflow(a, b, &p) ? INT64_MAX : p;
}

class KernelCheck {
 public:
  explicit KernelCheck(SpecGraph& g)
      : g_(g),
        open_(g.nodes.size()),
        may_(g.nodes.size()),
        closed_(g.nodes.size()),
        lost_(g.nodes.size()),
        attains_(g.nodes.size()) {}

  void Check() {
    for (int i = 0; i < size(); ++i) {
      Node(i);
      if (g_.nodes[i].bad) continue;
      if (g_.nodes[i].dtype.lanes() != 1) {
        g_.Report(SpecRule::kScalarLanes, i, Info(g_.nodes[i].op).text,
                  ": a kernel's values are scalar");
      }
      if (g_.nodes[i].op == Op::kIndex && g_.nodes[i].sure()) CheckIndex(i);
    }
  }

 private:
  int size() const { return static_cast<int>(g_.nodes.size()); }

  // The ranges that node i lists from source `first` on, those listed twice reported.
  std::vector<int> Listed(int i, int first, bool report = true) {
    std::vector<int> ranges;
    for (int s : g_.srcs(i).subspan(std::min(first, g_.nodes[i].num_srcs))) {
      if (g_.nodes[s].op == Op::kRange) ranges.push_back(s);
    }
    std::sort(ranges.begin(), ranges.end());
    const auto twice = std::adjacent_find(ranges.begin(), ranges.end());
    if (twice != ranges.end()) {
      if (report)
        g_.Report(SpecRule::kRangeClosedTwice, i, Info(g_.nodes[i].op).text, ": closes ",
                  g_.NodeText(*twice), " twice");
      ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
    }
    return ranges;
  }

  // `open_` is what whoever uses a node must close; `may_` is what it may close; `closed_` is what
  // REDUCEs within it have closed.
  void Node(int i) {
    const SpecNode& n = g_.nodes[i];
    const bool closes = n.op == Op::kReduce || n.op == Op::kRange;
    lost_[i] = n.partial || (closes && n.bad);
    for (int s : g_.srcs(i)) {
      lost_[i] = lost_[i] || lost_[s];
      closed_[i] = sets_.Union(closed_[i], closed_[s]);
    }
    for (int s : g_.srcs(i)) {
      if (n.op == Op::kReduce) break;
      open_[i] = sets_.Union(open_[i], open_[s]);
      may_[i] = sets_.Union(may_[i], may_[s]);
    }
    if (n.op == Op::kRange) {
      open_[i] = sets_.With(open_[i], i);
      may_[i] = sets_.With(may_[i], i);
    } else if (n.op == Op::kReduce) {
      Close(i);
    } else if (n.op == Op::kStore || n.op == Op::kUpdate) {
      Store(i);
      const std::vector<int> ranges = Listed(i, 2, /*report=*/false);
      open_[i] = sets_.Without(open_[i], ranges);
      may_[i] = sets_.Without(may_[i], ranges);
    } else if (n.op == Op::kSink) {
      for (int s : g_.srcs(i)) CheckClosed(s);
    }
    attains_[i] = Attains(i);
  }

  void Close(int i) {
    const SpecNode& n = g_.nodes[i];
    if (n.num_srcs == 0) return;
    const int value = g_.srcs(i)[0];
    const std::vector<int> ranges = Listed(i, 1);
    if (n.op == Op::kReduce && n.num_srcs == 1 && !n.bad) {
      g_.Report(SpecRule::kReduceForm, i, "REDUCE: a kernel reduces over RANGEs");
    }
    open_[i] = sets_.Without(open_[value], ranges);
    may_[i] = sets_.Without(may_[value], ranges);
    for (int r : ranges) {
      if (n.op == Op::kReduce) closed_[i] = sets_.With(closed_[i], r);
      // A value that never was open in the range is the same at each of its points, which is fine.
      if (n.op == Op::kReduce && !lost_[i] && !sets_.Contains(may_[value], r) &&
          sets_.Contains(closed_[value], r)) {
        g_.Report(SpecRule::kRangeReused, i, "REDUCE: the value has closed ", g_.NodeText(r),
                  " already");
      }
      const OpenRanges::Id outer = sets_.Without(open_[r], ranges);  // a range's extent may vary
      open_[i] = sets_.Union(open_[i], outer);
      may_[i] = sets_.Union(may_[i], outer);
    }
  }

  void Store(int i) {
    const SpecNode& n = g_.nodes[i];
    if (n.num_srcs < 2) return;
    const std::vector<int> ranges = Listed(i, 2);
    if (n.bad || lost_[i]) return;
    int64_t grid = 1, unroll = 1, threads = 1;
    for (int r : ranges) {
      const SpecNode& range = g_.nodes[r];
      if (!range.sure() || range.num_srcs != 1) continue;
      const int64_t extent = std::max<int64_t>(0, range.value.src(0).vmax());
      if (n.op == Op::kStore && extent > 1 && !sets_.Contains(may_[g_.srcs(i)[0]], r)) {
        g_.Report(SpecRule::kStoreRangeIdle, i, "STORE: every point of ", g_.NodeText(r),
                  " writes the same element");
      }
      const RangeKind kind = std::get<RangeArg>(range.arg->value).kind;
      if (kind == RangeKind::kGrid) grid = Product(grid, extent);
      if (kind == RangeKind::kUnroll) unroll = Product(unroll, extent);
      if (kind == RangeKind::kThread || kind == RangeKind::kRow) threads = Product(threads, extent);
    }
    Limit(i, "grid points", grid, g_.options.target.max_grid);
    Limit(i, "unrolled copies", unroll, g_.options.target.max_unroll);
    Limit(i, "threads of a block", threads, g_.options.target.max_threads);
  }

  // A STORE of the kernel itself leaves no range open; one that fills a STAGE may, inside the loops
  // around the STAGE.
  void CheckClosed(int i) {
    const Op op = g_.nodes[i].op;
    if ((op != Op::kStore && op != Op::kUpdate) || g_.nodes[i].bad || lost_[i]) return;
    for (int r : sets_.Elements(open_[i])) {
      g_.Report(SpecRule::kRangeUnclosed, i, Info(op).text, ": depends on ", g_.NodeText(r),
                ", which it does not list");
    }
  }

  void Limit(int i, const char* what, int64_t have, int64_t most) {
    if (have <= most) return;
    g_.Report(SpecRule::kLaunchLimits, i, have, " ", what, "; the target takes ", most);
  }

  // Whether node i, an integer, does take both its lowest and its highest value in every run of its
  // loops that are not empty.
  bool Attains(int i) const {
    const SpecNode& n = g_.nodes[i];
    if (!n.sure() || !n.dtype.IsInt()) return false;
    const auto is_const = [&](int k) { return g_.src(i, k).op == Op::kConst; };
    const auto src = [&](int k) { return g_.srcs(i)[k]; };
    if (n.value.vmin() == MinInt(n.dtype) && n.value.vmax() == MaxInt(n.dtype)) return false;
    switch (n.op) {
      case Op::kConst:
        return true;
      case Op::kRange:
        return n.num_srcs == 1 && is_const(0) && n.value.src(0).vmin() > 0;
      case Op::kAdd:
      case Op::kSub:
        return attains_[src(0)] && attains_[src(1)] && sets_.Disjoint(may_[src(0)], may_[src(1)]);
      case Op::kMul:
        return attains_[src(0)] && attains_[src(1)] && (is_const(0) || is_const(1));
      default:
        return false;
    }
  }

  void CheckIndex(int i) {
    const auto srcs = g_.srcs(i);
    if (srcs.size() == 3 && g_.nodes[srcs[2]].value.vmin() != 1) return;  // guarded
    for (int r : sets_.Elements(may_[srcs[1]])) {
      if (!g_.nodes[r].sure() || g_.nodes[r].value.src(0).vmin() <= 0) return;  // may never run
    }
    const UOp& offset = g_.nodes[srcs[1]].value;
    CheckAccess(g_, i, srcs[0], offset.vmin(), offset.vmax(), 1, attains_[srcs[1]]);
  }

  SpecGraph& g_;
  OpenRanges sets_;
  std::vector<OpenRanges::Id> open_, may_, closed_;
  std::vector<bool> lost_;  // a mistake below has hidden what ranges the value is open in
  std::vector<bool> attains_;
};

}  // namespace

void CheckAccess(SpecGraph& g, int i, int pointer, int64_t lo, int64_t hi, int lanes,
                 bool attained) {
  if (!g.Applies(SpecRule::kIndexBounds) || !g.nodes[pointer].sure()) return;
  const UOp& whole = g.nodes[pointer].value;
  const UOp p = whole.is(Op::kStage) ? UOp(whole.src(0)) : whole;
  const int64_t count = p.is(Op::kScratch)
                            ? p.arg<Pairs>()[0].second.value() / std::max(1, p.dtype().bytes())
                            : p.shape().MaxElements();
  // No loop over an empty buffer runs, whatever its index has been simplified to.
  if (count == 0) return;
  const bool low_out = lo<0, high_out = hi> count - lanes;
  const bool never_in = hi < 0 || lo > count - lanes;
  if (never_in || (attained && (low_out || high_out))) {
    g.Report(SpecRule::kIndexBounds, i, Info(g.nodes[i].op).text, ": the offset is in ", lo, "..",
             hi, lanes > 1 ? absl::StrCat(" and ", lanes - 1, " further") : "", ", and ",
             Describe(p), " has ", count, " elements");
  }
}

void CheckRanges(SpecGraph& g) {
  absl::flat_hash_map<int64_t, int> ids;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const SpecNode& n = g.nodes[i];
    for (size_t k = 0; k < g.srcs(i).size(); ++k) {
      const Op op = g.src(i, static_cast<int>(k)).op;
      if (op != Op::kParam && op != Op::kScratch && op != Op::kReg) continue;
      const bool pointer =
          k == 0 && (n.op == Op::kLoad || (op == Op::kReg ? n.op == Op::kSet : IsPut(n.op)) ||
                     ((n.op == Op::kIndex || n.op == Op::kPrefetch) && op != Op::kReg) ||
                     (n.op == Op::kStage && op == Op::kScratch) ||
                     (n.op == Op::kFragment && op == Op::kScratch));
      const bool fetched = n.op == Op::kFetch && op != Op::kReg && (k == 0 || k == 2);
      if (!pointer && !fetched && n.op != Op::kProgram && !n.bad) {
        g.Report(SpecRule::kPointerUse, i, Info(n.op).text, ": reads ", Info(op).text,
                 " itself, not what it holds");
      }
    }
    if (!n.sure()) continue;
    if (n.dtype.lanes() > g.options.target.max_lanes) {
      g.Report(SpecRule::kLaunchLimits, i, n.dtype.lanes(), " lanes; the target takes ",
               g.options.target.max_lanes);
    }
    if (n.op != Op::kRange) continue;
    const RangeArg r = std::get<RangeArg>(n.arg->value);
    const int first = ids.emplace(r.id, i).first->second;
    if (!(g.nodes[first].value == n.value)) {
      g.Report(SpecRule::kRangeId, i, "RANGE: the id ", r.id, " is taken by ", g.NodeText(first));
    }
    if (n.num_srcs != (g.stage == SpecStage::kProgram ? 3 : 1)) {
      g.Report(SpecRule::kRangeForm, i, "RANGE: takes ",
               g.stage == SpecStage::kProgram ? "begin, end and step" : "one extent", " here");
    } else if (r.kind == RangeKind::kVector && n.value.src(0).vmax() > g.options.target.max_lanes) {
      g.Report(SpecRule::kLaunchLimits, i, n.value.src(0).vmax(), " lanes; the target takes ",
               g.options.target.max_lanes);
    }
  }
}

void CheckLaunch(SpecGraph& g) {
  const Target& target = g.options.target;
  int params = 0, last = -1, on_device = -1;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const SpecNode& n = g.nodes[i];
    if (!n.sure() || n.op != Op::kParam || g.index.at(n.value.get()) != i) continue;
    ++params;
    last = i;
    if (!n.value.device()) continue;
    if (n.value.device().is_sharding() && !n.value.device().is_manual()) {
      if (g.stage == SpecStage::kKernel) {
        g.Report(SpecRule::kKernelPlace, i, "a kernel's buffer is on ", n.value.device().ToString(),
                 ", which localise would have made Manual");
      }
      continue;
    }
    if (on_device < 0) on_device = i;
    if (!(g.nodes[on_device].value.device() == n.value.device())) {
      g.Report(SpecRule::kOneDevice, i, "a kernel's parameters are on one device; another is ",
               g.NodeText(on_device));
    }
  }
  if (params > target.max_params) {
    g.Report(SpecRule::kLaunchLimits, last, params, " parameters; the target takes ",
             target.max_params);
  }
  const int64_t nodes = static_cast<int64_t>(g.nodes.size());
  if (g.stage == SpecStage::kKernel && nodes > target.max_nodes && !g.roots.empty()) {
    g.Report(SpecRule::kLaunchLimits, g.roots[0], nodes, " nodes; the target takes ",
             target.max_nodes);
  }
}

void CheckKernelGraph(SpecGraph& g) {
  CheckRanges(g);
  CheckLaunch(g);
  KernelCheck(g).Check();
}

}  // namespace tessera
