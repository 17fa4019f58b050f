// Panels that a kernel of their own lays out.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/merge_ranges.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/walk.h"
#include "schedule/lasting.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// Blocks of rows for each of which a kernel may as well lay out the panels itself. (A product of
// 4096 x 4096 matrices in eight of them: 288 ms; with a kernel that lays them out in 4 ms, 277.)
constexpr int64_t kFewBlocks = 2;

// An operand of a product of matrices that is read from a buffer.
struct PanelOperand {
  UOp load;
  std::vector<UOp> columns, steps;  // ranges that it depends on; the last column is adjacent
  bool several = false;     // matrices, each with rows of its own, whose ranges are among columns
  UOp pairs;                // the step that is taken in pairs
  int64_t other_bytes = 0;  // of the other operand, for all rows; 0 where these may be few
  int64_t result_bytes = 0;
  bool tiles = false;  // the target's matrix unit takes the product
  int64_t slot() const { return load.src(0).arg<ParamArg>().slot; }
};

// The one sum of products of a kernel, or nothing.
UOp OnlyContraction(const UOp& sink, const RangeSets& sets) {
  if (sink.size() != 1 || HasUpdates(sink) || RunningRange(sink)) return UOp();
  const UOp found = OnlyReduction(sets);
  const bool is = found && found.arg<ReduceArg>().op == Op::kAdd && found.src(0).is(Op::kMul) &&
                  found.dtype().IsFloat() && found.dtype().lanes() == 1;
  return is ? found : UOp();
}

bool DependsOnVariables(const UOp& u) {
  return FindBelow({&u, 1}, [](const UOp& s) { return s.is(Op::kVar); }) != nullptr;
}

// The operand that varies over the columns, if it is no more than read, and cast.
std::optional<PanelOperand> FindOperand(const UOp& sink, const Target& target) {
  const RangeSets sets(sink);
  const UOp reduce = OnlyContraction(sink, sets);
  if (!reduce) return std::nullopt;
  const UOp& store = sink.src(0);
  const UOp lane = AdjacentLoop(store);
  if (!lane) return std::nullopt;
  for (int side : {0, 1}) {
    PanelOperand out;
    out.load = UOp(reduce.src(0).src(side));
    while (out.load.is(Op::kCast)) out.load = UOp(out.load.src(0));
    const UOp& other = reduce.src(0).src(1 - side);
    if (!out.load.is(Op::kIndex) || out.load.size() != 2 || !out.load.src(0).is(Op::kParam)) {
      continue;
    }
    const RangeMask free = sets.Free(out.load), of_other = sets.Free(other);
    if (!(free & sets.Bit(lane)) || (of_other & sets.Bit(lane))) continue;
    bool rows = false, fits = true, fixed = true;
    for (const UOp& r : ClosedRanges(store)) {
      if (free & sets.Bit(r)) {
        fits &= r.src(0).IsConst();
        out.several |= (of_other & sets.Bit(r)) != 0;
        if (!(r == lane)) out.columns.push_back(r);
      } else {
        rows |= (of_other & sets.Bit(r)) && r.src(0).vmax() >= kLeastRowsOfPanel;
        fixed &= r.src(0).IsConst();
      }
    }
    for (const UOp& r : ClosedRanges(reduce)) {
      if (!(free & sets.Bit(r))) continue;
      fits &= r.src(0).IsConst();
      out.steps.push_back(r);
    }
    out.columns.push_back(lane);
    // Pairs are laid out as they are read: a step more than there are is none.
    out.tiles = AreOfTiles(reduce.src(0), target);
    out.pairs = PairsOf(reduce, target);
    if (out.pairs && out.pairs.src(0).vmax() % kStepsOfPair != 0) out.pairs = UOp();
    const UOp& kept = out.pairs ? other.src(0) : other;
    if (fixed) out.other_bytes = sets.Iterations(of_other) * kept.dtype().bytes();
    out.result_bytes = sets.Iterations(sets.Closed(store)) * reduce.dtype().bytes();
    // Panels stay the same while what a variable says changes.
    fits &= !DependsOnVariables(out.load.src(1));
    const RangeMask rest = free & ~sets.Closed(store) & ~sets.Closed(reduce);
    if (rows && fits && rest == 0 && !out.steps.empty()) return out;
  }
  return std::nullopt;
}

