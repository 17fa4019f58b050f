// Composed elementwise functions against the C library, at special values too.
#include <cmath>
#include <functional>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

const std::vector<double>& Points() {
  static const std::vector<double> points = {0.0,   -0.0, 1,     -1,   0.5,   -0.5, 2.5,
                                             -2.5,  30,   -30,   1e-9, -1e-9, 1e10, -1e10,
                                             1e200, -3,   0.875, kInf, -kInf, kNan, 1e-300};
  return points;
}

void Check(const Tensor& got, const std::function<double(double)>& f, double tolerance = 1e-13) {
  const auto values = Values(got);
  ASSERT_EQ(values.size(), Points().size());
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(Points()[i]);
    const double want = f(Points()[i]);
    ExpectNear({values[i]}, {want}, tolerance);
    if (want == 0) {
      EXPECT_EQ(std::signbit(values[i]), std::signbit(want));
    }
  }
}

// Every pair of points.
void CheckPairs(const std::function<Tensor(const Tensor&, const Tensor&)>& of,
                const std::function<double(double, double)>& f, double tolerance = 1e-13) {
  const Tensor a = Tensor::From(Points());
  const auto values = Values(of(a.Unsqueeze(1), a));
  for (size_t i = 0, next = 0; i < Points().size(); ++i) {
    for (size_t j = 0; j < Points().size(); ++j, ++next) {
      SCOPED_TRACE(testing::Message() << Points()[i] << ", " << Points()[j]);
      const double want = f(Points()[i], Points()[j]);
      ExpectNear({values[next]}, {want}, tolerance);
    }
  }
}

TEST(TensorSpecial, OfOneOperand) {
  const Tensor x = Tensor::From(Points());
  Check(x.Asinh(), [](double v) { return std::asinh(v); });
  Check(x.Acosh(), [](double v) { return std::acosh(v); });
  Check(x.Atanh(), [](double v) { return std::atanh(v); });
  Check(x.Frac(), [](double v) { return std::isinf(v) ? kNan : v - std::trunc(v); });
  Check(
      x.Sinc(), [](double v) { return v == 0 ? 1 : std::sin(M_PI * v) / (M_PI * v); }, 1e-12);
  Check(x.Erfc(), [](double v) { return std::erfc(v); });
  Check(x.SignBit(), [](double v) { return std::signbit(v) ? 1.0 : 0.0; });
  Check(x.IsPosInf(), [](double v) { return v == kInf ? 1.0 : 0.0; });
  Check(x.IsNegInf(), [](double v) { return v == -kInf ? 1.0 : 0.0; });
  Check(x.Logit(), [](double v) { return std::log(v) - std::log1p(-v); });
  Check(x.Logit(0.25), [](double v) {
    const double c = std::isnan(v) ? v : std::fmin(std::fmax(v, 0.25), 0.75);
    return std::log(c / (1 - c));
  });
  // Small and large numbers of the narrower floats.
  for (double v : {1e-4, 0.3, 2.0, 1e4, 6e4}) {
    const Tensor h = Tensor::Full({1}, v, kFloat16);
    const double rounded = Values(h)[0];
    ExpectNear(Values(h.Asinh()), {std::asinh(rounded)}, 2e-3);
    const Tensor f = Tensor::Full({1}, v * 1e34, kFloat32);
    ExpectNear(Values(f.Asinh()), {std::asinh(Values(f)[0])}, 1e-6);
    ExpectNear(Values(f.Acosh()), {std::acosh(Values(f)[0])}, 1e-6);
  }
  EXPECT_EQ(Tensor::From({1, 2}).Asinh().dtype(), kFloat32);
  EXPECT_THAT(Values(Tensor::From({-1, 2}).SignBit()), ElementsAre(1, 0));
  EXPECT_THAT(Values(Tensor::From({1, 2}).Cast(kUInt8).SignBit()), ElementsAre(0, 0));
}

