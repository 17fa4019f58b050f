// Squares of tiles.
#include "codegen/cpu_tiles.h"

#include <algorithm>
#include <vector>

#include "codegen/block_tiler.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "codegen/unit_tiler.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int64_t kMostRows = 256;                // of a block: more of them were slower
constexpr int64_t kManySquares = 8;               // to which another one adds little
constexpr int64_t kMostSteps = int64_t{1} << 24;  // of a sum

int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

UOp SumIn(const UOp& store) {
  const UOp* sum = FindBelow({&store, 1}, [](const UOp& u) { return u.is(Op::kReduce); });
  return sum ? *sum : UOp();
}

// Whether the sum over a panel's columns is still the whole kernel's, whose factors may be simpler
// there: columns that are padding are a constant.
bool IsSameSum(const UOp& reduce, const UOp& whole, const Target& target) {
  if (!reduce || !AreOfTiles(reduce.src(0), target)) return false;
  const auto dtype = [](const UOp& r, int i) { return r.src(0).src(i).src(0).dtype(); };
  const auto are = [&](int first) {
    return dtype(reduce, 0) == dtype(whole, first) && dtype(reduce, 1) == dtype(whole, 1 - first);
  };
  return ClosedRanges(reduce) == ClosedRanges(whole) && (are(0) || are(1));
}

// How many panels of so many are filled, and their results written, at a time: rows of either are
// then longer than the line of a cache, whose prefetcher follows them. What is in scratch for each
// stays in the core's own cache; and where cores share the panels, the last, which also takes what
// is left over, has hardly more for that.
int64_t PanelsAtOnce(int64_t panels, DType of, int64_t bytes_of_each, int64_t cores,
                     const Target& target) {
  const auto most = [&](int64_t n) { return CeilDiv(panels / n, cores) * n + panels % n; };
  int64_t n = kBytesOfPanelsAtOnce / (kSideOfSquare * of.bytes());
  while (n > 1 && (n * bytes_of_each > target.l2_bytes / 4 || most(n) > most(1) * 17 / 16)) {
    n /= 2;
  }
  return n;
}

// Panels from a column on, so many columns at a time, and the segment of the columns that they are.
PanelStore PanelsFrom(int64_t first, int64_t times, int64_t columns, RangeKind kind, FreshIds& ids,
                      std::vector<LoopSegment>& segments) {
  PanelStore p;
  LoopSegment s{UOp::Index(first), {}};
  // One of the workers runs what is there once, not each of them.
  if (times > 1 || kind == RangeKind::kGrid) {
    p.panels = ids.Range(times, kind);
    s.ranges.push_back(p.panels);
    s.value = Plus(s.value, Times(p.panels, columns));
  }
  p.columns = columns;
  p.count = CeilDiv(columns, kSideOfSquare);
  p.column = s.value;
  if (columns > 1) {
    p.column = ids.Loop(columns);
    s.ranges.push_back(p.column);
    s.value = Plus(s.value, p.column);
  }
  segments.push_back(std::move(s));
  return p;
}

// The columns of the result's rows as one loop, where they are two.
struct JoinedColumns {
  UOp sink, loop;
};

JoinedColumns JoinColumns(const UOp& sink, const RangeSets& sets, const Contraction& c,
                          FreshIds& ids) {
  const UOp& at = sink.src(0).src(0).src(1);
  const int64_t width = c.lane.src(0).vmax();
  for (const UOp& r : c.columns) {
    const Step by = StepOf(at, r, sets);
    if (r == c.lane || !r.src(0).IsConst() || !by.linear || by.factor != width) continue;
    const bool grid = c.lane.arg<RangeArg>().kind == RangeKind::kGrid;
    const UOp loop =
        ids.Range(r.src(0).vmax() * width, grid ? RangeKind::kGrid : r.arg<RangeArg>().kind);
    const UOp joined = ReplaceRanges(
        sink, {{r, {Over(loop, width), {loop}}}, {c.lane, {Modulo(loop, width), {}}}});
    return {Simplify(joined), loop};
  }
  return {sink, c.lane};
}

}  // namespace

