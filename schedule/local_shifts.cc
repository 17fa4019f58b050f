// A place gets all that its elements may be, with zeros to one length for all values, and picks its
// own.
#include "schedule/local_shifts.h"

namespace tessera {

UOp LocalShifts::Shifted(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to,
                         absl::Span<const Shift> shifts, const Shape& result) {
  Boxes needed = to;
  std::vector<std::vector<int64_t>> before(shifts.size());
  for (size_t i = 0; i < shifts.size(); ++i) {
    const Shift& s = shifts[i];
    const int64_t n = std::max<int64_t>(0, shape[s.axis].max());
    for (Interval& piece : needed.axes[s.axis].pieces) {
      const Interval all = s.MayBe(piece), in = s.Reads(piece, n);
      before[i].push_back(in.size() == 0 ? piece.size() + s.high - s.low : in.begin - all.begin);
      piece = in;
    }
  }
  UOp y = Recast(Exchange(x, shape, from, needed), ShapeOf(shape, needed));
  Pairs pads(y.rank(), {Extent(0), Extent(0)}), own;
  Extents lengths = y.shape().ToExtents();
  Ints turned;
  for (const Extent& e : lengths) own.emplace_back(Extent(0), e);
  for (size_t i = 0; i < shifts.size(); ++i) {
    const Shift& s = shifts[i];
    const AxisBoxes& axis = to.axes[s.axis];
    const Extent first = Number(to.device, axis, before[i]);
    lengths[s.axis] = SizeOf(to.device, axis) + Extent(s.high - s.low);
    pads[s.axis] = {first, lengths[s.axis] - y.shape()[s.axis] - first};
    own[s.axis] = {s.start, s.start + SizeOf(to.device, axis, result[s.axis])};
    if (s.turns) turned.push_back(s.axis);
  }
  y = Recast(UOp::Make(Op::kPad, {y}, pads), lengths);
  if (!turned.empty()) y = UOp::Make(Op::kFlip, {y}, turned);
  return UOp::Make(Op::kShrink, {y}, own);
}

UOp LocalShifts::JoinedAt(const UOp& cat, absl::Span<const UOp> parts) {
  const auto axis = static_cast<int>(cat.arg<int64_t>());
  const Extents dims = LocalShape(cat.shape(), cat.device());
  const Boxes boxes = PartsOf(cat);
  std::vector<int64_t> begins;
  for (const Interval& i : boxes.axes[axis].pieces) begins.push_back(i.begin);
  const Extent begin = Number(boxes.device, boxes.axes[axis], begins);
  // Where each element of a place stands in the whole.
  Extents line(cat.rank(), Extent(1));
  line[axis] = dims[axis];
  const UOp iota = UOp::Make(Op::kIota, kInt64, {}, Extents{dims[axis]});
  UOp at = UOp::Make(Op::kAdd, {Home(iota, boxes.device), begin.ToUOp()});
  at = UOp::Make(Op::kExpand, {UOp::Make(Op::kReshape, {at}, line)}, dims);
  UOp out = Recast(parts.back(), dims);
  Extent end = cat.shape()[axis];
  for (int k = cat.size() - 2; k >= 0; --k) {
    end = end - cat.src(k + 1).shape()[axis];
    const UOp below = UOp::Make(Op::kCmpLt, {at, end.ToUOp()});
    out = UOp::Make(Op::kWhere, {below, Recast(parts[k], dims), out});
  }
  return out;
}

}  // namespace tessera
