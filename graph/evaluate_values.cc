// Arrays of scalars, and what ops over several axes give.
#include "graph/evaluate_values.h"

#include "absl/strings/str_cat.h"
#include "graph/fold.h"
#include "graph/lookup.h"
#include "graph/status.h"

namespace tessera {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 31;

// Calls fn(element, offset in the table at position 0 of the axis, offset in the index, stride of
// the axis) for every element of a lookup, in order.
template <typename Fn>
void WalkLookup(const Lookup& l, const Ints& table, const Ints& index, Fn fn) {
  const Ints in_table = RowMajor(table), in_index = RowMajor(index);
  Ints dims, to_table, to_index;
  for (int e = 0; e < l.element_rank(); ++e) {
    const int t = l.ToTable(e), i = l.ToIndex(e);
    dims.push_back(t == Lookup::kNone ? index[i] : table[t]);
    to_table.push_back(t == Lookup::kNone ? 0 : in_table[t]);
    to_index.push_back(i == Lookup::kNone ? 0 : in_index[i]);
  }
  std::vector<int64_t> tables;
  Walk(dims, to_table, 0, [&](int64_t offset) { tables.push_back(offset); });
  size_t next = 0;
  Walk(dims, to_index, 0, [&](int64_t offset) {
    fn(static_cast<int64_t>(next), tables[next], offset, in_table[l.axis]);
    ++next;
  });
}

// The position that an index names, or -1 where it is outside.
int64_t PositionOf(Scalar i, int64_t extent, bool is_u64) {
  const int64_t at = i.AsInt();
  return at >= 0 && at < extent && !(is_u64 && i.bits >> 63) ? at : -1;
}

}  // namespace

absl::StatusOr<int64_t> Count(const Ints& dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    if (d < 0) return absl::InvalidArgumentError(absl::StrCat("Evaluate: an extent is ", d));
    if (d != 0 && n > kMaxElements / d) {
      return absl::ResourceExhaustedError("Evaluate: the tensor is too large for the evaluator");
    }
    n *= d;
  }
  return n;
}

Ints RowMajor(const Ints& dims) {
  Ints strides(dims.size());
  int64_t n = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    strides[i] = n;
    n *= dims[i];
  }
  return strides;
}

Value MakeValue(Ints dims, std::vector<Scalar> data) {
  return {std::move(dims), std::make_shared<const std::vector<Scalar>>(std::move(data))};
}

absl::StatusOr<Value> Strided(const Value& v, Ints dims, const Ints& strides, int64_t base) {
  ASSIGN_OR_RETURN(const int64_t n, Count(dims));
  std::vector<Scalar> out;
  out.reserve(n);
  Walk(dims, strides, base, [&](int64_t offset) { out.push_back((*v.data)[offset]); });
  return MakeValue(std::move(dims), std::move(out));
}

absl::StatusOr<Value> Reduced(const UOp& u, const Value& v) {
  const auto& [op, axes] = u.arg<ReduceArg>();
  Ints dims = v.dims;
  for (int64_t axis : axes) dims[axis] = 1;
  Ints strides = RowMajor(dims);
  for (int64_t axis : axes) strides[axis] = 0;
  ASSIGN_OR_RETURN(const int64_t n, Count(dims));
  const DType wide = u.dtype().IsFloat() ? kFloat64 : u.dtype();
  std::vector<Scalar> out(n, ReduceIdentity(op, u.dtype()));
  int64_t next = 0;
  Walk(v.dims, strides, 0, [&, op = op](int64_t offset) {
    out[offset] = EvaluateScalarOp(op, wide, wide, {out[offset], (*v.data)[next++]});
  });
  for (Scalar& s : out) {
    if (wide == u.dtype()) break;
    const DType sum = AccumulateType(u.dtype());
    s = Convert(Convert(s, kFloat64, sum), sum, u.dtype());
  }
  return MakeValue(std::move(dims), std::move(out));
}

absl::StatusOr<Value> Gathered(const UOp& u, const Value& x, const Value& index) {
  const Lookup l = Lookup::Of(u);
  const bool is_u64 = u.src(1).dtype().kind() == Kind::kU64;
  Ints dims;
  for (int e = 0; e < l.element_rank(); ++e) {
    dims.push_back(l.IsOwn(e) ? index.dims[l.ToIndex(e)] : x.dims[l.ToTable(e)]);
  }
  ASSIGN_OR_RETURN(const int64_t n, Count(dims));
  std::vector<Scalar> out(n);
  WalkLookup(l, x.dims, index.dims, [&](int64_t e, int64_t base, int64_t i, int64_t stride) {
    const int64_t at = PositionOf((*index.data)[i], x.dims[l.axis], is_u64);
    if (at >= 0) out[e] = (*x.data)[base + at * stride];
  });
  return MakeValue(std::move(dims), std::move(out));
}

absl::StatusOr<Value> Scattered(const UOp& u, const Value& base, const Value& index,
                                const Value& updates) {
  const Lookup l = Lookup::Of(u);
  const bool is_u64 = u.src(1).dtype().kind() == Kind::kU64;
  const Op op = u.arg<ReduceArg>().op;
  const DType wide = u.dtype().IsFloat() ? kFloat64 : u.dtype();
  std::vector<Scalar> out = *base.data;
  WalkLookup(l, base.dims, index.dims, [&](int64_t e, int64_t at0, int64_t i, int64_t stride) {
    const int64_t at = PositionOf((*index.data)[i], base.dims[l.axis], is_u64);
    if (at < 0) return;
    Scalar& to = out[at0 + at * stride];
    const Scalar v = (*updates.data)[e];
    to = op == Op::kAssign ? v : EvaluateScalarOp(op, wide, wide, {to, v});
  });
  for (Scalar& s : out) {
    if (wide == u.dtype()) break;
    s = Convert(s, kFloat64, u.dtype());
  }
  return MakeValue(base.dims, std::move(out));
}

}  // namespace tessera
