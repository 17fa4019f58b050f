// Composed functions over a variable extent: compiled once, and equal to the same of that extent.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/distributions.h"
#include "graph/grad.h"
#include "graph/signals.h"
#include "graph/special_functions.h"
#include "graph/statistics.h"
#include "runtime/jit.h"
#include "runtime/realize.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

struct Function {
  std::string name;
  std::function<Tensor(const Tensor&)> of;
};
void PrintTo(const Function& f, std::ostream* out) { *out << f.name; }

// Given numbers where x lies.
Tensor Beside(const Tensor& x, const Nested& numbers) {
  const Tensor t = Tensor::From(numbers);
  return x.device().is_sharding() ? t.To(Sharding({"CPU:0", "CPU:1", "CPU:2"})) : t;
}

// Of [n, 4, 6], n from 1 to 5.
const std::vector<Function>& Functions() {
  static const std::vector<Function> all = {
      {"Sort", [](const Tensor& x) { return x.Sort(0).values; }},
      {"ArgSort", [](const Tensor& x) { return x.ArgSort(2, true); }},
      {"CumSum", [](const Tensor& x) { return x.CumSum(0); }},
      {"CumSumBack",
       [](const Tensor& x) { return x.CumSum(0, {.exclusive = true, .reverse = true}); }},
      {"CumProd", [](const Tensor& x) { return x.CumProd(1); }},
      {"CumMax", [](const Tensor& x) { return x.CumMax(0).indices; }},
      {"LogCumSumExp", [](const Tensor& x) { return x.LogCumSumExp(0); }},
      {"Scatter",
       [](const Tensor& x) {
         return x.IndexAdd(1, Beside(x, {3, 0, 3}), x.SliceAxis(1, {0, 3}));
       }},
      {"ScatterRows",
       [](const Tensor& x) {
         return Tensor::Zeros({5, 4, 6}).IndexAdd(0, Tensor::Arange(x.shape()[0]) % 3, x);
       }},
      {"GatherND",
       [](const Tensor& x) {
         return x.GatherND(Beside(x, {{0, 1}, {4, 2}}));
       }},
      {"Conv1d",
       [](const Tensor& x) {
         return x.Conv1d(Tensor::Arange(24, kFloat32).Reshape({2, 4, 3}), {.padding = {1}});
       }},
      {"MaxPool", [](const Tensor& x) { return x.MaxPool({.size = {3}, .ceil_mode = true}); }},
      {"AvgPool", [](const Tensor& x) { return x.AvgPool({.count_padding = false}); }},
      {"GroupNorm", [](const Tensor& x) { return x.GroupNorm(2); }},
      {"BatchNorm", [](const Tensor& x) { return x.BatchNormTraining().output; }},
      {"Norm", [](const Tensor& x) { return x.Norm(2, 0); }},
      {"Einsum",
       [](const Tensor& x) {
         return Einsum("nij,nik->jk", {x, x});
       }},
      {"Loss", [](const Tensor& x) { return x.MseLoss(x * 0); }},
      {"CrossEntropy",
       [](const Tensor& x) {
         return x.CrossEntropy((Tensor::Arange(x.shape()[0]).Unsqueeze(1) + Tensor::Arange(6)) % 4);
       }},
      {"Resize", [](const Tensor& x) { return x.Resize({9}, {.mode = ResizeMode::kLinear}); }},
      {"PadBy",
       [](const Tensor& x) {
         return x.PadBy(PadMode::kReflect, {{0, 0}, {1, 2}, {0, 3}});
       }},
      {"NanMax", [](const Tensor& x) { return x.NanMax(0); }},
      {"Glu", [](const Tensor& x) { return x.Glu(1); }},
      {"Cross",
       [](const Tensor& x) {
         return x.SliceAxis(1, {0, 3}).Cross(x.SliceAxis(1, {1, 4}), 1);
       }},
      {"SearchSorted",
       [](const Tensor& x) {
         return Beside(x, {-1.0, 0.0, 1.0}).SearchSorted(x);
       }},
      {"Atan2", [](const Tensor& x) { return x.Atan2(x + 1); }},
      {"EverySecond",
       [](const Tensor& x) {
         return x.SliceAxis(0, {{}, {}, 2});
       }},
      {"EveryThirdBack",
       [](const Tensor& x) {
         return x.SliceAxis(0, {{}, {}, -3});
       }},
      {"Roll", [](const Tensor& x) { return x.Roll(2, 0).Roll(-3, 0); }},
      {"RollStatic",
       [](const Tensor& x) {
         return x.Roll({1, -2}, {1, 2});
       }},
      {"Repeat",
       [](const Tensor& x) {
         return x.Repeat({2, 1, 3});
       }},
      {"RepeatInterleave", [](const Tensor& x) { return x.RepeatInterleave(3, 0); }},
      {"CatItself",
       [](const Tensor& x) {
         return Cat({x, x + 1, Tensor::Ones({2, 4, 6})}, 0);
       }},
      {"OneHot", [](const Tensor& x) { return Tensor::Arange(x.shape()[0]).OneHot(4); }},
      {"Gather",
       [](const Tensor& x) {
         return x.Gather(0, (x.Abs() * 2).Cast(kInt32) % Tensor::FromExtent(x.shape()[0]));
       }},
      {"Take",
       [](const Tensor& x) {
         return x.Take(Beside(x, {{0, 4}, {1, 0}}), 0);
       }},
      {"ArgMax", [](const Tensor& x) { return x.ArgMax(0); }},
      {"ArgMin", [](const Tensor& x) { return x.ArgMin(); }},
      {"TopK", [](const Tensor& x) { return x.TopK(3, 2).values; }},
      {"Median", [](const Tensor& x) { return x.Median(1).values; }},
      {"VarStd",
       [](const Tensor& x) {
         return x.Var(0, 0) + x.Std({0, 1}, 0);
       }},
      {"Softmax", [](const Tensor& x) { return x.Softmax(0) + x.LogSoftmax(0); }},
      {"LayerNorm", [](const Tensor& x) { return x.LayerNorm() + x.RmsNorm(); }},
      {"InstanceNorm", [](const Tensor& x) { return x.InstanceNorm(); }},
      {"LpNormalize", [](const Tensor& x) { return x.LpNormalize(2, 0); }},
      {"Attention",
       [](const Tensor& x) {
         return x.Transpose(0, 1).ScaledDotProductAttention(x.Transpose(0, 1),
                                                            x.Transpose(0, 1) + 1);
       }},
      {"CausalAttention",
       [](const Tensor& x) {
         AttentionOptions o;
         o.causal = true;
         const Tensor q = x.Transpose(0, 1);
         return q.ScaledDotProductAttention(q + 1, q, o);
       }},
      {"MatMulOverIt",
       [](const Tensor& x) {
         return x.Permute({1, 2, 0}).MatMul(x.Permute({1, 0, 2}));
       }},
      {"MaxPoolAlong",
       [](const Tensor& x) {
         return x.Permute({1, 2, 0}).MaxPool({.size = {2}, .stride = {2}, .padding = {1}});
       }},
      {"AvgPoolAlong",
       [](const Tensor& x) {
         return x.Permute({1, 2, 0}).AvgPool({.size = {3}, .stride = {1}, .padding = {1}});
       }},
      {"ConvAlong",
       [](const Tensor& x) {
         return x.Permute({1, 2, 0}).Conv1d(Tensor::Arange(36, kFloat32).Reshape({2, 6, 3}),
                                            {.padding = {1}});
       }},
      {"ConvStridedAlong",
       [](const Tensor& x) {
         return x.Permute({1, 2, 0}).Conv1d(Tensor::Arange(36, kFloat32).Reshape({2, 6, 3}),
                                            {.stride = {2}, .padding = {2}});
       }},
      {"Unfold",
       [](const Tensor& x) {
         return x.Pad({{1, 1}, {0, 0}, {0, 0}}).Unfold(0, 2);
       }},
      {"Diff",
       [](const Tensor& x) {
         return Cat({x, x}, 0).Diff(1, 0);
       }},
      {"Trapezoid", [](const Tensor& x) { return x.Trapezoid(0.5, 0); }},
      {"Tril",
       [](const Tensor& x) {
         return x.Permute({1, 0, 2}).Tril() + x.Permute({1, 0, 2}).Triu(1);
       }},
      {"Flip",
       [](const Tensor& x) {
         return x.Flip({0, 2});
       }},
      {"Shift",
       [](const Tensor& x) {
         return x.Pad({{2, 1}, {0, 0}, {0, 0}}, 3);
       }},
      {"WhereMask", [](const Tensor& x) { return Where(x > 0, x, 0).MaskedFill(x > 1, 2); }},
      {"Cov", [](const Tensor& x) { return x.Flatten(1).T().Cov(0); }},
      {"IsIn",
       [](const Tensor& x) {
         return x.IsIn(x.SliceAxis(2, {0, 2}));
       }},
      {"Bucketize",
       [](const Tensor& x) {
         return x.Bucketize(Beside(x, {-1.0, 0.5}));
       }},
      {"NanMedian", [](const Tensor& x) { return x.NanMedian(2).values; }},
      {"NonZero", [](const Tensor& x) { return (x > 0).NonZero(20); }},
      {"MaskedSelect", [](const Tensor& x) { return x.MaskedSelect(x > 0, 40, 7); }},
      {"SelectScatter", [](const Tensor& x) { return x.SelectScatter(Tensor::Ones({6}), 1, 2); }},
      {"SliceScatter",
       [](const Tensor& x) {
         return x.SliceScatter(Tensor::Ones({2, 6}), 1, Slice{0, 4, 2});
       }},
      {"Histogram", [](const Tensor& x) { return x.Histogram(4, -1, 1); }},
      {"BinCount", [](const Tensor& x) { return (x.Abs() * 2).Cast(kInt32).BinCount(5); }},
      {"Inner", [](const Tensor& x) { return x.Select(1, 0).Inner(x.Select(1, 1)); }},
      {"Outer",
       [](const Tensor& x) {
         return x.Select(1, 0).Select(1, 0).Outer(x.Select(2, 0).Select(1, 1));
       }},
      {"Kron",
       [](const Tensor& x) {
         return x.Select(1, 0).Kron(Beside(x, {{1, 2}}));
       }},
      {"Interpolate", [](const Tensor& x) { return x.Resize({12}); }},
      {"PixelShuffle", [](const Tensor& x) { return x.Unsqueeze(3).PixelShuffle(2); }},
      {"Dropout", [](const Tensor& x) { return x.Dropout(0); }},
      {"Solve",
       [](const Tensor& x) {
         return (x.SliceAxis(1, {0, 2}).SliceAxis(2, {0, 2}) * 0 + Tensor::Eye(2) * 2).Inverse();
       }},
      {"Quantile", [](const Tensor& x) { return x.Quantile(0.25, 2); }},
      {"KthValue", [](const Tensor& x) { return x.KthValue(2, 1).values; }},
      {"CumMinBack", [](const Tensor& x) { return x.CumMin(2).values; }},
      {"Hardmax", [](const Tensor& x) { return x.Hardmax(0); }},
      {"TopKAlong", [](const Tensor& x) { return x.TopK(1, 0).values; }},
      {"KthAlong", [](const Tensor& x) { return x.KthValue(1, 0).values; }},
      {"MedianAlong", [](const Tensor& x) { return x.Median(0).values; }},
      {"AdaptiveAlong",
       [](const Tensor& x) {
         return x.Permute({1, 2, 0}).AdaptiveAvgPool({3}) +
                x.Permute({1, 2, 0}).AdaptiveMaxPool({3});
       }},
      {"PadByAlong",
       [](const Tensor& x) {
         const Pairs pairs = {{1, 1}, {0, 0}, {0, 0}};
         return x.PadBy(PadMode::kSymmetric, pairs) + x.PadBy(PadMode::kCircular, pairs) +
                x.PadBy(PadMode::kReplicate, pairs);
       }},
      {"PadReflectAlong",
       [](const Tensor& x) {
         return Cat({x, x}, 0).PadBy(PadMode::kReflect, {{1, 1}, {0, 0}, {0, 0}});
       }},
      {"Diagonal", [](const Tensor& x) { return x.Diagonal(1, 1, 2); }},
  };
  return all;
}

