// Elementwise functions of Tensor: values, dtypes, broadcasting and their errors.
#include <algorithm>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

const DType kAll[] = {kBool,       kInt8,    kInt16,    kInt32,   kInt64,
                      kUInt8,      kUInt16,  kUInt32,   kUInt64,  kFloat8E4M3,
                      kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64};

TEST(TensorMath, Arithmetic) {
  const Tensor a = Tensor::From({1.0, -2.0, 3.5}), b = Tensor::From({2, 4, -1});
  EXPECT_THAT(Values(a + b), ElementsAre(3, 2, 2.5));
  EXPECT_THAT(Values(a - b), ElementsAre(-1, -6, 4.5));
  EXPECT_THAT(Values(a * b), ElementsAre(2, -8, -3.5));
  EXPECT_THAT(Values(a / b), ElementsAre(0.5, -0.5, -3.5));
  EXPECT_THAT(Values(1 - a), ElementsAre(0, 3, -2.5));
  EXPECT_THAT(Values(-a), ElementsAre(-1, 2, -3.5));
  EXPECT_EQ((b / 2).dtype(), kFloat32);
  EXPECT_THAT(Values(b / 8), ElementsAre(0.25, 0.5, -0.125));
  EXPECT_THAT(Values(a.Add(1).Sub(2).Mul(3).Div(2)), ElementsAre(0, -4.5, 3.75));
}

// A number that no element can be equal to lies on one side of all of them.
TEST(TensorMath, ComparisonsWithNumbersBeyondTheDtype) {
  for (const DType dtype : {kUInt8, kInt8, kInt16, kUInt32, kInt32}) {
    const Tensor x = Tensor::From({0.0, 1.0, 100.0}).Cast(dtype);
    for (const int64_t n : {int64_t{1} << 40, -(int64_t{1} << 40)}) {
      SCOPED_TRACE(absl::StrCat(dtype.ToString(), " ", n));
      const bool above = n > 0;
      EXPECT_EQ(Values(x < n), std::vector<double>(3, above));
      EXPECT_EQ(Values(x <= n), std::vector<double>(3, above));
      EXPECT_EQ(Values(x > n), std::vector<double>(3, !above));
      EXPECT_EQ(Values(x >= n), std::vector<double>(3, !above));
      EXPECT_EQ(Values(x == n), std::vector<double>(3, 0));
      EXPECT_EQ(Values(x != n), std::vector<double>(3, 1));
      EXPECT_EQ(Values(n < x), std::vector<double>(3, !above));
      EXPECT_EQ(Values(n >= x), std::vector<double>(3, above));
    }
  }
  const Tensor u = Tensor::From({0.0, 128.0, 255.0}).Cast(kUInt8);
  EXPECT_THAT(Values(u < 300), ElementsAre(1, 1, 1));
  EXPECT_THAT(Values(u < 256), ElementsAre(1, 1, 1));
  EXPECT_THAT(Values(u < 255), ElementsAre(1, 1, 0));
  EXPECT_THAT(Values(u > -1), ElementsAre(1, 1, 1));
  EXPECT_THAT(Values(u == -1), ElementsAre(0, 0, 0));
  const Tensor i = Tensor::From({-128.0, 127.0}).Cast(kInt8);
  EXPECT_THAT(Values(i >= -128), ElementsAre(1, 1));
  EXPECT_THAT(Values(i >= -129), ElementsAre(1, 1));
  EXPECT_THAT(Values(i < 128), ElementsAre(1, 1));
  EXPECT_THAT(Values(Tensor::From({1, 2}).Cast(kInt64) < ~uint64_t{0}), ElementsAre(1, 1));
  EXPECT_THAT(Values(Tensor::From({1, 2}).Cast(kUInt64) > -1), ElementsAre(1, 1));
}

