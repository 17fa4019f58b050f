// Axis maps through movement ops and reductions.
#include "schedule/axis_map.h"

#include <algorithm>

#include "graph/hash.h"
#include "graph/lookup.h"

namespace tessera {
namespace {

// An id for "some expression of these": its top bit keeps it apart from loop ids.
uint64_t ExpressionId(const Node* node, size_t axis, uint64_t of) {
  return HashAll(node, axis, of) | uint64_t{1} << 63;
}

bool IsLoop(const AxisLoop& a) { return a.id != 0 && a.id >> 63 == 0; }

}  // namespace

uint64_t AxisMap::Mask() const {
  uint64_t mask = 0;
  for (const AxisLoop& a : axes) mask |= a.mask;
  return mask;
}

bool AxisMap::OneToOne(int loops) const {
  const uint64_t own = loops < 63 ? (uint64_t{1} << loops) - 1 : ~uint64_t{0};
  uint64_t seen = 0;
  for (const AxisLoop& a : axes) {
    if (a.id == 0) continue;
    const bool plain = a.id <= static_cast<uint64_t>(loops);
    if ((!plain && !a.one_loop) || (a.mask & ~own) || (seen & a.mask)) return false;
    seen |= a.mask;
  }
  return true;
}

AxisMap IdentityMap(const Shape& shape) {
  AxisMap map;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i].is_int(1)) {
      map.axes.push_back({});
    } else {
      map.axes.push_back({static_cast<uint64_t>(i) + 1, uint64_t{1} << std::min(i, 62)});
    }
  }
  return map;
}

absl::InlinedVector<ReshapeGroup, 4> ReshapeGroups(const Shape& in, const Shape& out) {
  absl::InlinedVector<ReshapeGroup, 4> groups;
  int i = 0, o = 0;
  while (i < in.rank() || o < out.rank()) {
    ReshapeGroup g{i, i, o, o};
    // Extent products with symbolic factors are compared as expressions, never by value.
    Extent pi = 1, po = 1;
    if (i < in.rank()) pi = in[i++];
    if (o < out.rank()) po = out[o++];
    while (!(pi == po)) {
      const bool numbers = pi.is_int() && po.is_int();
      const bool take_in =
          i < in.rank() &&
          (o == out.rank() || (numbers ? pi.value() < po.value() : pi.max() < po.max()));
      if (take_in) {
        pi = pi * in[i++];
      } else if (o < out.rank()) {
        po = po * out[o++];
      } else {
        break;
      }
    }
    if (i == in.rank()) o = out.rank();  // trailing axes of extent 1
    if (o == out.rank()) i = in.rank();
    g.in_end = i;
    g.out_end = o;
    groups.push_back(g);
  }
  return groups;
}

