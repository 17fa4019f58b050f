// Packing of panels.
#include "codegen/panels.h"

#include <algorithm>

#include "codegen/lanes.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

// What is read along these ranges may depend on.
RangeMask ReadAlong(const RangeSets& sets, const UOp& value, RangeMask along) {
  RangeMask out = 0;
  for (const UOp& u : TopoSort({&value, 1})) {
    if (u.is(Op::kIndex) && (sets.Free(u) & along)) out |= sets.Free(u);
  }
  return out;
}

// The operand that varies over a tile's columns, which are ranges below the loops.
UOp ColumnOperand(const RangeSets& sets, const UOp& value) {
  RangeMask tile = 0;
  for (const UOp& r : sets.ranges()) {
    const RangeKind kind = r.arg<RangeArg>().kind;
    if (kind == RangeKind::kUnroll || kind == RangeKind::kVector) tile |= sets.Bit(r);
  }
  return OperandAlong(sets, value, tile);
}

// A panel whose columns lie across the grain of memory: lanes run along `along`, as memory does,
// and the columns are copies, so that square blocks of them turn in registers (see JoinTransposed).
UOp PackAcross(const UOp& sink, const UOp& b, std::vector<UOp> over, const UOp& along,
               const UOp& pairs) {
  std::vector<RangeKind> kinds;
  const int64_t columns = over.back().src(0).vmax();
  const auto at = std::find(over.begin(), over.end(), along) - over.begin();
  for (const UOp& r : over) {
    const bool loop = r.arg<RangeArg>().kind == RangeKind::kLoop;
    kinds.push_back(loop ? RangeKind::kLoop : RangeKind::kUnroll);
  }
  const UOp out = StageValueOver(sink, b, over, kinds, pairs);
  return Tile(out, over[at], 1, columns * (pairs ? kStepsOfPair : 1), kLeastLanes);
}

// A panel in pairs of steps: rows of two steps are read at once, and their lanes stored in turn.
UOp PackPairs(const UOp& sink, const UOp& b, std::vector<UOp> over, const UOp& pairs) {
  std::vector<RangeKind> kinds;
  const auto at = std::find(over.begin(), over.end(), pairs) - over.begin();
  for (const UOp& r : over) kinds.push_back(r.arg<RangeArg>().kind);
  const UOp out = StageValueOver(sink, b, over, kinds, pairs);
  return Tile(out, over[at], kStepsOfPair, 1);
}

// Whether an operand is read as it lies in memory, without a gap, where these loops nest so.
bool LiesInOrder(const UOp& b, const std::vector<UOp>& over, const UOp& pairs) {
  if (!b.is(Op::kIndex) || b.size() != 2 || !b.src(0).is(Op::kParam)) return false;
  const auto in_order = [&](const std::vector<UOp>& loops) {
    const UOp minus = UOp::Make(Op::kMul, {PlacesOf(loops, pairs).at, UOp::Index(-1)});
    const Sum rest = ToSum(Simplify(UOp::Make(Op::kAdd, {UOp(b.src(1)), minus})));
    return std::none_of(rest.terms.begin(), rest.terms.end(), [&](const Sum::Term& t) {
      const std::vector<UOp> order = TopoSort({&t.term, 1});
      return std::any_of(order.begin(), order.end(), [&](const UOp& u) {
        return std::find(loops.begin(), loops.end(), u) != loops.end();
      });
    });
  };
  if (in_order(over)) return true;
  std::vector<UOp> of_one;  // of several panels, each by itself
  for (const UOp& r : over) {
    if (r.arg<RangeArg>().kind != RangeKind::kUnroll) of_one.push_back(r);
  }
  return in_order(of_one);
}

