// The rows: what is written by index, in order, along axes, under windows, and by equations.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

Out Both(const ValuesAndIndices& v) { return {v.values, v.indices}; }

const CompositeInput kIndex{{3, 5, 2}, -1, 5, kInt32};

void AddIndexed(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> in = {{{3, 4, 2}}, kIndex, {{3, 5, 2}}};
  const auto scatter = [&](const char* name, ScatterMode mode, bool self) {
    rows.push_back({name, in, [mode, self](In x) -> Out {
                      return {x[0].Scatter(1, x[1], x[2], mode, self)};
                    }});
  };
  scatter("ScatterSet", ScatterMode::kSet, true);
  scatter("ScatterAdd", ScatterMode::kAdd, true);
  scatter("ScatterAddAlone", ScatterMode::kAdd, false);
  scatter("ScatterMul", ScatterMode::kMul, true);
  scatter("ScatterMax", ScatterMode::kMax, true);
  scatter("ScatterMin", ScatterMode::kMin, false);
  scatter("ScatterMean", ScatterMode::kMean, true);
  rows.push_back({"ScatterPart", {{{4, 4}}, {{2, 3}, 0, 4, kInt32}, {{3, 3}}}, [](In x) -> Out {
                    return {x[0].Scatter(0, x[1], x[2], ScatterMode::kAdd)};
                  }});
  rows.push_back({"GatherND", {{{4, 3, 2}}, {{5, 2}, 0, 3, kInt32}}, [](In x) -> Out {
                    return {x[0].GatherND(x[1]), x[0].GatherND(x[1].SliceAxis(0, {0, 4}), 1)};
                  }});
  rows.push_back(
      {"ScatterND", {{{4, 3}}, {{5, 1}, 0, 4, kInt64}, {{5, 3}}}, [](In x) -> Out {
         return {x[0].ScatterND(x[1], x[2]), x[0].ScatterND(x[1], x[2], ScatterMode::kAdd)};
       }});
  rows.push_back({"IndexRows", {{{4, 3}}, {{5}, 0, 4, kInt32}, {{5, 3}}}, [](In x) -> Out {
                    return {x[0].IndexAdd(0, x[1], x[2]), x[0].IndexCopy(0, x[1], x[2]),
                            x[0].IndexFill(0, x[1], 3), x[0].IndexSelect(0, x[1])};
                  }});
  rows.push_back({"PutAt", {{{4, 3, 5}}, {{2}, 0, 3, kInt32}, {{2, 3}}}, [](In x) -> Out {
                    return {x[0].PutAt({Slice{1, 3}, x[1], Slice{0, 5, 2}}, x[2], true),
                            x[0][{Ellipsis, x[1], NewAxis, Slice{1, {}}}]};
                  }});
  rows.push_back(
      {"IndexPut", {{{4, 3}}, {{5}, 0, 4, kInt32}, {{5}, 0, 3, kInt32}, {{5}}}, [](In x) -> Out {
         return {x[0].IndexPut({x[1], x[2]}, x[3], true), x[0].IndexGet({x[1], x[2]})};
       }});
  rows.push_back({"BinCount", {{{7}, 0, 5, kInt32}, {{7}}}, [](In x) -> Out {
                    return {x[0].BinCount(5), x[0].BinCount(5, x[1])};
                  }});
}

void AddOrdered(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> x = {{{3, 7}}};
  rows.push_back({"Sort", x, [](In x) -> Out { return Both(x[0].Sort(1)); }});
  rows.push_back({"SortDown", x, [](In x) -> Out { return Both(x[0].Sort(0, true)); }});
  rows.push_back({"SortLong", {{{300}, -8, 8}}, [](In x) -> Out { return Both(x[0].Sort()); }});
  rows.push_back({"TopK", x, [](In x) -> Out { return Both(x[0].TopK(3)); }});
  rows.push_back({"KthValue", x, [](In x) -> Out { return Both(x[0].KthValue(2)); }});
  rows.push_back({"Median", x, [](In x) -> Out { return Both(x[0].Median(1)); }});
  rows.push_back({"Quantile", x, [](In x) -> Out {
                    return {x[0].Quantile(0.3, 1), x[0].Quantile(0.5)};
                  }});
  rows.push_back({"SearchSorted",
                  {{{9}}, {{2, 3}}},
                  [](In x) -> Out { return {x[0].Sort().values.SearchSorted(x[1])}; },
                  false});
}