// [4, 6, n], and a vector of it.
Tensor Last(const Tensor& x) { return x.Permute({1, 2, 0}); }
Tensor Vector(const Tensor& x) { return x.Select(1, 1).Select(1, 2); }

// Along the extent itself, where most is made of counting it.
const std::vector<Function>& FunctionsAlong() {
  static const std::vector<Function> all = {
      {"QuantileAlong", [](const Tensor& x) { return x.Quantile(0.3, 0); }},
      {"QuantileOfAll", [](const Tensor& x) { return x.Quantile(0.85); }},
      {"QuantileLast", [](const Tensor& x) { return x.Quantile(1, 0, true); }},
      {"DiffAlong", [](const Tensor& x) { return x.Diff(2, 0); }},
      {"CumTrapezoid", [](const Tensor& x) { return x.CumTrapezoid(0.5, 0); }},
      {"CorrCoef", [](const Tensor& x) { return (x.Flatten(1) + 0.01).CorrCoef(); }},
      {"DiagonalAlong", [](const Tensor& x) { return x.Diagonal(); }},
      {"DiagonalBelow", [](const Tensor& x) { return x.Diagonal(-1, 0, 2); }},
      {"DiagonalAbove", [](const Tensor& x) { return Last(x).Diagonal(2, 2, 1); }},
      {"Trace", [](const Tensor& x) { return Vector(x).Outer(Vector(x)).Trace(1); }},
      {"EinsumDiagonal",
       [](const Tensor& x) { return Einsum("ii->i", {Vector(x).Outer(Vector(x))}); }},
      {"DiagEmbed", [](const Tensor& x) { return Last(x).DiagEmbed(-1); }},
      {"Vander", [](const Tensor& x) { return Vector(x).Vander(); }},
      {"GluOfTwice",
       [](const Tensor& x) {
         return Cat({x, x + 1}, 0).Glu(0);
       }},
      {"PixelShuffleOfRows", [](const Tensor& x) { return x.Transpose(0, 1).PixelShuffle(2); }},
      {"PixelUnshuffle",
       [](const Tensor& x) {
         return Cat({x, x + 1}, 0).Transpose(0, 1).PixelUnshuffle(2);
       }},
      {"TensorSplit",
       [](const Tensor& x) {
         const std::vector<Tensor> parts = x.TensorSplit({1, -1}, 0);
         return Cat({parts[2], parts[0], parts[1]}, 0);
       }},
      {"SelectScatterLast",
       [](const Tensor& x) {
         return x.SelectScatter(Beside(x, {1, 2, 3, 4, 5, 6}).Expand({4, 6}), 0, -1);
       }},
      {"MatrixPower",
       [](const Tensor& x) {
         const Tensor square = Vector(x).Outer(Vector(x)) * 0.2;
         return square.MatrixPower(3) + square.MatrixPower(0);
       }},
      {"ConvolveFull", [](const Tensor& x) { return Vector(x).Convolve(Vector(x)); }},
      {"ConvolveSame",
       [](const Tensor& x) {
         return Beside(x, {1.0, -2.0, 0.5, 3.0, 1.0, 7.0}).Convolve(Vector(x), "same");
       }},
      {"ConvolveValid",
       [](const Tensor& x) {
         return Beside(x, {1.0, -2.0, 0.5, 3.0, 1.0, 7.0}).Convolve(Vector(x), "valid");
       }},
      {"RfftToEight", [](const Tensor& x) { return Last(x).Rfft(-1, {8}); }},
      {"FftShift",
       [](const Tensor& x) {
         return x.FftShift(0) + x.IfftShift({0, 1});
       }},
      {"ConvTransposeAlong",
       [](const Tensor& x) {
         return Last(x).ConvTranspose(Beside(x, {1.0, 2.0, 3.0}).Expand({6, 2, 3}),
                                      {.stride = {2}, .padding = {1}, .output_padding = {1}});
       }},
      {"ConvTransposeDilated",
       [](const Tensor& x) {
         return Last(x).ConvTranspose(Beside(x, {1.0, 2.0, 3.0}).Expand({6, 2, 3}),
                                      {.stride = {2}, .dilation = {2}});
       }},
      {"ConvOverChannels",
       [](const Tensor& x) {
         return x.Transpose(0, 1).Conv(x.Transpose(0, 1).SliceAxis(2, {0, 3}));
       }},
      {"AvgPoolWithoutPadding",
       [](const Tensor& x) {
         return Last(x).AvgPool(
             {.size = {3}, .stride = {2}, .padding = {1}, .count_padding = false});
       }},
      {"ResizeNearest", [](const Tensor& x) { return Last(x).Resize({7}); }},
      {"ResizeLinear",
       [](const Tensor& x) {
         return Last(x).Resize({7}, {.mode = ResizeMode::kLinear}) +
                Last(x).Resize({7}, {.mode = ResizeMode::kLinear,
                                     .coordinates = ResizeCoordinates::kAlignCorners});
       }},
      {"ResizeSmaller",
       [](const Tensor& x) {
         return Last(x).Resize({2}, {.mode = ResizeMode::kLinear, .antialias = true});
       }},
      {"ResizeCubic",
       [](const Tensor& x) {
         return Last(x).Resize({6}, {.mode = ResizeMode::kCubic, .exclude_outside = true});
       }},
      {"GridSample",
       [](const Tensor& x) {
         const Tensor grid = Beside(x, {{{-0.9}, {0.1}, {1.4}}}).Expand({4, 3, 1});
         return Last(x).GridSample(grid, {.padding = PadMode::kReflect}) +
                Last(x).GridSample(grid, {.align_corners = true});
       }},
      {"GroupNormOfAll", [](const Tensor& x) { return x.Transpose(0, 1).GroupNorm(1); }},
      {"LogProb",
       [](const Tensor& x) {
         const Tensor row = Tensor::FromExtent(x.shape()[0], kFloat32);
         return LogProb(StudentTDistribution{row, x, x.Abs() + 1}, x.Select(2, 0).Unsqueeze(2)) +
                LogProb(CategoricalDistribution{x}, Tensor::Arange(x.shape()[0]).Unsqueeze(1) % 4)
                    .Unsqueeze(2);
       }},
      {"Quantiles",
       [](const Tensor& x) {
         return Quantiles(x, {0.25, 0.8}, 0);
       }},
      {"HistogramDd",
       [](const Tensor& x) {
         return HistogramDd(Last(x).Flatten(0, 1).SliceAxis(1, {0, 1}), {{3, -1, 1}}) +
                HistogramDd(x.Flatten(1).SliceAxis(1, {0, 2}), {{1, -1, 2}, {3, -1, 1}});
       }},
      {"UnevenTrapezoid",
       [](const Tensor& x) {
         return Trapezoid(x, Tensor::Arange(x.shape()[0]).Square(), 0) + Unwrap(x, 2, 0).Sum(0);
       }},
      {"StftAlong",
       [](const Tensor& x) {
         const StftOptions o{.size = 4, .hop = 2};
         return Istft(Stft(x.Permute({2, 1, 0}).Flatten(1), o), o);
       }},
      {"BetaIncAlong",
       [](const Tensor& x) { return BetaInc(Last(x).Abs() + 0.5, 2, Last(x).Sigmoid()); }},
      {"MultinomialShape", [](const Tensor& x) { return Last(x).Abs().Multinomial(3) * 0; }},
  };
  return all;
}