namespace {

using Axes = absl::InlinedVector<AxisLoop, 4>;

Axes BelowPermute(const UOp& u, const AxisMap& map) {
  Axes out(u.rank());
  const Ints& order = u.arg<Ints>();
  for (int i = 0; i < u.rank(); ++i) out[order[i]] = map.axes[i];
  return out;
}

Axes BelowExpand(const UOp& u, const AxisMap& map) {
  Axes out;
  for (int i = 0; i < u.rank(); ++i) {
    out.push_back(u.src(0).shape()[i].is_int(1) ? AxisLoop{} : map.axes[i]);
  }
  return out;
}

Axes BelowReshape(const UOp& u, const AxisMap& map) {
  const Shape& from = u.src(0).shape();
  Axes out(from.rank());
  for (const ReshapeGroup& g : ReshapeGroups(from, u.shape())) {
    // Axes of extent 1 do not count: one real axis on each side passes through.
    int in_axis = -1, out_axis = -1, ins = 0, outs = 0;
    uint64_t mask = 0, id = 0;
    for (int i = g.in_begin; i < g.in_end; ++i) {
      if (!from[i].is_int(1)) in_axis = i, ++ins;
    }
    for (int o = g.out_begin; o < g.out_end; ++o) {
      if (!u.shape()[o].is_int(1)) out_axis = o, ++outs;
      mask |= map.axes[o].mask;
      id = HashAll(id, map.axes[o].id);
    }
    if (ins == 1 && outs == 1) {
      out[in_axis] = map.axes[out_axis];
      continue;
    }
    for (int i = g.in_begin; i < g.in_end; ++i) {
      if (!from[i].is_int(1)) out[i] = {ExpressionId(u.get(), i, id), mask};
    }
  }
  return out;
}

// A loop that comes so many places after the kernel's own.
AxisLoop LoopAfter(const Shape& loops, int64_t place) {
  const auto loop = static_cast<uint64_t>(std::min<int64_t>(62, loops.rank() + place));
  return {loop + 1, uint64_t{1} << loop};
}

Axes BelowReduce(const UOp& u, const AxisMap& map, const Shape& loops) {
  const Shape& from = u.src(0).shape();
  Axes out = map.axes;
  for (int64_t a : u.arg<ReduceArg>().axes) {
    if (from[a].is_int(1)) continue;
    const bool own = a < loops.rank() && loops[a] == from[a] && !(map.Mask() >> a & 1);
    out[a] = LoopAfter(loops, own ? a - loops.rank() : a);
  }
  return out;
}

Axes BelowGather(const UOp& u, int s, const AxisMap& map) {
  const Lookup l = Lookup::Of(u);
  const int rank = u.src(s).rank();
  Axes out;
  if (s == 1) {
    for (int i = 0; i < rank; ++i) out.push_back(map.axes[l.FromIndex(i)]);
    return out;
  }
  AxisLoop gathered;
  for (int i = 0; i < l.index_rank; ++i) {
    const AxisLoop& of_index = map.axes[l.FromIndex(i)];
    gathered.mask |= of_index.mask;
    gathered.id = HashAll(gathered.id, of_index.id);
  }
  gathered.id = ExpressionId(u.get(), l.axis, gathered.id);
  for (int i = 0; i < rank; ++i) {
    out.push_back(i == l.axis ? gathered : map.axes[l.FromTable(i)]);
  }
  return out;
}

// The index's own axes are loops beside the base's.
Axes BelowScatter(const UOp& u, int s, const AxisMap& map, const Shape& loops) {
  if (s == 0) return map.axes;
  const Lookup l = Lookup::Of(u);
  const Shape& from = u.src(s).shape();
  Axes out;
  for (int i = 0; i < from.rank(); ++i) {
    const int e = s == 1 ? l.FromIndex(i) : i;
    out.push_back(!l.IsOwn(e)         ? map.axes[l.ToTable(e)]
                  : from[i].is_int(1) ? AxisLoop{}
                                      : LoopAfter(loops, e - l.axis));
  }
  return out;
}

Axes BelowWindow(const UOp& u, const AxisMap& map) {
  const WindowArg& w = u.arg<WindowArg>();
  const int rank = u.src(0).rank();
  Axes out(map.axes.begin(), map.axes.begin() + rank);
  for (size_t i = 0; i < w.axes.size(); ++i) {
    AxisLoop& a = out[w.axes[i]];
    const AxisLoop& within = map.axes[rank + i];
    if (within.id == 0 && w.stride[i] == 1) continue;
    a = {ExpressionId(u.get(), i, HashAll(a.id, within.id)), a.mask | within.mask};
  }
  return out;
}

// Below PAD, SHRINK, FLIP or CAT: axes that it changes are indexed by expressions; outside of what
// the source covers, where there is an outside, its values are not asked for.
AxisMap BelowMoved(const UOp& u, int s, const AxisMap& map) {
  const Shape& from = u.src(s).shape();
  AxisMap out = map;
  for (int i = 0; i < from.rank(); ++i) {
    bool same = from[i] == u.shape()[i];
    if (u.is(Op::kFlip)) {
      const Ints& f = u.arg<Ints>();
      same = std::find(f.begin(), f.end(), i) == f.end();
    }
    if (same) continue;
    AxisLoop& a = out.axes[i];
    const bool moved = u.is(Op::kShrink) || u.is(Op::kFlip);
    const bool one_loop = moved && (a.one_loop || IsLoop(a));
    a = from[i].is_int(1) && u.is(Op::kShrink)
            ? AxisLoop{}
            : AxisLoop{ExpressionId(u.get(), i * 16 + s, a.id), a.mask, one_loop};
    if (!u.is(Op::kShrink)) out.gate = HashAll(out.gate, a.id);
  }
  return out;
}

AxisMap BelowMovement(const UOp& u, const AxisMap& map) {
  switch (MovementOf(u.op())) {
    case Movement::kPermute:
      return {BelowPermute(u, map), map.gate};
    case Movement::kExpand:
      return {BelowExpand(u, map), map.gate};
    case Movement::kReshape:
      return {BelowReshape(u, map), map.gate};
    case Movement::kWindow:
      return {BelowWindow(u, map), map.gate};
    case Movement::kPad:
    case Movement::kShrink:
    case Movement::kFlip:
      return BelowMoved(u, 0, map);
  }
  return map;
}

}  // namespace

