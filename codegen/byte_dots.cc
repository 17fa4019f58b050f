// Detection and tiles of dot products of bytes.
//
// Chips multiply unsigned by signed bytes. Where both are signed, one is made unsigned by adding
// what its bounds ask for, and as many times the sum of the other is taken off again; that sum
// does not depend on the first one's columns. All of it is exact: it wraps as the sum itself does.
#include "codegen/byte_dots.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kExactInF32 = int64_t{1} << 24;
constexpr int64_t kMostCopies = 8;  // of steps inside a block
constexpr int64_t kLeastLanes = 4;
constexpr int64_t kLeastRows = 16;                    // that pay for laying out columns anew
constexpr int64_t kLeastInRow = 16, kMostInRow = 64;  // lanes by which a panel is filled

bool IsSumOfByteProducts(const UOp& u) {
  return u.is(Op::kReduce) && u.dtype() == kInt32 && u.arg<ReduceArg>().op == Op::kAdd &&
         u.src(0).is(Op::kMul) && IsByte(u.src(0).src(0)) && IsByte(u.src(0).src(1));
}

bool Contains(const UOp& u, const UOp& part) {
  for (const UOp& s : TopoSort({&u, 1})) {
    if (s == part) return true;
  }
  return false;
}

// Whether a value is these dot products in f32 times something that does not depend on them.
bool Scales(const UOp& value, const UOp& dots) {
  UOp u = value;
  while (u.is(Op::kMul)) {
    const bool first = Contains(u.src(0), dots);
    if (Contains(u.src(first ? 1 : 0), dots)) return false;
    u = UOp(u.src(first ? 0 : 1));
  }
  return u.is(Op::kCast) && u.dtype() == kFloat32 && u.src(0) == dots;
}

int64_t Magnitude(const UOp& bytes) { return std::max(-bytes.vmin(), bytes.vmax()); }

// Whether every part of a block's dot product is a number of f32.
bool Exact(const Contraction& c) {
  int64_t most = Magnitude(c.a) * Magnitude(c.b);
  for (const UOp& r : c.inner) {
    if (!r.src(0).IsConst() || r.src(0).vmax() > kExactInF32) return false;
    most *= std::max<int64_t>(1, r.src(0).vmax());
    if (most > kExactInF32) return false;
  }
  return true;
}

// Unsigned bytes that are equal to these modulo 256.
UOp Modulo256(const UOp& u) {
  if (u.dtype() == kUInt8) return u;
  const auto from_byte = [](const UOp& s) { return s.dtype().IsInt() && s.dtype().bits() == 8; };
  if (u.IsConst()) return UOp::Const(kUInt8, u.vmin() & 255);
  if (u.is(Op::kAdd) || u.is(Op::kSub)) {
    return UOp::Make(u.op(), {Modulo256(u.src(0)), Modulo256(u.src(1))});
  }
  if ((u.is(Op::kCast) || u.is(Op::kBitcast)) && from_byte(u.src(0))) return Modulo256(u.src(0));
  return UOp::Make(Op::kBitcast, kUInt8, {u}, Arg());
}

// Bytes as the unsigned ones that are more by a constant.
struct Raised {
  UOp value;
  int64_t by = 0;
};
Raised Raise(const UOp& bytes) {
  const int64_t by = std::max<int64_t>(0, -bytes.vmin());
  const UOp more = UOp::Make(Op::kAdd, {Modulo256(bytes), UOp::Const(kUInt8, by)});
  return {Simplify(more), by};
}

UOp ToInt32(const UOp& bytes) { return UOp::Make(Op::kCast, kInt32, {bytes}, Arg()); }

UOp Sum(const UOp& value, const std::vector<UOp>& ranges) {
  if (ranges.empty()) return value;
  std::vector<UOp> srcs = {value};
  srcs.insert(srcs.end(), ranges.begin(), ranges.end());
  return UOp::Make(Op::kReduce, srcs, ReduceArg{Op::kAdd, {}});
}

bool MixedSigns(const Target& target) {
  return absl::StrContains(target.features, "+avx512vnni") ||
         absl::StrContains(target.features, "+avxvnni");
}

// Whether one operand, b, must be raised to be unsigned where the other is signed.
bool MustRaise(const UOp& a, const UOp& b, const Target& target) {
  return MixedSigns(target) && !a.dtype().IsUnsigned() && !b.dtype().IsUnsigned();
}

