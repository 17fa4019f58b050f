// Systems of equations, determinants and Cholesky's factor of matrices that are taken in blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "graph/matrix_functions.h"
#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tests/testing.h"

namespace tessera {
namespace {

Tensor Random(const Dims& shape) { return Tensor::RandN(shape).Cast(kFloat64).Realize(); }

double Most(const Tensor& t) { return t.Abs().Max().Item<double>(); }

// Sizes of one block, of two, of some that are not alike, and of halves of halves.
TEST(Elimination, SolvesInBlocksSlow) {
  for (int64_t n : {64, 65, 131}) {
    for (bool batch : {false, true}) {
      if (batch && n != 65) continue;
      const Tensor a = Random(batch ? Dims{2, n, n} : Dims{n, n});
      const Tensor b = Random(batch ? Dims{2, n, 3} : Dims{n, 3});
      EXPECT_LT(Most(a.MatMul(a.Solve(b)) - b), 1e-10) << n;
      const Tensor eye = Tensor::Eye(n, -1, kFloat64);
      EXPECT_LT(Most(a.Inverse().MatMul(a) - eye), 1e-9) << n;
      const Tensor lower = a.Tril(-1) / static_cast<double>(n) + eye, upper = lower.Transpose();
      EXPECT_LT(Most(lower.MatMul(lower.SolveTriangular(b)) - b), 1e-12) << n;
      EXPECT_LT(Most(upper.MatMul(upper.SolveTriangular(b, /*upper=*/true)) - b), 1e-12) << n;
      EXPECT_LT(Most(lower.SolveTriangular(lower) - eye), 1e-12) << n;
      const Tensor spd = a.MatMul(a.Transpose()) + eye, factor = spd.Cholesky();
      EXPECT_LT(Most(factor.MatMul(factor.Transpose()) - spd), 1e-11) << n;
      EXPECT_EQ(Most(factor.Triu(1)), 0) << n;
    }
  }
}

TEST(Elimination, OfNothing) {
  for (int64_t n : {0, 3, 65}) {
    const Tensor a = Tensor::Eye(n, -1, kFloat64);
    EXPECT_EQ(a.Solve(Tensor::Zeros({n, 0}, kFloat64)).shape(), Shape({n, 0})) << n;
    EXPECT_EQ(a.SolveTriangular(Tensor::Zeros({n, 0}, kFloat64)).shape(), Shape({n, 0})) << n;
  }
}

// Of a triangle each row depends on those before it alone.
TEST(Elimination, WhatIsInfiniteStaysBelow) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor sides = Tensor::From(std::vector<float>{1, 1, 1, inf, 1, 1}, {2, 3});
  const std::vector<float> x = Tensor::Eye(2).SolveTriangular(sides).ToVector<float>();
  EXPECT_EQ(x, (std::vector<float>{1, 1, 1, inf, 1, 1}));
}

// Rows are looked for among all that are left: a matrix with zeros where the pivots would be.
TEST(Elimination, ExchangesRows) {
  const int64_t n = 150;
  const Tensor order = (Tensor::Arange(n) * 7 + 3) % n;
  const Tensor rows = Tensor::Eye(n, -1, kFloat64).Take(order, 0);  // a permutation
  const Tensor b = Random({n, 2});
  EXPECT_EQ(Most(rows.MatMul(rows.Solve(b)) - b), 0);
  double sign = 1;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) sign = (i * 7 + 3) % n > (j * 7 + 3) % n ? -sign : sign;
  }
  EXPECT_EQ(rows.Det().Item<double>(), sign);
  EXPECT_EQ((rows * 2.0).SlogDet().first.Item<double>(), sign);
  EXPECT_NEAR((rows * 2.0).SlogDet().second.Item<double>(), n * std::log(2.0), 1e-10);
  const Tensor singular = rows * (Tensor::Arange(n) != 77).Cast(kFloat64);
  EXPECT_EQ(singular.Det().Item<double>(), 0);
}

TEST(Elimination, DeterminantsInBlocksSlow) {
  const Tensor a = Random({2, 100, 100});
  const auto [sign, log] = a.SlogDet();
  const Tensor r = a.Qr().second.Diagonal(0, -2, -1).Abs().Log().Sum({-1});
  EXPECT_LT(Most(log - r), 1e-9);
  const LuFactors f = Lu(a);
  EXPECT_LT(Most(f.p.MatMul(f.l).MatMul(f.u) - a), 1e-12);
  EXPECT_EQ(Most(f.l.Triu(1)) + Most(f.u.Tril(-1)), 0);
  EXPECT_LE(Most(f.l), 1);
  const Tensor twice = a.MatMul(a);  // its sign is 1, whatever that of a
  EXPECT_EQ(twice.SlogDet().first.Min().Item<double>(), 1);
  EXPECT_LT(Most(twice.SlogDet().second - log * 2.0), 1e-8);
}

// The derivative of log |det A| is A^-T; that of the sum of A^-1 b by b the sums of A^-1 down its
// columns; and of the sum of L^2 it is the identity.
TEST(Elimination, DerivativesInBlocksSlow) {
  const int64_t n = 90;
  const Tensor eye = Tensor::Eye(n, -1, kFloat64);
  Tensor a = (Random({n, n}) + eye * 20.0).Realize().RequireGrad(),
         b = Random({n, 1}).RequireGrad();
  a.SlogDet().second.Backward();
  EXPECT_LT(Most(a.grad() - a.Detach().Inverse().Transpose()), 1e-11);
  a.ClearGrad();
  const Tensor x = a.Solve(b);
  x.Sum().Backward();
  const Tensor of_b = a.Detach().Transpose().Solve(Tensor::Ones({n, 1}, kFloat64));
  EXPECT_LT(Most(b.grad() - of_b), 1e-11);
  EXPECT_LT(Most(a.grad() + of_b.MatMul(x.Detach().Transpose())), 1e-11);
  Tensor c = (a.Detach().MatMul(a.Detach().Transpose()) + eye).Realize().RequireGrad();
  c.Cholesky().Square().Sum().Backward();
  const Tensor both = c.grad() + c.grad().Transpose();  // of which triangle is not said
  EXPECT_LT(Most(both - eye * 2.0), 1e-9);
}

}  // namespace
}  // namespace tessera
