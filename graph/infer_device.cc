// Placements through the primitives.
#include "graph/infer_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/infer.h"
#include "graph/lookup.h"
#include "graph/own_extent.h"
#include "graph/status.h"

namespace tessera {
namespace {

using How = Placement::Kind;

// ---- the rules

// Takes the placements apart by axis, and puts them together under new axes.
class Rule {
 public:
  Rule(const UOp& src, const Shape& shape)
      : src_(src),
        shape_(shape),
        sharding_(src.device().sharding()),
        out_(sharding_.placements()) {}

  const Sharding& sharding() const { return sharding_; }
  std::vector<Placement>& out() { return out_; }

  void Set(int axis, const Placement& p) {
    for (int d : sharding_.DimsOf(axis)) out_[d] = p;
  }
  // Pieces of a source's axis become the same pieces of the result's axis.
  void Rename(int axis, int to) {
    for (int d : sharding_.DimsOf(axis)) out_[d] = Placement::Shard(to, sharding_(d).layout);
  }
  void SetNest(int axis, int to, const Nest& nest) {
    const std::vector<int> dims = sharding_.DimsOf(axis);
    for (size_t i = 0; i < dims.size(); ++i) out_[dims[i]] = Placement::Shard(to, nest[i].layout);
  }
  Device Result() const { return CanonicalSharding(shape_, sharding_.With(out_)); }
  const UOp& src() const { return src_; }
  const Shape& shape() const { return shape_; }

