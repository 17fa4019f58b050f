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

// What an element is where the variables that its axes begin by are lowest, and where they are
// highest: between these lies all that it may be.
int64_t OfBegins(const UOp& u, const Boxes& to) {
  const UOp& src = u.src(0);
  const int sign = u.is(Op::kPad) ? -1 : 1;
  const Pairs& pairs = u.arg<Pairs>();
  const auto moves = [&](int a) {
    return !src.device().sharding().DimsOf(a).empty() &&
           !KeepsPieces(u.op(), src.shape(), u.shape(), a, pairs);
  };
  Box inside;
  bool any = false;
  for (int a = 0; a < u.rank(); ++a) {
    any |= moves(a);
    // Elsewhere no place lacks what its own part shows.
    inside.push_back(moves(a) ? Interval{0, src.shape()[a].max()} : Interval{INT64_MIN, INT64_MAX});
  }
  if (!any) return 0;
  return Lacking(
      src, to,
      [&](const At& at, const auto& fn) {
        for (const bool highest : {false, true}) {
          At s = at;
          for (int a = 0; a < u.rank(); ++a) {
            const Extent& first = pairs[a].first;
            const bool fixed = src.device().sharding().DimsOf(a).empty();
            const int64_t most = sign < 0 ? u.shape()[a].max() : src.shape()[a].max();
            const int64_t begin = highest ? first.max() : first.min();
            if (!fixed) s[a] += sign * std::clamp<int64_t>(begin, 0, most);
          }
          fn(s);
        }
      },
      inside);
}

int64_t OfFlip(const UOp& u, const Boxes& to) {
  Box inside;
  for (const Extent& e : u.shape()) inside.push_back({0, e.max()});
  return Lacking(
      u.src(0), to,
      [&](const At& at, const auto& fn) {
        At s = at, t = at;
        for (int64_t a : u.arg<Ints>()) {
          const Extent& n = u.shape()[static_cast<int>(a)];
          const bool cut = !u.device().sharding().DimsOf(static_cast<int>(a)).empty();
          s[a] = n.max() - 1 - at[a];
          t[a] = (cut ? n.min() : n.max()) - 1 - at[a];
        }
        fn(s);
        fn(t);
      },
      inside);
}

int64_t OfCat(const UOp& u, const Boxes& to) {
  const auto axis = static_cast<size_t>(u.arg<int64_t>());
  const bool cut = !u.device().sharding().DimsOf(static_cast<int>(axis)).empty();
  int64_t moved = 0;
  Extent begin(0);
  for (const UOp& src : u.srcs()) {
    Box inside;
    for (const Extent& e : src.shape()) inside.push_back({0, e.max()});
    const auto needs = [&](const At& at, const auto& fn) {
      At s = at, t = at;
      s[axis] -= begin.max();
      t[axis] -= cut ? begin.min() : begin.max();
      if (t[axis] < 0 || s[axis] >= inside[axis].end) return;
      fn(s);
      fn(t);
    };
    moved += Lacking(src, to, needs, inside);
    begin = begin + src.shape()[static_cast<int>(axis)];
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
  if (u.is(Op::kPad) || u.is(Op::kShrink)) return u.src(0).device() ? OfBegins(u, to) : 0;
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
