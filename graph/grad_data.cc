// Rules of movement, reduction and data.
#include "graph/grad_data.h"

#include <algorithm>
#include <limits>

#include "graph/grad_window.h"
#include "graph/infer_device.h"
#include "graph/lookup.h"
#include "graph/shard_map.h"
#include "graph/tensor_align.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {
namespace {

using internal::Build;
using internal::Fail;
using internal::ReshapeTo;

Tensor Expanded(const Tensor& g, const Shape& shape) {
  return Tensor(internal::BroadcastTo(g.uop(), shape, /*keep_scalar=*/false));
}

// ---- reductions

Tensor OfExtreme(const Tensor& x, const Tensor& y, const Tensor& g, const Ints& axes) {
  const Tensor most = Expanded(y, x.shape());
  const Tensor mask = (x == most).Cast(x.dtype());
  const DType wide = AccumulateType(x.dtype());
  const Tensor ties = mask.Cast(wide).Sum(Axes(axes), /*keepdim=*/true);
  return mask * Expanded((g.Cast(wide) / ties).Cast(x.dtype()), x.shape());
}

// Of products: how many of their factors are 0, what the others multiply to, and the sum of those
// that are 0.
struct Factors {
  Tensor zeros, rest, at_zero;
};

// The product of the others; where one factor is 0, only that one's is not. What is 0 is written as
// a product with a factor that is, so that its own derivative is right. `at` brings what belongs to
// a product to where its factors x stand.
template <typename Fn>
Tensor OfFactors(const Tensor& x, const Tensor& y, const Tensor& g, const Factors& f, Fn at) {
  // By what 0 stays 0.
  const auto finite = [](const Tensor& t) {
    return Where(t.Abs() < std::numeric_limits<double>::infinity(), t, 1);
  };
  const Tensor zero = x == 0, other = Where(zero, 1, x);
  const Tensor count = at(f.zeros), of_rest = at(g * f.rest), at_zero = at(f.at_zero);
  const Tensor of_two = (at_zero - x) * finite(of_rest);
  const Tensor of_zero = Where(count == 1, of_rest, Where(count == 2, of_two, 0));
  const Tensor beside_one = at_zero * finite(of_rest / other);
  const Tensor of_other = Where(count == 0, at(g * y) / other, Where(count == 1, beside_one, 0));
  return Where(zero, of_zero, of_other);
}

Tensor OfProduct(const Tensor& x, const Tensor& y, const Tensor& g, const Ints& axes) {
  const Tensor zero = x == 0;
  const Factors f = {
      zero.Cast(kInt32).Sum(Axes(axes), /*keepdim=*/true),
      Where(zero, 1, x).Prod(Axes(axes), /*keepdim=*/true).Cast(x.dtype()),
      Where(zero, x, 0).Sum(Axes(axes), /*keepdim=*/true).Cast(x.dtype()),
  };
  return OfFactors(x, y, g, f, [&x](const Tensor& t) { return Expanded(t, x.shape()); });
}

}  // namespace

Tensor OfReduce(const UOp& reduce, const Tensor& y, const Tensor& g) {
  const auto& [op, axes] = reduce.arg<ReduceArg>();
  const Tensor x = Tensor(reduce.src(0));
  if (op == Op::kAdd) return Expanded(g, x.shape());
  if (op == Op::kMax || op == Op::kMin) return OfExtreme(x, y, g, axes);
  if (op == Op::kMul) return OfProduct(x, y, g, axes);
  return Tensor();
}

// ---- movement and data

Tensor OfMovement(const UOp& u, const Tensor& g) {
  const Shape& from = u.src(0).shape();
  switch (MovementOf(u.op())) {
    case Movement::kReshape:
      return Tensor(ReshapeTo(g.uop(), from.ToExtents()));
    case Movement::kPermute: {
      Ints back(u.rank());
      for (int i = 0; i < u.rank(); ++i) back[u.arg<Ints>()[i]] = i;
      return g.Permute(Axes(back));
    }
    case Movement::kExpand: {
      Ints axes;
      for (int i = 0; i < u.rank(); ++i) {
        if (!(from[i] == u.shape()[i])) axes.push_back(i);
      }
      return axes.empty() ? g : g.Sum(Axes(axes), /*keepdim=*/true).Cast(g.dtype());
    }
    case Movement::kPad: {
      Pairs pairs;
      for (int i = 0; i < u.rank(); ++i) {
        const Extent& before = u.arg<Pairs>()[i].first;
        pairs.emplace_back(before, before + from[i]);
      }
      return g.Shrink(pairs);
    }
    case Movement::kShrink:
      return internal::BeforeShrink(u, g);
    case Movement::kFlip:
      return g.Flip(Axes(u.arg<Ints>()));
    case Movement::kWindow:
      return WindowCotangent(u, g, /*of_padded=*/false);
  }
  return {};
}

