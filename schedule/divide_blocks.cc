// Work division of GPUs' kernels: which loops their blocks of threads share. How much of them one
// block takes, and in which form, codegen says (codegen/bind_ranges.cc), up to a multiprocessor's
// share (ShareOf).
//
// Loops stay in the order of the result: neighbouring blocks then write neighbouring memory.
#include <algorithm>

#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// Stores and reductions may close the same range; here each gets its own: what blocks share of the
// result, one of them goes through for a reduction.
UOp OwnLoops(const UOp& sink) {
  UOp out = sink;
  for (const UOp& r : ClosedRanges(sink.src(0))) {
    const RangeSets sets(out);
    const UOp own = UOp::Make(Op::kRange, kInt64, r.srcs(),
                              RangeArg{FreshRangeId(sets), r.arg<RangeArg>().kind});
    Substitution reductions;
    for (const UOp& u : sets.order()) {
      if (u.is(Op::kReduce) && (sets.Closed(u) & sets.Bit(r))) {
        reductions.emplace(u, Substitute(u, {{r, own}}));
      }
    }
    if (!reductions.empty()) out = Substitute(out, reductions);
  }
  return out;
}

}  // namespace

UOp ShareAmongBlocks(const UOp& kernel) {
  if (kernel.size() == 0) return kernel;
  const bool in_order = HasUpdates(kernel) || RunningRange(kernel);
  const UOp sink = in_order ? kernel : OwnLoops(kernel);
  const RangeSets sets(sink);
  // Loops of all stores, but not one whose points come one after another.
  RangeMask shared = ~RangeMask{0};
  for (const UOp& s : sink.srcs()) shared &= sets.Closed(s);
  if (const UOp running = RunningRange(sink)) shared &= ~sets.Bit(running);
  // Where loops stay as they are, neither one that a reduction goes through, too.
  if (in_order) shared &= ~sets.ClosedBy(Op::kReduce);
  // What a reduction does not depend on stays within a block, so that only one computes it.
  const std::vector<UOp> reductions = TopReductions(sink);
  RangeMask reduced_for = 0;
  for (const UOp& r : reductions) reduced_for |= sets.Free(r);
  if (!reductions.empty() && !in_order) shared &= reduced_for;
  RangeReplacements map;
  for (const UOp& r : ClosedRanges(sink.src(0))) {
    if (!(shared & sets.Bit(r)) || r.arg<RangeArg>().kind == RangeKind::kGrid) continue;
    const UOp marked =
        UOp::Make(Op::kRange, kInt64, r.srcs(), RangeArg{r.arg<RangeArg>().id, RangeKind::kGrid});
    map.emplace(r, RangeReplacement{marked, {marked}});
  }
  return map.empty() ? sink : ReplaceRanges(sink, map);
}

}  // namespace tessera
