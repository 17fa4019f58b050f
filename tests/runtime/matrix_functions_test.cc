// Exponentials, factors and norms of matrices: SciPy's values and NumPy's, of sin(0.7 i); and
// errors.
#include "graph/matrix_functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/waves.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

Tensor Square() { return Waves({4, 4}) + Tensor::Eye(4, 4, kFloat64) * 0.3; }

// scipy.linalg.expm
TEST(MatrixFunctions, Exponential) {
  const Tensor x = Waves({2, 3, 3}) * 3;
  const Values want = {-0.2331417708883903,  -0.46855732609722495, 0.5163969505676447,
                       5.900343019686497,    6.47474327082569,     2.4742862164722133,
                       -4.724388607694985,   -5.059248301824038,   -2.0146644666698768,
                       -0.20056147225297993, -0.4272299162088952,  0.5470345450798172,
                       5.965183296368064,    6.504523466463062,    2.4550002397287454,
                       -4.822437628538122,   -5.130644543235859,   -2.0258291607173615};
  ExpectNear(Computed(MatrixExp(x)), want, 1e-13);
  ExpectNear(Computed(MatrixExp(x.Cast(kFloat32))), want, 1e-5);
  const Tensor stiff = Tensor::From({{-30000., 2.}, {1., -1.}}).Cast(kFloat64);
  ExpectNear(
      Computed(MatrixExp(stiff)),
      {8.176188751269137e-10, 2.4527748689442044e-05, 1.2263874344721014e-05, 0.3679039672849049},
      1e-11);
  ExpectNear(Computed(MatrixExp(Tensor::From({{0., 1e-8}, {1e-9, 0.}}, kFloat64))),
             {1, 1e-8, 1e-9, 1}, 1e-20);
  // Each of a batch by its own size.
  const Tensor batch =
      Stack({Tensor::Eye(2) * 70000., Tensor::Zeros({2, 2}), Tensor::Eye(2) * 80.});
  const Values of_batch = Computed(MatrixExp(batch.Cast(kFloat64)));
  EXPECT_TRUE(std::isnan(of_batch[0]));
  EXPECT_EQ(of_batch[4], 1);
  EXPECT_EQ(of_batch[5], 0);
  EXPECT_NEAR(of_batch[8] / std::exp(80.), 1, 1e-12);
  EXPECT_EQ(MatrixExp(Tensor::Zeros({3, 0, 0})).shape(), Shape({3, 0, 0}));
  EXPECT_ERROR(MatrixExp(Waves({2, 3})), "MatrixExp", "square matrices, not f64[2, 3]");
}

// The derivative by t of e^(t x) is x e^(t x), and so on.
TEST(MatrixFunctions, DerivativesOfExponential) {
  const Tensor x = Waves({3, 3}), t = Tensor::From({1.5}).Cast(kFloat64).Reshape({});
  const Tensor w = Waves({9}).Reshape({3, 3}) + 0.5, e = MatrixExp(x * t);
  const Tensor first = Grad((e * w).Sum(), {t})[0];
  ExpectNear(Computed(first), Computed((x.MatMul(e) * w).Sum()), 1e-12);
  ExpectNear(Computed(Grad(first, {t})[0]), Computed((x.MatMul(x).MatMul(e) * w).Sum()), 1e-12);
}

// scipy.linalg.lu
TEST(MatrixFunctions, Lu) {
  const LuFactors f = Lu(Square());
  EXPECT_EQ(Computed(f.p), (Values{0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0}));
  ExpectNear(Computed(f.l),
             {1, 0, 0, 0, 0.35104187140970405, 1, 0, 0, 0.3919828904360129, -0.3304473157146798, 1,
              0, -0.7386700730573724, 0.47448690543192007, -0.43820618341309214, 1},
             1e-13);
  ExpectNear(Computed(f.u),
             {0.8545989080882814, 0.3190983623493521, -0.36647912925192677, -0.5796957599716701, 0,
              0.5322008009548026, 1.1140992493536555, 1.0667068510775997, 0, 0, -0.3597711176562892,
              -0.4027313774640847, 0, 0, 0, -0.12265348812239452},
             1e-13);
  // Of any, also singular: what they make is it again.
  for (const Tensor& x :
       {Waves({2, 5, 5}), Waves({1, 1}), Tensor::Zeros({3, 3}, kFloat64),
        Tensor::From({{0., 0., 2.}, {0., 0., 1.}, {3., 0., 0.}}).Cast(kFloat64)}) {
    const LuFactors of = Lu(x);
    ExpectNear(Computed(of.p.MatMul(of.l).MatMul(of.u)), Computed(x), 1e-13);
    ExpectNear(Computed(of.p.MatMul(of.p.Transpose())), Computed(x * 0 + Tensor::Eye(x.size(-1))),
               0);
  }
  EXPECT_EQ(Lu(Tensor::Zeros({0, 0})).l.shape(), Shape({0, 0}));
  const Tensor x = Square();
  const LuFactors of = Lu(x);
  const Tensor same = of.p.MatMul(of.l).MatMul(of.u);
  ExpectNear(Computed(Grad((same * Waves({4, 4})).Sum(), {x})[0]), Computed(Waves({4, 4})), 1e-12);
  EXPECT_ERROR(Lu(Waves({2, 3})), "Lu", "square matrices");
}

