// Extents by place, and parts of parts.
#include "schedule/local_parts.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "graph/infer.h"
#include "graph/simplify.h"
#include "schedule/pointwise.h"

namespace tessera {
namespace {

// The mesh dims of two divisions of an axis, and both as functions of the coordinate over them.
std::pair<AxisBoxes, AxisBoxes> Together(const Mesh& mesh, const AxisBoxes& a, const AxisBoxes& b) {
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
    out.second.pieces.push_back(b.pieces[b.dims.empty() ? 0 : mesh.CoordinateOver(place, b.dims)]);
  }
  return out;
}

Extents PlainShape(const Shape& shape, const Boxes& to) {
  Extents dims = shape.ToExtents();
  for (int a = 0; a < shape.rank(); ++a) {
    dims[a] = PartBelow(to.axes[a].pieces[0], Fixed(shape[a]));
  }
  return dims;
}

bool WithinByAxis(const Boxes& from, const Boxes& to) {
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
bool Within(const Boxes& from, const Boxes& to) {
  if (!(from.device == to.device)) return false;
  // Axis by axis, which does not take longer on more places; else place by place, as one with no
  // element wants nothing of the other axes.
  if (from.device.is_sharding() && WithinByAxis(from, to)) return true;
  const int places = from.device.is_sharding() ? from.device.sharding().size() : 1;
  bool any = false;  // where none wants an element there is nothing to cut its part from
  for (int i = 0; i < places; ++i) {
    const Box a = from.At(i), b = to.At(i);
    if (Volume(b) == 0) continue;
    any = true;
    for (size_t k = 0; k < a.size(); ++k) {
      if (b[k].begin < a[k].begin || b[k].end > a[k].end) return false;
    }
  }
  return any;
}

}  // namespace

Extent Fixed(const Extent& e) { return !e.is_int() && e.min() == e.max() ? Extent(e.min()) : e; }

Extents Fixed(Extents dims) {
  for (Extent& e : dims) e = Fixed(e);
  return dims;
}

UOp WithFixed(const UOp& u, absl::Span<const UOp> srcs) {
  bool fixed = false;
  ForEachArgUOp(u.arg(), [&fixed](const UOp& e) { fixed |= e.vmin() == e.vmax(); });
  if (!fixed) return u.WithSrcs(srcs);
  Arg arg = u.arg();
  if (auto* extents = std::get_if<Extents>(&arg.value)) {
    *extents = Fixed(std::move(*extents));
  } else if (auto* pairs = std::get_if<Pairs>(&arg.value)) {
    for (auto& [a, b] : *pairs) a = Fixed(a), b = Fixed(b);
  } else if (auto* param = std::get_if<ParamArg>(&arg.value)) {
    param->shape = Fixed(std::move(param->shape));
  }
  return UOp::Make(u.op(), u.dtype(), srcs, std::move(arg));
}

Extent PlaceVariables::Of(Device device, absl::Span<const int> dims,
                          const std::vector<int64_t>& values) {
  if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; })) {
    return values[0];
  }
  int64_t g = 0;
  for (int64_t v : values) g = std::gcd(g, v);
  std::vector<int64_t> units;
  for (int64_t v : values) units.push_back(v / g);
  return Extent(g) * Extent(Variable(device, dims, std::move(units)));
}

UOp PlaceVariables::Variable(Device device, absl::Span<const int> dims,
                             std::vector<int64_t> units) {
  const Mesh mesh = device.sharding().mesh();
  const Key key(device.id(), std::vector<int>(dims.begin(), dims.end()), units, nullptr);
  const auto [it, fresh] = known_.try_emplace(key, UOp());
  if (!fresh) return it->second;
  PlaceVariable v;
  v.mesh = device;
  for (int i = 0; i < mesh.size(); ++i) v.values.push_back(units[mesh.CoordinateOver(i, dims)]);
  const auto [low, high] = std::minmax_element(units.begin(), units.end());
  return it->second = Add(std::move(v), *low, *high);
}

