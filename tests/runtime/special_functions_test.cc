// Special functions that are no members of Tensor: mpmath's values and derivatives, and edges.
#include "graph/special_functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

Values Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }
Tensor Of(const Values& v) { return Tensor::From(v); }

// mpmath.betainc(a, b, 0, x, regularized=True) with mp.dps = 40.
TEST(SpecialFunctions, BetaInc) {
  const Tensor a = Of({0.5, 2, 1e-3, 0.3, 300, 3000, 20, 1, 1e5}),
               b = Of({0.5, 3, 2, 40, 7, 0.002, 2e4, 1, 1e5}),
               x = Of({0.25, 0.4, 0.1, 0.02, 0.97, 0.99999, 0.0015, 0.75, 0.5005});
  const Values shares = {1.0 / 3,
                         0.5248,
                         0.9985979938799936,
                         0.8864026495185509,
                         0.1867347059418477,
                         0.005904220911471532,
                         0.9784531656623321,
                         0.75,
                         0.6726394155565634};
  ExpectNear(Computed(BetaInc(a, b, x)), shares, 2e-12);
  Values beyond;
  for (const double s : shares) beyond.push_back(1 - s);
  ExpectNear(Computed(BetaInc(b, a, 1 - x)), beyond, 1e-11);
  ExpectNear(Computed(BetaInc(Tensor::From({2}), 3, 0.4)), {0.5248}, 1e-6);
  EXPECT_EQ(BetaInc(Tensor::From({2}), 3, 0.5).dtype(), kFloat32);
  EXPECT_EQ(BetaInc(Tensor::Ones({4, 1}), Tensor::Ones({3}), 0.5).shape(), Shape({4, 3}));
  EXPECT_EQ(BetaInc(Tensor::Ones({0}), 2, 0.5).shape(), Shape({0}));
}

TEST(SpecialFunctions, BetaIncAtItsEdges) {
  const Tensor a = Of({2, 2, 2, 2, 0, -1, 2, kNan, kInf, 2, kInf, kInf, 1e-300}),
               b = Of({3, 3, 3, 3, 3, 3, 0, 3, 3, kInf, 3, kInf, 2}),
               x = Of({0, 1, -0.1, 1.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1, 0.5, 0.5});
  const Values want = {0, 1, kNan, kNan, kNan, kNan, kNan, kNan, 0, 1, 1, kNan, 1};
  const Values got = Computed(BetaInc(a, b, x));
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << i << ": " << got[i];
  }
  for (const Tensor& g : Grad(Where(x < 1, BetaInc(a, b, x), 0).Sum(), {a, b, x})) {
    EXPECT_EQ(Computed(g)[0], 0);  // at x = 0
  }
}

// mpmath.diff of the same, by (a, b, x), (a a, a b, b b, a x, x x).
TEST(SpecialFunctions, DerivativesOfBetaInc) {
  const Tensor a = Of({0.5, 4}), b = Of({2.5, 0.75}), x = Of({0.3, 0.8});
  const Tensor y = BetaInc(a, b, x);
  const auto first = Grad(y.Sum(), {a, b, x});
  ExpectNear(Computed(first[0]), {-0.42865648910973675, -0.07928266621119448}, 1e-11);
  ExpectNear(Computed(first[1]), {0.09892002926958343, 0.4330843476021609}, 1e-11);
  ExpectNear(Computed(first[2]), {0.9076225809093327, 1.72712784231051}, 1e-11);
  const auto of_a = Grad(first[0].Sum(), {a, b, x}), of_b = Grad(first[1].Sum(), {b}),
             of_x = Grad(first[2].Sum(), {x});
  ExpectNear(Computed(of_a[0]), {0.0014002457217957755, 0.022723451360636537}, 1e-10);
  ExpectNear(Computed(of_a[1]), {0.14780319572044712, -0.06423602912057334}, 1e-10);
  ExpectNear(Computed(of_b[0]), {-0.05628551070140129, -0.04996662327035119}, 1e-10);
  ExpectNear(Computed(of_a[2]), {1.5269130332967356, -0.05191256561280706}, 1e-10);
  ExpectNear(Computed(of_x[0]), {-3.457609832035553, 8.63563921155255}, 1e-10);
}

TEST(SpecialFunctions, OfOneNumber) {
  ExpectNear(Computed(Gamma(Of({0.5, 5, -1.5, -2.5, 1e-10}))),
             {1.772453850905516, 24, 2.363271801207355, -0.9453087204829419, 9999999999.422785},
             1e-13);
  const Values edges = Computed(Gamma(Of({0.0, -0.0, -3, kInf, -kInf, 200})));
  EXPECT_EQ(edges[0], kInf);
  EXPECT_EQ(edges[1], -kInf);
  EXPECT_TRUE(std::isnan(edges[2]) && std::isnan(edges[4]));
  EXPECT_EQ(edges[3], kInf);
  EXPECT_EQ(edges[5], kInf);
  ExpectNear(
      Computed(Log1mExp(Of({1e-10, 0.5, 2, 40, kInf}))),
      {-23.025850929990458, -0.9327521295671886, -0.14541345786885906, -4.248354255291589e-18, 0},
      1e-14);
  EXPECT_EQ(Computed(Log1mExp(Of({0})))[0], -kInf);
  EXPECT_TRUE(std::isnan(Computed(Log1mExp(Of({-1})))[0]));
}

TEST(SpecialFunctions, Entropies) {
  const Tensor x = Of({0.5, 0, 0, 1, -1}), y = Of({0.25, 2, 0, 0, 2});
  ExpectNear(Computed(RelEntr(x, y)), {0.34657359027997264, 0, 0, kInf, kInf}, 1e-15);
  ExpectNear(Computed(KlDiv(x, y)), {0.09657359027997264, 2, 0, kInf, kInf}, 1e-15);
  EXPECT_TRUE(std::isnan(Computed(RelEntr(Of({kNan}), 1))[0]));
  EXPECT_EQ(RelEntr(Tensor::From({1, 2}), 2).dtype(), kFloat32);
}

}  // namespace
}  // namespace tessera
