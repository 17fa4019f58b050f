// Matrices as products of orthonormal columns and triangles.
#include "graph/tensor_decompose.h"

#include <algorithm>

#include "graph/elimination.h"
#include "graph/index_math.h"
#include "graph/reflections.h"
#include "graph/repeat.h"
#include "graph/tensor_align.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Balance;
using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::HouseholderQr;
using internal::JoinedAlong;
using internal::Matrices;
using internal::MovedBy;
using internal::MovedUp;
using internal::Reflection;
using internal::Reflections;
using internal::Show;
using internal::Skewed;
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

// The reflections of some columns [..., M, W], and the triangle [..., W, W] that they make of them.
std::pair<Reflections, Tensor> Reflected(const Tensor& columns) {
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Reflection r(in[0].SliceAxis(-1, {0, 1}));
    const Tensor m = r.Of(in[0]).Contiguous();
    return {MovedUp(MovedUp(m, -1), -2), r.v.Transpose(), r.factor, m.SliceAxis(-2, {0, 1})};
  };
  const Looped steps = internal::Repeat(columns.size(-1), {columns}, {}, step);
  const Tensor v = JoinedAlong(steps.stacked[0], -2).Contiguous();
  const Tensor r = JoinedAlong(steps.stacked[2], -2).Contiguous();
  return {Reflections(Skewed(v, 1).Contiguous(), JoinedAlong(steps.stacked[1], -1).Contiguous()),
          Skewed(r, 1).Triu().Contiguous()};
}

}  // namespace

namespace {

// Some times that are the same graph: columns are reflected, then the rest moves up and left by as
// many. What is left of [..., M, N] is in its first rows and columns.
struct Stage {
  std::vector<Reflections> all;
  Tensor rows;  // of R, [..., W times, N]
  Tensor left;

  Stage(const Tensor& matrix, int64_t times, int64_t w) {
    const int64_t n = matrix.size(-1);
    std::vector<Tensor> parts;
    Tensor m = matrix;
    for (int64_t i = 0; i < times; ++i) {
      const auto [reflections, corner] = Reflected(m.SliceAxis(-1, {0, w}));
      all.push_back(reflections);
      m = reflections.Undone(MovedBy(m, -1, -w).Contiguous()).Contiguous();
      const Tensor right = m.SliceAxis(-2, {0, w}).SliceAxis(-1, {0, n - w});
      parts.push_back(Cat({corner, right}, -1).Contiguous());
      m = MovedBy(m, -2, -w);
    }
    rows = Skewed(Stack(parts, -2).Contiguous(), w).Transpose(-3, -2).Flatten(-3, -2);
    const int64_t done = w * times;
    left = m.SliceAxis(-2, {0, m.size(-2) - done}).SliceAxis(-1, {0, n - done}).Contiguous();
  }
};

// The most columns that are reflected without products, whose kernels are more; the most times that
// are done at the full size.
constexpr int64_t kMostAlone = 24;
constexpr int64_t kMostTimes = 8;

}  // namespace

// Columns are balanced one by one, which leaves Q as it is.
Matrices internal::HouseholderQr(const Tensor& matrix) {
  const int64_t n = matrix.size(-1);
  const int64_t times = n > kMostAlone ? CeilDiv(n, internal::kMostReflections) : 1;
  const int64_t w = CeilDiv(n, times), even = w * times, rank = matrix.rank();
  const Tensor exponent = matrix.Abs().Max(-2, /*keepdim=*/true).FrExp().second.Detach();
  const auto padded = [&](const Tensor& t, std::pair<int64_t, int64_t> rows,
                          std::pair<int64_t, int64_t> columns) {
    Pairs pairs(rank, {0, 0});
    pairs[rank - 2] = rows, pairs[rank - 1] = columns;
    return t.Pad(pairs);
  };
  // Zeros below stay zeros, in Q too.
  const int64_t below = std::max<int64_t>(even - matrix.size(-2), 0);
  Tensor left = padded(matrix.LdExp(-exponent), {0, below}, {0, even - n}).Contiguous();
  std::vector<Stage> stages;
  std::vector<Tensor> rows;
  const int64_t most = times > kMostTimes ? CeilDiv(times, 4) : times;
  for (int64_t done = 0; done < times;) {
    const int64_t now = std::min(most, times - done);
    stages.emplace_back(left, now, w);
    rows.push_back(padded(stages.back().rows, {0, 0}, {done * w, 0}).Contiguous());
    left = stages.back().left;
    done += now;
  }
  Tensor q = left;  // without elements
  for (size_t i = stages.size(); i-- > 0;) {
    const std::vector<Reflections>& all = stages[i].all;
    const int64_t m = all[0].size(), own = stages[i].rows.size(-1);
    const Tensor corner =
        Tensor::Eye(m, own, matrix.dtype()) * (Tensor::Arange(own) < w).Cast(matrix.dtype());
    q = padded(q, {0, m - q.size(-2)}, {0, own - q.size(-1)});
    for (size_t j = all.size(); j-- > 0;) {
      const Tensor moved = MovedBy(MovedBy(q, -1, w), -2, w);
      q = all[j].Of((moved + corner).Contiguous()).Contiguous();
    }
  }
  const Tensor r = Cat(rows, -2).SliceAxis(-2, {0, n}).SliceAxis(-1, {0, n});
  q = q.SliceAxis(-2, {0, matrix.size(-2)}).SliceAxis(-1, {0, n});
  return {q.Contiguous(), r.LdExp(exponent).Contiguous()};
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

// The reflections that make the first columns of the identity those of q, of its others. They move
// against those of q.
Tensor internal::Complement(const Tensor& q) {
  const int64_t m = q.size(-2), k = q.size(-1);
  Pairs pairs(q.rank(), {0, 0});
  pairs.back() = {0, m - k};
  if (k == m) return q.SliceAxis(-1, {0, 0});
  if (k == 0) return q.Pad(pairs) + Tensor::Eye(m, m, q.dtype());
  const Tensor rest = HouseholderQr(q.Detach().Pad(pairs))[0].SliceAxis(-1, {k, {}}).Detach();
  return DerivedBy(rest, [&] { return -q.Detach().MatMul(q.Transpose().MatMul(rest)); });
}

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
