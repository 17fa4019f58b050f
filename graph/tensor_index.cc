// Lookup by index tensors, and masks made of counting.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CheckIndex;
using internal::Fail;
using internal::PositionType;
using internal::Show;

void internal::CheckIndex(const Tensor& index) {
  if (!index.dtype().IsInt()) {
    Fail("the index ", Show(index), " must be of an integer dtype; cast it");
  }
}

DType internal::PositionType(DType index, int64_t n) {
  const bool narrow = n <= INT32_MAX && MinInt(index) >= INT32_MIN && MaxInt(index) <= INT32_MAX;
  return narrow ? kInt32 : kInt64;
}

Tensor internal::CountAlong(int axis, int rank, const Extent& n, DType dtype) {
  Extents dims(rank, 1);
  dims[axis] = n;
  return Tensor::Arange(n, dtype).Reshape(dims);
}

Tensor Tensor::Take(const Tensor& index, int axis, CallSite at) const {
  Call call("Take", at, *this, index);
  CheckIndex(index);
  const int a = internal::AxisAlong(axis, rank());
  return Tensor(Build(Op::kGather, {AtLeast(1).uop(), index.uop()}, Ints{a, 0, 0}));
}

Tensor Tensor::Embedding(const Tensor& index, CallSite at) const {
  Call call("Embedding", at, *this, index);
  CheckIndex(index);
  if (rank() != 2) Fail("the table ", Show(*this), " must have two axes, rows and features");
  return Tensor(Build(Op::kGather, {uop(), index.uop()}, Ints{0, 0, 0}));
}

Tensor Tensor::Gather(int axis, const Tensor& index, CallSite at) const {
  Call call("Gather", at, *this, index);
  CheckIndex(index);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() == 0 && index.rank() == 0) {
    return internal::OfElement(*this,
                               [&](const Tensor& x) { return x.Gather(a, index.AtLeast(1)); });
  }
  bool fits = index.rank() == rank();
  for (int i = 0; fits && i < rank(); ++i) {
    fits = i == a || index.shape()[i] == shape()[i] ||
           (index.shape()[i].is_int() && index.shape()[i].max() <= shape()[i].min());
  }
  if (!fits) {
    Fail("the index ", Show(index), " must have the rank of ", Show(*this),
         " and lie within it on every axis but ", a);
  }
  Pairs part;
  for (int i = 0; i < rank(); ++i) {
    part.emplace_back(Extent(0), i == a ? shape()[i] : index.shape()[i]);
  }
  return Tensor(Build(Op::kGather, {Shrink(part).uop(), index.uop()}, Ints{a, a, rank() - 1 - a}));
}

Tensor Tensor::OneHot(int64_t n, DType type, CallSite at) const {
  Call call("OneHot", at, *this);
  CheckIndex(*this);
  if (n < 0) Fail("cannot have ", n, " classes");
  const DType type_of_index = PositionType(dtype(), n);
  return (Cast(type_of_index).Unsqueeze(-1) == Arange(n, type_of_index)).Cast(type);
}

namespace {

// Whether an element of the last two axes lies on or below the diagonal.
Tensor Below(const Tensor& t, int64_t diagonal) {
  if (t.rank() < 2) Fail("takes matrices, not ", Show(t));
  const Tensor row = Tensor::Arange(t.shape()[t.rank() - 2], kInt64).Unsqueeze(1);
  const Tensor column = Tensor::Arange(t.shape()[t.rank() - 1], kInt64);
  return column <= (diagonal == 0 ? row : row + diagonal);
}

}  // namespace

Tensor Tensor::Tril(int64_t diagonal, CallSite at) const {
  Call call("Tril", at, *this);
  return Where(Below(*this, diagonal), *this, false);
}

Tensor Tensor::Triu(int64_t diagonal, CallSite at) const {
  Call call("Triu", at, *this);
  return Where(Below(*this, diagonal - 1), false, *this);
}

}  // namespace tessera
