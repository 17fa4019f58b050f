// Localise: one walk from the leaves up, a rule for each primitive.
#include "schedule/localise.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/callsite.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/lookup.h"
#include "graph/status.h"
#include "schedule/local_shifts.h"
#include "schedule/own_variables.h"

namespace tessera {
namespace {

using How = Placement::Kind;

// A pair of numbers for each piece of an axis.
template <typename Fn>
AxisBoxes Pieces(const AxisBoxes& axis, Fn fn) {
  AxisBoxes out{axis.dims, {}};
  for (const Interval& i : axis.pieces) out.pieces.push_back(fn(i));
  return out;
}

class Localiser : private LocalShifts {
 public:
  absl::StatusOr<Localised> Run(absl::Span<const UOp> roots) {
    const std::vector<UOp> order = TopoSort(roots);
    for (const UOp& r : roots) ++uses_[r.get()];
    for (const UOp& u : order) {
      for (const UOp& s : u.srcs()) ++uses_[s.get()];
    }
    for (const UOp& u : order) {
      // What a node becomes was written where the node was.
      const CallPause pause;
      std::optional<CallScope> site;
      if (u.call_site() != nullptr) site.emplace(*u.call_site());
      UOp made = Local(u);
      if (u.device().is_sharding()) made = Recast(made, LocalShape(u.shape(), u.device()));
      if (!(made == u)) made.SetMarks(u);
      done_.emplace(u.get(), made);
    }
    Localised out;
    for (const UOp& r : roots) out.roots.push_back(done_.at(r.get()));
    out.variables = TakeVariables();
    for (PlaceVariable& v : OwnVariables(out.roots)) out.variables.push_back(std::move(v));
    for (const UOp& u : TopoSort(out.roots)) {
      if (!u.device().is_sharding() || u.device().is_manual()) continue;
      return absl::InternalError(
          absl::StrCat("localise: ", Info(u.op()).text, " is left as ", Describe(u)));
    }
    return out;
  }

 private:
  const UOp& Of(const UOp& u) const { return done_.at(u.get()); }

  // Whether one node reads what this one becomes: others below it may become the same.
  bool ReadOnce(const UOp& node) {
    const UOp made = Of(node);
    for (UOp u = node;; u = UOp(u.src(0))) {
      if (uses_[u.get()] != 1) return false;
      if (u.size() == 0 || !(Of(u.src(0)) == made)) return true;
    }
  }

  // The ALLREDUCE over another shape.
  static UOp Below(const UOp& all_reduce, const UOp& part) {
    const UOp out = UOp::Make(Op::kAllReduce, {part}, all_reduce.arg());
    out.SetMarks(all_reduce);
    return out;
  }

  // ---- the rules

  UOp Local(const UOp& u) {
    if (u.is(Op::kMSelect)) return Selected(u);
    if (u.is(Op::kCopy)) return Copied(u);
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(Of(s));
    if (!u.device().is_sharding()) return WithFixed(u, srcs);
    const Device device = u.device(), manual = ManualOf(device);
    if (IsElementwise(u.op())) {
      for (int i = 0; i < u.size(); ++i) {
        if (u.src(i).device() || (u.src(i).rank() == 0 && u.src(i).size() == 0)) continue;
        srcs[i] = u.src(i).rank() == 0 ? Home(srcs[i], manual) : PartOf(srcs[i], u.shape(), device);
      }
      return u.WithSrcs(srcs);
    }
    if (IsMovement(u.op())) return Moved(u, srcs[0], device);
    switch (u.op()) {
      case Op::kLocal:
      case Op::kGlobal:
        return srcs[0];  // the same bytes, of which shape and placement say something else
      case Op::kPass:
        return Passed(u, srcs[0]);
      case Op::kParam:
        return UOp::Make(Op::kParam, u.dtype(), {},
                         ParamArg{u.arg<ParamArg>().slot, LocalShape(u.shape(), device), manual});
      case Op::kGather:
      case Op::kScatter:
        return LookedUp(u, srcs);
      case Op::kCat:
        return Joined(u);
      case Op::kMStack: {
        const auto boxes = std::make_shared<const Boxes>(PartsOf(u));
        for (int i = 0; i < u.size(); ++i) {
          if (!srcs[i].device()) {
            srcs[i] = UOp::Make(Op::kCopy, {srcs[i]}, Device(device.sharding()[i]));
          }
        }
        return UOp::Make(Op::kExchange, srcs,
                         ExchangeArg{boxes, boxes, LocalShape(u.shape(), device)});
      }
      case Op::kAssign:
        if (!u.src(2).device()) srcs[2] = PartOf(srcs[2], u.src(1).shape(), u.src(1).device());
        return u.WithSrcs(srcs);
      case Op::kReduce:
        return Reduced(u, srcs[0]);
      case Op::kAllReduce: {
        const Mesh mesh = device.sharding().mesh();
        ReduceArg arg{u.arg<ReduceArg>().op, {}};
        for (int64_t d : u.arg<ReduceArg>().axes) {
          if (mesh.dims()[d].size > 1) arg.axes.push_back(d);
        }
        return arg.axes.empty() ? srcs[0] : UOp::Make(Op::kAllReduce, srcs, arg);
      }
      default:
        return u.WithSrcs(srcs);  // CONTIGUOUS, SINK: the same on each place
    }
  }

