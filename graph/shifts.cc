// How far axes shift.
#include "graph/shifts.h"

#include <algorithm>

#include "graph/infer_device.h"

namespace tessera {
namespace {

int64_t Most(const Extent& e) { return std::max<int64_t>(0, e.max()); }

Shift OfShrink(int axis, const Extent& first, int64_t n) {
  Shift s;
  s.axis = axis;
  s.low = std::clamp<int64_t>(first.min(), 0, n);
  s.high = std::clamp<int64_t>(first.max(), s.low, n);
  s.start = first - Extent(s.low);
  if (s.start.max() > s.high - s.low) {  // bounds of an expression that are too wide
    s.start = Extent(UOp::Make(Op::kMin, {s.start.ToUOp(), UOp::Index(s.high - s.low)}));
  }
  return s;
}

// What has so many elements before it in the result, which has n.
Shift OfBefore(int axis, const Extent& before, int64_t n) {
  const int64_t most = std::clamp<int64_t>(before.max(), 0, n);
  Shift s;
  s.axis = axis;
  s.low = -most;
  s.high = -std::clamp<int64_t>(before.min(), 0, most);
  s.start = Extent(most) - before;
  return s;
}

Shift OfFlip(int axis, const Extent& n) {
  Shift s;
  s.axis = axis;
  s.high = Most(n);
  s.low = std::clamp<int64_t>(n.min(), 0, s.high);
  s.turns = true;
  s.start = Extent(s.high) - n;
  return s;
}

}  // namespace

Interval Shift::MayBe(const Interval& piece) const {
  if (turns) return {low - piece.end, high - piece.begin};
  return {piece.begin + low, piece.end + high};
}

Interval Shift::Reads(const Interval& piece, int64_t n) const {
  if (piece.size() == 0) return {0, 0};
  const Interval in = Intersect(MayBe(piece), {0, n});
  return in.size() == 0 ? Interval{0, 0} : in;
}

std::vector<Shift> ShiftsOf(const UOp& u, int k) {
  std::vector<Shift> out;
  if (!u.device().is_sharding()) return out;
  const UOp& src = u.src(k);
  const auto cut = [](const UOp& x, int axis) {
    return x.device().is_sharding() && !x.device().sharding().NestOf(axis).empty();
  };
  if (u.is(Op::kShrink) || u.is(Op::kPad)) {
    const Pairs& pairs = u.arg<Pairs>();
    for (int a = 0; a < u.rank(); ++a) {
      if (!cut(src, a) || KeepsPieces(u.op(), src.shape(), u.shape(), a, pairs)) continue;
      out.push_back(u.is(Op::kPad) ? OfBefore(a, pairs[a].first, Most(u.shape()[a]))
                                   : OfShrink(a, pairs[a].first, Most(src.shape()[a])));
    }
  } else if (u.is(Op::kFlip)) {
    for (int64_t axis : u.arg<Ints>()) {
      const auto a = static_cast<int>(axis);
      if (cut(src, a) && !src.shape()[a].is_int()) out.push_back(OfFlip(a, src.shape()[a]));
    }
  } else if (u.is(Op::kCat)) {
    const auto a = static_cast<int>(u.arg<int64_t>());
    if (!cut(u, a) || !FollowsSymbolic(u.srcs(), a)) return out;
    Extent before(0);
    for (int i = 0; i < k; ++i) before = before + u.src(i).shape()[a];
    out.push_back(OfBefore(a, before, Most(u.shape()[a])));
  }
  return out;
}

}  // namespace tessera