RowBlocks BlocksOf(const UOp& row, const UOp& a, int64_t deep, const Target& target,
                   FreshIds& ids) {
  RowBlocks out;
  out.row = row;
  const RangeKind kind = row.arg<RangeArg>().kind;
  const int64_t rows = row.src(0).vmax();
  const int64_t fit = BytesOfTileRows(target) / (deep * kBytesOfTileRow);
  const bool scratch =
      FindBelow({&a, 1}, [](const UOp& u) { return u.is(Op::kIndex) && !u.src(0).is(Op::kParam); });
  const int64_t most = scratch ? std::max(rows, kSide) : std::clamp(fit, kSideOfSquare, kMostRows);
  int64_t blocks = CeilDiv(rows, most);
  if (kind == RangeKind::kGrid) blocks = RoundUp(blocks, target.cores);
  const int64_t each = CeilDiv(rows, blocks);
  // Whole squares, where what is added for that is little.
  out.each = RoundUp(each, each > kManySquares * kSideOfSquare ? kSideOfSquare : kSide);
  blocks = CeilDiv(rows, out.each);
  if (blocks > 1 || kind == RangeKind::kGrid) out.block = ids.Range(blocks, kind);
  out.uneven = rows % out.each != 0;
  return out;
}

UnitTiler::UnitTiler(const PanelStore& of, RowBlocks& rows, const Target& target, FreshIds& ids)
    : of_(of),
      sets_(UOp::Make(Op::kSink, {of.store})),
      rows_(rows),
      target_(target),
      ids_(ids),
      summed_(ClosedRanges(of.reduce).begin(), ClosedRanges(of.reduce).end()),
      tiles_across_(CeilDiv(std::min(of.columns, kSideOfSquare), kSide)) {
  const UOp& product = of.reduce.src(0);
  const int of_rows = (sets_.Free(product.src(0)) & sets_.Bit(rows.row)) ? 0 : 1;
  a_ = UOp(product.src(of_rows).src(0));
  b_ = UOp(product.src(1 - of_rows).src(0));
  steps_beside_ = kSumBytes / a_.dtype().bytes();
  steps_of_tile_ = kBytesOfTileRow / a_.dtype().bytes();
  for (const UOp& r : summed_) steps_ *= r.src(0).vmax();
  tiles_down_ = CeilDiv(steps_, steps_of_tile_);
  PutRunsLast();
  if (rows_.in_place || rows_.stage) return;
  rows_.in_place = RowsLieAsTiles();
  fills_rows_ = !rows_.in_place;
  if (fills_rows_) rows_.stage = StageRows();
}

UOp UnitTiler::Run() {
  const UOp columns = ColumnsLieAsTiles() ? UOp() : StageColumns();
  const UOp sums = StageSums(columns);
  const UOp row = ids_.Loop(rows_.each);
  const UOp sum = UOp::Make(Op::kIndex, {sums, Simplify(PlaceOfSum(row, ColumnInPanel()))});
  const Substitution map = {{rows_.row, RowAt(row)}, {of_.reduce, sum}};
  return GatedStore(of_.store, map, IsRow(row), LoopsOfStore(row));
}

UOp UnitTiler::PlaceOfSum(const UOp& row, const UOp& column) const {
  return Plus(Times(Over(column, kSide), rows_.each * kSide),
              Plus(Times(row, kSide), Modulo(column, kSide)));
}

