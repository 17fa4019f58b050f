// Axes 0 and -1 of a tensor of rank 0: it is one element along them, as in PyTorch.
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&, int)> call;
  double want;
};

const Tensor& Zero() {
  static const Tensor& zero = *new Tensor(Tensor::Scalar(0, kInt32));
  return zero;
}

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {"Sum", [](const Tensor& t, int a) { return t.Sum(a); }, 3},
      {"Prod", [](const Tensor& t, int a) { return t.Prod(a, true); }, 3},
      {"Mean", [](const Tensor& t, int a) { return t.Mean(a); }, 3},
      {"Max", [](const Tensor& t, int a) { return t.Max(a); }, 3},
      {"Any", [](const Tensor& t, int a) { return t.Any(a); }, 1},
      {"Var", [](const Tensor& t, int a) { return t.Var(a, 0); }, 0},
      {"Norm", [](const Tensor& t, int a) { return t.Norm(2, a); }, 3},
      {"CountNonzero", [](const Tensor& t, int a) { return t.CountNonzero(a); }, 1},
      {"NanSum", [](const Tensor& t, int a) { return t.NanSum(a); }, 3},
      {"LogSumExp", [](const Tensor& t, int a) { return t.LogSumExp(a); }, 3},
      {"Softmax", [](const Tensor& t, int a) { return t.Softmax(a); }, 1},
      {"LogSoftmax", [](const Tensor& t, int a) { return t.LogSoftmax(a); }, 0},
      {"Hardmax", [](const Tensor& t, int a) { return t.Hardmax(a); }, 1},
      {"LpNormalize", [](const Tensor& t, int a) { return t.LpNormalize(2, a); }, 1},
      {"ArgMax", [](const Tensor& t, int a) { return t.ArgMax(a); }, 0},
      {"MaxWithIndices", [](const Tensor& t, int a) { return t.MaxWithIndices(a).values; }, 3},
      {"CumSum", [](const Tensor& t, int a) { return t.CumSum(a); }, 3},
      {"CumProd", [](const Tensor& t, int a) { return t.CumProd(a); }, 3},
      {"CumMax", [](const Tensor& t, int a) { return t.CumMax(a).values; }, 3},
      {"CumMin", [](const Tensor& t, int a) { return t.CumMin(a).indices; }, 0},
      {"LogCumSumExp", [](const Tensor& t, int a) { return t.LogCumSumExp(a); }, 3},
      {"Sort", [](const Tensor& t, int a) { return t.Sort(a).values; }, 3},
      {"ArgSort", [](const Tensor& t, int a) { return t.ArgSort(a); }, 0},
      {"TopK", [](const Tensor& t, int a) { return t.TopK(1, a).values; }, 3},
      {"KthValue", [](const Tensor& t, int a) { return t.KthValue(1, a).values; }, 3},
      {"Median", [](const Tensor& t, int a) { return t.Median(a).values; }, 3},
      {"NanMedian", [](const Tensor& t, int a) { return t.NanMedian(a).indices; }, 0},
      {"Quantile", [](const Tensor& t, int a) { return t.Quantile(0.5, a); }, 3},
      {"NanQuantile", [](const Tensor& t, int a) { return t.NanQuantile(0.5, a); }, 3},
      {"NanArgMax", [](const Tensor& t, int a) { return t.NanArgMax(a); }, 0},
      {"NanArgMin", [](const Tensor& t, int a) { return t.NanArgMin(a); }, 0},
      {"Mode", [](const Tensor& t, int a) { return t.Mode(a).values; }, 3},
      {"Categorical", [](const Tensor& t, int a) { return t.Categorical(a); }, 0},
      {"Gather", [](const Tensor& t, int a) { return t.Gather(a, Zero()); }, 3},
      {"Take", [](const Tensor& t, int a) { return t.Take(Zero(), a); }, 3},
      {"Scatter", [](const Tensor& t, int a) { return t.Scatter(a, Zero(), t * 2); }, 6},
      {"IndexAdd",
       [](const Tensor& t, int a) { return t.IndexAdd(a, Zero(), Tensor::Scalar(4.0)); }, 7},
      {"IndexFill", [](const Tensor& t, int a) { return t.IndexFill(a, Zero(), 5); }, 5},
      {"Softmin", [](const Tensor& t, int a) { return t.Softmin(a); }, 1},
      {"NanMax", [](const Tensor& t, int a) { return t.NanMax(a); }, 3},
      {"Ptp", [](const Tensor& t, int a) { return t.Ptp(a); }, 0},
      {"Flip", [](const Tensor& t, int a) { return t.Flip(a); }, 3},
      {"Squeeze", [](const Tensor& t, int a) { return t.Squeeze(a); }, 3},
  };
  return cases;
}

TEST(AxisOfScalar, IsTheElementItself) {
  const Tensor t = Tensor::Scalar(3.0);
  for (const Case& c : Cases()) {
    for (const int axis : {0, -1}) {
      const Tensor got = c.call(t, axis);
      EXPECT_EQ(got.rank(), 0) << c.name;
      EXPECT_NEAR(got.Item(), c.want, 1e-6) << c.name;
    }
    for (const int axis : {1, -2}) {
      std::string message;
      try {
        c.call(t, axis);
      } catch (const Error& e) {
        message = e.what();
      }
      EXPECT_THAT(message, ::testing::StartsWith(std::string(c.name) + ": there is no axis"));
      EXPECT_THAT(message, ::testing::HasSubstr("of rank 0;"));
    }
  }
}

// What is wrong is shown as it was given, not as a vector of one element.
TEST(AxisOfScalar, ErrorsShowItsOwnRank) {
  const Tensor t = Tensor::Scalar(3.0);
  EXPECT_ERROR(t.KthValue(2, 0), "KthValue", "f32[]");
  EXPECT_ERROR(t.TopK(2, 0), "TopK", "f32[]");
  EXPECT_ERROR(t.Gather(0, Tensor::From({{0}})), "Gather", "f32[]");
  EXPECT_ERROR(t.Scatter(0, Tensor::From({{0}}), t), "Scatter", "f32[]");
  EXPECT_EQ(t.TopK(0, 0).values.shape(), Shape({Extent(0)}));
}

}  // namespace
}  // namespace tessera