void AddRunning(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> x = {{{4, 7}, 0.25, 2}};
  rows.push_back({"CumSum", x, [](In x) -> Out {
                    return {x[0].CumSum(1), x[0].CumSum(0, {.exclusive = true, .reverse = true})};
                  }});
  rows.push_back({"CumProd", x, [](In x) -> Out {
                    return {x[0].CumProd(1), x[0].CumProd(0, {.exclusive = true, .reverse = true})};
                  }});
  rows.push_back({"CumMax", x, [](In x) -> Out { return Both(x[0].CumMax(1)); }});
  rows.push_back({"CumMin", x, [](In x) -> Out { return Both(x[0].CumMin(0)); }});
  rows.push_back({"LogCumSumExp", x, [](In x) -> Out { return {x[0].LogCumSumExp(1)}; }});
  rows.push_back({"CumSumLong", {{{1100}}}, [](In x) -> Out { return {x[0].CumSum(0)}; }});
  rows.push_back({"Diff", x, [](In x) -> Out { return {x[0].Diff(), x[0].Diff(2, 0)}; }});
}

void AddWindows(std::vector<CompositeRow>& rows) {
  rows.push_back({"Conv1d", {{{2, 4, 9}}, {{6, 2, 3}}}, [](In x) -> Out {
                    return {x[0].Conv1d(x[1], {.stride = {2}, .padding = {1, 2}, .groups = 2})};
                  }});
  rows.push_back({"Conv2d", {{{2, 3, 6, 5}}, {{4, 3, 3, 2}}, {{4}}}, [](In x) -> Out {
                    return {x[0].Conv2d(x[1], {.bias = x[2], .padding = {1, 0, 2, 1}}),
                            x[0].Conv(x[1], {.stride = {2, 1}, .dilation = {1, 2}})};
                  }});
  rows.push_back({"Conv3d", {{{1, 2, 4, 3, 4}}, {{2, 2, 2, 2, 2}}}, [](In x) -> Out {
                    return {x[0].Conv3d(x[1], {.padding = {1}})};
                  }});
  rows.push_back(
      {"ConvTranspose", {{{2, 4, 5}}, {{4, 3, 3}}, {{6}}}, [](In x) -> Out {
         return {x[0].ConvTranspose(
             x[1],
             {.bias = x[2], .stride = {2}, .padding = {1}, .groups = 2, .output_padding = {1}})};
       }});
  rows.push_back({"ConvTranspose2d", {{{1, 2, 3, 4}}, {{2, 3, 2, 3}}}, [](In x) -> Out {
                    return {x[0].ConvTranspose(x[1], {.stride = {2, 1}, .dilation = {1, 2}})};
                  }});
  const std::vector<CompositeInput> image = {{{2, 3, 6, 5}}};
  const PoolOptions o{.size = {3, 2}, .stride = {2, 2}, .padding = {1, 0}, .ceil_mode = true};
  rows.push_back({"MaxPool", image, [o](In x) -> Out { return {x[0].MaxPool(o)}; }});
  rows.push_back({"AvgPool", image, [o](In x) -> Out {
                    PoolOptions inside = o;
                    inside.count_padding = false;
                    PoolOptions by = o;
                    by.divisor = 5;
                    return {x[0].AvgPool(o), x[0].AvgPool(inside), x[0].AvgPool(by)};
                  }});
  rows.push_back({"LpPool", image, [](In x) -> Out {
                    return {x[0].LpPool(2, {}), x[0].LpPool(3, {.size = {2}, .stride = {1}})};
                  }});
  rows.push_back({"MaxPoolWithIndices", image, [](In x) -> Out {
                    const auto both = x[0].MaxPoolWithIndices({});
                    return {both.values, both.indices, both.values.MaxUnpool(both.indices, {6, 5})};
                  }});
  rows.push_back({"Im2Col", image, [](In x) -> Out {
                    const PoolOptions o{.size = {2, 3}, .stride = {1, 2}, .padding = {1, 1}};
                    return {x[0].Im2Col(o), x[0].Im2Col(o).Col2Im({6, 5}, o)};
                  }});
  rows.push_back({"AdaptivePools", image, [](In x) -> Out {
                    return {x[0].AdaptiveAvgPool({4, 2}), x[0].AdaptiveMaxPool({3, 3}),
                            x[0].GlobalAvgPool(), x[0].GlobalMaxPool()};
                  }});
  rows.push_back({"PadBy", {{{4, 5}}}, [](In x) -> Out {
                    const Pairs pairs = {{2, 1}, {0, 3}};
                    return {x[0].PadBy(PadMode::kReflect, pairs),
                            x[0].PadBy(PadMode::kReplicate, pairs),
                            x[0].PadBy(PadMode::kCircular, pairs),
                            x[0].PadBy(PadMode::kConstant, {{-1, 2}, {1, -2}}, 7)};
                  }});
}