UOp PlaceVariables::Add(PlaceVariable v, int64_t low, int64_t high) {
  v.name = absl::StrCat(kPlaceVariable, all_.size());
  v.variable = UOp::Make(Op::kVar, kInt64, {}, VarArg{v.name, low, high});
  all_.push_back(std::move(v));
  return all_.back().variable;
}

Extent PlaceVariables::Below(Device device, absl::Span<const int> dims,
                             absl::Span<const Interval> pieces, const Extent& within) {
  std::vector<int64_t> most, least;
  bool same = true;
  for (const Interval& i : pieces) {
    most.push_back(Intersect(i, {0, within.max()}).size());
    least.push_back(Intersect(i, {0, std::max<int64_t>(0, within.min())}).size());
    same &= i == pieces[0];
  }
  if (most == least) return Of(device, dims, most);
  if (same) return PartBelow(pieces[0], within);
  // In units of what divides everything, so that an axis and its image under a reshape share one.
  Sum sum = ToSum(within.ToUOp());
  int64_t unit = std::abs(sum.constant);
  for (const Sum::Term& t : sum.terms) unit = std::gcd(unit, t.factor);
  for (const Interval& i : pieces) unit = std::gcd(unit, std::gcd(i.begin, i.end));
  sum.constant /= unit;
  for (Sum::Term& t : sum.terms) t.factor /= unit;
  const Extent limit(Simplify(FromSum(sum, kInt64)));
  std::vector<int64_t> ends;
  for (const Interval& i : pieces) {
    ends.push_back(i.begin / unit);
    ends.push_back(i.end / unit);
  }
  const UOp expr = limit.ToUOp();
  const Key key(device.id(), std::vector<int>(dims.begin(), dims.end()), ends, expr.get());
  const auto [it, fresh] = known_.try_emplace(key, UOp());
  if (!fresh) return Extent(unit) * Extent(it->second);
  PlaceVariable v;
  v.mesh = device;
  v.within = limit;
  const Mesh mesh = device.sharding().mesh();
  for (int i = 0; i < mesh.size(); ++i) {
    const int64_t c = mesh.CoordinateOver(i, dims);
    v.pieces.push_back({ends[2 * c], ends[2 * c + 1]});
    v.values.push_back(most[c] / unit);
  }
  const int64_t low = *std::min_element(least.begin(), least.end()) / unit;
  const int64_t high = *std::max_element(most.begin(), most.end()) / unit;
  it->second = Add(std::move(v), low, high);
  return Extent(unit) * Extent(it->second);
}

Device LocalParts::ManualOf(Device d) {
  return d.is_sharding() ? Device(d.sharding().AllManual()) : d;
}

Boxes LocalParts::PartsOf(const UOp& u) {
  Boxes boxes = BoxesOf(u.shape(), u.device());
  boxes.device = ManualOf(boxes.device);
  return boxes;
}

Boxes LocalParts::PartsOf(const Shape& shape, Device device) {
  Boxes boxes = BoxesOf(shape, device);
  boxes.device = ManualOf(device);
  return boxes;
}

Extent LocalParts::SizeOf(Device manual, const AxisBoxes& axis) {
  std::vector<int64_t> sizes;
  for (const Interval& i : axis.pieces) sizes.push_back(i.size());
  return variables_.Of(manual, axis.dims, sizes);
}

Extent LocalParts::SizeOf(Device manual, const AxisBoxes& axis, const Extent& given) {
  const Extent extent = Fixed(given);
  if (extent.is_int()) return SizeOf(manual, axis);
  return variables_.Below(manual, axis.dims, axis.pieces, extent);
}

Extent LocalParts::Number(Device manual, const AxisBoxes& axis, absl::Span<const int64_t> values) {
  return variables_.Of(manual, axis.dims, std::vector<int64_t>(values.begin(), values.end()));
}

