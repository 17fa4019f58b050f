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

constexpr int64_t kMostRows = 4096;               // of a block
constexpr int64_t kManySquares = 8;               // to which another one adds little
constexpr int64_t kMostSteps = int64_t{1} << 24;  // of a sum

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

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

// So many panels from a column on, and the segment of the columns that they are.
PanelStore PanelFrom(int64_t first, int64_t count, int64_t columns, RangeKind kind, FreshIds& ids,
                     std::vector<LoopSegment>& segments) {
  PanelStore p;
  LoopSegment s{UOp::Index(first), {}};
  // One of the workers runs a single panel, not each of them.
  if (count > 1 || kind == RangeKind::kGrid) {
    p.panel = ids.Range(count, kind);
    s.ranges.push_back(p.panel);
    s.value = Plus(s.value, Times(p.panel, columns));
  }
  p.columns = columns;
  p.column = s.value;
  if (columns > 1) {
    p.column = ids.Loop(columns);
    s.ranges.push_back(p.column);
    s.value = Plus(s.value, p.column);
  }
  segments.push_back(std::move(s));
  return p;
}

}  // namespace

UnitTiler::UnitTiler(const PanelStore& of, RowBlocks& rows, const Target& target, FreshIds& ids)
    : of_(of),
      sets_(UOp::Make(Op::kSink, {of.store})),
      rows_(rows),
      target_(target),
      ids_(ids),
      summed_(ClosedRanges(of.reduce).begin(), ClosedRanges(of.reduce).end()),
      tiles_across_((of.columns + kSide - 1) / kSide) {
  const UOp& product = of.reduce.src(0);
  const int of_rows = (sets_.Free(product.src(0)) & sets_.Bit(rows.row)) ? 0 : 1;
  a_ = UOp(product.src(of_rows).src(0));
  b_ = UOp(product.src(1 - of_rows).src(0));
  steps_beside_ = kSumBytes / a_.dtype().bytes();
  steps_of_tile_ = kBytesOfTileRow / a_.dtype().bytes();
  for (const UOp& r : summed_) steps_ *= r.src(0).vmax();
  tiles_down_ = RoundUp(steps_, steps_of_tile_) / steps_of_tile_;
  PutRunsLast();
  if (rows_.each == 0) {
    ChooseBlock();
    rows_.in_place = RowsLieAsTiles();
    fills_rows_ = !rows_.in_place;
    if (fills_rows_) rows_.stage = StageRows();
  }
}

