// Rows of what has a name in statistics: special functions, distributions, quantiles, what elements
// there are, and losses of labels.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

void AddSpecial(std::vector<CompositeRow>& rows) {
  rows.push_back({"NormalShares", {{{3, 5}, -3, 3}}, [](In x) -> Out {
                    return {x[0].Erfcx(), x[0].Ndtr(), x[0].LogNdtr(), (x[0] / 8 + 0.5).Ndtri()};
                  }});
  rows.push_back(
      {"Bessel", {{{3, 5}, -14, 14}}, [](In x) -> Out {
         return {x[0].BesselI0e(), x[0].BesselI1e(), (x[0] / 4).BesselI0(), (x[0] / 4).BesselI1()};
       }});
  rows.push_back({"GammaFunctions", {{{7}, 0.25, 3}, {{7}, 0.25, 3}}, [](In x) -> Out {
                    return {x[0].BetaLn(x[1]), (x[0] * 20).BetaLn(x[1]), (x[0] + 1.5).Zeta(x[1]),
                            x[0].Polygamma(1), (x[0] + 2).Polygamma(2),  (x[0] + 1).MvLgamma(3),
                            x[0].Entr()};
                  }});
  rows.push_back({"IncompleteGamma", {{{7}, 0.25, 3}, {{7}, 0.25, 5}}, [](In x) -> Out {
                    return {x[0].GammaInc(x[1]), (x[0] * 20).GammaIncC(x[1] * 20)};
                  }});
}

void AddInOrder(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> x = {{{3, 7}}};
  const auto with_nan = [](const Tensor& t) { return Where(t > 1, 0.0 / 0.0, t); };
  rows.push_back({"Quantiles", x, [](In x) -> Out {
                    return {x[0].Quantile(0.3, 1, false, QuantileMethod::kLower),
                            x[0].Quantile(0.3, 0, true, QuantileMethod::kHigher),
                            x[0].Quantile(0.4, 1, false, QuantileMethod::kNearest),
                            x[0].Quantile(0.6, {}, false, QuantileMethod::kMidpoint),
                            x[0].NanQuantile(0.3, 1)};
                  }});
  rows.push_back({"QuantilesWithoutNans", x,
                  [=](In x) -> Out {
                    const Tensor t = with_nan(x[0]);
                    return {t.NanQuantile(0.3, 1),
                            t.NanQuantile(0.5, 0, true),
                            t.NanQuantile(0.7, {}, false, QuantileMethod::kMidpoint),
                            t.NanArgMax(1),
                            t.NanArgMin(),
                            t.NanArgMin(0, true)};
                  },
                  false});
  rows.push_back({"Mode", {{{3, 8}}}, [](In x) -> Out {
                    const auto both = x[0].Mode(1), of_round = (x[0].Round() + x[0] * 0).Mode(0);
                    return {both.values, both.indices, of_round.values, of_round.indices};
                  }});
  rows.push_back({"Unique", {{{4, 5}, 0, 9, kInt32}, {{4, 5}}}, [](In x) -> Out {
                    const UniqueElements few = x[0].Unique(4), many = x[0].Unique(12, -1),
                                         of_floats = x[1].Unique(17);
                    return {few.values,       few.indices,      few.counts,        few.inverse,
                            many.values,      many.indices,     many.counts,       many.inverse,
                            of_floats.values, of_floats.counts, x[0].CountUnique()};
                  }});
}

void AddDistributions(std::vector<CompositeRow>& rows) {
  rows.push_back({"Distributions",
                  {{{4, 6}}},
                  [](In x) -> Out {
                    Tensor::ManualSeed(11);
                    const Tensor of = x[0].Cast(kFloat32);
                    return {of + Tensor::LogNormal(0, 0.5, {4, 6}),
                            of + Tensor::Laplace(1, 2, {4, 6}),
                            of + Tensor::Logistic(1, 2, {4, 6}),
                            of + Tensor::Gumbel(1, 2, {4, 6}),
                            of + Tensor::Cauchy(1, 2, {4, 6}).Clip(-9, 9),
                            of + Tensor::TruncatedNormal(1, 2, 0, 3, {4, 6}),
                            of + Tensor::Geometric(0.3, {4, 6})};
                  },
                  false});
  rows.push_back({"DrawnOfParameters",
                  {{{4, 6}, 0.3, 4}, {{6}, 0.1, 0.9}},
                  [](In x) -> Out {
                    Tensor::ManualSeed(12);
                    return {x[0].RandGamma(),
                            x[0].RandBeta(x[1]),
                            x[0].RandDirichlet(),
                            x[0].Categorical(0),
                            x[0].RandPoisson(),
                            (x[0] * 5).RandPoisson(),
                            (x[0] * 40).Floor().RandBinomial(x[1])};
                  },
                  false});
  rows.push_back({"Chosen",
                  {{{5, 3}}, {{5}, 0.5, 2}},
                  [](In x) -> Out {
                    Tensor::ManualSeed(14);
                    return {x[0].Choice(4), x[0].Choice(3, false), x[0].Choice(4, true, x[1]),
                            x[0].Choice(2, false, {}, 1)};
                  },
                  true,
                  /*flat=*/true});
}

void AddLabels(std::vector<CompositeRow>& rows) {
  const LossReduction none = LossReduction::kNone;
  rows.push_back(
      {"MultiLabel", {{{4, 5}}, {{4, 5}, -2, 5, kInt32}, {{4, 5}, 0.1, 0.9}}, [=](In x) -> Out {
         return {x[0].MultiLabelMarginLoss(x[1], none), x[0].MultiLabelMarginLoss(x[1]),
                 x[0].MultiLabelSoftMarginLoss(x[2], none, x[2]), x[0].PairwiseDistance(x[2])};
       }});
  const std::vector<CompositeInput> in = {
      {{5, 3, 4}}, {{3, 2}, 1, 4, kInt32}, {{3}, 4, 6, kInt32}, {{3}, 1, 3, kInt32}};
  rows.push_back({"CtcLoss", in, [=](In x) -> Out {
                    const Tensor logs = x[0].LogSoftmax(2);
                    return {x[0].PairwiseDistance(logs, 3, 0.1, true),
                            logs.CtcLoss(x[1], x[2], x[3]),
                            logs.CtcLoss(x[1], x[2], x[3], 0, none)};
                  }});
}

}  // namespace

void AddNamedRows(std::vector<CompositeRow>& rows) {
  AddSpecial(rows);
  AddInOrder(rows);
  AddDistributions(rows);
  AddLabels(rows);
}

}  // namespace tessera