Tensor Data() {
  std::vector<float> numbers(5 * 4 * 6);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>((i * 37 % 120)) / 32 - 1.75f;
  }
  return Tensor::From(numbers, {5, 4, 6}).To("CPU").Realize();
}

constexpr int64_t kValues[] = {1, 2, 4, 5};

class CompositeSymbolic : public ::testing::TestWithParam<Function> {
 protected:
  // What `of` makes of the extent as a variable, compiled once, against what it makes of each
  // value.
  void Compare(const std::function<Tensor(const Extent&)>& of) {
    const Variable n("composite_n", 1, 5);
    const Tensor symbolic = of(n);
    std::vector<Tensor> want;
    for (int64_t value : kValues) want.push_back(of(value).Realize());
    int64_t compiles = -1;
    for (size_t k = 0; k < want.size(); ++k) {
      SCOPED_TRACE(absl::StrCat("n = ", kValues[k]));
      const Tensor got = Realize({symbolic}, {{"composite_n", kValues[k]}})[0];
      if (compiles >= 0) {
        EXPECT_EQ(GetJitStats().compiles, compiles);
      }
      EXPECT_EQ(got.shape(), want[k].shape());
      const auto a = got.ToVector<double>(), b = want[k].ToVector<double>();
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i]) && std::isnan(b[i])) continue;
        EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::fabs(b[i]))) << "element " << i;
      }
      compiles = GetJitStats().compiles;
    }
  }
};

