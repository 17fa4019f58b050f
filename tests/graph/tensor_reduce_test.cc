// Reductions of Tensor and what is composed of them, against plain loops.
#include <algorithm>
#include <random>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<double> DrawNormal(int64_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> out(n);
  for (double& v : out) v = normal(random);
  return out;
}

TEST(TensorReduce, NothingHasNoExtremeOfAnyDtype) {
  for (const DType t : {kBool, kInt32, kFloat32, kUInt8}) {
    const Tensor none = Tensor::Zeros({3, 0}, t);
    EXPECT_ERROR(none.Max(), "Max", "of nothing has no value");
    EXPECT_ERROR(none.Min({1}), "Min", "of nothing has no value");
    EXPECT_EQ(none.Max({0}).shape(), Shape({0}));
  }
  EXPECT_TRUE(Tensor::Zeros({0}, kBool).All().Item());
  EXPECT_FALSE(Tensor::Zeros({0}, kBool).Any().Item());
}

TEST(TensorReduce, SumsOverAxes) {
  const Tensor x = Tensor::Arange(6).Reshape({2, 3});
  EXPECT_THAT(Values(x.Sum()), ElementsAre(15));
  EXPECT_EQ(x.Sum().rank(), 0);
  EXPECT_THAT(Values(x.Sum(0)), ElementsAre(3, 5, 7));
  EXPECT_THAT(Values(x.Sum({-1})), ElementsAre(3, 12));
  EXPECT_THAT(Sizes(x.Sum({0, 1}, true)), ElementsAre(1, 1));
  EXPECT_THAT(Sizes(x.Sum(1, true)), ElementsAre(2, 1));
  EXPECT_THAT(Values(x.Prod(1)), ElementsAre(0, 60));
  EXPECT_THAT(Values(x.Max(0)), ElementsAre(3, 4, 5));
  EXPECT_THAT(Values(x.Min()), ElementsAre(0));
  EXPECT_THAT(Values(Tensor::Scalar(3).Sum()), ElementsAre(3));
  EXPECT_THAT(Values(Tensor::Scalar(3).Max()), ElementsAre(3));
  EXPECT_ERROR(x.Sum(2), "Sum", "no axis 2");
  EXPECT_ERROR(x.Sum({0, -2}), "Sum", "given twice");
}

TEST(TensorReduce, Dtypes) {
  EXPECT_EQ(Tensor::Ones({2}, kBool).Sum().dtype(), kInt32);
  EXPECT_EQ(Tensor::Ones({2}, kInt8).Sum().dtype(), kInt32);
  EXPECT_EQ(Tensor::Ones({2}, kUInt16).Sum().dtype(), kUInt32);
  EXPECT_EQ(Tensor::Ones({2}, kInt64).Sum().dtype(), kInt64);
  EXPECT_EQ(Tensor::Ones({2}, kFloat16).Sum().dtype(), kFloat16);
  EXPECT_EQ(Tensor::Ones({2}, kInt8).Max().dtype(), kInt8);
  EXPECT_EQ(Tensor::Ones({2}, kInt8).Mean().dtype(), kFloat32);
  EXPECT_EQ(Tensor::Ones({2}, kBFloat16).Mean().dtype(), kBFloat16);
  EXPECT_THAT(Values(Tensor::Full({300}, 100, kInt8).Sum()), ElementsAre(30000));
  EXPECT_THAT(Values(Tensor::Ones({300}, kBool).Sum()), ElementsAre(300));
  // Added in f16, ones stop growing at 2048; a mean of large values overflows.
  EXPECT_THAT(Values(Tensor::Ones({4096}, kFloat16).Sum()), ElementsAre(4096));
  EXPECT_THAT(Values(Tensor::Full({16}, 60000, kFloat16).Mean()), ElementsAre(60000));
  EXPECT_THAT(Values(Tensor::Full({2000}, 3, kInt16).Prod()), ElementsAre(::testing::_));
}

TEST(TensorReduce, EmptyReductions) {
  const Tensor x = Tensor::Zeros({0, 3});
  EXPECT_THAT(Values(x.Sum(0)), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(x.Sum(1)), ElementsAre());
  EXPECT_THAT(Values(x.Prod()), ElementsAre(1));
  EXPECT_THAT(Values(x.Cast(kBool).Any()), ElementsAre(0));
  EXPECT_THAT(Values(x.Cast(kBool).All()), ElementsAre(1));
  EXPECT_TRUE(std::isnan(Values(x.Mean())[0]));
  EXPECT_THAT(Sizes(x.Max(1)), ElementsAre(0));
  EXPECT_ERROR(x.Max(0), "Max", "axis 0 is empty");
  EXPECT_ERROR(x.Min(), "Min", "is empty");
  EXPECT_THAT(Sizes(x.Softmax(0)), ElementsAre(0, 3));
  EXPECT_THAT(Sizes(x.LogSoftmax(0)), ElementsAre(0, 3));
  EXPECT_THAT(Values(x.Cast(kFloat32).LogSumExp(0)), ::testing::Each(-HUGE_VAL));
  EXPECT_ERROR(x.ArgMax(0), "ArgMax", "is empty");
  EXPECT_THAT(Sizes(x.Softmax(1)), ElementsAre(0, 3));
}

TEST(TensorReduce, NaNWins) {
  for (int at = 0; at < 5; ++at) {
    std::vector<float> v = {3, -1, 7, 2, 0};
    v[at] = std::nanf("");
    const Tensor x = Tensor::From(v);
    EXPECT_TRUE(std::isnan(Values(x.Max())[0]));
    EXPECT_TRUE(std::isnan(Values(x.Min())[0]));
    EXPECT_THAT(Values(x.ArgMax()), ElementsAre(at));
    EXPECT_THAT(Values(x.ArgMin()), ElementsAre(at));
  }
}

