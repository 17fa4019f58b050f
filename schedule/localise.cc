// Localise: one walk from the leaves up, a rule for each primitive.
#include "schedule/localise.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/infer.h"
#include "graph/status.h"

namespace tessera {
namespace {

using How = Placement::Kind;

// Numbers by coordinate as extents: a constant where they are all equal, else a multiple of a
// variable, so that an axis and its image under a reshape share one.
class Variables {
 public:
  Extent Of(Device device, absl::Span<const int> dims, const std::vector<int64_t>& values) {
    if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; })) {
      return values[0];
    }
    int64_t g = 0;
    for (int64_t v : values) g = std::gcd(g, v);
    std::vector<int64_t> units;
    for (int64_t v : values) units.push_back(v / g);
    return Extent(g) * Extent(Variable(device, dims, std::move(units)));
  }

  std::vector<PlaceVariable> Take() { return std::move(all_); }

 private:
  UOp Variable(Device device, absl::Span<const int> dims, std::vector<int64_t> units) {
    const Mesh mesh = device.sharding().mesh();
    auto key = std::tuple(device.id(), std::vector<int>(dims.begin(), dims.end()), units);
    const auto [it, fresh] = known_.try_emplace(std::move(key), UOp());
    if (!fresh) return it->second;
    PlaceVariable v{absl::StrCat(kPlaceVariable, all_.size()), device, {}};
    for (int i = 0; i < mesh.size(); ++i) v.values.push_back(units[mesh.CoordinateOver(i, dims)]);
    const auto [low, high] = std::minmax_element(units.begin(), units.end());
    it->second = UOp::Make(Op::kVar, kInt64, {}, VarArg{v.name, *low, *high});
    all_.push_back(std::move(v));
    return it->second;
  }

  std::map<std::tuple<uint64_t, std::vector<int>, std::vector<int64_t>>, UOp> known_;
  std::vector<PlaceVariable> all_;
};

// A pair of numbers for each piece of an axis.
template <typename Fn>
AxisBoxes Pieces(const AxisBoxes& axis, Fn fn) {
  AxisBoxes out{axis.dims, {}};
  for (const Interval& i : axis.pieces) out.pieces.push_back(fn(i));
  return out;
}

class Localiser {
 public:
  absl::StatusOr<Localised> Run(absl::Span<const UOp> roots) {
    const std::vector<UOp> order = TopoSort(roots);
    for (const UOp& r : roots) ++uses_[r.get()];
    for (const UOp& u : order) {
      for (const UOp& s : u.srcs()) ++uses_[s.get()];
    }
    for (const UOp& u : order) {
      UOp made = Local(u);
      if (u.device().is_sharding()) made = Recast(made, LocalShape(u.shape(), u.device()));
      if (!(made == u)) made.SetMarks(u);
      done_.emplace(u.get(), made);
    }
    Localised out;
    for (const UOp& r : roots) out.roots.push_back(done_.at(r.get()));
    out.variables = variables_.Take();
    for (const UOp& u : TopoSort(out.roots)) {
      if (!u.device().is_sharding() || u.device().is_manual()) continue;
      return absl::InternalError(
          absl::StrCat("localise: ", Info(u.op()).text, " is left as ", Describe(u)));
    }
    return out;
  }

 private:
  static Device ManualOf(Device d) {
    return d.is_sharding() ? Device(d.sharding().AllManual()) : d;
  }
  static Boxes PartsOf(const UOp& u) {
    Boxes boxes = BoxesOf(u.shape(), u.device());
    boxes.device = ManualOf(boxes.device);
    return boxes;
  }
  static Boxes PartsOf(const Shape& shape, Device device) {
    Boxes boxes = BoxesOf(shape, device);
    boxes.device = ManualOf(device);
    return boxes;
  }

  Extent SizeOf(Device manual, const AxisBoxes& axis) {
    std::vector<int64_t> sizes;
    for (const Interval& i : axis.pieces) sizes.push_back(i.size());
    return variables_.Of(manual, axis.dims, sizes);
  }
  Extent Number(Device manual, const AxisBoxes& axis, absl::Span<const int64_t> values) {
    return variables_.Of(manual, axis.dims, std::vector<int64_t>(values.begin(), values.end()));
  }