 private:
  const UOp& src_;
  const Shape& shape_;
  const Sharding sharding_;
  std::vector<Placement> out_;
};

absl::StatusOr<Device> PadOrShrink(Rule& r, Op op, const Pairs& pairs) {
  for (int a = 0; a < r.src().rank(); ++a) {
    const Nest nest = r.sharding().NestOf(a);
    const auto& [first, second] = pairs[a];
    const Extent& n = r.src().shape()[a];
    const bool whole =
        op == Op::kPad ? first.is_int(0) && second.is_int(0) : first.is_int(0) && second == n;
    if (nest.empty() || whole) continue;
    if (!KeepsPieces(op, r.src().shape(), r.shape(), a, pairs)) {
      r.Set(a, Placement::Shard(a));
      continue;
    }
    const int64_t lo = op == Op::kPad ? -first.value() : first.value();
    if (nest[0].layout.kind() == Layout::Kind::kClip) {
      int64_t begin = 0, end = 0;
      if (__builtin_add_overflow(nest[0].layout.lo(), lo, &begin) ||
          __builtin_add_overflow(begin, ExtentOf(r.shape(), a), &end)) {
        return Misplaced("axis ", a, " lies too far from the pieces that it was cut into");
      }
    }
    Nest cut = nest;
    cut[0].layout = Layout::Clip(nest[0].layout, n.max(), lo, lo + ExtentOf(r.shape(), a));
    r.SetNest(a, a, cut);
  }
  return r.Result();
}

// What is laid out by its bound is not read in windows, but of its bound.
absl::Status RefuseSymbolic(const Rule& r, int axis) {
  if (r.src().shape()[axis].is_int() || r.sharding().DimsOf(axis).empty()) return absl::OkStatus();
  return Misplaced("axis ", axis, " of ", Describe(r.src()),
                   " is sharded and symbolic; .To(...) a device that does not shard it first");
}

// Balanced, or under Sizes and Aligned the positions lie where their window begins.
absl::StatusOr<Device> Windowed(Rule& r, const WindowArg& w) {
  for (size_t i = 0; i < w.axes.size(); ++i) {
    const int a = static_cast<int>(w.axes[i]);
    const Nest nest = r.sharding().NestOf(a);
    if (nest.empty() || (w.size[i] == 1 && w.stride[i] == 1)) continue;
    RETURN_IF_ERROR(RefuseSymbolic(r, a));
    Nest out = nest;
    bool follows = false;
    for (NestLevel& l : out) {
      follows |=
          l.layout.kind() == Layout::Kind::kSizes || l.layout.kind() == Layout::Kind::kAligned;
      l.layout = Layout();
    }
    if (follows) {
      Cut cut = CutAxis(nest, ExtentOf(r.src().shape(), a));
      const int64_t positions = ExtentOf(r.shape(), a);
      for (int64_t& b : cut) b = std::min(positions, (b + w.stride[i] - 1) / w.stride[i]);
      cut.back() = positions;
      absl::InlinedVector<int64_t, 2> parts;
      for (const NestLevel& l : nest) parts.push_back(l.parts);
      if (const auto layouts = WriteCut(parts, cut)) {
        for (size_t k = 0; k < out.size(); ++k) out[k].layout = (*layouts)[k];
      }
    }
    r.SetNest(a, a, out);
  }
  return r.Result();
}

absl::StatusOr<Device> Reduced(Rule& r, const ReduceArg& arg) {
  for (int64_t a : arg.axes) r.Set(static_cast<int>(a), Placement::Partial(arg.op));
  return r.Result();
}

absl::StatusOr<Device> AllReduced(Rule& r, const ReduceArg& arg) {
  for (int64_t d : arg.axes) {
    if (d < 0 || d >= r.sharding().mesh().ndim()) return Misplaced("the mesh has no dim ", d);
    Placement& p = r.out()[d];
    if (!p.is(How::kPartial) && !p.is(How::kManual)) {
      return Misplaced("mesh dim ", r.sharding().mesh().DimName(static_cast<int>(d)), " is ",
                       p.ToString(), ", which needs no reduction");
    }
    if (p.is(How::kPartial)) {
      if (p.op != arg.op) return Misplaced("combines by ", Info(p.op).text);
      p = Placement::Replicate();
    }
  }
  return r.Result();
}

// What one place looks up or writes along the axis is its part; where the index is divided, a place
// has some of the updates only.
absl::StatusOr<Device> LookedUp(Op op, absl::Span<const UOp> srcs, const Arg& arg,
                                const Shape& shape) {
  ASSIGN_OR_RETURN(const Lookup l, Lookup::Of(op, srcs, arg));
  ASSIGN_OR_RETURN(const std::vector<LookupCut> cuts, CutsOf(l, srcs));
  const auto with_device = std::find_if(srcs.begin(), srcs.end(),
                                        [](const UOp& s) { return static_cast<bool>(s.device()); });
  const Mesh mesh = with_device->device().sharding().mesh();
  const bool gathers = op == Op::kGather;
  std::vector<Placement> out =
      PartSharding(l, gathers ? LookupPart::kElements : LookupPart::kTable, mesh, cuts)
          .placements();
  for (size_t d = 0; d < cuts.size(); ++d) {
    if (gathers && cuts[d].axis == Lookup::kTarget) out[d] = Placement::Partial(Op::kWhere);
    if (gathers || !l.IsOwn(cuts[d].axis)) continue;
    const Op combine = std::get<ReduceArg>(arg.value).op;
    if (combine == Op::kAssign) {
      return Misplaced("the index is sharded, and of updates of one element the last must win; ",
                       "replicate it with .To(...)");
    }
    out[d] = Placement::Partial(combine);
  }
  return Device(CanonicalSharding(shape, Sharding(mesh, std::move(out))));
}

// One mesh for all sources that have a device.
absl::Status CheckMeshes(absl::Span<const UOp> srcs) {
  const UOp* first = nullptr;
  for (const UOp& s : srcs) {
    if (!s.device()) continue;
    if (first == nullptr) first = &s;
    if (s.device().is_sharding() && first->device().is_sharding() &&
        s.device().sharding().mesh() == first->device().sharding().mesh()) {
      continue;
    }
    if (s.device() == first->device()) continue;
    return Misplaced("the operands are on different devices, ", first->device().ToString(), " and ",
                     s.device().ToString(), "; move one of them with .To(...)");
  }
  return absl::OkStatus();
}

// Sources of which each holds the same part of its axes; what differs in rank or has no device
// follows. `free_axis` may differ.
absl::StatusOr<Device> Alike(absl::Span<const UOp> srcs, const Shape& shape) {
  const UOp* first = nullptr;
  for (const UOp& s : srcs) {
    if (!s.device()) continue;
    if (first == nullptr || (first->rank() == 0 && s.rank() > 0)) first = &s;
  }
  for (const UOp& s : srcs) {
    if (!s.device() || s.device() == first->device()) continue;
    if (s.rank() == 0 ? !s.device().sharding().Has(How::kPartial)
                      : SamePlacement(shape, s.device(), first->device())) {
      continue;
    }
    return Misplaced("the operands are sharded in different ways, ", first->device().ToString(),
                     " and ", s.device().ToString(), "; reshard one of them with .To(...)");
  }
  // The form that sorts first, whichever operand has it.
  std::optional<Sharding> best;
  for (const UOp& s : srcs) {
    if (!s.device() || s.rank() != first->rank()) continue;
    const Sharding form = CanonicalSharding(shape, s.device().sharding());
    if (!best || form.placements() < best->placements()) best = form;
  }
  return Device(*best);
}

// On the joined axis every piece may be cut as it likes, by the same mesh dims; the result is
// Balanced.
absl::StatusOr<Device> Joined(absl::Span<const UOp> srcs, int axis, const Shape& shape) {
  std::optional<Sharding> out;
  const auto without_axis = [axis](const Sharding& s) {
    std::vector<Placement> p = s.placements();
    for (Placement& q : p) {
      if (q.ShardsAxis(axis)) q = Placement::Replicate();
    }
    return s.With(std::move(p));
  };
  std::vector<bool> joins;
  for (const UOp& s : srcs) {
    if (!s.device()) continue;
    const Sharding sharding = s.device().sharding();
    joins.resize(sharding.mesh().ndim());
    for (int d : sharding.DimsOf(axis)) joins[d] = true;
    const Sharding rest = without_axis(sharding);
    if (!out) out = rest;
    if (!SamePlacement(s.shape(), rest, *out)) {
      return Misplaced("the pieces are sharded in different ways, ", out->ToString(), " and ",
                       sharding.ToString(), "; reshard one of them with .To(...)");
    }
  }
  std::vector<Placement> p = out->placements();
  for (size_t d = 0; d < joins.size(); ++d) {
    if (!joins[d]) continue;
    if (!p[d].is(How::kReplicate)) {
      return Misplaced("mesh dim ", d, " shards two axes of the result");
    }
    p[d] = Placement::Shard(axis);
  }
  return Device(CanonicalSharding(shape, out->With(std::move(p))));
}

absl::StatusOr<Device> Stacked(absl::Span<const UOp> srcs, Device to, const Shape& shape) {
  if (!to.is_sharding()) return Misplaced("stacks to a Sharding, not to ", to.ToString());
  const Sharding s = to.sharding();
  RETURN_IF_ERROR(CheckPlacement(shape, s));
  if (static_cast<int>(srcs.size()) != s.size()) {
    return Misplaced(s.ToString(), " has ", s.size(), " places for ", srcs.size(), " shards");
  }
  const Boxes boxes = BoxesOf(shape, to);
  for (int i = 0; i < s.size(); ++i) {
    const Box box = boxes.At(i);
    bool fits = srcs[i].rank() == shape.rank();
    for (int a = 0; fits && a < shape.rank(); ++a) fits = srcs[i].shape()[a].is_int(box[a].size());
    if (!fits)
      return Misplaced("shard ", i, " is ", Describe(srcs[i]), ", which is not its part of ",
                       Describe(srcs[i].dtype(), shape, to));
    if (srcs[i].device() && !(srcs[i].device() == Device(s[i]))) {
      return Misplaced("shard ", i, " is on ", srcs[i].device().ToString(), ", not on ",
                       s[i].ToString());
    }
  }
  return to;
}

absl::StatusOr<Device> OfReshape(Rule& r) {
  std::vector<int> lost;
  const Sharding image = ReshapeImage(r.src().shape(), r.sharding(), r.shape(), &lost);
  if (lost.empty()) return Device(image);
  return Misplaced("the pieces of axis ", r.sharding()(lost[0]).axis, " of ", Describe(r.src()),
                   " are not pieces of ", r.shape().ToString(), "; reshard it first with .To(...)");
}

absl::StatusOr<Device> OfExpand(Rule& r) {
  for (int a = 0; a < r.src().rank(); ++a) {
    if (r.src().shape()[a] == r.shape()[a] || r.sharding().DimsOf(a).empty()) continue;
    return Misplaced("axis ", a, " of ", Describe(r.src()), " is sharded; replicate it first");
  }
  return r.Result();
}

absl::Status RefusePartial(Op op, absl::Span<const UOp> srcs) {
  if (op == Op::kAllReduce) return absl::OkStatus();
  for (const UOp& s : srcs) {
    if (s.device().is_sharding() && s.device().sharding().Has(How::kPartial)) {
      return Misplaced("takes a value that is partial (", s.device().ToString(),
                       "), which only an ALLREDUCE may read");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Device> OfMovement(Rule& r, Op op, const Arg& arg) {
  switch (MovementOf(op)) {
    case Movement::kReshape:
      return OfReshape(r);
    case Movement::kExpand:
      return OfExpand(r);
    case Movement::kPermute: {
      const Ints& order = std::get<Ints>(arg.value);
      for (size_t i = 0; i < order.size(); ++i) {
        r.Rename(static_cast<int>(order[i]), static_cast<int>(i));
      }
      return r.Result();
    }
    case Movement::kPad:
    case Movement::kShrink:
      return PadOrShrink(r, op, std::get<Pairs>(arg.value));
    case Movement::kFlip:
      for (int64_t a : std::get<Ints>(arg.value)) {
        r.Set(static_cast<int>(a), Placement::Shard(static_cast<int>(a)));
      }
      return r.Result();
    case Movement::kWindow:
      return Windowed(r, std::get<WindowArg>(arg.value));
  }
  return Device();
}

}  // namespace

absl::Status CheckPlacement(const Shape& shape, const Sharding& sharding) {
  for (const Placement& p : sharding.placements()) {
    if (p.is(How::kShard) && p.axis >= shape.rank()) {
      return Misplaced("there is no axis ", p.axis, " to shard in ", shape.ToString());
    }
  }
  for (int a = 0; a < shape.rank(); ++a) {
    const Nest nest = sharding.NestOf(a);
    if (nest.empty()) continue;
    if (absl::Status s = CheckNest(nest, ExtentOf(shape, a)); !s.ok()) {
      return Misplaced("axis ", a, " of ", shape.ToString(), " cannot be sharded as ",
                       sharding.ToString(), ": ", s.message());
    }
  }
  return absl::OkStatus();
}

bool PadsSymbolic(const UOp& pad) {
  for (int a = 0; a < pad.rank(); ++a) {
    const auto& [before, after] = pad.arg<Pairs>()[a];
    if (before.is_int(0) && after.is_int(0)) continue;
    if (!pad.shape()[a].is_int() || !pad.src(0).shape()[a].is_int()) return true;
  }
  return false;
}

bool FollowsSymbolic(absl::Span<const UOp> pieces, int axis) {
  return std::any_of(pieces.begin(), pieces.end() - 1,
                     [axis](const UOp& p) { return !p.shape()[axis].is_int(); });
}

// Boundaries never move with a variable: the end may, the begin may not.
bool KeepsPieces(Op op, const Shape& from, const Shape& to, int axis, const Pairs& pairs) {
  const Extent& first = pairs[axis].first;
  if (!first.is_int()) return false;
  return op == Op::kPad || first.value() + ExtentOf(to, axis) <= ExtentOf(from, axis);
}

Device DeviceWithin(const Shape& shape, Device device, absl::Span<const Extent> extents) {
  if (!device.is_sharding()) return device;
  const Sharding s = device.sharding();
  std::vector<Placement> out = s.placements();
  for (int a = 0; a < shape.rank(); ++a) {
    const std::vector<int> dims = s.DimsOf(a);
    if (dims.empty() || shape[a] == extents[a]) continue;
    Layout& outermost = out[dims[0]].layout;
    outermost = Layout::Clip(outermost, ExtentOf(shape, a), 0, extents[a].value());
  }
  return CanonicalSharding(Shape(Extents(extents.begin(), extents.end())), s.With(std::move(out)));
}

bool SamePlacement(const Shape& shape, Device a, Device b) {
  if (a == b) return true;
  if (!a.is_sharding() || !b.is_sharding()) return false;
  const Sharding x = a.sharding(), y = b.sharding();
  if (!(x.mesh() == y.mesh())) return false;
  for (int d = 0; d < x.mesh().ndim(); ++d) {
    const Placement &p = x(d), &q = y(d);
    if (p.kind != q.kind || p.axis != q.axis || p.op != q.op) return false;
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Nest nx = x.NestOf(axis), ny = y.NestOf(axis);
    bool same = true;
    for (size_t i = 0; i < nx.size(); ++i) same &= nx[i].layout == ny[i].layout;
    const int64_t n = ExtentOf(shape, axis);
    if (same) continue;
    if (!CheckNest(nx, n).ok() || !CheckNest(ny, n).ok() || CutAxis(nx, n) != CutAxis(ny, n)) {
      return false;
    }
  }
  return true;
}

Sharding CanonicalSharding(const Shape& shape, const Sharding& sharding) {
  std::vector<Placement> out = sharding.placements();
  bool changed = false;
  for (int a = 0; a < shape.rank(); ++a) {
    const std::vector<int> dims = sharding.DimsOf(a);
    bool plain = true;
    for (int d : dims) plain &= out[d].layout == Layout();
    if (plain) continue;
    const Nest nest = Canonical(sharding.NestOf(a), ExtentOf(shape, a));
    // What a clip leaves of a piece keeps its form: Sizes would pin it to this extent.
    const bool clipped = out[dims[0]].layout.kind() == Layout::Kind::kClip;
    bool fixed = false;
    for (const NestLevel& l : nest) fixed |= l.layout.kind() == Layout::Kind::kSizes;
    if (clipped && fixed) continue;
    for (size_t i = 0; i < dims.size(); ++i) {
      changed |= !(out[dims[i]].layout == nest[i].layout);
      out[dims[i]].layout = nest[i].layout;
    }
  }
  return changed ? sharding.With(std::move(out)) : sharding;
}

absl::StatusOr<Device> InferSharded(Op op, absl::Span<const UOp> srcs, const Arg& arg,
                                    const Shape& shape) {
  if (op == Op::kMStack) return Stacked(srcs, std::get<Device>(arg.value), shape);
  if (op == Op::kMSelect) {
    RETURN_IF_ERROR(RefusePartial(op, srcs));
    const Sharding s = srcs[0].device().sharding();
    return Device(s[static_cast<int>(std::get<int64_t>(arg.value))]);
  }
  RETURN_IF_ERROR(CheckMeshes(srcs));
  RETURN_IF_ERROR(RefusePartial(op, srcs));
  const UOp* first = nullptr;
  for (const UOp& s : srcs) {
    if (first == nullptr && s.device()) first = &s;
  }
  if (first->device().is_manual()) return first->device();
  if (op == Op::kFlip || op == Op::kWindow || op == Op::kCat) {
    for (const UOp& s : srcs) {
      if (!s.device() || !DiffersAlong(s.shape(), -1)) continue;
      return Misplaced("the places' parts of ", Describe(s),
                       " differ in size, and it is sharded along ",
                       "other mesh dims; name those in the ShardMap as well");
    }
  }
  if (IsElementwise(op)) return Alike(srcs, shape);
  if (op == Op::kCat) return Joined(srcs, static_cast<int>(std::get<int64_t>(arg.value)), shape);
  if (op == Op::kGather || op == Op::kScatter) return LookedUp(op, srcs, arg, shape);
  if (op == Op::kAssign) {
    if (srcs[2].device() && !SamePlacement(srcs[1].shape(), srcs[1].device(), srcs[2].device())) {
      return Misplaced("the value is on ", srcs[2].device().ToString(), ", the target on ",
                       srcs[1].device().ToString(), "; move the value with .To(...)");
    }
    return srcs[0].device();
  }
  Rule r(srcs[0], shape);
  if (op == Op::kReduce) return Reduced(r, std::get<ReduceArg>(arg.value));
  if (op == Op::kAllReduce) return AllReduced(r, std::get<ReduceArg>(arg.value));
  if (IsMovement(op)) return OfMovement(r, op, arg);
  return srcs[0].device();  // CONTIGUOUS, SINK
}

}  // namespace tessera