// The sum over `steps` of the products, of which the chip's own instruction takes four.
UOp DotsOver(const UOp& a, const UOp& b, const std::vector<UOp>& steps, const Target& target) {
  const auto plain = [&](const UOp& x, const UOp& y) {
    return Sum(UOp::Make(Op::kMul, {ToInt32(x), ToInt32(y)}), steps);
  };
  const bool mixed = a.dtype().IsUnsigned() != b.dtype().IsUnsigned();
  if (!MixedSigns(target) || mixed) return plain(a, b);
  const Raised up = Raise(b);
  if (!a.dtype().IsUnsigned()) {
    if (up.by == 0) return plain(a, up.value);
    const UOp other = Sum(ToInt32(a), steps);
    const UOp off = UOp::Make(Op::kMul, {other, UOp::Const(kInt32, -up.by)});
    return UOp::Make(Op::kAdd, {plain(a, up.value), off});
  }
  // Both are unsigned: what lies below 128 is as well signed.
  const auto narrow = [](const UOp& u) { return UOp::Make(Op::kBitcast, kInt8, {u}, Arg()); };
  if (b.vmax() < 128) return plain(a, narrow(b));
  if (a.vmax() < 128) return plain(narrow(a), b);
  return plain(a, b);
}

class Tiler {
 public:
  Tiler(const UOp& sink, const RangeSets& sets, const ByteDots& dots, const Target& target)
      : sink_(sink),
        sets_(sets),
        dots_(dots),
        c_(dots.c),
        target_(target),
        next_id_(FreshRangeId(sets)),
        next_stage_(FreshStageId(sink)) {}

  // Lanes along the sum, several columns at once as so many streams, and rows that share them.
  UOp Along(const UOp& along) {
    const int64_t most = target_.vector_bytes / kInt32.bytes();
    const int64_t groups = along.src(0).vmax() / kBytesOfDot;
    int64_t lanes = std::min(PowerOfTwoIn(groups), most);
    const UOp step = Range(kBytesOfDot, RangeKind::kMatrix);
    std::vector<UOp> steps, blocks = dots_.blocks;
    Substitution map;
    for (const UOp& r : c_.inner) {
      if (!(r == along)) steps.push_back(CopiesOf(r, map));
    }
    UOp lane;
    if (lanes < groups || groups >= most) {
      for (UOp& r : blocks) {
        if (ChoosesBy(c_.b, r)) r = CopiesOf(UOp(r), map);
      }
      lane = Range(lanes, RangeKind::kVector);
      blocks.push_back(lane);
      const UOp part = CopiesOf(UOp::Index(groups / lanes));
      steps.push_back(part);
      map.emplace(along, Plus(Times(Plus(Times(part, lanes), lane), kBytesOfDot), step));
    } else {
      lane = BlocksBesides(most, groups, blocks, map);
      lanes = lane.src(0).vmax();
      const UOp within = UOp::Make(Op::kFloorMod, {lane, UOp::Index(groups)});
      map.emplace(along, Plus(Times(within, kBytesOfDot), step));
    }
    if (lanes < kLeastLanes) return UOp();
    steps.push_back(step);
    const auto there = [&](const UOp& u) { return Simplify(Substitute(u, map)); };
    const UOp dots = DotsOver(there(c_.a), there(c_.b), steps, target_);
    UOp sum = dots;
    if (dots_.sum) {
      map.emplace(c_.reduce, dots);
      sum = UOp(Substitute(dots_.scaled, map));
    }
    sum = Sum(sum, blocks);
    if (dots_.rest) sum = UOp::Make(Op::kAdd, {sum, SumOfRest(map)});
    UOp out = Simplify(Substitute(sink_, {{dots_.sum ? dots_.sum : c_.reduce, sum}}));
    return TileOutputs(out);
  }

