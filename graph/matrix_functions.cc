// Exponentials, factors, products in their best order, and norms.
#include "graph/matrix_functions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "graph/elimination.h"
#include "graph/repeat.h"
#include "graph/tensor_decompose.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Elimination;
using internal::Fail;
using internal::FloatResult;
using internal::InFloats;
using internal::kInfinity;
using internal::kNan;
using internal::Show;
using internal::SquareSize;
using internal::WideFloat;

namespace {

void CheckMatrix(const Tensor& x) {
  if (x.rank() < 2) Fail("takes matrices [..., M, N], not ", Show(x));
}

// The shape of as many matrices of another size.
Dims OfSize(const Tensor& x, int64_t rows, int64_t columns) {
  Extents dims(x.shape().begin(), x.shape().end() - 2);
  dims.insert(dims.end(), {Extent(rows), Extent(columns)});
  return Dims(dims);
}

// The first terms of the exponential, up to x^19: the numbers of which are 1 / k! are cut into
// fours, which x^4 joins by Horner's rule.
Tensor Series(const Tensor& x, const Tensor& identity) {
  const Tensor x2 = x.MatMul(x).Contiguous(), x3 = x2.MatMul(x).Contiguous(),
               x4 = x2.MatMul(x2).Contiguous();
  const auto four = [&](int k) {
    double c = 1;
    for (int i = 2; i <= k; ++i) c /= i;
    const double c1 = c / (k + 1), c2 = c1 / (k + 2), c3 = c2 / (k + 3);
    return identity * c + x * c1 + x2 * c2 + x3 * c3;
  };
  Tensor sum = four(16);
  for (int k = 12; k >= 0; k -= 4) sum = (four(k) + x4.MatMul(sum)).Contiguous();
  return sum;
}

constexpr int kMostSquares = 16;

}  // namespace

// e^x is e^(x / 2^s) squared s times; s is as large as it takes for the series to be exact.
Tensor MatrixExp(const Tensor& of_x, CallSite at) {
  Call call("MatrixExp", at, of_x);
  const int64_t n = SquareSize(of_x);
  return InFloats(of_x, [&](const Tensor& x) {
    if (n == 0) return x;
    const Tensor most = x.Abs().Sum(-2, /*keepdim=*/true).Max(-1, /*keepdim=*/true).Detach();
    const Tensor squares = most.Maximum(1).Log2().Ceil();
    const Tensor known = squares <= kMostSquares, times = Where(known, squares, 0);
    const Tensor scaled = Where(known, x, 0) * (-times).Exp2();
    Tensor power = Series(scaled.Contiguous(), Tensor::Eye(n, -1, x.dtype()));
    const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {Where(times > in[1], in[0].MatMul(in[0]), in[0]).Contiguous()};
    };
    const Tensor counts = Tensor::Arange(kMostSquares).Cast(times.dtype());
    power = internal::Repeat(kMostSquares, {power}, {counts}, step).carried[0];
    return Where(known, power, kNan);
  });
}

Tensor LogDet(const Tensor& x, CallSite at) {
  Call call("LogDet", at, x);
  const auto [sign, log] = x.SlogDet();
  return Where(sign < 0, kNan, log);
}

LuFactors Lu(const Tensor& x, CallSite at) {
  Call call("Lu", at, x);
  CheckMatrix(x);
  const DType type = FloatResult(x.dtype());
  const Tensor matrix = WideFloat(x);
  const int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
  if (k == 0 || x.shape().MaxElements() == 0) {
    const Tensor one = Tensor::Eye(m, m, type).Expand(OfSize(x, m, m));
    return {one, Tensor::Zeros(OfSize(x, m, k), type), Tensor::Zeros(OfSize(x, k, n), type)};
  }
  const Elimination e(matrix, k);
  const Tensor row = Tensor::Arange(m).Unsqueeze(-1);
  const Tensor p = e.at_row().Unsqueeze(-2) == row;
  return {p.Cast(type), e.Lower().Cast(type), e.Upper().Cast(type)};
}

