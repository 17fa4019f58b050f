// Contraction analysis and tiles.
#include "codegen/contraction.h"

#include <algorithm>

#include "codegen/cpu_tiles.h"
#include "codegen/lanes.h"
#include "codegen/panels.h"
#include "codegen/share_factors.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "codegen/windows.h"
#include "graph/merge_ranges.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
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
  const auto place = [&](const UOp& r) {
    const auto in = [&](const std::vector<UOp>& ranges) {
      return std::find(ranges.begin(), ranges.end(), r) != ranges.end();
    };
    if (block && r == block) return 0;
    return in(c.batch) ? 1 : r == c.lane ? 3 : in(c.columns) ? 2 : 4;
  };
  const absl::Span<const UOp> closed = ClosedRanges(sink.src(0));  // of the one store
  std::vector<UOp> loops(closed.begin(), closed.end());
  std::stable_sort(loops.begin(), loops.end(),
                   [&](const UOp& x, const UOp& y) { return place(x) < place(y); });
  return WithLoops(sink, loops);
}

namespace {

// The one reduction of a kernel, or nothing.
UOp OnlyReduction(const RangeSets& sets) {
  UOp out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce)) continue;
    if (out) return UOp();
    out = u;
  }
  return out;
}

// The loop of the kernel's one store over which the result is adjacent, or nothing.
UOp AdjacentLoop(const RangeSets& sets) {
  const UOp& store = sets.order().back().src(0);
  UOp lane;
  for (const UOp& r : ClosedRanges(store)) {
    const Step s = StepOf(store.src(0).src(1), r, sets);
    if (s.linear && s.factor == 1) lane = r;
  }
  return lane;
}

}  // namespace

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
  const UOp lane = AdjacentLoop(sets);
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
  c.lane = AdjacentLoop(sets);
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

namespace {

// Lanes over columns of which each b is used by few rows, or none: b's own order decides.
UOp TileFewRows(const UOp& sink, const Contraction& c, int64_t lanes) {
  return Tile(sink, c.lane, c.lane.src(0).vmax() >= 8 * lanes ? 4 : 1, lanes);
}

// The range summed over along which these operands are adjacent, if it is long enough for lanes.
UOp RangeAlong(const RangeSets& sets, const Contraction& c, absl::Span<const UOp> operands,
               int64_t lanes, Gates gates = Gates::kByThresholds) {
  std::vector<UOp> adjacent;
  for (const UOp& r : c.inner) {
    const auto is = [&](const UOp& u) { return AdjacentOver(u, r, sets, gates); };
    if (std::all_of(operands.begin(), operands.end(), is)) adjacent.push_back(r);
  }
  const UOp along = Longest(adjacent);
  return along && along.src(0).vmax() >= lanes ? along : UOp();
}

// Elementwise ops of an expression for each step of a range.
int OpsOver(const UOp& u, const UOp& range, const RangeSets& sets) {
  int ops = 0;
  for (const UOp& s : TopoSort({&u, 1})) {
    ops += IsElementwise(s.op()) && s.dtype() != kInt64 && (sets.Free(s) & sets.Bit(range));
  }
  return ops;
}

constexpr int64_t kNoPanel = int64_t{1} << 40;  // bytes that no cache holds
constexpr int64_t kMostRowsOfBlock = 1 << 14;
constexpr int64_t kLeastRowsOfBlock = 64;  // for which packing a panel anew is little
constexpr int64_t kRowsToTranspose = 32;   // that pay for packing across the grain
constexpr int64_t kCopiesOfShort = 8;
constexpr int kOpsToStage = 3;  // cheaper to keep than to compute for each tile of rows

// Short loops of a sum beside the one that has the lanes, the innermost first. They are written
// out: what depends on their steps, as the fields of a byte do, is decided then, and what they
// share is read once.
std::vector<UOp> ShortLoops(const Contraction& c, const UOp& along) {
  std::vector<UOp> out;
  int64_t copies = 1;
  for (auto it = c.inner.rbegin(); it != c.inner.rend(); ++it) {
    const int64_t extent = it->src(0).vmax();
    if (*it == along || !it->src(0).IsConst() || copies * extent > kCopiesOfShort) continue;
    copies *= extent;
    out.push_back(*it);
  }
  return out;
}

// Dot products: lanes along the sum, several columns at once as so many streams, and several rows
// that share what is read of b.
UOp TileAlong(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
              const UOp& along, int64_t lanes, const Target& target) {
  const int64_t columns = c.lane.src(0).vmax(), rows = row ? row.src(0).vmax() : 1;
  const int64_t tile_columns = columns >= 4 ? 4 : 1;
  // Registers: the sums, the columns' part of b, and one of a.
  const int64_t most = (target.vector_registers - 2 - tile_columns) / tile_columns;
  const int64_t tiles = (rows + most - 1) / most;
  const int64_t tile_rows = (rows + tiles - 1) / tiles;
  UOp out = ColumnsOutward(sink, c);
  out = Simplify(TileApart(out, c.lane, tile_columns));
  if (tiles > 1 && OpsOver(c.b, along, sets) >= kOpsToStage) {
    out = Simplify(PackColumns(out, along, UOp(), target, target.l2_bytes / 2));
  }
  if (rows > 1) out = Simplify(Tile(out, row, tile_rows, 1));
  const int64_t length = along.src(0).vmax();
  const int64_t unroll = length <= 2 * lanes ? length / lanes : rows == 1 ? 2 : 1;
  if (RangeSets(out).Bit(along) == 0) return out;
  const std::vector<UOp> written_out = ShortLoops(c, along);
  out = ShareFactors(Tile(out, along, unroll, lanes), written_out, tile_rows);
  for (const UOp& r : written_out) out = Tile(out, r, r.src(0).vmax(), 1);
  return out;
}

// The bytes of an operand for one row or column of the result, at `each` a step of the sum; at most
// kNoPanel, so that they can be multiplied further.
int64_t BytesOfSum(const Contraction& c, int64_t each) {
  int64_t bytes = each;
  for (const UOp& r : c.inner) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, r.src(0).vmax()), &bytes)) {
      return kNoPanel;
    }
  }
  return std::min(bytes, kNoPanel);
}