  // Lanes over columns, whose bytes and scales are laid out first for all rows to read: in a panel
  // of so many columns, four steps of a column lie next to those of the next one. Rows are copies.
  // Each element of the result then takes four bytes of its row and of a lane at a time.
  UOp Across(const UOp& row, const UOp& along) {
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
    // would lay out all panels.
    const bool shared = row.arg<RangeArg>().kind == RangeKind::kGrid;
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
    const Raised up = raise ? Raise(c_.b) : Raised{c_.b, 0};
    const UOp b = Panel(up.value, deep, along, width, map, panels, column, step, part);
    UOp dots = Sum(UOp::Make(Op::kMul, {ToInt32(a), ToInt32(b)}), steps);
    if (up.by != 0) {
      dots = UOp::Make(Op::kAdd, {dots, SumsOfRows(c_.a, up.by, row, rows, along)});
    }
    UOp sum = dots;
    if (dots_.sum) {
      Substitution inside = map;
      inside.emplace(c_.reduce, dots);
      for (const UOp& f : FactorsOfColumns()) {
        inside.emplace(f, PanelOfScales(f, width, panels, column));
      }
      std::vector<UOp> blocks = dots_.blocks;
      sum = Sum(UOp(Substitute(dots_.scaled, inside)), blocks);
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

 private:
  static constexpr int64_t kRowsOfTile = 4;

  // Lanes for `groups` of bytes of each of several blocks: of those first whose bytes are the
  // nearest, and of none by which bytes are chosen. What is left of each range of blocks is put in
  // its place, in copies where something is chosen by it.
  UOp BlocksBesides(int64_t most, int64_t groups, std::vector<UOp>& blocks, Substitution& map) {
    std::vector<std::pair<int64_t, size_t>> nearest;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int64_t step = StepInMemory(blocks[i]);
      if (blocks[i].src(0).IsConst() && step > 0 && !ChoosesBy(c_.b, blocks[i])) {
        nearest.emplace_back(step, i);
      }
    }
    std::sort(nearest.begin(), nearest.end());
    std::vector<int64_t> counts(blocks.size(), 1);
    int64_t lanes = groups;
    for (const auto& [step, i] : nearest) {
      counts[i] = std::min(PowerOfTwoIn(blocks[i].src(0).vmax()), most / lanes);
      lanes *= counts[i];
    }
    const UOp value = dots_.sum ? UOp(dots_.sum.src(0)) : c_.b;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (counts[i] == 1 && ChoosesBy(value, blocks[i])) blocks[i] = CopiesOf(blocks[i], map);
    }
    const UOp lane = Range(lanes, RangeKind::kVector);
    UOp beside = UOp::Make(Op::kFloorDiv, {lane, UOp::Index(groups)});
    for (const auto& [step, i] : nearest) {
      if (counts[i] == 1) continue;
      const UOp count = UOp::Index(counts[i]), whole = blocks[i];
      const UOp left = UOp::Index(whole.src(0).vmax() / counts[i]);
      blocks[i] = ChoosesBy(value, whole)
                      ? CopiesOf(left)
                      : Range(left.vmax(), whole.arg<RangeArg>().kind);
      const UOp at = UOp::Make(Op::kFloorMod, {beside, count});
      map.emplace(whole, Plus(Times(blocks[i], counts[i]), at));
      beside = UOp::Make(Op::kFloorDiv, {beside, count});
    }
    blocks.push_back(lane);
    return lane;
  }

  // How far apart in memory the columns' bytes of neighbouring blocks are: the least of all loads
  // that move, 0 where none does or one jumps.
  int64_t StepInMemory(const UOp& range) const {
    int64_t least = 0;
    for (const UOp& u : TopoSort({&c_.b, 1})) {
      if (!u.is(Op::kIndex) || !(sets_.Free(u) & sets_.Bit(range))) continue;
      const Step s = StepOf(u.src(1), range, sets_);
      if (!s.linear || s.factor <= 0) return 0;
      if (least == 0 || s.factor < least) least = s.factor;
    }
    return least;
  }

