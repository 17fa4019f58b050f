// Writing by index, and lookup by several indices at once.
//
// Every element of a result combines all updates whose index names it: a comparison of positions
// and a reduction over the updates, so the order in which duplicates count is theirs, on any
// device.
#include <algorithm>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CheckIndex;
using internal::CountAlong;
using internal::Fail;
using internal::NormalAxis;
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

// Sums, products and means of updates, where `hit` holds along `over`.
Tensor Combined(const Tensor& self, const Tensor& hit, const Tensor& src, int over,
                ScatterMode mode, bool include_self) {
  const DType type = AccumulateType(SumType(self.dtype()));
  const Tensor own = self.Cast(type), updates = src.Cast(type);
  if (mode == ScatterMode::kMul) {
    const Tensor product = Where(hit, updates, 1).Prod(over);
    return (include_self ? own * product : product).Cast(self.dtype());
  }
  Tensor sum = Where(hit, updates, 0).Sum(over);
  if (include_self) sum = own + sum;
  if (mode == ScatterMode::kAdd) return sum.Cast(self.dtype());
  const Tensor count = hit.Cast(kInt32).Sum(over) + (include_self ? 1 : 0);
  if (type.IsFloat()) return (sum / count.Cast(type)).Cast(self.dtype());
  return sum.FloorDiv(count.Cast(type)).Cast(self.dtype());
}

// The extremes of updates, in the dtype itself; bools are ordered as 0 and 1.
Tensor ExtremeOf(const Tensor& self, const Tensor& hit, const Tensor& src, int over, bool max,
                 bool include_self) {
  if (self.dtype().IsBool()) {
    return ExtremeOf(self.Cast(kUInt8), hit, src.Cast(kUInt8), over, max, include_self).Cast(kBool);
  }
  const DType type = self.dtype();
  const Tensor least(UOp::Const(type, max ? LowestScalar(type) : HighestScalar(type)));
  const Tensor masked = Where(hit, src, least);
  const Tensor most = max ? masked.Max(over) : masked.Min(over);
  if (!include_self) return most;
  return max ? self.Maximum(most) : self.Minimum(most);
}

// `self` with updates along axis a. The shapes of self and src differ on that axis alone; that of
// the index is src's, or 1 on other axes.
Tensor Updated(const Tensor& self, const Tensor& index, const Tensor& src, int a, ScatterMode mode,
               bool include_self) {
  const Extent n = self.shape()[a], m = src.shape()[a];
  if (m.is_int(0) || self.shape().MaxElements() == 0) return self;
  const DType type = PositionType(index.dtype(), std::max(n.max(), m.max()));
  const int rank = self.rank(), over = a + 1;
  const Tensor hit = index.Cast(type).Unsqueeze(a) == CountAlong(a, rank + 1, n, type);
  if (mode == ScatterMode::kSet) {
    const Tensor order = CountAlong(over, rank + 1, m, type);
    const Tensor last = Where(hit, order, -1).Max(over);
    const bool rows = last.shape().Elements() == n;
    const Tensor values = rows ? src.Take(last.Reshape({n}), a) : src.Gather(a, last);
    return Where(last >= 0, values, self);
  }
  const Tensor updates = src.Unsqueeze(a);
  const bool max = mode == ScatterMode::kMax;
  const Tensor value = max || mode == ScatterMode::kMin
                           ? ExtremeOf(self, hit, updates, over, max, include_self)
                           : Combined(self, hit, updates, over, mode, include_self);
  return Where(hit.Any(over), value, self);
}

}  // namespace

Tensor Tensor::Scatter(int axis, const Tensor& index, const Tensor& src, ScatterMode mode,
                       bool include_self, CallSite at) const {
  Call call("Scatter", at);
  CheckIndex(index);
  if (rank() == 0)
    return Reshape({1})
        .Scatter(0, index.Reshape({1}), src.Reshape({1}), mode, include_self)
        .Reshape({});
  const int a = NormalAxis(axis, rank());
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
  const Tensor part = Updated(Shrink(of_self), index, updates, a, mode, include_self);
  if (whole) return part;
  const Tensor inside = Ones(part.shape(), kBool).Pad(back);
  return Where(inside, part.Pad(back), *this);
}

Tensor Tensor::ScatterAdd(int axis, const Tensor& index, const Tensor& src, CallSite at) const {
  Call call("ScatterAdd", at);
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
  Call call("GatherND", at);
  CheckPositions(*this, index, batch);
  const int64_t k = index.size(-1);
  const Tensor table = Joined(*this, batch, k);
  Tensor position = JoinedPosition(*this, index, batch);
  if (batch == 0) return table.Take(position, 0);
  // The common axes are counted into the position.
  const Extent n = table.shape()[batch];
  Extent rows = 1;
  Extents outer(position.rank(), 1);
  for (int i = 0; i < batch; ++i) {
    rows = rows * shape()[i];
    outer[i] = shape()[i];
  }
  const DType type = PositionType(position.dtype(), shape().MaxElements());
  const Tensor row = Arange(rows, type).Reshape(outer) * n;
  position = Where(position >= 0, position.Cast(type) + row, -1);
  return table.Flatten(0, batch).Take(position, 0);
}

