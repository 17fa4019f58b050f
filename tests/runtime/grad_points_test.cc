// Derivatives at points where compositions tend to lose them: at 0, where branches meet, and where
// something saturates.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "graph/grad.h"
#include "graph/tensor.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Function = std::function<Tensor(const Tensor&)>;

std::vector<double> First(const Function& f, const std::vector<double>& at, DType dtype) {
  const Tensor x = Tensor::From(at).Cast(dtype).Realize();
  return Grad(f(x).Cast(kFloat64).Sum(), {x})[0].Cast(kFloat64).ToVector<double>();
}

std::vector<double> Second(const Function& f, const std::vector<double>& at) {
  const Tensor x = Tensor::From(at).Realize();
  const Tensor first = Grad(f(x).Sum(), {x})[0];
  return Grad(first.Sum(), {x})[0].ToVector<double>();
}

void ExpectFirst(const char* name, const Function& f, const std::vector<double>& at,
                 const std::vector<double>& want) {
  SCOPED_TRACE(name);
  ExpectNear(First(f, at, kFloat64), want, 1e-12);
  ExpectNear(First(f, at, kFloat32), want, 1e-5);
}

void ExpectSecond(const char* name, const Function& f, const std::vector<double>& at,
                  const std::vector<double>& want) {
  SCOPED_TRACE(name);
  ExpectNear(Second(f, at), want, 1e-9);
}

constexpr auto kEach = LossReduction::kNone;

TEST(GradPoints, SmoothAtZero) {
  ExpectFirst("Softplus", [](const Tensor& x) { return x.Softplus(); }, {0, -0.0}, {.5, .5});
  ExpectFirst("Softplus(2, 5)", [](const Tensor& x) { return x.Softplus(2, 5); }, {0}, {.5});
  ExpectFirst("LogSigmoid", [](const Tensor& x) { return x.LogSigmoid(); }, {0}, {.5});
  ExpectFirst("SoftMarginLoss",
              [](const Tensor& x) { return x.SoftMarginLoss(Tensor::From({1.})); }, {0}, {-.5});
  const auto with_logits = [](const Tensor& x) {
    return x.BinaryCrossEntropyWithLogits(Tensor::From({0., 1., .25}), kEach);
  };
  ExpectFirst("BinaryCrossEntropyWithLogits", with_logits, {0, 0, 0}, {.5, -.5, .25});
  ExpectFirst("Celu", [](const Tensor& x) { return x.Celu(); }, {0, 1}, {1, 1});
  ExpectFirst("Elu", [](const Tensor& x) { return x.Elu(); }, {0, 1}, {1, 1});
  ExpectFirst("Asinh", [](const Tensor& x) { return x.Asinh(); }, {0, -0.0}, {1, 1});
  ExpectFirst("Atan2(x, 1)", [](const Tensor& x) { return x.Atan2(1.); }, {0, -0.0}, {1, 1});
  ExpectFirst("Atan2(x, -1)", [](const Tensor& x) { return x.Atan2(-1.); }, {0, -0.0}, {-1, -1});
  const auto upright = [](const Tensor& x) { return x.OnesLike().Atan2(x); };
  ExpectFirst("Atan2(1, x)", upright, {0, -0.0}, {-1, -1});
  const auto erf_inv = [](const Tensor& x) { return x.ErfInv(); };
  ExpectFirst("ErfInv", erf_inv, {0, 1e-8, 1e-20}, std::vector<double>(3, std::sqrt(M_PI) / 2));
  ExpectFirst("XLogY(x, 2)", [](const Tensor& x) { return x.XLogY(2.); }, {0}, {std::log(2)});
  ExpectFirst("XLog1pY(x, 1)", [](const Tensor& x) { return x.XLog1pY(1.); }, {0}, {std::log(2)});
}