  // The sum of what is added in each block to the dot products: lanes over the innermost ranges of
  // blocks, in the same loops over the others.
  UOp SumOfRest(const Substitution& of_dots) {
    const std::vector<UOp>& blocks = dots_.blocks;
    const int64_t most = target_.vector_bytes / kFloat32.bytes();
    const auto fits = [&](const UOp& r, int64_t n) {
      return r.src(0).IsConst() && r.src(0).vmax() * n <= most &&
             std::has_single_bit(static_cast<uint64_t>(r.src(0).vmax()));
    };
    size_t whole = blocks.size();
    int64_t lanes = 1;
    while (whole > 0 && fits(blocks[whole - 1], lanes)) lanes *= blocks[--whole].src(0).vmax();
    std::vector<UOp> loops;
    Substitution map;
    const auto loop = [&](const UOp& r, int64_t part) {
      const UOp extent = part == 1 ? UOp(r.src(0)) : UOp::Index(r.src(0).vmax() / part);
      loops.push_back(UOp::Make(Op::kRange, kInt64, {extent},
                                RangeArg{next_id_++, r.arg<RangeArg>().kind}));
      return loops.back();
    };
    for (size_t i = 0; i < whole; ++i) {
      const bool last = i + 1 == blocks.size() && blocks[i].src(0).IsConst();
      if (last) lanes = std::min(PowerOfTwoIn(blocks[i].src(0).vmax()), most);
      if (last && lanes > 1) {
        const UOp part = loop(blocks[i], lanes);
        const UOp lane = Range(lanes, RangeKind::kVector);
        map.emplace(blocks[i], Plus(Times(part, lanes), lane));
        loops.push_back(lane);
      } else if (of_dots.contains(blocks[i])) {
        map.emplace(blocks[i], loop(blocks[i], 1));
      } else {
        loops.push_back(blocks[i]);
      }
    }
    if (whole < blocks.size()) {
      const UOp lane = Range(lanes, RangeKind::kVector);
      UOp at = lane;
      for (size_t i = blocks.size(); i-- > whole;) {
        map.emplace(blocks[i], UOp::Make(Op::kFloorMod, {at, UOp(blocks[i].src(0))}));
        at = UOp::Make(Op::kFloorDiv, {at, UOp(blocks[i].src(0))});
      }
      loops.push_back(lane);
    }
    return Sum(Simplify(Substitute(dots_.rest, map)), loops);
  }

  // The index of a point of these ranges, the last of them adjacent.
  static UOp PointOf(const std::vector<UOp>& ranges, const std::vector<int64_t>& extents) {
    UOp out = UOp::Index(0);
    for (size_t i = 0; i < ranges.size(); ++i) out = Plus(Times(out, extents[i]), ranges[i]);
    return Simplify(out);
  }

  // The bytes of a column operand as they lie in its panel, which is filled along memory.
  UOp Panel(const UOp& b, const std::vector<UOp>& deep, const UOp& along, int64_t width,
            const Substitution& map, const UOp& panels, const UOp& column, const UOp& step,
            const UOp& part) {
    std::vector<int64_t> extents;
    std::vector<UOp> read, fill, loops;
    Substitution there;
    for (const UOp& r : deep) {
      const bool block =
          std::find(dots_.blocks.begin(), dots_.blocks.end(), r) != dots_.blocks.end();
      extents.push_back(r.src(0).vmax());
      read.push_back(block ? r : map.at(r));
      fill.push_back(Range(extents.back(), block ? RangeKind::kLoop : RangeKind::kUnroll));
      loops.push_back(fill.back());
      there.emplace(r, fill.back());
    }
    const UOp lane = Range(along.src(0).vmax(), RangeKind::kVector);
    const UOp own = Range(width, RangeKind::kLoop);
    there.emplace(along, lane);
    there.emplace(c_.lane, Plus(Times(panels, width), own));
    loops.insert(loops.begin(), own);
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

  // What a sum's products are times in each column and block, in a panel too.
  UOp PanelOfScales(const UOp& factor, int64_t width, const UOp& panels, const UOp& column) {
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

  // Minus `by` times the sum of a row's bytes in each block, which all panels read.
  UOp SumsOfRows(const UOp& a, int64_t by, const UOp& row, const UOp& rows, const UOp& along) {
    std::vector<int64_t> extents = {rows.src(0).vmax()};
    std::vector<UOp> read = {rows}, fill = {Range(rows.src(0).vmax(), RangeKind::kLoop)}, steps;
    Substitution there = {{row, fill[0]}};
    for (const UOp& r : dots_.blocks) {
      extents.push_back(r.src(0).vmax());
      read.push_back(r);
      fill.push_back(Range(extents.back(), RangeKind::kLoop));
      there.emplace(r, fill.back());
    }
    for (const UOp& r : c_.inner) {
      if (r == along) continue;
      steps.push_back(Range(r.src(0).vmax(), RangeKind::kUnroll));
      there.emplace(r, steps.back());
    }
    const UOp lane = Range(along.src(0).vmax() / kBytesOfDot, RangeKind::kVector);
    const UOp step = Range(kBytesOfDot, RangeKind::kMatrix);
    there.emplace(along, Plus(Times(lane, kBytesOfDot), step));
    steps.push_back(step);
    const UOp of_lane = Sum(ToInt32(Simplify(Substitute(a, there))), steps);
    const UOp value = UOp::Make(Op::kMul, {Sum(of_lane, {lane}), UOp::Const(kInt32, -by)});
    int64_t elements = 1;
    for (int64_t e : extents) elements *= e;
    const UOp stage = MakeStage(next_stage_++, elements, PointOf(fill, extents), value, fill);
    return UOp::Make(Op::kIndex, {stage, PointOf(read, extents)});
  }

  // The factors of the sum's products that vary over columns and not over rows.
  std::vector<UOp> FactorsOfColumns() const {
    std::vector<UOp> out, stack = {dots_.scaled};
    RangeMask rows = 0;
    for (const UOp& r : c_.rows) rows |= sets_.Bit(r);
    for (const UOp& r : c_.batch) rows |= sets_.Bit(r);
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      const RangeMask free = sets_.Free(u);
      if ((free & sets_.Bit(c_.lane)) && !(free & rows)) {
        out.push_back(u);
      } else if (u.is(Op::kMul)) {
        stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
      }
    }
    return out;
  }

  // Whether what an expression is made of is chosen by a range, and not by what is read: in copies
  // for each step of it nothing is left to choose, and what they read alike they share.
  static bool ChoosesBy(const UOp& u, const UOp& range) {
    absl::flat_hash_set<const Node*> depends;  // on the range, without reading anything by it
    for (const UOp& s : TopoSort({&u, 1})) {
      const bool by_range = s == range || std::any_of(s.srcs().begin(), s.srcs().end(), [&](auto& x) {
                              return depends.contains(x.get());
                            });
      if (by_range && !s.is(Op::kIndex)) depends.insert(s.get());
      const bool shift = s.is(Op::kShl) || s.is(Op::kShr);
      if ((shift || s.is(Op::kWhere)) && depends.contains(s.src(shift ? 1 : 0).get())) return true;
    }
    return false;
  }

  static UOp Plus(const UOp& a, const UOp& b) { return UOp::Make(Op::kAdd, {a, b}); }
  static UOp Times(const UOp& a, int64_t b) { return UOp::Make(Op::kMul, {a, UOp::Index(b)}); }
  static int64_t PowerOfTwoIn(int64_t n) { return n & -n; }

  UOp Range(int64_t extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{next_id_++, kind});
  }