void AddLinear(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> two = {{{3, 4}}, {{4, 5}}};
  rows.push_back({"Einsum", two, [](In x) -> Out {
                    return {Einsum("ij,jk->ki", {x[0], x[1]}), Einsum("ij,kl->jl", {x[0], x[1]})};
                  }});
  rows.push_back({"EinsumDiagonal", {{{4, 4, 3}}}, [](In x) -> Out {
                    return {Einsum("iij->ij", {x[0]}), Einsum("...j->j", {x[0]})};
                  }});
  rows.push_back(
      {"TensorDot", two, [](In x) -> Out {
         return {x[0].TensorDot(x[1], 1), x[0].Inner(x[1].T()), x[0].Outer(x[1]), x[0].Kron(x[1])};
       }});
  rows.push_back(
      {"Cross", {{{3, 4}}, {{3, 4}}}, [](In x) -> Out { return {x[0].Cross(x[1], 0)}; }});
  rows.push_back({"CDist", {{{4, 3}}, {{5, 3}}}, [](In x) -> Out {
                    return {x[0].CDist(x[1]), x[0].CDist(x[1], 1)};
                  }});
  rows.push_back({"Det", {{{2, 3, 3}}}, [](In x) -> Out { return {x[0].Det()}; }});
  rows.push_back({"Diagonals", {{{4, 5}}, {{4}}}, [](In x) -> Out {
                    return {x[0].Diagonal(1), x[0].Trace(), x[1].Diag(-1), x[0].DiagEmbed()};
                  }});
  rows.push_back({"Arranged", {{{4, 6}}, {{4, 2, 3}}}, [](In x) -> Out {
                    return {x[0].Rot90(),         x[1].MoveAxis({0, 2}, {2, 1}),
                            x[1].PixelShuffle(2), x[0].Unsqueeze(0).PixelUnshuffle(2),
                            x[0].Unfold(0, 2, 1), x[0].Tile({2, 1}),
                            HStack({x[0], x[0]}), VStack({x[0], x[0]})};
                  }});
  rows.push_back({"Vander", {{{4}}}, [](In x) -> Out { return {x[0].Vander(3)}; }});
  rows.push_back({"MeshGrid", {{{4}}, {{3}}}, [](In x) -> Out {
                    return MeshGrid({x[0], x[1]}, "xy");
                  }});
}

void AddElementwise(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> two = {{{3, 5}}, {{3, 5}}};
  rows.push_back({"TwoOperands", two, [](In x) -> Out {
                    return {x[0].Atan2(x[1]), x[0].Hypot(x[1]), x[0].LogAddExp(x[1]),
                            x[0].CopySign(x[1]), x[0].Remainder(x[1].Abs() + 3)};
                  }});
  rows.push_back(
      {"XLogY", {{{7}}, {{7}, 0.25, 2}}, [](In x) -> Out { return {x[0].XLogY(x[1])}; }});
  rows.push_back({"Selected", two, [](In x) -> Out {
                    return {x[0].Heaviside(x[1]), x[0].Clamp(x[1], x[1] + 1),
                            x[0].MaskedFill(x[1] > 0, 3), x[0].IsClose(x[1], 0.5, 0.1),
                            x[0].AllClose(x[1])};
                  }});
  rows.push_back({"OneOperand", {{{3, 5}, -0.875, 0.875}}, [](In x) -> Out {
                    return {x[0].Asinh(),
                            (x[0] + 3).Acosh(),
                            x[0].Atanh(),
                            x[0].Sinc(),
                            x[0].Erfc(),
                            x[0].Frac(),
                            ((x[0] + 1) / 2).Logit(),
                            x[0].ErfInv(),
                            (x[0] + 2).Lgamma(),
                            (x[0] + 2).Digamma()};
                  }});
  rows.push_back({"Classified",
                  {{{3, 5}}},
                  [](In x) -> Out {
                    return {x[0].SignBit(), x[0].IsPosInf(), x[0].IsNegInf(), x[0].CountNonzero(1),
                            x[0].Hardmax(0)};
                  },
                  false});
  rows.push_back({"Activations", {{{4, 6}}, {{6}, 0.1, 0.9}}, [](In x) -> Out {
                    return {x[0].Celu(2),      x[0].Selu(),       x[0].Swish(2),
                            x[0].Softsign(),   x[0].Softshrink(), x[0].Hardshrink(),
                            x[0].Tanhshrink(), x[0].Hardtanh(),   x[0].ThresholdedRelu(0.3),
                            x[0].Prelu(x[1]),  x[0].Glu(0),       x[0].HardSigmoid(0.2, 0.5)};
                  }});
}

