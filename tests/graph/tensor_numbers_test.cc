// Functions of whole numbers and of the bits of floats, against the C library, in several dtypes.
#include <bit>
#include <cmath>
#include <numeric>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

const std::vector<float>& Floats() {
  static const std::vector<float> all = {0.0f,
                                         -0.0f,
                                         1.0f,
                                         -1.0f,
                                         1.5f,
                                         -0.75f,
                                         3e38f,
                                         -3e38f,
                                         1e-45f,
                                         -1e-45f,
                                         1.2e-38f,
                                         0.125f,
                                         1000.0f,
                                         2e-40f,
                                         7.0f,
                                         static_cast<float>(kInf),
                                         -static_cast<float>(kInf),
                                         static_cast<float>(kNan)};
  return all;
}

void ExpectSame(double got, double want) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << got;
    return;
  }
  EXPECT_EQ(got, want);
  EXPECT_EQ(std::signbit(got), std::signbit(want));
}

TEST(TensorNumbers, NextAfter) {
  const Tensor x = Tensor::From(Floats());
  const auto values = Values(x.Unsqueeze(1).NextAfter(x));
  size_t next = 0;
  for (const float a : Floats()) {
    for (const float b : Floats()) {
      SCOPED_TRACE(testing::Message() << a << " towards " << b);
      ExpectSame(values[next++], std::nextafterf(a, b));
    }
  }
  // Of 16 bits: one unit in the last place.
  const auto narrow = [](double v, double to, DType t) {
    return Values(Tensor::Full({1}, v, t).NextAfter(Tensor::Full({1}, to, t)))[0];
  };
  EXPECT_EQ(narrow(1, 2, kFloat16), 1 + 0x1p-10);
  EXPECT_EQ(narrow(1, 0, kBFloat16), 1 - 0x1p-8);
  EXPECT_EQ(narrow(-1, -2, kBFloat16), -1 - 0x1p-7);
  EXPECT_EQ(narrow(0, -1, kFloat16), -0x1p-24);
}

TEST(TensorNumbers, LdExpAndFrExp) {
  const Tensor x = Tensor::From(Floats());
  const std::vector<int64_t> powers = {0, 1, -1, 126, -126, 150, -149, 277, -277, 100000, -100000};
  const auto scaled = Values(x.Unsqueeze(1).LdExp(Tensor::From(powers)));
  const auto [fraction, power] = x.FrExp();
  const auto fractions = Values(fraction), exponents = Values(power);
  size_t next = 0;
  for (size_t i = 0; i < Floats().size(); ++i) {
    SCOPED_TRACE(Floats()[i]);
    for (const int64_t k : powers) {
      ExpectSame(scaled[next++], std::ldexp(Floats()[i], static_cast<int>(k)));
    }
    int want = 0;
    ExpectSame(fractions[i], std::frexp(Floats()[i], &want));
    if (std::isfinite(Floats()[i])) {
      EXPECT_EQ(exponents[i], want);
    }
  }
  EXPECT_EQ(Values(Tensor::Full({1}, 3, kInt32).LdExp(2))[0], 12);  // whole numbers as f32
  // By parts of powers, of which none between is too large or too small.
  const Tensor wide = Tensor::From<double>({1.5, -3, 0, 1e-300, 1e300, 1, 1, 0, 2});
  const Tensor parts = Tensor::From<double>({0.5, -1.25, 3, 1500.5, -1500.5, kInf, -kInf, kNan, 9});
  const auto got = Values(wide.LdExp(parts));
  const std::vector<double> want = {2.121320343559643,
                                    -1.2613446228805718,
                                    0,
                                    1e-300 * 0x1p750 * 0x1p750 * std::sqrt(2.),
                                    1e300 * 0x1p-750 * 0x1p-750 / std::sqrt(2.),
                                    kInf,
                                    0,
                                    kNan,
                                    1024};
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) {
      EXPECT_NEAR(got[i] / (want[i] == 0 ? 1 : want[i]), want[i] == 0 ? 0 : 1, 1e-14) << i;
    } else {
      ExpectSame(got[i], want[i]);
    }
  }
  EXPECT_EQ(wide.Cast(kFloat32).LdExp(0.5).dtype(), kFloat32);
  EXPECT_EQ(Values(Tensor::Full({1}, 8.).LdExp(-0.5))[0], std::sqrt(32.f));
}

TEST(TensorNumbers, DivisorsOfEveryPairOfBytes) {
  const Tensor all = Tensor::Arange(256).Cast(kInt8), by = all.Unsqueeze(1);
  const auto gcd = Values(by.Gcd(all)), lcm = Values(by.Lcm(all)), ones = Values(all.PopCount());
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(ones[i], std::popcount(static_cast<uint8_t>(i)));
    for (int j = 0; j < 256; ++j) {
      const int a = static_cast<int8_t>(i), b = static_cast<int8_t>(j);
      ASSERT_EQ(gcd[i * 256 + j], static_cast<int8_t>(std::gcd(a, b))) << a << ", " << b;
      const auto least = static_cast<uint8_t>(std::lcm(a, b));
      ASSERT_EQ(lcm[i * 256 + j], static_cast<int8_t>(least)) << a << ", " << b;
    }
  }
  EXPECT_EQ(Values(Tensor::Full({1}, true).PopCount())[0], 1);
  EXPECT_EQ(Values(Tensor::Full({1}, -1, kInt64).PopCount())[0], 64);
  // Neighbours in Fibonacci's sequence take the most steps.
  EXPECT_EQ(Values(Tensor::Full({1}, int64_t{7540113804746346429}, kInt64)
                       .Gcd(Tensor::Full({1}, int64_t{4660046610375530309}, kInt64)))[0],
            1);
}

