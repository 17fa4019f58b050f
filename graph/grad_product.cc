// Products and repetitions in cotangents.
#include "graph/grad_product.h"

#include "graph/tensor_internal.h"

namespace tessera {

std::optional<std::vector<AxisRun>> RunsOf(const Shape& from, const Shape& to) {
  std::vector<AxisRun> out;
  int i = 0, j = 0;
  while (i < from.rank() || j < to.rank()) {
    AxisRun r{i, i, j, j};
    if (i < from.rank() && j < to.rank() && from[i] == to[j]) {
      ++i, ++j;
    } else if (i < from.rank() && from[i].is_int(1)) {
      ++i;
    } else if (j < to.rank() && to[j].is_int(1)) {
      ++j;
    } else {
      Extent have = 1, want = 1;
      do {
        const bool more = have.value() <= want.value();
        if (more ? i == from.rank() : j == to.rank()) return std::nullopt;
        Extent& product = more ? have : want;
        product = product * (more ? from[i++] : to[j++]);
        if (!product.is_int() || product.is_int(0)) return std::nullopt;
      } while (!(have == want));
    }
    r.from_end = i;
    r.to_end = j;
    out.push_back(r);
  }
  return out;
}

namespace {

// A tensor that is `from`, but 1 along some axes and with further ones behind, as `to`. A run of
// which it varies over a part is repeated to its whole extent.
Tensor Regrouped(const Tensor& t, const Shape& from, const Shape& to,
                 const std::vector<AxisRun>& runs) {
  Extents whole = t.shape().ToExtents(), dims(to.rank(), 1);
  for (const AxisRun& r : runs) {
    bool varies = false;
    for (int i = r.from; i < r.from_end; ++i) varies |= Varies(t, i);
    if (!varies) continue;
    for (int i = r.from; i < r.from_end; ++i) whole[i] = from[i];
    for (int j = r.to; j < r.to_end; ++j) dims[j] = to[j];
  }
  dims.insert(dims.end(), whole.begin() + from.rank(), whole.end());
  const UOp full = internal::BroadcastTo(t.uop(), Shape(whole), /*keep_scalar=*/false);
  return Tensor(internal::ReshapeTo(full, dims));
}

}  // namespace

Tensor Narrowed(const UOp& u) {
  if (u.is(Op::kExpand)) return Narrowed(u.src(0));
  if (!u.is(Op::kPermute) && !u.is(Op::kReshape)) return Tensor(u);
  const Tensor t = Narrowed(u.src(0));
  if (t.shape() == u.src(0).shape()) return Tensor(u);
  if (u.is(Op::kPermute)) return t.Permute(Axes(u.arg<Ints>()));
  const auto runs = RunsOf(u.src(0).shape(), u.shape());
  return runs ? Regrouped(t, u.src(0).shape(), u.shape(), *runs) : Tensor(u);
}

std::optional<ProductOfTwo> ProductOf(const UOp& u) {
  if (u.is(Op::kMul) && u.src(0).rank() == u.src(1).rank()) {
    return ProductOfTwo{Narrowed(u.src(0)), Narrowed(u.src(1))};
  }
  const bool sum = u.is(Op::kReduce) && u.arg<ReduceArg>().op == Op::kAdd && u.size() == 1;
  if (!sum && !u.is(Op::kPermute) && !u.is(Op::kReshape) && !u.is(Op::kExpand)) return std::nullopt;
  std::optional<ProductOfTwo> p = ProductOf(u.src(0));
  if (!p || u.is(Op::kExpand)) return p;
  const int rank = u.src(0).rank();
  if (sum) {
    for (int64_t axis : u.arg<ReduceArg>().axes) {
      for (Tensor* t : {&p->a, &p->b}) *t = t->MoveAxis({axis}, {-1}).Unsqueeze(axis);
    }
  } else if (u.is(Op::kPermute)) {
    Ints order = u.arg<Ints>();
    for (int i = rank; i < p->a.rank(); ++i) order.push_back(i);
    for (Tensor* t : {&p->a, &p->b}) *t = t->Permute(Axes(order));
  } else {
    const auto runs = RunsOf(u.src(0).shape(), u.shape());
    if (!runs) return std::nullopt;
    for (Tensor* t : {&p->a, &p->b}) *t = Regrouped(*t, u.src(0).shape(), u.shape(), *runs);
  }
  return p;
}

Tensor PaddedAlong(const Tensor& t, int axis, int64_t before, int64_t after) {
  Pairs pairs(t.rank(), {0, 0});
  pairs[axis] = {before, after};
  return t.PadBy(PadMode::kConstant, pairs);
}

}  // namespace tessera
