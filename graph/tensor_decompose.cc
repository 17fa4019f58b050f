// Matrices as products of orthonormal columns and triangles.
//
// As in graph/elimination.h, all steps are the same graph.
#include "graph/tensor_decompose.h"

#include <algorithm>

#include "graph/elimination.h"
#include "graph/tensor_align.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Balance;
using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::HouseholderQr;
using internal::Matrices;
using internal::MovedUp;
using internal::Show;
using internal::WholeMatrices;
using internal::WithDerivative;

namespace internal {
namespace {

// Side by side in one vector, so that one node stands in for all; and as they were.
Tensor AsRow(const Matrices& matrices) {
  Matrices rows;
  for (const Tensor& m : matrices) rows.push_back(m.Contiguous().Flatten(-2));
  return Cat(rows, -1);
}

Matrices FromRow(const Tensor& row, const Matrices& like) {
  Matrices out;
  int64_t at = 0;
  for (const Tensor& m : like) {
    const int64_t rows = m.size(-2), columns = m.size(-1), end = at + rows * columns;
    out.push_back(row.SliceAxis(-1, {at, end}).Unflatten(-1, {rows, columns}));
    at = end;
  }
  return out;
}

}  // namespace

Tensor WholeMatrices(const Tensor& t) {
  if (t.rank() < 2) Fail("takes matrices, not ", Show(t));
  t.size(-1);  // an Error where it is symbolic
  t.size(-2);
  const Tensor x = WideFloat(t);
  if (!x.device().is_sharding()) return x;
  const Sharding s = x.device().sharding();
  std::vector<Placement> whole = s.placements();
  for (Placement& p : whole) {
    if (p.is(Placement::Kind::kShard) && p.axis >= x.rank() - 2) p = Placement::Replicate();
  }
  return Tensor(
      Reshard(x.uop(), s.With(std::move(whole)), "matrices are decomposed where they lie"));
}

Balanced Balance(const Tensor& matrix) {
  const Tensor exponent = matrix.Abs().Max({-2, -1}, /*keepdim=*/true).FrExp().second;
  return {matrix.LdExp(-exponent).Contiguous(), exponent.Detach()};
}

Matrices WithDerivative(const Matrices& values, const std::function<Matrices(const Matrices&)>& f) {
  const Tensor row = AsRow(values).Contiguous();
  const auto derived = [&] { return AsRow(f(FromRow(row.Detach(), values))); };
  return FromRow(DerivedBy(row, derived), values);
}

}  // namespace internal

namespace {

// The elements before the last of an axis, after a zero.
Tensor MovedDown(const Tensor& t, int axis) {
  Pairs pairs(t.rank(), {0, 0});
  pairs[internal::NormalAxis(axis, t.rank())] = {1, 0};
  return t.SliceAxis(axis, {0, t.size(axis) - 1}).Pad(pairs);
}

// The reflection I - factor v v^T that takes a column to a multiple of the first axis; of a column
// that is one already, as LAPACK has it, none.
struct Reflection {
  Tensor v, factor;  // [..., M, 1], [..., 1, 1]

  explicit Reflection(const Tensor& column) {
    const Tensor first = column.SliceAxis(-2, {0, 1});
    const Tensor is_first = Tensor::Arange(column.size(-2)).Unsqueeze(-1) == 0;
    const Tensor squares = Where(is_first, 0, column).Square().Sum(-2, /*keepdim=*/true);
    const Tensor none = squares == 0, norm = (first.Square() + squares).Sqrt();
    const Tensor to = Where(first < 0, norm, -norm);
    v = Where(is_first, 1, column / Where(none, 1, first - to)).Contiguous();
    factor = Where(none, 0, (to - first) / Where(none, 1, to)).Contiguous();
  }
  Tensor Of(const Tensor& m) const { return m - v * (factor * (v * m).Sum(-2, /*keepdim=*/true)); }
};

}  // namespace

// After each step rows and columns move up; those of a reflection begin at its pivot.
Matrices internal::HouseholderQr(const Tensor& matrix) {
  const auto [balanced, exponent] = Balance(matrix);
  const int64_t n = matrix.size(-1);
  Tensor m = balanced;
  std::vector<Reflection> reflections;
  std::vector<Tensor> rows;
  for (int64_t k = 0; k < n; ++k) {
    reflections.emplace_back(m.SliceAxis(-1, {0, 1}));
    m = reflections.back().Of(m).Contiguous();
    rows.push_back(m.SliceAxis(-2, {0, 1}).Contiguous());
    m = MovedUp(MovedUp(m, -1), -2);
  }
  Tensor q = matrix.ZerosLike().Contiguous();
  const Tensor corner = Tensor::Eye(matrix.size(-2), n, matrix.dtype()) *
                        (Tensor::Arange(n) == 0).Cast(matrix.dtype());
  for (int64_t k = n - 1; k >= 0; --k) {
    q = reflections[k].Of(MovedDown(MovedDown(q, -1), -2) + corner).Contiguous();
  }
  Pairs pairs(matrix.rank(), {0, 0});
  pairs.back() = {0, 1};
  const Tensor apart = Cat(rows, -2).Pad(pairs).Flatten(-2).SliceAxis(-1, {0, n * n});
  return {q, apart.Unflatten(-1, {n, n}).Triu().LdExp(exponent).Contiguous()};
}

namespace {

// dQ and dR are linear in dA: with X = dA R^-1, Q^T dQ is the antisymmetric matrix that has the
// lower triangle of Q^T X.
Matrices TallQr(const Tensor& a) {
  return WithDerivative(HouseholderQr(a), [&](const Matrices& at) -> Matrices {
    const Tensor &q = at[0], &r = at[1];
    const Tensor inverse = r.SolveTriangular(Tensor::Eye(r.size(-1), -1, r.dtype()), true);
    const Tensor x = a.MatMul(inverse), in_q = q.Transpose().MatMul(x), lower = in_q.Tril(-1);
    const Tensor upper = in_q - lower + lower.Transpose();
    return {x - q.MatMul(upper), upper.MatMul(r)};
  });
}

}  // namespace

std::pair<Tensor, Tensor> Tensor::Qr(CallSite at) const {
  Call call("Qr", at, *this);
  const Tensor a = WholeMatrices(*this);
  const int64_t k = std::min(a.size(-2), a.size(-1));
  const DType type = FloatResult(dtype());
  if (k == 0) return {a.SliceAxis(-1, {0, 0}).Cast(type), a.SliceAxis(-2, {0, 0}).Cast(type)};
  const Matrices first = TallQr(a.SliceAxis(-1, {0, k}));
  Tensor r = first[1];
  if (a.size(-1) > k) {
    r = Cat({r, first[0].Transpose().MatMul(a.SliceAxis(-1, {k, {}}))}, -1);
  }
  return {first[0].Cast(type), r.Cast(type)};
}

}  // namespace tessera