TEST(GradPoints, WhereTheySaturate) {
  const std::vector<double> low = {-88, -89, -1000}, high = {88, 89, 1000};
  ExpectFirst("Sigmoid", [](const Tensor& x) { return x.Sigmoid(); }, {-1000, 1000}, {0, 0});
  ExpectFirst("Silu", [](const Tensor& x) { return x.Silu(); }, {-1000, 1000}, {0, 1});
  ExpectFirst("Swish", [](const Tensor& x) { return x.Swish(2); }, {-1000, 1000}, {0, 1});
  ExpectFirst("QuickGelu", [](const Tensor& x) { return x.QuickGelu(); }, {-1000, 1000}, {0, 1});
  ExpectFirst("Elu", [](const Tensor& x) { return x.Elu(); }, high, {1, 1, 1});
  ExpectFirst("Celu", [](const Tensor& x) { return x.Celu(); }, high, {1, 1, 1});
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32}) {
    const auto sigmoid = [](const Tensor& x) { return x.Sigmoid(); };
    ExpectNear(First(sigmoid, low, dtype), {0, 0, 0}, 1e-6);
  }
  const auto entropy = [](const Tensor& x) {
    return x.BinaryCrossEntropy(Tensor::From({1., 0., .5, 0., 1.}), kEach);
  };
  ExpectFirst("BinaryCrossEntropy", entropy, {1, 0, .5, 1, 0}, {-1, 1, 0, 0, 0});
  ExpectFirst("LpPool",
              [](const Tensor& x) {
                return x.Reshape({1, 1, 4}).LpPool(2, PoolOptions{.size = {2}});
              },
              {0, 0, 3, 4}, {0, 0, .6, .8});
  ExpectFirst("Norm(.5)", [](const Tensor& x) { return x.Norm(.5, {0}); }, {0, 1}, {0, 1});
  ExpectFirst("Norm(-1)", [](const Tensor& x) { return x.Norm(-1, {0}); }, {0, 0, 3}, {0, 0, 0});
}

TEST(GradPoints, SincNearZero) {
  const auto slope = [](double x) {
    const double t = std::numbers::pi * std::numbers::pi * x * x;
    return -std::numbers::pi * std::numbers::pi * x / 3 * (1 - t / 10 * (1 - t / 28));
  };
  const std::vector<double> at = {1e-5, 3e-4, -2e-3, 5e-324};
  ExpectFirst("Sinc", [](const Tensor& x) { return x.Sinc(); }, at,
              {slope(1e-5), slope(3e-4), slope(-2e-3), 0});
}

TEST(GradPoints, AtInfinity) {
  ExpectFirst("LogNdtr", [](const Tensor& x) { return x.LogNdtr(); }, {kInf, -kInf}, {0, kInf});
  ExpectFirst("Digamma", [](const Tensor& x) { return x.Digamma(); }, {kInf}, {0});
}

// 0.001 is somewhat more than that: it fits 249 times into 0.25, of which the quotient is rounded
// to 250.
TEST(GradPoints, RemaindersByTheirDivisor) {
  const std::vector<double> at = {.001, -.001, 100, kInf};
  ExpectNear(First([](const Tensor& x) { return Tensor::From({.25}).Cast(kFloat64).Fmod(x); }, at,
                   kFloat64),
             {-249, 249, 0, 0}, 0);
  ExpectNear(First([](const Tensor& x) { return Tensor::From({.25}).Cast(kFloat64).Mod(x); }, at,
                   kFloat64),
             {-249, 250, 0, 0}, 0);
}

TEST(GradPoints, Acosh) {
  EXPECT_EQ(First([](const Tensor& x) { return x.Acosh(); }, {1}, kFloat64)[0], kInf);
}

