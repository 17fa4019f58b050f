// Writing by index, and lookup by several indices at once.
//
// All by the primitive: updates of one element are taken up in the order of the index, on any
// device, at a cost of the base and the updates.
#include <algorithm>

#include "graph/fold.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CheckIndex;
using internal::Fail;
using internal::PositionType;
using internal::Show;

namespace {

// The updates as this tensor's dtype, which must hold them.
Tensor UpdatesFor(const Tensor& self, const Tensor& src) {
  if (!(Promote(self.dtype(), src.dtype()) == self.dtype())) {
    Fail("the updates ", Show(src), " do not fit ", Show(self), "; cast one of them");
  }
  return src.Cast(self.dtype());
}

// Which axis of a base is written, and how many leading and trailing ones the index has too.
using Axis = Ints;

Tensor ScatterBy(Op op, const Tensor& base, const Tensor& index, const Tensor& updates,
                 const Axis& axis) {
  return Tensor(Build(Op::kScatter, {base.uop(), index.uop(), updates.uop()}, ReduceArg{op, axis}));
}

Tensor Like(const Tensor& t, const Tensor& value) {
  return value.Cast(t.dtype()).Expand(t.shape());
}

// The base with `value` wherever the index names an element.
Tensor Touched(const Tensor& base, const Tensor& index, const Tensor& updates, const Axis& axis,
               const Tensor& value) {
  return ScatterBy(Op::kAssign, base, index, Like(updates, value), axis);
}

Tensor NumberOf(const DType type, Scalar s) { return Tensor(UOp::Const(type, s)); }

// Sums, products and extremes; without the base's own elements, from what changes none.
Tensor Combined(Op op, const Tensor& self, const Tensor& index, const Tensor& src, const Axis& axis,
                bool include_self) {
  const DType type = self.dtype().IsFloat() ? AccumulateType(self.dtype()) : self.dtype();
  Tensor base = self.Cast(type);
  const Tensor updates = src.Cast(type);
  if (!include_self) {
    // Infinities are no extremes of the dtype itself: those give way to any update.
    const bool zero = op == Op::kAdd && type.IsFloat();
    const Tensor none =
        zero ? Tensor(UOp::Const(type, -0.0)) : NumberOf(type, ReduceIdentity(op, type));
    base = Touched(base, index, updates, axis, none);
  }
  return ScatterBy(op, base, index, updates, axis).Cast(self.dtype());
}

// Of the updates of each element, and the element itself; integers round down.
Tensor Mean(const Tensor& self, const Tensor& index, const Tensor& src, const Axis& axis,
            bool include_self) {
  const DType type = AccumulateType(SumType(self.dtype()));
  const Tensor sum = Combined(Op::kAdd, self.Cast(type), index, src.Cast(type), axis, include_self);
  const Tensor ones = Like(src, Tensor::Scalar(1, kInt32)).Cast(kInt32);
  const Tensor none = Tensor::Zeros(Dims(self.shape().ToExtents()), kInt32);
  const Tensor hits = ScatterBy(Op::kAdd, none, index, ones, axis);
  const Tensor count = (include_self ? hits + 1 : hits.Maximum(1)).Cast(type);
  const Tensor mean = type.IsFloat() ? sum / count : sum.FloorDiv(count);
  return Where(hits > 0, mean.Cast(self.dtype()), self);
}

// `self` with updates of its dtype.
Tensor Updated(const Tensor& self, const Tensor& index, const Tensor& src, const Axis& axis,
               ScatterMode mode, bool include_self) {
  if (src.shape().MaxElements() == 0 || self.shape().MaxElements() == 0) return self;
  const bool extreme = mode == ScatterMode::kMax || mode == ScatterMode::kMin;
  if (self.dtype().IsBool() && mode != ScatterMode::kSet) {
    // Ordered and counted as 0 and 1.
    const DType as = extreme ? kUInt8 : SumType(kBool);
    return Updated(self.Cast(as), index, src.Cast(as), axis, mode, include_self).Cast(kBool);
  }
  switch (mode) {
    case ScatterMode::kSet:
      return ScatterBy(Op::kAssign, self, index, src, axis);
    case ScatterMode::kAdd:
      return Combined(Op::kAdd, self, index, src, axis, include_self);
    case ScatterMode::kMul:
      return Combined(Op::kMul, self, index, src, axis, include_self);
    case ScatterMode::kMax:
      return Combined(Op::kMax, self, index, src, axis, include_self);
    case ScatterMode::kMin:
      return Combined(Op::kMin, self, index, src, axis, include_self);
    case ScatterMode::kMean:
      return Mean(self, index, src, axis, include_self);
  }
  return self;
}

}  // namespace