// What a sum's product reads of b is over: its own ranges, those of the tile, the last of them
// adjacent in a panel, and the loops that are not around it.
std::vector<UOp> RangesOfPanel(const RangeSets& sets, const UOp& reduce, const UOp& b,
                               const UOp& fastest, const std::vector<UOp>* around) {
  const absl::Span<const UOp> own = ClosedRanges(reduce);
  const auto in = [](const auto& ranges, const UOp& r) {
    return std::find(ranges.begin(), ranges.end(), r) != ranges.end();
  };
  std::vector<UOp> over;
  for (const UOp& r : sets.ranges()) {
    const bool loop = r.arg<RangeArg>().kind == RangeKind::kLoop;
    const bool varies{sets.Free(b) & ~sets.Free(sets.order().back()) & sets.Bit(r)};
    if (around != nullptr && loop && varies && !in(own, r) && !in(*around, r)) over.push_back(r);
  }
  over.insert(over.end(), own.begin(), own.end());
  for (const UOp& r : sets.ranges()) {
    const RangeKind kind = r.arg<RangeArg>().kind;
    if (!(sets.Free(b) & sets.Bit(r))) continue;
    if (kind == RangeKind::kUnroll || kind == RangeKind::kVector) over.push_back(r);
  }
  const auto place = [&](const UOp& r) {
    const RangeKind kind = r.arg<RangeArg>().kind;
    if (fastest) return r == fastest ? 2 : kind == RangeKind::kUnroll ? 0 : 1;
    return kind == RangeKind::kVector ? 2 : kind == RangeKind::kUnroll ? 1 : 0;
  };
  std::stable_sort(over.begin(), over.end(),
                   [&](const UOp& x, const UOp& y) { return place(x) < place(y); });
  return over;
}

bool Fits(const UOp& b, const std::vector<UOp>& over, int64_t most_bytes) {
  int64_t bytes = b.dtype().bytes();
  for (const UOp& r : over) {
    if (!r.src(0).IsConst() || bytes > most_bytes) return false;
    bytes *= r.src(0).vmax();
  }
  return bytes <= most_bytes;
}

}  // namespace

UOp OperandAlong(const RangeSets& sets, const UOp& value, RangeMask along) {
  if (value.is(Op::kMul)) {
    const bool first{sets.Free(value.src(0)) & along}, second{sets.Free(value.src(1)) & along};
    if (first != second) return UOp(value.src(first ? 0 : 1));
  }
  const RangeMask within = ReadAlong(sets, value, along);
  UOp found;
  bool only = true;
  WalkDown({&value, 1}, [&](const UOp& u) {
    if (!only || !(sets.Free(u) & along)) return false;
    const bool is = !(sets.Free(u) & ~within);
    only = is ? !found : IsElementwise(u.op());
    if (is) found = u;
    return !is && only;
  });
  return only ? found : UOp();
}

UOp LoopOverPanels(const RangeSets& sets, const Contraction& c, int64_t lanes,
                   const Target& target) {
  const UOp pairs = PairsOf(c, target);
  const UOp b = pairs ? UOp(c.b.src(0)) : c.b;
  if (!b.is(Op::kIndex) || b.size() != 2 || !b.src(0).is(Op::kParam)) return UOp();
  const auto of_panel = [&](const UOp& r) {
    const Step s = StepOf(b.src(1), r, sets);
    return s.linear && s.factor == lanes;
  };
  const bool lies =
      pairs ? LiesInPairs(c.b, pairs) : std::any_of(c.inner.begin(), c.inner.end(), of_panel);
  if (!lies || !c.lane.src(0).IsConst(lanes)) return UOp();
  for (const UOp& r : c.columns) {
    const Step s = StepOf(sets.order().back().src(0).src(0).src(1), r, sets);
    if (!(r == c.lane) && s.linear && s.factor == lanes && r.src(0).IsConst()) return r;
  }
  return UOp();
}

UOp PackColumns(const UOp& sink, const UOp& fastest, const UOp& across, const Target& target,
                int64_t most_bytes, const std::vector<UOp>* around) {
  UOp out = sink;
  for (int rounds = 0; rounds < 3; ++rounds) {
    const RangeSets sets(out);
    bool packed = false;
    for (const UOp& u : sets.order()) {
      if (!u.is(Op::kReduce)) continue;
      UOp b = ColumnOperand(sets, u.src(0));
      UOp pairs = fastest ? UOp() : PairsOf(u, target);
      if (pairs && b != u.src(0).src(0) && b != u.src(0).src(1)) pairs = UOp();
      if (b && pairs) b = UOp(b.src(0));
      if (!b || (b.is(Op::kIndex) && b.src(0).is(Op::kStage))) continue;
      const std::vector<UOp> over = RangesOfPanel(sets, u, b, fastest, around);
      if (!Fits(b, over, most_bytes)) continue;
      if (LiesInOrder(b, over, pairs)) continue;  // a panel already
      out = across  ? PackAcross(out, b, over, across, pairs)
            : pairs ? PackPairs(out, b, over, pairs)
                    : StageValue(out, b, over);
      packed = true;
      break;
    }
    if (!packed) break;
  }
  return out;
}

