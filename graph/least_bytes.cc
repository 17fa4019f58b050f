// Counting position by position, with nothing of what plans are made by but where parts lie.
#include "graph/least_bytes.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

#include "graph/box.h"
#include "graph/infer_device.h"
#include "graph/moved_bytes.h"

namespace tessera {
namespace {

using At = std::vector<int64_t>;

// Calls fn for every position of a box.
void ForEach(const Box& box, const std::function<void(const At&)>& fn) {
  if (Volume(box) == 0) return;
  At at;
  for (const Interval& i : box) at.push_back(i.begin);
  for (;;) {
    fn(at);
    int a = static_cast<int>(at.size()) - 1;
    for (; a >= 0; --a) {
      if (++at[a] < box[a].end) break;
      at[a] = box[a].begin;
    }
    if (a < 0) return;
  }
}

bool Holds(const Box& box, const At& at) {
  for (size_t a = 0; a < at.size(); ++a) {
    if (at[a] < box[a].begin || at[a] >= box[a].end) return false;
  }
  return true;
}

int PlaceOf(Device device, const Place& place) {
  const auto places = device.places();
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == place) return static_cast<int>(i);
  }
  return -1;
}

// Symbolic extents count with their highest values.

// Elements of `src` that places lack for their parts of a result; `needs` gives the positions that
// one of its elements is made of. A box moves, with what steps
// leave out of it.
using Needs = std::function<void(const At&, const std::function<void(const At&)>&)>;
int64_t Lacking(const UOp& src, const Boxes& result, const Needs& needs, const Box& inside = {}) {
  if (!src.device()) return 0;
  const Boxes from = BoxesOf(src.shape(), src.device());
  int64_t moved = 0;
  for (size_t i = 0; i < result.device.places().size(); ++i) {
    const int own = PlaceOf(src.device(), result.device.places()[i]);
    Box needed(src.rank(), Interval{INT64_MAX, INT64_MIN});
    ForEach(result.At(static_cast<int>(i)), [&](const At& at) {
      needs(at, [&](const At& s) {
        for (size_t a = 0; a < s.size(); ++a) {
          needed[a].begin = std::min(needed[a].begin, s[a]);
          needed[a].end = std::max(needed[a].end, s[a] + 1);
        }
      });
    });
    if (src.rank() > 0 && needed[0].begin == INT64_MAX) continue;
    for (size_t a = 0; a < inside.size(); ++a) needed[a] = Intersect(needed[a], inside[a]);
    ForEach(needed, [&](const At& s) { moved += own < 0 || !Holds(from.At(own), s); });
  }
  return moved;
}

void Same(const At& at, const std::function<void(const At&)>& fn) { fn(at); }

// Zeros around the source are everywhere.
int64_t OfWindow(const UOp& u, const Boxes& to) {
  const WindowArg& w = u.arg<WindowArg>();
  const UOp& src = u.src(0);
  Box inside;
  for (int a = 0; a < src.rank() && src.is(Op::kPad) && !PadsSymbolic(src); ++a) {
    const auto& [before, after] = src.arg<Pairs>()[a];
    inside.push_back({before.max(), src.shape()[a].max() - after.max()});
  }
  return Lacking(
      src, to,
      [&](const At& at, const auto& fn) {
        At s(at.begin(), at.begin() + src.rank());
        for (size_t i = 0; i < w.axes.size(); ++i) {
          s[w.axes[i]] = at[w.axes[i]] * w.stride[i] + at[src.rank() + i] * w.dilation[i];
        }
        fn(s);
      },
      inside);
}

int64_t OfFlip(const UOp& u, const Boxes& to) {
  return Lacking(u.src(0), to, [&](const At& at, const auto& fn) {
    At s = at;
    for (int64_t a : u.arg<Ints>()) s[a] = u.shape()[static_cast<int>(a)].max() - 1 - s[a];
    fn(s);
  });
}

int64_t OfCat(const UOp& u, const Boxes& to) {
  const auto axis = static_cast<size_t>(u.arg<int64_t>());
  int64_t moved = 0, begin = 0;
  for (const UOp& src : u.srcs()) {
    const int64_t n = src.shape()[static_cast<int>(axis)].max();
    moved += Lacking(src, to, [&](const At& at, const auto& fn) {
      At s = at;
      s[axis] -= begin;
      if (s[axis] >= 0 && s[axis] < n) fn(s);
    });
    begin += n;
  }
  return moved;
}

int64_t Elements(const UOp& u) {
  if (!u.device() || (!u.device().is_sharding() && !u.is(Op::kCopy) && !u.is(Op::kMSelect))) {
    return 0;
  }
  const Boxes to = BoxesOf(u.shape(), u.device());
  if (u.is(Op::kCopy)) return Lacking(u.src(0), to, Same);
  if (u.is(Op::kMSelect)) {
    const UOp& src = u.src(0);
    const Box part = BoxesOf(src.shape(), src.device()).At(static_cast<int>(u.arg<int64_t>()));
    Boxes there{u.device(), {}};
    for (const Interval& i : part) there.axes.push_back({{}, {i}});
    return Lacking(src, there, Same);
  }
  if (u.is(Op::kAllReduce) || u.is(Op::kPass)) return CollectiveElements(u);
  if (u.is(Op::kWindow)) return OfWindow(u, to);
  if (u.is(Op::kFlip)) return OfFlip(u, to);
  if (u.is(Op::kCat)) return OfCat(u, to);
  return 0;
}

}  // namespace

std::optional<int64_t> LeastBytes(absl::Span<const UOp> roots, int64_t most) {
  std::set<const Node*> seen;
  std::vector<UOp> stack(roots.begin(), roots.end());
  int64_t bytes = 0;
  while (!stack.empty()) {
    const UOp u = std::move(stack.back());
    stack.pop_back();
    if (u.realized() || !seen.insert(u.get()).second) continue;
    if (u.device()) {
      const auto places = static_cast<int64_t>(u.device().places().size());
      const int64_t elements = u.shape().MaxElements();
      if (elements > most / places) return std::nullopt;
      most -= elements * places;
    }
    bytes += Elements(u) * u.dtype().bytes();
    for (const UOp& s : u.srcs()) stack.push_back(s);
  }
  return bytes;
}

}  // namespace tessera
