// Random numbers of named distributions: their moments and shares within five deviations of the
// estimate, the same numbers wherever they are drawn, and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

constexpr int64_t kDraws = 40000;
const Dims kMany = {kDraws};

std::vector<double> Drawn(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }

// The mean and the variance of draws, and the share that is at most x.
void ExpectMoments(const std::vector<double>& draws, double mean, double variance) {
  const auto n = static_cast<double>(draws.size());
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : draws) {
    sum += v;
    squares += (v - mean) * (v - mean);
    fourth += std::pow(v - mean, 4);
  }
  EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
  const double spread = std::sqrt(std::max(fourth / n - variance * variance, 0.0) / n);
  EXPECT_NEAR(squares / n, variance, 6 * spread + 1e-12);
}

void ExpectShare(const std::vector<double>& draws, double x, double share) {
  const auto n = static_cast<double>(draws.size());
  const double below = static_cast<double>(
      std::count_if(draws.begin(), draws.end(), [x](double v) { return v <= x; }));
  EXPECT_NEAR(below / n, share, 5 * std::sqrt(share * (1 - share) / n) + 1e-9) << x;
}

TEST(Distributions, OfNumbers) {
  const double pi = std::numbers::pi, euler = 0.57721566490153286;
  Tensor::ManualSeed(1);
  for (const DType type : {kFloat32, kFloat64}) {
    SCOPED_TRACE(type.ToString());
    ExpectMoments(Drawn(Tensor::Laplace(1, 2, kMany, type)), 1, 8);
    ExpectMoments(Drawn(Tensor::Logistic(1, 2, kMany, type)), 1, 4 * pi * pi / 3);
    ExpectMoments(Drawn(Tensor::Gumbel(1, 2, kMany, type)), 1 + 2 * euler, 4 * pi * pi / 6);
    ExpectMoments(Drawn(Tensor::LogNormal(0.5, 0.25, kMany, type)), std::exp(0.53125),
                  std::expm1(0.0625) * std::exp(1.0625));
    const auto cauchy = Drawn(Tensor::Cauchy(1, 2, kMany, type));
    for (const double x : {-9.0, -1.0, 1.0, 2.5}) {
      ExpectShare(cauchy, x, 0.5 + std::atan((x - 1) / 2) / pi);
    }
  }
  const auto trials = Drawn(Tensor::Geometric(0.3, kMany));
  ExpectMoments(trials, 1 / 0.3, 0.7 / 0.09);
  ExpectShare(trials, 1, 0.3);
  EXPECT_EQ(*std::min_element(trials.begin(), trials.end()), 1);
  EXPECT_EQ(Drawn(Tensor::Geometric(1, {50}).Max())[0], 1);
}

TEST(Distributions, Truncated) {
  const auto share = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  struct Bounds {
    double low, high;
  };
  for (const auto [low, high] : {Bounds{-1, 2}, {3, 5}, {-kInf, -4}, {8, kInf}}) {
    SCOPED_TRACE(low);
    const auto draws = Drawn(Tensor::TruncatedNormal(1, 2, low, high, kMany, kFloat64));
    EXPECT_GE(*std::min_element(draws.begin(), draws.end()), low);
    EXPECT_LE(*std::max_element(draws.begin(), draws.end()), high);
    const double from = std::isinf(low) ? high - 2 : low, to = std::isinf(high) ? low + 2 : high;
    const double a = (low - 1) / 2, b = (high - 1) / 2, x = ((from + to) / 2 - 1) / 2;
    const double part = a > 0 ? (share(-a) - share(-x)) / (share(-a) - share(-b))
                              : (share(x) - share(a)) / (share(b) - share(a));
    ExpectShare(draws, (from + to) / 2, part);
  }
}