// Whether rows go by in many blocks, for each of which panels of so many bytes would come from
// afar; and these are no more than what else the product reads and writes. (Panels of several
// matrices, as parts of a sum have them, stay near by themselves.) Each core has rows of its own to
// go by in tiles, so that all would lay out the same panels: half as many bytes are enough there.
// (bf16, 768 x 1024 by 1024 x 1024 and 1024 x 512 by 512 x 1024: 13 % less time.)
bool MeetsManyBlocks(const PanelOperand& o, int64_t bytes, const Target& target) {
  if (o.several || bytes > o.other_bytes + o.result_bytes) return false;
  if (o.tiles && target.cores > 1) {
    return std::min(o.other_bytes, bytes) >= BytesOfTileRows(target);
  }
  const int64_t block =
      o.tiles ? BytesOfTileRows(target) : BytesOfRowBlock(target, /*shared=*/target.cores > 1);
  return block > 0 && o.other_bytes / kFewBlocks > block && bytes > target.l2_bytes;
}

int CountLoads(const UOp& sink, const UOp& param) {
  int n = 0;
  for (const UOp& u : TopoSort({&sink, 1})) n += u.is(Op::kIndex) && u.src(0) == param;
  return n;
}

class Packer {
 public:
  Packer(Plan& plan, const Targets& targets, const std::vector<bool>& slots, int64_t most_bytes)
      : plan_(plan),
        targets_(targets),
        lasts_(LastingBuffers(plan, slots)),
        left_(most_bytes),
        before_(plan.steps.size()) {}