AxisMap SourceMap(const UOp& u, int s, const AxisMap& map, const Shape& loops) {
  if (IsElementwise(u.op())) {
    const bool alike = u.src(s).rank() == static_cast<int>(map.axes.size());
    return {alike ? map.axes : Axes(), map.gate};
  }
  if (IsMovement(u.op())) return BelowMovement(u, map);
  switch (u.op()) {
    case Op::kReduce:
      return {BelowReduce(u, map, loops), map.gate};
    case Op::kGather:
      return {BelowGather(u, s, map), map.gate};
    case Op::kScatter:
      return {BelowScatter(u, s, map, loops), map.gate};
    case Op::kCat:
      return BelowMoved(u, s, map);
    default:  // CONTIGUOUS, COPY, the value of an ASSIGN: element by element
      return map;
  }
}

bool RunsAlongMemory(const UOp& reduce) {
  constexpr size_t kMostNodes = 64;  // as values are asked again and again
  const UOp value = reduce.src(0);
  uint64_t reduced = 0;
  for (const int64_t a : reduce.arg<ReduceArg>().axes) reduced |= uint64_t{1} << a;
  std::vector<std::pair<UOp, AxisMap>> stack = {{value, IdentityMap(value.shape())}};
  absl::flat_hash_set<const Node*> seen;
  bool reads = false;
  while (!stack.empty()) {
    const auto [u, map] = std::move(stack.back());
    stack.pop_back();
    if (!seen.insert(u.get()).second) continue;
    if (seen.size() > kMostNodes) return true;
    const bool inside = !u.is(Op::kReduce) && !u.is(Op::kContiguous);
    if (inside && Info(u.op()).cls != OpClass::kLeaf) {
      for (int s = 0; s < u.size(); ++s) {
        stack.emplace_back(u.src(s), SourceMap(u, s, map, value.shape()));
      }
      continue;
    }
    if (u.shape().MaxElements() < value.shape().MaxElements() / 2) continue;  // it is not most
    int last = u.rank() - 1;
    while (last >= 0 && u.shape()[last].is_int(1)) --last;
    if (last < 0) continue;
    if (map.axes[last].mask & reduced) return true;
    reads = true;
  }
  return !reads;
}

bool VariesOnAxis(const UOp& value, int axis) {
  UOp u = value;
  for (;;) {
    if (u.rank() == 0 || u.shape()[axis].is_int(1)) return false;
    switch (u.op()) {
      case Op::kExpand:
        if (u.src(0).shape()[axis].is_int(1)) return false;
        u = UOp(u.src(0));
        break;
      case Op::kPermute:
        axis = static_cast<int>(u.arg<Ints>()[axis]);
        u = UOp(u.src(0));
        break;
      case Op::kCast:
        u = UOp(u.src(0));
        break;
      case Op::kReshape: {
        const UOp src = u.src(0);
        int next = -1;
        for (const ReshapeGroup& g : ReshapeGroups(src.shape(), u.shape())) {
          if (axis < g.out_begin || axis >= g.out_end) continue;
          int ins = 0, outs = 0;
          for (int i = g.in_begin; i < g.in_end; ++i) {
            if (!src.shape()[i].is_int(1)) next = i, ++ins;
          }
          for (int o = g.out_begin; o < g.out_end; ++o) outs += !u.shape()[o].is_int(1);
          if (ins != 1 || outs != 1) return true;
        }
        if (next < 0) return true;
        axis = next;
        u = src;
        break;
      }
      default:
        return true;
    }
  }
}

}  // namespace tessera