  UOp Moved(const UOp& u, const UOp& src, const Device& device) {
    switch (MovementOf(u.op())) {
      case Movement::kReshape:
        // Collectives give their results in the shape in which they are read, if by one reader.
        if (src.is(Op::kAllReduce) && ReadOnce(u.src(0))) {
          const UOp part = UOp::Make(u.op(), {src.src(0)}, LocalShape(u.shape(), device));
          return Below(src, part);
        }
        return UOp::Make(u.op(), {src}, LocalShape(u.shape(), device));
      case Movement::kPermute:
        if (src.is(Op::kAllReduce) && ReadOnce(u.src(0))) {
          return Below(src, u.WithSrcs({src.src(0)}));
        }
        return u.WithSrcs({src});
      case Movement::kExpand:
        return UOp::Make(u.op(), {src}, LocalShape(u.shape(), device));
      case Movement::kPad:
        return Padded(u, src);
      case Movement::kShrink:
        return Shrunk(u, src);
      case Movement::kFlip:
        return Flipped(u, src);
      case Movement::kWindow:
        return Windowed(u);
    }
    return {};
  }

  // Extremes of a place that has nothing are the lowest and highest numbers of the dtype, which for
  // f8e4m3 are not those of the f32 in which they are compared.
  UOp Reduced(const UOp& u, const UOp& x) {
    const ReduceArg& arg = u.arg<ReduceArg>();
    const bool extreme = arg.op == Op::kMax || arg.op == Op::kMin;
    if (!extreme || !(u.dtype() == kFloat8E4M3)) return u.WithSrcs({x});
    const UOp wide = UOp::Make(Op::kReduce, {UOp::Make(Op::kCast, kFloat32, {x})}, arg);
    const Scalar end = arg.op == Op::kMax ? LowestScalar(u.dtype()) : HighestScalar(u.dtype());
    const UOp within = UOp::Make(arg.op, {wide, UOp::Const(kFloat32, end)});
    return UOp::Make(Op::kCast, u.dtype(), {within});
  }

  UOp Copied(const UOp& u) {
    const UOp& src = u.src(0);
    const UOp x = Of(src);
    const Device to = u.device();
    if (!src.device().is_sharding() && !to.is_sharding()) return WithFixed(u, {x});
    if (!src.device()) {
      return PartOf(x, u.shape(), to);
    }
    // What is turned over and only then goes elsewhere goes there at once.
    const bool turns = src.is(Op::kFlip) && src.device().is_sharding() && uses_[src.get()] == 1 &&
                       ShiftsOf(src).empty();
    if (turns) return Turned(src, Of(src.src(0)), PartsOf(u));
    return Exchange(x, u.shape(), PartsOf(src), PartsOf(u));
  }

  // Along a mesh dim the places stand one after another on axis 0; each wants another's position.
  UOp Passed(const UOp& u, const UOp& x) {
    const Ints& arg = u.arg<Ints>();
    Boxes from = PartsOf(u), to = from;
    AxisBoxes stand{{static_cast<int>(arg[0])}, {}}, want = stand;
    for (size_t i = 1; i < arg.size(); ++i) {
      const auto place = static_cast<int64_t>(i) - 1;
      stand.pieces.push_back({place, place + 1});
      want.pieces.push_back({arg[i], arg[i] + 1});
    }
    from.axes[0] = std::move(stand);
    to.axes[0] = std::move(want);
    return Exchange(x, u.shape(), from, to);
  }

