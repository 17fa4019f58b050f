// Which operand of a sum of products varies over which ranges.
#include "codegen/contraction.h"

#include <algorithm>

#include "codegen/lanes.h"
#include "codegen/panels.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// The loads in an expression.
std::vector<UOp> Loads(const UOp& u) {
  std::vector<UOp> out;
  for (const UOp& s : TopoSort({&u, 1})) {
    if (s.is(Op::kIndex)) out.push_back(s);
  }
  return out;
}

// The kernel with its loops in the order of their places: `block` 0, the batch 1, the columns 2,
// the lanes' one 3, and those over the rows at `rows`, 1 or 4.
UOp InOrder(const UOp& sink, const Contraction& c, const UOp& block, int rows) {
  const auto place = [&](const UOp& r) {
    const auto in = [&](const std::vector<UOp>& ranges) {
      return std::find(ranges.begin(), ranges.end(), r) != ranges.end();
    };
    if (block && r == block) return 0;
    return in(c.batch) ? 1 : r == c.lane ? 3 : in(c.columns) ? 2 : rows;
  };
  const absl::Span<const UOp> closed = ClosedRanges(sink.src(0));  // of the one store
  std::vector<UOp> loops(closed.begin(), closed.end());
  std::stable_sort(loops.begin(), loops.end(),
                   [&](const UOp& x, const UOp& y) { return place(x) < place(y); });
  return WithLoops(sink, loops);
}

}  // namespace

UOp Longest(const std::vector<UOp>& ranges) {
  UOp best;
  for (const UOp& r : ranges) {
    if (!best || r.src(0).vmax() > best.src(0).vmax()) best = r;
  }
  return best;
}

bool AdjacentOver(const UOp& u, const UOp& range, const RangeSets& sets, Gates gates) {
  for (const UOp& l : Loads(u)) {
    if (!(sets.Free(l) & sets.Bit(range))) continue;
    const Step s = StepOf(l.src(1), range, sets);
    if (!s.linear || s.factor != 1) return false;
    if (gates == Gates::kAny || l.size() < 3) continue;
    if (!DecidedByThresholds(l.src(2), range, sets)) return false;
  }
  return true;
}

UOp ColumnsOutward(const UOp& sink, const Contraction& c, const UOp& block) {
  return InOrder(sink, c, block, /*rows=*/4);
}

UOp RowsOutward(const UOp& sink, const Contraction& c, const UOp& block) {
  return InOrder(sink, c, block, /*rows=*/1);
}

bool AreFactors(const Contraction& c) {
  const UOp& product = c.reduce.src(0);
  if (!product.is(Op::kMul)) return false;
  const bool first = c.a == product.src(0);
  return c.a == product.src(first ? 0 : 1) && c.b == product.src(first ? 1 : 0);
}

std::optional<Contraction> FindContraction(const RangeSets& sets, bool integers) {
  Contraction c;
  c.reduce = OnlyReduction(sets);
  if (!c.reduce || c.reduce.arg<ReduceArg>().op != Op::kAdd || !c.reduce.src(0).is(Op::kMul) ||
      !(c.reduce.dtype().IsFloat() || (integers && c.reduce.dtype().IsInt()))) {
    return std::nullopt;
  }
  c.a = UOp(c.reduce.src(0).src(0));
  c.b = UOp(c.reduce.src(0).src(1));
  return SortRanges(sets, std::move(c));
}

std::optional<Contraction> FindPairwise(const RangeSets& sets) {
  std::optional<Contraction> product = FindContraction(sets);
  if (product && !product->rows.empty()) return product;
  Contraction c;
  c.reduce = OnlyReduction(sets);
  const UOp& sink = sets.order().back();
  if (!c.reduce || sink.size() != 1 || c.reduce.dtype().bytes() < 4) return product;
  const UOp lane = AdjacentLoop(sink.src(0));
  if (!lane) return product;
  const UOp& value = c.reduce.src(0);
  c.b = OperandAlong(sets, value, sets.Bit(lane));
  if (!c.b) return product;
  RangeMask rows = 0;
  for (const UOp& r : ClosedRanges(sink.src(0))) rows |= sets.Bit(r);
  rows &= sets.Free(value) & ~sets.Free(c.b);
  c.a = rows ? OperandAlong(sets, value, rows) : UOp();
  if (!c.a) return product;
  const std::optional<Contraction> pair = SortRanges(sets, std::move(c));
  return pair ? pair : product;
}

std::optional<Contraction> SortRanges(const RangeSets& sets, Contraction c) {
  const UOp sink = sets.order().back();
  if (sink.size() != 1) return std::nullopt;
  const UOp& store = sink.src(0);
  c.lane = AdjacentLoop(store);
  if (!c.lane) return std::nullopt;
  if (sets.Free(c.a) & sets.Bit(c.lane)) std::swap(c.a, c.b);
  const RangeMask fa = sets.Free(c.a), fb = sets.Free(c.b);
  for (const UOp& r : ClosedRanges(store)) {
    const bool in_a{fa & sets.Bit(r)}, in_b{fb & sets.Bit(r)};
    (in_a == in_b ? c.batch : in_a ? c.rows : c.columns).push_back(r);
  }
  c.inner.assign(ClosedRanges(c.reduce).begin(), ClosedRanges(c.reduce).end());
  if (std::find(c.columns.begin(), c.columns.end(), c.lane) == c.columns.end()) return std::nullopt;
  return c;
}

int64_t BytesOfSum(const Contraction& c, int64_t each) {
  constexpr int64_t kNoPanel = int64_t{1} << 40;
  int64_t bytes = each;
  for (const UOp& r : c.inner) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, r.src(0).vmax()), &bytes)) {
      return kNoPanel;
    }
  }
  return std::min(bytes, kNoPanel);
}

}  // namespace tessera