// The vectors of columns that are under way together: those of a tile; or, where there is but one
// tile, those of the rest as well.
int64_t VectorsAtOnce(int64_t columns, int64_t tile_columns, int64_t lanes) {
  if (columns >= 2 * tile_columns * lanes) return tile_columns;
  return std::max((columns + lanes - 1) / lanes, tile_columns);
}

// Rows whose sums stay in registers, with the columns and one element of a: as many as can be, or
// somewhat fewer where no row is left over then.
int64_t RowsOfTile(int64_t rows, int64_t vectors, const Target& target) {
  const int64_t fit = (target.vector_registers - 1 - vectors) / vectors;
  const int64_t most = std::clamp<int64_t>(fit, 1, MostTileRows(target));
  if (rows <= most) return rows;
  const int64_t even = LargestDivisor(rows, most);
  return even > most / 2 ? even : most;
}

// Every panel meets all rows: so many of them at a time as stay in the last cache, or in the core's
// part of it where rows, or what becomes of them, are its own. The largest divisor of the rows that
// does, or 0 where it is small.
int64_t RowsOfBlock(const Contraction& c, const UOp& row, bool own, const Target& target) {
  const UOp a = PairsOf(c, target) ? UOp(c.a.src(0)) : c.a;
  const int64_t bytes = BytesOfSum(c, a.dtype().bytes());
  const bool divided = row.arg<RangeArg>().kind == RangeKind::kGrid;
  const int64_t rows = row.src(0).vmax(), each = divided ? rows / target.cores : rows;
  const bool shared = c.lane.arg<RangeArg>().kind == RangeKind::kGrid && !own;
  const int64_t most = std::min(kMostRowsOfBlock, BytesOfRowBlock(target, shared) / bytes);
  if (!row.src(0).IsConst()) return 0;
  const int64_t block = LargestDivisor(rows, std::min(most, each));
  return block >= kLeastRowsOfBlock ? block : 0;
}