  UOp Selected(const UOp& u) {
    const UOp& src = u.src(0);
    Boxes to{u.device(), {}};
    for (const Interval& i : PartsOf(src).At(static_cast<int>(u.arg<int64_t>()))) {
      to.axes.push_back({{}, {i}});
    }
    return Exchange(Of(src), src.shape(), PartsOf(src), to);
  }

  // Where the source's elements stand in the result, and how many zeros each place puts around.
  UOp Padded(const UOp& u, const UOp& given) {
    const Boxes from = PartsOf(u.src(0)), to = PartsOf(u);
    Pairs pairs = u.arg<Pairs>();
    const std::vector<Shift> shifts = ShiftsOf(u);
    UOp x = given;
    if (!shifts.empty()) {
      Boxes shifted = from;
      for (const Shift& s : shifts) {
        shifted.axes[s.axis] = to.axes[s.axis];
        pairs[s.axis] = {Extent(0), Extent(0)};
      }
      x = Shifted(given, u.src(0).shape(), from, shifted, shifts, u.shape());
    }
    for (int a = 0; a < u.rank(); ++a) {
      if (from.axes[a].dims.empty() || Whole(pairs[a])) continue;
      const bool symbolic = !u.src(0).shape()[a].is_int() || !u.shape()[a].is_int();
      const int64_t shift = pairs[a].first.value();
      std::vector<int64_t> before, after;
      for (size_t c = 0; c < from.axes[a].pieces.size(); ++c) {
        const Interval in = from.axes[a].pieces[c], out = to.axes[a].pieces[c];
        const bool empty = in.size() == 0;
        const int64_t all = symbolic ? 0 : out.size();  // what has nothing has no begin either
        before.push_back(empty ? all : in.begin + shift - out.begin);
        after.push_back(empty ? 0 : out.end - in.end - shift);
      }
      const Extent first = Number(to.device, to.axes[a], before);
      pairs[a] = {first, Number(to.device, to.axes[a], after)};
      if (!symbolic) continue;
      pairs[a].second = SizeOf(to.device, to.axes[a], u.shape()[a]) - x.shape()[a] - first;
    }
    return UOp::Make(Op::kPad, {x}, pairs);
  }

  static bool Whole(const std::pair<Extent, Extent>& pad) {
    return pad.first.is_int(0) && pad.second.is_int(0);
  }

  UOp Shrunk(const UOp& u, const UOp& x) {
    const Boxes from = PartsOf(u.src(0)), to = PartsOf(u);
    Pairs pairs = u.arg<Pairs>();
    const std::vector<Shift> shifts = ShiftsOf(u);
    for (const Shift& s : shifts) pairs[s.axis] = {Extent(0), u.src(0).shape()[s.axis]};
    for (int a = 0; a < u.rank(); ++a) {
      if (from.axes[a].dims.empty()) {
        pairs[a] = {Fixed(pairs[a].first), Fixed(pairs[a].second)};
        continue;
      }
      if (pairs[a].first.is_int(0) && pairs[a].second == u.src(0).shape()[a]) {
        pairs[a].second = x.shape()[a];
        continue;
      }
      const int64_t lo = pairs[a].first.value();
      std::vector<int64_t> begin;
      for (size_t c = 0; c < from.axes[a].pieces.size(); ++c) {
        const Interval in = from.axes[a].pieces[c], out = to.axes[a].pieces[c];
        begin.push_back(out.size() == 0 ? 0 : out.begin + lo - in.begin);
      }
      const Extent first = Number(to.device, to.axes[a], begin);
      pairs[a] = {first, first + SizeOf(to.device, to.axes[a], u.shape()[a])};
    }
    const UOp cut = UOp::Make(Op::kShrink, {x}, pairs);
    if (shifts.empty()) return cut;
    Boxes kept = to;
    Extents dims = u.shape().ToExtents();
    for (const Shift& s : shifts) {
      kept.axes[s.axis] = from.axes[s.axis];
      dims[s.axis] = u.src(0).shape()[s.axis];
    }
    const Shape shape(dims);
    return Shifted(Recast(cut, ShapeOf(shape, kept)), shape, kept, to, shifts, u.shape());
  }

