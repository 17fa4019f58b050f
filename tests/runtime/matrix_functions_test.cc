// Exponentials, factors and norms of matrices: SciPy's values and NumPy's, of sin(0.7 i); and
// errors.
#include "graph/matrix_functions.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// torch.linalg.lu; the order of rows without a pivot is the library's own.
TEST(MatrixFunctions, LuOfOthersSlow) {
  const Tensor tall = Waves({5, 3}) + Tensor::Eye(5, 3, kFloat64) * 0.5;
  const LuFactors f = Lu(tall);
  ExpectNear(Computed(f.u),
             {-0.8715757724135877, -0.9824526126243326, -0.13126663787232162, 0,
              -0.6442176872376919, -0.4951889086477601, 0, 0, 0.8481828360027658},
             1e-14);
  ExpectNear(Computed(f.l.SliceAxis(0, {0, 3})),
             {1, 0, 0, -0.9805216426814004, 1, 0, -0.5736735873409933, -0.12512939982539892, 1},
             1e-14);
  const Tensor wide = Waves({3, 5}) + Tensor::Eye(3, 5, kFloat64) * 0.5;
  const LuFactors g = Lu(wide);
  EXPECT_EQ(Computed(g.p), (Values{0, 0, 1, 0, 1, 0, 1, 0, 0}));
  ExpectNear(Computed(g.l),
             {1, 0, 0, -0.5339275235959053, 1, 0, 0.7610505312818652, -0.6910542844437312, 1},
             1e-14);
  ExpectNear(
      Computed(g.u),
      {0.6569865987187891, 0.9881682338770003, 1.3545989080882814, 0.3190983623493521,
       -0.36647912925192677, 0, 0.15603444559649837, -0.2591949721630391, -0.4608912394796232,
       -0.17885939344671525, 0, 0, -0.22458628470550268, 0.301858522746751, 0.4902957360224397},
      1e-14);
  const Tensor many = Tensor::RandN({2, 70, 130}, kFloat64);
  for (const Tensor& x : {tall, wide, Waves({2, 4, 2}), Waves({4, 1}), Waves({1, 4}), many,
                          many.Transpose(), Tensor::Zeros({3, 2}, kFloat64)}) {
    SCOPED_TRACE(x.shape().ToString());
    const LuFactors of = Lu(x);
    const int64_t m = x.size(-2), k = std::min(m, x.size(-1));
    EXPECT_EQ(of.l.shape()[x.rank() - 1], Extent(k));
    EXPECT_EQ(of.u.shape()[x.rank() - 2], Extent(k));
    ExpectNear(Computed(of.p.MatMul(of.l).MatMul(of.u)), Computed(x), 1e-12);
    ExpectNear(Computed(of.p.MatMul(of.p.Transpose())),
               Computed(x.Sum(-1, true) * 0 + Tensor::Eye(m)), 0);
    EXPECT_EQ(Computed(of.l.Triu(1).Abs().Max()), Values{0});
    EXPECT_EQ(Computed(of.u.Tril(-1).Abs().Max()), Values{0});
    EXPECT_EQ(Computed(of.l.Abs().Max()), Values{1});
    if (Computed(of.u.Abs().Max())[0] == 0) continue;
    const Tensor w = Waves(x.shape()).Detach();
    ExpectNear(Computed(Grad((of.p.MatMul(of.l).MatMul(of.u) * w).Sum(), {x})[0]), Computed(w),
               1e-9);
  }
  const LuFactors none = Lu(Tensor::Zeros({2, 3, 0}));
  EXPECT_EQ(Computed(none.p), Computed(Tensor::Eye(3).Expand({2, 3, 3})));
  EXPECT_EQ(none.l.shape(), Shape({2, 3, 0}));
  EXPECT_EQ(none.u.shape(), Shape({2, 0, 0}));
  EXPECT_EQ(Lu(Tensor::Zeros({0, 3})).u.shape(), Shape({0, 3}));
  EXPECT_ERROR(Lu(Waves({3})), "Lu", "matrices [..., M, N]");
}

TEST(MatrixFunctions, LuSolve) {
  const Tensor a = Square(), b = Waves({4, 2});
  ExpectNear(Computed(LuSolve(Lu(a), b)), Computed(a.Solve(b)), 1e-13);
  EXPECT_EQ(LuSolve(Lu(a), Waves({4})).shape(), Shape({4}));
  EXPECT_ERROR(LuSolve(Lu(Waves({4, 3})), b), "LuSolve", "square matrices");
}

