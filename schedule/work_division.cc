// Work division, first form: one loop of each kernel is divided over cores.
#include <algorithm>

#include "graph/kernel_form.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr int64_t kWorthACore = 1 << 15;  // element operations that pay for waking one

// What one launch costs: arithmetic on every point of the ranges that a node depends on, and each
// buffer's bytes once.
void Price(PlanKernel& k, const RangeSets& sets) {
  int64_t flops = 0;
  int64_t bytes = 0;
  for (const UOp& u : sets.order()) {
    const bool arithmetic = IsElementwise(u.op()) && u.dtype().IsFloat() && !u.is(Op::kWhere) &&
                            !u.is(Op::kCast) && !u.is(Op::kBitcast);
    if (arithmetic) flops += sets.Iterations(sets.Free(u));
    if (u.is(Op::kReduce)) flops += sets.Iterations(sets.Free(u) | sets.Closed(u));
    if (u.is(Op::kParam)) {
      // What is read at most: fewer bytes where the ranges do not reach all of it.
      int64_t elements = 0;
      for (const UOp& i : sets.order()) {
        if (i.is(Op::kIndex) && i.src(0) == u) elements += sets.Iterations(sets.Free(i));
      }
      bytes += std::min(elements, u.shape().MaxElements()) * u.dtype().bytes();
    }
  }
  k.flops = flops;
  k.bytes = bytes;
}

}  // namespace

void DivideWork(PlanKernel& kernel, const Target& target) {
  const RangeSets sets(kernel.graph);
  Price(kernel, sets);
  const uint64_t closed_inside = sets.ClosedBy(Op::kReduce);
  const UOp store = kernel.graph.src(0);
  const absl::Span<const UOp> loops = ClosedRanges(store);
  // Outer loops first, and those that a reduction runs over never.
  std::vector<UOp> order;
  for (const UOp& r : loops) {
    if (!(sets.Bit(r) & closed_inside)) order.push_back(r);
  }
  const size_t outer = order.size();
  for (const UOp& r : loops) {
    if (sets.Bit(r) & closed_inside) order.push_back(r);
  }
  int64_t work = 0;
  for (const UOp& u : sets.order()) {
    if (IsElementwise(u.op()) || u.is(Op::kIndex)) work += sets.Iterations(sets.Free(u));
  }
  const int64_t wanted = std::min<int64_t>(target.cores, std::max<int64_t>(1, work / kWorthACore));
  // The first loop long enough to occupy the cores; else the longest.
  size_t grid = outer;
  for (size_t i = 0; i < outer; ++i) {
    const int64_t extent = order[i].src(0).vmax();
    if (grid == outer || order[grid].src(0).vmax() < std::min<int64_t>(extent, 4 * wanted)) {
      grid = i;
    }
  }
  if (wanted <= 1 || grid == outer || order[grid].src(0).vmax() < 2) {
    kernel.workers = 1;
    grid = outer;
  } else {
    kernel.workers = static_cast<int>(std::min<int64_t>(wanted, order[grid].src(0).vmax()));
    std::rotate(order.begin(), order.begin() + grid, order.begin() + grid + 1);
  }
  RangeReplacements kinds;
  if (grid < outer) {
    const UOp marked = UOp::Make(Op::kRange, kInt64, {order[0].src(0)},
                                 RangeArg{order[0].arg<RangeArg>().id, RangeKind::kGrid});
    kinds.emplace(order[0], RangeReplacement{marked, {marked}});
  }
  std::vector<UOp> stores;
  for (const UOp& s : kernel.graph.srcs()) {
    std::vector<UOp> srcs = {s.src(0), s.src(1)};
    srcs.insert(srcs.end(), order.begin(), order.end());
    stores.push_back(s.WithSrcs(srcs));
  }
  kernel.graph = ReplaceRanges(UOp::Make(Op::kSink, stores), kinds);
}

}  // namespace tessera
