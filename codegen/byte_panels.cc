// Panels of columns for dot products of bytes.
#include <algorithm>
#include <bit>

#include "codegen/byte_tiler.h"
#include "codegen/lanes.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kLeastRows = 12;                    // that pay for laying out columns anew
constexpr int64_t kLeastInRow = 16, kMostInRow = 64;  // lanes by which a panel is filled
constexpr int64_t kMostPanelCopies = 8;
constexpr int64_t kRowsOfTile = 4;
constexpr int64_t kPanelsPerCore = 4;  // at least, of those that cores share
constexpr int64_t kRowsInPlace = 8;
// Copies of steps in a block, for all rows: one row of Q5_K, whose bits are shifted by constants
// so, takes 0.20 ms with 64 and 0.30 with 16; with more, eight rows would have long loops.
constexpr int64_t kCopiesInPlace = 64;
constexpr int64_t kMostBytesOfSums = int64_t{4} << 20;  // of rows, beside their products

}  // namespace

UOp ByteTiler::Across(const UOp& row, const UOp& along) {
  const int64_t lanes = target_.vector_bytes / kInt32.bytes();
  const int64_t columns = c_.lane.src(0).vmax(), steps_in_row = along.src(0).vmax();
  int64_t depth = 1;  // elements of a column
  std::vector<UOp> deep = dots_.blocks;
  for (const UOp& r : c_.inner) {
    if (!(r == along)) deep.push_back(r);
  }
  for (const UOp& r : deep) depth *= r.src(0).vmax();
  const int64_t most = target_.l2_bytes * 3 / 4;
  const bool two = columns % (2 * lanes) == 0 && depth * steps_in_row * 2 * lanes <= most;
  const int64_t width = two ? 2 * lanes : lanes;

  // The loops over panels are shared by the cores rather than those over rows, of which each
  // would lay out all panels, or over single columns.
  const auto is_grid = [](const UOp& r) { return r.arg<RangeArg>().kind == RangeKind::kGrid; };
  const bool shared = is_grid(row) || is_grid(c_.lane);
  const UOp panels = Range(columns / width, shared ? RangeKind::kGrid : RangeKind::kLoop);
  const UOp column = Range(width, RangeKind::kLoop);
  const UOp rows = Range(row.src(0).vmax(), RangeKind::kLoop);
  const UOp part = CopiesOf(UOp::Index(steps_in_row / kBytesOfDot));
  const UOp step = Range(kBytesOfDot, RangeKind::kMatrix);
  Substitution map = {{c_.lane, Plus(Times(panels, width), column)}, {row, rows}};
  map.emplace(along, Plus(Times(part, kBytesOfDot), step));
  std::vector<UOp> steps;
  for (const UOp& r : c_.inner) {
    if (!(r == along)) steps.push_back(CopiesOf(r, map));
  }
  steps.push_back(part);
  steps.push_back(step);
  const auto there = [&](const UOp& u) { return Simplify(Substitute(u, map)); };

  const UOp a = there(c_.a);
  const bool raise = MustRaise(c_.a, c_.b, target_);
  const RaisedBytes up = raise ? Raise(c_.b) : RaisedBytes{c_.b, 0};
  const UOp b = Panel(up.value, deep, along, width, map, panels, column, step, part);
  UOp dots = SumOver(UOp::Make(Op::kMul, {ToInt32(a), ToInt32(b)}), steps);
  if (up.by != 0) {
    dots = UOp::Make(Op::kAdd, {dots, SumsOfRows(up.by, along, map)});
  }
  UOp sum = dots;
  if (dots_.sum) {
    Substitution inside = map;
    inside.emplace(c_.reduce, dots);
    RangeMask rows_mask = 0;
    for (const UOp& r : c_.rows) rows_mask |= sets_.Bit(r);
    for (const UOp& r : c_.batch) rows_mask |= sets_.Bit(r);
    for (const UOp& f : FactorsOver(sets_.Bit(c_.lane), rows_mask)) {
      inside.emplace(f, PanelOfScales(f, width, panels, column));
    }
    std::vector<UOp> blocks = dots_.blocks;
    sum = SumOver(UOp(Substitute(dots_.scaled, inside)), blocks);
  }
  UOp out = Substitute(sink_, {{dots_.sum ? dots_.sum : c_.reduce, sum}});
  std::vector<UOp> loops = {panels};
  for (const UOp& r : ClosedRanges(sink_.src(0))) {
    if (!(r == c_.lane) && !(r == row)) loops.push_back(r);
  }
  loops.push_back(rows);
  loops.push_back(column);
  const UOp& store = out.src(0);
  std::vector<UOp> srcs = {there(UOp(store.src(0))), there(UOp(store.src(1)))};
  srcs.insert(srcs.end(), loops.begin(), loops.end());
  out = Simplify(out.WithSrcs({store.WithSrcs(srcs)}));
  out = Simplify(Tile(out, column, width / lanes, lanes));
  return Tile(out, rows,
              LargestDivisor(rows.src(0).vmax(), kRowsOfTile) > kRowsOfTile / 2
                  ? LargestDivisor(rows.src(0).vmax(), kRowsOfTile)
                  : kRowsOfTile,
              1);
}

