// Contraction analysis and tiles.
#include "codegen/contraction.h"

#include <algorithm>

#include "codegen/lanes.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// The longest of some ranges, or nothing.
UOp Longest(const std::vector<UOp>& ranges) {
  UOp best;
  for (const UOp& r : ranges) {
    if (!best || r.src(0).vmax() > best.src(0).vmax()) best = r;
  }
  return best;
}

// The loads in an expression.
std::vector<UOp> Loads(const UOp& u) {
  std::vector<UOp> out;
  for (const UOp& s : TopoSort({&u, 1})) {
    if (s.is(Op::kIndex)) out.push_back(s);
  }
  return out;
}

// Whether every load of an expression that moves with the range moves by one element.
bool AdjacentOver(const UOp& u, const UOp& range, const RangeSets& sets) {
  for (const UOp& l : Loads(u)) {
    if (!(sets.Free(l) & sets.Bit(range))) continue;
    const Step s = StepOf(l.src(1), range, sets);
    if (!s.linear || s.factor != 1) return false;
    if (l.size() == 3 && !DecidedByThresholds(l.src(2), range, sets)) return false;
  }
  return true;
}

// The loop over `range` comes before every other of the stores' loops but the batch's.
UOp MoveOutward(const UOp& sink, const UOp& range, const std::vector<UOp>& stay) {
  std::vector<UOp> stores;
  for (const UOp& s : sink.srcs()) {
    std::vector<UOp> first = {s.src(0), s.src(1)}, rest;
    for (const UOp& r : ClosedRanges(s)) {
      const bool early = std::find(stay.begin(), stay.end(), r) != stay.end();
      if (early)
        first.push_back(r);
      else if (!(r == range))
        rest.push_back(r);
    }
    first.push_back(range);
    first.insert(first.end(), rest.begin(), rest.end());
    stores.push_back(s.WithSrcs(first));
  }
  return UOp::Make(Op::kSink, stores);
}

// Panels: every product's b that tiles of rows reuse goes to scratch, a tile's columns side by
// side.
UOp PackColumns(const UOp& sink, const UOp& row_tile, const Target& target) {
  UOp out = sink;
  for (int rounds = 0; rounds < 3; ++rounds) {
    const RangeSets sets(out);
    bool packed = false;
    for (const UOp& u : sets.order()) {
      if (!u.is(Op::kReduce) || !u.src(0).is(Op::kMul)) continue;
      const UOp& b = u.src(0).src(1);
      if (b.is(Op::kIndex) && b.src(0).is(Op::kStage)) continue;
      std::vector<UOp> over(ClosedRanges(u).begin(), ClosedRanges(u).end());
      bool lanes = false;
      for (const UOp& r : sets.ranges()) {
        const RangeKind kind = r.arg<RangeArg>().kind;
        if (!(sets.Free(b) & sets.Bit(r))) continue;
        if (kind == RangeKind::kUnroll || kind == RangeKind::kVector) over.push_back(r);
        lanes |= kind == RangeKind::kVector;
      }
      int64_t bytes = b.dtype().bytes();
      bool constant = true;
      for (const UOp& r : over) {
        constant &= r.src(0).IsConst();
        bytes *= r.src(0).vmax();
      }
      if (!lanes || !constant || bytes > target.l2_bytes * 3 / 4) continue;
      // Unrolled copies before lanes, so that a tile's columns are adjacent.
      std::stable_sort(over.begin(), over.end(), [](const UOp& x, const UOp& y) {
        return x.arg<RangeArg>().kind < y.arg<RangeArg>().kind;
      });
      out = StageValue(out, b, over);
      packed = true;
      break;
    }
    if (!packed) break;
  }
  return out;
}

}  // namespace

std::optional<Contraction> FindContraction(const RangeSets& sets) {
  Contraction c;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce)) continue;
    if (c.reduce) return std::nullopt;
    c.reduce = u;
  }
  if (!c.reduce || c.reduce.arg<ReduceArg>().op != Op::kAdd || !c.reduce.src(0).is(Op::kMul) ||
      !c.reduce.dtype().IsFloat()) {
    return std::nullopt;
  }
  const UOp sink = sets.order().back();
  if (sink.size() != 1) return std::nullopt;
  const UOp& store = sink.src(0);
  c.a = UOp(c.reduce.src(0).src(0));
  c.b = UOp(c.reduce.src(0).src(1));
  for (const UOp& r : ClosedRanges(store)) {
    const Step s = StepOf(store.src(0).src(1), r, sets);
    if (s.linear && s.factor == 1) c.lane = r;
  }
  if (!c.lane) return std::nullopt;
  if (sets.Free(c.a) & sets.Bit(c.lane)) std::swap(c.a, c.b);
  const uint64_t fa = sets.Free(c.a), fb = sets.Free(c.b);
  for (const UOp& r : ClosedRanges(store)) {
    const bool in_a = fa & sets.Bit(r), in_b = fb & sets.Bit(r);
    (in_a == in_b ? c.batch : in_a ? c.rows : c.columns).push_back(r);
  }
  c.inner.assign(ClosedRanges(c.reduce).begin(), ClosedRanges(c.reduce).end());
  if (std::find(c.columns.begin(), c.columns.end(), c.lane) == c.columns.end()) return std::nullopt;
  return c;
}

UOp TileContraction(const UOp& sink, const RangeSets& sets, const Contraction& c,
                    const Target& target) {
  const UOp row = Longest(c.rows);
  const int64_t lanes = std::max<int64_t>(1, target.vector_bytes / c.reduce.dtype().bytes());
  const int64_t columns = c.lane.src(0).vmax();
  const int64_t rows = row ? row.src(0).vmax() : 1;
  if (lanes < 2) return UOp();
  if (rows < 4) {
    // Few rows: each b is read once, so its own order decides.
    if (AdjacentOver(c.b, c.lane, sets) && columns >= lanes) {
      return Tile(sink, c.lane, columns >= 8 * lanes ? 4 : 1, lanes);
    }
    std::vector<UOp> adjacent;
    for (const UOp& r : c.inner) {
      if (AdjacentOver(c.a, r, sets) && AdjacentOver(c.b, r, sets)) adjacent.push_back(r);
    }
    const UOp inner = Longest(adjacent);
    if (!inner || inner.src(0).vmax() < lanes) return UOp();
    // Lanes along the sum, several columns at once: as many streams.
    const int64_t streams = columns % 4 == 0 ? 4 : 1;
    UOp out = Simplify(Tile(sink, c.lane, streams, 1));
    const RangeSets tiled(out);
    UOp along;
    for (const UOp& r : tiled.ranges()) {
      if (r == inner) along = r;
    }
    return along ? Tile(out, along, inner.src(0).vmax() >= 2 * lanes ? 2 : 1, lanes) : out;
  }
  if (columns < lanes) return UOp();
  const int64_t tile_rows = std::min<int64_t>(rows, target.vector_registers >= 32 ? 8 : 4);
  const int64_t tile_columns = columns >= 2 * lanes ? 2 : 1;
  UOp out = MoveOutward(sink, c.lane, c.batch);
  out = Simplify(Tile(out, c.lane, tile_columns, lanes));
  if (rows >= 2 * tile_rows) out = Simplify(PackColumns(out, row, target));
  return Tile(out, row, tile_rows, 1);
}

}  // namespace tessera
