// Equal elements and rows: which there are, how many of each, and the one that there are most of.
// Sorted, they lie side by side.
#include "graph/statistics.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::Show;

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
  if (size(a) == 0) Fail("of nothing, axis ", a, " of ", Show(*this));
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

namespace {

// How many different elements of its column [N, C] are less than each.
Tensor Ranks(const Tensor& columns) {
  const ValuesAndIndices sorted = columns.Sort(0);
  const Tensor rank = Begins(sorted.values, 0).Cast(kInt64).CumSum(0) - 1;
  return rank.ZerosLike().Scatter(0, sorted.indices, rank);
}

// How many different rows of [N, C] come before each. Two columns of ranks are one of numbers of
// two digits: half as many with every pass.
Tensor RanksOfRows(const Tensor& rows) {
  const int64_t n = rows.size(0);
  int64_t columns = rows.size(1);
  if (n == 0 || columns == 0) return Tensor::Zeros({n}, kInt64);
  Tensor ranks = Ranks(rows);
  for (; columns > 1; columns = (columns + 1) / 2) {
    const Tensor even = ranks.Pad({{0, 0}, {0, columns % 2}});
    const auto every = [&](int64_t first) { return even.SliceAxis(1, {first, {}, 2}); };
    ranks = Ranks(every(0) * n + every(1)).Contiguous();
  }
  return ranks.Squeeze(1);
}

}  // namespace

UniqueElements UniqueRows(const Tensor& x, int64_t n, int axis, Number fill, CallSite at) {
  Call call("UniqueRows", at, x);
  const int a = internal::NormalAxis(axis, x.rank());
  const Tensor first = x.MoveAxis(a, 0);
  const Tensor rows = x.rank() == 1 ? first.Unsqueeze(1) : first.Flatten(1);
  UniqueElements unique = RanksOfRows(rows).Unique(n);
  if (x.size(a) == 0) {
    Extents dims = x.shape().ToExtents();
    dims[a] = n;
    unique.values = Tensor::Full(dims, fill, x.dtype());
    return unique;
  }
  Extents beside(x.rank(), 1);
  beside[a] = n;
  const Tensor none = (unique.counts == 0).Reshape(beside);
  unique.values = x.Take(unique.indices, a).MaskedFill(none, fill);
  return unique;
}

UniqueElements UniqueConsecutive(const Tensor& x, int64_t n, Number fill, CallSite at) {
  Call call("UniqueConsecutive", at, x);
  if (n < 0) Fail("cannot give ", n, " elements");
  if (x.rank() != 1) Fail("takes a vector, not ", Show(x));
  const DType type = internal::IndexType(x.shape()[0]);
  if (x.size(0) == 0) {
    return {Tensor::Full({n}, fill, x.dtype()), Tensor::Zeros({n}, type),
            Tensor::Zeros({n}, kInt32), x.ZerosLike(kInt32)};
  }
  const Tensor begins = Begins(x, 0), which = begins.Cast(type).CumSum(0) - 1;
  const Tensor first = begins.NonZero(n).Select(1, 0), none = first < 0;
  const Tensor indices = first.MaskedFill(none, 0);
  return {x.Take(indices).MaskedFill(none, fill), indices, which.BinCount(n), which};
}

Tensor LexSort(const Tensor& keys, CallSite at) {
  Call call("LexSort", at, keys);
  if (keys.rank() != 2) Fail("takes keys [K, N], not ", Show(keys));
  return RanksOfRows(keys.Flip(0).Transpose()).ArgSort();
}

}  // namespace tessera