TEST(Distributions, Gamma) {
  Tensor::ManualSeed(2);
  for (const double a : {0.1, 0.7, 1.0, 2.5, 40.0}) {
    SCOPED_TRACE(a);
    ExpectMoments(Drawn(Tensor::Full({kDraws}, a).RandGamma()), a, a);
  }
  for (const auto& [a, b] : {std::pair(0.2, 0.4), {2.0, 3.0}, {0.5, 30.0}}) {
    SCOPED_TRACE(a);
    const auto draws = Drawn(Tensor::Full({kDraws}, a).RandBeta(b));
    ExpectMoments(draws, a / (a + b), a * b / (a + b) / (a + b) / (a + b + 1));
  }
  // Too small for gamma variates to be numbers, not for their shares.
  const auto tiny = Drawn(Tensor::Full({kDraws}, 1e-3).RandBeta(1e-3));
  ExpectShare(tiny, 0.5, 0.5);
  const auto rows = Drawn(Tensor::From({1.0f, 2.0f, 5.0f}).Expand({kDraws, 3}).RandDirichlet());
  std::vector<double> last;
  for (int64_t i = 0; i < kDraws; ++i) {
    EXPECT_NEAR(rows[3 * i] + rows[3 * i + 1] + rows[3 * i + 2], 1, 1e-6);
    last.push_back(rows[3 * i + 2]);
  }
  ExpectMoments(last, 5.0 / 8, 5.0 * 3 / 64 / 9);
  const auto bad = Drawn(Tensor::From({0.0, -1.0, kNan}).RandGamma());
  for (const double v : bad) EXPECT_TRUE(std::isnan(v));
}

// Each number's share, where there are enough of it.
void ExpectShares(const std::vector<double>& draws, const std::function<double(double)>& log_share,
                  double to) {
  const auto n = static_cast<double>(draws.size());
  for (double k = 0; k <= to; ++k) {
    const double share = std::exp(log_share(k));
    if (share * n < 20) continue;
    const auto count = static_cast<double>(std::count(draws.begin(), draws.end(), k));
    EXPECT_NEAR(count / n, share, 5.5 * std::sqrt(share * (1 - share) / n)) << k;
  }
}

TEST(Distributions, Poisson) {
  Tensor::ManualSeed(3);
  for (const double rate : {0.3, 4.0, 9.99, 10.0, 35.0, 1e4}) {
    SCOPED_TRACE(rate);
    const auto draws = Drawn(Tensor::Full({kDraws}, rate, kFloat64).RandPoisson());
    ExpectMoments(draws, rate, rate);
    ExpectShares(
        draws, [&](double k) { return k * std::log(rate) - rate - std::lgamma(k + 1); },
        std::min(rate * 4 + 10, 200.0));
  }
  const auto edges = Drawn(Tensor::From({0.0, -1.0, kNan}).RandPoisson());
  EXPECT_EQ(edges[0], 0);
  EXPECT_TRUE(std::isnan(edges[1]) && std::isnan(edges[2]));
}

TEST(Distributions, Binomial) {
  Tensor::ManualSeed(4);
  struct Trials {
    double n, p;
  };
  for (const auto [n, p] :
       {Trials{1, 0.3}, {10, 0.5}, {40, 0.9}, {40, 0.26}, {100, 0.5}, {1e6, 0.25}, {1e9, 1e-9}}) {
    SCOPED_TRACE(testing::Message() << n << " " << p);
    const auto draws = Drawn(Tensor::Full({kDraws}, n, kFloat64).RandBinomial(p));
    ExpectMoments(draws, n * p, n * p * (1 - p));
    if (n <= 100) {
      EXPECT_LE(*std::max_element(draws.begin(), draws.end()), n);
      const auto log_share = [n = n, p = p](double k) {
        return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) +
               (n - k) * std::log1p(-p);
      };
      ExpectShares(draws, log_share, n);
    }
  }
  const Tensor n = Tensor::From({5.0, 5.0, 0.0, 2.5, -1.0, 3.0});
  const auto edges = Drawn(n.RandBinomial(Tensor::From({0.0, 1.0, 0.5, 0.5, 0.5, 1.5})));
  EXPECT_EQ(edges[0], 0);
  EXPECT_EQ(edges[1], 5);
  EXPECT_EQ(edges[2], 0);
  for (int i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(edges[i]));
}

TEST(Distributions, Categories) {
  Tensor::ManualSeed(5);
  const double none = -kInf;
  const Tensor logits = Tensor::From({{0.0, std::log(3.0), none}, {none, none, none}});
  const auto drawn = Drawn(logits.Unsqueeze(0).Expand({4000, 2, 3}).Categorical());
  std::vector<double> first;
  for (int i = 0; i < 4000; ++i) {
    first.push_back(drawn[2 * i]);
    EXPECT_EQ(drawn[2 * i + 1], -1);
  }
  ExpectShare(first, 0, 0.25);
  ExpectShare(first, 1, 1);
  const Tensor rows = Tensor::Arange(10).Reshape({5, 2}).Cast(kFloat32);
  const auto chosen = Drawn(rows.Choice(5, false));
  std::vector<double> sorted;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(chosen[2 * i] + 1, chosen[2 * i + 1]);
    sorted.push_back(chosen[2 * i]);
  }
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, (std::vector<double>{0, 2, 4, 6, 8}));
  const auto weighted = Drawn(rows.Choice(50, true, Tensor::From({0.0, 1.0, 0.0, 0.0, 0.0})));
  EXPECT_EQ(*std::min_element(weighted.begin(), weighted.end()), 2);
  EXPECT_EQ(*std::max_element(weighted.begin(), weighted.end()), 3);
  EXPECT_EQ(rows.Choice(0).shape(), Shape({0, 2}));
}