TEST(MatrixFunctions, OfCholeskyFactors) {
  const Tensor x = Square(), s = x.MatMul(x.Transpose()) + Tensor::Eye(4), l = s.Cholesky();
  const Values solved = {0.27202964567960525, 0.6847984942305094, 0.9590258148014207,
                         0.8386902855422026,  0.2714742140181916, -0.3507749333337574,
                         -0.6422008408687605, -0.9520778630833396};
  ExpectNear(Computed(CholeskySolve(l, Waves({4, 2}))), solved, 1e-13);
  EXPECT_EQ(CholeskySolve(l, Waves({4})).shape(), Shape({4}));
  ExpectNear(Computed(CholeskyInverse(l)), Computed(s.Inverse()), 1e-13);
  ExpectNear(Computed(LogDet(s)), Computed(s.Det().Log()), 1e-13);
  const Tensor pair = Stack({Tensor::Eye(2) * 2., Tensor::From({{0., 1.}, {1., 0.}})});
  const Values logs = Computed(LogDet(pair.Cast(kFloat64)));
  EXPECT_NEAR(logs[0], std::log(4.), 1e-15);
  EXPECT_TRUE(std::isnan(logs[1]));
  EXPECT_EQ(Computed(LogDet(Tensor::Zeros({2, 2})))[0], -kInf);
}

TEST(MatrixFunctions, ProductsOfMany) {
  const std::vector<Tensor> four = {Waves({2, 6}), Waves({6, 3}), Waves({3, 7}), Waves({7})};
  ExpectNear(Computed(MultiDot(four)), {0.6278209256609776, 1.1754316799030953}, 1e-13);
  const Tensor of_vectors = MultiDot({Waves({6}), Waves({6, 3}), Waves({3})});
  EXPECT_EQ(of_vectors.shape(), Shape());
  ExpectNear(Computed(of_vectors), Computed(Waves({6}).MatMul(Waves({6, 3})).MatMul(Waves({3}))),
             1e-13);
  EXPECT_ERROR(MultiDot({Waves({2, 2})}), "MultiDot", "two matrices or more");
  EXPECT_ERROR(MultiDot({Waves({2, 2}), Waves({2}), Waves({2, 2})}), "MultiDot", "not f64[2]");
}

TEST(MatrixFunctions, Norms) {
  const Tensor a = Square(), b = Waves({3, 4});
  struct Row {
    double p, norm, cond;
  };
  for (const Row& r : std::vector<Row>{{1, 2.8338302131502067, 73.17363569398769},
                                       {-1, 0.9662547880282267, 13.349288896066907},
                                       {2, 2.334242988619734, 44.27499455237864},
                                       {-2, 0, 0.02258611232163948},
                                       {kInf, 2.5397997628834452, 61.20830020319334},
                                       {-kInf, 2.293235370952461, 18.130281469421696}}) {
    SCOPED_TRACE(r.p);
    ExpectNear(Computed(MatrixNorm(b, r.p)), {r.norm}, 1e-13);
    ExpectNear(Computed(Cond(a, r.p)), {r.cond}, 1e-12);
  }
  ExpectNear(Computed(NuclearNorm(b)), {3.0047496634544513}, 1e-13);
  ExpectNear(Computed(SvdVals(b)), {2.334242988619734, 0.6705066748347175, 0}, 1e-13);
  for (const double p : {1., 2., -2.}) {
    EXPECT_EQ(Computed(Cond(Tensor::Zeros({2, 2}), p))[0], kInf) << p;
  }
  EXPECT_TRUE(std::isnan(Computed(Cond(Tensor::Full({2, 2}, kNan), 2))[0]));
  EXPECT_ERROR(MatrixNorm(b, 3), "MatrixNorm", "p = 1, 2 or infinite");
  EXPECT_ERROR(NuclearNorm(Waves({3})), "NuclearNorm", "matrices [..., M, N]");
}

}  // namespace
}  // namespace tessera
