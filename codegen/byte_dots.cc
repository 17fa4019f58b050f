// Detection and tiles of dot products of bytes.
//
// Chips multiply unsigned by signed bytes. Where both are signed, one is made unsigned by adding
// what its bounds ask for, and as many times the sum of the other is taken off again; that sum
// does not depend on the first one's columns. All of it is exact: it wraps as the sum itself does.
#include "codegen/byte_dots.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/match.h"
#include "codegen/byte_tiler.h"
#include "codegen/cpu_tiles.h"
#include "codegen/lanes.h"
#include "graph/index_math.h"
#include "graph/panel.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int64_t kExactInF32 = int64_t{1} << 24;
constexpr int64_t kLeastSums = 4;      // lanes of i32 that are worth it
constexpr int64_t kLeastReaders = 64;  // columns for which rows are laid out
constexpr int64_t kColumnsAtOnce = 4, kRowsAtOnce = 8;

bool IsSumOfByteProducts(const UOp& u) {
  return u.is(Op::kReduce) && u.dtype() == kInt32 && u.arg<ReduceArg>().op == Op::kAdd &&
         u.src(0).is(Op::kMul) && IsByte(u.src(0).src(0)) && IsByte(u.src(0).src(1));
}

// Whether an index depends on a range that stays a loop.
bool Loops(const UOp& index) {
  for (const UOp& s : TopoSort({&index, 1})) {
    if (!s.is(Op::kRange)) continue;
    const RangeKind kind = s.arg<RangeArg>().kind;
    if (kind != RangeKind::kUnroll && kind != RangeKind::kVector) return true;
  }
  return false;
}

// Whether a value is these dot products in f32 times something that does not depend on them.
bool Scales(const UOp& value, const UOp& dots) {
  UOp u = value;
  while (u.is(Op::kMul)) {
    const bool first = DependsOn(u.src(0), dots);
    if (DependsOn(u.src(first ? 1 : 0), dots)) return false;
    u = UOp(u.src(first ? 0 : 1));
  }
  return u.is(Op::kCast) && u.dtype() == kFloat32 && u.src(0) == dots;
}

// Whether where a load is at is read, too.
bool ReadsIndices(const UOp& load) {
  const auto is_load = [](const UOp& u) { return u.is(Op::kIndex); };
  return FindBelow({&load.src(1), 1}, is_load) != nullptr;
}

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

// Whether the chip has dot products of bytes of one sign alone.
bool OneSign(const Target& target) {
  return absl::StrContains(target.features, "+dotprod") &&
         !absl::StrContains(target.features, "+i8mm");
}

}  // namespace

int64_t Magnitude(const UOp& bytes) { return std::max(-bytes.vmin(), bytes.vmax()); }

UOp ByteTiler::DotsOver(const UOp& a, const UOp& b, const std::vector<UOp>& steps,
                        const std::vector<UOp>& blocks) {
  const auto plain = [&](const UOp& x, const UOp& y) {
    return SumOver(UOp::Make(Op::kMul, {ToInt32(x), ToInt32(y)}), steps);
  };
  // What lies below 128 is as well signed.
  const auto narrow = [](const UOp& u) { return UOp::Make(Op::kBitcast, kInt8, {u}, Arg()); };
  const bool mixed = a.dtype().IsUnsigned() != b.dtype().IsUnsigned();
  if (mixed && OneSign(target_)) {
    if (a.dtype().IsUnsigned() && a.vmax() < 128) return plain(narrow(a), b);
    if (b.dtype().IsUnsigned() && b.vmax() < 128) return plain(a, narrow(b));
  }
  if (!MultipliesTwoSigns(target_) || mixed) return plain(a, b);
  const RaisedBytes up = Raise(b);
  if (!a.dtype().IsUnsigned()) {
    if (up.by == 0) return plain(a, up.value);
    const UOp other = SumOver(ToInt32(a), steps);
    const UOp off = UOp::Make(Op::kMul, {other, UOp::Const(kInt32, -up.by)});
    return UOp::Make(Op::kAdd, {plain(a, up.value), Kept(off, blocks)});
  }
  // Both are unsigned.
  if (b.vmax() < 128) return plain(a, narrow(b));
  if (a.vmax() < 128) return plain(narrow(a), b);
  return plain(a, b);
}

