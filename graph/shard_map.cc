// Per-place programs and their collectives, composed of LOCAL, GLOBAL, COPY, ALLREDUCE and PASS: a
// gather is a COPY between the two borders, and so its adjoint is a reduction and a slice.
#include "graph/shard_map.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "graph/infer_device.h"
#include "graph/own_extent.h"
#include "graph/tensor_internal.h"

namespace tessera {
namespace {

using How = Placement::Kind;
using internal::Build;
using internal::Call;
using internal::Fail;
using internal::Show;

int DimOf(const Mesh& mesh, const MeshDimName& name) {
  int number = -1;
  if (absl::SimpleAtoi(name.text, &number)) {
    if (number >= 0 && number < mesh.ndim()) return number;
    Fail("there is no dim ", number, " in the mesh ", mesh.ToString());
  }
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (mesh.dims()[d].name == name.text) return d;
  }
  Fail("there is no dim '", name.text, "' in the mesh ", mesh.ToString());
}

// The sharding with another placement of one dim.
Sharding Placed(const Sharding& s, int dim, const Placement& p) {
  std::vector<Placement> all = s.placements();
  all[dim] = p;
  return s.With(std::move(all));
}

UOp Noted(UOp u, const char* why) {
  if (u.note().empty()) u.SetNote(why);
  return u;
}

// A tensor inside a program, and the dim of its mesh.
struct Inside {
  UOp x;
  Sharding sharding;
  int dim;
  int64_t places;
};

Inside InsideOf(const Tensor& t, const MeshDimName& name) {
  const Device device = t.device();
  if (!device.is_sharding()) {
    Fail("takes a tensor that each place has as its own, inside ShardMap; got ", Show(t));
  }
  const Sharding s = device.sharding();
  const int dim = DimOf(s.mesh(), name);
  if (!s(dim).is(How::kManual)) {
    Fail(Show(t), " is no place's own along mesh dim ", s.mesh().DimName(dim),
         "; name the dim in the ShardMap around it");
  }
  return {internal::Current(t.uop()), s, dim, s.mesh().dims()[dim].size};
}

UOp Border(Op op, const UOp& x, const Sharding& to) {
  return Build(op, x.dtype(), {x}, Device(to));
}

// Where parts of different sizes leave, the layout that they make is theirs, whatever it was
// called.
Sharding LeavingAs(const UOp& x, const Sharding& to) {
  std::vector<Placement> p = to.placements();
  for (int a = 0; a < x.rank(); ++a) {
    const std::optional<OwnSizes> own = OwnSizesOf(x.shape()[a]);
    const std::vector<int> dims = to.DimsOf(a);
    if (!own || dims.size() != own->dims.size()) continue;
    Cut cut = {0};
    for (int64_t n : own->sizes) cut.push_back(cut.back() + n);
    const Nest asked = to.NestOf(a);
    if (CheckNest(asked, cut.back()).ok() && CutAxis(asked, cut.back()) == cut) continue;
    std::vector<int64_t> parts;
    for (const NestLevel& l : asked) parts.push_back(l.parts);
    const auto layouts = WriteCut(parts, cut);
    for (size_t i = 0; layouts && i < dims.size(); ++i) p[dims[i]].layout = (*layouts)[i];
  }
  return to.With(std::move(p));
}

// From one placement of the dim to another, as seen from outside.
Tensor Moved(const Inside& in, const UOp& x, const Placement& from, const Placement& to,
             const char* why) {
  const UOp outside = Border(Op::kGlobal, x, LeavingAs(x, Placed(in.sharding, in.dim, from)));
  const Sharding there = Placed(outside.device().sharding(), in.dim, to);
  const UOp moved = SamePlacement(outside.shape(), outside.device(), there)
                        ? outside
                        : Noted(Build(Op::kCopy, {outside}, Device(there)), why);
  return Tensor(Border(Op::kLocal, moved, in.sharding));
}

bool VariesAlong(const Extent& e, int dim) { return DiffersAlong(Shape({e}), dim); }

// Sizes that have gone round with the parts.
OwnSizes Passed(const OwnSizes& own, const Mesh& mesh, const Ints& pass) {
  OwnSizes out = own;
  int64_t inner = 1;  // coordinates after that of the dim that they have gone along
  for (size_t i = own.dims.size(); i-- > 0 && own.dims[i].first != pass[0];) {
    inner *= own.dims[i].second;
  }
  const int64_t places = mesh.dims()[pass[0]].size;
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    const auto at = static_cast<int64_t>(i), own_place = at / inner % places;
    out.sizes[i] = own.sizes[at + (pass[1 + own_place] - own_place) * inner];
  }
  return out;
}

UOp Reduced(const Inside& in, Op op) {
  if (DiffersAlong(in.x.shape(), in.dim)) {
    Fail("the places along mesh dim ", in.sharding.mesh().DimName(in.dim), " have parts of ",
         "different sizes, ", Describe(in.x), "; reduce the axis that differs first, or AllGather");
  }
  return Noted(Build(Op::kAllReduce, in.x.dtype(), {in.x}, ReduceArg{op, {in.dim}}), "AllReduce");
}