// f32 by other means than f64, to its last bit.
TEST(TensorSpecial, InverseErrorFunction) {
  std::vector<double> points = {0.0, -0.0, 1e-30f, 0.99f, 1 - 0x1p-24, -1 + 0x1p-24};
  for (int i = -99; i < 100; ++i) points.push_back(static_cast<float>(i * 0.01));
  const Tensor x = Tensor::From(points);
  const auto wide = Values(x.ErfInv()), narrow = Values(x.Cast(kFloat32).ErfInv());
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_NEAR(std::erf(wide[i]), points[i], 1e-14) << points[i];
    EXPECT_NEAR(narrow[i], wide[i], 0.7 * 0x1p-23 * std::abs(wide[i])) << points[i];
    EXPECT_EQ(std::signbit(narrow[i]), std::signbit(points[i]));
  }
  for (const DType type : {kFloat64, kFloat32}) {
    const auto edge = Values(Tensor::From({1.0, -1.0, 1.5, kNan}).Cast(type).ErfInv());
    EXPECT_THAT(edge, ElementsAre(kInf, -kInf, ::testing::IsNan(), ::testing::IsNan()));
  }
}

TEST(TensorSpecial, LogarithmOfTheGammaFunction) {
  Check(
      Tensor::From(Points()).Lgamma(), [](double v) { return std::lgamma(v); }, 1e-12);
}

TEST(TensorSpecial, OfTwoOperands) {
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.Atan2(b); },
             [](double a, double b) { return std::atan2(a, b); });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.Hypot(b); },
             [](double a, double b) { return std::hypot(a, b); });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.CopySign(b); },
             [](double a, double b) { return std::copysign(a, b); });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.LogAddExp(b); },
             [](double a, double b) {
               if (std::isnan(a) || std::isnan(b)) return kNan;
               const double most = std::max(a, b), least = std::min(a, b);
               return std::isinf(most) ? most : most + std::log1p(std::exp(least - most));
             });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.XLogY(b); },
             [](double a, double b) { return a == 0 && !std::isnan(b) ? 0 : a * std::log(b); });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.Heaviside(b); },
             [](double a, double b) {
               return std::isnan(a) ? a : a == 0 ? b : a > 0 ? 1 : 0;
             });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.Remainder(b); },
             [](double a, double b) {
               const double r = std::fmod(a, b);
               return r != 0 && (r < 0) != (b < 0) ? r + b : r;
             });
  CheckPairs([](const Tensor& a, const Tensor& b) { return a.IsClose(b, 0.5, 0.1); },
             [](double a, double b) {
               return a == b || (std::isfinite(b) && std::fabs(a - b) <= 0.1 + 0.5 * std::fabs(b));
             });
  const Tensor nan = Tensor::From({kNan, 1.0}, kFloat32);
  EXPECT_THAT(Values(nan.AllClose(nan)), ElementsAre(0));
  EXPECT_THAT(Values(nan.AllClose(nan, 1e-5, 1e-8, true)), ElementsAre(1));
  EXPECT_THAT(Values(Tensor::From({1, 5, 9}).Clamp(Tensor::From({2, 2, 2}), 6)),
              ElementsAre(2, 5, 6));
  EXPECT_THAT(Values(Tensor::From({1, 5}).MaskedFill(Tensor::From({true, false}), 7)),
              ElementsAre(7, 5));
  EXPECT_ERROR(nan.MaskedFill(nan, 1), "MaskedFill", "must be bool");
  EXPECT_EQ(Tensor::From({1, 2}).Atan2(Tensor::From({1, 2})).dtype(), kFloat32);
}