TEST(TensorMath, Comparisons) {
  const Tensor a = Tensor::From({1.0, 2.0, kNan}), b = Tensor::From({2.0, 2.0, 2.0});
  EXPECT_THAT(Values(a < b), ElementsAre(1, 0, 0));
  EXPECT_THAT(Values(a <= b), ElementsAre(1, 1, 0));
  EXPECT_THAT(Values(a > b), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(a >= b), ElementsAre(0, 1, 0));
  EXPECT_THAT(Values(a == b), ElementsAre(0, 1, 0));
  EXPECT_THAT(Values(a != b), ElementsAre(1, 0, 1));
  EXPECT_EQ((a < 1).dtype(), kBool);
  EXPECT_THAT(Values(1.5 < a), ElementsAre(0, 1, 0));
  EXPECT_THAT(Values(Tensor::From({1, 2, 3}) < 2.5), ElementsAre(1, 1, 0));
}

// Every pair in [-9, 9], as tensors and with a constant divisor, in every signed dtype.
TEST(TensorMath, DivisionAndRemainder) {
  for (DType t : {kInt8, kInt16, kInt32, kInt64, kFloat32, kFloat64}) {
    const Tensor row = Tensor::Arange(-9, 10).Cast(t), column = row.Unsqueeze(1);
    const auto floor = Values(column.FloorDiv(row)), trunc = Values(column.TruncDiv(row));
    const auto mod = Values(column % row), fmod = Values(column.Fmod(row));
    for (int a = -9; a <= 9; ++a) {
      for (int b = -9; b <= 9; ++b) {
        const size_t i = (a + 9) * 19 + b + 9;
        if (b == 0) {
          if (t.IsInt()) {
            EXPECT_EQ(floor[i], 0);
            EXPECT_EQ(trunc[i], 0);
            EXPECT_EQ(mod[i], 0);
            EXPECT_EQ(fmod[i], 0);
          } else {
            EXPECT_TRUE(std::isnan(mod[i]));
          }
          continue;
        }
        const double q = static_cast<double>(a) / b;
        EXPECT_EQ(floor[i], std::floor(q)) << a << " " << b;
        EXPECT_EQ(trunc[i], std::trunc(q)) << a << " " << b;
        EXPECT_EQ(mod[i], a - std::floor(q) * b) << a << " " << b;
        EXPECT_EQ(fmod[i], a % b) << a << " " << b;
      }
    }
    for (int b : {-9, -2, -1, 1, 3, 7}) {
      const auto by = Values(row.FloorDiv(b)), m = Values(row % b), fm = Values(row.Fmod(b));
      for (int a = -9; a <= 9; ++a) {
        EXPECT_EQ(by[a + 9], std::floor(static_cast<double>(a) / b));
        EXPECT_EQ(m[a + 9], a - std::floor(static_cast<double>(a) / b) * b);
        EXPECT_EQ(fm[a + 9], a % b);
      }
    }
  }
  EXPECT_THAT(Values(Tensor::From({5.5, -5.5}) % 2.0), ElementsAre(1.5, 0.5));
  EXPECT_THAT(Values(Tensor::From({5.5, -5.5}) % -2.0), ElementsAre(-0.5, -1.5));
}

// All dtype pairs, all binary functions, numbers on either side.
TEST(TensorMath, PromotionOfEveryPair) {
  for (DType x : kAll) {
    const Tensor a = Tensor::Ones({2}, x);
    for (DType y : kAll) {
      const Tensor b = Tensor::Ones({2}, y);
      const DType p = Promote(x, y);
      EXPECT_EQ((a + b).dtype(), p);
      EXPECT_EQ((a * b).dtype(), p);
      EXPECT_EQ(a.Maximum(b).dtype(), p);
      EXPECT_EQ((a / b).dtype(), p.IsFloat() ? p : kFloat32);
      EXPECT_EQ((a < b).dtype(), kBool);
      EXPECT_EQ(Where(a != 0, a, b).dtype(), p);
      EXPECT_THAT(Values(a + b), ElementsAre(p.IsBool() ? 1 : 2, p.IsBool() ? 1 : 2));
      if (p.IsBool()) {
        EXPECT_ERROR(a - b, "Sub", "bool[2]");
      } else {
        EXPECT_EQ((a - b).dtype(), p);
        EXPECT_EQ((a % b).dtype(), p);
        EXPECT_EQ(a.Pow(b).dtype(), p);
      }
      if (p.IsInt()) {
        EXPECT_EQ((a << b).dtype(), p);
      } else {
        EXPECT_ERROR(a << b, "Shl", "takes integers");
      }
      if (!p.IsFloat()) {
        EXPECT_EQ((a & b).dtype(), p);
      } else {
        EXPECT_ERROR(a & b, "BitAnd", "takes integers or bools");
      }
    }
    EXPECT_EQ((a + 1).dtype(), PromoteWeak(x, KindClass::kInt));
    EXPECT_EQ((1 + a).dtype(), PromoteWeak(x, KindClass::kInt));
    EXPECT_EQ((a * 1.0).dtype(), PromoteWeak(x, KindClass::kFloat));
    EXPECT_EQ((a + true).dtype(), PromoteWeak(x, KindClass::kBool));
    EXPECT_EQ(a.Exp().dtype(), x.IsFloat() ? x : kFloat32);
  }
}