void CheckDivides(const Inside& in, int axis) {
  const Extent& n = in.x.shape()[axis];
  if (n.is_int() && n.value() % in.places == 0) return;
  Fail("axis ", axis, " of ", Describe(in.x), " is not ", in.places,
       " equal parts, one for each place; pad it first");
}

UOp Entered(const UOp& u, absl::Span<const int> dims) {
  if (!u.device()) return u;
  std::vector<Placement> p = u.device().sharding().placements();
  for (int d : dims) {
    if (p[d].is(How::kManual)) {
      Fail(Describe(u), " is each place's own along mesh dim ",
           u.device().sharding().mesh().DimName(d), " already");
    }
    p[d] = Placement::Manual();
  }
  return Border(Op::kLocal, u, u.device().sharding().With(std::move(p)));
}

// What is made of numbers alone, as each place's own.
UOp OwnNumbers(const UOp& u, const Mesh& mesh, absl::Span<const int> dims) {
  std::vector<Placement> p(mesh.ndim(), Placement::Replicate());
  for (int d : dims) p[d] = Placement::Manual();
  const Sharding own(mesh, std::move(p));
  if (!DiffersAlong(u.shape(), -1)) {
    return Border(Op::kLocal, internal::CopyTo(u, Sharding(mesh)), own);
  }
  if (Device(own).is_manual()) return Build(Op::kCopy, u.dtype(), {u}, Device(own));
  Fail("the result ", Describe(u), " is made of numbers alone, and as long as each place's ",
       "part; add it to a tensor that each place has as its own");
}

UOp Left(const UOp& given, const Mesh& mesh, absl::Span<const int> dims,
         absl::Span<const Placement> placements) {
  const bool whole = std::all_of(placements.begin(), placements.end(),
                                 [](const Placement& p) { return p.is(How::kReplicate); });
  if (!given.device() && whole && !DiffersAlong(given.shape(), -1)) return given;
  const UOp u = given.device() ? given : OwnNumbers(given, mesh, dims);
  if (!u.device().is_sharding() || !(u.device().sharding().mesh() == mesh)) {
    Fail("the result ", Describe(u), " is not on the mesh ", mesh.ToString());
  }
  std::vector<Placement> p = u.device().sharding().placements();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!placements[i].is(How::kReplicate) && !placements[i].is(How::kShard)) {
      Fail("a result leaves as Replicate or Shard, not as ", placements[i].ToString());
    }
    p[dims[i]] = placements[i];
    if (p[dims[i]].is(How::kShard) && p[dims[i]].axis < 0) p[dims[i]].axis += u.rank();
  }
  return Border(Op::kGlobal, u, LeavingAs(u, u.device().sharding().With(std::move(p))));
}

}  // namespace

std::vector<Tensor> ShardMap(const MeshDimNames& dims,
                             const std::vector<std::vector<Placement>>& out_placements,
                             const LocalProgram& program, const std::vector<Tensor>& arguments,
                             CallSite at) {
  Call call("ShardMap", at, absl::MakeConstSpan(arguments));
  const Tensor* first = nullptr;
  for (const Tensor& a : arguments) {
    if (!a.device()) continue;
    if (!a.device().is_sharding()) {
      Fail("the argument ", Show(a), " is on one place; .To(...) or .Shard(...) it over the mesh");
    }
    if (first == nullptr) first = &a;
    if (a.device().sharding().mesh() == first->device().sharding().mesh()) continue;
    Fail("the arguments ", Show(*first), " and ", Show(a),
         " are on different meshes; .To(...) one");
  }
  if (first == nullptr) Fail("needs an argument on a Sharding, which names the mesh");
  const Mesh mesh = first->device().sharding().mesh();
  std::vector<int> numbers;
  for (const MeshDimName& d : dims) {
    numbers.push_back(DimOf(mesh, d));
    if (std::count(numbers.begin(), numbers.end(), numbers.back()) > 1) {
      Fail("the mesh dim ", d.text, " is named twice");
    }
  }
  std::vector<Tensor> inside;
  for (const Tensor& a : arguments) {
    inside.push_back(Tensor(Entered(internal::Current(a.uop()), numbers)));
  }
  std::vector<UOp> entered;
  for (const Tensor& t : inside) entered.push_back(t.uop());
  const std::vector<Tensor> made = [&] {
    Call::Pause pause;
    return program(inside);
  }();
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i].uop() == entered[i]) continue;
    Fail("the program assigns to its argument ", i, ", ", Show(arguments[i]),
         ", where nothing outside would see it; return the new value, and assign it outside");
  }
  if (made.size() != out_placements.size()) {
    Fail("the program gives ", made.size(), " results, and there are placements for ",
         out_placements.size());
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < made.size(); ++i) {
    if (out_placements[i].size() != numbers.size()) {
      Fail("result ", i, " has ", out_placements[i].size(), " placements for ", numbers.size(),
           " mesh dims");
    }
    out.push_back(Tensor(Left(internal::Current(made[i].uop()), mesh, numbers, out_placements[i])));
  }
  return out;
}

