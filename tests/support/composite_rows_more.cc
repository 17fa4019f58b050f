// More rows: statistics, whole numbers, parts of tensors, small systems, and losses with margins.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

Out Both(const ValuesAndIndices& v) { return {v.values, v.indices}; }

void AddStatistics(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> x = {{{4, 6}}};
  rows.push_back({"Extremes", x, [](In x) -> Out {
                    const auto most = x[0].MaxWithIndices(1), least = x[0].MinWithIndices(0, true);
                    return {most.values, most.indices, least.values, least.indices, x[0].Ptp(1)};
                  }});
  rows.push_back({"Averages", {{{4, 6}}, {{6}, 0.25, 2}, {{4, 6}}}, [](In x) -> Out {
                    return {x[0].Average(x[1], 1), x[0].Average(x[1]), x[0].Dist(x[2], 3)};
                  }});
  rows.push_back({"NanSpread", x, [](In x) -> Out {
                    return {x[0].NanVar(1), x[0].NanStd(0), x[0].NanProd(1)};
                  }});
  rows.push_back({"NanMedian", x, [](In x) -> Out { return Both(x[0].NanMedian(1)); }});
  rows.push_back({"Areas", x, [](In x) -> Out {
                    return {x[0].Trapezoid(0.5, 0), x[0].CumTrapezoid(2), x[0].Gradient(0.5, 1)};
                  }});
  rows.push_back({"Intervals",
                  {{{5, 6}}, {{4}}},
                  [](In x) -> Out {
                    const Tensor bounds = x[1].Sort().values;
                    return {x[0].Histogram(5, -1.5, 1.5), x[0].Bucketize(bounds),
                            x[0].Bucketize(bounds, true), x[0].IsIn(x[1])};
                  },
                  false});
  rows.push_back({"Interp", {{{3, 5}}, {{6}}, {{6}}}, [](In x) -> Out {
                    return {x[0].Interp(x[1].Sort().values, x[2])};
                  }});
  rows.push_back({"Covariances", x, [](In x) -> Out {
                    return {x[0].Cov(), x[0].CorrCoef(), x[0].Select(0, 1).Cov(0)};
                  }});
}

void AddNumbers(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> whole = {{{3, 5}, -40, 40, kInt32}, {{3, 5}, -9, 9, kInt32}};
  rows.push_back({"Divisors", whole,
                  [](In x) -> Out {
                    return {x[0].Gcd(x[1]), x[0].Lcm(x[1]), x[0].PopCount()};
                  },
                  false});
  rows.push_back({"LdExp", {{{3, 5}}, {{5}, -9, 9, kInt32}, {{5}}}, [](In x) -> Out {
                    return {x[0].LdExp(x[1]), x[0].LdExp(x[2])};
                  }});
  rows.push_back({"FloatBits",
                  {{{3, 5}}, {{3, 5}}},
                  [](In x) -> Out {
                    const auto [fraction, power] = x[0].FrExp();
                    return {fraction, power, x[0].NextAfter(x[1])};
                  },
                  false});
  rows.push_back({"Products", {{{3, 5}}, {{3, 5}, 0.25, 2}, {{5}, 0.25, 2}}, [](In x) -> Out {
                    return {x[0].AddCMul(x[1], x[2], 0.5), x[0].AddCDiv(x[1], x[2], 2),
                            x[1].XLog1pY(x[2]), x[0].LogAddExp2(x[1])};
                  }});
  rows.push_back({"Shaped", {{{3, 5}}, {{3, 5}}}, [](In x) -> Out {
                    return {x[0].FMax(x[1]), x[0].FMin(x[1]),         x[0].Cbrt(),
                            x[0].Deg2Rad(),  x[0].Rad2Deg(),          x[0].Softplus(2, 1),
                            x[0].Softmin(0), x[0].Threshold(0.1, 20), x[0].RoundTo(1)};
                  }});
}

