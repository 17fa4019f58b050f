// Alignment of sharded operands, one rule a primitive.
#include "graph/tensor_align.h"

#include <algorithm>

#include "graph/flags.h"
#include "graph/infer_context.h"
#include "graph/infer_device.h"
#include "graph/own_extent.h"
#include "graph/shifts.h"

namespace tessera::internal {
namespace {

using How = Placement::Kind;
using Placements = std::vector<Placement>;

int ManualDims(Device device) {
  if (!device.is_sharding()) return 0;
  const Placements& p = device.sharding().placements();
  return static_cast<int>(
      std::count_if(p.begin(), p.end(), [](const Placement& q) { return q.is(How::kManual); }));
}

// Beside what is each place's own, a tensor from outside that is whole on those mesh dims is each
// place's own too.
void EnterManual(Op op, std::vector<UOp>& srcs) {
  // Of nested programs the inner one's, which is each place's own along more mesh dims.
  const UOp* own = nullptr;
  int most = 0;
  for (const UOp& s : srcs) {
    const int dims = ManualDims(s.device());
    if (dims > most) own = &s;
    most = std::max(most, dims);
  }
  if (own == nullptr) return;
  const Sharding inside = own->device().sharding();
  const Mesh mesh = inside.mesh();
  for (UOp& s : srcs) {
    if (!s.device() || SameManualDims(s.device(), inside)) continue;
    const bool here = s.device().is_sharding() && s.device().sharding().mesh() == mesh;
    Placements p = here ? s.device().sharding().placements() : Placements();
    bool enters = here;
    for (int d = 0; enters && d < mesh.ndim(); ++d) {
      if (p[d].is(How::kManual) == inside(d).is(How::kManual)) continue;
      enters = p[d].is(How::kReplicate);
      p[d] = Placement::Manual();
    }
    if (!enters) {
      Fail(
          Info(op).text, " of ", Describe(*own), ", which is each place's own, and ", Describe(s),
          ", which is not; pass both as arguments to ShardMap, or use the latter where it returns");
    }
    s = Made(Op::kLocal, s.dtype(), {s}, Device(Sharding(mesh, std::move(p))));
  }
}

// Placements that differ are brought together: those that the operands agree on, or where they do
// not, the operand's for which the fewest bytes move; ties go to the one that sorts first.
class Chooser {
 public:
  // `free_axis`: of CAT, where every source may be cut as it likes.
  Chooser(const std::vector<UOp>& srcs, const Shape& shape, int free_axis)
      : srcs_(srcs), shape_(shape), free_axis_(free_axis) {
    for (const UOp& s : srcs) {
      if (!s.device() || s.rank() != shape.rank()) continue;
      if (!mesh_) mesh_ = s.device().sharding().mesh();
      Placements p = CanonicalSharding(s.shape(), s.device().sharding()).placements();
      for (Placement& q : p) {
        if (q.ShardsAxis(free_axis)) q.layout = Layout();
      }
      have_.push_back(std::move(p));
    }
  }

  // Nothing where no source has a device and axes.
  std::optional<Sharding> Choose() {
    if (!mesh_) return std::nullopt;
    std::vector<Placements> sorted = have_;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    if (sorted.size() == 1) return Sharding(*mesh_, sorted[0]);
    std::vector<Placements> candidates = {Filled(sorted, 0)};
    for (size_t i = 1; i < sorted.size(); ++i) candidates.push_back(Filled(sorted, i));
    std::optional<Sharding> best;
    int64_t least = 0;
    std::sort(candidates.begin(), candidates.end());
    for (const Placements& c : candidates) {
      const Sharding s(*mesh_, c);
      const int64_t bytes = Cost(s);
      if (best && bytes >= least) continue;
      best = s;
      least = bytes;
    }
    return best;
  }

 private:
  // One operand's placements, its whole copies cut as the others are.
  Placements Filled(const std::vector<Placements>& all, size_t first) const {
    Placements out = all[first];
    for (const Placements& other : all) {
      for (size_t d = 0; d < out.size(); ++d) {
        if (!out[d].is(How::kReplicate) || other[d].is(How::kReplicate)) continue;
        Placements next = out;
        next[d] = other[d];
        if (CheckPlacement(shape_, Sharding(*mesh_, next)).ok()) out = std::move(next);
      }
    }
    return out;
  }

  int64_t Cost(const Sharding& to) const {
    int64_t bytes = 0;
    for (const UOp& s : srcs_) {
      if (!s.device() || s.rank() != shape_.rank()) continue;
      const int64_t more = free_axis_ >= 0 ? BytesBetween(s, to) : ReshardBytes(s, to);
      if (__builtin_add_overflow(bytes, more, &bytes)) bytes = INT64_MAX;
    }
    return bytes;
  }

