// What is read and written by position, made of the members of Tensor.
#include "graph/index_functions.h"

#include "graph/fold.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// Positions along n elements, as those that count from the beginning.
Tensor FromBeginning(const Tensor& index, const Extent& n) {
  internal::CheckIndex(index);
  const Tensor i = index.Cast(kInt64);
  return Where(i < 0, i + Tensor::FromExtent(n, kInt64), i);
}

// The shape in which both meet on all axes but one, on which it has another extent.
Dims MeetingBut(const Tensor& a, const Tensor& b, int axis, const Extent& n) {
  if (a.rank() != b.rank()) {
    Fail("the index ", Show(b), " must have the rank of ", Show(a));
  }
  Extents of_a = a.shape().ToExtents(), of_b = b.shape().ToExtents();
  of_a[axis] = of_b[axis] = 1;
  Extents both = internal::BroadcastShape(Shape(of_a), Shape(of_b)).ToExtents();
  both[axis] = n;
  return Dims(both);
}

}  // namespace

Tensor TakeFlat(const Tensor& x, const Tensor& index, CallSite at) {
  Call call("TakeFlat", at, x, index);
  const Tensor flat = x.Flatten();
  return flat.Take(FromBeginning(index, flat.shape()[0]));
}

Tensor PutFlat(const Tensor& x, const Tensor& index, const Tensor& values, bool accumulate,
               CallSite at) {
  Call call("PutFlat", at, x, index, values);
  if (!(index.shape().Elements() == values.shape().Elements())) {
    Fail("the values ", Show(values), " must be as many as the positions ", Show(index));
  }
  const Tensor flat = x.Flatten(), i = FromBeginning(index, flat.shape()[0]).Flatten();
  const ScatterMode mode = accumulate ? ScatterMode::kAdd : ScatterMode::kSet;
  return flat.Scatter(0, i, values.Flatten(), mode).Reshape(x.shape());
}

Tensor TakeAlong(const Tensor& x, const Tensor& index, int axis, CallSite at) {
  Call call("TakeAlong", at, x, index);
  if (x.rank() == 0) Fail("takes an axis of x, which has none: ", Show(x));
  const int a = internal::NormalAxis(axis, x.rank());
  const Tensor i = FromBeginning(index, x.shape()[a]);
  const Tensor wide = x.Expand(MeetingBut(x, i, a, x.shape()[a]));
  return wide.Gather(a, i.Expand(MeetingBut(x, i, a, i.shape()[a])));
}

Tensor PutAlong(const Tensor& x, const Tensor& index, const Operand& values, int axis,
                ScatterMode mode) {
  Call call("PutAlong", values.site(), x, index, values);
  if (x.rank() == 0) Fail("takes an axis of x, which has none: ", Show(x));
  const int a = internal::NormalAxis(axis, x.rank());
  Extents dims = x.shape().ToExtents();
  const Tensor i = FromBeginning(index, dims[a]);
  if (i.rank() != x.rank()) Fail("the index ", Show(index), " must have the rank of ", Show(x));
  dims[a] = i.shape()[a];
  const DType type = values.tensor() == nullptr ? x.dtype() : values.tensor()->dtype();
  const Tensor src = Tensor(internal::AsNode(values, type)).Expand(Dims(dims));
  return x.Scatter(a, i.Expand(Dims(dims)), src, mode);
}

Tensor IndexReduce(const Tensor& x, int axis, const Tensor& index, const Tensor& src,
                   ScatterMode mode, bool include_self, CallSite at) {
  Call call("IndexReduce", at, x, index, src);
  if (x.rank() == 0) Fail("takes an axis of x, which has none: ", Show(x));
  const int a = internal::NormalAxis(axis, x.rank());
  internal::CheckIndex(index);
  if (index.rank() != 1) Fail("the index ", Show(index), " must be a vector");
  Extents dims = x.shape().ToExtents();
  dims[a] = index.shape()[0];
  if (!(src.shape() == Shape(dims))) {
    Fail("the rows ", Show(src), " must have the shape ", Shape(dims).ToString(), " for axis ", a,
         " of ", Show(x), " and the index ", Show(index));
  }
  Extents along(x.rank(), 1);
  along[a] = index.shape()[0];
  return x.Scatter(a, index.Reshape(Dims(along)).Expand(Dims(dims)), src, mode, include_self);
}

Tensor RepeatInterleave(const Tensor& x, const Tensor& counts, int64_t total, int axis,
                        CallSite at) {
  Call call("RepeatInterleave", at, x, counts);
  internal::CheckIndex(counts);
  if (total < 0) Fail("cannot make ", total, " elements");
  const int a = internal::NormalAxis(axis, x.rank());
  if (counts.rank() != 1 || !(counts.shape()[0] == x.shape()[a])) {
    Fail("the counts ", Show(counts), " must be a vector with one for each position of axis ", a,
         " of ", Show(x));
  }
  const Tensor ends = counts.Cast(kInt64).CumSum(0);
  return x.Take(ends.SearchSorted(Tensor::Arange(total, kInt64), /*right=*/true), a);
}

namespace {

// What no rows come to.
Tensor OfNone(DType type, ScatterMode mode) {
  switch (mode) {
    case ScatterMode::kSet:
      Fail("combines rows; IndexCopy sets them");
    case ScatterMode::kAdd:
      break;
    case ScatterMode::kMul:
      return Tensor::Scalar(1).Cast(type);
    case ScatterMode::kMax:
      return Tensor(UOp::Const(type, ReduceIdentity(Op::kMax, type)));
    case ScatterMode::kMin:
      return Tensor(UOp::Const(type, ReduceIdentity(Op::kMin, type)));
    case ScatterMode::kMean:
      if (type.IsFloat()) return Tensor(UOp::Const(type, internal::kNan));
  }
  return Tensor::Scalar(0).Cast(type);
}

}  // namespace

Tensor SegmentReduce(const Tensor& x, const Tensor& numbers, int64_t n, ScatterMode mode,
                     CallSite at) {
  Call call("SegmentReduce", at, x, numbers);
  if (x.rank() == 0 || n < 0) Fail("takes rows and how many there will be, not ", Show(x), ", ", n);
  Extents dims = x.shape().ToExtents();
  dims[0] = n;
  return IndexReduce(OfNone(x.dtype(), mode).Expand(Dims(dims)), 0, numbers, x, mode,
                     /*include_self=*/false);
}

Tensor DiagonalScatter(const Tensor& x, const Tensor& src, int64_t offset, int a, int b,
                       CallSite at) {
  Call call("DiagonalScatter", at, x, src);
  const Shape part = x.Diagonal(offset, a, b).shape();
  const Tensor values = src.Cast(x.dtype()).Expand(part);
  const Tensor moved = x.MoveAxis({a, b}, {-2, -1});
  const Extent rows = moved.shape()[x.rank() - 2], columns = moved.shape()[x.rank() - 1];
  // Beside rows above the main diagonal, beside columns below it.
  Pairs pairs(values.rank(), {0, 0});
  pairs.back() = {0, (offset >= 0 ? rows : columns) - part[part.rank() - 1]};
  const Tensor wide = values.Pad(pairs).Unsqueeze(offset >= 0 ? -1 : -2);
  const Tensor on =
      internal::CountAlong(1, 2, columns, kInt64) - internal::CountAlong(0, 2, rows, kInt64) ==
      offset;
  return Where(on, wide, moved).MoveAxis({-2, -1}, {a, b});
}

}  // namespace tessera