// torch.linalg.solve_triangular and torch.triangular_solve
TEST(MatrixFunctions, SolveTriangular) {
  const Tensor a = Waves({3, 3}) + Tensor::Eye(3, 3, kFloat64) * 2, b = Waves({3, 2});
  struct Row {
    bool upper, unit;
    Values left, right, transposed;
  };
  const std::vector<Row> rows = {{false,
                                  false,
                                  {0, 0.3221088436188455, 0.42203628738872295, 0.2506059808986947,
                                   0.5476733628805226, 0.1287084409837713},
                                  {-0.11994180466634993, 0.5250126441104743, 0.24474317600848888,
                                   0.09740684529819577, 0.2618528776978728, -0.2562830989553231},
                                  {-0.11994180466634993, 0.09740684529819577, 0.5250126441104743,
                                   0.2618528776978728, 0.24474317600848888, -0.2562830989553231}},
                                 {false,
                                  true,
                                  {0, 0.644217687237691, 0.9854497299884601, 0.3071146248644243,
                                   1.3031458119930108, 0.5124268662402612},
                                  {-0.8427727018246061, 1.3145597133073212, 0.3349881501559051,
                                   -0.10916085605494802, 0.5185814681404108, -0.35078322768961984},
                                  {-0.8427727018246061, -0.10916085605494802, 1.3145597133073212,
                                   0.5185814681404108, 0.3349881501559051, -0.35078322768961984}},
                                 {true,
                                  false,
                                  {-0.26837582292496953, 0.34170876391800753, 0.45880384067567825,
                                   0.3311835025558456, 0.24474317600848888, -0.2562830989553231},
                                  {0, 0.42203628738872295, 0.35290394361207017, 0.3221088436188455,
                                   0.2808156231243202, -0.4162241571359774},
                                  {0, 0.3221088436188455, 0.42203628738872295, 0.2808156231243202,
                                   0.35290394361207017, -0.4162241571359774}},
                                 {true,
                                  true,
                                  {-1.040659004713306, 0.5130724427351407, 1.1029579545379236,
                                   0.7401604938205263, 0.3349881501559051, -0.35078322768961984},
                                  {0, 0.9854497299884601, 0.6806673871671215, 0.644217687237691,
                                   0.44819293809899446, -0.8284088081777334},
                                  {0, 0.644217687237691, 0.9854497299884601, 0.44819293809899446,
                                   0.6806673871671215, -0.8284088081777334}}};
  for (const Row& r : rows) {
    TriangularOptions o{.upper = r.upper, .unit = r.unit};
    ExpectNear(Computed(SolveTriangular(a, b, o)), r.left, 1e-14);
    o.transposed = true;
    ExpectNear(Computed(SolveTriangular(a, b, o)), r.transposed, 1e-14);
    o.left = false;  // X a^T = b^T
    ExpectNear(Computed(SolveTriangular(a, b.Transpose(), o).Transpose()), r.left, 1e-14);
    o.transposed = false;
    ExpectNear(Computed(SolveTriangular(a, b.Transpose(), o)), r.right, 1e-14);
    // Of vectors either way.
    ExpectNear(Computed(SolveTriangular(a, b.Select(1, 1), o)),
               Values(r.right.begin() + 3, r.right.end()), 1e-14);
  }
  EXPECT_EQ(SolveTriangular(Waves({0, 0}), Waves({2, 0}), {.left = false}).shape(), Shape({2, 0}));
  EXPECT_ERROR(SolveTriangular(a, Waves({3, 2}), {.left = false}), "SolveTriangular", "f64[3, 2]");
}

TEST(MatrixFunctions, NormsByName) {
  const Tensor a = Square(), b = Waves({3, 4});
  using Kind = MatrixNormKind;
  ExpectNear(Computed(MatrixNorm(b, Kind::kFrobenius)), {2.428635322751915}, 1e-14);
  ExpectNear(Computed(MatrixNorm(b, Kind::kNuclear)), {3.004749663454452}, 1e-14);
  ExpectNear(Computed(Cond(a, Kind::kFrobenius)), {53.997209539939554}, 1e-11);
  ExpectNear(Computed(Cond(a, Kind::kNuclear)), {104.54456020024723}, 1e-11);
  EXPECT_EQ(Computed(Cond(Tensor::Zeros({2, 2}), Kind::kFrobenius)), Values{kInf});
  EXPECT_ERROR(Cond(b, Kind::kNuclear), "Cond", "square matrices");
  // Of no elements: the largest is 0, as in PyTorch.
  for (const Tensor& x : {Tensor::Zeros({0, 5}), Tensor::Zeros({5, 0}), Tensor::Zeros({0, 0})}) {
    for (const double p : {1., 2., kInf}) EXPECT_EQ(Computed(MatrixNorm(x, p)), Values{0}) << p;
    EXPECT_EQ(Computed(MatrixNorm(x, Kind::kFrobenius)), Values{0});
    EXPECT_EQ(Computed(MatrixNorm(x, Kind::kNuclear)), Values{0});
    EXPECT_EQ(Computed(Cond(x, -2)), Values{0});
  }
  EXPECT_EQ(Computed(MatrixNorm(Tensor::Zeros({0, 5}), -1)), Values{0});
  EXPECT_ERROR(MatrixNorm(Tensor::Zeros({0, 5}), -2), "MatrixNorm", "f32[0, 5]");
}