Extents LocalParts::LocalShape(const Shape& shape, Device device) {
  Extents out = Fixed(shape.ToExtents());
  if (!device.is_sharding()) return out;
  const Sharding s = device.sharding();
  for (int a = 0; a < shape.rank(); ++a) {
    const bool divided = std::any_of(s.placements().begin(), s.placements().end(),
                                     [a](const Placement& p) { return p.ShardsAxis(a); });
    if (!divided) continue;
    const int64_t number = shape[a].is_int() ? shape[a].value() : -1;
    const auto key = std::tuple(device.id(), a, number, shape[a].expr().get());
    Extent& known = sizes_.try_emplace(key, -1).first->second;
    if (known.is_int(-1))
      known = SizeOf(ManualOf(device), PartsOf(shape, device).axes[a], shape[a]);
    out[a] = known;
  }
  return out;
}

Extents LocalParts::ShapeOf(const Shape& shape, const Boxes& boxes) {
  Extents out = shape.ToExtents();
  for (int a = 0; a < shape.rank(); ++a) {
    const AxisBoxes& axis = boxes.axes[a];
    out[a] = axis.dims.empty() ? PartBelow(axis.pieces[0], Fixed(shape[a]))
                               : SizeOf(boxes.device, axis, shape[a]);
  }
  return out;
}

UOp LocalParts::Recast(const UOp& u, const Extents& dims) {
  if (u.shape().dims() == absl::MakeConstSpan(dims)) return u;
  Pairs pairs;
  for (const Extent& e : dims) pairs.emplace_back(Extent(0), e);
  return UOp::Make(Op::kShrink, {u}, std::move(pairs));
}

UOp LocalParts::Cut(const UOp& x, const Pairs& parts) {
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

UOp LocalParts::CutBelow(const UOp& x, const Pairs& parts) {
  const auto elementwise = [](const UOp& u) {
    return (IsElementwise(u.op()) || u.is(Op::kContiguous)) && u.size() > 0;
  };
  return PartThrough(x, elementwise,
                     [&](const UOp& u) { return u.rank() == 0 ? u : Cut(u, parts); });
}

Pairs LocalParts::PartsWithin(const Shape& shape, const Boxes& from, const Boxes& to) {
  const Mesh mesh = to.device.sharding().mesh();
  const Extents sizes = ShapeOf(shape, to);
  Pairs parts;
  for (int a = 0; a < shape.rank(); ++a) {
    const auto [own, want] = Together(mesh, from.axes[a], to.axes[a]);
    std::vector<int64_t> begins;
    for (size_t c = 0; c < own.pieces.size(); ++c) {
      const bool empty = want.pieces[c].size() == 0;
      begins.push_back(empty ? 0 : want.pieces[c].begin - own.pieces[c].begin);
    }
    parts.emplace_back(Number(to.device, own, begins), sizes[a]);
  }
  return parts;
}

UOp LocalParts::CutWithin(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to) {
  return Cut(x, PartsWithin(shape, from, to));
}

UOp LocalParts::Exchange(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to) {
  if (from == to) return x;
  if (to.device.is_sharding() && Within(from, to)) return CutWithin(x, shape, from, to);
  Extents dims = to.device.is_sharding() ? ShapeOf(shape, to) : PlainShape(shape, to);
  return UOp::Make(Op::kExchange, {x},
                   ExchangeArg{std::make_shared<const Boxes>(from),
                               std::make_shared<const Boxes>(to), std::move(dims)});
}

UOp LocalParts::Home(const UOp& x, Device manual) {
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

UOp LocalParts::PartOf(const UOp& given, const Shape& shape, Device device) {
  const UOp x = Home(given, ManualOf(device));
  Boxes whole = PartsOf(shape, device);
  const Boxes to = whole;
  for (int a = 0; a < shape.rank(); ++a) whole.axes[a] = {{}, {{0, shape[a].max()}}};
  return CutBelow(x, PartsWithin(shape, whole, to));
}

}  // namespace tessera
