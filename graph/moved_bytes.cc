// Each node's result asks for boxes of its sources.
#include "graph/moved_bytes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/box.h"
#include "graph/infer_device.h"
#include "graph/shifts.h"
#include "graph/walk.h"

namespace tessera {
namespace {

// A box axis with each piece replaced by what fn makes of it, if it is not empty.
template <typename Fn>
void MapPieces(AxisBoxes& axis, Fn fn) {
  for (Interval& i : axis.pieces) i = i.size() == 0 ? Interval{0, 0} : fn(i);
}

Interval Overlap(const Interval& a, const Interval& b) {
  const Interval both = Intersect(a, b);
  return both.size() == 0 ? Interval{0, 0} : both;
}

int64_t Lacking(const UOp& src, const Boxes& wanted) {
  return src.device() ? MovedElements(BoxesOf(src.shape(), src.device()), wanted) : 0;
}

// Zeros around the source are everywhere.
int64_t OfWindow(const UOp& u, Boxes wanted) {
  const WindowArg& w = u.arg<WindowArg>();
  const UOp& src = u.src(0);
  wanted.axes.resize(src.rank());
  for (size_t i = 0; i < w.axes.size(); ++i) {
    MapPieces(wanted.axes[w.axes[i]], [&](const Interval& p) {
      const int64_t reach = w.dilation[i] * (w.size[i] - 1) + 1;
      return Interval{p.begin * w.stride[i], (p.end - 1) * w.stride[i] + reach};
    });
  }
  for (int a = 0; a < src.rank() && src.is(Op::kPad) && !PadsSymbolic(src); ++a) {
    const auto& [before, after] = src.arg<Pairs>()[a];
    const Interval inside = {before.max(), src.shape()[a].max() - after.max()};
    MapPieces(wanted.axes[a], [&](const Interval& p) { return Overlap(p, inside); });
  }
  return Lacking(src, wanted);
}

// All that an element may be, for any value of the variables.
void MapShifted(const UOp& u, int k, Boxes& wanted) {
  for (const Shift& s : ShiftsOf(u, k)) {
    const int64_t n = std::max<int64_t>(0, u.src(k).shape()[s.axis].max());
    MapPieces(wanted.axes[s.axis], [&](const Interval& p) { return s.Reads(p, n); });
  }
}

// Axes that keep their pieces are cut before, and padded after.
int64_t OfPadOrShrink(const UOp& u, const Boxes& result) {
  const std::vector<Shift> shifts = ShiftsOf(u);
  if (shifts.empty()) return 0;
  const Boxes source = BoxesOf(u.src(0).shape(), u.src(0).device());
  Boxes from = u.is(Op::kShrink) ? result : source, wanted = from;
  for (const Shift& s : shifts) {
    from.axes[s.axis] = source.axes[s.axis];
    wanted.axes[s.axis] = result.axes[s.axis];
  }
  MapShifted(u, 0, wanted);
  return MovedElements(from, wanted);
}

int64_t OfFlip(const UOp& u, Boxes wanted) {
  for (int64_t a : u.arg<Ints>()) {
    if (!u.shape()[static_cast<int>(a)].is_int()) continue;
    const int64_t n = u.shape()[static_cast<int>(a)].max();
    MapPieces(wanted.axes[a], [n](const Interval& p) { return Interval{n - p.end, n - p.begin}; });
  }
  MapShifted(u, 0, wanted);
  return Lacking(u.src(0), wanted);
}

int64_t OfCat(const UOp& u, const Boxes& result) {
  const auto axis = static_cast<size_t>(u.arg<int64_t>());
  int64_t moved = 0, first = 0;
  for (int k = 0; k < u.size(); ++k) {
    const UOp& src = u.src(k);
    const int64_t n = src.shape()[static_cast<int>(axis)].max();
    Boxes wanted = result;
    if (!ShiftsOf(u, k).empty()) {
      MapShifted(u, k, wanted);
      moved += Lacking(src, wanted);
      continue;
    }
    MapPieces(wanted.axes[axis], [&](const Interval& p) {
      return Overlap({p.begin - first, p.end - first}, {0, n});
    });
    moved += Lacking(src, wanted);
    first += n;
  }
  return moved;
}

int64_t OfAllReduce(const UOp& u) {
  const Boxes boxes = BoxesOf(u.shape(), u.device());
  const Ints& axes = u.arg<ReduceArg>().axes;
  int64_t moved = 0;
  for (const auto& group :
       u.device().sharding().mesh().Groups(std::vector<int>(axes.begin(), axes.end()))) {
    moved += 2 * (static_cast<int64_t>(group.size()) - 1) * Volume(boxes.At(group[0]));
  }
  return moved;
}

// Every place that wants another's value lacks all of it.
int64_t OfPass(const UOp& u) {
  const Mesh mesh = u.device().sharding().mesh();
  const Ints& arg = u.arg<Ints>();
  const Boxes boxes = BoxesOf(u.shape(), u.device());
  int64_t moved = 0;
  for (int i = 0; i < mesh.size(); ++i) {
    const int64_t own = mesh.Coordinates(i)[arg[0]];
    if (arg[1 + own] != own) moved += Volume(boxes.At(i));
  }
  return moved;
}

int64_t OfSelect(const UOp& u) {
  const UOp& src = u.src(0);
  Boxes there{u.device(), {}};
  for (const Interval& i :
       BoxesOf(src.shape(), src.device()).At(static_cast<int>(u.arg<int64_t>()))) {
    there.axes.push_back({{}, {i}});
  }
  return Lacking(src, there);
}

int64_t Elements(const UOp& u) {
  if (!u.device()) return 0;
  if (u.is(Op::kMSelect)) return OfSelect(u);
  if (u.is(Op::kCopy)) return Lacking(u.src(0), BoxesOf(u.shape(), u.device()));
  if (!u.device().is_sharding()) return 0;
  if (u.is(Op::kAllReduce) || u.is(Op::kPass)) return CollectiveElements(u);
  if (u.is(Op::kWindow)) return OfWindow(u, BoxesOf(u.shape(), u.device()));
  if (u.is(Op::kPad) || u.is(Op::kShrink)) {
    return OfPadOrShrink(u, BoxesOf(u.shape(), u.device()));
  }
  if (u.is(Op::kFlip)) return OfFlip(u, BoxesOf(u.shape(), u.device()));
  if (u.is(Op::kCat)) return OfCat(u, BoxesOf(u.shape(), u.device()));
  return 0;
}

}  // namespace

int64_t CollectiveElements(const UOp& u) { return u.is(Op::kPass) ? OfPass(u) : OfAllReduce(u); }

int64_t MovedBytes(absl::Span<const UOp> roots) {
  int64_t bytes = 0;
  WalkDown(roots, [&](const UOp& u) {
    if (u.realized() || bytes == INT64_MAX) return false;
    int64_t more = 0;
    if (__builtin_mul_overflow(Elements(u), u.dtype().bytes(), &more) ||
        __builtin_add_overflow(bytes, more, &bytes)) {
      bytes = INT64_MAX;
    }
    return bytes != INT64_MAX;
  });
  return bytes;
}

}  // namespace tessera
