// Equal elements: which there are, how many of each, and the one that there are most of. Sorted,
// they lie side by side.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;

namespace {

// Whether an element of a sorted axis differs from the one before it.
Tensor Begins(const Tensor& sorted, int axis) {
  const int64_t n = sorted.size(axis);
  const Tensor later = sorted.SliceAxis(axis, {1, {}}),
               earlier = sorted.SliceAxis(axis, {0, n - 1});
  Tensor differs = later != earlier;
  if (sorted.dtype().IsFloat()) differs = differs & (later.IsNan() & earlier.IsNan()).LogicalNot();
  Pairs pairs(sorted.rank(), {0, 0});
  pairs[axis] = {1, 0};
  return differs.Pad(pairs, true);
}

}  // namespace

ValuesAndIndices Tensor::Mode(int axis, bool keepdim, CallSite at) const {
  Call call("Mode", at, *this);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() == 0) return internal::OfElement(*this, [a](const Tensor& x) { return x.Mode(a); });
  if (size(a) == 0) Fail("of nothing, axis ", a, " of ", internal::Show(*this));
  const ValuesAndIndices sorted = Sort(a);
  const Tensor place = CountAlong(a, rank(), shape()[a], kInt32);
  const Tensor begin = Where(Begins(sorted.values, a), place, 0).CumMax(a).values;
  const Tensor best = (place - begin).ArgMax(a, /*keepdim=*/true);
  const Tensor index = sorted.indices.Gather(a, best), value = Gather(a, index);
  if (keepdim) return {value, index};
  return {value.Squeeze(a), index.Squeeze(a)};
}

UniqueElements Tensor::Unique(int64_t n, Number fill, CallSite at) const {
  Call call("Unique", at, *this);
  if (n < 0) Fail("cannot give ", n, " elements");
  const Tensor flat = Flatten();
  const DType type = internal::IndexType(flat.shape()[0]);
  if (flat.size(0) == 0) {
    return {Full({n}, fill, dtype()), Zeros({n}, type), Zeros({n}, kInt32), ZerosLike(kInt32)};
  }
  const ValuesAndIndices sorted = flat.Sort(0);
  const Tensor begins = Begins(sorted.values, 0);
  const Tensor which = begins.Cast(type).CumSum(0) - 1;
  const Tensor first = begins.NonZero(n).Select(1, 0), none = first < 0;
  const Tensor indices = sorted.indices.Take(first).MaskedFill(none, 0);
  const Tensor values = flat.Take(indices).MaskedFill(none, fill);
  const Tensor inverse = which.ZerosLike().Scatter(0, sorted.indices, which).Reshape(shape());
  return {values, indices, which.BinCount(n), inverse};
}

Tensor Tensor::CountUnique(CallSite at) const {
  Call call("CountUnique", at, *this);
  const Tensor flat = Flatten();
  if (flat.size(0) == 0) return Zeros({}, kInt32);
  return Begins(flat.Sort(0).values, 0).Cast(kInt32).Sum();
}

}  // namespace tessera
