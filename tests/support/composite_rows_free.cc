// Rows of functions that are no members of Tensor: special ones, those of distributions, of samples
// and of matrices.
#include "graph/distributions.h"
#include "graph/index_functions.h"
#include "graph/matrix_functions.h"
#include "graph/network_functions.h"
#include "graph/signals.h"
#include "graph/special_functions.h"
#include "graph/statistics.h"
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

void AddSpecial(std::vector<CompositeRow>& rows) {
  rows.push_back({"BetaInc",
                  {{{3, 4}, 0.2, 3}, {{4}, 0.2, 3}, {{3, 4}, 0.1, 0.9}},
                  [](In x) -> Out { return {BetaInc(x[0], x[1], x[2])}; }});
  rows.push_back({"Entropies", {{{3, 5}, 0.2, 3}, {{5}, 0.2, 3}}, [](In x) -> Out {
                    return {RelEntr(x[0], x[1]), KlDiv(x[0], x[1]), Gamma(x[0]), Log1mExp(x[1])};
                  }});
}

void AddDensities(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> inputs = {{{2, 4}, 0.5, 2}, {{4}, 0.5, 2}, {{2, 4}, 0.1, 0.9}};
  rows.push_back(
      {"Densities", inputs, [](In v) -> Out {
         const Tensor &a = v[0], &b = v[1], &x = v[2];
         return {
             LogProb(NormalDistribution{a, b}, x),      LogProb(LogNormalDistribution{a, b}, x),
             LogProb(LaplaceDistribution{a + 1, b}, x), LogProb(CauchyDistribution{a, b}, x),
             LogProb(GumbelDistribution{a, b}, x),      LogProb(LogisticDistribution{a, b}, x),
             LogProb(StudentTDistribution{a, b, a}, x), LogProb(UniformDistribution{-a, b + 1}, x),
             LogProb(WeibullDistribution{a, b}, x),     LogProb(VonMisesDistribution{a, b}, x)};
       }});
  rows.push_back({"DensitiesOfShapes", inputs, [](In v) -> Out {
                    const Tensor &a = v[0], &b = v[1], &x = v[2];
                    return {LogProb(GammaDistribution{a, b}, x),
                            LogProb(InverseGammaDistribution{a, b}, x),
                            LogProb(BetaDistribution{a, b}, x),
                            LogProb(ParetoDistribution{a, b * 0.04}, x),
                            LogProb(HalfNormalDistribution{a}, x),
                            LogProb(ExponentialDistribution{b}, x),
                            LogProb(DirichletDistribution{a}, x / x.Sum(-1, true))};
                  }});
  rows.push_back({"DensitiesOfCounts",
                  {{{2, 4}, 0.5, 2}, {{4}, 0.5, 2}, {{2, 4}, 0, 4, kInt32}},
                  [](In v) -> Out {
                    const Tensor &a = v[0], &b = v[1], &x = v[2];
                    return {LogProb(BernoulliDistribution{a - b}, x % 2),
                            LogProb(BinomialDistribution{x + 2, a - b}, x),
                            LogProb(GeometricDistribution{a}, x),
                            LogProb(NegativeBinomialDistribution{a, b}, x),
                            LogProb(PoissonDistribution{b}, x),
                            LogProb(CategoricalDistribution{a}, x.Select(-1, 0)),
                            LogProb(MultinomialDistribution{a}, x)};
                  }});
}