  // The extents of a place's part; those of axes that are not divided as they are.
  Extents LocalShape(const Shape& shape, Device device) {
    Extents out = shape.ToExtents();
    if (!device.is_sharding()) return out;
    const Sharding s = device.sharding();
    for (int a = 0; a < shape.rank(); ++a) {
      if (!shape[a].is_int()) continue;
      const bool divided = std::any_of(s.placements().begin(), s.placements().end(),
                                       [a](const Placement& p) { return p.ShardsAxis(a); });
      if (!divided) continue;
      Extent& known = sizes_.try_emplace({device.id(), a, shape[a].value()}, -1).first->second;
      if (known.is_int(-1)) known = SizeOf(ManualOf(device), PartsOf(shape, device).axes[a]);
      out[a] = known;
    }
    return out;
  }
  Extents ShapeOf(const Shape& shape, const Boxes& boxes) {
    Extents out = shape.ToExtents();
    for (int a = 0; a < shape.rank(); ++a) {
      const AxisBoxes& axis = boxes.axes[a];
      if (!shape[a].is_int()) continue;
      out[a] = axis.dims.empty() ? Extent(axis.pieces[0].size()) : SizeOf(boxes.device, axis);
    }
    return out;
  }

  // The same extents, written as others are.
  UOp Recast(const UOp& u, const Extents& dims) {
    if (u.shape().dims() == absl::MakeConstSpan(dims)) return u;
    Pairs pairs;
    for (const Extent& e : dims) pairs.emplace_back(Extent(0), e);
    return UOp::Make(Op::kShrink, {u}, std::move(pairs));
  }

  const UOp& Of(const UOp& u) const { return done_.at(u.get()); }

  // ---- cutting

  // Elements begin, begin + size of each axis; below the repetitions that it cuts.
  UOp Cut(const UOp& x, const Pairs& parts) {
    bool whole = true;
    for (int a = 0; a < x.rank(); ++a) {
      whole &= parts[a].first.is_int(0) && parts[a].second == x.shape()[a];
    }
    if (whole) return x;
    if (x.is(Op::kExpand)) {
      Pairs below = parts;
      Extents dims;
      for (int a = 0; a < x.rank(); ++a) {
        const bool repeats = !(x.src(0).shape()[a] == x.shape()[a]);
        if (repeats) below[a] = {Extent(0), x.src(0).shape()[a]};
        dims.push_back(parts[a].second);
      }
      return UOp::Make(Op::kExpand, {Cut(x.src(0), below)}, dims);
    }
    Pairs pairs;
    for (int a = 0; a < x.rank(); ++a) {
      pairs.emplace_back(parts[a].first, parts[a].first + parts[a].second);
    }
    return Recast(UOp::Make(Op::kShrink, {x}, pairs), [&] {
      Extents dims;
      for (const auto& [begin, size] : parts) dims.push_back(size);
      return dims;
    }());
  }

  static bool WithinByAxis(const Boxes& from, const Boxes& to) {
    const Mesh mesh = from.device.sharding().mesh();
    for (size_t a = 0; a < to.axes.size(); ++a) {
      if (from.axes[a] == to.axes[a]) continue;
      if (from.axes[a].dims.empty() && from.axes[a].pieces[0].begin == 0) {
        const Interval own = from.axes[a].pieces[0];
        const auto& pieces = to.axes[a].pieces;
        if (std::all_of(pieces.begin(), pieces.end(),
                        [&own](const Interval& i) { return i.begin >= 0 && i.end <= own.end; })) {
          continue;
        }
      }
      const auto [own, want] = Together(mesh, from.axes[a], to.axes[a]);
      for (size_t c = 0; c < own.pieces.size(); ++c) {
        const Interval w = want.pieces[c], o = own.pieces[c];
        if (w.size() > 0 && (w.begin < o.begin || w.end > o.end)) return false;
      }
    }
    return true;
  }

  // Whether every place's part of `to` lies within its part of `from`.
  static bool Within(const Boxes& from, const Boxes& to) {
    if (!(from.device == to.device)) return false;
    // Axis by axis, which does not take longer on more places; else place by place, as one with no
    // element wants nothing of the other axes.
    if (from.device.is_sharding() && WithinByAxis(from, to)) return true;
    const int places = from.device.is_sharding() ? from.device.sharding().size() : 1;
    for (int i = 0; i < places; ++i) {
      const Box a = from.At(i), b = to.At(i);
      if (Volume(b) == 0) continue;
      for (size_t k = 0; k < a.size(); ++k) {
        if (b[k].begin < a[k].begin || b[k].end > a[k].end) return false;
      }
    }
    return true;
  }

