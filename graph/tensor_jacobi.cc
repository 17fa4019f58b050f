// Eigenvalues and singular values; pseudo-inverses, least squares.
//
// Of few rows by Jacobi's rotations: kernels are few. Of more by way of tridiagonal matrices, which
// takes a tenth of the time, or less. In a round every index i is rotated with index N - 1 - i;
// then all but the last move on by one, the first to the end: after N - 1 rounds, a sweep, each
// pair has met once and all are back. So all rounds are the same graph. Of odd N one more index is
// rotated with none.
#include <algorithm>
#include <limits>

#include "graph/repeat.h"
#include "graph/spectra.h"
#include "graph/tensor.h"
#include "graph/tensor_decompose.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"
#include "graph/tridiagonal.h"

namespace tessera {

using internal::Balance;
using internal::Bidiagonal;
using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::HouseholderQr;
using internal::JacobiPairs;
using internal::Matrices;
using internal::Repeat;
using internal::Show;
using internal::Tolerance;
using internal::Tridiagonal;
using internal::TridiagonalPairs;
using internal::WholeMatrices;
using internal::WithDerivative;

namespace {

double Epsilon(DType type) {
  return type == kFloat64 ? std::numeric_limits<double>::epsilon()
                          : std::numeric_limits<float>::epsilon();
}

Tensor MovedOn(const Tensor& x, int axis) {
  const int64_t n = x.size(axis);
  return Cat(
      {x.SliceAxis(axis, {1, n - 1}), x.SliceAxis(axis, {0, 1}), x.SliceAxis(axis, {n - 1, n})},
      axis);
}

Tensor EvenColumns(const Tensor& x) {
  Pairs pairs(x.rank(), {0, 0});
  pairs.back().second = x.size(-1) % 2;
  return x.Pad(pairs);
}

// An order of N, and of the index that makes N even.
Tensor Padded(const Tensor& order) {
  const int64_t n = order.size(-1);
  if (n % 2 == 0) return order;
  return Cat({order, order.SliceAxis(-1, {0, 1}).FullLike(n)}, -1);
}

// Rotations of each index x with its partner y: x cos + y sin, where cos is the same for both and
// sin of opposite sign, written as x + sin (y - x sin / (1 + cos)), which rounds less. They make
// `both`, the product of the two, 0, if `own` and `other` are the squares of each and its partner.
// What is rounding beside `scale` is left: partners that are equal would turn by any angle, and mix
// what others have just made 0.
Tensor Rotations(const Tensor& own, const Tensor& other, const Tensor& product,
                 const Tensor& scale) {
  const int64_t n = own.size(-1);
  const Tensor both = Where(product.Abs() <= scale * (2 * Epsilon(own.dtype())), 0, product);
  const Tensor half = (other - own) * 0.5;
  const Tensor first = Tensor::Arange(n) < n / 2;
  const Tensor above = half > 0, sign = Where(above | ((half == 0) & first), 1.0, -1.0);
  const Tensor most = half.Abs().Maximum(both.Abs());
  const Tensor scaled = half / most, beside = both / most;
  const Tensor root = (scaled.Square() + beside.Square()).Sqrt();
  const Tensor tangent = Where(both == 0, 0, sign * beside / (scaled.Abs() + root));
  const Tensor cos = (tangent.Square() + 1).Rsqrt();
  const Tensor sin = -tangent * cos;
  return Stack({sin, sin / (cos + 1)}, -2).Cast(own.dtype()).Contiguous();
}

// Columns rotated, and moved on.
Tensor Rotated(const Tensor& x, const Tensor& rotations) {
  const Tensor sin = rotations.SliceAxis(-2, {0, 1}), share = rotations.SliceAxis(-2, {1, 2});
  return MovedOn(x + sin * (x.Flip(-1) - x * share), -1);
}

// What takes matrices with repeated eigenvalues, which converge last, to their precision; those
// whose eigenvalues differ by many orders of magnitude may keep 1e-11 of the largest in f64.
int64_t Sweeps(DType type, int64_t n) {
  int64_t log = 0;
  while ((int64_t{1} << log) < n) ++log;
  return 4 + (type == kFloat64 ? 2 : 1) * log;
}

// Columns of x in the order of keys [..., N], from the largest. Where equal ones are side by side,
// sweeps converge quadratically.
Tensor InOrder(const Tensor& x, const Tensor& order) {
  return x.Gather(-1, order.Unsqueeze(-2).Expand(x.shape()));
}

}  // namespace

Matrices internal::JacobiPairs(const Tensor& matrix) {
  const auto [balanced, exponent] = Balance(matrix);
  const int64_t n = matrix.size(-1);
  Tensor m = EvenColumns(EvenColumns(balanced).Transpose()).Contiguous();
  const int64_t even = m.size(-1);
  Tensor vectors = (Tensor::Eye(even, -1, m.dtype()) + m.ZerosLike()).Contiguous();
  const auto diagonal = [](const Tensor& t) { return t.Diagonal(0, -2, -1); };
  const auto round = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor own = diagonal(in[0]), both = diagonal(in[0].Flip(-1)), other = own.Flip(-1);
    // Both partners must see the same, and m is symmetric but for rounding.
    const Tensor rotations =
        Rotations(own, other, (both + both.Flip(-1)) * 0.5, own.Abs().Maximum(other.Abs()));
    const Tensor columns = Rotated(in[0], rotations);
    return {Rotated(columns.Transpose(), rotations).Contiguous(),
            Rotated(in[1], rotations).Contiguous()};
  };
  const auto sweep = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor order = Padded(diagonal(in[0]).SliceAxis(-1, {0, n}).ArgSort(-1, true));
    const Tensor ordered = InOrder(InOrder(in[0], order).Transpose(), order).Contiguous();
    return Repeat(even - 1, {ordered, InOrder(in[1], order).Contiguous()}, {}, round).carried;
  };
  const Looped swept = Repeat(Sweeps(m.dtype(), n), {m, vectors}, {}, sweep);
  m = swept.carried[0];
  vectors = swept.carried[1];
  const auto [values, order] = diagonal(m).SliceAxis(-1, {0, n}).Sort();
  const Tensor apart = vectors.SliceAxis(-2, {0, n}).SliceAxis(-1, {0, n});
  return {values.Unsqueeze(-2).LdExp(exponent), InOrder(apart, order)};
}

