// Merging of adjacent loops, and splitting at divisions.
#include "graph/merge_ranges.h"

#include <algorithm>

#include "graph/fault.h"
#include "graph/kernel_form.h"
#include "graph/simplify.h"

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
  const auto loop = [](const UOp& r) { return r.arg<RangeArg>().kind == RangeKind::kLoop; };
  if (!loop(a) || !loop(b)) return UOp();
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

// The least number by which a range is divided that divides its extent, or 0.
int64_t LeastDivisor(const UOp& sink, const UOp& range) {
  int64_t least = 0;
  if (!range.src(0).IsConst()) return 0;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (!(u.is(Op::kFloorDiv) || u.is(Op::kFloorMod)) || !(u.src(0) == range)) continue;
    if (!u.src(1).IsConst()) continue;
    const int64_t by = u.src(1).vmin();
    if (by < 2 || by >= range.src(0).vmax() || range.src(0).vmax() % by != 0) continue;
    if (least == 0 || by < least) least = by;
  }
  return least;
}

}  // namespace

SplitLoops SplitRange(const UOp& sink, const UOp& range, int64_t inner_extent) {
  const int64_t id = FreshRangeId(RangeSets(sink));
  const auto make = [&](int64_t extent, int64_t range_id, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{range_id, kind});
  };
  SplitLoops out;
  out.outer = make(range.src(0).vmax() / inner_extent, id, range.arg<RangeArg>().kind);
  out.inner = make(inner_extent, id + 1, RangeKind::kLoop);
  const UOp begin = UOp::Make(Op::kMul, {out.outer, UOp::Index(inner_extent)});
  const UOp whole = UOp::Make(Op::kAdd, {begin, out.inner});
  out.sink = Simplify(ReplaceRanges(sink, {{range, {whole, {out.outer, out.inner}}}}));
  return out;
}

UOp SplitRanges(const UOp& sink) {
  UOp out = sink;
  for (bool again = true; again;) {
    again = false;
    const RangeSets sets(out);
    for (const UOp& r : sets.ranges()) {
      const int64_t by = LeastDivisor(out, r);
      if (by == 0) continue;
      const UOp split = SplitRange(out, r, by).sink;
      if (CountDivisions(split) >= CountDivisions(out)) continue;
      out = split;
      again = true;
      break;
    }
  }
  return out;
}

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