  // A loop of this many steps, in copies as long as these are few.
  UOp CopiesOf(const UOp& extent) {
    const int64_t n = extent.vmax();
    const bool few = extent.IsConst() && copies_ * n <= kMostCopies;
    if (few) copies_ *= n;
    return UOp::Make(Op::kRange, kInt64, {extent},
                     RangeArg{next_id_++, few ? RangeKind::kUnroll : RangeKind::kLoop});
  }
  UOp CopiesOf(const UOp& range, Substitution& map) {
    const UOp r = CopiesOf(UOp(range.src(0)));
    map.emplace(range, r);
    return r;
  }

  // Copies of columns, and of rows as far as registers go.
  UOp TileOutputs(const UOp& sink) {
    const int64_t columns = c_.lane.src(0).vmax() >= 4 ? 4 : 1;
    const UOp row = Longest(c_.rows);
    const int64_t rows = row ? row.src(0).vmax() : 1;
    const int64_t most = std::max<int64_t>(1, (target_.vector_registers - 8) / columns / 2);
    UOp out = ColumnsOutward(sink, c_);
    out = Simplify(Tile(out, c_.lane, columns, 1));
    if (rows == 1) return out;
    const int64_t tiles = (rows + most - 1) / most;
    return Tile(out, row, (rows + tiles - 1) / tiles, 1);
  }

  const UOp sink_;
  const RangeSets& sets_;
  const ByteDots& dots_;
  const Contraction& c_;
  const Target& target_;
  int64_t next_id_, next_stage_;
  int64_t copies_ = 1;
};

// Whether every load that moves with the range goes by one element, or stays where it is for as many
// bytes as a lane has.
bool MovesInOrder(const UOp& u, const UOp& range, const RangeSets& sets) {
  const auto stays = [&](const UOp& term) {
    return term.is(Op::kFloorDiv) && term.src(0) == range && term.src(1).IsConst() &&
           term.src(1).vmin() % kBytesOfDot == 0;
  };
  for (const UOp& l : TopoSort({&u, 1})) {
    if (!l.is(Op::kIndex) || !(sets.Free(l) & sets.Bit(range))) continue;
    const struct Sum sum = ToSum(l.src(1));
    for (const auto& t : sum.terms) {
      const bool moves{sets.Free(t.term) & sets.Bit(range)};
      if (moves && !stays(t.term) && !(t.term == range && t.factor == 1)) return false;
    }
    if (l.size() == 3 && !DecidedByThresholds(l.src(2), range, sets)) return false;
  }
  return true;
}