Tensor Tensor::Scatter(int axis, const Tensor& index, const Tensor& src, ScatterMode mode,
                       bool include_self, CallSite at) const {
  Call call("Scatter", at, *this, index, src);
  CheckIndex(index);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() == 0 && index.rank() == 0 && src.rank() == 0) {
    return internal::OfElement(*this, [&](const Tensor& x) {
      return x.Scatter(a, index.AtLeast(1), src.AtLeast(1), mode, include_self);
    });
  }
  bool fits = index.rank() == rank() && src.rank() == rank(), whole = fits;
  for (int i = 0; fits && i < rank(); ++i) {
    const auto within = [&](const Extent& most) {
      return index.shape()[i] == most ||
             (index.shape()[i].is_int() && index.shape()[i].max() <= most.min());
    };
    fits = within(src.shape()[i]) && (i == a || within(shape()[i]));
    whole &= i == a || index.shape()[i] == shape()[i];
  }
  if (!fits) {
    Fail("the index ", Show(index), " must have the rank of ", Show(*this), " and of the updates ",
         Show(src), ", and lie within the updates and, on every axis but ", a,
         ", within the first");
  }
  Pairs of_src, of_self, back;
  for (int i = 0; i < rank(); ++i) {
    const Extent n = i == a ? shape()[i] : index.shape()[i];
    of_src.emplace_back(Extent(0), index.shape()[i]);
    of_self.emplace_back(Extent(0), n);
    back.emplace_back(Extent(0), shape()[i] - n);
  }
  const Tensor updates = UpdatesFor(*this, src).Shrink(of_src);
  const Axis axes = {a, a, rank() - 1 - a};
  const Tensor part = Updated(Shrink(of_self), index, updates, axes, mode, include_self);
  if (whole) return part;
  const Tensor inside = Ones(part.shape(), kBool).Pad(back);
  return Where(inside, part.Pad(back), *this);
}

Tensor Tensor::ScatterAdd(int axis, const Tensor& index, const Tensor& src, CallSite at) const {
  Call call("ScatterAdd", at, *this, index, src);
  return Scatter(axis, index, src, ScatterMode::kAdd);
}

// ---- positions of several axes

namespace {

// A position in the axes first, first + 1, ... of t, joined, for each row of the index's last axis;
// -1 where one of them is outside its axis.
Tensor JoinedPosition(const Tensor& t, const Tensor& index, int first) {
  const int64_t k = index.size(-1);
  Extent joined = 1;
  for (int64_t i = 0; i < k; ++i) joined = joined * t.shape()[first + static_cast<int>(i)];
  const DType type = PositionType(index.dtype(), std::max<int64_t>(joined.max(), 1));
  Tensor flat, inside;
  for (int64_t i = 0; i < k; ++i) {
    const Extent n = t.shape()[first + static_cast<int>(i)];
    const Tensor position = index.Select(-1, i).Cast(type);
    const Tensor within = (position >= 0) & (position < n);
    flat = flat ? flat * n + position : position;
    inside = inside ? inside & within : within;
  }
  if (flat) return Where(inside, flat, -1);
  Extents dims(index.shape().begin(), index.shape().end() - 1);
  return Tensor::Zeros(Dims(dims), type);
}

// The axes first to first + k - 1 as one.
Tensor Joined(const Tensor& t, int first, int64_t k) {
  if (k == 0) return t.Unsqueeze(first);
  return t.Flatten(first, first + static_cast<int>(k) - 1);
}

void CheckPositions(const Tensor& t, const Tensor& index, int batch) {
  CheckIndex(index);
  if (index.rank() == 0 || batch < 0 || batch >= index.rank() || batch > t.rank() ||
      index.size(-1) > t.rank() - batch) {
    Fail("the last axis of ", Show(index), " must name positions of at most ", t.rank() - batch,
         " axes of ", Show(t), ", after ", batch, " common ones");
  }
  for (int i = 0; i < batch; ++i) {
    if (!(t.shape()[i] == index.shape()[i])) {
      Fail("axis ", i, " of ", Show(t), " and of ", Show(index), " differ");
    }
  }
}

}  // namespace

Tensor Tensor::GatherND(const Tensor& index, int batch, CallSite at) const {
  Call call("GatherND", at, *this, index);
  CheckPositions(*this, index, batch);
  const int64_t k = index.size(-1);
  const Tensor table = Joined(*this, batch, k);
  const Tensor position = JoinedPosition(*this, index, batch);
  return Tensor(Build(Op::kGather, {table.uop(), position.uop()}, Ints{batch, batch, 0}));
}

Tensor Tensor::ScatterND(const Tensor& index, const Tensor& updates, ScatterMode mode,
                         CallSite at) const {
  Call call("ScatterND", at, *this, index, updates);
  CheckPositions(*this, index, 0);
  const int64_t k = index.size(-1);
  Extents wanted(index.shape().begin(), index.shape().end() - 1);
  wanted.insert(wanted.end(), shape().begin() + k, shape().end());
  if (!(updates.shape() == Shape(wanted))) {
    Fail("the updates ", Show(updates), " must have the shape ", Shape(wanted).ToString(), " for ",
         Show(*this), " and the index ", Show(index));
  }
  const Tensor self = Joined(*this, 0, k);
  const Tensor position = JoinedPosition(*this, index, 0);
  return Updated(self, position, UpdatesFor(*this, updates), {0, 0, 0}, mode,
                 /*include_self=*/true)
      .Reshape(shape());
}