namespace {

bool IsByMultiple(const UOp& u, Op op, int64_t of) {
  return u.is(op) && u.src(1).IsConst() && u.src(1).vmin() % of == 0;
}

// Whether u is the range divided, or what is left of it, by a multiple of a lane's bytes.
bool OfRuns(const UOp& u, Op op, const UOp& range) {
  if (!IsByMultiple(u, op, kBytesOfDot)) return false;
  const UOp& x = u.src(0);
  return x == range || (IsByMultiple(x, Op::kFloorMod, u.src(1).vmin()) && x.src(0) == range);
}

// Whether u depends on the range only by which such run it is in.
bool StaysInRuns(const UOp& u, const UOp& range) {
  bool stays = true;
  WalkDown({&u, 1}, [&](const UOp& x) {
    stays &= !(x == range);
    return stays && !OfRuns(x, Op::kFloorDiv, range);
  });
  return stays;
}

// Whether every load that moves with the range goes by one element, or stays where it is for as
// many bytes as a lane has, or is of rows of a table of several lanes each.
bool MovesInOrder(const UOp& u, const UOp& range, const RangeSets& sets) {
  for (const UOp& l : TopoSort({&u, 1})) {
    if (!l.is(Op::kIndex) || !(sets.Free(l) & sets.Bit(range))) continue;
    const Sum sum = ToSum(l.src(1));
    for (const auto& t : sum.terms) {
      if (!(sets.Free(t.term) & sets.Bit(range)) || StaysInRuns(t.term, range)) continue;
      const bool by_one = t.term == range || OfRuns(t.term, Op::kFloorMod, range);
      if (!by_one || t.factor != 1) return false;
    }
    if (l.size() == 3 && !DecidedByThresholds(l.src(2), range, sets)) return false;
  }
  return true;
}

}  // namespace

RaisedBytes Raise(const UOp& bytes) {
  const int64_t by = std::max<int64_t>(0, -bytes.vmin());
  const UOp more = UOp::Make(Op::kAdd, {Modulo256(bytes), UOp::Const(kUInt8, by)});
  return {Simplify(more), by};
}

UOp ToInt32(const UOp& bytes) { return UOp::Make(Op::kCast, kInt32, {bytes}, Arg()); }

bool MustRaise(const UOp& a, const UOp& b, const Target& target) {
  return MultipliesTwoSigns(target) && !a.dtype().IsUnsigned() && !b.dtype().IsUnsigned();
}

UOp ByteTiler::Along(const UOp& along) {
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
  if (lanes < kLeastSums) return UOp();
  steps.push_back(step);
  const auto there = [&](const UOp& u) { return Simplify(Substitute(u, map)); };
  // Blocks and steps of a row, the lanes last.
  std::vector<UOp> whole = steps;
  whole.insert(whole.begin(), blocks.begin(), blocks.end() - 1);
  whole.back() = lane;
  const UOp dots = DotsOver(Kept(there(c_.a), whole, step), there(c_.b), steps, blocks);
  UOp sum = dots;
  if (dots_.sum) {
    KeepFactors();
    map.emplace(c_.reduce, dots);
    VectorsOfFactors(lane, groups, map);
    sum = UOp(Substitute(scaled_, map));
  }
  sum = SumOver(sum, blocks);
  if (dots_.rest) sum = UOp::Make(Op::kAdd, {sum, SumOfRest(map)});
  UOp out = Simplify(Substitute(sink_, {{dots_.sum ? dots_.sum : c_.reduce, sum}}));
  return TileOutputs(out);
}

bool ByteTiler::KeepsRows() const {
  const bool enough = c_.lane.src(0).vmin() >= kLeastReaders && !c_.rows.empty();
  return enough && std::all_of(c_.rows.begin(), c_.rows.end(), [](const UOp& r) {
           return r.src(0).IsConst() && r.arg<RangeArg>().kind != RangeKind::kGrid;
         });
}

void ByteTiler::KeepFactors() {
  RangeMask rows = 0, columns = sets_.Bit(c_.lane);
  for (const UOp& r : c_.rows) rows |= sets_.Bit(r);
  for (const UOp& r : c_.columns) columns |= sets_.Bit(r);
  Substitution kept;
  for (const UOp& f : FactorsOver(rows, columns)) {
    const bool in_memory = f.is(Op::kIndex) && f.size() == 2 && !ReadsIndices(f);
    if (!in_memory && !DependsOn(f, c_.reduce)) kept.emplace(f, Kept(f, dots_.blocks));
  }
  scaled_ = Substitute(scaled_, kept);
}

