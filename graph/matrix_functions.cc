// Exponentials, factors, products in their best order, and norms.
#include "graph/matrix_functions.h"

#include <cmath>
#include <vector>

#include "graph/elimination.h"
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

LuFactors Lu(const Tensor& x, CallSite at) {
  Call call("Lu", at, x);
  const DType type = FloatResult(x.dtype());
  const Tensor m = WideFloat(x);
  if (SquareSize(x) == 0) return {m.Cast(type), m.Cast(type), m.Cast(type)};
  const Elimination e(m);
  const Tensor row = Tensor::Arange(x.size(-1)).Unsqueeze(-1);
  const Tensor p = e.at_row().Unsqueeze(-2) == row;
  return {p.Cast(type), e.Lower().Cast(type), e.Upper().Cast(type)};
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
    Tensor cond;
    if (std::fabs(p) == 2) {
      const Tensor s = t.Svd().s, most = s.Max(-1), least = s.Min(-1);
      cond = p > 0 ? most / least : least / most;
    } else {
      SquareSize(t);
      cond = MatrixNorm(t, p) * MatrixNorm(t.Inverse(), p);
    }
    return Where(cond.IsNan() & t.IsNan().Any({-2, -1}).LogicalNot(), kInfinity, cond);
  });
}

}  // namespace tessera