  // Each place turns its own part; then the parts lie in reverse.
  UOp Flipped(const UOp& u, const UOp& x) { return Turned(u, x, PartsOf(u)); }
  UOp Turned(const UOp& u, const UOp& x, const Boxes& to) {
    const std::vector<Shift> shifts = ShiftsOf(u);
    Boxes turned = PartsOf(u.src(0));
    Ints axes;
    for (int64_t a : u.arg<Ints>()) {
      if (std::any_of(shifts.begin(), shifts.end(), [a](const Shift& s) { return s.axis == a; })) {
        continue;
      }
      axes.push_back(a);
      const int64_t n = u.shape()[static_cast<int>(a)].max();
      turned.axes[a] = Pieces(turned.axes[a], [n](const Interval& i) {
        return Interval{n - i.end, n - i.begin};
      });
    }
    const UOp y = axes.empty() ? x : UOp::Make(Op::kFlip, {x}, axes);
    if (shifts.empty()) return Exchange(y, u.shape(), turned, to);
    return Shifted(y, u.shape(), turned, to, shifts, u.shape());
  }

  // Where the table is cut on the axis that is looked up, positions count from where a place's part
  // begins: it reads and writes what it has, and elsewhere zeros and nothing.
  UOp LookedUp(const UOp& u, absl::InlinedVector<UOp, 4> srcs) {
    constexpr LookupPart kParts[] = {LookupPart::kTable, LookupPart::kIndex, LookupPart::kElements};
    const Lookup l = Lookup::Of(u);
    const Mesh mesh = u.device().sharding().mesh();
    const std::vector<LookupCut> cuts = *CutsOf(l, u.srcs());
    for (int i = 0; i < u.size(); ++i) {
      if (u.src(i).device()) continue;
      srcs[i] = PartOf(srcs[i], u.src(i).shape(), PartSharding(l, kParts[i], mesh, cuts));
    }
    if (!u.src(0).device()) return u.WithSrcs(srcs);
    const Boxes table = PartsOf(u.src(0));
    const AxisBoxes& axis = table.axes[l.axis];
    if (axis.dims.empty()) return u.WithSrcs(srcs);
    std::vector<int64_t> begins;
    for (const Interval& i : axis.pieces) begins.push_back(i.begin);
    const Extent begin = Number(table.device, axis, begins);
    if (!(srcs[1].dtype() == kInt64)) srcs[1] = UOp::Make(Op::kCast, kInt64, {srcs[1]});
    srcs[1] = UOp::Make(Op::kSub, {srcs[1], begin.ToUOp()});
    return u.WithSrcs(srcs);
  }

  // A place gets its part of each piece, and joins those.
  UOp Joined(const UOp& u) {
    const auto axis = static_cast<size_t>(u.arg<int64_t>());
    const Boxes result = PartsOf(u);
    std::vector<UOp> parts;
    int64_t offset = 0;
    bool shifts = false;
    for (int k = 0; k < u.size(); ++k) {
      const UOp& s = u.src(k);
      const bool divided = !result.axes[axis].dims.empty();
      const std::vector<Shift> shift = ShiftsOf(u, k);
      const int64_t n = s.shape()[static_cast<int>(axis)].max();
      Boxes to = PartsOf(s.shape(), u.device().sharding().With(OffAxis(u, axis)));
      if (!shift.empty()) {
        to.axes[axis] = result.axes[axis];
      } else if (divided) {
        to.axes[axis] = Pieces(result.axes[axis], [&](const Interval& i) {
          const Interval in = Intersect({i.begin - offset, i.end - offset}, {0, n});
          return in.size() == 0 ? Interval{0, 0} : in;
        });
      }
      Boxes from = PartsOf(s);
      if (!s.device()) from.device = to.device;
      const UOp x = s.device() ? Of(s) : Home(Of(s), to.device);
      offset += n;
      if (!shift.empty()) {
        shifts = true;
        parts.push_back(Shifted(x, s.shape(), from, to, shift, u.shape()));
        continue;
      }
      UOp part = Exchange(x, s.shape(), from, to);
      parts.push_back(Recast(part, ShapeOf(s.shape(), to)));
    }
    if (shifts) return JoinedAt(u, parts);
    return UOp::Make(Op::kCat, parts, u.arg());
  }
  static std::vector<Placement> OffAxis(const UOp& u, size_t axis) {
    std::vector<Placement> p = u.device().sharding().placements();
    for (Placement& q : p) {
      if (q.ShardsAxis(static_cast<int>(axis))) q = Placement::Replicate();
    }
    return p;
  }

  // ---- windows

  struct Halo {
    AxisBoxes needed;              // of the source, within it
    Extent before, after, length;  // zeros around, and the length with them
  };

