// Contractions and attention, as compositions of primitives.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Fail;
using internal::FloatResult;
using internal::ReshapeTo;
using internal::Show;
using internal::WideFloat;

namespace {

// What a product of two tensors is summed in, and given back in: narrow integers as Sum gives them,
// narrow floats in f32 and rounded at the end.
struct ContractionTypes {
  DType wide, result;
};

ContractionTypes TypesOf(const Tensor& a, const Tensor& b) {
  const DType result = SumType(Promote(a.dtype(), b.dtype()));
  return {AccumulateType(result), result};
}

// The sum over one axis of the products of two nodes that broadcast to `shape`, the axis dropped.
Tensor Contract(const UOp& a, const UOp& b, const Shape& shape, int axis, DType result) {
  const UOp product = Build(
      Op::kMul, {internal::BroadcastTo(a, shape, true), internal::BroadcastTo(b, shape, true)});
  const UOp sum = Build(Op::kReduce, {product}, ReduceArg{Op::kAdd, {axis}});
  Extents dims = shape.ToExtents();
  dims.erase(dims.begin() + axis);
  return Tensor(CastTo(ReshapeTo(sum, dims), result));
}

Extents WithAxis(const Shape& shape, int axis) {
  Extents dims = shape.ToExtents();
  dims.insert(dims.begin() + axis, 1);
  return dims;
}

}  // namespace

// Rows [..., M, K, 1] times columns [..., 1, K, N], summed over K. The operands need no transpose.
Tensor Tensor::MatMul(const Tensor& b, CallSite at) const {
  Call call("MatMul", at, *this, b);
  if (rank() == 0 || b.rank() == 0) {
    Fail("takes vectors and matrices, not ", Show(*this), " and ", Show(b), "; use *");
  }
  const int inner = b.rank() == 1 ? 0 : b.rank() - 2;
  if (!(shape()[rank() - 1] == b.shape()[inner])) {
    Fail("the last axis of ", Show(*this), " and axis ", inner, " of ", Show(b),
         " differ: ", shape()[rank() - 1].ToString(), " and ", b.shape()[inner].ToString());
  }
  for (int i = 3; i <= std::min(rank(), b.rank()); ++i) {
    const Extent &x = shape()[rank() - i], &y = b.shape()[b.rank() - i];
    if (x == y || x.is_int(1) || y.is_int(1)) continue;
    Fail("the axes before the last two do not broadcast: axis ", -i, " of ", Show(*this), " and ",
         Show(b), " has ", x.ToString(), " and ", y.ToString());
  }
  const Device at_a = device(), at_b = b.device();
  if (at_a && at_b && !at_a.is_sharding() && !at_b.is_sharding() && !(at_a == at_b)) {
    Fail("the operands are on different devices, ", at_a.ToString(), " and ", at_b.ToString(),
         "; move one of them with .To(...); got ", Show(*this), " and ", Show(b));
  }
  const auto [wide, result] = TypesOf(*this, b);
  const UOp x = CastTo(uop(), wide), y = CastTo(b.uop(), wide);
  if (b.rank() == 1) return Contract(x, y, shape(), rank() - 1, result);
  if (rank() == 1) {
    const UOp column = ReshapeTo(x, {shape()[0], 1});
    return Contract(column, y, b.shape(), b.rank() - 2, result);
  }
  const UOp rows = ReshapeTo(x, WithAxis(shape(), rank()));
  const UOp columns = ReshapeTo(y, WithAxis(b.shape(), b.rank() - 2));
  const Shape all = internal::BroadcastShape(rows.shape(), columns.shape());
  return Contract(rows, columns, all, all.rank() - 2, result);
}

Tensor Tensor::Dot(const Tensor& b, CallSite at) const {
  Call call("Dot", at, *this, b);
  return MatMul(b, at);
}

Tensor Tensor::Linear(const Tensor& weight, const Tensor& bias, CallSite at) const {
  Call call("Linear", at, *this, weight, bias);
  if (weight.rank() != 2 || rank() == 0 || !(shape()[rank() - 1] == weight.shape()[1])) {
    Fail("the weight ", Show(weight), " must be [out, in], and `in` the last axis of ",
         Show(*this));
  }
  const auto [wide, result] = TypesOf(*this, weight);
  const UOp x = CastTo(uop(), wide), w = CastTo(weight.uop(), wide);
  const UOp rows = ReshapeTo(x, WithAxis(shape(), rank() - 1));
  const Shape all = internal::BroadcastShape(rows.shape(), w.shape());
  const Tensor product = Contract(rows, w, all, all.rank() - 1, result);
  return bias ? product + bias : product;
}