TEST(TensorReduce, AnyAndAll) {
  const Tensor x = Tensor::From({{0, 2}, {0, 0}});
  EXPECT_THAT(Values(x.Any(1)), ElementsAre(1, 0));
  EXPECT_THAT(Values(x.All(1)), ElementsAre(0, 0));
  EXPECT_THAT(Values((x + 1).All()), ElementsAre(1));
  EXPECT_EQ(x.Any().dtype(), kBool);
}

TEST(TensorReduce, Moments) {
  const auto v = DrawNormal(12);
  const Tensor x = Tensor::From(v, {3, 4});
  std::vector<double> means, variances, population;
  for (int r = 0; r < 3; ++r) {
    double mean = 0, squares = 0;
    for (int c = 0; c < 4; ++c) mean += v[r * 4 + c] / 4;
    for (int c = 0; c < 4; ++c) squares += (v[r * 4 + c] - mean) * (v[r * 4 + c] - mean);
    means.push_back(mean);
    variances.push_back(squares / 3);
    population.push_back(squares / 4);
  }
  ExpectNear(Values(x.Mean(1)), means, 1e-14);
  ExpectNear(Values(x.Var(1)), variances, 1e-14);
  ExpectNear(Values(x.Var(1, 0)), population, 1e-14);
  for (double& s : variances) s = std::sqrt(s);
  ExpectNear(Values(x.Std(1)), variances, 1e-14);
  EXPECT_TRUE(std::isnan(Values(Tensor::From({1.0}).Var())[0]));
}

TEST(TensorReduce, Softmaxes) {
  const auto v = DrawNormal(12);
  const Tensor x = Tensor::From(v, {3, 4});
  std::vector<double> soft(12), logs(12), totals(3);
  for (int r = 0; r < 3; ++r) {
    double sum = 0;
    for (int c = 0; c < 4; ++c) sum += std::exp(v[r * 4 + c]);
    totals[r] = std::log(sum);
    for (int c = 0; c < 4; ++c) {
      soft[r * 4 + c] = std::exp(v[r * 4 + c]) / sum;
      logs[r * 4 + c] = v[r * 4 + c] - totals[r];
    }
  }
  ExpectNear(Values(x.Softmax()), soft, 1e-14);
  ExpectNear(Values(x.T().Softmax(0).T()), soft, 1e-14);
  ExpectNear(Values(x.LogSoftmax()), logs, 1e-14);
  ExpectNear(Values(x.LogSumExp(1)), totals, 1e-14);
  EXPECT_THAT(Sizes(x.LogSumExp(1, true)), ElementsAre(3, 1));
  // Large values neither overflow nor vanish; a row of -inf is NaN, as documented.
  ExpectNear(Values(Tensor::From({1000.0, 1000.0}).Softmax()), {0.5, 0.5});
  ExpectNear(Values(Tensor::From({-kInf, 0.0}).Softmax()), {0, 1});
  ExpectNear(Values(Tensor::From({-kInf, -kInf}).Softmax()), {kNan, kNan});
  ExpectNear(Values(Tensor::From({-kInf, -kInf}).LogSumExp()), {-kInf});
  ExpectNear(Values(Tensor::From({kInf, 0.0}).LogSumExp()), {kInf});
  EXPECT_EQ(x.Cast(kFloat16).Softmax().dtype(), kFloat16);
  EXPECT_THAT(Values(Tensor::Scalar(3.0).Softmax()), ElementsAre(1));
}

TEST(TensorReduce, ArgExtremes) {
  const Tensor x = Tensor::From({{3, 1, 3}, {-5, -2, -5}});
  EXPECT_THAT(Values(x.ArgMax(1)), ElementsAre(0, 1));
  EXPECT_THAT(Values(x.ArgMin(1)), ElementsAre(1, 0));
  EXPECT_THAT(Values(x.ArgMax(0)), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(x.ArgMin()), ElementsAre(3));
  EXPECT_THAT(Sizes(x.ArgMax(-1, true)), ElementsAre(2, 1));
  EXPECT_THAT(Sizes(x.ArgMax({}, true)), ElementsAre(1, 1));
  EXPECT_EQ(x.ArgMax().dtype(), kInt32);
  EXPECT_THAT(Values(Tensor::Scalar(4).ArgMax()), ElementsAre(0));
  EXPECT_THAT(Values(Tensor::From({-kInf, -kInf}).ArgMax()), ElementsAre(0));
}

TEST(TensorReduce, CumSum) {
  EXPECT_THAT(Values(Tensor::Full({}, 5).CumSum(0)), ElementsAre(5));
  EXPECT_THAT(Values(Tensor::Full({}, 5).CumProd(-1)), ElementsAre(5));
  EXPECT_THAT(Values(Tensor::From({{1, 2}, {3, 4}}).CumSum(0)), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(Values(Tensor::From({{1, 2}, {3, 4}}).CumSum(-1)), ElementsAre(1, 3, 3, 7));
  EXPECT_EQ(Tensor::Ones({3}, kInt8).CumSum(0).dtype(), kInt32);
  EXPECT_THAT(Values(Tensor::Zeros({0}).CumSum(0)), ElementsAre());
  for (int64_t n : {1, 512, 513, 2000}) {
    const auto v = Values(Tensor::Ones({2, n}, kInt32).CumSum(1));
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(v[n + i], i + 1);
  }
}

}  // namespace
}  // namespace tessera