// Rounding to places after the point, and before it.
TEST(TensorNumbers, RoundTo) {
  const Tensor x = Tensor::From(std::vector<double>{1.255, -0.125, 1234.5, kInf, kNan});
  ExpectNear(Values(x.RoundTo(1)), {1.3, -0.1, 1234.5, kInf, kNan});
  ExpectNear(Values(x.RoundTo(-2)), {0, -0.0, 1200, kInf, kNan});
  EXPECT_EQ(Values(Tensor::Full({1}, 7).RoundTo(3))[0], 7);
}

TEST(TensorNumbers, ANumberWinsOverNan) {
  const Tensor x = Tensor::From(Floats());
  const auto most = Values(x.Unsqueeze(1).FMax(x)), least = Values(x.Unsqueeze(1).FMin(x));
  size_t next = 0;
  for (const float a : Floats()) {
    for (const float b : Floats()) {
      ExpectNear({most[next]}, {std::fmax(a, b)});
      ExpectNear({least[next++]}, {std::fmin(a, b)});
    }
  }
}

TEST(TensorNumbers, DetachKeepsBitsAndHasNoDerivative) {
  const Tensor x = Tensor::From(Floats());
  const auto values = Values(x.Detach());
  for (size_t i = 0; i < Floats().size(); ++i) ExpectSame(values[i], Floats()[i]);
  const Tensor y = Tensor::From({2.0, 3.0}).To("CPU");
  EXPECT_EQ(Values(Grad((y * y.Detach()).Sum(), {y})[0]), (std::vector<double>{2, 3}));
  EXPECT_TRUE(Tensor::Zeros({2}, kInt32).Detach().dtype() == kInt32);
}

// Mod has the sign of its divisor, also where it is 0, and the derivative 1.
TEST(TensorNumbers, ZerosOfMod) {
  const Tensor a = Tensor::From({0.0, -0.0, 0.0, -0.0, 6.0, -6.0, -1.0}).To("CPU");
  const Tensor b = Tensor::From({-2.0, 2.0, 2.0, -2.0, -3.0, 3.0, kInf});
  const std::vector<double> want = {-0.0, 0.0, 0.0, -0.0, -0.0, 0.0, kInf};
  const auto got = Values(a.Mod(b));
  for (size_t i = 0; i < want.size(); ++i) ExpectSame(got[i], want[i]);
  EXPECT_EQ(Values(Grad(a.Mod(b).Sum(), {a})[0]), std::vector<double>(7, 1));
}

// Draws have the mean and the spread that they are to have, and lie where they may.
TEST(TensorNumbers, Draws) {
  Tensor::ManualSeed(17);
  const int64_t n = 4000;
  const auto mean = [](const Tensor& t) { return Values(t.Mean())[0]; };
  const Tensor waiting = Tensor::Exponential(2, {n});
  EXPECT_NEAR(mean(waiting), 0.5, 0.03);
  EXPECT_GE(Values(waiting.Min())[0], 0);
  const Tensor normal = Tensor::Normal(3, 2, {n});
  EXPECT_NEAR(mean(normal), 3, 0.15);
  EXPECT_NEAR(Values(normal.Std())[0], 2, 0.1);
  EXPECT_NEAR(Values(Tensor::KaimingNormal({100, 40}, 0).Std())[0], std::sqrt(2.0 / 40), 0.02);
  EXPECT_LE(Values(Tensor::KaimingUniform({100, 40}, 1).Abs().Max())[0], std::sqrt(3.0 / 40));
  EXPECT_LE(Values(Tensor::GlorotUniform({100, 50}).Abs().Max())[0], std::sqrt(6.0 / 150));
  // Of the last axis, as often as its probabilities say.
  const Tensor logits = Tensor::From({0.0, std::log(3.0)}).Expand({n, 2});
  EXPECT_NEAR(mean(logits.GumbelSoftmax(1, /*hard=*/true).Select(1, 1)), 0.75, 0.03);
  const Tensor channels = Tensor::Ones({200, 20, 3}).DropoutChannels(0.25);
  EXPECT_NEAR(mean(channels), 1, 0.05);
  EXPECT_EQ(Values(channels.Ptp(2).Max())[0], 0);
  const Tensor slopes = Tensor::Full({n}, -1.0).RRelu(0.1, 0.3).Neg();
  EXPECT_NEAR(mean(slopes), 0.2, 0.01);
  EXPECT_GE(Values(slopes.Min())[0], 0.1f);
}

TEST(TensorNumbers, InterpAtEqualAndInfinitePoints) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto of = [](const std::vector<double>& at, const std::vector<double>& x,
                     const std::vector<double>& y) {
    return Tensor::From(at).Interp(Tensor::From(x), Tensor::From(y)).ToVector<double>();
  };
  using Values = std::vector<double>;
  EXPECT_EQ(of({0.5, 1, 2, 3}, {0, 1, 1}, {0, 1, 5}), Values({0.5, 5, 5, 5}));
  EXPECT_EQ(of({-1, 0, 0.5}, {0, 0, 1}, {2, 4, 6}), Values({2, 4, 5}));
  EXPECT_EQ(of({0, 1}, {0, 2}, {0, inf}), Values({0, inf}));
  EXPECT_EQ(of({-3, 7}, {1}, {4}), Values({4, 4}));
}

}  // namespace
}  // namespace tessera