TEST(TensorMath, Bools) {
  const Tensor a = Tensor::From({true, true, false}), b = Tensor::From({true, false, false});
  EXPECT_THAT(Values(a + b), ElementsAre(1, 1, 0));
  EXPECT_THAT(Values(a * b), ElementsAre(1, 0, 0));
  EXPECT_THAT(Values(a & b), ElementsAre(1, 0, 0));
  EXPECT_THAT(Values(a | b), ElementsAre(1, 1, 0));
  EXPECT_THAT(Values(a ^ b), ElementsAre(0, 1, 0));
  EXPECT_THAT(Values(~a), ElementsAre(0, 0, 1));
  EXPECT_THAT(Values(a << 1), ElementsAre(2, 2, 0));
  EXPECT_THAT(Values(a + a + 1), ElementsAre(2, 2, 1));
  EXPECT_THAT(Values(a < b), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(a.Maximum(b)), ElementsAre(1, 1, 0));
  EXPECT_THAT(Values(Tensor::From({0.5, 0.0, kNan}).LogicalAnd(true)), ElementsAre(1, 0, 1));
  EXPECT_THAT(Values(Tensor::From({0, 3}).LogicalNot()), ElementsAre(1, 0));
  EXPECT_THAT(Values(Tensor::From({0, 3}).LogicalXor(1)), ElementsAre(1, 0));
  EXPECT_THAT(Values(Tensor::From({0, 3}).LogicalOr(0)), ElementsAre(0, 1));
  EXPECT_ERROR(-a, "Neg", "LogicalNot");
  EXPECT_ERROR(a.Pow(a), "Pow", "bools");
}

TEST(TensorMath, ShiftsAndBits) {
  const Tensor x = Tensor::From({1000, -1, 5});
  EXPECT_THAT(Values(x << 64), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(x >> 31), ElementsAre(0, -1, 0));
  EXPECT_THAT(Values(x >> 64), ElementsAre(0, -1, 0));
  EXPECT_THAT(Values(x << -1), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(Tensor::From({1, -1}, kInt8) << 8), ElementsAre(0, 0));
  EXPECT_THAT(Values(Tensor::From({255}, kUInt8) >> 4), ElementsAre(15));
  EXPECT_THAT(Values(~x), ElementsAre(-1001, 0, -6));
  EXPECT_THAT(Values((x & 7) ^ 1), ElementsAre(1, 6, 4));
  EXPECT_THAT(Values(Tensor::From({1.0}).Bitcast(kInt32) >> 23), ElementsAre(127));
}

