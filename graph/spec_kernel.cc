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
        around_(g.nodes.size()),
        lost_(g.nodes.size()),
        of_units_(g.nodes.size()) {}

  // Whether a vector is an operand of a matrix unit, or its sums; of its sources that is known.
  bool OfUnits(int i) const {
    const Op op = g_.nodes[i].op;
    const auto from = g_.srcs(i);
    return op == Op::kFragment || op == Op::kMma || op == Op::kLanes ||
           ((op == Op::kRescale || op == Op::kReduce) && !from.empty() && of_units_[from[0]]);
  }

  void Check() {
    for (int i = 0; i < size(); ++i) {
      Node(i);
      of_units_[i] = OfUnits(i);
      if (g_.nodes[i].bad) continue;
      if (g_.nodes[i].dtype.lanes() != 1 && !of_units_[i]) {
        g_.Report(SpecRule::kScalarLanes, i, Info(g_.nodes[i].op).text,
                  ": a kernel's values are scalar, but for what matrix units take and give");
      }
    }
    if (!g_.Applies(SpecRule::kIndexBounds)) return;
    FindAround();
    for (int i = 0; i < size(); ++i) {
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
    CheckRescales(i);
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
  }

  // What rescales a sum is read by that sum alone, over its outermost loop.
  void CheckRescales(int i) {
    const SpecNode& n = g_.nodes[i];
    const auto srcs = g_.srcs(i);
    for (size_t k = 0; k < srcs.size(); ++k) {
      const int s = srcs[k];
      if (g_.nodes[s].op != Op::kRescale || g_.nodes[s].num_srcs != 3 || n.bad) continue;
      const bool sums = n.op == Op::kReduce && k == 0 && n.num_srcs > 1 &&
                        g_.srcs(s)[2] == srcs[1] && n.sure() &&
                        std::get<ReduceArg>(n.arg->value).op == Op::kAdd;
      if (!sums) {
        g_.Report(SpecRule::kRescaleForm, i, Info(n.op).text, ": takes ", g_.NodeText(s),
                  ", which is for a sum whose first RANGE is ", g_.NodeText(g_.srcs(s)[2]));
        continue;
      }
      for (const int r : Listed(i, 2, /*report=*/false)) {
        if (!sets_.Contains(open_[g_.srcs(s)[1]], r)) continue;
        g_.Report(SpecRule::kRescaleForm, i, "REDUCE: is rescaled at each point of ",
                  g_.NodeText(srcs[1]), " by what differs over ", g_.NodeText(r));
      }
    }
  }

  void Close(int i) {
    const SpecNode& n = g_.nodes[i];
    if (n.num_srcs == 0) return;
    const int value = g_.srcs(i)[0];
    const std::vector<int> ranges = Listed(i, 1);
    if (n.num_srcs == 1 && !n.bad) {
      g_.Report(SpecRule::kReduceForm, i, "REDUCE: a kernel reduces over RANGEs");
    }
    open_[i] = sets_.Without(open_[value], ranges);
    may_[i] = sets_.Without(may_[value], ranges);
    if (!n.bad) Limits(i, ranges);
    for (int r : ranges) {
      closed_[i] = sets_.With(closed_[i], r);
      if (g_.nodes[r].sure() &&
          std::get<RangeArg>(g_.nodes[r].arg->value).kind == RangeKind::kGrid) {
        g_.Report(SpecRule::kReduceForm, i, "REDUCE: the points of ", g_.NodeText(r),
                  " are computed apart from one another");
      }
      // A value that never was open in the range is the same at each of its points, which is fine.
      if (!lost_[i] && !sets_.Contains(may_[value], r) && sets_.Contains(closed_[value], r)) {
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
    for (int r : ranges) {
      const SpecNode& range = g_.nodes[r];
      if (!range.sure() || range.num_srcs != 1) continue;
      if (n.op == Op::kStore && range.value.src(0).vmax() > 1 &&
          !sets_.Contains(may_[g_.srcs(i)[0]], r)) {
        g_.Report(SpecRule::kStoreRangeIdle, i, "STORE: every point of ", g_.NodeText(r),
                  " writes the same element");
        g_.nodes[i].bad = true;  // once is enough
      }
    }
    Limits(i, ranges);
  }

  // What a STORE or REDUCE closes becomes blocks, threads and copies.
  void Limits(int i, absl::Span<const int> ranges) {
    int64_t grid = 1, unroll = 1, threads = 1;
    absl::flat_hash_map<RangeKind, int> of_kind;
    for (int r : ranges) {
      const SpecNode& range = g_.nodes[r];
      if (!range.sure() || range.num_srcs != 1) continue;
      const int64_t extent = std::max<int64_t>(0, range.value.src(0).vmax());
      const RangeKind kind = std::get<RangeArg>(range.arg->value).kind;
      if (kind == RangeKind::kGrid) grid = Product(grid, extent);
      if (kind == RangeKind::kUnroll) unroll = Product(unroll, extent);
      const bool at_once = kind == RangeKind::kThread || kind == RangeKind::kRow;
      if (at_once) threads = Product(threads, extent);
      if (at_once && ++of_kind[kind] == 2) {
        g_.Report(SpecRule::kLaunchLimits, i, Info(g_.nodes[i].op).text,
                  ": a block has one range of rows and one of threads; another is ",
                  g_.NodeText(r));
      }
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

  // A value is computed where it is used: nowhere if a loop around its users does not run.
  void FindAround() {
    for (int i = size() - 1; i >= 0; --i) {
      const SpecNode& n = g_.nodes[i];
      OpenRanges::Id around = around_[i];
      if (n.op == Op::kReduce || n.op == Op::kStore || n.op == Op::kUpdate) {
        for (int r : Listed(i, n.op == Op::kReduce ? 1 : 2, /*report=*/false)) {
          const SpecNode& range = g_.nodes[r];
          if (!range.sure() || range.value.src(0).vmin() <= 0) around = sets_.With(around, r);
        }
      }
      for (int s : g_.srcs(i)) around_[s] = sets_.Union(around_[s], around);
    }
  }

  void CheckIndex(int i) {
    const UOp& index = g_.nodes[i].value;
    SpecAccess access{i, g_.srcs(i)[0], index.src(1)};
    if (index.size() == 3) access.conditions.push_back(index.src(2));
    for (int r : sets_.Elements(sets_.Union(around_[i], may_[g_.srcs(i)[1]]))) {
      const SpecNode& range = g_.nodes[r];
      if (!range.sure()) return;
      access.runs &= range.value.src(0).vmin() > 0;
      access.loops.push_back(range.value);
    }
    CheckAccess(g_, access, SpecPoints::Reads::kAny);
    if (index.src(0).is(Op::kStage) && g_.nodes[access.pointer].sure()) {
      CheckFilled(g_, access, {&FillsOf(access.pointer)});
    }
  }

  // What the STOREs of a STAGE fill.
  const SpecFill& FillsOf(int stage) {
    const auto [it, fresh] = fills_.emplace(stage, SpecFill());
    SpecFill& all = it->second;
    if (!fresh) return all;
    all.known = true;
    for (const int s : g_.srcs(stage).subspan(1)) {
      const UOp& store = g_.nodes[s].value;
      if (!g_.nodes[s].sure() || !store.src(0).is(Op::kIndex)) all.known = false;
      if (!all.known) return all;
      SpecAccess access{s, g_.srcs(stage)[0], store.src(0).src(1)};
      if (store.src(0).size() == 3) access.conditions.push_back(store.src(0).src(2));
      const SpecFill fill = FillOf(g_, access);
      all.known = fill.known;
      all.elements.insert(fill.elements.begin(), fill.elements.end());
    }
    return all;
  }

  SpecGraph& g_;
  OpenRanges sets_;
  std::vector<OpenRanges::Id> open_, may_, closed_;
  std::vector<OpenRanges::Id> around_;        // loops around the users that may not run
  absl::flat_hash_map<int, SpecFill> fills_;  // by STAGE
  std::vector<bool> lost_;      // a mistake below has hidden what ranges the value is open in
  std::vector<bool> of_units_;  // vectors that matrix units take or give
};

}  // namespace

void CheckRanges(SpecGraph& g) {
  absl::flat_hash_map<int64_t, int> ids;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const SpecNode& n = g.nodes[i];
    for (size_t k = 0; k < g.srcs(i).size(); ++k) {
      const Op op = g.src(i, static_cast<int>(k)).op;
      if (op != Op::kParam && op != Op::kScratch && op != Op::kReg) continue;
      const bool pointer =
          k == 0 &&
          (n.op == Op::kLoad ||
           (op == Op::kReg ? n.op == Op::kSet || n.op == Op::kWait : IsPut(n.op)) ||
           ((n.op == Op::kIndex || n.op == Op::kPrefetch) && op != Op::kReg) ||
           (n.op == Op::kStage && op == Op::kScratch) || (n.op == Op::kFragment && op != Op::kReg));
      const bool fetched = n.op == Op::kFetch && op != Op::kReg && (k == 0 || k == 2);
      if (!pointer && !fetched && n.op != Op::kProgram && !n.bad) {
        g.Report(SpecRule::kPointerUse, i, Info(n.op).text, ": reads ", Info(op).text,
                 " itself, not what it holds");
      }
    }
    if (!n.sure()) continue;
    const bool is_tile = n.op == Op::kFragment && n.num_srcs == 3;
    if (n.dtype.lanes() > g.options.target.max_lanes && !is_tile) {
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
  CheckScratch(g);
  CheckWrites(g);
}

}  // namespace tessera
