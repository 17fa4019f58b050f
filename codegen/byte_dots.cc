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
#include "codegen/split.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kExactInF32 = int64_t{1} << 24;
constexpr int64_t kMostCopies = 8;  // of steps inside a block
constexpr int64_t kLeastLanes = 4;

bool IsByte(const UOp& u) {
  return u.is(Op::kCast) && u.src(0).dtype().IsInt() && u.src(0).dtype().bits() == 8;
}

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
        next_id_(FreshRangeId(sets)) {}

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
      lane = Range(lanes, RangeKind::kVector);
      const UOp part = CopiesOf(UOp::Index(groups / lanes));
      steps.push_back(part);
      map.emplace(along, Plus(Times(Plus(Times(part, lanes), lane), kBytesOfDot), step));
    } else {
      // Several blocks side by side.
      const int64_t wanted = most / groups;
      UOp outer;
      int64_t count = 1;
      for (const UOp& r : blocks) {
        const int64_t can =
            r.src(0).IsConst() ? std::min(PowerOfTwoIn(r.src(0).vmax()), wanted) : 1;
        if (can > count) {
          count = can;
          outer = r;
        }
      }
      lanes = groups * count;
      lane = Range(lanes, RangeKind::kVector);
      const UOp within = UOp::Make(Op::kFloorMod, {lane, UOp::Index(groups)});
      map.emplace(along, Plus(Times(within, kBytesOfDot), step));
      if (outer) {
        const UOp rest = Range(outer.src(0).vmax() / count, outer.arg<RangeArg>().kind);
        const UOp beside = UOp::Make(Op::kFloorDiv, {lane, UOp::Index(groups)});
        map.emplace(outer, Plus(Times(rest, count), beside));
        std::replace(blocks.begin(), blocks.end(), outer, rest);
      }
    }
    if (lanes < kLeastLanes) return UOp();
    steps.push_back(step);
    blocks.push_back(lane);
    const auto there = [&](const UOp& u) { return Simplify(Substitute(u, map)); };
    const UOp dots = DotsOver(there(c_.a), there(c_.b), steps, target_);
    UOp sum = dots;
    if (dots_.sum) {
      map.emplace(c_.reduce, dots);
      sum = UOp(Substitute(UOp(dots_.sum.src(0)), map));
    }
    sum = Sum(sum, blocks);
    UOp out = Simplify(Substitute(sink_, {{dots_.sum ? dots_.sum : c_.reduce, sum}}));
    return TileOutputs(out);
  }

 private:
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
  int64_t next_id_;
  int64_t copies_ = 1;
};

}  // namespace

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
  if (!Scales(UOp(out.sum.src(0)), out.c.reduce) || !Exact(out.c)) return std::nullopt;
  out.blocks.assign(ClosedRanges(out.sum).begin(), ClosedRanges(out.sum).end());
  return out;
}

UOp TileByteDots(const UOp& sink, const RangeSets& sets, const ByteDots& dots,
                 const Target& target) {
  std::vector<UOp> adjacent;
  for (const UOp& r : dots.c.inner) {
    const bool fours = r.src(0).IsConst() && r.src(0).vmax() % kBytesOfDot == 0;
    if (fours && AdjacentOver(dots.c.a, r, sets) && AdjacentOver(dots.c.b, r, sets)) {
      adjacent.push_back(r);
    }
  }
  const UOp along = Longest(adjacent);
  if (!along) return UOp();
  return Tiler(sink, sets, dots, target).Along(along);
}

}  // namespace tessera