// Whether a lies in memory along the rows: a tile's elements of one step are then adjacent, but
// every step is far from the last.
bool LiesAlongRows(const RangeSets& sets, const Contraction& c, const UOp& row) {
  if (!AdjacentOver(c.a, row, sets) || Loads(c.a).empty()) return false;
  return std::all_of(c.inner.begin(), c.inner.end(), [&](const UOp& r) {
    return r.src(0).IsConst() && !AdjacentOver(c.a, r, sets);
  });
}

// What the products read of a, in blocks of rows; turned, where it lies along the rows. `row` and
// `block` become the loops within and over blocks. Nothing where all of a is in order and in cache.
UOp BlockRows(const UOp& sink, const RangeSets& sets, const Contraction& c, int64_t lanes,
              const Target& target, UOp& row, UOp& block) {
  const bool turn = LiesAlongRows(sets, c, row) && row.src(0).vmax() >= kRowsToTranspose;
  const int64_t rows = RowsOfBlock(c, row, turn, target);
  const bool grid = row.arg<RangeArg>().kind == RangeKind::kGrid;
  if (rows == 0 || (!turn && rows * (grid ? target.cores : 1) >= row.src(0).vmax())) return UOp();
  SplitLoops split = SplitRange(sink, row, rows);
  row = split.inner;
  block = split.outer;
  if (!turn) return split.sink;
  const std::optional<Contraction> again = FindPairwise(RangeSets(split.sink));
  if (!again) return UOp();
  std::vector<UOp> over = {row};
  over.insert(over.end(), again->inner.begin(), again->inner.end());
  const UOp a = PairsOf(*again, target) ? UOp(again->a.src(0)) : again->a;
  UOp out =
      StageValueOver(split.sink, a, over, std::vector<RangeKind>(over.size(), RangeKind::kLoop));
  out = Tile(out, over.front(), 1, lanes);
  return Simplify(Tile(out, over.back(), lanes, 1));
}

// Outer products: lanes over columns, b packed in panels where tiles of rows use it again.
UOp TileAcross(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
               int64_t lanes, const Target& target, const UOp& block = UOp()) {
  if (!block) {
    const UOp tiled = AreFactors(c) ? TileByUnits(sink, sets, c, row, target) : UOp();
    if (tiled) return tiled;
    UOp inner = row, outer;
    if (const UOp blocked = BlockRows(sink, sets, c, lanes, target, inner, outer)) {
      const RangeSets now(blocked);
      std::optional<Contraction> again = FindPairwise(now);
      if (!again || !now.Bit(c.lane)) return UOp();
      again->lane = c.lane;
      return TileAcross(blocked, now, *again, inner, lanes, target, outer);
    }
  }
  const int64_t columns = c.lane.src(0).vmax(), rows = row.src(0).vmax();
  const int64_t most = MostOfPanel(target);
  const int64_t steps = BytesOfSum(c, 1) / (PairsOf(c, target) ? kStepsOfPair : 1);
  const UOp panel = LoopOverPanels(sets, c, lanes, target);
  const int64_t in_row = panel ? panel.src(0).vmax() * lanes : columns;
  const int64_t tile_columns = VectorsOfPanel(target, in_row, lanes, steps);
  const int64_t tile_rows = RowsOfTile(rows, VectorsAtOnce(in_row, tile_columns, lanes), target);
  UOp out = ColumnsOutward(sink, c, block);
  if (panel) out = Simplify(Tile(out, panel, tile_columns, 1));
  out = Simplify(TileRepeating(out, c.lane, panel ? 1 : tile_columns, lanes));
  if (rows >= 2 * tile_rows) {
    // The columns share what gates a step of the sum: its mask is found once for all of them.
    const UOp across =
        AdjacentOver(c.b, c.lane, sets) ? UOp() : RangeAlong(sets, c, {c.b}, lanes, Gates::kAny);
    out = Simplify(PackColumns(out, UOp(), across, target, most));
  }
  return Tile(SumPairs(out, target), row, tile_rows, 1);
}

// The columns, from the innermost outwards, that lie in the result as one row of memory.
std::vector<UOp> AdjacentColumns(const RangeSets& sets, const UOp& store, const Contraction& c) {
  std::vector<UOp> out;
  int64_t elements = 1;
  for (bool found = true; found;) {
    found = false;
    for (const UOp& r : c.columns) {
      const Step s = StepOf(store.src(0).src(1), r, sets);
      if (!s.linear || s.factor != elements || !r.src(0).IsConst()) continue;
      if (r.arg<RangeArg>().kind != RangeKind::kLoop) continue;
      if (std::find(out.begin(), out.end(), r) != out.end()) continue;
      out.push_back(r);
      elements *= r.src(0).vmax();
      found = true;
      break;
    }
  }
  return out;
}

