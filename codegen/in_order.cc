// Optimisation choices for kernels in which some loops run in order: those of UPDATEs, since what
// they write may be the same element, and that of RUNNINGs. They stay as they are; what lies side
// by side in others becomes lanes on CPUs, threads on GPUs.
#include <algorithm>

#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "codegen/passes.h"
#include "codegen/split.h"
#include "graph/kernel_form.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kAtOnce = 4;  // additions of one core that do not wait for one another

// Whether all that is read and written along the range is adjacent, or the same.
bool IsAdjacent(const UOp& range, const RangeSets& sets) {
  const RangeMask bit = sets.Bit(range);
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & bit)) continue;
    const Step step = StepOf(u.src(1), range, sets);
    if (!step.linear || (step.factor != 1 && step.factor != 0)) return false;
    if (u.size() == 3 && (sets.Free(u.src(2)) & bit)) return false;
  }
  return true;
}

UOp UpdatesInLanes(const UOp& sink, const Target& target) {
  const RangeSets sets(sink);
  const absl::Span<const UOp> loops = ClosedRanges(sink.src(0));
  if (loops.empty()) return sink;
  // The innermost loop of the base; the updates have it too unless it is the axis that they write.
  const UOp& range = loops.back();
  if (range.arg<RangeArg>().kind != RangeKind::kLoop || !IsAdjacent(range, sets)) return sink;
  int64_t lanes = LanesFor(range, sets, target);
  while (lanes > 1 && lanes > range.src(0).vmax()) lanes /= 2;
  return lanes < 2 ? sink : Tile(sink, range, 1, lanes);
}

// Each step waits for the one before: several go on at once, in lanes where they are adjacent.
UOp RunningAtOnce(const UOp& sink, const UOp& running, const Target& target) {
  const RangeSets sets(sink);
  const RangeMask reduced = sets.ClosedBy(Op::kReduce);
  const absl::Span<const UOp> loops = ClosedRanges(sink.src(0));
  UOp rows;
  for (size_t i = loops.size(); i-- > 0;) {
    const UOp& range = loops[i];
    if (range == running || (sets.Bit(range) & reduced)) continue;
    if (!rows || rows.src(0).vmax() < kAtOnce) rows = range;
    if (!IsAdjacent(range, sets)) continue;
    int64_t lanes = LanesFor(range, sets, target);
    while (lanes > 1 && lanes > range.src(0).vmax()) lanes /= 2;
    if (lanes < 2) continue;
    return Tile(sink, range, range.src(0).vmax() >= 2 * kAtOnce * lanes ? kAtOnce : 1, lanes);
  }
  return rows && rows.src(0).vmax() >= kAtOnce ? Tile(sink, rows, kAtOnce, 1) : sink;
}

// A thread for each point of the loops that the scheduler gave to blocks, which all stores have.
UOp OnThreads(const UOp& sink, const Target& target) {
  int64_t id = FreshRangeId(RangeSets(sink));
  std::vector<UOp> common;
  UOp count = UOp::Index(1);
  for (const UOp& r : ClosedRanges(sink.src(0))) {
    if (r.arg<RangeArg>().kind != RangeKind::kGrid) continue;
    common.push_back(r);
    count = UOp::Make(Op::kMul, {count, r.src(0)});
  }
  if (common.empty()) return sink;
  count = Simplify(count);
  int64_t threads = kThreadsOfBlock;
  while (threads > kWarp && ShareOf(count.vmax(), target.cores) <= threads / 2) threads /= 2;
  const UOp each = UOp::Index(threads);
  const UOp over = UOp::Make(Op::kAdd, {count, UOp::Index(threads - 1)});
  const UOp blocks = Simplify(UOp::Make(Op::kFloorDiv, {over, each}));
  const UOp block = UOp::Make(Op::kRange, kInt64, {blocks}, RangeArg{id++, RangeKind::kGrid});
  const UOp before = UOp::Make(Op::kMul, {block, each});
  const bool whole = count.IsConst() && count.vmax() % threads == 0;
  const UOp left = UOp::Make(Op::kSub, {count, before});
  const UOp extent = whole ? each : Simplify(UOp::Make(Op::kMin, {each, left}));
  const UOp thread = UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{id++, RangeKind::kThread});
  // The innermost loop is that of neighbouring threads.
  RangeReplacements map;
  UOp rest = UOp::Make(Op::kAdd, {before, thread});
  for (size_t i = common.size(); i-- > 0;) {
    const UOp& n = common[i].src(0);
    const UOp value = i == 0 ? rest : UOp::Make(Op::kFloorMod, {rest, n});
    rest = UOp::Make(Op::kFloorDiv, {rest, n});
    map.emplace(common[i], RangeReplacement{Simplify(value), {}});
  }
  map.at(common[0]).ranges = {block, thread};
  // What the threads share comes first everywhere.
  std::vector<UOp> stores;
  for (const UOp& s : sink.srcs()) {
    std::vector<UOp> srcs = {s.src(0), s.src(1)};
    srcs.insert(srcs.end(), common.begin(), common.end());
    for (const UOp& r : ClosedRanges(s)) {
      if (std::find(common.begin(), common.end(), r) == common.end()) srcs.push_back(r);
    }
    stores.push_back(s.WithSrcs(srcs));
  }
  return Simplify(ReplaceRanges(sink.WithSrcs(stores), map));
}

}  // namespace

UOp OptimiseInOrder(const UOp& sink, const Target& target) {
  if (target.dialect == Dialect::kCuda) return OnThreads(sink, target);
  const UOp running = RunningRange(sink);
  return Simplify(running ? RunningAtOnce(sink, running, target) : UpdatesInLanes(sink, target));
}

}  // namespace tessera