  // The mesh dims of two divisions of an axis, and both as functions of the coordinate over them.
  static std::pair<AxisBoxes, AxisBoxes> Together(const Mesh& mesh, const AxisBoxes& a,
                                                  const AxisBoxes& b) {
    std::pair<AxisBoxes, AxisBoxes> out;
    for (int d = 0; d < mesh.ndim(); ++d) {
      const auto has = [d](const AxisBoxes& x) {
        return std::find(x.dims.begin(), x.dims.end(), d) != x.dims.end();
      };
      if (has(a) || has(b)) out.first.dims.push_back(d);
    }
    out.second.dims = out.first.dims;
    int64_t n = 1;
    for (int d : out.first.dims) n *= mesh.dims()[d].size;
    std::vector<int64_t> at(mesh.ndim(), 0);
    for (int64_t c = 0; c < n; ++c) {
      int64_t rest = c;
      for (auto d = out.first.dims.rbegin(); d != out.first.dims.rend(); ++d) {
        at[*d] = rest % mesh.dims()[*d].size;
        rest /= mesh.dims()[*d].size;
      }
      const int place = mesh.IndexAt(at);
      out.first.pieces.push_back(a.pieces[a.dims.empty() ? 0 : mesh.CoordinateOver(place, a.dims)]);
      out.second.pieces.push_back(
          b.pieces[b.dims.empty() ? 0 : mesh.CoordinateOver(place, b.dims)]);
    }
    return out;
  }

  // A place's part of `to` out of its part of `from`, both in one index space.
  UOp CutWithin(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to) {
    const Mesh mesh = to.device.sharding().mesh();
    const Extents sizes = ShapeOf(shape, to);
    Pairs parts;
    for (int a = 0; a < x.rank(); ++a) {
      if (!shape[a].is_int()) {
        parts.emplace_back(Extent(0), x.shape()[a]);
        continue;
      }
      const auto [own, want] = Together(mesh, from.axes[a], to.axes[a]);
      std::vector<int64_t> begins;
      for (size_t c = 0; c < own.pieces.size(); ++c) {
        const bool empty = want.pieces[c].size() == 0;
        begins.push_back(empty ? 0 : want.pieces[c].begin - own.pieces[c].begin);
      }
      parts.emplace_back(Number(to.device, own, begins), sizes[a]);
    }
    return Cut(x, parts);
  }

  // The parts that lie in `from`, as they lie in `to`.
  UOp Exchange(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to) {
    if (from == to) return x;
    if (to.device.is_sharding() && Within(from, to)) return CutWithin(x, shape, from, to);
    Extents dims = to.device.is_sharding() ? ShapeOf(shape, to) : PlainShape(shape, to);
    return UOp::Make(Op::kExchange, {x},
                     ExchangeArg{std::make_shared<const Boxes>(from),
                                 std::make_shared<const Boxes>(to), std::move(dims)});
  }
  static Extents PlainShape(const Shape& shape, const Boxes& to) {
    Extents dims = shape.ToExtents();
    for (int a = 0; a < shape.rank(); ++a) {
      if (shape[a].is_int()) dims[a] = to.axes[a].pieces[0].size();
    }
    return dims;
  }

  // What has no device, computed by each place for itself: should it get a buffer, then one there.
  UOp Home(const UOp& x, Device manual) {
    auto& homed = homed_[manual];
    for (const UOp& u : TopoSort({&x, 1})) {
      if (homed.contains(u.get())) continue;
      UOp made;
      if (u.size() == 0) {
        made = UOp::Make(Op::kCopy, {u}, manual);
      } else {
        // Numbers beside others need no place of their own.
        absl::InlinedVector<UOp, 4> srcs;
        const bool beside = IsElementwise(u.op()) &&
                            std::any_of(u.srcs().begin(), u.srcs().end(),
                                        [](const UOp& s) { return s.size() > 0 || s.rank() > 0; });
        for (const UOp& s : u.srcs()) {
          const bool number = beside && s.size() == 0 && s.rank() == 0;
          srcs.push_back(number ? s : homed.at(s.get()));
        }
        made = u.WithSrcs(srcs);
      }
      homed.emplace(u.get(), made);
    }
    return homed.at(x.get());
  }

  // A place's part of what every place can compute whole.
  UOp PartOf(const UOp& given, const Shape& shape, Device device) {
    const UOp x = Home(given, ManualOf(device));
    Boxes whole = PartsOf(shape, device);
    const Boxes to = whole;
    for (int a = 0; a < shape.rank(); ++a) whole.axes[a] = {{}, {{0, shape[a].max()}}};
    return CutWithin(x, shape, whole, to);
  }

