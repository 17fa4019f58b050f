// What products in tiles read, laid out.
#include <algorithm>
#include <numeric>
#include <vector>

#include "codegen/block_tiler.h"
#include "codegen/contraction.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "codegen/unit_tiler.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kMostInRun = 256, kLeastInRun = 16;  // elements of a block of weights
constexpr int64_t kMostCopies = 8;                     // of steps that choose
static_assert((kMostCopies & (kMostCopies - 1)) == 0);

// How many copies there may be within these loops.
int64_t CopiesLeft(const std::vector<UOp>& loops) {
  int64_t left = kMostCopies;
  for (const UOp& r : loops) {
    if (r.arg<RangeArg>().kind == RangeKind::kUnroll) left /= r.src(0).vmax();
  }
  return left;
}

// A store of zeros to a stage's scratch.
UOp ZerosAt(const UOp& stage, const UOp& offset, const std::vector<UOp>& over) {
  std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {UOp(stage.src(0)), Simplify(offset)}),
                           UOp::Const(stage.dtype(), Scalar())};
  srcs.insert(srcs.end(), over.begin(), over.end());
  return UOp::Make(Op::kStore, srcs, Arg(int64_t{0}));
}

UOp WithStores(const UOp& stage, const std::vector<UOp>& more) {
  std::vector<UOp> srcs(stage.srcs().begin(), stage.srcs().end());
  srcs.insert(srcs.end(), more.begin(), more.end());
  return stage.WithSrcs(srcs);
}

}  // namespace

UOp UnitTiler::OwnSteps(const UOp& of, Substitution& map, std::vector<UOp>& loops) {
  UOp step = UOp::Index(0);
  for (const UOp& r : summed_) {
    const int64_t n = r.src(0).vmax();
    const bool copies = n <= CopiesLeft(loops) && !(r == summed_.back()) && ChoosesBy(of, r);
    loops.push_back(ids_.Range(n, copies ? RangeKind::kUnroll : RangeKind::kLoop));
    map.emplace(r, loops.back());
    step = Plus(Times(step, n), loops.back());
  }
  return step;
}

UOp UnitTiler::ReadRowAt(const UOp& row, const UOp& step) const {
  if (!rows_.in_place) {
    return UOp::Make(Op::kIndex, {rows_.stage, Simplify(PlaceInRows(row, step))});
  }
  Substitution map = {{rows_.row, RowAt(row)}};
  PlaceRanges(summed_, step, 1, UOp(), map);
  return Simplify(Substitute(a_, map));
}

bool UnitTiler::RowsLieAsTiles() {
  if (!a_.is(Op::kIndex) || a_.size() != 2 || steps_ != tiles_down_ * steps_of_tile_ ||
      rows_.uneven) {
    return false;
  }
  const UOp tile = ids_.Loop(rows_.each / kSide), row = ids_.Loop(kSide);
  const UOp deep = ids_.Loop(tiles_down_), step = ids_.Loop(steps_of_tile_);
  Substitution map = {{rows_.row, RowAt(Plus(Times(tile, kSide), row))}};
  PlaceRanges(summed_, Plus(Times(deep, steps_of_tile_), step), 1, UOp(), map);
  const UOp read = Simplify(Substitute(a_, map));
  const RangeSets sets(UOp::Make(Op::kSink, {read}));
  const auto by = [&](const UOp& r) { return StepOf(read.src(1), r, sets); };
  return by(tile).linear && by(deep).linear && by(row).linear && by(row).factor == steps_of_tile_ &&
         by(step).linear && by(step).factor == 1;
}

UOp UnitTiler::StageRows() {
  const int64_t rows = rows_.block ? rows_.each : rows_.row.src(0).vmax();
  const UOp row = ids_.Loop(rows);
  Substitution map = {{rows_.row, RowAt(row)}};
  rows_.fill = {row};
  const UOp step = OwnSteps(a_, map, rows_.fill);
  const UOp gate = rows_.block ? IsRow(row) : UOp();
  const UOp value = GatedLoads(Substitute(a_, map), gate);
  const int64_t whole = tiles_down_ * steps_of_tile_;
  const UOp stage = MakeStage(ids_.stage++, rows_.each * whole, Simplify(PlaceInRows(row, step)),
                              Simplify(value), rows_.fill);
  std::vector<UOp> zeros;
  if (whole > steps_) {
    const UOp any = ids_.Loop(rows), past = ids_.Loop(whole - steps_);
    const UOp at = PlaceInRows(any, Plus(past, UOp::Index(steps_)));
    zeros.push_back(ZerosAt(stage, at, {any, past}));
  }
  if (rows_.each > rows) {
    const UOp past = ids_.Loop(rows_.each - rows), any = ids_.Loop(whole);
    const UOp at = PlaceInRows(Plus(past, UOp::Index(rows)), any);
    zeros.push_back(ZerosAt(stage, at, {past, any}));
  }
  return zeros.empty() ? stage : WithStores(stage, zeros);
}

UOp UnitTiler::PlaceInPanels(const UOp& step, const UOp& column) const {
  const int64_t width = tiles_across_ * kSide;
  const UOp row = Times(Over(step, steps_beside_), width * steps_beside_);
  const auto at = [&](const UOp& c) {
    return Plus(row, Plus(Times(c, steps_beside_), Modulo(step, steps_beside_)));
  };
  if (of_.count == 1) return at(column);
  const int64_t whole = tiles_down_ * steps_of_tile_;
  return Plus(Times(Over(column, width), whole * width), at(Modulo(column, width)));
}