  const std::vector<UOp>& srcs_;
  const Shape& shape_;
  const int free_axis_;
  std::optional<Mesh> mesh_;
  std::vector<Placements> have_;
};

Shape ResultShape(absl::Span<const UOp> srcs) {
  Shape shape;
  for (const UOp& s : srcs) {
    if (s.rank() > shape.rank()) shape = s.shape();
  }
  return shape;
}

void AlignElementwise(Op op, std::vector<UOp>& srcs) {
  OneMesh(op, srcs);
  const Shape shape = ResultShape(srcs);
  for (const UOp& s : srcs) {
    if (s.rank() > 0 && !(s.shape() == shape)) return;  // inference says what is wrong
  }
  const std::optional<Sharding> to = Chooser(srcs, shape, -1).Choose();
  if (!to) return;
  for (UOp& s : srcs) {
    if (!s.device() || s.rank() == 0) continue;
    s = Reshard(s, *to, absl::StrCat("operands of ", Info(op).text, " are sharded differently"));
  }
}

// Dims that cut an axis become whole.
Sharding Whole(const Sharding& s, absl::Span<const int> dims) {
  Placements p = s.placements();
  for (int d : dims) p[d] = Placement::Replicate();
  return s.With(std::move(p));
}

// An axis that cannot keep its pieces is gathered first.
void Gather(UOp& u, absl::Span<const int> axes, const std::string& why) {
  std::vector<int> dims;
  for (int a : axes) {
    for (int d : u.device().sharding().DimsOf(a)) dims.push_back(d);
  }
  if (!dims.empty()) u = Reshard(u, Whole(u.device().sharding(), dims), why);
}

void AlignCat(std::vector<UOp>& srcs, int axis) {
  OneMesh(Op::kCat, srcs);
  for (const UOp& s : srcs) {
    if (s.rank() != srcs[0].rank() || axis < 0 || axis >= s.rank()) return;
  }
  const std::optional<Sharding> to = Chooser(srcs, srcs[0].shape(), axis).Choose();
  if (!to) return;
  for (UOp& s : srcs) {
    if (!s.device()) continue;
    const Sharding own = s.device().sharding();
    Placements p = to->placements();
    for (size_t d = 0; d < p.size(); ++d) {
      if (!p[d].ShardsAxis(axis)) continue;
      const Placement& q = own(static_cast<int>(d));
      if (q.ShardsAxis(axis) || q.is(How::kReplicate)) p[d] = q;
    }
    // Its own layouts along the joined axis, unless they do not nest with what the others have.
    const Sharding kept = to->With(std::move(p));
    const Sharding wanted = CheckPlacement(s.shape(), kept).ok() ? kept : *to;
    s = Reshard(s, wanted, "pieces of CAT are sharded differently");
  }
}

bool Redeals(const UOp& v) {
  if (!ShiftsOf(v).empty()) return true;
  const Sharding s = v.device().sharding();
  Ints axes;
  if (v.is(Op::kFlip)) axes = v.arg<Ints>();
  if (v.is(Op::kWindow)) axes = v.arg<WindowArg>().axes;
  return std::any_of(axes.begin(), axes.end(),
                     [&s](int64_t a) { return !s.DimsOf(static_cast<int>(a)).empty(); });
}

void AlignAssign(std::vector<UOp>& srcs) {
  const Device target = srcs[1].device();
  UOp& value = srcs[2];
  if (!target.is_sharding()) {
    Fail("the value ", Describe(value), " is on other places than the target ", Describe(srcs[1]),
         "; move it with .To(...)");
  }
  // A view that deals the pieces out again shows copies of elements of other places.
  for (UOp v = srcs[1]; !(v == srcs[0]) && v.size() > 0; v = UOp(v.src(0))) {
    if (IsMovement(v.op()) && !Redeals(v)) continue;
    Fail("the target ", Describe(srcs[1]), " is ", Info(v.op()).text, " along a sharded axis of ",
         Describe(v.src(0)), ", and its elements lie on other places; assign to .To(...) a device ",
         "that does not shard that axis, or to a slice without steps");
  }
  if (!value.device()) return;
  const absl::Span<const Place> places = value.device().places();
  const Mesh mesh = target.sharding().mesh();
  for (const Place& p : places) {
    if (mesh.IndexOf(p) >= 0 && static_cast<int>(places.size()) == mesh.size()) continue;
    Fail("the value ", Describe(value), " is on other places than the target ", Describe(srcs[1]),
         "; move it with .To(...)");
  }
  value = Reshard(value, target.sharding(), "the value of ASSIGN goes where its target lies");
}

void AlignExpand(UOp& u, const Extents& to) {
  const Sharding s = u.device().sharding();
  std::vector<int> dims;
  for (int a = 0; a < u.rank() && a < static_cast<int>(to.size()); ++a) {
    if (u.shape()[a] == to[a]) continue;
    for (int d : s.DimsOf(a)) dims.push_back(d);
  }
  if (!dims.empty()) u = Reshard(u, Whole(s, dims), "EXPAND repeats an element that one place has");
}

// The pieces go to the finest layout that survives, on their own axis, else on axis 0.
void AlignReshape(UOp& u, const Shape& to) {
  const Sharding s = u.device().sharding();
  std::vector<int> lost;
  ReshapeImage(u.shape(), s, to, &lost);
  if (lost.empty()) return;
  Placements p = s.placements();
  for (int d : lost) p[d] = Placement::Replicate();
  const auto survives = [&](const Placements& next) {
    const Sharding wanted = s.With(next);
    std::vector<int> still;
    if (!CheckPlacement(u.shape(), wanted).ok()) return false;
    ReshapeImage(u.shape(), wanted, to, &still);
    return still.empty();
  };
  const auto try_axis = [&](absl::Span<const int> dims, int axis) {
    const std::optional<Layout> layout = SurvivingLayout(u.shape(), axis, to);
    if (!layout) return false;
    Placements next = p;
    for (int d : dims) next[d] = Placement::Shard(axis, *layout);
    if (!survives(next)) return false;
    p = CanonicalSharding(u.shape(), s.With(std::move(next))).placements();
    return true;
  };
  for (int axis = 0; axis < u.rank(); ++axis) {
    std::vector<int> dims;
    for (int d : s.DimsOf(axis)) {
      if (std::find(lost.begin(), lost.end(), d) != lost.end()) dims.push_back(d);
    }
    if (dims.empty() || try_axis(dims, axis)) continue;
    const bool free =
        std::none_of(p.begin(), p.end(), [](const Placement& q) { return q.ShardsAxis(0); });
    if (axis != 0 && free) try_axis(dims, 0);
  }
  u = Reshard(u, s.With(std::move(p)),
              absl::StrCat("RESHAPE to ", to.ToString(), " cannot keep the pieces of ",
                           u.shape().ToString()));
}

// What begins at a symbolic position does not stay where it lies, and cannot go from place to place
// where their parts differ in size.
void AlignBounds(Op op, UOp& u, const Pairs& pairs) {
  if (static_cast<int>(pairs.size()) != u.rank() || !DiffersAlong(u.shape(), -1)) return;
  Extents dims;
  for (int a = 0; a < u.rank(); ++a) {
    const auto& [first, second] = pairs[a];
    dims.push_back(op == Op::kPad ? first + u.shape()[a] + second : second - first);
  }
  const Shape to(dims);
  std::vector<int> axes;
  for (int a = 0; a < u.rank(); ++a) {
    if (!KeepsPieces(op, u.shape(), to, a, pairs)) axes.push_back(a);
  }
  Gather(u, axes, absl::StrCat(Info(op).text, " with symbolic bounds"));
}

// Of pieces that a bound has laid out, the windows up to that bound, and of those the ones that
// there are: nothing moves but what static windows exchange. Nothing where no such axis is read.
UOp WindowsBelowBound(const UOp& u, const Arg& arg) {
  Pairs up_to(u.rank(), {Extent(0), Extent(0)});
  bool any = false;
  for (int64_t axis : std::get<WindowArg>(arg.value).axes) {
    if (axis < 0 || axis >= u.rank()) return UOp();
    const auto a = static_cast<int>(axis);
    if (u.shape()[a].is_int() || u.device().sharding().DimsOf(a).empty()) continue;
    up_to[a].second = Extent(u.shape()[a].max()) - u.shape()[a];
    any = true;
  }
  if (!any || DiffersAlong(u.shape(), -1)) return UOp();
  const absl::StatusOr<Shape> plain = InferShape({Op::kWindow, {&u, 1}, arg});
  if (!plain.ok()) return UOp();  // what is made next says what is wrong
  Pairs there;
  for (const Extent& e : *plain) there.emplace_back(Extent(0), e);
  const UOp padded = Made(Op::kPad, u.dtype(), {u}, std::move(up_to));
  const UOp windows = Made(Op::kWindow, u.dtype(), {padded}, arg);
  return Made(Op::kShrink, u.dtype(), {windows}, std::move(there));
}

// Pieces that have become longer than twice their share are dealt out again.
UOp Rebalanced(const UOp& u) {
  const Sharding s = u.device().sharding();
  Placements p = s.placements();
  bool changed = false;
  for (int a = 0; a < u.rank(); ++a) {
    const Nest nest = s.NestOf(a);
    if (nest.empty() || nest[0].layout.kind() != Layout::Kind::kClip) continue;
    if (!u.shape()[a].is_int()) continue;
    const int64_t n = u.shape()[a].value();
    const Cut cut = CutAxis(nest, n);
    const auto parts = static_cast<int64_t>(cut.size()) - 1;
    int64_t longest = 0;
    for (int64_t i = 0; i < parts; ++i) longest = std::max(longest, cut[i + 1] - cut[i]);
    if (longest <= 2 * ((n + parts - 1) / parts)) continue;
    for (int d : s.DimsOf(a)) p[d].layout = Layout();
    changed = true;
  }
  if (!changed || IntFlag(Flag::kStrict) > 0) return u;
  return ImpliedCopy(u, s.With(std::move(p)), "one place has more than twice its share");
}

// Why each place has a part only of what they give together.
std::string WhyPartial(const UOp& u) {
  if (u.is(Op::kGather)) return "each place looks up what it has of the table";
  if (u.is(Op::kScatter)) return "each place has some of the updates";
  const Sharding s = u.src(0).device().sharding();
  std::string axes;
  for (int64_t a : u.arg<ReduceArg>().axes) {
    if (s.DimsOf(static_cast<int>(a)).empty()) continue;
    absl::StrAppend(&axes, axes.empty() ? "" : ", ", a);
  }
  return absl::StrCat("REDUCE along axis ", axes, " of ", u.src(0).shape().ToString(),
                      ", which is sharded");
}

UOp WithAllReduce(const UOp& u) {
  const Sharding s = u.device().sharding();
  ReduceArg arg;
  for (int d = 0; d < s.mesh().ndim(); ++d) {
    if (!s(d).is(How::kPartial)) continue;
    arg.op = s(d).op;
    arg.axes.push_back(d);
  }
  if (arg.axes.empty()) return u;
  const UOp out = Made(Op::kAllReduce, u.dtype(), {u}, arg);
  if (out.note().empty()) out.SetNote(WhyPartial(u));
  return out;
}

}  // namespace

UOp BuildStack(absl::Span<const UOp> srcs, const Sharding& to) {
  return Made(Op::kMStack, kVoid, srcs, Device(to));
}

UOp BuildSharded(Op op, DType dtype, absl::Span<const UOp> given, Arg arg) {
  std::vector<UOp> srcs(given.begin(), given.end());
  if (op != Op::kMStack && op != Op::kCopy) EnterManual(op, srcs);
  const bool manual = std::all_of(
      srcs.begin(), srcs.end(), [](const UOp& s) { return !s.device() || s.device().is_manual(); });
  if (manual) return Made(op, dtype, srcs, std::move(arg));
  std::optional<Sharding> cut_again;
  if (IsElementwise(op)) {
    AlignElementwise(op, srcs);
  } else if (op == Op::kCat) {
    AlignCat(srcs, static_cast<int>(std::get<int64_t>(arg.value)));
  } else if (op == Op::kGather) {
    cut_again = AlignGather(srcs, arg);
  } else if (op == Op::kAssign) {
    AlignAssign(srcs);
  } else if (op == Op::kExpand) {
    AlignExpand(srcs[0], std::get<Extents>(arg.value));
  } else if (op == Op::kReshape) {
    AlignReshape(srcs[0], Shape(std::get<Extents>(arg.value)));
  } else if (op == Op::kPad || op == Op::kShrink) {
    AlignBounds(op, srcs[0], std::get<Pairs>(arg.value));
  } else if (op == Op::kWindow) {
    if (const UOp out = WindowsBelowBound(srcs[0], arg)) return out;
  }
  UOp out =
      op == Op::kScatter ? BuildScatter(dtype, srcs, arg) : Made(op, dtype, srcs, std::move(arg));
  if (!out.device().is_sharding()) return out;
  if (op == Op::kReduce || op == Op::kGather || op == Op::kScatter) out = WithAllReduce(out);
  if (op == Op::kPad || op == Op::kShrink) out = Rebalanced(out);
  if (cut_again) {
    Placements p = out.device().sharding().placements();
    for (size_t d = 0; d < p.size(); ++d) {
      const Placement& q = (*cut_again)(static_cast<int>(d));
      if (q.is(How::kShard)) p[d] = q;
    }
    out = Reshard(out, cut_again->With(std::move(p)), "GATHER's result goes where its index lay");
  }
  return out;
}

}  // namespace tessera::internal