// ---- whole rows

namespace {

Tensor AsVector(const Tensor& index) {
  CheckIndex(index);
  if (index.rank() > 1) Fail("the index ", Show(index), " must be a vector");
  return index.Reshape({index.shape().Elements()});
}

Tensor RowsUpdated(const Tensor& t, int axis, const Tensor& index, const Tensor& src,
                   ScatterMode mode) {
  const int a = internal::AxisAlong(axis, t.rank());
  if (t.rank() == 0) {
    return internal::OfElement(
        t, [&](const Tensor& x) { return RowsUpdated(x, a, index, src.AtLeast(1), mode); });
  }
  const Tensor position = AsVector(index);
  Extents wanted(t.shape().begin(), t.shape().end());
  wanted[a] = position.shape()[0];
  if (!(src.shape() == Shape(wanted))) {
    Fail("the rows ", Show(src), " must have the shape ", Shape(wanted).ToString(), " for axis ", a,
         " of ", Show(t), " and the index ", Show(index));
  }
  return Updated(t, position, UpdatesFor(t, src), {a, 0, 0}, mode, /*include_self=*/true);
}

// The indices, broadcast together, as positions along a new last axis.
Tensor Positions(absl::Span<const Tensor> indices) {
  if (indices.empty()) Fail("needs at least one index");
  DType type = kInt32;
  for (const Tensor& i : indices) {
    CheckIndex(i);
    type = Promote(type, i.dtype() == kUInt64 ? kInt64 : i.dtype());
  }
  std::vector<Tensor> all = BroadcastTensors(indices);
  for (Tensor& i : all) i = i.Cast(type);
  return Stack(all, -1);
}

}  // namespace

Tensor Tensor::IndexSelect(int axis, const Tensor& index, CallSite at) const {
  Call call("IndexSelect", at, *this, index);
  const int a = internal::AxisAlong(axis, rank());
  const Tensor rows = Take(AsVector(index), a);
  return rank() == 0 ? internal::AsElement(rows) : rows;
}

Tensor Tensor::IndexAdd(int axis, const Tensor& index, const Tensor& src, CallSite at) const {
  Call call("IndexAdd", at, *this, index, src);
  return RowsUpdated(*this, axis, index, src, ScatterMode::kAdd);
}

Tensor Tensor::IndexCopy(int axis, const Tensor& index, const Tensor& src, CallSite at) const {
  Call call("IndexCopy", at, *this, index, src);
  return RowsUpdated(*this, axis, index, src, ScatterMode::kSet);
}

Tensor Tensor::IndexFill(int axis, const Tensor& index, Number value, CallSite at) const {
  Call call("IndexFill", at, *this, index);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() == 0) {
    return internal::OfElement(*this,
                               [&](const Tensor& x) { return x.IndexFill(a, index, value); });
  }
  const Tensor position = AsVector(index);
  Extents rows(shape().begin(), shape().end());
  rows[a] = position.shape()[0];
  const Tensor values = Tensor(internal::NumberAs(value, dtype())).Expand(Dims(rows));
  return Updated(*this, position, values, {a, 0, 0}, ScatterMode::kSet, /*include_self=*/true);
}

Tensor Tensor::IndexGet(absl::Span<const Tensor> indices, CallSite at) const {
  Call call("IndexGet", at, *this, indices);
  return GatherND(Positions(indices));
}

Tensor Tensor::IndexPut(absl::Span<const Tensor> indices, const Tensor& values, bool accumulate,
                        CallSite at) const {
  Call call("IndexPut", at, *this, indices, values);
  const Tensor position = Positions(indices);
  CheckPositions(*this, position, 0);
  Extents wanted(position.shape().begin(), position.shape().end() - 1);
  wanted.insert(wanted.end(), shape().begin() + static_cast<int>(indices.size()), shape().end());
  return ScatterND(position, values.Expand(wanted),
                   accumulate ? ScatterMode::kAdd : ScatterMode::kSet);
}

Tensor Tensor::BinCount(int64_t n, const Tensor& weights, CallSite at) const {
  Call call("BinCount", at, *this, weights);
  CheckIndex(*this);
  if (n < 0) Fail("cannot have ", n, " bins");
  if (weights && !(weights.shape() == shape())) {
    Fail("the weights ", Show(weights), " must have the shape of ", Show(*this));
  }
  const Tensor counted = weights ? weights : Ones(shape(), kInt32);
  const DType type = SumType(counted.dtype());
  const Tensor bins = Zeros({n}, type);
  return Updated(bins, *this, counted.Cast(type), {0, 0, 0}, ScatterMode::kAdd,
                 /*include_self=*/true);
}

}  // namespace tessera
