// Squares of tiles.
#include "codegen/cpu_tiles.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "codegen/block_tiler.h"
#include "codegen/index_math.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kSide = kRowsOfTile;              // of a tile of sums
constexpr int64_t kSumBytes = 4;                    // f32 or i32
constexpr int64_t kSquare = kSideOfSquare / kSide;  // tiles a side
constexpr int64_t kMostRows = 4096;
constexpr int64_t kManySquares = 8;
constexpr int64_t kMostSteps = int64_t{1} << 24;  // of a sum
constexpr int64_t kMostInRun = 256, kLeastInRun = 16;
constexpr int64_t kMostCopies = 8;  // of steps that choose, a power of two

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Ids that nothing in the kernel has.
struct FreshIds {
  int64_t range, stage;
  UOp Range(int64_t extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{range++, kind});
  }
  UOp Loop(int64_t extent) { return Range(extent, RangeKind::kLoop); }
};

// What the products read of a, laid out for all panels: blocks of rows, and the loops that fill
// one.
struct RowBlocks {
  UOp row;                // the kernel's
  UOp block;              // the loop over blocks, or nothing
  int64_t each = 0;       // rows of a block
  bool uneven = false;    // whether the last one has fewer
  bool in_place = false;  // whether a lies so already: nothing is laid out
  size_t last_step = 0;   // which range of the sum its steps go by innermost
  UOp stage;
  std::vector<UOp> fill;
};

// A store over the columns of one panel.
struct PanelStore {
  UOp store, reduce;
  UOp panel;   // the loop over panels, or nothing
  UOp column;  // that over a panel's columns, or where the only one is
  int64_t columns = 0;
};

// The store in tiles, in three stages: rows, columns, sums.
class UnitTiler {
 public:
  UnitTiler(const PanelStore& of, RowBlocks& rows, const Target& target, FreshIds& ids)
      : of_(of),
        sets_(UOp::Make(Op::kSink, {of.store})),
        rows_(rows),
        target_(target),
        ids_(ids),
        inner_(ClosedRanges(of.reduce).begin(), ClosedRanges(of.reduce).end()),
        across_((of.columns + kSide - 1) / kSide) {
    const UOp& product = of.reduce.src(0);
    const int of_rows = (sets_.Free(product.src(0)) & sets_.Bit(rows.row)) ? 0 : 1;
    a_ = UOp(product.src(of_rows).src(0));  // before it was cast
    b_ = UOp(product.src(1 - of_rows).src(0));
    beside_ = kSumBytes / a_.dtype().bytes();
    steps_ = kBytesOfTileRow / a_.dtype().bytes();
    for (const UOp& r : inner_) depth_ *= r.src(0).vmax();
    deep_ = RoundUp(depth_, steps_) / steps_;
    PutRunsLast();
    if (rows_.each == 0) {
      ChooseBlock();
      rows_.in_place = RowsLieAsTiles();
      fills_rows_ = !rows_.in_place;
      if (fills_rows_) rows_.stage = StageRows();
    }
  }

  UOp Run() {
    const UOp columns = LieAsTiles() ? UOp() : StageColumns();
    const UOp sums = StageSums(columns);
    const UOp row = ids_.Loop(rows_.each);
    const UOp sum = UOp::Make(Op::kIndex, {sums, Simplify(PlaceOfSum(row, ColumnInPanel()))});
    const Substitution map = {{rows_.row, RowAt(row)}, {of_.reduce, sum}};
    return GatedStore(of_.store, map, IsRow(row), LoopsOfStore(row));
  }

  // The stages' loops as vectors.
  UOp WithLanes(const UOp& sink) const {
    const int64_t lanes = target_.vector_bytes / kSumBytes;
    const UOp along = inner_.back();
    UOp out = sink;
    if (fills_rows_) {
      const UOp &row = rows_.fill.front(), &step = rows_.fill.back();
      if (!AdjacentOver(a_, along, sets_) && AdjacentOver(a_, rows_.row, sets_)) {
        out = Simplify(Tile(out, row, 1, lanes));
        out = Simplify(Tile(out, step, lanes, 1));
      } else {
        out = Simplify(Tile(out, step, 1, target_.vector_bytes / a_.dtype().bytes()));
      }
    }
    if (column_fill_.size() < 2) return out;
    const UOp &step = column_fill_[column_fill_.size() - 2], &column = column_fill_.back();
    if (run_ > 0) {
      out = Simplify(Tile(out, column, lanes, 1));
      const bool whole = run_ == along.src(0).vmax();
      return Simplify(
          Tile(out, step, 1, whole ? lanes * beside_ : std::min(lanes * beside_, run_)));
    }
    out = Simplify(Tile(out, column, 1, lanes));
    return Simplify(Tile(out, step, beside_, 1));
  }