TEST(TensorMath, BitsAsOtherDtypes) {
  const Tensor x = Tensor::From({1.0, -2.0});
  EXPECT_THAT(Values(x.Bitcast(kUInt8)), ElementsAre(0, 0, 128, 63, 0, 0, 0, 192));
  EXPECT_THAT(Values(x.Bitcast(kInt16)), ElementsAre(0, 16256, 0, -16384));
  EXPECT_THAT(Values(x.Bitcast(kBFloat16)), ElementsAre(0, 1, 0, -2));
  EXPECT_THAT(Values(x.Bitcast(kInt64)), ElementsAre(-4611686017362034688));
  EXPECT_THAT(Values(Tensor::From({0, 0, 0, 0, 0, 0, 240, 191}, kUInt8).Bitcast(kFloat64)),
              ElementsAre(-1));
  const Tensor rows = Tensor::Arange(24, kInt16).Reshape({2, 3, 4});
  EXPECT_EQ(rows.Bitcast(kUInt8).shape(), Shape({2, 3, 8}));
  EXPECT_EQ(rows.Bitcast(kFloat64).shape(), Shape({2, 3, 1}));
  for (const DType t : {kInt8, kUInt8, kFloat16, kBFloat16, kInt32, kFloat32, kUInt64, kFloat64}) {
    EXPECT_EQ(Values(rows.Bitcast(t).Bitcast(kInt16)), Values(rows)) << t.ToString();
  }
  EXPECT_EQ(Tensor::Zeros({2, 0}, kUInt8).Bitcast(kFloat32).shape(), Shape({2, 0}));
  EXPECT_EQ(Tensor::Zeros({0, 3}).Bitcast(kUInt8).shape(), Shape({0, 12}));
  EXPECT_ERROR(Tensor::Zeros({2, 3}, kInt8).Bitcast(kInt32), "Bitcast",
               "i8[2, 3] is no multiple of 4 elements, as i32 takes");
  EXPECT_ERROR(Tensor::Scalar(1.0f).Bitcast(kInt16), "Bitcast", "Unsqueeze(0)");
  EXPECT_ERROR(x.Bitcast(kBool), "Bitcast", "bool");
}

TEST(TensorMath, NumbersMustFit) {
  const Tensor u = Tensor::From({1, 2}, kUInt8);
  EXPECT_THAT(Values(u - 2), ElementsAre(255, 0));
  EXPECT_ERROR(u + 300, "Add", "300 does not fit u8");
  EXPECT_ERROR(u + -1, "Add", "-1 does not fit u8");
  EXPECT_ERROR(Tensor::Full({1}, 1.5, kInt32), "Full", "1.5 does not fit i32");
  EXPECT_ERROR(Tensor::Full({1}, kNan, kInt32), "Full", "nan does not fit i32");
  EXPECT_ERROR(Tensor::Full({1}, ~uint64_t{0}, kInt64), "Full", "does not fit i64");
  EXPECT_ERROR(Tensor::Full({1}, -1, kUInt64), "Full", "-1 does not fit u64");
  EXPECT_THAT(Values(Tensor::Full({1}, 3.0, kInt32)), ElementsAre(3));
  EXPECT_EQ((u + 0.5).dtype(), kFloat32);
  EXPECT_THAT(Values(Tensor::From({1.0}, kFloat16) * 1e6), ElementsAre(kInf));
}

TEST(TensorMath, SmallIntegersWrap) {
  const Tensor x = Tensor::From({127, -128}, kInt8);
  EXPECT_THAT(Values(x * x), ElementsAre(1, 0));
  EXPECT_THAT(Values(x * x * Tensor::From({2}, kInt64)), ElementsAre(2, 0));
  EXPECT_THAT(Values(-Tensor::From({1, 0}, kUInt8)), ElementsAre(255, 0));
  EXPECT_THAT(Values(x.Abs()), ElementsAre(127, -128));
  EXPECT_THAT(Values(Tensor::From({true}).Cast(kInt32)), ElementsAre(1));
}