namespace {

Tensor GatherBy(const Tensor& table, const Tensor& index, const Ints& axes) {
  return Tensor(Build(Op::kGather, {table.uop(), index.uop()}, axes));
}
Tensor ScatterBy(Op op, const Tensor& base, const Tensor& index, const Tensor& updates,
                 const Ints& axes) {
  return Tensor(Build(Op::kScatter, {base.uop(), index.uop(), updates.uop()}, ReduceArg{op, axes}));
}

// What is looked up adds up where it came from.
Tensor OfGather(const UOp& u, const Tensor& g) {
  const DType type = AccumulateType(u.dtype());
  const Tensor none = Tensor::Zeros(Dims(u.src(0).shape().ToExtents()), type);
  return ScatterBy(Op::kAdd, none, Tensor(u.src(1)), g.Cast(type), u.arg<Ints>()).Cast(u.dtype());
}

// Of what was overwritten nothing flows on, be it the base or an update before the last.
Cotangents OfOverwrite(const UOp& u, const Tensor& g) {
  const Tensor base = Tensor(u.src(0)), index = Tensor(u.src(1)), updates = Tensor(u.src(2));
  const Ints& axes = u.arg<ReduceArg>().axes;
  const Lookup l = Lookup::Of(u);
  Tensor order = Tensor::Scalar(0, kInt64);
  for (int e = l.axis; e < l.axis + l.own(); ++e) {
    const Extent& n = updates.shape()[e];
    order = order * n + internal::CountAlong(e - l.axis, l.element_rank() - l.axis, n, kInt64);
  }
  order = order.Expand(Dims(updates.shape().ToExtents()));
  const Tensor none = Tensor::Full(Dims(base.shape().ToExtents()), -1, kInt64);
  const Tensor last = ScatterBy(Op::kAssign, none, index, order, axes);
  const Tensor stays = GatherBy(last, index, axes) == order;
  return {Where(last >= 0, 0, g), Tensor(), Where(stays, GatherBy(g, index, axes), 0)};
}

// Ties share, the base's own element among them.
Cotangents OfUpdatedExtreme(const UOp& u, const Tensor& y, const Tensor& g) {
  const Tensor base = Tensor(u.src(0)), index = Tensor(u.src(1)), updates = Tensor(u.src(2));
  const Ints& axes = u.arg<ReduceArg>().axes;
  const Tensor kept = base == y, chosen = updates == GatherBy(y, index, axes);
  const Tensor ties = ScatterBy(Op::kAdd, kept.Cast(kInt32), index, chosen.Cast(kInt32), axes);
  const Tensor share = g / ties.Maximum(1).Cast(g.dtype());
  return {Where(kept, share, 0), Tensor(), Where(chosen, GatherBy(share, index, axes), 0)};
}

// The element itself is one of the factors.
Cotangents OfUpdatedProduct(const UOp& u, const Tensor& y, const Tensor& g) {
  const Tensor base = Tensor(u.src(0)), index = Tensor(u.src(1)), updates = Tensor(u.src(2));
  const Ints& axes = u.arg<ReduceArg>().axes;
  const Tensor zero = base == 0, zero_of = updates == 0;
  const Factors f = {
      ScatterBy(Op::kAdd, zero.Cast(kInt32), index, zero_of.Cast(kInt32), axes),
      ScatterBy(Op::kMul, Where(zero, 1, base), index, Where(zero_of, 1, updates), axes),
      ScatterBy(Op::kAdd, Where(zero, base, 0), index, Where(zero_of, updates, 0), axes),
  };
  return {OfFactors(base, y, g, f, [](const Tensor& t) { return t; }), Tensor(),
          OfFactors(updates, y, g, f, [&](const Tensor& t) { return GatherBy(t, index, axes); })};
}

}  // namespace

