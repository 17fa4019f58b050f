// Merging of adjacent loops.
#include <algorithm>

#include "graph/fault.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

// Whether every node that closes a closes b right after it, and the other way round.
bool AlwaysTogether(const RangeSets& sets, const UOp& a, const UOp& b) {
  for (const UOp& u : sets.order()) {
    const absl::Span<const UOp> closed = ClosedRanges(u);
    const auto pa = std::find(closed.begin(), closed.end(), a);
    const auto pb = std::find(closed.begin(), closed.end(), b);
    if (pa == closed.end() && pb == closed.end()) continue;
    if (FaultPlanted(Fault::kRangesMergedApart) && u.is(Op::kReduce)) continue;
    if (pa == closed.end() || pb == closed.end() || pb != pa + 1) return false;
  }
  return true;
}

int CountDivisions(const UOp& sink) {
  int n = 0;
  for (const UOp& u : TopoSort({&sink, 1})) n += u.is(Op::kFloorDiv) || u.is(Op::kFloorMod);
  return n;
}

// The kernel with a and b as one loop, or nothing where some index would need a division.
UOp Merge(const UOp& sink, const RangeSets& sets, const UOp& a, const UOp& b) {
  if (!a.src(0).IsConst() || !b.src(0).IsConst()) return UOp();
  const int64_t inner = b.src(0).vmax();
  int64_t extent;
  if (inner < 1 || __builtin_mul_overflow(a.src(0).vmax(), inner, &extent)) return UOp();
  const UOp merged = UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)},
                               RangeArg{FreshRangeId(sets), RangeKind::kLoop});
  const UOp n = UOp::Index(inner);
  const UOp out =
      Simplify(ReplaceRanges(sink, {{a, {UOp::Make(Op::kFloorDiv, {merged, n}), {merged}}},
                                    {b, {UOp::Make(Op::kFloorMod, {merged, n}), {}}}}));
  return CountDivisions(out) <= CountDivisions(sink) ? out : UOp();
}

}  // namespace

UOp MergeRanges(const UOp& sink) {
  UOp out = sink;
  for (bool again = true; again;) {
    again = false;
    const RangeSets sets(out);
    for (const UOp& u : sets.order()) {
      const absl::Span<const UOp> closed = ClosedRanges(u);
      for (size_t i = 0; i + 1 < closed.size() && !again; ++i) {
        if (!AlwaysTogether(sets, closed[i], closed[i + 1])) continue;
        if (UOp merged = Merge(out, sets, closed[i], closed[i + 1])) {
          out = merged;
          again = true;
        }
      }
      if (again) break;
    }
  }
  return out;
}

}  // namespace tessera