namespace {

// Of more rows parts are joined; of rectangular matrices, bidiagonal ones are.
constexpr int64_t kMostRotated = 24, kMostTurned = 40;

// The same of any size.
Matrices EigenPairs(const Tensor& matrix) {
  if (matrix.size(-1) <= kMostRotated) return JacobiPairs(matrix);
  const auto [balanced, exponent] = Balance(matrix);
  const Tridiagonal t(balanced);
  const Matrices pairs =
      TridiagonalPairs(t.diagonal.Cast(kFloat64), t.beside.Cast(kFloat64), matrix.dtype());
  const Tensor finite = balanced.IsFinite().All({-2, -1}, /*keepdim=*/true);
  const Tensor values = pairs[0].Cast(matrix.dtype()).Unsqueeze(-2).LdExp(exponent);
  return {Where(finite, values, internal::kNan), Where(finite, t.Turned(pairs[1]), internal::kNan)};
}

// 1 / x; where that is infinite a number so large that what it meets is seen to be wrong, unless
// nothing meets it: a loss that does not depend on vectors has cotangents of 0.
Tensor Inverted(const Tensor& x) {
  const double huge = x.dtype() == kFloat64 ? 1e300 : 1e36;
  return Where(x == 0, huge, 1 / Where(x == 0, 1, x)).Cast(x.dtype());
}

// The inverse of each element of a row less each other one, [j - i], and 0 on the diagonal.
Tensor InverseGaps(const Tensor& row) {
  const Tensor i = Tensor::Arange(row.size(-1));
  return Where(i == i.Unsqueeze(-1), 0, Inverted(row - row.Transpose()));
}

// With dP = V^T dA V, the values change by its diagonal and the vectors by V times dP over gaps.
Matrices Eigen(const Tensor& matrix) {
  const Tensor a = matrix.Tril() + matrix.Tril(-1).Transpose();
  return WithDerivative(EigenPairs(a), [&](const Matrices& at) -> Matrices {
    const Tensor& v = at[1];
    const Tensor p = v.Transpose().MatMul(a).MatMul(v);
    return {p.Diagonal(0, -2, -1).Unsqueeze(-2), v.MatMul(p * InverseGaps(at[0]))};
  });
}

// Q of columns, each with the sign that it had.
Tensor Orthonormal(const Tensor& columns) {
  const Matrices qr = HouseholderQr(columns);
  return qr[0] * Where(qr[1].Diagonal(0, -2, -1) < 0, -1, 1).Unsqueeze(-2);
}

// Of a bidiagonal B, the matrix [[0, B^T], [B, 0]] with its rows and columns dealt out in turn is
// tridiagonal. It has B's singular values as eigenvalues, and their negatives; its vectors have v
// and u in turn. Those of values that are rounding may have too little of either: in the order of
// the values, from the largest, v's are made orthonormal, and then B's products with them.
Matrices SquareSingular(const Tensor& matrix) {
  const auto [balanced, exponent] = Balance(matrix);
  const int64_t n = matrix.size(-1);
  const Bidiagonal b(balanced);
  Pairs after(b.beside.rank(), {0, 0});
  after.back() = {0, 1};
  const Tensor dealt = Stack({b.diagonal, b.beside.Pad(after)}, -1).Flatten(-2).Cast(kFloat64);
  const Tensor beside = dealt.SliceAxis(-1, {0, 2 * n - 1}).Contiguous();
  const Matrices pairs = TridiagonalPairs(dealt.ZerosLike(), beside, matrix.dtype(), n);
  const Tensor v = Orthonormal(pairs[1].Unflatten(-2, {n, 2}).Select(-2, 0).Flip(-1).Contiguous());
  const Tensor u = Orthonormal(b.Of(v).Contiguous());
  const Tensor finite = balanced.IsFinite().All({-2, -1}, /*keepdim=*/true);
  const auto ended = [&](const Tensor& t) { return Where(finite, t, internal::kNan); };
  const Tensor values = pairs[0].Flip(-1).Maximum(0).Cast(matrix.dtype()).Unsqueeze(-2);
  return {ended(b.LeftTurned(u)), ended(values.LdExp(exponent)),
          ended(b.RightTurned(v)).Transpose()};
}

// U [..., M, N], the values [..., 1, N] and V^T [..., N, N] of [..., M, N], M >= N > 0. Columns
// are rotated until they are orthogonal: U times the values. Q of these is U, also where they are
// 0.
Matrices TallSingular(const Tensor& matrix) {
  const int64_t m = matrix.size(-2), n = matrix.size(-1);
  if (n > 1 && (m >= 2 * n || (m > n && n > kMostTurned))) {  // R is smaller
    const Matrices qr = HouseholderQr(matrix), t = TallSingular(qr[1].Contiguous());
    return {qr[0].MatMul(t[0]), t[1], t[2]};
  }
  if (n > kMostTurned) return SquareSingular(matrix);
  const auto [balanced, exponent] = Balance(matrix);
  const Tensor columns = EvenColumns(balanced);
  const int64_t even = columns.size(-1);
  const Tensor zeros = columns.SliceAxis(-2, {0, 1}).ZerosLike();
  Tensor both = Cat({columns, Tensor::Eye(even, -1, matrix.dtype()) + zeros}, -2).Contiguous();
  const auto squares = [&](const Tensor& t) {
    return t.Narrow(-2, 0, m).Narrow(-1, 0, n).Square().Sum(-2);
  };
  const auto round = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor x = in[0].SliceAxis(-2, {0, m}), y = x.Flip(-1);
    const Tensor own = (x * x).Sum(-2), other = (y * y).Sum(-2);
    const Tensor rotations = Rotations(own, other, (x * y).Sum(-2), (own * other).Sqrt());
    return {Rotated(in[0], rotations).Contiguous()};
  };
  const auto sweep = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor order = Padded(squares(in[0]).ArgSort(-1, true));
    return Repeat(even - 1, {InOrder(in[0], order).Contiguous()}, {}, round).carried;
  };
  both = Repeat(Sweeps(matrix.dtype(), n), {both}, {}, sweep).carried[0];
  const auto [values, order] = squares(both).Sqrt().Sort(-1, /*descending=*/true);
  const Tensor sorted = InOrder(both.SliceAxis(-1, {0, n}), order).Contiguous();
  const Tensor v = sorted.SliceAxis(-2, {m, m + n});
  return {Orthonormal(sorted.SliceAxis(-2, {0, m})), values.Unsqueeze(-2).LdExp(exponent),
          v.Transpose()};
}