// What an index outside reads is 0, so nothing flows.
Cotangents OfScatter(const UOp& u, const Tensor& y, const Tensor& g) {
  const ReduceArg& arg = u.arg<ReduceArg>();
  if (arg.op == Op::kAdd) return {g, Tensor(), GatherBy(g, Tensor(u.src(1)), arg.axes)};
  if (arg.op == Op::kAssign) return OfOverwrite(u, g);
  if (arg.op == Op::kMul) return OfUpdatedProduct(u, y, g);
  if (arg.op == Op::kMax || arg.op == Op::kMin) return OfUpdatedExtreme(u, y, g);
  return {Tensor(), Tensor(), Tensor()};
}

namespace {

Cotangents OfCat(const UOp& u, const Tensor& g) {
  Cotangents out;
  const int axis = static_cast<int>(u.arg<int64_t>());
  Extent begin = 0;
  for (const UOp& s : u.srcs()) {
    const Extent end = begin + s.shape()[axis];
    Pairs pairs;
    for (const Extent& e : u.shape()) pairs.emplace_back(Extent(0), e);
    pairs[axis] = {begin, end};
    out.push_back(g.Shrink(pairs));
    begin = end;
  }
  return out;
}

// The first of the places that hold the same part as a place of a sharding does.
int FirstReplica(const Sharding& s, int index) {
  std::vector<int> cut;  // the mesh dims along which parts differ
  for (int d = 0; d < s.mesh().ndim(); ++d) {
    if (!s(d).is(Placement::Kind::kReplicate)) cut.push_back(d);
  }
  const int64_t part = s.mesh().CoordinateOver(index, cut);
  int first = 0;
  while (s.mesh().CoordinateOver(first, cut) != part) ++first;
  return first;
}

// The part of one place among zeros: on all places that hold this part, for they hold one value.
Tensor OfSelect(const UOp& u, const Tensor& g) {
  const UOp& x = u.src(0);
  std::vector<Tensor> parts;
  const Sharding s = x.device().sharding();
  const int selected = FirstReplica(s, static_cast<int>(u.arg<int64_t>()));
  for (int i = 0; i < s.size(); ++i) {
    const UOp part = Build(Op::kMSelect, {x}, int64_t{i});
    parts.push_back(FirstReplica(s, i) == selected ? g.To(s[i])
                                                   : Tensor::Zeros(part.shape(), g.dtype()));
  }
  return Tensor::FromShards(parts, s);
}

// Each element of the whole counts once: as that of the first place that holds it.
Cotangents OfStack(const UOp& u, const Tensor& g) {
  Cotangents out;
  const Tensor there = g.To(u.device());
  const Sharding s = u.device().sharding();
  for (int i = 0; i < u.size(); ++i) {
    out.push_back(FirstReplica(s, i) == i ? there.ShardAt(i)
                                          : Tensor::Zeros(u.src(i).shape(), g.dtype()));
  }
  return out;
}

bool SamePlaces(Device a, Device b) {
  const auto x = a.places(), y = b.places();
  return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&y](const Place& p) {
           return std::find(y.begin(), y.end(), p) != y.end();
         });
}

// ---- what is each place's own: every place's element counts

// A cotangent of something inside, as each place's own.
Tensor Inside(const Tensor& g, Device device) {
  if (g.device()) return g;
  const Sharding everywhere(device.sharding().mesh());
  const UOp whole = internal::CopyTo(g.uop(), everywhere);
  std::vector<Placement> p = everywhere.placements();
  for (size_t d = 0; d < p.size(); ++d) {
    const Placement& q = device.sharding()(static_cast<int>(d));
    if (q.is(Placement::Kind::kManual)) p[d] = q;
  }
  return Tensor(Build(Op::kLocal, {whole}, Device(everywhere.With(std::move(p)))));
}

}  // namespace

UOp CotangentAt(const Tensor& g, Device device) {
  const UOp out = internal::CopyTo(g.uop(), device);
  if (!device.is_sharding() || out.device() == device) return out;
  return internal::ImpliedCopy(out, device.sharding(), "the form of its layout");
}

bool IsOwn(const UOp& all_reduce) {
  const auto dim = static_cast<int>(all_reduce.arg<ReduceArg>().axes[0]);
  return all_reduce.device().sharding()(dim).is(Placement::Kind::kManual);
}