TEST_P(CompositeSymbolic, EveryValueOfTheExtent) {
  const Tensor data = Data();
  Compare([&](const Extent& n) { return GetParam().of(data.SliceAxis(0, {0, n})); });
}

TEST_P(CompositeSymbolic, ItsAdjointSlow) {
  const Tensor data = Data();
  const Tensor whole = GetParam().of(data);
  if (!whole.dtype().IsFloat() || GetParam().name == "OneHot" || GetParam().name == "Hardmax") {
    GTEST_SKIP() << "whole numbers, or a step: it has no gradient";
  }
  Compare([&](const Extent& n) {
    const Tensor y = GetParam().of(data.SliceAxis(0, {0, n}));
    const Tensor weights = (Tensor::Arange(y.shape().Elements(), kFloat32) * 0.37).Sin();
    return Grad((y * weights.Reshape(y.shape())).Sum(), {data})[0];
  });
}

TEST_P(CompositeSymbolic, SpreadAlongItSlow) {
  const Tensor data = Data(), spread = data.Shard({"CPU:0", "CPU:1", "CPU:2"}, 0).Realize();
  Compare([&](const Extent& n) {
    return GetParam().of((n.is_int() ? data : spread).SliceAxis(0, {0, n}));
  });
}

INSTANTIATE_TEST_SUITE_P(Functions, CompositeSymbolic, ::testing::ValuesIn(Functions()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Along, CompositeSymbolic, ::testing::ValuesIn(FunctionsAlong()),
                         [](const auto& info) { return info.param.name; });

// What grows with an extent, or is decided by it, says what to do.
TEST(SymbolicExtents, ErrorsSayWhatToDo) {
  const Variable n("composite_n", 1, 5);
  const Tensor x = Data().SliceAxis(0, {0, n}), square = Vector(x).Outer(Vector(x));
  EXPECT_ERROR(square.Det(), "Det", "known size, as its graph grows with it, not f32[composite_n");
  EXPECT_ERROR(square.Cholesky(), "Cholesky", "known size");
  EXPECT_ERROR(square.Qr(), "Qr", "known");
  EXPECT_ERROR(x.Unbind(), "Unbind", "use Select");
  EXPECT_ERROR(Last(x).Rfft(), "Rfft", "name the lengths");
  EXPECT_ERROR(Last(x).MaxPool({.size = {1}, .ceil_mode = true}), "MaxPool", "without ceil_mode");
  EXPECT_ERROR(Vector(x).Convolve(Tensor::From({1, 2, 3}), "valid"), "Convolve", "\"full\"");
  EXPECT_ERROR(x.Glu(0), "Glu", "no halves");
  EXPECT_ERROR(x.ChannelShuffle(0), "ChannelShuffle", "groups");
}

}  // namespace
}  // namespace tessera