void AddParts(std::vector<CompositeRow>& rows) {
  rows.push_back({"Parts", {{{4, 6}}, {{4}}, {{2, 6}}}, [](In x) -> Out {
                    const std::vector<Tensor> one = x[0].Unbind(1);
                    return {x[0].Narrow(1, 2, 3),
                            x[1].Unsqueeze(1).ExpandAs(x[0]),
                            x[0].FlipLr(),
                            x[0].FlipUd(),
                            one[0],
                            one[5],
                            x[0].ChannelShuffle(3),
                            x[0].SelectScatter(x[1], 1, -2),
                            x[0].FillDiagonal(3),
                            x[0].SliceScatter(x[2], 0, Slice{0, 4, 2}),
                            x[0].Roll({1, 2}, {0, 1}),
                            x[0].Roll(-5)};
                  }});
  rows.push_back({"Masks",
                  {{{4, 6}}, {{4, 6}}, {{20}}},
                  [](In x) -> Out {
                    const Tensor mask = x[1] > 0;
                    return {x[0].MaskedSelect(mask, 7, 2),
                            x[0].MaskedSelect(mask, 24),
                            x[0].MaskedScatter(mask, x[2]),
                            mask.NonZero(8),
                            mask.NonZero(24),
                            x[0].MaskedScatter(mask.SliceAxis(0, {0, 1}), x[2])};
                  },
                  true,
                  /*flat=*/true});
  rows.push_back({"BitsOfOthers",
                  {{{3, 4}}},
                  [](In x) -> Out {
                    return {x[0].Bitcast(kInt16), x[0].Bitcast(kUInt8), x[0].Bitcast(kInt64)};
                  },
                  false});
  rows.push_back({"Unravelled",
                  {{{7}, 0, 23, kInt32}},
                  [](In x) -> Out {
                    return x[0].UnravelIndex({2, 3, 4});
                  },
                  false});
  rows.push_back({"Joined", {{{3}}, {{3}}, {{2, 2}}}, [](In x) -> Out {
                    return {DStack({x[0], x[1]}), ColumnStack({x[0], x[1]}),
                            BlockDiag({x[2], x[0], x[2]}), CartesianProd({x[0], x[1]})};
                  }});
  rows.push_back({"PadSymmetric", {{{4, 5}}}, [](In x) -> Out {
                    return {x[0].PadBy(PadMode::kSymmetric, {{2, 1}, {0, 13}}),
                            x[0].PadBy(PadMode::kSymmetric, {{9, 0}, {1, -2}})};
                  }});
  rows.push_back(
      {"Convolve", {{{9}}, {{4}}}, [](In x) -> Out {
         return {x[0].Convolve(x[1]), x[0].Convolve(x[1], "same"), x[1].Convolve(x[0], "valid")};
       }});
}

void AddSystems(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> in = {{{2, 3, 3}}, {{2, 3, 2}}};
  rows.push_back(
      {"Solve", in, [](In x) -> Out {
         return {x[0].Solve(x[1]), x[0].Inverse(), x[0].Solve(x[1].Select(2, 0).Select(0, 1))};
       }});
  rows.push_back({"Triangular", in, [](In x) -> Out {
                    return {x[0].SolveTriangular(x[1]), x[0].SolveTriangular(x[1], true)};
                  }});
  rows.push_back({"SlogDet", in, [](In x) -> Out {
                    const auto [sign, log] = x[0].SlogDet();
                    return {sign, log, x[0].Det(), x[1].AddMatMul(x[0], x[1], 2, 0.5)};
                  }});
  rows.push_back({"Cholesky", {{{2, 3, 3}}}, [](In x) -> Out {
                    return {(x[0].MatMul(x[0].Transpose()) + Tensor::Eye(3) * 2).Cholesky()};
                  }});
  rows.push_back({"MatrixPower", {{{3, 3}}}, [](In x) -> Out {
                    const Tensor m = x[0] + Tensor::Eye(3) * 4;
                    return {m.MatrixPower(3), m.MatrixPower(-2), x[0].MatrixPower(0)};
                  }});
}

void AddMargins(std::vector<CompositeRow>& rows) {
  const LossReduction none = LossReduction::kNone;
  rows.push_back({"MarginLosses", {{{3, 5}}, {{3, 5}}, {{3, 5}}}, [=](In x) -> Out {
                    const Tensor sign = Where(x[2] > 0, 1.0, -1.0).Cast(x[0].dtype());
                    return {x[0].SoftMarginLoss(sign, none),
                            x[0].HingeEmbeddingLoss(sign, 1.25, none),
                            x[0].MarginRankingLoss(x[1], sign, 0.3, none),
                            x[0].CosineEmbeddingLoss(x[1], sign.Select(1, 0), 0.1, none),
                            x[0].TripletMarginLoss(x[1], x[2], 1.5, 2, none),
                            x[0].TripletMarginLoss(x[1], x[2], 4, 2, none, true)};
                  }});
  rows.push_back({"GaussianNll", {{{3, 5}}, {{3, 5}}, {{3, 5}, 0.25, 2}}, [](In x) -> Out {
                    return {x[0].GaussianNllLoss(x[1], x[2]),
                            x[0].PoissonNllLoss(x[2], true, LossReduction::kBatchMean, true)};
                  }});
  rows.push_back(
      {"MultiMargin", {{{4, 3}}, {{4}, 0, 3, kInt32}}, [=](In x) -> Out {
         return {x[0].MultiMarginLoss(x[1], 1, 0.93), x[0].MultiMarginLoss(x[1], 2, 0.7, none)};
       }});
}

void AddMoreDrawn(std::vector<CompositeRow>& rows) {
  rows.push_back({"MoreDrawn",
                  {{{4, 6}, -0.9, 0.9}},
                  [](In x) -> Out {
                    Tensor::ManualSeed(5);
                    return {x[0].DropoutChannels(0.4),
                            x[0].RRelu(),
                            x[0].GumbelSoftmax(0.7),
                            x[0].GumbelSoftmax(0.7, true),
                            Tensor::Normal(1, 2, {3, 4}) + x[0].Sum(),
                            Tensor::Exponential(2, {3, 4}) + x[0].Sum(),
                            Tensor::KaimingNormal({3, 4}) * x[0].Sum()};
                  },
                  false});
}

}  // namespace

void AddMoreRows(std::vector<CompositeRow>& rows) {
  AddStatistics(rows);
  AddNumbers(rows);
  AddParts(rows);
  AddSystems(rows);
  AddMargins(rows);
  AddMoreDrawn(rows);
}

}  // namespace tessera
