// Exponentials, factors, products in their best order, and norms.
#include "graph/matrix_functions.h"

#include <cmath>
#include <limits>
#include <vector>

#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::InFloats;
using internal::Show;
using internal::WideFloat;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t SquareSize(const Tensor& x) {
  if (x.rank() < 2 || !(x.shape()[x.rank() - 1] == x.shape()[x.rank() - 2])) {
    Fail("takes square matrices, not ", Show(x));
  }
  const Extent& n = x.shape()[x.rank() - 1];
  if (!n.is_int()) Fail("takes matrices of a known size, not ", Show(x));
  return n.value();
}

void CheckMatrix(const Tensor& x) {
  if (x.rank() < 2) Fail("takes matrices [..., M, N], not ", Show(x));
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
    for (int i = 0; i < kMostSquares; ++i) {
      power = Where(times > i, power.MatMul(power), power).Contiguous();
    }
    return Where(known, power, kNan);
  });
}

Tensor LogDet(const Tensor& x, CallSite at) {
  Call call("LogDet", at, x);
  const auto [sign, log] = x.SlogDet();
  return Where(sign < 0, kNan, log);
}

// As Tensor::Det goes: after each step rows and columns move up, and those exchanged are known by
// the numbers that they had.
LuFactors Lu(const Tensor& x, CallSite at) {
  Call call("Lu", at, x);
  const int64_t n = SquareSize(x);
  const DType type = FloatResult(x.dtype());
  Tensor m = WideFloat(x);
  if (n == 0) return {m.Cast(type), m.Cast(type), m.Cast(type)};
  const Tensor row = Tensor::Arange(n);
  const auto moved_up = [](const Tensor& t, int axis) {
    Pairs pairs(t.rank(), {0, 0});
    pairs[internal::NormalAxis(axis, t.rank())] = {0, 1};
    return t.SliceAxis(axis, {1, {}}).Pad(pairs);
  };
  // Which row lies where, from 1 on: 0 is none.
  Tensor number = (row + 1).Expand(m.Select(-1, 0).shape()).Contiguous();
  std::vector<Tensor> pivots, columns, rows;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor size = Where(number > 0, m.Select(-1, 0).Abs(), -1);
    const Tensor chosen = size.ArgMax(-1, /*keepdim=*/true) == row, below = chosen.Unsqueeze(-1);
    const Tensor pivot_row = Where(below, m, 0).Sum(-2, /*keepdim=*/true);
    const Tensor pivot = pivot_row.SliceAxis(-1, {0, 1});
    const Tensor exchanged = Where(below, m.SliceAxis(-2, {0, 1}), m);
    const Tensor share = exchanged.SliceAxis(-1, {0, 1}) / Where(pivot == 0, 1, pivot);
    const Tensor of_pivot = Where(chosen, number, 0).Sum(-1, /*keepdim=*/true);
    const Tensor order = Where(chosen, number.SliceAxis(-1, {0, 1}), number);
    // Shares by the rows that they are of: first is what the pivot was exchanged for.
    number = moved_up(order, -1).Contiguous();
    const Tensor is = (number.Unsqueeze(-1) == row + 1);
    const Tensor rest = moved_up(share.Squeeze(-1), -1).Unsqueeze(-1);
    columns.push_back(Where(is, rest, 0).Sum(-2).Contiguous());
    pivots.push_back((of_pivot - 1).Contiguous());
    rows.push_back(pivot_row.Squeeze(-2).Contiguous());
    m = moved_up(moved_up(exchanged - share * pivot_row, -1), -2).Contiguous();
  }
  Pairs pairs(x.rank(), {0, 0});
  pairs.back() = {0, 1};
  const Tensor apart = Stack(rows, -2).Pad(pairs).Flatten(-2).SliceAxis(-1, {0, n * n});
  const Tensor u = apart.Unflatten(-1, {n, n}).Triu();
  const Tensor p = (Cat(pivots, -1).Unsqueeze(-2) == row.Unsqueeze(-1)).Cast(m.dtype());
  const Tensor l =
      p.Transpose().MatMul(Stack(columns, -1)).Tril(-1) + Tensor::Eye(n, -1, m.dtype());
  return {p.Cast(type), l.Cast(type), u.Cast(type)};
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
    return p > 0 ? sizes.Max(-1) : sizes.Min(-1);
  });
}

Tensor Cond(const Tensor& x, double p, CallSite at) {
  Call call("Cond", at, x);
  CheckMatrix(x);
  return InFloats(x, [&](const Tensor& t) {
    if (std::fabs(p) == 2) {
      const Tensor s = t.Svd().s, most = s.Max(-1), least = s.Min(-1);
      return p > 0 ? most / least : least / most;
    }
    SquareSize(t);
    const Tensor cond = MatrixNorm(t, p) * MatrixNorm(t.Inverse(), p);
    return Where(cond.IsNan() & t.IsNan().Any({-2, -1}).LogicalNot(), kInfinity, cond);
  });
}

}  // namespace tessera