Matrices SingularTriple(const Tensor& a) {
  if (a.size(-2) >= a.size(-1)) return TallSingular(a);
  const Matrices t = TallSingular(a.Transpose());
  return {t[2].Transpose(), t[1], t[0].Transpose()};
}

// What x / s has that is not among the columns of u.
Tensor Outside(const Tensor& u, const Tensor& x, const Tensor& inverse) {
  return (x - u.MatMul(u.Transpose().MatMul(x))) * inverse;
}

// With dP = U^T dA V: U^T dU s - s V^T dV is dP but for its diagonal, both being antisymmetric.
Matrices Singular(const Tensor& a) {
  return WithDerivative(SingularTriple(a), [&](const Matrices& at) -> Matrices {
    const Tensor &u = at[0], &s = at[1], v = at[2].Transpose();
    const Tensor av = a.MatMul(v), p = u.Transpose().MatMul(av);
    const Tensor even = (p + p.Transpose()) * 0.5 * InverseGaps(s);
    const Tensor odd = (p - p.Transpose()) * 0.5 * Inverted(s + s.Transpose());
    Tensor du = u.MatMul(even + odd), dv = v.MatMul(even - odd);
    if (a.size(-2) > s.size(-1)) du = du + Outside(u, av, Inverted(s));
    if (a.size(-1) > s.size(-1)) dv = dv + Outside(v, a.Transpose().MatMul(u), Inverted(s));
    return {du, p.Diagonal(0, -2, -1).Unsqueeze(-2), dv.Transpose()};
  });
}