TEST(GradPoints, SecondDerivatives) {
  ExpectSecond("Softplus", [](const Tensor& x) { return x.Softplus(); }, {0, 1},
               {.25, 0.19661193324148185});
  ExpectSecond("Sigmoid", [](const Tensor& x) { return x.Sigmoid(); }, {0, -1},
               {0, 0.09085774767294841});
  ExpectSecond("Mish", [](const Tensor& x) { return x.Mish(); }, {0}, {.64});
  ExpectSecond("Norm", [](const Tensor& x) { return x.Norm(2, {0}); }, {1, 0, 2},
               {2 / std::pow(5, 1.5), std::pow(5, -.5), -1 / std::pow(5, 1.5)});
  ExpectSecond("Hypot", [](const Tensor& x) { return x.Hypot(1.); }, {0, 1, -1},
               {1, std::pow(2, -1.5), std::pow(2, -1.5)});
  ExpectSecond("HuberLoss", [](const Tensor& x) { return x.HuberLoss(Tensor::From({2.})); }, {2},
               {1});
  ExpectSecond("SmoothL1Loss",
               [](const Tensor& x) { return x.SmoothL1Loss(Tensor::From({2.}), .5); }, {2}, {2});
  ExpectSecond("Pow(x, b)",
               [](const Tensor& x) {
                 return x.Pow(Tensor::From({0., 1., 2.}));
               },
               {0, 0, 0}, {0, 0, 2});
  ExpectSecond("Pow(0, x)", [](const Tensor& x) { return x.ZerosLike().Pow(x); }, {1, 2}, {0, 0});
  ExpectSecond("LogAddExp", [](const Tensor& x) { return x.LogAddExp(0.); }, {0}, {.25});
}

TEST(GradPoints, SecondDerivativesOfProducts) {
  const auto prod = [](const Tensor& x) { return x.Prod(); };
  ExpectSecond("no zero", prod, {1, 2, 3, 4}, {26, 19, 14, 11});
  ExpectSecond("one zero", prod, {0, 2, 3, 4}, {26, 12, 8, 6});
  ExpectSecond("two zeros", prod, {0, 2, 0, 4}, {8, 0, 8, 0});
  ExpectSecond("three zeros", prod, {0, 2, 0, 0}, {0, 0, 0, 0});
  const auto rows = [](const Tensor& x) { return x.Reshape({2, 2}).Prod({1}); };
  ExpectSecond("rows", rows, {0, 2, 0, 0}, {1, 1, 1, 1});
  ExpectSecond("CumProd", [](const Tensor& x) { return x.CumProd(0); }, {1, 0, 3, 4},
               {16, 24, 5, 3});
  // Of two products, each of an element of the base and two updates.
  const auto scattered = [](const Tensor& x) {
    const Tensor index = Tensor::From({0, 1, 0, 1});
    return x.Slice({{0, 2}}).Scatter(0, index, x.Slice({{2, {}}}), ScatterMode::kMul);
  };
  ExpectSecond("Scatter", scattered, {1, 2, 3, 4, 5, 6}, {8, 10, 6, 8, 4, 6});
  ExpectSecond("Scatter at a zero", scattered, {0, 2, 3, 0, 5, 6}, {8, 6, 5, 8, 3, 2});
  ExpectSecond("Scatter at two zeros", scattered, {0, 0, 0, 0, 5, 6}, {5, 6, 5, 6, 0, 0});
  ExpectSecond("Scatter at three zeros", scattered, {0, 2, 0, 4, 0, 0}, {0, 4, 0, 2, 0, 6});
  ExpectSecond(
      "Sinc", [](const Tensor& x) { return x.Sinc(); }, {0, -0.0},
      {-std::numbers::pi * std::numbers::pi / 3, -std::numbers::pi * std::numbers::pi / 3});
}