  // ---- the rules

  UOp Local(const UOp& u) {
    if (u.is(Op::kMSelect)) return Selected(u);
    if (u.is(Op::kCopy)) return Copied(u);
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(Of(s));
    if (!u.device().is_sharding()) return u.WithSrcs(srcs);
    const Device device = u.device(), manual = ManualOf(device);
    if (IsElementwise(u.op())) {
      for (int i = 0; i < u.size(); ++i) {
        if (u.src(i).device() || (u.src(i).rank() == 0 && u.src(i).size() == 0)) continue;
        srcs[i] = u.src(i).rank() == 0 ? Home(srcs[i], manual) : PartOf(srcs[i], u.shape(), device);
      }
      return u.WithSrcs(srcs);
    }
    switch (u.op()) {
      case Op::kLocal:
      case Op::kGlobal:
        return srcs[0];  // the same bytes, of which shape and placement say something else
      case Op::kPass:
        return Passed(u, srcs[0]);
      case Op::kParam:
        return UOp::Make(Op::kParam, u.dtype(), {},
                         ParamArg{u.arg<ParamArg>().slot, LocalShape(u.shape(), device), manual});
      case Op::kReshape:
        // Collectives give their results in the shape in which they are read, if by one reader.
        if (srcs[0].is(Op::kAllReduce) && uses_[u.src(0).get()] == 1) {
          const UOp part = UOp::Make(u.op(), {srcs[0].src(0)}, LocalShape(u.shape(), device));
          return UOp::Make(Op::kAllReduce, {part}, srcs[0].arg());
        }
        return UOp::Make(u.op(), srcs, LocalShape(u.shape(), device));
      case Op::kPermute:
        if (srcs[0].is(Op::kAllReduce) && uses_[u.src(0).get()] == 1) {
          return UOp::Make(Op::kAllReduce, {u.WithSrcs({srcs[0].src(0)})}, srcs[0].arg());
        }
        return u.WithSrcs(srcs);
      case Op::kExpand:
        return UOp::Make(u.op(), srcs, LocalShape(u.shape(), device));
      case Op::kPad:
        return Padded(u, srcs[0]);
      case Op::kShrink:
        return Shrunk(u, srcs[0]);
      case Op::kFlip:
        return Flipped(u, srcs[0]);
      case Op::kWindow:
        return Windowed(u);
      case Op::kGather:
        return Gathered(u, srcs[0], srcs[1]);
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
        return u.WithSrcs(srcs);  // REDUCE, CONTIGUOUS
    }
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
    if (!src.device().is_sharding() && !to.is_sharding()) return u.WithSrcs({x});
    if (!src.device()) {
      return PartOf(x, u.shape(), to);
    }
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
  UOp Padded(const UOp& u, const UOp& x) {
    const Boxes from = PartsOf(u.src(0)), to = PartsOf(u);
    Pairs pairs = u.arg<Pairs>();
    for (int a = 0; a < u.rank(); ++a) {
      if (from.axes[a].dims.empty()) continue;
      const int64_t shift = pairs[a].first.value();
      std::vector<int64_t> before, after;
      for (size_t c = 0; c < from.axes[a].pieces.size(); ++c) {
        const Interval in = from.axes[a].pieces[c], out = to.axes[a].pieces[c];
        const bool empty = in.size() == 0;
        before.push_back(empty ? out.size() : in.begin + shift - out.begin);
        after.push_back(empty ? 0 : out.end - in.end - shift);
      }
      pairs[a] = {Number(to.device, to.axes[a], before), Number(to.device, to.axes[a], after)};
    }
    return UOp::Make(Op::kPad, {x}, pairs);
  }

  UOp Shrunk(const UOp& u, const UOp& x) {
    const Boxes from = PartsOf(u.src(0)), to = PartsOf(u);
    Pairs pairs = u.arg<Pairs>();
    for (int a = 0; a < u.rank(); ++a) {
      if (from.axes[a].dims.empty()) continue;
      const int64_t lo = pairs[a].first.value();
      std::vector<int64_t> begin;
      for (size_t c = 0; c < from.axes[a].pieces.size(); ++c) {
        const Interval in = from.axes[a].pieces[c], out = to.axes[a].pieces[c];
        begin.push_back(out.size() == 0 ? 0 : out.begin + lo - in.begin);
      }
      const Extent first = Number(to.device, to.axes[a], begin);
      pairs[a] = {first, first + SizeOf(to.device, to.axes[a])};
    }
    return UOp::Make(Op::kShrink, {x}, pairs);
  }

  // Each place turns its own part; then the parts lie in reverse.
  UOp Flipped(const UOp& u, const UOp& x) {
    Boxes turned = PartsOf(u.src(0));
    for (int64_t a : u.arg<Ints>()) {
      const int64_t n = u.shape()[static_cast<int>(a)].max();
      turned.axes[a] = Pieces(turned.axes[a], [n](const Interval& i) {
        return Interval{n - i.end, n - i.begin};
      });
    }
    return Exchange(u.WithSrcs({x}), u.shape(), turned, PartsOf(u));
  }

  UOp Gathered(const UOp& u, const UOp& table_part, const UOp& index_part) {
    const Device manual = ManualOf(u.device());
    const UOp x = u.src(0).device() ? table_part : Home(table_part, manual);
    const UOp index = u.src(1).device() ? index_part : Home(index_part, manual);
    const auto axis = static_cast<size_t>(u.arg<int64_t>());
    if (!u.src(0).device()) return u.WithSrcs({x, index});
    const Boxes table = PartsOf(u.src(0));
    if (table.axes[axis].dims.empty()) return u.WithSrcs({x, index});
    // A place looks up what it has; elsewhere it reads zeros.
    std::vector<int64_t> begins;
    for (const Interval& i : table.axes[axis].pieces) begins.push_back(i.begin);
    const Extent begin = Number(table.device, table.axes[axis], begins);
    UOp wide = index.dtype() == kInt64 ? index : UOp::Make(Op::kCast, kInt64, {index});
    wide = UOp::Make(Op::kSub, {wide, begin.ToUOp()});
    return UOp::Make(Op::kGather, {x, wide}, u.arg());
  }

  // A place gets its part of each piece, and joins those.
  UOp Joined(const UOp& u) {
    const auto axis = static_cast<size_t>(u.arg<int64_t>());
    const Boxes result = PartsOf(u);
    std::vector<UOp> parts;
    int64_t offset = 0;
    for (const UOp& s : u.srcs()) {
      const bool divided = !result.axes[axis].dims.empty();
      const int64_t n = s.shape()[static_cast<int>(axis)].max();
      Boxes to = PartsOf(s.shape(), u.device().sharding().With(OffAxis(u, axis)));
      if (divided) {
        to.axes[axis] = Pieces(result.axes[axis], [&](const Interval& i) {
          const Interval in = Intersect({i.begin - offset, i.end - offset}, {0, n});
          return in.size() == 0 ? Interval{0, 0} : in;
        });
      }
      Boxes from = PartsOf(s);
      if (!s.device()) from.device = to.device;
      const UOp x = s.device() ? Of(s) : Home(Of(s), to.device);
      UOp part = Exchange(x, s.shape(), from, to);
      parts.push_back(Recast(part, ShapeOf(s.shape(), to)));
      offset += n;
    }
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
    if (base.is(Op::kPad) && base.src(0).device()) {
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
      const int64_t pad = pads[a].first.value(), n = base.shape()[a].value();
      const Halo h = HaloOf(result.device, out, n, pad, windowed ? w.size[i] : 1,
                            windowed ? w.stride[i] : 1, windowed ? w.dilation[i] : 1);
      to.axes[a] = h.needed;
      pads[a] = {h.before, h.after};
      lengths[a] = h.length;
    }
    UOp x = Exchange(Of(base), base.shape(), from, to);
    x = Recast(x, ShapeOf(base.shape(), to));
    const bool none = std::all_of(pads.begin(), pads.end(), [](const auto& p) {
      return p.first.is_int(0) && p.second.is_int(0);
    });
    if (!none) x = UOp::Make(Op::kPad, {x}, pads);
    return UOp::Make(Op::kWindow, {Recast(x, lengths)}, w);
  }

  Variables variables_;
  std::map<std::tuple<uint64_t, int, int64_t>, Extent> sizes_;  // by device, axis and extent
  absl::flat_hash_map<const Node*, int> uses_;
  absl::flat_hash_map<const Node*, UOp> done_;
  absl::flat_hash_map<Device, absl::flat_hash_map<const Node*, UOp>> homed_;
};

}  // namespace

absl::StatusOr<Localised> Localise(absl::Span<const UOp> roots) { return Localiser().Run(roots); }

bool IsTransfer(const UOp& u) {
  if (u.is(Op::kCopy)) return static_cast<bool>(u.src(0).device());
  return u.is(Op::kExchange) || u.is(Op::kAllReduce);
}

}  // namespace tessera