Tensor AllReduce(const Tensor& x, const MeshDimName& dim, Op op, CallSite at) {
  Call call("AllReduce", at, x);
  return Tensor(Reduced(InsideOf(x, dim), op));
}

Tensor AllGather(const Tensor& x, const MeshDimName& dim, int axis, CallSite at) {
  Call call("AllGather", at, x);
  const Inside in = InsideOf(x, dim);
  const int a = internal::NormalAxis(axis, x.rank());
  return Moved(in, in.x, Placement::Shard(a), Placement::Replicate(), "AllGather");
}

Tensor ReduceScatter(const Tensor& x, const MeshDimName& dim, int axis, Op op, CallSite at) {
  Call call("ReduceScatter", at, x);
  const Inside in = InsideOf(x, dim);
  const int a = internal::NormalAxis(axis, x.rank());
  return Moved(in, Reduced(in, op), Placement::Replicate(), Placement::Shard(a), "ReduceScatter");
}

Tensor AllToAll(const Tensor& x, const MeshDimName& dim, int split_axis, int join_axis,
                CallSite at) {
  Call call("AllToAll", at, x);
  const Inside in = InsideOf(x, dim);
  const int split = internal::NormalAxis(split_axis, x.rank());
  const int join = internal::NormalAxis(join_axis, x.rank());
  if (split != join) {
    return Moved(in, in.x, Placement::Shard(join), Placement::Shard(split), "AllToAll");
  }
  CheckDivides(in, split);
  // The parts are an axis of their own, which is dealt out, and another takes its place.
  const int64_t part = x.size(split) / in.places;
  const Tensor parts = x.Unflatten(split, {in.places, part}).Unsqueeze(split);
  const Inside wide{parts.uop(), parts.device().sharding(), in.dim, in.places};
  return Moved(wide, wide.x, Placement::Shard(split), Placement::Shard(split + 1), "AllToAll")
      .Flatten(split, split + 2);
}

Tensor PlaceIndex(const Tensor& like, const MeshDimName& dim, CallSite at) {
  Call call("PlaceIndex", at, like);
  const Inside in = InsideOf(like, dim);
  std::vector<Placement> outside(in.sharding.mesh().ndim(), Placement::Replicate());
  std::vector<Placement> own = outside;
  outside[in.dim] = Placement::Shard(0);
  for (int d = 0; d < in.sharding.mesh().ndim(); ++d) {
    if (in.sharding(d).is(How::kManual)) own[d] = Placement::Manual();
  }
  const Tensor all = Tensor::Arange(in.places, kInt32).To(in.sharding.With(outside));
  return Tensor(Border(Op::kLocal, all.uop(), in.sharding.With(own))).Reshape({});
}

namespace {

// A place's part filled up to the longest, along axes where they differ.
Tensor FilledUp(const Tensor& x) {
  Pairs more(x.rank(), {0, 0});
  for (int a = 0; a < x.rank(); ++a) {
    if (!VariesAlong(x.shape()[a], -1)) continue;
    const std::vector<int64_t> sizes = OwnSizesOf(x.shape()[a])->sizes;
    more[a].second = Extent(*std::max_element(sizes.begin(), sizes.end())) - x.shape()[a];
  }
  return x.Pad(more);
}

// Of that the part as long as the source's.
Tensor CutBack(const Tensor& full, const Tensor& x, const Mesh& mesh, const Ints& pass) {
  const auto dim = static_cast<int>(pass[0]);
  Pairs parts;
  for (int a = 0; a < x.rank(); ++a) {
    Extent size = x.shape()[a];
    if (VariesAlong(size, dim)) size = OwnExtent(Passed(*OwnSizesOf(size), mesh, pass));
    parts.emplace_back(Extent(0), size);
  }
  return full.Shrink(parts);
}

}  // namespace

Tensor Permute(const Tensor& x, const MeshDimName& dim, const std::vector<int>& sources,
               CallSite at) {
  Call call("Permute", at, x);
  const Inside in = InsideOf(x, dim);
  if (static_cast<int64_t>(sources.size()) != in.places) {
    Fail("has ", sources.size(), " sources for ", in.places, " places along mesh dim ", dim.text);
  }
  Ints arg = {in.dim};
  Tensor none;  // whether a place gets nothing
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] < -1 || sources[i] >= in.places) {
      Fail("place ", i, " has the source ", sources[i], "; 0 to ", in.places - 1,
           ", or -1 for none");
    }
    const bool gets = sources[i] >= 0;
    arg.push_back(gets ? sources[i] : static_cast<int64_t>(i));
    if (gets) continue;
    const Tensor here = PlaceIndex(x, dim) == static_cast<int64_t>(i);
    none = none ? none | here : here;
  }
  const Tensor full = FilledUp(Tensor(in.x)).Unsqueeze(0);
  const UOp passed = Noted(Build(Op::kPass, {full.uop()}, arg), "Permute");
  const Tensor got = CutBack(Tensor(passed).Squeeze(0), x, in.sharding.mesh(), arg);
  return none ? Where(none, 0, got) : got;
}

}  // namespace tessera