UOp UnitTiler::SumsOf(const UOp& columns, int64_t first, int64_t parts, int64_t each,
                      const UOp& scratch) {
  std::vector<UOp> over, summed;
  const auto among = [&](int64_t extent, RangeKind kind, std::vector<UOp>& ranges) {
    if (extent == 1) return UOp::Index(0);
    ranges.push_back(ids_.Range(extent, kind));
    return ranges.back();
  };
  const int64_t tiles = rows_.each / kSide, down = tiles % kSquare == 0 ? kSquare : 1;
  const UOp panel = among(of_.count, RangeKind::kLoop, over);
  const UOp part = among(parts, RangeKind::kLoop, over);
  const UOp square = among(tiles / down, RangeKind::kLoop, over);
  const UOp i = among(down, RangeKind::kUnroll, over);
  const UOp j = among(tiles_across_, RangeKind::kUnroll, over);
  const UOp r = among(kSide, RangeKind::kMatrix, over);
  const UOp c = among(kSide, RangeKind::kMatrix, over);
  const UOp tile = among(each, RangeKind::kLoop, summed);
  const UOp pair = among(kSide, RangeKind::kMatrix, summed);
  const UOp beside = among(steps_beside_, RangeKind::kMatrix, summed);
  const UOp row = Plus(Times(Plus(Times(square, down), i), kSide), r);
  const UOp column = Plus(Times(Plus(Times(panel, tiles_across_), j), kSide), c);
  const UOp from = Plus(UOp::Index(first), Plus(Times(part, each), tile));
  const UOp step = Plus(Times(from, steps_of_tile_), Plus(Times(pair, steps_beside_), beside));
  const UOp x = ReadRowAt(row, step);
  const UOp y = columns ? UOp::Make(Op::kIndex, {columns, Simplify(PlaceInPanels(step, column))})
                        : ReadColumnAt(step, column);
  const auto cast = [&](const UOp& u) { return UOp::Make(Op::kCast, of_.reduce.dtype(), {u}); };
  const UOp sum = SumOver(UOp::Make(Op::kMul, {cast(x), cast(y)}), summed);
  std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {scratch, Simplify(PlaceOfSum(row, column))}),
                           sum};
  srcs.insert(srcs.end(), over.begin(), over.end());
  return first == 0 ? UOp::Make(Op::kStore, srcs, Arg(int64_t{0}))
                    : UOp::Make(Op::kUpdate, srcs, ReduceArg{Op::kAdd, {}});
}

UOp UnitTiler::StageSums(const UOp& columns) {
  const DType dtype = of_.reduce.dtype();
  const int64_t id = ids_.stage++;
  const int64_t bytes = rows_.each * of_.count * tiles_across_ * kSide * dtype.bytes();
  const UOp scratch = UOp::Make(Op::kScratch, dtype, {}, Pairs{{Extent(id), Extent(bytes)}});
  // As much of a panel at a time as takes two thirds of the innermost cache, where rows use it
  // again and go past that.
  const int64_t bytes_of_tile = tiles_across_ * kSide * kBytesOfTileRow;
  const int64_t most = std::max<int64_t>(1, target_.l1_bytes * 2 / 3 / bytes_of_tile);
  const bool again = rows_.each > kSideOfSquare;
  const int64_t parts = again ? CeilDiv(tiles_down_, most) : 1, each = CeilDiv(tiles_down_, parts);
  std::vector<UOp> srcs = {scratch, SumsOf(columns, 0, 1, each, scratch)};
  const int64_t whole = tiles_down_ / each, rest = tiles_down_ % each;
  if (whole > 1) srcs.push_back(SumsOf(columns, each, whole - 1, each, scratch));
  if (rest > 0) srcs.push_back(SumsOf(columns, whole * each, 1, rest, scratch));
  return UOp::Make(Op::kStage, srcs, StageArg{id, Space::kShared});
}

std::vector<UOp> UnitTiler::LoopsOfStore(const UOp& row) const {
  std::vector<UOp> out, of_columns;
  for (const UOp& r : ClosedRanges(of_.store)) {
    if (r == rows_.row || r == of_.panels || r == of_.column) continue;
    (sets_.Free(a_) & sets_.Bit(r) ? out : of_columns).push_back(r);
  }
  if (rows_.block) out.push_back(rows_.block);
  out.insert(out.end(), of_columns.begin(), of_columns.end());
  if (of_.panels) out.push_back(of_.panels);
  out.push_back(row);
  if (of_.column.is(Op::kRange)) out.push_back(of_.column);
  return out;
}