// Whether rows are many enough for the columns to be laid out anew, and panels fit.
bool WorthPanels(const RangeSets& sets, const ByteDots& dots, const UOp& row, const UOp& along,
                 const Target& target) {
  const Contraction& c = dots.c;
  const int64_t lanes = target.vector_bytes / kInt32.bytes();
  const int64_t in_row = along.src(0).vmax();
  if (!row.src(0).IsConst() || row.src(0).vmax() < kLeastRows || dots.rest) return false;
  if (!c.lane.src(0).IsConst() || c.lane.src(0).vmax() % lanes != 0) return false;
  if (c.lane.arg<RangeArg>().kind == RangeKind::kGrid || !c.batch.empty()) return false;
  if (c.columns.size() != 1 || c.rows.size() != 1) return false;
  if (!std::has_single_bit(static_cast<uint64_t>(in_row)) || in_row < kLeastInRow ||
      in_row > kMostInRow) {
    return false;
  };
  int64_t bytes = lanes * in_row, rows = row.src(0).vmax() * kInt32.bytes(), copies = in_row / 4;
  const auto fits = [&] {
    return bytes <= target.l2_bytes * 3 / 4 && rows <= target.cache_bytes / 2 &&
           copies <= kMostCopies;
  };
  if (!fits()) return false;
  for (const UOp& r : c.inner) {
    if (r == along) continue;
    if (!r.src(0).IsConst() || r.src(0).vmax() > kMostCopies) return false;
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

}  // namespace

bool IsByte(const UOp& u) {
  return u.is(Op::kCast) && u.src(0).dtype().IsInt() && u.src(0).dtype().bits() == 8;
}

std::optional<ByteDots> FindByteDots(const RangeSets& sets) {
  ByteDots out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce)) continue;
    if (IsSumOfByteProducts(u)) {
      if (out.c.reduce) return std::nullopt;
      out.c.reduce = u;
    } else {
      if (out.sum) return std::nullopt;
      out.sum = u;
    }
  }
  if (!out.c.reduce) return std::nullopt;
  const UOp& product = out.c.reduce.src(0);
  out.c.a = UOp(product.src(0).src(0));
  out.c.b = UOp(product.src(1).src(0));
  const std::optional<Contraction> c = SortRanges(sets, out.c);
  if (!c) return std::nullopt;
  out.c = *c;
  if (!out.sum) return out;
  if (!(out.sum.dtype() == kFloat32) || out.sum.arg<ReduceArg>().op != Op::kAdd) {
    return std::nullopt;
  }
  out.scaled = UOp(out.sum.src(0));
  if (out.scaled.is(Op::kAdd)) {
    const int with = Contains(UOp(out.scaled.src(0)), out.c.reduce) ? 0 : 1;
    out.rest = UOp(out.scaled.src(1 - with));
    out.scaled = UOp(out.scaled.src(with));
    if (Contains(out.rest, out.c.reduce)) return std::nullopt;
  }
  if (!Scales(out.scaled, out.c.reduce) || !Exact(out.c)) return std::nullopt;
  out.blocks.assign(ClosedRanges(out.sum).begin(), ClosedRanges(out.sum).end());
  return out;
}

UOp TileByteDots(const UOp& sink, const RangeSets& sets, const ByteDots& dots,
                 const Target& target) {
  const Contraction& c = dots.c;
  std::vector<UOp> both, of_columns;
  for (const UOp& r : c.inner) {
    const bool fours = r.src(0).IsConst() && r.src(0).vmax() % kBytesOfDot == 0;
    if (!fours || r.src(0).vmax() == 0 || !MovesInOrder(c.b, r, sets)) continue;
    of_columns.push_back(r);
    if (AdjacentOver(c.a, r, sets)) both.push_back(r);
  }
  Tiler tiler(sink, sets, dots, target);
  if (const UOp row = Longest(c.rows), along = Longest(of_columns); row && along) {
    if (WorthPanels(sets, dots, row, along, target)) return tiler.Across(row, along);
  }
  const UOp along = Longest(both);
  return along ? tiler.Along(along) : UOp();
}

}  // namespace tessera