Tensor Tensor::ScatterND(const Tensor& index, const Tensor& updates, ScatterMode mode,
                         CallSite at) const {
  Call call("ScatterND", at);
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
  const Extent m = position.shape().Elements();
  Extents rows(self.shape().begin(), self.shape().end()), one(self.rank(), 1);
  rows[0] = one[0] = m;
  const Tensor src = UpdatesFor(*this, updates).Reshape(rows);
  return Updated(self, position.Reshape(one), src, 0, mode, /*include_self=*/true).Reshape(shape());
}

// ---- whole rows

namespace {

// An index vector with the rank of t, along axis a.
Tensor RowIndex(const Tensor& t, const Tensor& index, int a) {
  CheckIndex(index);
  if (index.rank() > 1) Fail("the index ", Show(index), " must be a vector");
  Extents one(t.rank(), 1);
  one[a] = index.shape().Elements();
  return index.Reshape(one);
}

Tensor RowsUpdated(const Tensor& t, int axis, const Tensor& index, const Tensor& src,
                   ScatterMode mode) {
  const int a = NormalAxis(axis, t.rank());
  const Tensor position = RowIndex(t, index, a);
  Extents wanted(t.shape().begin(), t.shape().end());
  wanted[a] = position.shape()[a];
  if (!(src.shape() == Shape(wanted))) {
    Fail("the rows ", Show(src), " must have the shape ", Shape(wanted).ToString(), " for axis ", a,
         " of ", Show(t), " and the index ", Show(index));
  }
  return Updated(t, position, UpdatesFor(t, src), a, mode, /*include_self=*/true);
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
  Call call("IndexSelect", at);
  CheckIndex(index);
  if (index.rank() > 1) Fail("the index ", Show(index), " must be a vector");
  return Take(index.Reshape({index.shape().Elements()}), axis);
}

Tensor Tensor::IndexAdd(int axis, const Tensor& index, const Tensor& src, CallSite at) const {
  Call call("IndexAdd", at);
  return RowsUpdated(*this, axis, index, src, ScatterMode::kAdd);
}

Tensor Tensor::IndexCopy(int axis, const Tensor& index, const Tensor& src, CallSite at) const {
  Call call("IndexCopy", at);
  return RowsUpdated(*this, axis, index, src, ScatterMode::kSet);
}

Tensor Tensor::IndexFill(int axis, const Tensor& index, Number value, CallSite at) const {
  Call call("IndexFill", at);
  const int a = NormalAxis(axis, rank());
  const DType type = PositionType(index.dtype(), shape()[a].max());
  const Tensor position = RowIndex(*this, index, a).Cast(type).Unsqueeze(a);
  const Tensor hit = position == CountAlong(a, rank() + 1, shape()[a], type);
  return Where(hit.Any(a + 1), Tensor(internal::NumberAs(value, dtype())), *this);
}

Tensor Tensor::IndexGet(absl::Span<const Tensor> indices, CallSite at) const {
  Call call("IndexGet", at);
  return GatherND(Positions(indices));
}

Tensor Tensor::IndexPut(absl::Span<const Tensor> indices, const Tensor& values, bool accumulate,
                        CallSite at) const {
  Call call("IndexPut", at);
  const Tensor position = Positions(indices);
  CheckPositions(*this, position, 0);
  Extents wanted(position.shape().begin(), position.shape().end() - 1);
  wanted.insert(wanted.end(), shape().begin() + static_cast<int>(indices.size()), shape().end());
  return ScatterND(position, values.Expand(wanted),
                   accumulate ? ScatterMode::kAdd : ScatterMode::kSet);
}

Tensor Tensor::BinCount(int64_t n, const Tensor& weights, CallSite at) const {
  Call call("BinCount", at);
  CheckIndex(*this);
  if (n < 0) Fail("cannot have ", n, " bins");
  const DType type = PositionType(dtype(), n);
  const Tensor hit = Cast(type).Flatten().Unsqueeze(-1) == Arange(n, type);
  if (!weights) return hit.Cast(kInt32).Sum(0);
  if (!(weights.shape() == shape())) {
    Fail("the weights ", Show(weights), " must have the shape of ", Show(*this));
  }
  return Where(hit, weights.Flatten().Unsqueeze(-1), 0).Sum(0);
}

}  // namespace tessera