UOp ByteTiler::Kept(const UOp& value, std::vector<UOp> over, const UOp& step) {
  if (!KeepsRows()) return value;
  over.insert(over.begin(), c_.rows.begin(), c_.rows.end());
  const RangeSets sets(value);
  std::vector<UOp> read, fill;
  std::vector<int64_t> extents;
  Substitution there;
  int64_t elements = 1;
  for (const UOp& r : over) {
    if (!(sets.Free(value) & sets.Bit(r))) continue;
    if (!r.src(0).IsConst()) return value;
    const RangeKind kind = r.arg<RangeArg>().kind;
    const bool lanes = kind == RangeKind::kVector, together = lanes && step;
    const int64_t n = r.src(0).vmax() * (together ? kBytesOfDot : 1);
    fill.push_back(Range(n, lanes || kind == RangeKind::kUnroll ? kind : RangeKind::kLoop));
    const UOp four = UOp::Index(kBytesOfDot);
    read.push_back(together ? Plus(Times(r, kBytesOfDot), step) : r);
    there.emplace(r, together ? UOp::Make(Op::kFloorDiv, {fill.back(), four}) : fill.back());
    if (together) there.emplace(step, UOp::Make(Op::kFloorMod, {fill.back(), four}));
    extents.push_back(n);
    elements *= n;
    if (elements * value.dtype().bytes() > target_.l2_bytes / 4) return value;
  }
  const UOp stage = MakeStage(next_stage_++, elements, PointOf(fill, extents),
                              Simplify(Substitute(value, there)), fill);
  return UOp::Make(Op::kIndex, {stage, PointOf(read, extents)});
}

UOp ByteTiler::BlocksBesides(int64_t most, int64_t groups, std::vector<UOp>& blocks,
                             Substitution& map) {
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
    const bool copies = left.IsConst(1) || ChoosesBy(value, whole);
    blocks[i] = copies ? CopiesOf(left) : Range(left.vmax(), whole.arg<RangeArg>().kind);
    const UOp at = UOp::Make(Op::kFloorMod, {beside, count});
    map.emplace(whole, Plus(Times(blocks[i], counts[i]), at));
    beside = UOp::Make(Op::kFloorDiv, {beside, count});
  }
  blocks.push_back(lane);
  return lane;
}

int64_t ByteTiler::StepInMemory(const UOp& range) const {
  int64_t least = 0;
  for (const UOp& u : TopoSort({&c_.b, 1})) {
    if (!u.is(Op::kIndex) || !(sets_.Free(u) & sets_.Bit(range))) continue;
    const Step s = StepOf(u.src(1), range, sets_);
    if (!s.linear || s.factor <= 0) return 0;
    if (least == 0 || s.factor < least) least = s.factor;
  }
  return least;
}

ByteTiler::Trailing ByteTiler::TrailingBlocks() const {
  const std::vector<UOp>& blocks = dots_.blocks;
  const int64_t most = target_.vector_bytes / kFloat32.bytes();
  Trailing out{blocks.size(), 1};
  const auto fits = [&](const UOp& r) {
    return r.src(0).IsConst() && r.src(0).vmax() * out.lanes <= most &&
           std::has_single_bit(static_cast<uint64_t>(r.src(0).vmax()));
  };
  while (out.first > 0 && fits(blocks[out.first - 1])) {
    out.lanes *= blocks[--out.first].src(0).vmax();
  }
  return out;
}

void ByteTiler::PutAtLanes(const Trailing& trailing, const UOp& lane, Substitution& map) const {
  UOp at = lane;
  for (size_t i = dots_.blocks.size(); i-- > trailing.first;) {
    const UOp& extent = dots_.blocks[i].src(0);
    map.insert_or_assign(dots_.blocks[i], UOp::Make(Op::kFloorMod, {at, extent}));
    at = UOp::Make(Op::kFloorDiv, {at, extent});
  }
}

void ByteTiler::VectorsOfFactors(const UOp& of_dots, int64_t groups, Substitution& map) {
  const Trailing trailing = TrailingBlocks();
  const int64_t most = target_.vector_bytes / kFloat32.bytes();
  if (trailing.lanes < kLeastSums) return;
  const UOp lane = Range(trailing.lanes, RangeKind::kVector);
  Substitution there = map;
  PutAtLanes(trailing, lane, there);
  UOp place = UOp::Index(0);
  RangeMask beside = 0;
  for (size_t i = trailing.first; i < dots_.blocks.size(); ++i) {
    const UOp& r = dots_.blocks[i];
    const auto it = map.find(r);
    place = Plus(Times(place, r.src(0).vmax()), it == map.end() ? r : it->second);
    beside |= sets_.Bit(r);
  }
  place = Simplify(place);
  if (Loops(place)) return;  // one number a step
  UOp u = scaled_;
  while (u.is(Op::kMul)) {
    const int with = DependsOn(UOp(u.src(0)), c_.reduce) ? 0 : 1;
    const UOp factor(u.src(1 - with));
    u = UOp(u.src(with));
    if (!(sets_.Free(factor) & beside)) continue;
    UOp value = Simplify(Substitute(factor, there)), at = place, all = lane;
    int64_t lanes = trailing.lanes;
    if (DependsOn(value, of_dots)) {  // its lanes are of several blocks further out, too
      lanes *= of_dots.src(0).vmax() / groups;
      if (lanes > most) continue;
      all = Range(lanes, RangeKind::kVector);
      const UOp outer = UOp::Make(Op::kFloorDiv, {all, UOp::Index(trailing.lanes)});
      const UOp inner = UOp::Make(Op::kFloorMod, {all, UOp::Index(trailing.lanes)});
      value = Simplify(Substitute(value, {{lane, inner}, {of_dots, Times(outer, groups)}}));
      const UOp block = UOp::Make(Op::kFloorDiv, {of_dots, UOp::Index(groups)});
      at = Simplify(Plus(Times(block, trailing.lanes), place));
    }
    const UOp stage = MakeStage(next_stage_++, lanes, all, value, {&all, 1}, Space::kRegister);
    map.emplace(factor, UOp::Make(Op::kIndex, {stage, at}));
  }
}