void AddMoments(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> inputs = {{{2, 3}, 2.5, 4}, {{3}, 0.5, 2}};
  rows.push_back(
      {"Moments", inputs, [](In v) -> Out {
         const Tensor &a = v[0], &b = v[1];
         Out out;
         for (const Distribution& d :
              {Distribution(LogNormalDistribution{a * 0.1, b}),
               Distribution(StudentTDistribution{a, b, b}),
               Distribution(InverseGammaDistribution{a, b}), Distribution(BetaDistribution{a, b}),
               Distribution(WeibullDistribution{a, b}), Distribution(VonMisesDistribution{a, b}),
               Distribution(GeometricDistribution{b}), Distribution(DirichletDistribution{a})}) {
           out.insert(out.end(), {Mean(d), Variance(d), Entropy(d)});
         }
         return out;
       }});
  rows.push_back(
      {"Shares", {{{2, 3}, 0.5, 2}, {{3}, 0.5, 2}, {{2, 3}, 0.1, 0.9}}, [](In v) -> Out {
         const Tensor &a = v[0], &b = v[1], &x = v[2];
         return {Cdf(NormalDistribution{a, b}, x),        Cdf(LaplaceDistribution{b, a}, x),
                 Cdf(CauchyDistribution{a, b}, x),        Cdf(WeibullDistribution{a, b}, x),
                 Cdf(ParetoDistribution{a, b * 0.04}, x), Cdf(ExponentialDistribution{a}, x)};
       }});
  rows.push_back({"Divergences", {{{2, 3}, 0.5, 2}, {{3}, 0.5, 2}}, [](In v) -> Out {
                    const Tensor &a = v[0], &b = v[1], c = a + 0.3, d = b * 1.2;
                    return {KlDivergence(NormalDistribution{a, b}, NormalDistribution{c, d}),
                            KlDivergence(LaplaceDistribution{a, b}, LaplaceDistribution{c, d}),
                            KlDivergence(GumbelDistribution{a, b}, GumbelDistribution{c, d}),
                            KlDivergence(GammaDistribution{a, b}, GammaDistribution{c, d}),
                            KlDivergence(BetaDistribution{a, b}, BetaDistribution{c, d}),
                            KlDivergence(WeibullDistribution{a, b}, WeibullDistribution{c, d}),
                            KlDivergence(PoissonDistribution{a}, PoissonDistribution{b}),
                            KlDivergence(CategoricalDistribution{a}, CategoricalDistribution{b}),
                            KlDivergence(DirichletDistribution{a}, DirichletDistribution{b})};
                  }});
  // Matrices with what is above 0 on their diagonals.
  rows.push_back({"NormalVectors", {{{2, 3}}, {{3, 3}}, {{2, 1, 3}}}, [](In v) -> Out {
                    const Tensor l = v[1] * 0.3 + Tensor::Eye(3) * 2;
                    const MultivariateNormalDistribution p{v[0], l}, q{v[0] * 0.5, l * 1.5};
                    return {LogProb(p, v[2]), Entropy(p), Variance(p), KlDivergence(p, q)};
                  }});
  rows.push_back({"DrawnOfDistributions",
                  {{{2, 3}, 0.5, 2}, {{3}, 0.5, 2}},
                  [](In v) -> Out {
                    return {Draw(NormalDistribution{v[0], v[1]}, {4}) * 0,
                            Draw(GammaDistribution{v[0], v[1]}) * 0,
                            Draw(CategoricalDistribution{v[0]}) * 0};
                  },
                  false});
}

Out PartsOf(const UniqueElements& u) { return {u.values, u.indices, u.counts, u.inverse}; }

void AddSamples(std::vector<CompositeRow>& rows) {
  rows.push_back({"SeveralQuantiles", {{{4, 6}}}, [](In x) -> Out {
                    return {Quantiles(x[0], {0.25, 0.6}, 1), Quantiles(x[0], {0.1, 0.9})};
                  }});
  rows.push_back({"Boxes",
                  {{{9, 2}}, {{9}}},
                  [](In x) -> Out {
                    const std::vector<HistogramAxis> axes = {{3, -1, 2}, {2, -1, 1}};
                    return {HistogramDd(x[0], axes), HistogramDd(x[0], axes, x[1])};
                  },
                  false});
  rows.push_back({"UniqueRows",
                  {{{6, 3}, 0, 2, kInt32}},
                  [](In x) { return PartsOf(UniqueRows(x[0], 5)); },
                  false});
  rows.push_back({"Runs",
                  {{{9}, 0, 2, kInt32}, {{3, 5}, 0, 3, kInt32}},
                  [](In x) -> Out {
                    Out out = PartsOf(UniqueConsecutive(x[0], 7));
                    out.push_back(LexSort(x[1]));
                    out.push_back(RavelIndex({x[1], x[1].Flip(1)}, {2, 3}));
                    return out;
                  },
                  false});
  rows.push_back({"HistogramOfEdges",
                  {{{9}}, {{9}}, {{4}}},
                  [](In x) -> Out {
                    const Tensor edges = x[2].Sort().values;
                    return {Histogram(x[0], edges, {.weights = x[1]}),
                            Histogram(x[0], edges, {.density = true}), HistogramEdges(x[0], 3)};
                  },
                  false});
  rows.push_back({"WeightedCovariances",
                  {{{3, 6}}, {{6}, 0, 4, kInt32}, {{6}, 0.2, 2}, {{3, 2}}},
                  [](In x) -> Out {
                    return {Cov(x[0], {.frequencies = x[1]}),
                            Cov(x[0], {.correction = 0, .frequencies = x[1], .weights = x[2]}),
                            Diff(x[0], x[3], Tensor::Scalar(1.5), 2)};
                  }});
  rows.push_back({"Curves", {{{3, 6}}, {{6}}}, [](In x) -> Out {
                    const Tensor at = x[1].Sort().values;
                    return {Trapezoid(x[0], at), CumTrapezoid(x[0], at), Gradient(x[0], at),
                            Unwrap(x[0], 1.7), PDist(x[0])};
                  }});
  rows.push_back({"RunningOfNumbers", {{{3, 6}, 0.5, 1.5}, {{7}}, {{3}}}, [](In x) -> Out {
                    return {NanCumSum(x[0], 1), NanCumProd(x[0], 0), Correlate(x[1], x[2], "full")};
                  }});
  rows.push_back(
      {"Polynomials", {{{4}}, {{3, 5}}, {{4}}}, [](In x) -> Out {
         return {PolyVal(x[0], x[1]), PolyDer(x[0]), PolyInt(x[0]), PolyFit(x[0], x[2], 1)};
       }});
}