TEST(TensorMath, Casts) {
  const Tensor x = Tensor::From({kNan, kInf, -kInf, 3e9, -2.7});
  EXPECT_THAT(Values(x.Cast(kInt32)), ElementsAre(0, INT32_MAX, INT32_MIN, INT32_MAX, -2));
  EXPECT_THAT(Values(x.Cast(kBool)), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_EQ(x.Cast(kFloat32).uop(), x.uop());
  EXPECT_EQ(Values(Tensor::Zeros({3}).Log().Cast(kInt32).Sum())[0], INT32_MIN * 3.0 + 4294967296.0);
}

TEST(TensorMath, Broadcasting) {
  const Tensor a = Tensor::From({{1}, {2}}), b = Tensor::From({10, 20, 30});
  EXPECT_THAT(Values(a + b), ElementsAre(11, 21, 31, 12, 22, 32));
  EXPECT_THAT(Sizes(a + b), ElementsAre(2, 3));
  EXPECT_THAT(Sizes(Tensor::Zeros({0, 3}) + b), ElementsAre(0, 3));
  EXPECT_THAT(Sizes(Tensor::Zeros({0, 1}) + b), ElementsAre(0, 3));
  EXPECT_THAT(Sizes(Tensor::Scalar(1.0) + Tensor::Scalar(2)), ElementsAre());
  // A rank-0 operand costs no node; equal shapes neither.
  EXPECT_EQ((b + 1).uop().size(), 2);
  EXPECT_TRUE((b + 1).uop().src(1).IsConst(1));
  EXPECT_TRUE((b + Tensor::Scalar(1)).uop() == (b + 1).uop());
  EXPECT_ERROR(Tensor::Zeros({4, 5}) + Tensor::Zeros({3, 7}), "Add", "[4, 5] and [3, 7]");
  EXPECT_ERROR(Tensor::Zeros({0}) + b, "Add", "do not broadcast");
}

TEST(TensorMath, DevicesDoNotMix) {
  const Tensor a = Tensor::Empty({2}, kFloat32, "CPU"), b = Tensor::Empty({2}, kFloat32, "CPU:1");
  EXPECT_ERROR(a + b, "Add", "CPU and CPU:1");
  EXPECT_ERROR(a + b, "Add", ".To(");
  EXPECT_EQ((a + b.To("CPU")).device().ToString(), "CPU");
  EXPECT_EQ((Tensor::Ones({2}) + b).device(), b.device());
  EXPECT_EQ(a.To("CPU:0").uop(), a.uop());
}

TEST(TensorMath, ExtremesAndNaN) {
  const Tensor a = Tensor::From({1.0, kNan, 3.0}), b = Tensor::From({kNan, 1.0, 2.0});
  ExpectNear(Values(a.Maximum(b)), {kNan, kNan, 3});
  ExpectNear(Values(a.Minimum(b)), {kNan, kNan, 2});
  ExpectNear(Values(a.Clip(1.5, 2.5)), {1.5, kNan, 2.5});
  ExpectNear(Values(a.Relu()), {1, kNan, 3});
  const Tensor zeros = Tensor::From({-0.0, 0.0});
  EXPECT_FALSE(std::signbit(Values(zeros.Maximum(zeros.Flip(0)))[0]));
  EXPECT_TRUE(std::signbit(Values(zeros.Minimum(zeros.Flip(0)))[1]));
  EXPECT_TRUE(std::signbit(Values(-zeros)[1]));
  EXPECT_EQ(Values(1 / (Tensor::From({-0.5}).Ceil() + 0.0))[0], kInf);
  EXPECT_EQ(Values(1 / Tensor::From({-0.5}).Ceil())[0], -kInf);
  EXPECT_THAT(Values(a.IsNan()), ElementsAre(0, 1, 0));
  const Tensor c = Tensor::From({kInf, -kInf, kNan, 0.0});
  EXPECT_THAT(Values(c.IsInf()), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(Values(c.IsFinite()), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Values(Tensor::From({1}).IsFinite()), ElementsAre(1));
  EXPECT_THAT(Values(c.Cast(kFloat16).NanToNum(5)), ElementsAre(65504, -65504, 5, 0));
  EXPECT_THAT(Values(c.Cast(kBFloat16).NanToNum())[0], 0x1.fep127);
  EXPECT_THAT(Values(c.NanToNum(5, 7)), ElementsAre(7, -std::numeric_limits<float>::max(), 5, 0));
  EXPECT_THAT(Values(c.NanToNum(5, 7, -kInf)), ElementsAre(7, -kInf, 5, 0));
  EXPECT_THAT(Values(Tensor::From({9.0, -kInf}).NanToNum(0, 7, 8)), ElementsAre(9, 8));
  EXPECT_EQ(Values((Tensor::From({0.0}) / 0.0).IsNan())[0], 1);
}

// Powers made of products and roots, beside those of the C library.
TEST(TensorMath, PowersThatAreProducts) {
  const double inf = INFINITY;
  const std::vector<double> x = {0.0, -0.0, 1.5, -1.5, 3, -0.25, 1e-30, 1e30, inf, -inf, NAN};
  for (double power : {2.0, 3.0, 4.0, -1.0, -2.0, 0.5}) {
    for (DType t : {kFloat64, kFloat32, kFloat16}) {
      const Tensor given = Tensor::From(x).Cast(t);
      const std::vector<double> in = Values(given), out = Values(given.Pow(power));
      const std::vector<double> want = Values(given.Pow(Tensor::Full({}, power, t)));
      EXPECT_EQ(given.Pow(power).dtype(), t);
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(want[i])) {
          EXPECT_TRUE(std::isnan(out[i])) << in[i] << " to the " << power;
          continue;
        }
        EXPECT_EQ(std::signbit(out[i]), std::signbit(want[i])) << in[i] << " to the " << power;
        if (out[i] == want[i]) continue;
        const double unit = t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : 0x1p-10;
        EXPECT_NEAR(out[i], want[i], 2 * unit * std::fabs(want[i])) << in[i] << " to " << power;
      }
    }
  }
}