Tensor LuSolve(const LuFactors& factors, const Tensor& b, CallSite at) {
  Call call("LuSolve", at, factors.p, factors.l, factors.u, b);
  const Tensor &p = factors.p, &l = factors.l, &u = factors.u;
  SquareSize(l);
  SquareSize(u);
  return u.SolveTriangular(l.SolveTriangular(p.Transpose().MatMul(b)), /*upper=*/true);
}

// From the right it is the same of everything transposed.
Tensor SolveTriangular(const Tensor& a, const Tensor& b, const TriangularOptions& o, CallSite at) {
  Call call("SolveTriangular", at, a, b);
  const int64_t n = SquareSize(a);
  Tensor matrix = a;
  if (o.unit) matrix = Where(Tensor::Eye(n, -1, kBool), 1, a);
  const bool turned = o.transposed == o.left, columns = b.rank() > 1;
  if (turned) matrix = matrix.Transpose();
  const bool upper = o.upper != turned;
  if (o.left || !columns) return matrix.SolveTriangular(b, upper);
  return matrix.SolveTriangular(b.Transpose(), upper).Transpose();
}

Tensor CholeskySolve(const Tensor& l, const Tensor& b, CallSite at) {
  Call call("CholeskySolve", at, l, b);
  SquareSize(l);
  return l.Transpose().SolveTriangular(l.SolveTriangular(b), /*upper=*/true);
}

Tensor CholeskyInverse(const Tensor& l, CallSite at) {
  Call call("CholeskyInverse", at, l);
  const Tensor part = l.SolveTriangular(Tensor::Eye(SquareSize(l), -1, FloatResult(l.dtype())));
  return part.Transpose().MatMul(part);
}

Tensor MultiDot(absl::Span<const Tensor> matrices, CallSite at) {
  Call call("MultiDot", at, matrices);
  const size_t n = matrices.size();
  if (n < 2) Fail("takes two matrices or more, not ", n);
  std::vector<Tensor> all(matrices.begin(), matrices.end());
  const bool row = all[0].rank() == 1, column = all[n - 1].rank() == 1;
  if (row) all[0] = all[0].Unsqueeze(0);
  if (column) all[n - 1] = all[n - 1].Unsqueeze(1);
  std::vector<double> sizes;
  for (size_t i = 0; i < n; ++i) {
    if (all[i].rank() != 2)
      Fail("takes matrices, and vectors as first and last, not ", Show(all[i]));
    sizes.push_back(static_cast<double>(all[i].size(0)));
  }
  sizes.push_back(static_cast<double>(all[n - 1].size(1)));
  // For each run of them the fewest multiplications, and where they are cut in two.
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  for (size_t length = 2; length <= n; ++length) {
    for (size_t i = 0; i + length <= n; ++i) {
      const size_t j = i + length - 1;
      cost[i][j] = kInfinity;
      for (size_t k = i; k < j; ++k) {
        const double c = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
        if (c < cost[i][j]) cost[i][j] = c, cut[i][j] = k;
      }
    }
  }
  // Shorter runs first, so that both parts of each are there.
  std::vector<std::vector<bool>> wanted(n, std::vector<bool>(n, false));
  wanted[0][n - 1] = true;
  for (size_t length = n; length >= 2; --length) {
    for (size_t i = 0; i + length <= n; ++i) {
      const size_t j = i + length - 1;
      if (wanted[i][j]) wanted[i][cut[i][j]] = wanted[cut[i][j] + 1][j] = true;
    }
  }
  std::vector<std::vector<Tensor>> product(n, std::vector<Tensor>(n));
  for (size_t i = 0; i < n; ++i) product[i][i] = all[i];
  for (size_t length = 2; length <= n; ++length) {
    for (size_t i = 0; i + length <= n; ++i) {
      const size_t j = i + length - 1, k = cut[i][j];
      if (wanted[i][j]) product[i][j] = product[i][k].MatMul(product[k + 1][j]);
    }
  }
  Tensor out = product[0][n - 1];
  if (column) out = out.Squeeze(1);
  return row ? out.Squeeze(0) : out;
}