// How many columns lie in a row: all of so many ranges, and of the next one a part.
struct FlatColumns {
  size_t whole = 0;
  int64_t part = 1, count = 1;
};

// As many as these bytes hold, of so many a column.
FlatColumns FlatWithin(const std::vector<UOp>& columns, int64_t each, int64_t bytes) {
  FlatColumns out;
  for (const UOp& r : columns) {
    const int64_t extent = r.src(0).vmax(), fit = bytes / each / out.count;
    if (extent > fit) {
      if (out.whole > 0) out.part = LargestDivisor(extent, std::max<int64_t>(1, fit));
      out.count *= out.part;
      break;
    }
    out.count *= extent;
    ++out.whole;
  }
  return out;
}

constexpr int64_t kVectorsInARow = 8;  // against which the last, partly used, is little
constexpr int64_t kMostInARow = int64_t{64} << 20;  // bytes

// As many as a core's own cache holds. Where these are few, and the adjacent range alone has too
// few for lanes, as its part of the last cache holds, which is slower by less than going without;
// or, where even that has none, whole ranges. (A convolution of 512 channels of 7 x 7 took 13 times
// as long.)
FlatColumns FlatWithin(const std::vector<UOp>& columns, int64_t each, int64_t lanes,
                       const Target& target) {
  FlatColumns out = FlatWithin(columns, each, target.l2_bytes * 3 / 4);
  if (out.count >= kVectorsInARow * lanes) return out;
  if (columns.empty() || columns[0].src(0).vmax() >= lanes) return out;
  out = FlatWithin(columns, each, MostOfPanel(target));
  if (out.count >= lanes) return out;
  out = {};
  while (out.count < lanes && out.whole < columns.size()) {
    out.count *= columns[out.whole++].src(0).vmax();
  }
  return out.count <= kMostInARow / each ? out : FlatColumns();
}

// Columns over several ranges, as a convolution's are, become one: what the products read of b is
// first laid out with as many of them in a row as a cache holds. Nothing where b is in order.
UOp FlattenColumns(const UOp& sink, const Contraction& c, int64_t lanes, const Target& target) {
  const RangeSets sets(sink);
  UOp pairs = PairsOf(c, target);
  // Tiles have the rows' operand laid out.
  const bool tiles = AreFactors(c) && AreOfTiles(c.reduce.src(0), target);
  if (pairs && !tiles && !AdjacentOver(c.a, pairs, sets)) pairs = UOp();
  const UOp b = pairs ? UOp(c.b.src(0)) : c.b;
  const bool apart = pairs && b.is(Op::kIndex) && b.src(0).is(Op::kStage);  // no pairs there
  const bool in_order = AdjacentOver(b, c.lane, sets) && c.lane.src(0).vmax() % lanes == 0;
  if (in_order && !apart) return UOp();
  std::vector<UOp> columns = AdjacentColumns(sets, sink.src(0), c);
  std::vector<UOp> over = c.inner;
  for (const UOp& r : over) {
    if (!r.src(0).IsConst()) return UOp();
  }
  const FlatColumns flat = FlatWithin(columns, BytesOfSum(c, b.dtype().bytes()), lanes, target);
  if (flat.part > 1) {
    const UOp split = SplitRange(sink, columns[flat.whole], flat.part).sink;
    const std::optional<Contraction> again = FindPairwise(RangeSets(split));
    return again ? FlattenColumns(split, *again, lanes, target) : UOp();
  }
  columns.resize(flat.whole);
  if (columns.size() < 2) return UOp();
  over.insert(over.end(), columns.rbegin(), columns.rend());
  const size_t paired = std::find(over.begin(), over.end(), pairs) - over.begin();
  UOp out = StageValueOver(sink, b, over, std::vector<RangeKind>(over.size(), RangeKind::kLoop),
                           pairs, columns.size());
  out = TileRepeating(out, over.back(), 1, lanes);
  if (pairs) out = Tile(Simplify(out), over[paired], kStepsOfPair, 1);
  return MergeRanges(ColumnsOutward(Simplify(out), c));
}