  // What each place's positions read on an axis of n elements with `pad` zeros before it.
  Halo HaloOf(Device manual, const AxisBoxes& positions, int64_t n, int64_t pad, int64_t size,
              int64_t stride, int64_t dilation) {
    const int64_t reach = dilation * (size - 1) + 1, slack = std::max<int64_t>(0, reach - stride);
    Halo h;
    h.needed.dims = positions.dims;
    std::vector<int64_t> before, after;
    for (const Interval& y : positions.pieces) {
      const int64_t length = y.size() * stride + slack;
      if (y.size() == 0) {
        h.needed.pieces.push_back({0, 0});
        before.push_back(length);
        after.push_back(0);
        continue;
      }
      const int64_t begin = y.begin * stride - pad;
      const int64_t end = (y.end - 1) * stride + reach - pad;
      const Interval in = Intersect({begin, end}, {0, n});
      h.needed.pieces.push_back(in.size() == 0 ? Interval{0, 0} : in);
      const int64_t front = in.size() == 0 ? length : in.begin - begin;
      before.push_back(front);
      after.push_back(length - front - in.size());
    }
    h.before = Number(manual, positions, before);
    h.after = Number(manual, positions, after);
    h.length = SizeOf(manual, positions) * Extent(stride) + Extent(slack);
    return h;
  }

  // Padding below a window is read as one with it, so that no zeros move.
  UOp Windowed(const UOp& u) {
    const WindowArg& w = u.arg<WindowArg>();
    const Boxes result = PartsOf(u);
    UOp base = u.src(0);
    Pairs pads(base.rank(), {Extent(0), Extent(0)});
    if (base.is(Op::kPad) && base.src(0).device() && !PadsSymbolic(base)) {
      pads = base.arg<Pairs>();
      base = UOp(base.src(0));
    }
    const Boxes from = PartsOf(base);
    Boxes to = from;
    Extents lengths = u.src(0).shape().ToExtents();
    for (int a = 0; a < base.rank(); ++a) {
      const AxisBoxes& out = result.axes[a];
      const auto it = std::find(w.axes.begin(), w.axes.end(), a);
      const size_t i = it - w.axes.begin();
      if (out.dims.empty()) continue;
      const bool windowed = it != w.axes.end();
      if (!windowed && !base.shape()[a].is_int()) {
        to.axes[a] = out;
        lengths[a] = SizeOf(result.device, out, base.shape()[a]);
        continue;
      }
      const int64_t pad = pads[a].first.value(), n = base.shape()[a].value();
      const Halo h = HaloOf(result.device, out, n, pad, windowed ? w.size[i] : 1,
                            windowed ? w.stride[i] : 1, windowed ? w.dilation[i] : 1);
      to.axes[a] = h.needed;
      pads[a] = {h.before, h.after};
      lengths[a] = h.length;
    }
    // Where elements move, those beyond the last window of another axis stay.
    for (size_t i = 0; i < w.axes.size() && !(to == from); ++i) {
      const int a = static_cast<int>(w.axes[i]);
      const Extent &n = base.shape()[a], &windows = u.shape()[a];
      if (!result.axes[a].dims.empty() || !n.is_int() || !windows.is_int()) continue;
      if (!pads[a].first.is_int(0) || !pads[a].second.is_int(0) || windows.value() == 0) continue;
      const int64_t read =
          (windows.value() - 1) * w.stride[i] + (w.size[i] - 1) * w.dilation[i] + 1;
      to.axes[a].pieces[0].end = read;
      lengths[a] = read;
    }
    UOp x = Exchange(Of(base), base.shape(), from, to);
    x = Recast(x, ShapeOf(base.shape(), to));
    const bool none = std::all_of(pads.begin(), pads.end(), [](const auto& p) {
      return p.first.is_int(0) && p.second.is_int(0);
    });
    if (!none) x = UOp::Make(Op::kPad, {x}, pads);
    return UOp::Make(Op::kWindow, {Recast(x, lengths)}, w);
  }

  absl::flat_hash_map<const Node*, int> uses_;
  absl::flat_hash_map<const Node*, UOp> done_;
};

}  // namespace

absl::StatusOr<Localised> Localise(absl::Span<const UOp> roots) { return Localiser().Run(roots); }

bool IsTransfer(const UOp& u) {
  if (u.is(Op::kCopy)) return static_cast<bool>(u.src(0).device());
  return u.is(Op::kExchange) || u.is(Op::kAllReduce) || u.is(Op::kRan);
}

}  // namespace tessera