TEST(TensorMath, PowersAndSigns) {
  EXPECT_THAT(Values(Tensor::From({2, -3}).Pow(3)), ElementsAre(8, -27));
  EXPECT_THAT(Values(Tensor::From({2, 1, -1}).Pow(-3)), ElementsAre(0, 1, -1));
  EXPECT_THAT(Values(Tensor::From({3.0, -4.0}).Pow(2)), ElementsAre(9, 16));
  EXPECT_THAT(Values(Tensor::From({4.0}).Pow(0.5)), ElementsAre(2));
  EXPECT_TRUE(std::isnan(Values(Tensor::From({-4.0}).Pow(0.5))[0]));
  ExpectNear(Values(Tensor::From({-2.0, 0.0, 7.0, kNan}).Sign()), {-1, 0, 1, kNan});
  EXPECT_TRUE(std::signbit(Values(Tensor::From({-0.0}).Sign())[0]));
  EXPECT_THAT(Values(Tensor::From({3, 0}, kUInt8).Sign()), ElementsAre(1, 0));
  EXPECT_THAT(Values(Tensor::From({-3, 3}).Sign()), ElementsAre(-1, 1));
  EXPECT_THAT(Values(Tensor::From({1}, kUInt8).Lerp(Tensor::From({0}, kUInt8), 0.5)),
              ElementsAre(0.5));
  EXPECT_THAT(Values(Tensor::From({1}, kInt8).Lerp(Tensor::From({-128}, kInt8), 0.5)),
              ElementsAre(-63.5));
  ExpectNear(Values(Tensor::From({kNan, 0.3, 1.0}).Threshold(0.3, 7)), {kNan, 7, 1});
}