UOp ByteTiler::SumOfRest(const Substitution& of_dots) {
  const std::vector<UOp>& blocks = dots_.blocks;
  const int64_t most = target_.vector_bytes / kFloat32.bytes();
  const Trailing trailing = TrailingBlocks();
  std::vector<UOp> loops;
  Substitution map;
  const auto loop = [&](const UOp& r, int64_t part) {
    const UOp extent = part == 1 ? UOp(r.src(0)) : UOp::Index(r.src(0).vmax() / part);
    loops.push_back(
        UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{next_id_++, r.arg<RangeArg>().kind}));
    return loops.back();
  };
  for (size_t i = 0; i < trailing.first; ++i) {
    const bool last = i + 1 == blocks.size() && blocks[i].src(0).IsConst();
    const int64_t lanes = last ? std::min(PowerOfTwoIn(blocks[i].src(0).vmax()), most) : 1;
    if (lanes > 1) {
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
  if (trailing.first < blocks.size()) {
    const UOp lane = Range(trailing.lanes, RangeKind::kVector);
    PutAtLanes(trailing, lane, map);
    loops.push_back(lane);
  }
  return SumOver(Simplify(Substitute(dots_.rest, map)), loops);
}

UOp ByteTiler::TileOutputs(const UOp& sink) {
  const UOp row = Longest(c_.rows);
  const int64_t rows = row ? row.src(0).vmax() : 1, registers = target_.vector_registers;
  int64_t columns = c_.lane.src(0).vmax() >= kColumnsAtOnce ? kColumnsAtOnce : 1;
  // Rows that are laid out take no registers but their sums, and share a column's unpacking.
  const bool kept = KeepsRows();
  const int64_t most = kept ? kRowsAtOnce : std::max<int64_t>(1, (registers - 8) / columns / 2);
  const int64_t at_once = CeilDiv(rows, CeilDiv(rows, most));
  if (kept) columns = std::clamp<int64_t>(registers / 2 / at_once, 1, kColumnsAtOnce);
  UOp out = ColumnsOutward(sink, c_);
  out = Simplify(TileApart(out, c_.lane, columns));
  if (rows == 1) return out;
  return Tile(out, row, at_once, 1);
}

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
    const int with = DependsOn(UOp(out.scaled.src(0)), out.c.reduce) ? 0 : 1;
    out.rest = UOp(out.scaled.src(1 - with));
    out.scaled = UOp(out.scaled.src(with));
    if (DependsOn(out.rest, out.c.reduce)) return std::nullopt;
  }
  if (!Scales(out.scaled, out.c.reduce) || !Exact(out.c)) return std::nullopt;
  out.blocks.assign(ClosedRanges(out.sum).begin(), ClosedRanges(out.sum).end());
  return out;
}

UOp TileByteDots(const UOp& sink, const RangeSets& sets, const ByteDots& dots,
                 const Target& target) {
  const Contraction& c = dots.c;
  if (const UOp row = dots.sum ? UOp() : Longest(c.rows)) {
    if (const UOp tiled = TileByUnits(sink, sets, c, row, target)) return tiled;
  }
  std::vector<UOp> both, of_columns;
  for (const UOp& r : c.inner) {
    const bool fours = r.src(0).IsConst() && r.src(0).vmax() % kBytesOfDot == 0;
    if (!fours || r.src(0).vmax() == 0 || !MovesInOrder(c.b, r, sets)) continue;
    of_columns.push_back(r);
    if (AdjacentOver(c.a, r, sets)) both.push_back(r);
  }
  ByteTiler tiler(sink, sets, dots, target);
  if (const UOp in = Longest(of_columns); in && LieInPanels(sets, dots, target)) {
    return tiler.InPlace(in);
  }
  if (const UOp row = Longest(c.rows), along = Longest(of_columns); row && along) {
    if (WorthPanels(sets, dots, row, along, target)) return tiler.Across(row, along);
  }
  const UOp along = Longest(both);
  return along ? tiler.Along(along) : UOp();
}

}  // namespace tessera