UOp TileLaidOut(const UOp& sink, int64_t lanes, const Target& target) {
  const RangeSets sets(sink);
  const std::optional<Contraction> c = FindPairwise(sets);
  if (!c) return UOp();
  return TileAcross(sink, sets, *c, Longest(c->rows), lanes, target);
}

// Products over several ranges, as a convolution's are, of which the target takes several steps at
// once, where these go on in order in the rows' operand or tiles lay that out.
UOp TileSteps(const UOp& sink, const Contraction& c, int64_t lanes, const Target& target) {
  const UOp windows = StageWindows(sink, c, /*narrow=*/true, lanes, target);
  const UOp laid_out = windows ? windows : sink;
  const std::optional<Contraction> read = FindPairwise(RangeSets(laid_out));
  const UOp merged = read ? MergeSum(laid_out, *read, target) : UOp();
  const std::optional<Contraction> one =
      merged ? FindPairwise(RangeSets(merged)) : std::optional<Contraction>();
  if (!one) return UOp();
  const UOp flat = FlattenColumns(merged, *one, lanes, target);
  return TileLaidOut(flat ? flat : merged, lanes, target);
}

constexpr int64_t kRowsToFlatten = 16;  // that pay for laying out the columns in a row
constexpr int64_t kLongSum = 512;       // against which it is little to store lanes apart

// Where the adjacent columns are too few for lanes, as the elements of a convolution's window are
// in the gradient of its weight, and the sum is long, the longest of the columns has the lanes.
UOp LongColumn(const Contraction& c, int64_t lanes) {
  if (c.lane.src(0).vmax() >= lanes || BytesOfSum(c, 1) < kLongSum) return UOp();
  const UOp longest = Longest(c.columns);
  const bool fits = longest.src(0).IsConst() && longest.src(0).vmax() >= lanes &&
                    longest.arg<RangeArg>().kind == RangeKind::kLoop;
  return fits ? longest : UOp();
}

}  // namespace

UOp TileContraction(const UOp& sink, const RangeSets& sets, const Contraction& c,
                    const Target& target) {
  const UOp row = Longest(c.rows);
  const int64_t lanes = target.vector_bytes / c.reduce.dtype().bytes();
  const int64_t columns = c.lane.src(0).vmax();
  const int64_t rows = row ? row.src(0).vmax() : 1;
  if (lanes < 2) return UOp();
  const bool paired = LiesInPairs(c.b, PairsOf(c, target));  // a panel
  const bool across = (paired || AdjacentOver(c.b, c.lane, sets)) && columns >= lanes;
  if (across && rows < kLeastRowsOfPanel) {
    return c.reduce.src(0).is(Op::kMul) ? TileFewRows(sink, c, lanes) : UOp();
  }
  if (!across && rows < kRowsToTranspose) {
    const UOp tiled = row && AreFactors(c) ? TileByUnits(sink, sets, c, row, target) : UOp();
    if (tiled) return tiled;
    if (const UOp along = RangeAlong(sets, c, {c.a, c.b}, lanes)) {
      return TileAlong(sink, sets, c, row, along, lanes, target);
    }
  }
  if (const UOp lane = rows < kLeastRowsOfPanel ? UOp() : LongColumn(c, lanes)) {
    Contraction apart = c;
    apart.lane = lane;
    return TileAcross(sink, sets, apart, row, lanes, target);
  }
  if (rows >= kRowsToFlatten && !paired) {
    if (TakesSteps(c, target)) {
      if (const UOp tiled = TileSteps(sink, c, lanes, target)) return tiled;
    }
    UOp laid_out = StageWindows(sink, c, /*narrow=*/false, lanes, target);
    if (!laid_out) laid_out = FlattenColumns(sink, c, lanes, target);
    if (laid_out) return TileLaidOut(laid_out, lanes, target);
  }
  if (rows < kLeastRowsOfPanel || columns < lanes) return UOp();
  return TileAcross(sink, sets, c, row, lanes, target);
}

}  // namespace tessera