TEST(TensorSpecial, Activations) {
  const Tensor x = Tensor::From(Points());
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  Check(x.Celu(2), [](double v) { return v > 0 || std::isnan(v) ? v : 2 * std::expm1(v / 2); });
  Check(x.Selu(), [](double v) {
    return 1.0507009873554805 * (v > 0 || std::isnan(v) ? v : 1.6732632423543772 * std::expm1(v));
  });
  Check(x.Swish(2), [](double v) { return v / (1 + std::exp(-2 * v)); });
  Check(x.Softsign(), [](double v) { return v / (1 + std::fabs(v)); });
  Check(x.Softshrink(0.5), [](double v) {
    return std::fabs(v) <= 0.5 ? 0 : v > 0 ? v - 0.5 : v + 0.5;
  });
  Check(x.Hardshrink(0.5), [](double v) { return std::fabs(v) <= 0.5 ? 0 : v; });
  Check(x.Tanhshrink(), [](double v) { return v - std::tanh(v); });
  Check(x.Hardtanh(-0.5, 2),
        [](double v) { return std::isnan(v) ? v : std::fmin(std::fmax(v, -0.5), 2.0); });
  Check(x.ThresholdedRelu(0.5), [](double v) { return v <= 0.5 ? 0 : v; });
  Check(x.Prelu(Tensor::Scalar(0.25, kFloat64)), [](double v) { return v < 0 ? v * 0.25 : v; });
  const Tensor row = Tensor::From({1.0, 2.0, 0.5, -1.0}, kFloat64);
  ExpectNear(Values(row.Glu()), {sigmoid(0.5), 2 * sigmoid(-1)}, 1e-14);
  EXPECT_THAT(Values(Tensor::From({{3, 3, 1}, {0, 1, 2}}).Hardmax()),
              ElementsAre(1, 0, 0, 0, 0, 1));
  EXPECT_ERROR(row.SliceAxis(0, {0, 3}).Glu(), "Glu", "has no halves");
  EXPECT_ERROR(row.Prelu(Tensor::Zeros({2, 4})), "Prelu", "does not broadcast");
  EXPECT_ERROR(row.Hardtanh(1, 0), "Hardtanh", "no order");
}

TEST(TensorSpecial, Reductions) {
  const Tensor x = Tensor::From({{3.0, -4.0}, {kNan, 0.0}}, kFloat64);
  ExpectNear(Values(x[0].Norm()), {5});
  ExpectNear(Values(x[0].Norm(1)), {7});
  ExpectNear(Values(x[0].Norm(3)), {std::cbrt(27.0 + 64)});
  ExpectNear(Values(x[0].Norm(kInf)), {4});
  ExpectNear(Values(x[0].Norm(-kInf)), {3});
  ExpectNear(Values(x.Norm(0, 1)), {2, 1});
  ExpectNear(Values(x.NanSum(0)), {3, -4});
  ExpectNear(Values(x.NanMean(1, true)), {-0.5, 0});
  ExpectNear(Values(x.NanMax(0)), {3, 0});
  ExpectNear(Values(x.NanMin()), {-4});
  ExpectNear(Values(Tensor::From({kNan, kNan}, kFloat32).NanMax()), {kNan});
  ExpectNear(Values(Tensor::From({kNan, -kInf}, kFloat32).NanMax()), {-kInf});
  ExpectNear(Values(Tensor::From({kNan}, kFloat32).NanMean()), {kNan});
  ExpectNear(Values(Tensor::From({kNan}, kFloat32).NanSum()), {0});
  EXPECT_THAT(Values(x.CountNonzero(0)), ElementsAre(2, 1));
  EXPECT_THAT(Values(Tensor::From({3, 0, 2}).NanMax()), ElementsAre(3));
  const auto [variance, mean] = Tensor::From({1, 2, 3, 6}).VarMean({}, 0);
  ExpectNear(Values(variance), {3.5});
  ExpectNear(Values(mean), {3});
}

// ---- random