UOp TileByUnits(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
                const Target& target) {
  const UOp& product = c.reduce.src(0);
  if (c.reduce.arg<ReduceArg>().op != Op::kAdd || !AreOfTiles(product, target)) return UOp();
  if (!row.src(0).IsConst() || !c.lane.src(0).IsConst()) return UOp();
  int64_t depth = 1;
  for (const UOp& r : c.inner) {
    if (!r.src(0).IsConst() || r.src(0).vmax() > kMostSteps / depth) return UOp();
    depth *= r.src(0).vmax();
  }
  const DType of = product.src(0).src(0).dtype();
  const int64_t row_bytes = depth * of.bytes();
  if (row.src(0).vmax() < kSide || c.lane.src(0).vmax() < kSide) return UOp();
  if (2 * row_bytes < kBytesOfTileRow) return UOp();
  // The least block of rows, and a panel, are laid out for the whole sum.
  if (kSideOfSquare * row_bytes > MostOfPanel(target)) return UOp();

  FreshIds ids{FreshRangeId(sets), FreshStageId(sink)};
  // Panels that a kernel of their own has laid out (schedule/pack_panels.cc).
  const bool lie = LiesInPairs(c.b, PairsOf(c.reduce, target)) && c.b.src(0).src(0).is(Op::kParam);
  const auto [joined, lane] = lie ? JoinColumns(sink, sets, c, ids) : JoinedColumns{sink, c.lane};
  const int64_t columns = lane.src(0).vmax();
  const RangeKind kind = lane.arg<RangeArg>().kind;
  const int64_t deep = CeilDiv(row_bytes, kBytesOfTileRow);
  const int of_rows = (sets.Free(product.src(0)) & sets.Bit(row)) ? 0 : 1;
  RowBlocks blocks = BlocksOf(row, UOp(product.src(of_rows).src(0)), deep, target, ids);
  const int64_t bytes = kSideOfSquare * (blocks.each * kSumBytes + (lie ? 0 : row_bytes));
  const int64_t whole = columns / kSideOfSquare;
  const int64_t cores = kind == RangeKind::kGrid ? target.cores : 1;
  const int64_t at_once = PanelsAtOnce(whole, of, bytes, cores, target);
  std::vector<PanelStore> panels;
  std::vector<LoopSegment> segments;
  int64_t first = 0;
  const auto add = [&](int64_t times, int64_t width) {
    if (times * width == 0) return;
    panels.push_back(PanelsFrom(first, times, width, kind, ids, segments));
    first += times * width;
  };
  add(whole / at_once, at_once * kSideOfSquare);
  add(1, whole % at_once * kSideOfSquare);
  add(1, columns % kSideOfSquare);
  const UOp split = Simplify(SplitIntoSegments(joined, lane, segments));
  if (split.size() != static_cast<int>(panels.size())) return UOp();
  std::vector<UnitTiler> tilers;
  tilers.reserve(panels.size());
  std::vector<UOp> stores;
  for (size_t i = 0; i < panels.size(); ++i) {
    panels[i].store = UOp(split.src(static_cast<int>(i)));
    panels[i].reduce = SumIn(panels[i].store);
    if (!IsSameSum(panels[i].reduce, c.reduce, target)) return UOp();
    tilers.emplace_back(panels[i], blocks, target, ids);
    stores.push_back(tilers.back().Run());
  }
  UOp out = Simplify(UOp::Make(Op::kSink, stores));
  for (const UnitTiler& t : tilers) out = t.WithLanes(out);
  const int64_t lanes = target.vector_bytes / kSumBytes;
  for (const PanelStore& p : panels) {
    if (p.column.is(Op::kRange)) out = Simplify(TileRepeating(out, p.column, kSquare, lanes));
  }
  return out;
}

}  // namespace tessera
