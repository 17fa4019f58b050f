// Runs of memory.
#include "schedule/memory_runs.h"

#include <algorithm>
#include <cstdlib>

#include "graph/simplify.h"

namespace tessera {

int64_t RunOver(const RangeSets& sets, const UOp& loop, const UOp& other) {
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kParam)) continue;
    if (!(sets.Free(u.src(1)) & sets.Bit(other))) continue;
    for (const Sum at = ToSum(u.src(1)); const Sum::Term& t : at.terms) {
      if (t.term == loop && t.factor == 1) return loop.src(0).vmax() * u.dtype().bytes();
    }
  }
  return 0;
}

bool CutsRuns(const RangeSets& sets, absl::Span<const UOp> loops, const Division& division) {
  if (sets.ClosedBy(Op::kReduce) != 0) return false;
  const UOp& store = sets.order().back().src(0);
  const Sum at = ToSum(store.src(0).src(1));
  return std::any_of(at.terms.begin(), at.terms.end(), [&](const Sum::Term& t) {
    const size_t i = std::find(loops.begin(), loops.end(), t.term) - loops.begin();
    if (i == loops.size() || division.splits[i] == 1) return false;
    const int64_t each = t.term.src(0).vmax() / division.splits[i] * std::abs(t.factor);
    return each * store.src(1).dtype().bytes() < kLeastRun;
  });
}

bool IsReadAgainOutside(const RangeSets& sets, absl::Span<const UOp> loops, size_t shared) {
  RangeMask outside = 0;
  for (const UOp& r : loops.subspan(0, shared)) outside |= sets.Bit(r);
  return std::any_of(sets.order().begin(), sets.order().end(), [&](const UOp& u) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kParam)) return false;
    const RangeMask over = sets.Free(u.src(1));
    return (over & sets.Bit(loops[shared])) && (outside & ~over);
  });
}

bool RunsOn(const RangeSets& sets, const UOp& loop) {
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kParam)) continue;
    if (!(sets.Free(u.src(1)) & sets.Bit(loop))) continue;
    int64_t step = 0, within = 1;  // a step of the loop; what others reach meanwhile, in elements
    for (const Sum sum = ToSum(u.src(1)); const Sum::Term& t : sum.terms) {
      if (t.term == loop) {
        step = std::abs(t.factor);
      } else if (sets.Free(t.term) & sets.Bit(loop)) {
        return false;
      } else {
        int64_t reach = 0;
        if (__builtin_sub_overflow(t.term.vmax(), t.term.vmin(), &reach) ||
            __builtin_mul_overflow(reach, std::abs(t.factor), &reach) ||
            __builtin_add_overflow(within, reach, &within)) {
          return false;
        }
      }
    }
    if (step < within) return false;
  }
  return true;
}

}  // namespace tessera