namespace {

Tensor SummedOver(const Tensor& g, const Ints& dims) {
  if (dims.empty()) return g;
  return Tensor(Build(Op::kAllReduce, {g.uop()}, ReduceArg{Op::kAdd, dims}));
}

// A part that was cut goes back where it was cut; of what every place has whole, all of them count.
Tensor OfLocal(const UOp& u, const Tensor& g) {
  const Sharding outside = u.src(0).device().sharding(), inside = u.device().sharding();
  Ints whole;
  for (int d = 0; d < outside.mesh().ndim(); ++d) {
    if (!(outside(d) == inside(d)) && outside(d).is(Placement::Kind::kReplicate)) {
      whole.push_back(d);
    }
  }
  const UOp sum = internal::CopyTo(SummedOver(Inside(g, inside), whole).uop(), inside);
  return Tensor(Build(Op::kGlobal, {sum}, Device(outside)));
}

// What is whole outside counts once: at the first place.
Tensor OfGlobal(const UOp& u, const Tensor& g) {
  const Sharding outside = u.device().sharding(), inside = u.src(0).device().sharding();
  const UOp there = internal::CopyTo(g.uop(), outside);
  Tensor own = Tensor(Build(Op::kLocal, {there}, Device(inside)));
  for (int d = 0; d < outside.mesh().ndim(); ++d) {
    if (outside(d) == inside(d) || !outside(d).is(Placement::Kind::kReplicate)) continue;
    own = Where(PlaceIndex(own, d) == 0, own, 0);
  }
  return own;
}

Tensor OfOwnAllReduce(const UOp& u, const Tensor& given) {
  const ReduceArg& arg = u.arg<ReduceArg>();
  const Tensor g = SummedOver(Inside(given, u.device()), arg.axes);
  if (arg.op == Op::kAdd) return g;
  if (arg.op != Op::kMax && arg.op != Op::kMin) {
    Fail("cannot differentiate an AllReduce by ", Info(arg.op).text);
  }
  const Tensor mask = (Tensor(u.src(0)) == Tensor(u)).Cast(u.dtype());
  return mask * (g / SummedOver(mask, arg.axes));
}

// What a place sent on comes back from those that got it, one after another.
Tensor OfPass(const UOp& u, const Tensor& given) {
  const Ints& arg = u.arg<Ints>();
  const Tensor g = Inside(given, u.device());
  const auto dim = static_cast<int>(arg[0]), places = static_cast<int>(arg.size()) - 1;
  std::vector<std::vector<int>> got(places);
  size_t rounds = 0;
  for (int i = 0; i < places; ++i) {
    got[arg[i + 1]].push_back(i);
    rounds = std::max(rounds, got[arg[i + 1]].size());
  }
  Tensor sum;
  for (size_t r = 0; r < rounds; ++r) {
    std::vector<int> sources(places, -1);
    for (int i = 0; i < places; ++i) {
      if (r < got[i].size()) sources[i] = got[i][r];
    }
    const Tensor back = Permute(g, dim, sources);
    sum = sum ? sum + back : back;
  }
  return sum;
}

}  // namespace

Cotangents OfData(const UOp& u, const Tensor& g) {
  switch (u.op()) {
    case Op::kLocal:
      return {OfLocal(u, g)};
    case Op::kGlobal:
      return {OfGlobal(u, g)};
    case Op::kPass:
      return {OfPass(u, g)};
    case Op::kGather:
      return {OfGather(u, g), Tensor()};
    case Op::kScatter:
      return OfScatter(u, Tensor(u), g);
    case Op::kCat:
      return OfCat(u, g);
    case Op::kCopy:
      // On the same places the cotangent stays as it lies; elsewhere it goes back.
      if (!u.src(0).device() || SamePlaces(u.src(0).device(), u.device())) return {g};
      return {g.To(u.src(0).device())};
    case Op::kAllReduce:  // of a sum, or of a lookup; see Walk for the others
      if (IsOwn(u)) return {OfOwnAllReduce(u, g)};
      return {g};
    case Op::kContiguous:
    case Op::kMark:
      return {g};
    case Op::kStandIn:
      return {Tensor(), g};
    case Op::kMStack:
      return OfStack(u, g);
    case Op::kMSelect:
      return {OfSelect(u, g)};
    default:
      Fail("cannot differentiate through ", Info(u.op()).text, " of ", Describe(u),
           u.is(Op::kAssign)
               ? "; make a new value, as SliceScatter, PutAt and Where do, instead of assigning"
               : "");
  }
}

}  // namespace tessera