// torch.linalg.pinv and matrix_rank
TEST(MatrixFunctions, PInverseByTolerances) {
  const Tensor x = Waves({4, 3}), s = Waves({3, 3});
  ExpectNear(Computed(PInverse(x, {.absolute = 0.8, .relative = 0})),
             {-0.14862787875928324, 0.5171289690358704, -0.37351321242771546, -0.13999558841444776,
              0.11821325242086317, 0.14190991833371938, -0.2614985913705873, 0.12212317208986241,
              0.3294568438544559, -0.30005158436442037, -0.02649709676366968, 0.3268054965331084},
             1e-13);
  ExpectNear(Computed(PInverse(x, {.absolute = 0.1, .relative = 0.5})),
             {-0.14862787875928324, 0.5171289690358704, -0.37351321242771546, -0.13999558841444776,
              0.11821325242086317, 0.14190991833371938, -0.2614985913705873, 0.12212317208986241,
              0.3294568438544559, -0.30005158436442037, -0.02649709676366968, 0.3268054965331084},
             1e-13);
  const auto rank = [](const Tensor& t, const RankOptions& o) {
    return MatrixRank(t, o).Item<int>();
  };
  EXPECT_EQ(rank(x, {.absolute = 0.1}), 2);
  EXPECT_EQ(rank(x, {.absolute = 1.5}), 1);
  EXPECT_EQ(rank(x, {.absolute = 1.5, .relative = 1}), 0);
  EXPECT_EQ(rank(x, {.relative = 0.7}), 1);
  EXPECT_EQ(rank(x, {.absolute = 5}), 0);
  EXPECT_EQ(rank(x, {}), 2);
  ExpectNear(Computed(PInverse(s, {.symmetric = true})),
             {-0.6945321392033474, 0.8270527965005237, -0.3282334002417049, 0.8270527965005238,
              -0.44837798617655095, -0.4440739287588818, -0.3282334002417049, -0.4440739287588818,
              -0.43981118672873265},
             1e-13);
  EXPECT_EQ(rank(s, {.absolute = 1, .symmetric = true}), 2);
  EXPECT_EQ(rank(s, {.symmetric = true}), 3);
  ExpectNear(Computed(EigenValues(s)),
             {-1.3526807359352409, -0.7093271276906108, 1.7657293759094346}, 1e-14);
  EXPECT_EQ(PInverse(Tensor::Zeros({2, 0}), {.absolute = 1}).shape(), Shape({0, 2}));
  EXPECT_ERROR(PInverse(x, {.symmetric = true}), "PInverse", "square matrices, not f64[4, 3]");
}

// torch.linalg.tensorsolve and tensorinv
TEST(MatrixFunctions, TensorsAsMatrices) {
  const Tensor e = Tensor::Eye(6, 6, kFloat64).Reshape({2, 3, 6}), a = Waves({2, 3, 6}) + e;
  ExpectNear(Computed(TensorSolve(a, Waves({2, 3}))),
             {-1.55234248322856, -0.7679290978033916, 3.9224326985927602, -0.6044192132132279,
              -1.1629532324758396, 2.5856092973109996},
             1e-12);
  const Tensor moved = Waves({2, 6, 3}) + e.MoveAxis(1, 2);
  ExpectNear(Computed(TensorSolve(moved, Waves({2, 3}), {1})),
             {-0.2720132958509355, 0.16920842014736592, 0.5308487721958635, 0.577416573540882,
              -0.14451735277466493, -0.798482509934359},
             1e-12);
  const Tensor square = a.Reshape({2, 3, 3, 2}), inverse = TensorInverse(square);
  EXPECT_EQ(inverse.shape(), Shape({3, 2, 2, 3}));
  ExpectNear(Computed(inverse),
             {0.6601921984294854,   -0.660529583144346,  -0.6705939807059503, -0.36526755082155693,
              0.11184991567713631,  0.5363626191297284,  1.2970533740887433,  1.5238410596596557,
              -0.49574189036971134, -1.2821696831774911, -1.4655730395329525, -0.9596944951856246,
              -0.9319811034364323,  0.14689208682289634, 2.156679633397242,   1.6224626747670405,
              1.3251761685152859,   0.40463860376197713, -0.3832257315992291, -0.6678719299281398,
              -0.6384075238250732,  0.6913099161256537,  0.16620912593809892, 0.5629375867326214,
              1.3077422273018904,   0.507970795011041,   -0.5307072394361175, -1.319785366647109,
              -0.4881478137087524,  -0.9566110910321517, -0.899043825318649,  0.16979557156973857,
              1.158777458019882,    1.6027681995660372,  1.2929520129123357,  1.3750402916534652},
             1e-12);
  EXPECT_EQ(TensorSolve(square, Waves({2, 3})).shape(), Shape({3, 2}));
  EXPECT_ERROR(TensorSolve(a, Waves({3, 2})), "TensorSolve", "f64[3, 2]");
  EXPECT_ERROR(TensorInverse(a, 1), "TensorInverse", "[2] and [3, 6]");
}