void UnitTiler::ChooseBlock() {
  const RangeKind kind = rows_.row.arg<RangeArg>().kind;
  const int64_t rows = rows_.row.src(0).vmax();
  const int64_t fit = BytesOfTileRows(target_) / (tiles_down_ * kBytesOfTileRow);
  const bool scratch = FindBelow(
      {&a_, 1}, [](const UOp& u) { return u.is(Op::kIndex) && !u.src(0).is(Op::kParam); });
  const int64_t most = scratch ? std::max(rows, kSide) : std::clamp(fit, kSideOfSquare, kMostRows);
  int64_t blocks = (rows + most - 1) / most;
  if (kind == RangeKind::kGrid) blocks = RoundUp(blocks, target_.cores);
  const int64_t each = (rows + blocks - 1) / blocks;
  // Whole squares, where what is added for that is little.
  rows_.each = RoundUp(each, each > kManySquares * kSideOfSquare ? kSideOfSquare : kSide);
  blocks = (rows + rows_.each - 1) / rows_.each;
  if (blocks > 1 || kind == RangeKind::kGrid) rows_.block = ids_.Range(blocks, kind);
  rows_.uneven = rows % rows_.each != 0;
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
  const UOp column = Plus(Times(j, kSide), c);
  const UOp from = Plus(UOp::Index(first), Plus(Times(part, each), tile));
  const UOp step = Plus(Times(from, steps_of_tile_), Plus(Times(pair, steps_beside_), beside));
  const UOp x = ReadRowAt(row, step);
  const UOp y = columns ? UOp::Make(Op::kIndex, {columns, Simplify(PlaceInPanel(step, column))})
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
  const int64_t id = ids_.stage++, bytes = rows_.each * tiles_across_ * kSide * dtype.bytes();
  const UOp scratch = UOp::Make(Op::kScratch, dtype, {}, Pairs{{Extent(id), Extent(bytes)}});
  // As much of a panel at a time as takes two thirds of the innermost cache, where rows use it
  // again and go past that.
  const int64_t bytes_of_tile = tiles_across_ * kSide * kBytesOfTileRow;
  const int64_t most = std::max<int64_t>(1, target_.l1_bytes * 2 / 3 / bytes_of_tile);
  const bool again = rows_.each > kSideOfSquare;
  const int64_t parts = again ? (tiles_down_ + most - 1) / most : 1,
                each = (tiles_down_ + parts - 1) / parts;
  std::vector<UOp> srcs = {scratch, SumsOf(columns, 0, 1, each, scratch)};
  const int64_t whole = tiles_down_ / each, rest = tiles_down_ % each;
  if (whole > 1) srcs.push_back(SumsOf(columns, each, whole - 1, each, scratch));
  if (rest > 0) srcs.push_back(SumsOf(columns, whole * each, 1, rest, scratch));
  return UOp::Make(Op::kStage, srcs, StageArg{id, Space::kShared});
}

std::vector<UOp> UnitTiler::LoopsOfStore(const UOp& row) const {
  std::vector<UOp> out, of_columns;
  for (const UOp& r : ClosedRanges(of_.store)) {
    if (r == rows_.row || r == of_.panel || r == of_.column) continue;
    (sets_.Free(a_) & sets_.Bit(r) ? out : of_columns).push_back(r);
  }
  if (rows_.block) out.push_back(rows_.block);
  out.insert(out.end(), of_columns.begin(), of_columns.end());
  if (of_.panel) out.push_back(of_.panel);
  out.push_back(row);
  if (of_.column.is(Op::kRange)) out.push_back(of_.column);
  return out;
}

UOp TileByUnits(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
                const Target& target) {
  const UOp& product = c.reduce.src(0);
  if (c.reduce.arg<ReduceArg>().op != Op::kAdd || !AreOfTiles(product, target)) return UOp();
  if (!row.src(0).IsConst() || !c.lane.src(0).IsConst()) return UOp();
  const int64_t columns = c.lane.src(0).vmax();
  int64_t depth = 1;
  for (const UOp& r : c.inner) {
    if (!r.src(0).IsConst() || r.src(0).vmax() > kMostSteps / depth) return UOp();
    depth *= r.src(0).vmax();
  }
  const int64_t row_bytes = depth * product.src(0).src(0).dtype().bytes();
  if (row.src(0).vmax() < kSide || columns < kSide || 2 * row_bytes < kBytesOfTileRow) return UOp();
  // The least block of rows, and a panel, are laid out for the whole sum.
  if (kSideOfSquare * row_bytes > MostOfPanel(target)) return UOp();

  FreshIds ids{FreshRangeId(sets), FreshStageId(sink)};
  const int64_t width = std::min(columns, kSideOfSquare);
  const RangeKind kind = c.lane.arg<RangeArg>().kind;
  std::vector<PanelStore> panels;
  std::vector<LoopSegment> segments;
  const int64_t whole = columns / width;
  panels.push_back(PanelFrom(0, whole, width, kind, ids, segments));
  if (const int64_t rest = columns % width; rest > 0) {
    panels.push_back(PanelFrom(whole * width, 1, rest, kind, ids, segments));
  }
  const UOp split = Simplify(SplitIntoSegments(sink, c.lane, segments));
  if (split.size() != static_cast<int>(panels.size())) return UOp();
  RowBlocks blocks;
  blocks.row = row;
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