// ---- attention

namespace {
// Softmax along the last axis; a row that is -infinity throughout, as of a query that may see no
// key, gives zeros instead of NaN.
Tensor SoftmaxOrZeros(const Tensor& x) {
  const Tensor max = x.Max({-1}, /*keepdim=*/true);
  const Tensor e = (x - Where(max == -std::numeric_limits<double>::infinity(), 0, max)).Exp();
  const Tensor sum = e.Sum({-1}, /*keepdim=*/true);
  return e * Where(sum == 0, 1, sum).Reciprocal();
}

// How many heads of queries share one of keys and values; 1 where none do, or all share one.
int64_t SharersOf(const Tensor& query, const Tensor& key, const Tensor& value) {
  const int rank = query.rank();
  if (rank < 3 || key.rank() != rank || value.rank() != rank) return 1;
  const Extent &q = query.shape()[rank - 3], &k = key.shape()[rank - 3];
  if (!q.is_int() || !k.is_int() || !(value.shape()[rank - 3] == k) || k.value() < 2) return 1;
  return q.value() % k.value() == 0 ? q.value() / k.value() : 1;
}
}  // namespace

Tensor Tensor::ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                         CallSite at) const {
  return ScaledDotProductAttention(key, value, AttentionOptions(), at);
}

Tensor Tensor::ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                         const AttentionOptions& o, CallSite at) const {
  Call call("ScaledDotProductAttention", at, *this, key, value);
  if (rank() < 2 || key.rank() < 2 || value.rank() < 2 ||
      !(shape()[rank() - 1] == key.shape()[key.rank() - 1]) ||
      !(key.shape()[key.rank() - 2] == value.shape()[value.rank() - 2])) {
    Fail("takes queries [..., L, E], keys [..., S, E] and values [..., S, F], not ", Show(*this),
         ", ", Show(key), " and ", Show(value));
  }
  if (const int64_t sharers = SharersOf(*this, key, value); sharers > 1) {
    const int64_t heads = size(-3);
    const auto grouped = [&](const Tensor& t) {
      return t.Unflatten(-3, {heads / sharers, sharers});
    };
    AttentionOptions own = o;
    if (o.mask && o.mask.rank() > 2) {
      const bool for_all = o.mask.shape()[o.mask.rank() - 3].is_int(1);
      if (!for_all && !(o.mask.shape()[o.mask.rank() - 3] == shape()[rank() - 3])) {
        Fail("the mask ", Show(o.mask), " is not for the ", heads, " heads of ", Show(*this));
      }
      own.mask = for_all ? o.mask.Unsqueeze(-3) : grouped(o.mask);
    }
    return grouped(*this)
        .ScaledDotProductAttention(key.Unsqueeze(-3), value.Unsqueeze(-3), own)
        .Flatten(-4, -3);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  // Of no elements all scores are 0.
  const int64_t elements = std::max<int64_t>(1, size(-1));
  const double scale = o.scale ? *o.scale : 1 / std::sqrt(static_cast<double>(elements));
  Tensor scores = WideFloat(*this).MatMul(WideFloat(key).Transpose()) * scale;
  if (o.mask) {
    scores = o.mask.dtype().IsBool() ? Where(o.mask, scores, -infinity) : scores + o.mask;
  }
  const Extent queries = shape()[rank() - 2], keys = key.shape()[key.rank() - 2];
  if (o.causal) {
    const Tensor row = Arange(queries, kInt64).Unsqueeze(1), column = Arange(keys, kInt64);
    scores = Where(column <= (queries == keys ? row : row + (keys - queries)), scores, -infinity);
  }
  const bool may_see_none = !keys.is_int(0) && (o.mask || (o.causal && !(queries == keys)));
  Tensor shares = may_see_none ? SoftmaxOrZeros(scores) : scores.Softmax();
  // Of values of sixteen bits the result keeps no more than what shares of as many give it: then
  // matrix units can multiply them.
  const DType result = FloatResult(dtype());
  if (result.bytes() == 2 && value.dtype() == result) shares = WideFloat(shares.Cast(result));
  return shares.MatMul(WideFloat(value)).Cast(result);
}

}  // namespace tessera