// torch.linalg.householder_product, and its derivatives
TEST(MatrixFunctions, HouseholderProduct) {
  const Tensor x = Waves({4, 3}), tau = Tensor::From<double>({0.7, 1.2});
  const Tensor q = HouseholderProduct(x, tau);
  ExpectNear(Computed(q),
             {0.30000000000000004, 0.8494051690093378, -0.8180408950345124, -0.6042465566542117,
              0.5332144979688302, 0.4728025722535796, 0.6101030406895114, 0.4386221688777914,
              0.5547288616927555, -0.011769730339044798, -0.7741021044799316, 0.7607953822432992},
             1e-14);
  const auto grads = Grad((q * Waves({4, 3}).Detach()).Sum(), {x, tau});
  ExpectNear(Computed(grads[0]),
             {0, 0, 0, -0.8117826047749536, 0, 0, -1.0556362728203161, 0.7290206998383779, 0,
              0.0542327387381063, 0.3847055579563506, 0},
             1e-14);
  ExpectNear(Computed(grads[1]), {-0.78016860106438, -0.13500324619998227}, 1e-14);
  EXPECT_EQ(Computed(HouseholderProduct(x, Tensor::Zeros({0}))), Computed(Tensor::Eye(4, 3)));
  EXPECT_ERROR(HouseholderProduct(Waves({3, 4}), tau), "HouseholderProduct", "K <= N <= M");
}

// torch.linalg.qr(mode='complete'); of an Svd what does not depend on signs.
TEST(MatrixFunctions, Complete) {
  const Tensor x = Waves({4, 2}) + Tensor::Eye(4, 2, kFloat64) * 0.5;
  const auto [q, r] = QrComplete(x);
  ExpectNear(Computed(q),
             {-0.345611541654089, -0.09019703700268102, -0.6868963908270819, 0.632922195107858,
              -0.681165600807835, -0.29852658439604246, 0.6176264831756679, 0.25579841665849,
              -0.23155154202246764, 0.949821114322451, 0.13799758229751302, 0.15868333704052345,
              0.6024532927444269, -0.02421205716223799, 0.3573059512922035, 0.71329956085823},
             1e-14);
  ExpectNear(Computed(r),
             {-1.44671094491524, -1.6618778094610427, 0, -0.7744548800096703, 0, 0, 0, 0}, 1e-14);
  for (const Tensor& t :
       {x, x.T(), Waves({2, 3, 3}), Waves({2, 5, 1}), Tensor::Zeros({3, 2}, kFloat64),
        Tensor::Zeros({3, 0}, kFloat64), Tensor::Zeros({0, 2}, kFloat64)}) {
    SCOPED_TRACE(t.shape().ToString());
    const int64_t m = t.size(-2), n = t.size(-1);
    const auto orthonormal = [](const Tensor& o) {
      ExpectNear(Computed(o.Transpose().MatMul(o)),
                 Computed(Tensor::Eye(o.size(-1)).Expand(o.shape())), 1e-13);
    };
    const auto [q, r] = QrComplete(t);
    EXPECT_EQ(q.shape()[t.rank() - 1], Extent(m));
    orthonormal(q);
    ExpectNear(Computed(q.MatMul(r)), Computed(t), 1e-13);
    const auto [u, s, vt] = SvdComplete(t);
    EXPECT_EQ(u.shape()[t.rank() - 1], Extent(m));
    EXPECT_EQ(vt.shape()[t.rank() - 2], Extent(n));
    orthonormal(u);
    orthonormal(vt);
    const int64_t k = std::min(m, n);
    const Tensor again =
        (u.SliceAxis(-1, {0, k}) * s.Unsqueeze(-2)).MatMul(vt.SliceAxis(-2, {0, k}));
    ExpectNear(Computed(again), Computed(t), 1e-13);
  }
  EXPECT_ERROR(QrComplete(Waves({3})), "QrComplete", "matrices [..., M, N], not f64[3]");
}

}  // namespace
}  // namespace tessera