// A waiting time of 0 has no sign.
TEST(Distributions, NoNegativeZero) {
  Tensor::ManualSeed(0);
  const Tensor waiting = Tensor::Exponential(2, {1 << 22}, kBFloat16);
  EXPECT_EQ((waiting == 0).Any().Item(), Tensor::Scalar(1).Item());
  EXPECT_EQ(waiting.SignBit().Any().Item(), 0);
}

// All draws there are, of parameters that lie somewhere.
std::vector<Tensor> All(const Device& device) {
  Tensor::ManualSeed(9);
  const Tensor p = (Tensor::Arange(14).Reshape({7, 2}).Cast(kFloat64) * 1.5 + 0.5).To(device);
  const Tensor share = p / 25;
  const Dims shape = {7, 2};
  std::vector<Tensor> out = {Tensor::Laplace(0, 1, shape),
                             Tensor::Logistic(0, 1, shape),
                             Tensor::Gumbel(0, 1, shape),
                             Tensor::Cauchy(0, 1, shape),
                             Tensor::LogNormal(0, 1, shape),
                             Tensor::Geometric(0.2, shape),
                             Tensor::TruncatedNormal(0, 1, -1, 3, shape)};
  for (Tensor& t : out) t = t.To(device);
  for (const Tensor& t :
       {p.RandGamma(), p.RandBeta(share), p.RandDirichlet(), p.RandPoisson(),
        (p * 8).RandBinomial(share), p.Categorical(0), p.Choice(5), p.Choice(5, false)}) {
    out.push_back(t);
  }
  return out;
}

TEST(Distributions, TheSameOnAnyPlaces) {
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1), Place("CPU", 2)});
  const std::vector<Tensor> alone = All(Place("CPU", 0));
  for (const int axis : {0, 1}) {
    const std::vector<Tensor> spread = All(Sharding(places, axis));
    ASSERT_EQ(spread.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(Drawn(spread[i]), Drawn(alone[i]), 1e-12);
    }
  }
  // And as the reference evaluator gives them, and a captured step.
  const std::vector<Tensor> again = All({});
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectNear(Values(again[i].Cast(kFloat64)), Drawn(alone[i]), 1e-5);
  }
  Tensor::ManualSeed(9);
  const Tensor rate = Tensor::Full({30}, 3.0);
  Jit step([&](const std::vector<Tensor>&) { return rate.RandPoisson() + rate.RandGamma(); });
  const auto first = Drawn(step.One({})), second = Drawn(step.One({}));
  Tensor::ManualSeed(9);
  EXPECT_EQ(Drawn(rate.RandPoisson() + rate.RandGamma()), first);
  EXPECT_EQ(Drawn(rate.RandPoisson() + rate.RandGamma()), second);
}

TEST(Distributions, Refuse) {
  const Dims shape = {2};
  EXPECT_ERROR(Tensor::Laplace(0, 0, shape), "Laplace", "scale above 0");
  EXPECT_ERROR(Tensor::Gumbel(0, 1, shape, kInt32), "Gumbel", "gives floats");
  EXPECT_ERROR(Tensor::Logistic(0, kInf, shape), "Logistic", "finite scale");
  EXPECT_ERROR(Tensor::Cauchy(0, -1, shape), "Cauchy", "scale");
  EXPECT_ERROR(Tensor::LogNormal(0, 1, shape, kInt32), "LogNormal", "floats");
  EXPECT_ERROR(Tensor::TruncatedNormal(0, 1, 2, 2, shape), "TruncatedNormal", "in order");
  EXPECT_ERROR(Tensor::TruncatedNormal(0, 1, 50, 60, shape), "TruncatedNormal", "too far");
  EXPECT_ERROR(Tensor::Geometric(0, shape), "Geometric", "probability");
  EXPECT_ERROR(Tensor::Ones({3}).Choice(4, false), "Choice", "each once");
  EXPECT_ERROR(Tensor::Ones({3}).Choice(1, true, Tensor::Ones({2})), "Choice", "weights");
}

}  // namespace
}  // namespace tessera