 private:
  // So many rows that they stay in the core's own cache, in as many blocks as cores take evenly. Of
  // what lies in scratch, which loads are not gated from, there is one.
  void ChooseBlock() {
    const RangeKind kind = rows_.row.arg<RangeArg>().kind;
    const int64_t rows = rows_.row.src(0).vmax();
    const int64_t fit = BytesOfTileRows(target_) / (deep_ * kBytesOfTileRow);
    const bool scratch = FindBelow(
        {&a_, 1}, [](const UOp& u) { return u.is(Op::kIndex) && !u.src(0).is(Op::kParam); });
    const int64_t most =
        scratch ? std::max(rows, kSide) : std::clamp(fit, kSideOfSquare, kMostRows);
    int64_t blocks = (rows + most - 1) / most;
    if (kind == RangeKind::kGrid) blocks = RoundUp(blocks, target_.cores);
    const int64_t each = (rows + blocks - 1) / blocks;
    // Whole squares, where what is added for that is little.
    rows_.each = RoundUp(each, each > kManySquares * kSideOfSquare ? kSideOfSquare : kSide);
    blocks = (rows + rows_.each - 1) / rows_.each;
    if (blocks > 1 || kind == RangeKind::kGrid) rows_.block = ids_.Range(blocks, kind);
    rows_.uneven = rows % rows_.each != 0;
  }
  UOp RowAt(const UOp& in_block) const {
    return rows_.block ? Plus(Times(rows_.block, rows_.each), in_block) : in_block;
  }
  // Whether there is such a row, or nothing where there always is.
  UOp IsRow(const UOp& in_block) const {
    return rows_.uneven ? Below(RowAt(in_block), UOp(rows_.row.src(0))) : UOp();
  }
  UOp ColumnInPanel() const { return of_.column.is(Op::kRange) ? of_.column : UOp::Index(0); }

  // How many copies there may be within these loops.
  static int64_t CopiesLeft(const std::vector<UOp>& loops) {
    int64_t left = kMostCopies;
    for (const UOp& r : loops) {
      if (r.arg<RangeArg>().kind == RangeKind::kUnroll) left /= r.src(0).vmax();
    }
    return left;
  }

  // Loops over the sum for a stage of what it reads, and their index as one: the step. Of short
  // ones that choose what is read there are copies.
  UOp OwnSteps(const UOp& of, Substitution& map, std::vector<UOp>& loops) {
    UOp step = UOp::Index(0);
    for (const UOp& r : inner_) {
      const int64_t n = r.src(0).vmax();
      const bool copies = n <= CopiesLeft(loops) && !(r == inner_.back()) && ChoosesBy(of, r);
      loops.push_back(ids_.Range(n, copies ? RangeKind::kUnroll : RangeKind::kLoop));
      map.emplace(r, loops.back());
      step = Plus(Times(step, n), loops.back());
    }
    return step;
  }