Tensor SvdVals(const Tensor& x, CallSite at) {
  Call call("SvdVals", at, x);
  CheckMatrix(x);
  return x.Svd().s;
}

std::pair<Tensor, Tensor> QrComplete(const Tensor& x, CallSite at) {
  Call call("QrComplete", at, x);
  CheckMatrix(x);
  const auto [q, r] = WideFloat(x).Qr();
  Pairs below(x.rank(), {0, 0});
  below[x.rank() - 2] = {0, x.size(-2) - r.size(-2)};
  const DType type = FloatResult(x.dtype());
  return {Cat({q, internal::Complement(q)}, -1).Cast(type), r.Pad(below).Cast(type)};
}

SingularValues SvdComplete(const Tensor& x, CallSite at) {
  Call call("SvdComplete", at, x);
  CheckMatrix(x);
  const SingularValues t = WideFloat(x).Svd();
  const Tensor v = t.vt.Transpose(), u = Cat({t.u, internal::Complement(t.u)}, -1);
  const Tensor vt = Cat({v, internal::Complement(v)}, -1).Transpose();
  const DType type = FloatResult(x.dtype());
  return {u.Cast(type), t.s.Cast(type), vt.Cast(type)};
}

Tensor EigenValues(const Tensor& x, CallSite at) {
  Call call("EigenValues", at, x);
  return x.Eigh().first;
}

Tensor NuclearNorm(const Tensor& x, CallSite at) {
  Call call("NuclearNorm", at, x);
  CheckMatrix(x);
  return InFloats(x, [](const Tensor& t) { return t.Svd().s.Sum(-1); });
}

Tensor MatrixNorm(const Tensor& x, double p, CallSite at) {
  Call call("MatrixNorm", at, x);
  CheckMatrix(x);
  const double kind = std::fabs(p);
  if (kind != 1 && kind != 2 && kind != kInfinity) {
    Fail("takes p = 1, 2 or infinite, of either sign, not ", p);
  }
  return InFloats(x, [&](const Tensor& t) {
    const Tensor sizes = kind == 2 ? t.Svd().s : t.Abs().Sum(kind == 1 ? -2 : -1);
    if (sizes.shape()[sizes.rank() - 1].is_int(0)) {
      if (p < 0) Fail("there is no smallest value of ", Show(x));
      return sizes.Sum(-1);
    }
    return p > 0 ? sizes.Max(-1) : sizes.Min(-1);
  });
}

Tensor MatrixNorm(const Tensor& x, MatrixNormKind kind, CallSite at) {
  Call call("MatrixNorm", at, x);
  CheckMatrix(x);
  return kind == MatrixNormKind::kNuclear ? NuclearNorm(x) : x.Norm(2, {-2, -1});
}

namespace {

Tensor CondBy(const Tensor& x, const std::function<Tensor(const Tensor&)>& cond) {
  CheckMatrix(x);
  return InFloats(x, [&](const Tensor& t) {
    if (x.shape().MaxElements() == 0) return t.Sum({-2, -1});
    const Tensor c = cond(t);
    return Where(c.IsNan() & t.IsNan().Any({-2, -1}).LogicalNot(), kInfinity, c);
  });
}

}  // namespace

Tensor Cond(const Tensor& x, double p, CallSite at) {
  Call call("Cond", at, x);
  return CondBy(x, [&](const Tensor& t) {
    if (std::fabs(p) != 2) {
      SquareSize(t);
      return MatrixNorm(t, p) * MatrixNorm(t.Inverse(), p);
    }
    const Tensor s = t.Svd().s, most = s.Max(-1), least = s.Min(-1);
    return p > 0 ? most / least : least / most;
  });
}

Tensor Cond(const Tensor& x, MatrixNormKind kind, CallSite at) {
  Call call("Cond", at, x);
  return CondBy(x, [&](const Tensor& t) {
    SquareSize(t);
    return MatrixNorm(t, kind) * MatrixNorm(t.Inverse(), kind);
  });
}

namespace {

Tensor Mirrored(const Tensor& x, const RankOptions& o) {
  if (!o.symmetric) return x;
  internal::CheckSquare(x);
  return x.Tril() + x.Tril(-1).Transpose();
}

}  // namespace