void AddMatrices(std::vector<CompositeRow>& rows) {
  rows.push_back(
      {"Factors", {{{2, 3, 3}}, {{3, 2}}}, [](In x) -> Out {
         const LuFactors f = Lu(x[0]);
         const Tensor l = x[0].Tril() * 0.3 + Tensor::Eye(3) * 2;
         return {
             f.p, f.l, f.u, CholeskySolve(l, x[1]), CholeskyInverse(l), LogDet(l), MatrixExp(x[0])};
       }});
  rows.push_back({"FactorsOfOthers", {{{2, 4, 3}, 0.1, 3}, {{2, 3, 4}, 0.1, 3}}, [](In x) -> Out {
                    const LuFactors tall = Lu(x[0]), wide = Lu(x[1]);
                    return {tall.p, tall.l, tall.u, wide.p, wide.l, wide.u};
                  }});
  rows.push_back({"CompleteFactors", {{{2, 4, 2}}, {{2, 3}}}, [](In x) -> Out {
                    const auto [q, r] = QrComplete(x[0]);
                    const Tensor rest = q.SliceAxis(-1, {2, {}});
                    const SingularValues wide = SvdComplete(x[1]);
                    const Tensor none = wide.vt.SliceAxis(0, {2, {}});
                    return {q.SliceAxis(-1, {0, 2}), r, rest.MatMul(rest.Transpose()), wide.s,
                            none.Transpose().MatMul(none)};
                  }});
  rows.push_back({"Triangles", {{{2, 3, 3}}, {{3, 3}}}, [](In x) -> Out {
                    const Tensor a = x[0] * 0.3 + Tensor::Eye(3) * 2;
                    return {SolveTriangular(a, x[1], {.upper = true, .left = false}),
                            SolveTriangular(a, x[1], {.transposed = true, .unit = true}),
                            LuSolve(Lu(a), x[1])};
                  }});
  rows.push_back({"TensorsAsMatrices", {{{2, 2, 4}}, {{2, 2}}, {{4, 3}}, {{2}}}, [](In x) -> Out {
                    const Tensor a = x[0] * 0.2 + Tensor::Eye(4).Reshape({2, 2, 4}) * 2;
                    return {TensorSolve(a, x[1]), TensorInverse(a), HouseholderProduct(x[2], x[3])};
                  }});
  rows.push_back({"Tolerances", {{{2, 4, 3}}, {{2, 3, 3}}}, [](In x) -> Out {
                    const RankOptions both{.absolute = 0.01, .relative = 0.01, .symmetric = true};
                    return {PInverse(x[0], {.absolute = 0.01}), PInverse(x[1], both),
                            MatrixRank(x[0], {.absolute = 0.5}), EigenValues(x[1])};
                  }});
  rows.push_back(
      {"Chain", {{{2, 5}}, {{5, 3}}, {{3, 4}}}, [](In x) -> Out { return {MultiDot(x)}; }});
  rows.push_back({"MatrixNorms", {{{2, 3, 3}}}, [](In x) -> Out {
                    return {SvdVals(x[0]),
                            NuclearNorm(x[0]),
                            MatrixNorm(x[0], 1),
                            Cond(x[0]),
                            Cond(x[0], 1),
                            MatrixNorm(x[0], MatrixNormKind::kFrobenius),
                            Cond(x[0], MatrixNormKind::kNuclear)};
                  }});
}

void AddPositions(std::vector<CompositeRow>& rows) {
  rows.push_back({"FlatPositions",
                  {{{3, 4}}, {{2, 3}, -14, 14, kInt32}, {{2, 3}}, {{3, 1}, -4, 4, kInt32}},
                  [](In x) -> Out {
                    return {TakeFlat(x[0], x[1]), PutFlat(x[0], x[1], x[2]),
                            PutFlat(x[0], x[1], x[2], true), TakeAlong(x[0], x[3], 1),
                            PutAlong(x[0], x[3], x[2].SliceAxis(0, {0, 1}).T(), 1)};
                  }});
  rows.push_back(
      {"IndexReduce", {{{3, 4}, 0.5, 2}, {{5}, 0, 3, kInt32}, {{5, 4}, 0.5, 2}}, [](In x) -> Out {
         return {IndexReduce(x[0], 0, x[1], x[2], ScatterMode::kMul),
                 IndexReduce(x[0], 0, x[1], x[2], ScatterMode::kMean, false),
                 IndexReduce(x[0], 0, x[1], x[2], ScatterMode::kMax)};
       }});
  rows.push_back({"Segments", {{{5, 3}}, {{5}, 0, 3, kInt32}, {{3}}}, [](In x) -> Out {
                    return {RepeatInterleave(x[0], x[1], 12, 0), SegmentReduce(x[0], x[1], 3),
                            SegmentReduce(x[0], x[1], 3, ScatterMode::kMax).Clip(-9.0, 9.0),
                            DiagonalScatter(x[0], x[2], -1)};
                  }});
}