bool HasNone(const Tensor& a) { return a.size(-2) == 0 || a.size(-1) == 0; }

Tensor Least(const Tensor& a, const Tensor& s, const Tolerance& tolerance) {
  const auto most = static_cast<double>(std::max(a.size(-2), a.size(-1)));
  const double by = tolerance.absolute ? 0 : Epsilon(a.dtype()) * most;
  const Tensor least = s.Max(-1, /*keepdim=*/true) * tolerance.relative.value_or(by);
  return tolerance.absolute ? least.Maximum(*tolerance.absolute) : least;
}

// dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P, where the rank stays.
Tensor InverseOf(const Tensor& a, const Tolerance& tolerance) {
  const Matrices t = SingularTriple(a);
  const Tensor counts = t[1] > Least(a, t[1], tolerance);
  const Tensor inverse = Where(counts, 1 / Where(counts, t[1], 1), Where(t[1].IsNan(), t[1], 0));
  const Tensor value = t[2].Transpose().MatMul(inverse.Transpose() * t[0].Transpose());
  const auto derivative = [&](const Matrices& at) -> Matrices {
    const Tensor &was = at[0], &p = at[1], pt = p.Transpose(), turned = a.Transpose();
    const Tensor rows = turned - turned.MatMul(was).MatMul(p);
    const Tensor columns = turned - p.MatMul(was.MatMul(turned));
    return {a, p.MatMul(pt.MatMul(rows)) + columns.MatMul(pt).MatMul(p) - p.MatMul(a).MatMul(p)};
  };
  return WithDerivative({a, value}, derivative)[1];
}

}  // namespace

Tensor internal::PseudoInverse(const Tensor& x, const Tolerance& tolerance) {
  const Tensor a = WholeMatrices(x);
  return (HasNone(a) ? a.Transpose() : InverseOf(a, tolerance)).Cast(FloatResult(x.dtype()));
}

Tensor internal::RankOf(const Tensor& x, const Tolerance& tolerance) {
  const Tensor a = WholeMatrices(x);
  if (HasNone(a)) return a.Sum({-2, -1}).Cast(kInt32);
  const Tensor s = SingularTriple(a)[1];
  return (s > Least(a, s, tolerance)).Cast(kInt32).Sum({-2, -1});
}

std::pair<Tensor, Tensor> Tensor::Eigh(CallSite at) const {
  Call call("Eigh", at, *this);
  const Tensor a = WholeMatrices(*this);
  if (a.size(-1) != a.size(-2)) Fail("takes square matrices, not ", Show(*this));
  const DType type = FloatResult(dtype());
  if (HasNone(a)) return {a.Sum(-1).Cast(type), a.Cast(type)};
  const Matrices pairs = Eigen(a);
  return {pairs[0].Squeeze(-2).Cast(type), pairs[1].Cast(type)};
}

SingularValues Tensor::Svd(CallSite at) const {
  Call call("Svd", at, *this);
  const Tensor a = WholeMatrices(*this);
  const DType type = FloatResult(dtype());
  if (HasNone(a)) {
    const Tensor u = a.SliceAxis(-1, {0, 0}), vt = a.SliceAxis(-2, {0, 0});
    return {u.Cast(type), (a.size(-2) == 0 ? u : vt.Transpose()).Sum(-2).Cast(type), vt.Cast(type)};
  }
  const Matrices t = Singular(a);
  return {t[0].Cast(type), t[1].Squeeze(-2).Cast(type), t[2].Cast(type)};
}

Tensor Tensor::PInverse(std::optional<double> rtol, CallSite at) const {
  Call call("PInverse", at, *this);
  return internal::PseudoInverse(*this, {.relative = rtol});
}

Tensor Tensor::MatrixRank(std::optional<double> rtol, CallSite at) const {
  Call call("MatrixRank", at, *this);
  return internal::RankOf(*this, {.relative = rtol});
}

Tensor Tensor::LstSq(const Tensor& b, std::optional<double> rtol, CallSite at) const {
  Call call("LstSq", at, *this, b);
  const bool vector = b.rank() == 1;
  const Tensor sides = vector ? b.Unsqueeze(-1) : b;
  if (rank() < 2 || sides.rank() < 2 || !(sides.shape()[sides.rank() - 2] == shape()[rank() - 2])) {
    Fail("the right side ", Show(b), " must have as many rows as ", Show(*this));
  }
  const DType type = FloatResult(Promote(dtype(), b.dtype())), wide = AccumulateType(type);
  const Tensor x = Cast(wide).PInverse(rtol).MatMul(sides.Cast(wide)).Cast(type);
  return vector ? x.Squeeze(-1) : x;
}

}  // namespace tessera