void AddReduced(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> x = {{{4, 6}}};
  rows.push_back({"Norms", x, [](In x) -> Out {
                    return {x[0].Norm(2, 1),         x[0].Norm(1, 0),    x[0].Norm(3, 1, true),
                            x[0].Norm(1.0 / 0.0, 0), x[0].LpNormalize(), x[0].LpNormalize(1, 0)};
                  }});
  rows.push_back({"WithoutNans", x, [](In x) -> Out {
                    return {x[0].NanSum(0), x[0].NanMean(1), x[0].NanMax(0), x[0].NanMin(1),
                            x[0].VarMean(1).first};
                  }});
  const std::vector<CompositeInput> image = {{{2, 4, 3}}, {{4}}, {{4}}};
  rows.push_back({"GroupNorm", image, [](In x) -> Out {
                    return {x[0].GroupNorm(2, x[1], x[2]), x[0].InstanceNorm(x[1], x[2]),
                            x[0].LocalResponseNorm(3, 0.5)};
                  }});
  rows.push_back({"BatchNormTraining", image, [](In x) -> Out {
                    const auto [y, mean, variance] = x[0].BatchNormTraining(x[1], x[2], 1e-3, 1);
                    return {y, mean, variance};
                  }});
}

void AddLosses(std::vector<CompositeRow>& rows) {
  const LossReduction none = LossReduction::kNone;
  rows.push_back({"Losses", {{{3, 5}}, {{3, 5}}}, [=](In x) -> Out {
                    return {x[0].MseLoss(x[1]),
                            x[0].L1Loss(x[1], none),
                            x[0].HuberLoss(x[1], 0.7),
                            x[0].SmoothL1Loss(x[1], 0.3, none),
                            x[0].KlDivLoss(x[1], none, true),
                            x[0].PoissonNllLoss(x[1]),
                            x[0].HingeLoss(x[1], none),
                            x[0].CosineSimilarity(x[1])};
                  }});
  rows.push_back({"BinaryLosses", {{{3, 5}, 0.1, 0.9}, {{3, 5}, 0.1, 0.9}}, [=](In x) -> Out {
                    return {x[0].BinaryCrossEntropy(x[1]), x[0].KlDivLoss(x[1]),
                            x[0].BinaryCrossEntropyWithLogits(x[1], none)};
                  }});
  rows.push_back(
      {"CrossEntropy", {{{4, 3, 2}}, {{4, 2}, 0, 3, kInt32}, {{3}, 0.5, 2}}, [=](In x) -> Out {
         const ClassLossOptions o{.weight = x[2], .ignore_index = 1, .label_smoothing = 0.1};
         return {x[0].CrossEntropy(x[1], o), x[0].CrossEntropy(x[1]),
                 x[0].LogSoftmax(1).NllLoss(x[1], {.weight = x[2], .reduction = none}),
                 x[0].CrossEntropy(x[0].Softmax(1))};
       }});
}

void AddRead(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> image = {{{1, 2, 4, 5}}};
  rows.push_back({"Resize", image, [](In x) -> Out {
                    return {x[0].Resize({7, 3}), x[0].Resize({7, 3}, {.mode = ResizeMode::kLinear}),
                            x[0].Resize({3, 8}, {.mode = ResizeMode::kCubic,
                                                 .coordinates = ResizeCoordinates::kAlignCorners}),
                            x[0].Resize({2, 3}, {.mode = ResizeMode::kLinear, .antialias = true})};
                  }});
  rows.push_back({"GridSample", {{{2, 2, 4, 5}}, {{2, 3, 2, 2}, -1.3, 1.3}}, [](In x) -> Out {
                    return {x[0].GridSample(x[1]),
                            x[0].GridSample(x[1], {.mode = ResizeMode::kCubic,
                                                   .padding = PadMode::kReplicate})};
                  }});
  rows.push_back({"AffineGrid", {{{2, 2, 3}}}, [](In x) -> Out {
                    return {x[0].AffineGrid({2, 1, 3, 4})};
                  }});
}

// Draws count on from the same seed each time.
void AddDrawn(std::vector<CompositeRow>& rows) {
  rows.push_back({"Drawn",
                  {{{4, 6}, 0.1, 0.9}},
                  [](In x) -> Out {
                    Tensor::ManualSeed(3);
                    return {x[0].Shuffle(), x[0].Bernoulli(), x[0].Dropout(0.3),
                            x[0].Multinomial(3), x[0].Multinomial(3, false)};
                  },
                  false});
}

}  // namespace

std::vector<CompositeRow> CompositeRows() {
  std::vector<CompositeRow> rows;
  AddIndexed(rows);
  AddOrdered(rows);
  AddRunning(rows);
  AddWindows(rows);
  AddLinear(rows);
  AddElementwise(rows);
  AddReduced(rows);
  AddLosses(rows);
  AddRead(rows);
  AddDrawn(rows);
  AddMoreRows(rows);
  AddRestOfRows(rows);
  AddMatrixRows(rows);
  AddNamedRows(rows);
  AddFreeRows(rows);
  return rows;
}

}  // namespace tessera