TEST(TensorRandom, OrdersAndDraws) {
  Tensor::ManualSeed(5);
  const auto order = Values(Tensor::Permutation(500));
  std::vector<double> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  int64_t fixed = 0;
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(sorted[i], i);
    fixed += order[i] == i;
  }
  EXPECT_LT(fixed, 10);
  Tensor::ManualSeed(5);
  EXPECT_EQ(Values(Tensor::Permutation(500)), order);
  EXPECT_NE(Values(Tensor::Permutation(500)), order);
  const Tensor rows = Tensor::Arange(12).Reshape({6, 2});
  const auto shuffled = Values(rows.Shuffle());
  double sum = 0;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(shuffled[2 * i] + 1, shuffled[2 * i + 1]);
    sum += shuffled[2 * i];
  }
  EXPECT_EQ(sum, 30);

  // Frequencies within five deviations.
  const Tensor p = Tensor::Full({4000}, 0.3);
  const double ones = Values(p.Bernoulli().Sum())[0];
  EXPECT_NEAR(ones, 1200, 5 * std::sqrt(4000 * 0.21));
  const Tensor dropped = Tensor::Ones({4000}).Dropout(0.25);
  const auto kept = Values(dropped);
  int64_t zeros = 0;
  for (double v : kept) {
    zeros += v == 0;
    EXPECT_TRUE(v == 0 || std::fabs(v - 4.0 / 3) < 1e-6);
  }
  EXPECT_NEAR(static_cast<double>(zeros), 1000, 5 * std::sqrt(4000 * 0.1875));
  EXPECT_EQ(Values(Tensor::Ones({50}).Dropout(1).Sum())[0], 0);
  EXPECT_EQ(Values(Tensor::Ones({50}).Dropout(0).Sum())[0], 50);

  const Tensor weights = Tensor::From({{0.0, 1.0, 3.0, 0.0}, {5.0, 0.0, 0.0, 0.0}}, kFloat32);
  const auto drawn = Values(weights.Multinomial(2000));
  int64_t of_two = 0;
  for (int i = 0; i < 2000; ++i) {
    EXPECT_TRUE(drawn[i] == 1 || drawn[i] == 2);
    of_two += drawn[i] == 2;
    EXPECT_EQ(drawn[2000 + i], 0);
  }
  EXPECT_NEAR(static_cast<double>(of_two), 1500, 5 * std::sqrt(2000 * 0.1875));
  // Where no weight is left there is no position; what is below 0 has no share.
  EXPECT_EQ(Values(Tensor::Zeros({4}).Multinomial(1))[0], -1);
  EXPECT_EQ(Tensor::Zeros({0, 0}).Solve(Tensor::Zeros({0, 3})).shape(), Shape({0, 3}));
  const Tensor endless = Tensor::From({0.0f, 1.0f, INFINITY, 2.0f});
  for (double at : Values(endless.Multinomial(20))) EXPECT_EQ(at, 2);
  for (const bool replacement : {true, false}) {
    EXPECT_EQ(Values(Tensor::From({-5.0, kNan, 1.0, -1.0}).Multinomial(1, replacement))[0], 2);
    EXPECT_EQ(Values(Tensor::From({-5.0, kNan, -1.0}).Multinomial(1, replacement))[0], -1);
  }
  const auto once = Values(Tensor::From({1.0, 0.0, 2.0, 3.0}, kFloat32).Multinomial(3, false));
  EXPECT_THAT(once, ::testing::UnorderedElementsAre(0, 2, 3));
  // No weight is no place, and where too few have one the rest is -1.
  for (int i = 0; i < 20; ++i) {
    const auto few = Values(weights.Multinomial(3, false));
    EXPECT_THAT(std::vector<double>(few.begin(), few.begin() + 3),
                ::testing::UnorderedElementsAre(1, 2, -1));
    EXPECT_THAT(std::vector<double>(few.begin() + 3, few.end()), ::testing::ElementsAre(0, -1, -1));
  }
  EXPECT_ERROR(weights.Multinomial(5, false), "Multinomial", "each once");
  EXPECT_ERROR(weights.Dropout(2), "Dropout", "probability");
  EXPECT_ERROR(Tensor::Permutation(-1), "Permutation", "-1");
}

}  // namespace
}  // namespace tessera