// Where the product of the others is no number, 0 stays 0.
TEST(GradPoints, ProductsThatOverflow) {
  const auto first = [](const std::vector<float>& at, bool log) {
    const Tensor x = Tensor::From(at).Realize();
    const Tensor y = log ? x.Prod().Log() : x.Prod();
    return Grad(y, {x})[0].ToVector<float>();
  };
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(first({0, 1e30f, 1e30f}, false), ElementsAre(inf, 0, 0));
  EXPECT_THAT(first({0, 0, 1e30f, 1e30f}, false), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(first({0, 2}, true), ElementsAre(inf, 0));
  EXPECT_THAT(first({3, 2}, false), ElementsAre(2, 3));
}

// What a function gives stays what it was, at infinities too.
TEST(GradPoints, Values) {
  const Tensor x = Tensor::From({-kInf, -1e4, -0.0, 0., 1e4, kInf, kNan});
  ExpectNear(x.Sigmoid().ToVector<double>(), {0, 0, .5, .5, 1, 1, kNan});
  ExpectNear(x.Softplus().ToVector<double>(), {0, 0, M_LN2, M_LN2, 1e4, kInf, kNan});
  ExpectNear(x.Elu().ToVector<double>(), {-1, -1, 0, 0, 1e4, kInf, kNan});
  ExpectNear(x.Asinh().ToVector<double>(),
             {-kInf, -std::asinh(1e4), 0, 0, std::asinh(1e4), kInf, kNan});
  ExpectNear(x.Hypot(1.).ToVector<double>(),
             {kInf, std::hypot(1e4, 1), 1, 1, std::hypot(1e4, 1), kInf, kNan});
  ExpectNear(Tensor::From({-kInf, kInf, 3., kNan, 1.})
                 .LogAddExp(Tensor::From({-kInf, kInf, 3., 1., kNan}))
                 .ToVector<double>(),
             {-kInf, kInf, 3 + M_LN2, kNan, kNan});
  ExpectNear(Tensor::From({0., 0., 0., 0., 2.})
                 .XLogY(Tensor::From({0., -1., kInf, kNan, 1.}))
                 .ToVector<double>(),
             {0, 0, 0, kNan, 0});
}

TEST(GradPoints, RoundingIsDoneInWideFloats) {
  EXPECT_EQ(Tensor::From({30000.f}).Cast(kFloat16).RoundTo(1).Item(), 30000);
  EXPECT_EQ(Tensor::From({1e10f}).RoundTo(38).Item<float>(), 1e10f);
  EXPECT_ERROR(Tensor::From({1.5f}).RoundTo(400), "RoundTo", "at most 38 decimals, not 400");
  EXPECT_ERROR(Tensor::From({1.5f}).Celu(0), "Celu", "alpha, which is 0");
  EXPECT_ERROR(Tensor::From({1.5f}).Softplus(0, 20), "Softplus", "beta, which is 0");
}

// What is subtracted first cancels: of many numbers its own derivative, all of it at the largest,
// would be as much as theirs.
TEST(GradPoints, SoftmaxesOfManyNumbers) {
  const std::vector<double> numbers = Draw(100000, 5);
  double sum = 0;
  for (const double x : numbers) sum += std::exp(static_cast<float>(x));
  std::vector<double> want;
  for (const double x : numbers) want.push_back(std::exp(static_cast<float>(x)) / sum);
  const Tensor x = Tensor::From(numbers).Cast(kFloat32).Realize();
  const std::vector<double> got = Grad(x.LogSumExp(), {x})[0].Cast(kFloat64).ToVector<double>();
  const Tensor weighted = (x.Softmax(0) * Tensor::Ones({100000})).Sum();
  const std::vector<double> none = Grad(weighted, {x})[0].Cast(kFloat64).ToVector<double>();
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-5 * want[i]) << i;
    ASSERT_NEAR(none[i], 0, 1e-5 * want[i]) << i;
  }
}

TEST(GradPoints, OfTheFractionOfANumber) {
  const Function f = [](const Tensor& x) { return x.FrExp().first; };
  EXPECT_THAT(First(f, {3, -0.75, 40}, kFloat64), ElementsAre(0.25, 1, 1.0 / 64));
  const Function whole = [](const Tensor& x) { return x.FrExp().first * x.FrExp().second.Exp2(); };
  EXPECT_THAT(First(whole, {3, -0.75, 40}, kFloat64), ElementsAre(1, 1, 1));
}

}  // namespace
}  // namespace tessera