UOp UnitTiler::ReadColumnAt(const UOp& step, const UOp& column) const {
  Substitution map;
  if (of_.column.is(Op::kRange)) map.emplace(of_.column, column);
  PlaceRanges(summed_, step, 1, UOp(), map);
  return Simplify(Substitute(b_, map));
}

bool UnitTiler::ColumnsLieAsTiles() {
  if (!b_.is(Op::kIndex) || b_.size() != 2 || steps_ != tiles_down_ * steps_of_tile_) return false;
  const int64_t width = tiles_across_ * kSide;
  if (of_.columns != of_.count * width) return false;
  const UOp panel = ids_.Loop(of_.count), tile = ids_.Loop(tiles_down_), pair = ids_.Loop(kSide),
            part = ids_.Loop(steps_beside_);
  const UOp column = ids_.Loop(width);
  const UOp step = Plus(Times(tile, steps_of_tile_), Plus(Times(pair, steps_beside_), part));
  const UOp read = ReadColumnAt(step, Plus(Times(panel, width), column));
  const RangeSets sets(UOp::Make(Op::kSink, {read}));
  const auto by = [&](const UOp& r) { return StepOf(read.src(1), r, sets); };
  return by(panel).linear && by(tile).linear && by(pair).linear && by(part).linear &&
         by(part).factor == 1 && by(column).linear && by(column).factor == steps_beside_;
}

int64_t UnitTiler::StepsInRun(const UOp& along) {
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

void UnitTiler::PutRunsLast() {
  if (!rows_.in_place && !rows_.stage) {
    rows_.last_step = summed_.size() - 1;
    int64_t longest = 0;
    for (size_t i = summed_.size(); i-- > 0 && !b_.is(Op::kIndex);) {
      const int64_t run = StepsInRun(summed_[i]);
      if (run > longest) rows_.last_step = i, longest = run;
    }
  }
  const auto last = summed_.begin() + static_cast<int64_t>(rows_.last_step);
  std::rotate(last, last + 1, summed_.end());
  run_ = StepsInRun(summed_.back());
}

UOp UnitTiler::StepByRuns(std::vector<UOp>& fill) {
  struct Runs {
    std::vector<UOp> loops;
    UOp at;
  };
  fill.pop_back();
  const UOp along = summed_.back(), step = ids_.Loop(run_);
  const int64_t runs = along.src(0).vmax() / run_;
  const auto by = [&](int64_t copies) {
    const UOp several = ids_.Loop(runs / copies), copy = ids_.Range(copies, RangeKind::kUnroll);
    return Runs{{several, copy, step}, Plus(Times(Plus(Times(several, copies), copy), run_), step)};
  };
  const auto chooses = [&](const Runs& r) {
    return ChoosesBy(Simplify(Substitute(b_, {{along, r.at}})), r.loops[0]);
  };
  const int64_t most = std::gcd(runs, CopiesLeft(fill));  // a power of two, as what is left is one
  int64_t copies = 1;
  while (copies <= most && chooses(by(copies))) copies *= 2;
  const Runs r = by(copies <= most ? copies : std::min<int64_t>(most, 2));
  fill.insert(fill.end(), r.loops.begin(), r.loops.end());
  return r.at;
}

UOp UnitTiler::StageColumns() {
  Substitution map;
  UOp step = OwnSteps(b_, map, column_fill_);
  if (run_ > 0 && run_ < summed_.back().src(0).vmax()) {
    const UOp whole = column_fill_.back(), at = StepByRuns(column_fill_);
    map.insert_or_assign(summed_.back(), at);
    step = Substitute(step, {{whole, at}});
  }
  const UOp column = ids_.Loop(of_.columns);
  column_fill_.push_back(column);
  if (of_.column.is(Op::kRange)) map.emplace(of_.column, column);
  const int64_t all = of_.count * tiles_across_ * kSide, whole = tiles_down_ * steps_of_tile_;
  const UOp stage = MakeStage(ids_.stage++, whole * all, Simplify(PlaceInPanels(step, column)),
                              Simplify(Substitute(b_, map)), column_fill_);
  std::vector<UOp> zeros;
  if (whole > steps_) {
    const UOp past = ids_.Loop(whole - steps_), any = ids_.Loop(of_.columns);
    const UOp at = PlaceInPanels(Plus(past, UOp::Index(steps_)), any);
    zeros.push_back(ZerosAt(stage, at, {past, any}));
  }
  if (all > of_.columns) {
    const UOp any = ids_.Loop(whole), past = ids_.Loop(all - of_.columns);
    const UOp at = PlaceInPanels(any, Plus(past, UOp::Index(of_.columns)));
    zeros.push_back(ZerosAt(stage, at, {any, past}));
  }
  return WithStores(stage, zeros);
}

UOp UnitTiler::WithLanes(const UOp& sink) const {
  const int64_t lanes = target_.vector_bytes / kSumBytes;
  const UOp along = summed_.back();
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
    // All steps may be any number, of which a vector's are split off; a block's is a power of two.
    const bool whole = run_ == along.src(0).vmax();
    return Simplify(
        Tile(out, step, 1, whole ? lanes * steps_beside_ : std::min(lanes * steps_beside_, run_)));
  }
  out = Simplify(Tile(out, column, 1, lanes));
  return Simplify(Tile(out, step, steps_beside_, 1));
}

}  // namespace tessera