UOp ByteTiler::InPlace(const UOp& along) {
  const int64_t lanes = target_.vector_bytes / kInt32.bytes();
  const int64_t vectors = c_.lane.src(0).vmax() / lanes;
  // Sums in f32 and in integers for each row and vector, beside what is read.
  const int64_t most = std::max<int64_t>(1, (target_.vector_registers - 8) / 2 / vectors);
  const UOp row = Longest(c_.rows);
  const int64_t rows = row ? std::max<int64_t>(1, row.src(0).vmax()) : 1;
  const int64_t at_once = CeilDiv(rows, CeilDiv(rows, std::min(most, kRowsInPlace)));
  most_copies_ = std::max(kMostCopies, kCopiesInPlace / at_once);

  const UOp part = CopiesOf(UOp::Index(along.src(0).vmax() / kBytesOfDot));
  const UOp step = Range(kBytesOfDot, RangeKind::kMatrix);
  Substitution map = {{along, Plus(Times(part, kBytesOfDot), step)}};
  std::vector<UOp> steps, blocks = dots_.blocks;
  for (const UOp& r : c_.inner) {
    if (!(r == along)) steps.push_back(CopiesOf(r, map));
  }
  steps.insert(steps.end(), {part, step});
  for (auto r = blocks.rbegin(); r != blocks.rend(); ++r) {
    if (ChoosesBy(c_.b, *r)) *r = CopiesOf(UOp(*r), map);
  }
  const auto there = [&](const UOp& u) { return Simplify(Substitute(u, map)); };
  const bool raise = MustRaise(c_.a, c_.b, target_);
  const RaisedBytes up = raise ? Raise(c_.b) : RaisedBytes{c_.b, 0};
  UOp sum = DotsOver(there(c_.a), there(up.value), steps, blocks);
  if (up.by != 0) sum = UOp::Make(Op::kAdd, {sum, SumsOfRows(up.by, along, map)});
  if (dots_.sum) {
    map.emplace(c_.reduce, sum);
    sum = SumOver(there(UOp(dots_.sum.src(0))), blocks);
  }
  UOp out = Substitute(sink_, {{dots_.sum ? dots_.sum : c_.reduce, sum}});
  out = ColumnsOutward(Simplify(out), c_);
  out = Simplify(Tile(out, c_.lane, vectors, lanes));
  return row ? Tile(out, row, at_once, 1) : out;
}

UOp ByteTiler::PointOf(const std::vector<UOp>& ranges, const std::vector<int64_t>& extents) {
  UOp out = UOp::Index(0);
  for (size_t i = 0; i < ranges.size(); ++i) out = Plus(Times(out, extents[i]), ranges[i]);
  return Simplify(out);
}