TEST(TensorMath, Rounding) {
  const Tensor x = Tensor::From({-1.5, -0.5, 0.5, 1.5, 2.5});
  EXPECT_THAT(Values(x.Floor()), ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_THAT(Values(x.Ceil()), ElementsAre(-1, 0, 1, 2, 3));
  EXPECT_THAT(Values(x.Trunc()), ElementsAre(-1, 0, 0, 1, 2));
  EXPECT_THAT(Values(x.Round()), ElementsAre(-2, 0, 0, 2, 2));
  EXPECT_EQ(Tensor::From({1}).Floor().dtype(), kInt32);
}

TEST(TensorMath, Functions) {
  const std::vector<double> xs = {0.1, 0.5, 0.9, 0.99};
  const Tensor x = Tensor::From(xs);
  const auto check = [&](const Tensor& t, double (*f)(double)) {
    std::vector<double> expected;
    for (double v : xs) expected.push_back(f(v));
    ExpectNear(Values(t), expected, 1e-14);
  };
  check(x.Sqrt(), std::sqrt);
  check(x.Exp(), std::exp);
  check(x.Exp2(), std::exp2);
  check(x.Expm1(), std::expm1);
  check(x.Log(), std::log);
  check(x.Log2(), std::log2);
  check(x.Log10(), std::log10);
  check(x.Log1p(), std::log1p);
  check(x.Sin(), std::sin);
  check(x.Cos(), std::cos);
  check(x.Tan(), std::tan);
  check(x.Asin(), std::asin);
  check(x.Acos(), std::acos);
  check(x.Atan(), std::atan);
  check(x.Sinh(), std::sinh);
  check(x.Cosh(), std::cosh);
  check(x.Tanh(), std::tanh);
  check(x.Erf(), std::erf);
  check(x.Erfc(), std::erfc);
  const std::vector<double> far = {2, 5, 9, 26};  // where 1 - Erf has no digits left
  ExpectNear(Values(Tensor::From(far).Erfc() / Tensor::From(far).Square().Neg().Exp()),
             {0.2553956763105057, 0.1107046377330686, 0.0623077240377747, 0.0216835848505629},
             1e-12);
  check(x.Rsqrt(), [](double v) { return 1 / std::sqrt(v); });
  check(x.Reciprocal(), [](double v) { return 1 / v; });
  check(x.Square(), [](double v) { return v * v; });
  check(x.Lerp(2, 0.25), [](double v) { return v + (2 - v) * 0.25; });
  ExpectNear(Values(Tensor::From({1e30}).Sin()), {std::sin(static_cast<double>(1e30f))});
  EXPECT_EQ(Values(Tensor::From({89.0}).Exp().Log())[0], kInf);
  EXPECT_EQ(Values(Tensor::From({-1e4}).Exp())[0], 0);
}

TEST(TensorMath, Activations) {
  const std::vector<double> xs = {-30, -2, -0.5, 0, 0.5, 2, 30};
  const Tensor x = Tensor::From(xs);
  const auto check = [&](const Tensor& t, auto f) {
    std::vector<double> expected;
    for (double v : xs) expected.push_back(f(v));
    ExpectNear(Values(t), expected, 1e-12);
  };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto softplus = [](double v) {
    return std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v)));
  };
  check(x.Relu(), [](double v) { return std::max(v, 0.0); });
  check(x.Relu6(), [](double v) { return std::clamp(v, 0.0, 6.0); });
  check(x.LeakyRelu(0.1), [](double v) { return v > 0 ? v : v * 0.1; });
  check(x.Elu(2), [](double v) { return v > 0 ? v : 2 * (std::exp(v) - 1); });
  check(x.Sigmoid(), sigmoid);
  check(x.LogSigmoid(), [&](double v) { return -softplus(-v); });
  check(x.HardSigmoid(), [](double v) { return std::clamp(v / 6 + 0.5, 0.0, 1.0); });
  check(x.HardSwish(), [](double v) { return v * std::clamp(v + 3, 0.0, 6.0) / 6; });
  check(x.Silu(), [&](double v) { return v * sigmoid(v); });
  check(x.Softplus(), softplus);
  check(x.Mish(), [&](double v) { return v * std::tanh(softplus(v)); });
  check(x.Gelu(), [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2))); });
  check(x.GeluTanh(), [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  });
  check(x.QuickGelu(), [&](double v) { return v * sigmoid(1.702 * v); });
  EXPECT_EQ(Tensor::From({1}).Sigmoid().dtype(), kFloat32);
  EXPECT_EQ(Tensor::From({-1}).Relu().dtype(), kInt32);
}

TEST(TensorMath, Where) {
  const Tensor c = Tensor::From({true, false, true});
  EXPECT_THAT(Values(Where(c, 1, 2)), ElementsAre(1, 2, 1));
  EXPECT_THAT(Values(Where(c, Tensor::From({{1.5}, {2.5}}), 0)),
              ElementsAre(1.5, 0, 1.5, 2.5, 0, 2.5));
  EXPECT_EQ(Where(c, 1, 2).dtype(), kInt32);
  EXPECT_EQ(Where(c, 1.0, Tensor::From({1}, kInt8)).dtype(), kFloat32);
  EXPECT_THAT(Values(Where(Tensor::Scalar(true), Tensor::From({1, 2}), 0)), ElementsAre(1, 2));
  EXPECT_TRUE(std::signbit(Values(Where(c, -0.0, 1.0))[0]));
  EXPECT_ERROR(Where(Tensor::From({1}), 1, 2), "Where", "must be bool");
}

}  // namespace
}  // namespace tessera