Tensor PInverse(const Tensor& x, const RankOptions& o, CallSite at) {
  Call call("PInverse", at, x);
  return internal::PseudoInverse(Mirrored(x, o), {o.absolute, o.relative});
}

Tensor MatrixRank(const Tensor& x, const RankOptions& o, CallSite at) {
  Call call("MatrixRank", at, x);
  return internal::RankOf(Mirrored(x, o), {o.absolute, o.relative});
}

Tensor TensorSolve(const Tensor& a, const Tensor& b, const Ints& axes, CallSite at) {
  Call call("TensorSolve", at, a, b);
  Ints to;
  for (size_t i = 0; i < axes.size(); ++i) {
    to.push_back(static_cast<int64_t>(i) - static_cast<int64_t>(axes.size()));
  }
  const Tensor moved = axes.empty() ? a : a.MoveAxis(Axes(axes), Axes(to));
  const int rank = b.rank();
  bool fits = moved.rank() >= rank;
  Extents of_x;
  Extent elements = 1;
  for (int i = 0; fits && i < moved.rank(); ++i) {
    const Extent& n = moved.shape()[i];
    if (i < rank) {
      fits = n == b.shape()[i];
    } else {
      of_x.push_back(n);
      elements = elements * n;
    }
  }
  if (!fits || !(elements == b.shape().Elements())) {
    Fail("the first must have the axes of the second, then others of as many elements, not ",
         Show(moved), " and ", Show(b));
  }
  return moved.Reshape({elements, elements}).Solve(b.Reshape({elements})).Reshape(Dims(of_x));
}

Tensor TensorInverse(const Tensor& x, int axes, CallSite at) {
  Call call("TensorInverse", at, x);
  if (axes < 1 || axes > x.rank()) {
    Fail("takes from 1 to ", x.rank(), " first axes of ", Show(x), ", not ", axes);
  }
  const Extents rows(x.shape().begin(), x.shape().begin() + axes),
      columns(x.shape().begin() + axes, x.shape().end());
  const Extent n = Shape(rows).Elements();
  if (!(Shape(columns).Elements() == n)) {
    Fail("the first ", axes, " axes and the others must have as many elements, not ",
         Shape(rows).ToString(), " and ", Shape(columns).ToString());
  }
  Extents dims = columns;
  dims.insert(dims.end(), rows.begin(), rows.end());
  return x.Reshape({n, n}).Inverse().Reshape(Dims(dims));
}

Tensor HouseholderProduct(const Tensor& x, const Tensor& tau, CallSite at) {
  Call call("HouseholderProduct", at, x, tau);
  bool fits = x.rank() > 1 && tau.rank() == x.rank() - 1;
  for (int i = 0; fits && i + 2 < x.rank(); ++i) fits = x.shape()[i] == tau.shape()[i];
  if (!fits || x.size(-1) > x.size(-2) || tau.size(-1) > x.size(-1)) {
    Fail("takes [..., M, N] and [..., K], K <= N <= M, not ", Show(x), " and ", Show(tau));
  }
  const DType type = FloatResult(Promote(x.dtype(), tau.dtype())), wide = AccumulateType(type);
  const int64_t m = x.size(-2), n = x.size(-1);
  const Tensor one = Tensor::Eye(m, n, wide), v = x.Cast(wide).Tril(-1) + one, t = tau.Cast(wide);
  Tensor q = one.Expand(x.shape());
  const int64_t k = tau.size(-1);
  const Tensor columns = v.SliceAxis(-1, {0, k}).MoveAxis(-1, 0).Flip(0);
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &q = in[0], column = in[1].Unsqueeze(-1);
    const Tensor scale = in[2].Unsqueeze(-1).Unsqueeze(-1);
    return {(q - column * scale * (column * q).Sum(-2, /*keepdim=*/true)).Contiguous()};
  };
  q = internal::Repeat(k, {q}, {columns, t.MoveAxis(-1, 0).Flip(0)}, step).carried[0];
  return q.Cast(type);
}

}  // namespace tessera