UOp ByteTiler::Panel(const UOp& b, const std::vector<UOp>& deep, const UOp& along, int64_t width,
                     const Substitution& map, const UOp& panels, const UOp& column, const UOp& step,
                     const UOp& part) {
  std::vector<int64_t> extents;
  std::vector<UOp> read, fill, loops;
  Substitution there;
  for (const UOp& r : deep) {
    const bool block = std::find(dots_.blocks.begin(), dots_.blocks.end(), r) != dots_.blocks.end();
    extents.push_back(r.src(0).vmax());
    read.push_back(block ? r : map.at(r));
    fill.push_back(Range(extents.back(), block ? RangeKind::kLoop : RangeKind::kUnroll));
    loops.push_back(fill.back());
    there.emplace(r, fill.back());
  }
  // As many columns at once as a row of theirs has parts: squares that turn in registers.
  const int64_t square = std::min(width, along.src(0).vmax() / kBytesOfDot);
  const UOp lane = Range(along.src(0).vmax(), RangeKind::kVector);
  const UOp squares = Range(width / square, RangeKind::kLoop);
  const UOp in_square = Range(square, RangeKind::kUnroll);
  const UOp own = Plus(Times(squares, square), in_square);
  there.emplace(along, lane);
  there.emplace(c_.lane, Plus(Times(panels, width), own));
  loops.insert(loops.begin(), squares);
  loops.push_back(in_square);
  loops.push_back(lane);
  const UOp four = UOp::Index(kBytesOfDot);
  extents.insert(extents.end(), {along.src(0).vmax() / kBytesOfDot, width, kBytesOfDot});
  read.insert(read.end(), {part, column, step});
  fill.insert(fill.end(), {UOp::Make(Op::kFloorDiv, {lane, four}), own,
                           UOp::Make(Op::kFloorMod, {lane, four})});
  int64_t elements = 1;
  for (int64_t e : extents) elements *= e;
  const UOp stage = MakeStage(next_stage_++, elements, PointOf(fill, extents),
                              Simplify(Substitute(b, there)), loops);
  return UOp::Make(Op::kIndex, {stage, PointOf(read, extents)});
}

UOp ByteTiler::PanelOfScales(const UOp& factor, int64_t width, const UOp& panels,
                             const UOp& column) {
  std::vector<int64_t> extents;
  std::vector<UOp> read, fill;
  Substitution there;
  for (const UOp& r : dots_.blocks) {
    extents.push_back(r.src(0).vmax());
    read.push_back(r);
    fill.push_back(Range(extents.back(), RangeKind::kLoop));
    there.emplace(r, fill.back());
  }
  const UOp own = Range(width, RangeKind::kLoop);
  there.emplace(c_.lane, Plus(Times(panels, width), own));
  extents.push_back(width);
  read.push_back(column);
  fill.push_back(own);
  int64_t elements = 1;
  for (int64_t e : extents) elements *= e;
  const UOp stage = MakeStage(next_stage_++, elements, PointOf(fill, extents),
                              Simplify(Substitute(factor, there)), fill);
  return UOp::Make(Op::kIndex, {stage, PointOf(read, extents)});
}

UOp ByteTiler::SumsOfRows(int64_t by, const UOp& along, const Substitution& map) {
  std::vector<int64_t> extents;
  std::vector<UOp> read, fill, steps;
  Substitution there;
  const auto lay = [&](const UOp& r) {
    const auto it = map.find(r);
    extents.push_back(r.src(0).vmax());
    read.push_back(it == map.end() ? r : it->second);
    fill.push_back(Range(extents.back(), RangeKind::kLoop));
    there.emplace(r, fill.back());
  };
  for (const UOp& r : c_.rows) lay(r);
  for (const UOp& r : dots_.blocks) lay(r);
  for (const UOp& r : c_.inner) {
    if (r == along) continue;
    steps.push_back(Range(r.src(0).vmax(), RangeKind::kUnroll));
    there.emplace(r, steps.back());
  }
  const int64_t groups = along.src(0).vmax() / kBytesOfDot;
  const int64_t lanes =
      std::min<int64_t>(PowerOfTwoIn(groups), target_.vector_bytes / kInt32.bytes());
  const UOp part = Range(groups / lanes, RangeKind::kLoop);
  const UOp lane = Range(lanes, RangeKind::kVector);
  const UOp step = Range(kBytesOfDot, RangeKind::kMatrix);
  there.emplace(along, Plus(Times(Plus(Times(part, lanes), lane), kBytesOfDot), step));
  steps.insert(steps.end(), {part, step});
  UOp sum = SumOver(ToInt32(Simplify(Substitute(c_.a, there))), steps);
  if (lanes > 1) sum = SumOver(sum, {lane});
  const UOp value = UOp::Make(Op::kMul, {sum, UOp::Const(kInt32, -by)});
  int64_t elements = 1;
  for (int64_t e : extents) elements *= e;
  const UOp stage = MakeStage(next_stage_++, elements, PointOf(fill, extents), value, fill);
  return UOp::Make(Op::kIndex, {stage, PointOf(read, extents)});
}