  // A store of zeros to a stage's scratch.
  static UOp ZerosAt(const UOp& stage, const UOp& offset, const std::vector<UOp>& over) {
    std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {UOp(stage.src(0)), Simplify(offset)}),
                             UOp::Const(stage.dtype(), Scalar())};
    srcs.insert(srcs.end(), over.begin(), over.end());
    return UOp::Make(Op::kStore, srcs, Arg(int64_t{0}));
  }
  static UOp WithStores(const UOp& stage, const std::vector<UOp>& more) {
    std::vector<UOp> srcs(stage.srcs().begin(), stage.srcs().end());
    srcs.insert(srcs.end(), more.begin(), more.end());
    return stage.WithSrcs(srcs);
  }

  UOp PlaceInRows(const UOp& row, const UOp& step) const {
    return PlaceInRowTiles(row, step, deep_, steps_);
  }

  // What is read of a at a row of the block and a step.
  UOp ReadRowAt(const UOp& row, const UOp& step) const {
    if (!rows_.in_place) {
      return UOp::Make(Op::kIndex, {rows_.stage, Simplify(PlaceInRows(row, step))});
    }
    Substitution map = {{rows_.row, RowAt(row)}};
    PlaceRanges(inner_, step, 1, UOp(), map);
    return Simplify(Substitute(a_, map));
  }

  // Whether a is read from where it lies as the unit takes it.
  bool RowsLieAsTiles() {
    if (!a_.is(Op::kIndex) || a_.size() != 2 || depth_ != deep_ * steps_ || rows_.uneven) {
      return false;
    }
    const UOp tile = ids_.Loop(rows_.each / kSide), row = ids_.Loop(kSide);
    const UOp deep = ids_.Loop(deep_), step = ids_.Loop(steps_);
    Substitution map = {{rows_.row, RowAt(Plus(Times(tile, kSide), row))}};
    PlaceRanges(inner_, Plus(Times(deep, steps_), step), 1, UOp(), map);
    const UOp read = Simplify(Substitute(a_, map));
    const RangeSets sets(UOp::Make(Op::kSink, {read}));
    const auto by = [&](const UOp& r) { return StepOf(read.src(1), r, sets); };
    return by(tile).linear && by(deep).linear && by(row).linear && by(row).factor == steps_ &&
           by(step).linear && by(step).factor == 1;
  }

  UOp StageRows() {
    const int64_t rows = rows_.block ? rows_.each : rows_.row.src(0).vmax();
    const UOp row = ids_.Loop(rows);
    Substitution map = {{rows_.row, RowAt(row)}};
    rows_.fill = {row};
    const UOp step = OwnSteps(a_, map, rows_.fill);
    const UOp gate = rows_.block ? IsRow(row) : UOp();
    const UOp value = GatedLoads(Substitute(a_, map), gate, UOp(), UOp());
    const int64_t whole = deep_ * steps_;
    const UOp stage = MakeStage(ids_.stage++, rows_.each * whole, Simplify(PlaceInRows(row, step)),
                                Simplify(value), rows_.fill);
    std::vector<UOp> zeros;
    if (whole > depth_) {
      const UOp any = ids_.Loop(rows), past = ids_.Loop(whole - depth_);
      const UOp at = PlaceInRows(any, Plus(past, UOp::Index(depth_)));
      zeros.push_back(ZerosAt(stage, at, {any, past}));
    }
    if (rows_.each > rows) {
      const UOp past = ids_.Loop(rows_.each - rows), any = ids_.Loop(whole);
      const UOp at = PlaceInRows(Plus(past, UOp::Index(rows)), any);
      zeros.push_back(ZerosAt(stage, at, {past, any}));
    }
    return zeros.empty() ? stage : WithStores(stage, zeros);
  }

  // Where a panel has what a column reads at a step.
  UOp PlaceInPanel(const UOp& step, const UOp& column) const {
    const UOp row = Times(Over(step, beside_), across_ * kSide * beside_);
    return Plus(row, Plus(Times(column, beside_), Modulo(step, beside_)));
  }

  // What is read of b at a step and a column of the panel.
  UOp ReadAt(const UOp& step, const UOp& column) const {
    Substitution map;
    if (of_.column.is(Op::kRange)) map.emplace(of_.column, column);
    PlaceRanges(inner_, step, 1, UOp(), map);
    return Simplify(Substitute(b_, map));
  }

  // Whether a panel is read from where it lies as the unit takes it.
  bool LieAsTiles() {
    if (!b_.is(Op::kIndex) || b_.size() != 2 || depth_ != deep_ * steps_) return false;
    if (of_.columns != across_ * kSide) return false;
    const UOp tile = ids_.Loop(deep_), pair = ids_.Loop(kSide), part = ids_.Loop(beside_);
    const UOp column = ids_.Loop(kSide);
    const UOp step = Plus(Times(tile, steps_), Plus(Times(pair, beside_), part));
    const UOp read = ReadAt(step, column);
    const RangeSets sets(UOp::Make(Op::kSink, {read}));
    const auto by = [&](const UOp& r) { return StepOf(read.src(1), r, sets); };
    return by(tile).linear && by(pair).linear && by(part).linear && by(part).factor == 1 &&
           by(column).linear && by(column).factor == beside_;
  }

  // How many steps of a range of the sum read b's elements side by side: all of them, or those of a
  // block, as formats of weights have them; or 0.
  int64_t StepsInRun(const UOp& along) {
    const int64_t steps = along.src(0).vmax();
    if (AdjacentOver(b_, along, sets_)) return steps;
    for (int64_t run = kMostInRun; run >= kLeastInRun; run /= 2) {
      if (steps % run != 0) continue;
      const UOp step = ids_.Loop(run), at = Plus(Times(ids_.Loop(steps / run), run), step);
      const UOp value = Simplify(Substitute(b_, {{along, at}}));
      if (AdjacentOver(value, step, RangeSets(UOp::Make(Op::kSink, {value})))) return run;
    }
    return 0;
  }

  // Steps may be in any order, but in one for all panels: where b is computed, those go last that
  // read the longest runs.
  void PutRunsLast() {
    if (rows_.each == 0) {
      rows_.last_step = inner_.size() - 1;
      int64_t longest = 0;
      for (size_t i = inner_.size(); i-- > 0 && !b_.is(Op::kIndex);) {
        const int64_t run = StepsInRun(inner_[i]);
        if (run > longest) rows_.last_step = i, longest = run;
      }
    }
    const auto last = inner_.begin() + static_cast<int64_t>(rows_.last_step);
    std::rotate(last, last + 1, inner_.end());
    run_ = StepsInRun(inner_.back());
  }

  // A step of the sum's last range by its runs, instead of by the last of these loops: a loop over
  // them, copies of some, one within them. Copies are as many as leave nothing to be chosen by the
  // loop; or two, by which halves of bytes are chosen.
  UOp StepByRuns(std::vector<UOp>& fill) {
    fill.pop_back();
    std::vector<UOp> loops;
    const UOp along = inner_.back(), step = ids_.Loop(run_);
    const int64_t runs = along.src(0).vmax() / run_;
    const auto by = [&](int64_t copies) {
      loops = {ids_.Loop(runs / copies), ids_.Range(copies, RangeKind::kUnroll), step};
      return Plus(Times(Plus(Times(loops[0], copies), loops[1]), run_), step);
    };
    const auto chooses = [&](const UOp& at) {
      return ChoosesBy(Simplify(Substitute(b_, {{along, at}})), loops[0]);
    };
    const int64_t most = std::gcd(runs, CopiesLeft(fill));
    int64_t copies = 1;
    while (copies <= most && chooses(by(copies))) copies *= 2;
    const UOp at = by(copies <= most ? copies : std::min<int64_t>(most, 2));
    fill.insert(fill.end(), loops.begin(), loops.end());
    return at;
  }

  UOp StageColumns() {
    Substitution map;
    UOp step = OwnSteps(b_, map, column_fill_);
    if (run_ > 0 && run_ < inner_.back().src(0).vmax()) {
      const UOp whole = column_fill_.back(), at = StepByRuns(column_fill_);
      map.insert_or_assign(inner_.back(), at);
      step = Substitute(step, {{whole, at}});
    }
    const UOp column = ids_.Loop(of_.columns);
    column_fill_.push_back(column);
    if (of_.column.is(Op::kRange)) map.emplace(of_.column, column);
    const int64_t all = across_ * kSide, whole = deep_ * steps_;
    const UOp stage = MakeStage(ids_.stage++, whole * all, Simplify(PlaceInPanel(step, column)),
                                Simplify(Substitute(b_, map)), column_fill_);
    std::vector<UOp> zeros;
    if (whole > depth_) {
      const UOp past = ids_.Loop(whole - depth_), any = ids_.Loop(of_.columns);
      const UOp at = PlaceInPanel(Plus(past, UOp::Index(depth_)), any);
      zeros.push_back(ZerosAt(stage, at, {past, any}));
    }
    if (all > of_.columns) {
      const UOp any = ids_.Loop(whole), past = ids_.Loop(all - of_.columns);
      const UOp at = PlaceInPanel(any, Plus(past, UOp::Index(of_.columns)));
      zeros.push_back(ZerosAt(stage, at, {any, past}));
    }
    return WithStores(stage, zeros);
  }

  // The sums of sixteen columns, row after row, then those of the next sixteen.
  UOp PlaceOfSum(const UOp& row, const UOp& column) const {
    return Plus(Times(Over(column, kSide), rows_.each * kSide),
                Plus(Times(row, kSide), Modulo(column, kSide)));
  }

  // Of some tiles of steps from `first` on, in so many parts: what the sums of all rows take up.
  UOp SumsOf(const UOp& columns, int64_t first, int64_t parts, int64_t each, const UOp& scratch) {
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
    const UOp j = among(across_, RangeKind::kUnroll, over);
    const UOp r = among(kSide, RangeKind::kMatrix, over);
    const UOp c = among(kSide, RangeKind::kMatrix, over);
    const UOp tile = among(each, RangeKind::kLoop, summed);
    const UOp pair = among(kSide, RangeKind::kMatrix, summed);
    const UOp beside = among(beside_, RangeKind::kMatrix, summed);
    const UOp row = Plus(Times(Plus(Times(square, down), i), kSide), r);
    const UOp column = Plus(Times(j, kSide), c);
    const UOp from = Plus(UOp::Index(first), Plus(Times(part, each), tile));
    const UOp step = Plus(Times(from, steps_), Plus(Times(pair, beside_), beside));
    const UOp x = ReadRowAt(row, step);
    const UOp y = columns ? UOp::Make(Op::kIndex, {columns, Simplify(PlaceInPanel(step, column))})
                          : ReadAt(step, column);
    const auto cast = [&](const UOp& u) { return UOp::Make(Op::kCast, of_.reduce.dtype(), {u}); };
    const UOp sum = SumOver(UOp::Make(Op::kMul, {cast(x), cast(y)}), summed);
    std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {scratch, Simplify(PlaceOfSum(row, column))}),
                             sum};
    srcs.insert(srcs.end(), over.begin(), over.end());
    return first == 0 ? UOp::Make(Op::kStore, srcs, Arg(int64_t{0}))
                      : UOp::Make(Op::kUpdate, srcs, ReduceArg{Op::kAdd, {}});
  }

  UOp StageSums(const UOp& columns) {
    const DType dtype = of_.reduce.dtype();
    const int64_t id = ids_.stage++, bytes = rows_.each * across_ * kSide * dtype.bytes();
    const UOp scratch = UOp::Make(Op::kScratch, dtype, {}, Pairs{{Extent(id), Extent(bytes)}});
    // As much of a panel at a time as takes two thirds of the innermost cache, where rows use it
    // again and go past that.
    const int64_t bytes_of_tile = across_ * kSide * kBytesOfTileRow;
    const int64_t most = std::max<int64_t>(1, target_.l1_bytes * 2 / 3 / bytes_of_tile);
    const bool again = rows_.each > kSideOfSquare;
    const int64_t parts = again ? (deep_ + most - 1) / most : 1, each = (deep_ + parts - 1) / parts;
    std::vector<UOp> srcs = {scratch, SumsOf(columns, 0, 1, each, scratch)};
    const int64_t whole = deep_ / each, rest = deep_ % each;
    if (whole > 1) srcs.push_back(SumsOf(columns, each, whole - 1, each, scratch));
    if (rest > 0) srcs.push_back(SumsOf(columns, whole * each, 1, rest, scratch));
    return UOp::Make(Op::kStage, srcs, StageArg{id, Space::kShared});
  }

  // The loops around a block, it, those over other columns, whose panels meet the same block, and
  // those over the block's rows and columns.
  std::vector<UOp> LoopsOfStore(const UOp& row) const {
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

  const PanelStore& of_;
  const RangeSets sets_;
  RowBlocks& rows_;
  const Target& target_;
  FreshIds& ids_;
  std::vector<UOp> inner_;
  const int64_t across_;  // tiles
  UOp a_, b_;
  int64_t beside_ = 1, steps_ = 1;  // side by side in a panel; in a row of a tile of a
  int64_t depth_ = 1, deep_ = 1;    // steps of the sum, and tiles of them
  bool fills_rows_ = false;
  std::vector<UOp> column_fill_;  // loops of the stage, in order
  int64_t run_ = 0;               // see StepsInRun
};

UOp ReduceOf(const UOp& store) {
  for (const UOp& u : TopoSort({&store, 1})) {
    if (u.is(Op::kReduce)) return u;
  }
  return UOp();
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
    panels[i].reduce = ReduceOf(panels[i].store);
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