void AddSignals(std::vector<CompositeRow>& rows) {
  const auto options = [] {
    return StftOptions{.size = 6, .hop = 2, .window = Tensor::HannWindow(6)};
  };
  rows.push_back({"Spectra", {{{3, 14}}}, [=](In x) -> Out {
                    const Tensor z = Stft(x[0], options());
                    return {z, Istft(z * 2, options())};
                  }});
  rows.push_back({"Mels", {{{2, 14}}}, [=](In x) -> Out {
                    const Tensor mels = MelSpectrogram(x[0], options(), {.mels = 3, .rate = 100});
                    return {Spectrogram(x[0], options(), 1), AmplitudeToDb(mels + 1),
                            x[0].SliceAxis(1, {0, 5}).MatMul(MelFilters(5, {.mels = 2}))};
                  }});
  rows.push_back({"CosineTransforms", {{{3, 5}}}, [](In x) -> Out {
                    return {Dct(x[0]), Idct(x[0], 0, "ortho"), x[0] * KaiserWindow(5)};
                  }});
  rows.push_back({"Resampled", {{{3, 11}}, {{3, 5}, 0, 256, kInt32}}, [](In x) -> Out {
                    return {Resample(x[0], 3, 2), MuLawEncode(x[0] * 0.5), MuLawDecode(x[1])};
                  }});
}

void AddLayers(std::vector<CompositeRow>& rows) {
  rows.push_back({"Bags", {{{5, 3}}, {{2, 4}, 0, 5, kInt32}, {{2, 4}}}, [](In x) -> Out {
                    return {EmbeddingBag(x[0], x[1], BagMode::kSum, 1, x[2]),
                            EmbeddingBag(x[0], x[1]), EmbeddingBag(x[0], x[1], BagMode::kMax)};
                  }});
  rows.push_back({"BagsOfOffsets",
                  {{{5, 3}}, {{8}, 0, 5, kInt32}, {{8}}, {{3}, 0, 2, kInt32}},
                  [](In x) -> Out {
                    const Tensor from = x[3].CumSum(0) - x[3].SliceAxis(0, {0, 1});
                    return {EmbeddingBag(x[0], x[1], from, BagMode::kSum, 1, x[2]),
                            EmbeddingBag(x[0], x[1], from, BagMode::kMean),
                            EmbeddingBag(x[0], x[1], from, BagMode::kMax)};
                  }});
  rows.push_back({"PoolsWithPositions", {{{1, 2, 5, 4}}}, [](In x) -> Out {
                    const auto even = AdaptiveMaxPoolWithIndices(x[0], {3, 2});
                    const Tensor u = Tensor::Full({1, 2, 2}, 0.3);
                    const auto uneven = FractionalMaxPool(x[0], {2, 2}, {3, 3}, u);
                    return {even.values, even.indices, uneven.values, uneven.indices};
                  }});
  // What rows of Embedding have as derivatives is no difference of them.
  rows.push_back({"EmbeddingOptions",
                  {{{5, 3}}, {{2, 4}, 0, 5, kInt32}},
                  [](In x) -> Out {
                    return {Embedding(x[0], x[1], {.padding = 1, .most = 1.5}),
                            Embedding(x[0], x[1], {.by_frequency = true})};
                  },
                  false});
  rows.push_back({"Bilinear", {{{2, 3}}, {{2, 4}}, {{2, 3, 4}}, {{2}}}, [](In x) -> Out {
                    return {Bilinear(x[0], x[1], x[2], x[3])};
                  }});
  rows.push_back({"SparseLayers", {{{3, 5}}, {{3, 5}, 0.1, 0.9}}, [](In x) -> Out {
                    return {Sparsemax(x[0]), Squareplus(x[0]), Renorm(x[0], 2, 0, 2),
                            AlphaDropout(x[0], 0), SigmoidFocalLoss(x[0], x[1])};
                  }});
}

}  // namespace

void AddFreeRows(std::vector<CompositeRow>& rows) {
  AddLayers(rows);
  AddPositions(rows);
  AddSignals(rows);
  AddSamples(rows);
  AddMatrices(rows);
  AddSpecial(rows);
  AddDensities(rows);
  AddMoments(rows);
}

}  // namespace tessera