UOp SumPairs(const UOp& sink, const Target& target) {
  UOp out = sink;
  for (bool found = true; found;) {
    found = false;
    const RangeSets sets(out);
    for (const UOp& u : sets.order()) {
      const UOp pairs = u.is(Op::kReduce) ? PairsOf(u, target) : UOp();
      if (!pairs || !LiesInPairs(ColumnOperand(sets, u.src(0)), pairs)) continue;
      const int64_t id = FreshRangeId(sets), steps = pairs.src(0).vmax();
      const auto range = [](int64_t own, int64_t extent, RangeKind kind) {
        return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{own, kind});
      };
      const UOp pair = range(id, steps / kStepsOfPair, RangeKind::kLoop);
      const UOp step = range(id + 1, kStepsOfPair, RangeKind::kMatrix);
      const UOp first = UOp::Make(Op::kMul, {pair, UOp::Index(kStepsOfPair)});
      std::vector<LoopSegment> segments = {{UOp::Make(Op::kAdd, {first, step}), {pair, step}}};
      if (steps % kStepsOfPair != 0) segments.push_back({UOp::Index(steps - 1), {}});
      out = Simplify(SplitIntoSegments(out, pairs, segments));
      found = true;
      break;
    }
  }
  return out;
}

namespace {

// The same with its cast last, if it is such a factor.
UOp WidenedLast(const UOp& u) {
  if (!u.is(Op::kWhere) || !u.src(2).IsConst() || !IsWidened(u.src(1))) return u;
  const UOp& narrow = u.src(1).src(0);
  const UOp other = Simplify(UOp::Make(Op::kCast, narrow.dtype(), {UOp(u.src(2))}, Arg()));
  const UOp back = Simplify(UOp::Make(Op::kCast, u.dtype(), {other}, Arg()));
  if (!(back == u.src(2))) return u;  // no such number, or a NaN
  return UOp::Make(Op::kCast, u.dtype(), {UOp::Make(Op::kWhere, {UOp(u.src(0)), narrow, other})},
                   Arg());
}

}  // namespace

UOp PairsOf(const Contraction& c, const Target& target) {
  return AreFactors(c) ? PairsOf(c.reduce, target) : UOp();
}

bool TakesSteps(const Contraction& c, const Target& target) {
  return AreFactors(c) && (AreOfTiles(c.reduce.src(0), target) || PairsOf(c.reduce, target));
}

UOp WidenLast(const UOp& sink, const Target& target) {
  Substitution map;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (!u.is(Op::kReduce) || !u.src(0).is(Op::kMul)) continue;
    const UOp& product = u.src(0);
    const UOp wide =
        UOp::Make(Op::kMul, {WidenedLast(product.src(0)), WidenedLast(product.src(1))});
    if (wide == product) continue;
    std::vector<UOp> srcs(u.srcs().begin(), u.srcs().end());
    srcs[0] = wide;
    const UOp sum = u.WithSrcs(srcs);
    if (AreOfTiles(wide, target) || PairsOf(sum, target)) map.emplace(u, sum);
  }
  return map.empty() ? sink : UOp(Substitute(sink, map));
}

UOp MergeSum(const UOp& sink, const Contraction& c, const Target& target) {
  if (c.inner.size() < 2 || !TakesSteps(c, target)) return UOp();
  const RangeSets sets(sink);
  int64_t steps = 1;
  for (const UOp& r : c.inner) {
    const bool loop = r.src(0).IsConst() && r.arg<RangeArg>().kind == RangeKind::kLoop;
    if (!loop || __builtin_mul_overflow(steps, r.src(0).vmax(), &steps)) return UOp();
  }
  const UOp all = UOp::Make(Op::kRange, kInt64, {UOp::Index(steps)},
                            RangeArg{FreshRangeId(sets), RangeKind::kLoop});
  Substitution map;
  PlaceRanges(c.inner, all, 1, UOp(), map);
  const auto there = [&](const UOp& u) { return Simplify(Substitute(u, map)); };
  const UOp a = there(c.a);
  const bool tiles = AreOfTiles(c.reduce.src(0), target);
  if (!tiles && !AdjacentOver(a, all, RangeSets(UOp::Make(Op::kSink, {a})))) return UOp();
  const UOp sum = UOp::Make(Op::kReduce, {there(UOp(c.reduce.src(0))), all}, c.reduce.arg());
  return Substitute(sink, {{c.reduce, sum}});
}

}  // namespace tessera
