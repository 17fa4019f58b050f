// Sums of bytes over short rows of tables, as one loop.
#include <algorithm>

#include "codegen/byte_dots.h"
#include "codegen/lanes.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kShortRow = 16;  // numbers that are too few lanes by themselves

// Whether the rows' numbers lie one after another: those of `element` beside each other, as many
// for each of `row`.
bool AreOneRange(const UOp& rows, const UOp& row, const UOp& element, const RangeSets& sets) {
  for (const UOp& l : TopoSort({&rows, 1})) {
    if (!l.is(Op::kIndex) || !(sets.Free(l) & (sets.Bit(row) | sets.Bit(element)))) continue;
    const Step within = StepOf(l.src(1), element, sets), across = StepOf(l.src(1), row, sets);
    if (!within.linear || within.factor != 1 || !across.linear || l.size() != 2) return false;
    if (across.factor != element.src(0).vmax()) return false;
  }
  return true;
}

}  // namespace

UOp JoinShortRows(const UOp& sink, const RangeSets& sets, const ByteDots& dots) {
  const auto is_const = [](const UOp& r) { return r.src(0).IsConst(); };
  const std::vector<UOp>& inner = dots.c.inner;
  for (const UOp& element : inner) {
    if (!is_const(element) || element.src(0).vmax() >= kShortRow) continue;
    if (element.src(0).vmax() % kBytesOfDot != 0) continue;
    for (const UOp& row : inner) {
      if (row == element || !is_const(row)) continue;
      if (!AreOneRange(dots.c.a, row, element, sets)) continue;
      const UOp n = UOp(element.src(0));
      const UOp both = UOp::Make(Op::kRange, kInt64, {UOp::Index(row.src(0).vmax() * n.vmax())},
                                 RangeArg{FreshRangeId(sets), RangeKind::kLoop});
      const Substitution parts = {{row, UOp::Make(Op::kFloorDiv, {both, n})},
                                  {element, UOp::Make(Op::kFloorMod, {both, n})}};
      std::vector<UOp> srcs = {Simplify(Substitute(dots.c.reduce.src(0), parts))};
      for (const UOp& r : ClosedRanges(dots.c.reduce)) {
        if (!(r == row) && !(r == element)) srcs.push_back(r);
      }
      srcs.push_back(both);
      const UOp joined = UOp::Make(Op::kReduce, srcs, dots.c.reduce.arg());
      return UOp(Substitute(sink, {{dots.c.reduce, joined}}));
    }
  }
  return UOp();
}

}  // namespace tessera