std::vector<UOp> ByteTiler::FactorsOver(RangeMask these, RangeMask others) const {
  std::vector<UOp> out, stack = {dots_.scaled};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    const RangeMask free = sets_.Free(u);
    if ((free & these) && !(free & others)) {
      out.push_back(u);
    } else if (u.is(Op::kMul)) {
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
  }
  return out;
}

bool LieInPanels(const RangeSets& sets, const ByteDots& dots, const Target& target) {
  const UOp& lane = dots.c.lane;
  const int64_t lanes = target.vector_bytes / kInt32.bytes();
  int64_t sums = kInt32.bytes();
  for (const std::vector<UOp>* ranges : {&dots.c.rows, &dots.blocks, &dots.c.inner}) {
    for (const UOp& r : *ranges) {
      if (!r.src(0).IsConst() || r.src(0).vmax() > kMostBytesOfSums) return false;
      if (ranges != &dots.c.inner) sums *= std::max<int64_t>(1, r.src(0).vmax());
      if (sums > kMostBytesOfSums) return false;
    }
  }
  if (!lane.src(0).IsConst() || lane.src(0).vmax() == 0 || lane.src(0).vmax() % lanes != 0 ||
      lane.arg<RangeArg>().kind != RangeKind::kLoop) {
    return false;  // or cores share the lanes: there are few panels
  }
  bool any = false;
  for (const UOp& l : TopoSort({&dots.c.b, 1})) {
    if (!l.is(Op::kIndex) || !(sets.Free(l) & sets.Bit(lane))) continue;
    const Step s = StepOf(l.src(1), lane, sets);
    if (!s.linear || s.factor != kBytesOfDot) return false;
    any = true;
  }
  return any;
}

bool WorthPanels(const RangeSets& sets, const ByteDots& dots, const UOp& row, const UOp& along,
                 const Target& target) {
  const Contraction& c = dots.c;
  const int64_t lanes = target.vector_bytes / kInt32.bytes();
  const int64_t in_row = along.src(0).vmax();
  if (!row.src(0).IsConst() || row.src(0).vmax() < kLeastRows || dots.rest) return false;
  if (!c.lane.src(0).IsConst() || c.lane.src(0).vmax() % lanes != 0) return false;
  const bool shared = c.lane.arg<RangeArg>().kind == RangeKind::kGrid;
  if (shared && c.lane.src(0).vmax() < kPanelsPerCore * target.cores * lanes) return false;
  if (!c.batch.empty()) return false;
  if (c.columns.size() != 1 || c.rows.size() != 1) return false;
  if (!std::has_single_bit(static_cast<uint64_t>(in_row)) || in_row < kLeastInRow ||
      in_row > kMostInRow) {
    return false;
  }
  int64_t bytes = lanes * in_row, rows = row.src(0).vmax() * kInt32.bytes(), copies = in_row / 4;
  const auto fits = [&] {
    return bytes <= target.l2_bytes * 3 / 4 && rows <= target.cache_bytes / 2 &&
           copies <= kMostPanelCopies;
  };
  if (!fits()) return false;
  for (const UOp& r : c.inner) {
    if (r == along) continue;
    if (!r.src(0).IsConst() || r.src(0).vmax() > kMostPanelCopies) return false;
    bytes *= r.src(0).vmax();
    copies *= r.src(0).vmax();
  }
  for (const UOp& r : dots.blocks) {
    if (!r.src(0).IsConst() || r.src(0).vmax() > target.cache_bytes) return false;
    bytes *= r.src(0).vmax();
    rows *= r.src(0).vmax();
    if (!fits()) return false;
  }
  return fits() && !(sets.Free(row) & ~sets.Bit(row));
}

}  // namespace tessera
