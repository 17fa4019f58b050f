// Elementwise functions of every dtype, compiled and run, against the reference evaluator.
#include <cmath>
#include <limits>

#include "tests/support/check.h"

namespace tessera {
namespace {

constexpr DType kAll[] = {kBool,       kInt8,    kInt16,    kInt32,   kInt64,
                          kUInt8,      kUInt16,  kUInt32,   kUInt64,  kFloat8E4M3,
                          kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64};

// Limits, zeros, subnormals and ordinary values of a dtype.
std::vector<Scalar> SpecialValues(DType t) {
  std::vector<Scalar> out;
  if (t.IsFloat()) {
    const double inf = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (double d : {0.0,
                     -0.0,
                     1.0,
                     -1.0,
                     0.5,
                     -1.5,
                     2.0,
                     2.5,
                     3.0,
                     -7.25,
                     100.0,
                     1e-3,
                     0.1,
                     inf,
                     -inf,
                     nan,
                     448.0,
                     65504.0,
                     1e30,
                     -3.4028234663852886e38,
                     1e-40,
                     -1e-45,
                     5.9604644775390625e-8,
                     3e9,
                     -3e9,
                     1e19,
                     0x1p-14,
                     88.7,
                     127.5,
                     128.0}) {
      out.push_back(Convert(Scalar::Float(d), kFloat64, t));
    }
  } else {
    for (int64_t i : {int64_t{0},         int64_t{1},         int64_t{2},          int64_t{3},
                      int64_t{-1},        int64_t{-2},        int64_t{5},          int64_t{7},
                      int64_t{-7},        int64_t{31},        int64_t{32},         int64_t{63},
                      int64_t{64},        int64_t{100},       int64_t{127},        int64_t{-128},
                      int64_t{255},       int64_t{32767},     int64_t{-32768},     int64_t{65535},
                      int64_t{INT32_MAX}, int64_t{INT32_MIN}, int64_t{UINT32_MAX}, INT64_MAX,
                      INT64_MIN}) {
      out.push_back(Convert(Scalar::Int(i), kInt64, t));
    }
  }
  return out;
}

Tensor Of(const std::vector<Scalar>& values, DType t, const Dims& shape) {
  std::vector<uint8_t> bytes(values.size() * t.bytes());
  for (size_t i = 0; i < values.size(); ++i) StoreScalar(&bytes[i * t.bytes()], t, values[i]);
  return Tensor::FromBytes(bytes.data(), shape, t);
}

Tensor Specials(DType t, bool column = false) {
  const std::vector<Scalar> v = SpecialValues(t);
  const auto n = static_cast<int64_t>(v.size());
  return column ? Of(v, t, {n, 1}) : Of(v, t, {n});
}

// Every unary function that the dtype takes, as outputs of one plan.
TEST(OpsElementwise, UnaryOnSpecialValues) {
  using Unary = Tensor (*)(const Tensor&);
  const Unary functions[] = {
      [](const Tensor& x) { return x.Neg(); },        [](const Tensor& x) { return x.Abs(); },
      [](const Tensor& x) { return x.Sign(); },       [](const Tensor& x) { return x.Square(); },
      [](const Tensor& x) { return x.Reciprocal(); }, [](const Tensor& x) { return x.Sqrt(); },
      [](const Tensor& x) { return x.Rsqrt(); },      [](const Tensor& x) { return x.Exp(); },
      [](const Tensor& x) { return x.Exp2(); },       [](const Tensor& x) { return x.Expm1(); },
      [](const Tensor& x) { return x.Log(); },        [](const Tensor& x) { return x.Log2(); },
      [](const Tensor& x) { return x.Log10(); },      [](const Tensor& x) { return x.Log1p(); },
      [](const Tensor& x) { return x.Sin(); },        [](const Tensor& x) { return x.Cos(); },
      [](const Tensor& x) { return x.Tan(); },        [](const Tensor& x) { return x.Asin(); },
      [](const Tensor& x) { return x.Acos(); },       [](const Tensor& x) { return x.Atan(); },
      [](const Tensor& x) { return x.Sinh(); },       [](const Tensor& x) { return x.Cosh(); },
      [](const Tensor& x) { return x.Tanh(); },       [](const Tensor& x) { return x.Erf(); },
      [](const Tensor& x) { return x.Floor(); },      [](const Tensor& x) { return x.Ceil(); },
      [](const Tensor& x) { return x.Trunc(); },      [](const Tensor& x) { return x.Round(); },
      [](const Tensor& x) { return x.LogicalNot(); }, [](const Tensor& x) { return x.BitNot(); },
      [](const Tensor& x) { return x.IsNan(); },      [](const Tensor& x) { return x.IsInf(); },
      [](const Tensor& x) { return x.IsFinite(); },   [](const Tensor& x) { return x.NanToNum(); },
      [](const Tensor& x) { return x.Relu(); },       [](const Tensor& x) { return x.Sigmoid(); },
      [](const Tensor& x) { return x.Silu(); },       [](const Tensor& x) { return x.Gelu(); },
      [](const Tensor& x) { return x.Softplus(); },   [](const Tensor& x) { return x.Elu(); },
      [](const Tensor& x) { return x.Mish(); },       [](const Tensor& x) { return x.HardSwish(); },
  };
  Compared compared;
  for (DType t : kAll) {
    std::vector<Tensor> results;
    for (Unary f : functions) {
      try {
        results.push_back(f(Specials(t)));
      } catch (const Error&) {
      }
    }
    const std::string mismatch = Mismatch(results, &compared);
    EXPECT_TRUE(mismatch.empty()) << t.ToString() << ": " << mismatch;
  }
  EXPECT_GT(compared.exact + compared.within, 9 * compared.unknown);
}

TEST(OpsElementwise, BinaryOnAllPairsOfSpecialValues) {
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  const Binary functions[] = {
      [](const Tensor& a, const Tensor& b) { return a + b; },
      [](const Tensor& a, const Tensor& b) { return a - b; },
      [](const Tensor& a, const Tensor& b) { return a * b; },
      [](const Tensor& a, const Tensor& b) { return a / b; },
      [](const Tensor& a, const Tensor& b) { return a % b; },
      [](const Tensor& a, const Tensor& b) { return a.FloorDiv(b); },
      [](const Tensor& a, const Tensor& b) { return a.TruncDiv(b); },
      [](const Tensor& a, const Tensor& b) { return a.Fmod(b); },
      [](const Tensor& a, const Tensor& b) { return a.Pow(b); },
      [](const Tensor& a, const Tensor& b) { return a.Maximum(b); },
      [](const Tensor& a, const Tensor& b) { return a.Minimum(b); },
      [](const Tensor& a, const Tensor& b) { return a & b; },
      [](const Tensor& a, const Tensor& b) { return a | b; },
      [](const Tensor& a, const Tensor& b) { return a ^ b; },
      [](const Tensor& a, const Tensor& b) { return a << b; },
      [](const Tensor& a, const Tensor& b) { return a >> b; },
      [](const Tensor& a, const Tensor& b) { return a == b; },
      [](const Tensor& a, const Tensor& b) { return a != b; },
      [](const Tensor& a, const Tensor& b) { return a < b; },
      [](const Tensor& a, const Tensor& b) { return a <= b; },
      [](const Tensor& a, const Tensor& b) { return a.LogicalAnd(b); },
      [](const Tensor& a, const Tensor& b) { return a.LogicalXor(b); },
      [](const Tensor& a, const Tensor& b) { return Where(a > b, a, b); },
  };
  for (DType t : kAll) {
    std::vector<Tensor> results;
    for (Binary f : functions) {
      try {
        results.push_back(f(Specials(t, true), Specials(t)));
      } catch (const Error&) {
      }
    }
    const std::string mismatch = Mismatch(results);
    EXPECT_TRUE(mismatch.empty()) << t.ToString() << ": " << mismatch;
  }
}

TEST(OpsElementwise, CastsBetweenAllDtypes) {
  for (DType from : kAll) {
    std::vector<Tensor> results;
    for (DType to : kAll) results.push_back(Specials(from).Cast(to));
    const std::string mismatch = Mismatch(results);
    EXPECT_TRUE(mismatch.empty()) << from.ToString() << ": " << mismatch;
  }
}

TEST(OpsElementwise, BitcastsBetweenDtypesOfOneWidth) {
  for (DType from : kAll) {
    std::vector<Tensor> results;
    for (DType to : kAll) {
      if (to.bits() == from.bits() && !to.IsBool()) results.push_back(Specials(from).Bitcast(to));
    }
    const std::string mismatch = Mismatch(results);
    EXPECT_TRUE(mismatch.empty()) << from.ToString() << ": " << mismatch;
  }
}

// Division and modulo of every pair in [-9, 9], by constants too, in every integer dtype.
TEST(OpsElementwise, DivisionOfSmallIntegers) {
  for (DType t : kAll) {
    if (!t.IsInt()) continue;
    std::vector<Scalar> values;
    for (int64_t i = -9; i <= 9; ++i) values.push_back(Convert(Scalar::Int(i), kInt64, t));
    const Tensor a = Of(values, t, {19, 1}), b = Of(values, t, {19});
    std::vector<Tensor> results = {a.FloorDiv(b), a.TruncDiv(b), a % b, a.Fmod(b)};
    for (int64_t c : {-8, -3, -1, 0, 1, 2, 3, 7, 8}) {
      if (c < 0 && t.IsUnsigned()) continue;
      results.push_back(a.FloorDiv(c));
      results.push_back(a.TruncDiv(c));
      results.push_back(a % c);
      results.push_back(a.Fmod(c));
    }
    const std::string mismatch = Mismatch(results);
    EXPECT_TRUE(mismatch.empty()) << t.ToString() << ": " << mismatch;
  }
}

TEST(OpsElementwise, NoContractionOutsideOfSums) {
  // a*b + c rounds twice, whatever the chip offers.
  const float eps = 0x1p-23f;
  const Tensor a = Tensor::From(std::vector<float>(37, 1 + eps));
  const Tensor c = Tensor::From(std::vector<float>(37, -1 - 2 * eps));
  Tensor y = a * a + c;
  EXPECT_REFERENCE(y);
  EXPECT_EQ(y.ToVector<float>()[36], 0);
}

TEST(OpsElementwise, NoFastMath) {
  const float nan = std::nanf("");
  const Tensor x = Tensor::From(std::vector<float>{0, nan, 3, -0.0f, INFINITY});
  EXPECT_REFERENCE(x - x, x / x, x * 0, x + 0, x - 0, 0 - x, x == x, (x * 1e30) * 1e-30);
  EXPECT_REFERENCE((x.Exp()).Log(), (x * x).Sqrt(), 1 / (x + 0.0), 1 / (x.Neg() + 0.0));
}

TEST(OpsElementwise, Broadcasting) {
  const Tensor row = Tensor::From(std::vector<float>{1, 2, 3, 4, 5}).Reshape({1, 5});
  const Tensor column = Tensor::From(std::vector<float>{10, 20, 30}).Reshape({3, 1});
  const Tensor scalar = Tensor::From(std::vector<float>{7}).Reshape(Dims{});
  EXPECT_REFERENCE(row + column, row * scalar, scalar - column, scalar + scalar, row + row,
                   (row + column) * row.Reshape({5}));
  EXPECT_REFERENCE(Where(row > 2, column, scalar), Where(scalar > 2, row, 1.5));
}

TEST(OpsElementwise, PromotionOfAllPairs) {
  for (DType a : kAll) {
    std::vector<Tensor> results;
    for (DType b : kAll) {
      const Tensor x = Tensor::Full({3}, 1, kInt32).Cast(a) + Tensor::From({1, 0, 3}).Cast(b);
      results.push_back(x);
    }
    for (Number n : {Number(1), Number(2.5), Number(true)}) {
      results.push_back(Tensor::From({1, 0, 3}).Cast(a) + n);
      results.push_back(n * Tensor::From({1, 0, 3}).Cast(a));
    }
    const std::string mismatch = Mismatch(results);
    EXPECT_TRUE(mismatch.empty()) << a.ToString() << ": " << mismatch;
  }
}

TEST(OpsElementwise, ConstantsAndCountersAlone) {
  EXPECT_EQ(Tensor::Scalar(3).Item<int>(), 3);
  EXPECT_THAT(Tensor::Arange(4).ToVector<int>(), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Tensor::Zeros({2, 2}).ToVector<float>(), testing::ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Tensor::Full({3}, 2.5).ToVector<float>(), testing::ElementsAre(2.5, 2.5, 2.5));
  EXPECT_THAT(Tensor::Arange(2, 8, 3).ToVector<int>(), testing::ElementsAre(2, 5));
  EXPECT_REFERENCE(Tensor::Eye(3, 5), Tensor::Linspace(0, 1, 7), Tensor::Scalar(1.5) + 1,
                   Tensor::Arange(300, kInt8), Tensor::Arange(70000, kFloat16));
}

TEST(OpsElementwise, LargeIndicesAreNotNarrowed) {
  const Tensor x = Tensor::Arange(11, kInt64) * int64_t{1000000000};
  EXPECT_EQ(x.ToVector<int64_t>()[10], 10000000000);
}

}  // namespace
}  // namespace tessera