  void Run() {
    const auto kernels = static_cast<int>(plan_.kernels.size());
    for (int k = 0; k < kernels; ++k) Pack(k);
    std::vector<PlanStep> steps;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      for (PlanStep& p : before_[s]) steps.push_back(std::move(p));
      steps.push_back(std::move(plan_.steps[s]));
    }
    plan_.steps = std::move(steps);
  }

 private:
  // The kernel that lays out panels, and the same product with its operand read from them.
  struct Packed {
    UOp pack, product;
    Extents panels;
  };

  // The kernel that fills several panels at a time: rows of the operand are read in longer pieces.
  // So many loops over steps, which come right after that over panels, are then between the loop
  // over several of them and that over one after the other.
  static UOp SeveralAtOnce(const UOp& pack, const UOp& panels, int64_t count, size_t steps) {
    const SplitLoops split = SplitRange(pack, panels, count);
    std::vector<UOp> loops;
    for (const UOp& r : ClosedRanges(split.sink.src(0))) {
      if (!(r == split.inner)) loops.push_back(r);
    }
    const auto outer = std::find(loops.begin(), loops.end(), split.outer);
    loops.insert(outer + 1 + static_cast<int64_t>(steps), split.inner);
    return WithLoops(split.sink, loops);
  }

  static std::optional<Packed> Split(const UOp& sink, const PanelOperand& o, int64_t width) {
    const UOp lane = o.columns.back();
    const SplitLoops split = SplitRange(sink, lane, width);
    Packed out;
    std::vector<UOp> read(o.columns.begin(), o.columns.end() - 1);
    read.push_back(split.outer);
    read.insert(read.end(), o.steps.begin(), o.steps.end());
    read.push_back(split.inner);
    // Loops of its own over the same points; as many as there are, so that ids are free.
    Substitution own;
    std::vector<UOp> fill;
    const auto loop = [&](int64_t extent) {
      const auto id = static_cast<int64_t>(fill.size());
      fill.push_back(
          UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{id, RangeKind::kLoop}));
      out.panels.push_back(extent);
      return fill.back();
    };
    for (const UOp& r : read) {
      const int64_t extent = r.src(0).vmax();
      own.emplace(r, loop(o.pairs && r == o.pairs ? extent / kStepsOfPair : extent));
    }
    if (o.pairs) {
      const UOp first = Times(own.at(o.pairs), kStepsOfPair);
      own.insert_or_assign(o.pairs, Plus(first, loop(kStepsOfPair)));
    }
    own.emplace(lane, Plus(Times(own.at(split.outer), width), own.at(split.inner)));
    const auto param = [&](int64_t slot, const Extents& shape) {
      const ParamArg& source = o.load.src(0).arg<ParamArg>();
      return UOp::Make(Op::kParam, o.load.dtype(), {}, ParamArg{slot, shape, source.device});
    };
    const UOp from = param(1, o.load.src(0).arg<ParamArg>().shape);
    std::vector<UOp> store = {
        UOp::Make(Op::kIndex, {param(0, out.panels), PlacesOf(fill).at}),
        UOp::Make(Op::kIndex, {from, Simplify(Substitute(UOp(o.load.src(1)), own))})};
    store.insert(store.end(), fill.begin(), fill.end());
    out.pack = UOp::Make(Op::kSink, {UOp::Make(Op::kStore, store, Arg(int64_t{0}))});
    const int64_t row = width * o.load.dtype().bytes();
    const int64_t at_once =
        LargestDivisor(split.outer.src(0).vmax(), std::max<int64_t>(1, kBytesOfPanelsAtOnce / row));
    if (at_once > 1)
      out.pack = SeveralAtOnce(out.pack, own.at(split.outer), at_once, o.steps.size());
    out.pack = SplitRanges(MergeRanges(Simplify(out.pack)));
    UOp load;
    for (const UOp& u : TopoSort({&split.sink, 1})) {
      if (u.is(Op::kIndex) && u.src(0) == o.load.src(0)) load = u;
    }
    if (!load) return std::nullopt;
    const UOp panel =
        UOp::Make(Op::kIndex, {param(o.slot(), out.panels), PlacesOf(read, o.pairs).at});
    if (panel.src(1) == load.src(1)) return std::nullopt;  // as it lies already
    out.product = Simplify(Substitute(split.sink, {{load, panel}}));
    return out;
  }

  void Pack(int k) {
    const Target& target = targets_.Of(plan_.kernels[k].device);
    if (target.dialect != Dialect::kCpp) return;
    const UOp sink = plan_.kernels[k].graph;
    const std::optional<PanelOperand> o = FindOperand(sink, target);
    if (!o || o->slot() < plan_.kernels[k].num_outputs || CountLoads(sink, o->load.src(0)) != 1) {
      return;
    }
    const DType sums = OnlyContraction(sink, RangeSets(sink)).dtype();
    const int64_t lanes = target.vector_bytes / sums.bytes();
    int64_t depth = 1, columns = 1;
    for (const UOp& r : o->steps) depth *= std::max<int64_t>(1, r.src(0).vmax());
    for (const UOp& r : o->columns) columns *= std::max<int64_t>(1, r.src(0).vmax());
    const int64_t adjacent = o->columns.back().src(0).vmax();
    const int64_t deep = o->pairs ? depth / kStepsOfPair : depth;
    int64_t width = VectorsOfPanel(target, adjacent, lanes, deep) * lanes;
    if (o->tiles) width = kSideOfSquare;
    if (adjacent % width != 0) width = lanes;  // tiles read several panels
    if (lanes < 2 || adjacent == 0 || adjacent % width != 0) return;
    // No more than there is: not the windows of a convolution, nor what is read twice.
    const int64_t elements = depth * columns;
    if (elements == 0 || elements > o->load.src(0).shape().MaxElements()) return;
    const int64_t bytes = elements * o->load.dtype().bytes();

    std::vector<int> sources;  // distinct ones, in the order of their first use
    bool lasting = true, once = false;
    for (const PlanStep& step : plan_.steps) {
      if (step.kind != PlanStep::kKernel || step.kernel != k) continue;
      const int b = step.buffers[o->slot()];
      const bool kept = plan_.buffers[b].kind != PlanBuffer::kTemp || plan_.buffers[b].kept;
      lasting &= lasts_[b] && kept;
      once |= step.once;
      if (std::find(sources.begin(), sources.end(), b) == sources.end()) sources.push_back(b);
    }
    const auto count = static_cast<int64_t>(sources.size());
    const bool keep = lasting && count > 0 && bytes <= left_ / count;
    if (!keep && (once || !MeetsManyBlocks(*o, bytes, target))) return;  // steps of each run only
    const std::optional<Packed> packed = Split(sink, *o, width);
    if (!packed) return;
    if (keep) left_ -= bytes * count;
    PlanKernel& kernel = plan_.kernels[k];
    kernel.graph = packed->product;
    kernel.name += "_panels";
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      PlanStep& step = plan_.steps[s];
      if (step.kind != PlanStep::kKernel || step.kernel != k) continue;
      int& b = step.buffers[o->slot()];
      b = PanelsOf(b, *packed, bytes, s, keep);
    }
  }

  // The outermost loop around a step that does not write a buffer; or the step itself.
  size_t OutsideOfLoops(size_t step, int buffer) const {
    if (plan_.loops.empty() || plan_.buffers[buffer].kind == PlanBuffer::kOfTurn) return step;
    for (size_t begin = 0; begin < step; ++begin) {
      if (plan_.steps[begin].kind != PlanStep::kLoop) continue;
      const size_t end = EndOfLoop(plan_, begin);
      if (end < step) continue;
      const bool written = std::any_of(
          plan_.steps.begin() + begin, plan_.steps.begin() + end,
          [&](const PlanStep& s) { return absl::c_linear_search(WrittenBy(plan_, s), buffer); });
      if (!written) return begin;
    }
    return step;
  }

  // The panels of a buffer, laid out before that step, or the loop that it is in; those that are
  // kept, unless they are already.
  int PanelsOf(int source, const Packed& packed, int64_t bytes, size_t before, bool keep) {
    const auto [kernel, is_new] = kernels_.try_emplace(packed.pack, -1);
    if (is_new) {
      kernel->second = static_cast<int>(plan_.kernels.size());
      PlanKernel k;
      k.graph = packed.pack;
      k.device = plan_.buffers[source].device;
      k.name = "panels";
      for (const Extent& e : packed.panels) absl::StrAppend(&k.name, "_", e.value());
      k.num_buffers = 2;
      k.num_outputs = 1;
      plan_.kernels.push_back(std::move(k));
    }
    const auto out = static_cast<int>(plan_.buffers.size());
    if (keep) {
      const auto [made, first] = panels_.try_emplace({source, kernel->second}, out);
      if (!first) return made->second;
    }
    PlanBuffer b;
    b.dtype = plan_.buffers[source].dtype;
    b.shape = Shape(packed.panels);
    b.device = plan_.buffers[source].device;
    b.bytes = bytes;
    b.kept = keep;
    plan_.buffers.push_back(std::move(b));
    PlanStep step;
    step.kernel = kernel->second;
    step.buffers = {out, source};
    step.site = plan_.steps[before].site;
    step.once = keep;
    const size_t at = OutsideOfLoops(before, source);
    // Each turn reads them.
    if (at < before) plan_.steps[EndOfLoop(plan_, at)].buffers.push_back(out);
    before_[at].push_back(std::move(step));
    return out;
  }

  Plan& plan_;
  const Targets& targets_;
  const std::vector<bool> lasts_;
  int64_t left_;
  std::vector<std::vector<PlanStep>> before_;  // by step
  absl::flat_hash_map<UOp, int> kernels_;
  std::map<std::pair<int, int>, int> panels_;  // those that are kept, by source and kernel
};

}  // namespace

void PackPanels(Plan& plan, const Targets& targets, const std::vector<bool>& slots,
                int64_t most_bytes) {
  Packer(plan, targets, slots, most_bytes).Run();
}

}  // namespace tessera
