// Dtypes: conversions and layouts of every 8- and 16-bit float, and the promotion table.
#include "graph/dtype.h"

#include <cmath>
#include <limits>

#include "tests/testing.h"

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

const DType kAll[] = {kBool,       kInt8,    kInt16,    kInt32,   kInt64,
                      kUInt8,      kUInt16,  kUInt32,   kUInt64,  kFloat8E4M3,
                      kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64};

double Round(double v, DType t) { return Convert(Scalar::Float(v), kFloat64, t).AsFloat(); }
int64_t ToInt(double v, DType t) { return Convert(Scalar::Float(v), kFloat64, t).AsInt(); }
double Load(uint32_t bits, DType t) { return LoadScalar(&bits, t).AsFloat(); }
uint32_t Store(double v, DType t) {
  uint32_t bits = 0;
  StoreScalar(&bits, t, Scalar::Float(v));
  return bits;
}

// The value of a narrow float, straight from its definition.
double Decode(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_inf) {
  const int total = exponent_bits + mantissa_bits;
  const int e = bits >> mantissa_bits & ((1 << exponent_bits) - 1),
            m = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  double v = e == 0 ? m * std::pow(2.0, 1 - bias - mantissa_bits)
                    : (1 + m * std::pow(2.0, -mantissa_bits)) * std::pow(2.0, e - bias);
  if (e == top && has_inf) v = m == 0 ? kInf : kNan;
  if (e == top && !has_inf && m == (1 << mantissa_bits) - 1) v = kNan;
  return bits >> total & 1 ? -v : v;
}

struct Format {
  DType t;
  int exponent, mantissa;
  bool has_inf;
};
const Format kFormats[] = {{kFloat8E4M3, 4, 3, false},
                           {kFloat8E5M2, 5, 2, true},
                           {kFloat16, 5, 10, true},
                           {kBFloat16, 8, 7, true}};

TEST(DType, EveryNarrowFloatRoundTrips) {
  for (const auto& [t, exponent, mantissa, has_inf] : kFormats) {
    for (uint32_t bits = 0; bits < 1u << t.bits(); ++bits) {
      const double expected = Decode(bits, exponent, mantissa, has_inf), got = Load(bits, t);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(got)) << t.ToString() << " " << bits;
        ASSERT_TRUE(std::isnan(Load(Store(got, t), t)));
        continue;
      }
      ASSERT_EQ(got, expected) << t.ToString() << " " << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(expected));
      ASSERT_EQ(Round(got, t), got);
      ASSERT_EQ(Store(got, t), bits) << t.ToString();
    }
  }
}

// Between two neighbours: what is nearer wins, and a tie goes to the even mantissa.
TEST(DType, NarrowFloatsRoundToNearestEven) {
  for (const auto& [t, exponent, mantissa, has_inf] : kFormats) {
    const uint32_t end = has_inf ? ((1u << exponent) - 1) << mantissa : 0x7f;
    for (uint32_t bits = 0; bits + 1 < end; ++bits) {
      const double low = Load(bits, t), high = Load(bits + 1, t), middle = low + (high - low) / 2;
      ASSERT_EQ(Round(middle, t), bits % 2 == 0 ? low : high) << t.ToString() << " " << bits;
      ASSERT_EQ(Round(low + (high - low) * 0.25, t), low);
      ASSERT_EQ(Round(low + (high - low) * 0.75, t), high);
      ASSERT_EQ(Round(-middle, t), bits % 2 == 0 ? -low : -high);
    }
  }
}

TEST(DType, OverflowOfNarrowFloats) {
  EXPECT_EQ(Round(65519, kFloat16), 65504);
  EXPECT_EQ(Round(65520, kFloat16), kInf);
  EXPECT_EQ(Round(-1e30, kFloat16), -kInf);
  EXPECT_EQ(Round(61440, kFloat8E5M2), kInf);
  EXPECT_EQ(Round(57344, kFloat8E5M2), 57344);
  EXPECT_EQ(Round(464, kFloat8E4M3), 448);  // a tie, to even
  EXPECT_TRUE(std::isnan(Round(480, kFloat8E4M3)));
  EXPECT_TRUE(std::isnan(Round(kInf, kFloat8E4M3)));
  EXPECT_EQ(Round(1e39, kFloat32), kInf);
  EXPECT_EQ(Round(kInf, kBFloat16), kInf);
  for (DType t : {kFloat8E4M3, kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    EXPECT_TRUE(std::isnan(Round(kNan, t)));
    EXPECT_TRUE(std::signbit(Round(-0.0, t)));
  }
}

TEST(DType, FloatToIntegerSaturates) {
  for (DType t : {kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32}) {
    EXPECT_EQ(ToInt(kNan, t), 0) << t.ToString();
    EXPECT_EQ(ToInt(kInf, t), MaxInt(t)) << t.ToString();
    EXPECT_EQ(ToInt(-kInf, t), MinInt(t)) << t.ToString();
    EXPECT_EQ(ToInt(1e30, t), MaxInt(t));
    EXPECT_EQ(ToInt(3.99, t), 3);
    EXPECT_EQ(ToInt(-0.99, t), 0);
    EXPECT_EQ(ToInt(-1.5, t), t.IsUnsigned() ? 0 : -1);
  }
  EXPECT_EQ(ToInt(3e9, kInt32), INT32_MAX);
  EXPECT_EQ(Convert(Scalar::Float(1e30), kFloat64, kUInt64).bits, ~uint64_t{0});
  EXPECT_EQ(Convert(Scalar::Float(9.3e18), kFloat64, kUInt64).bits, 9300000000000000000u);
  EXPECT_EQ(ToInt(kNan, kBool), 1);
  EXPECT_EQ(ToInt(-0.0, kBool), 0);
  EXPECT_EQ(ToInt(0.25, kBool), 1);
}

TEST(DType, IntegersWrapAndRoundOnce) {
  const auto wrap = [](int64_t v, DType from, DType to) {
    return Convert(Scalar::Int(v), from, to).AsInt();
  };
  EXPECT_EQ(wrap(300, kInt32, kUInt8), 44);
  EXPECT_EQ(wrap(-1, kInt8, kUInt32), 4294967295);
  EXPECT_EQ(wrap(200, kUInt8, kInt8), -56);
  EXPECT_EQ(wrap(2, kInt32, kBool), 1);
  // To f32 by way of a double, this would round twice and end one too low.
  const int64_t v = (int64_t{1} << 60) + (int64_t{1} << 36) + 1;
  EXPECT_EQ(Convert(Scalar::Int(v), kInt64, kFloat32).AsFloat(),
            static_cast<double>(static_cast<float>(v)));
  EXPECT_EQ(Convert(Scalar{~uint64_t{0}}, kUInt64, kFloat64).AsFloat(), std::ldexp(1, 64));
}

TEST(DType, IntegerLayouts) {
  for (DType t : {kBool, kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64}) {
    for (int64_t v : {MinInt(t), int64_t{0}, int64_t{1}, MaxInt(t)}) {
      uint64_t bytes = 0x5555555555555555;
      StoreScalar(&bytes, t, Scalar::Int(v));
      EXPECT_EQ(LoadScalar(&bytes, t).AsInt(), v) << t.ToString();
      if (t.bits() < 64) {
        EXPECT_EQ(bytes >> t.bits(), 0x5555555555555555 >> t.bits());
      }
    }
  }
}

TEST(DType, PromotionIsALattice) {
  for (DType a : kAll) {
    EXPECT_EQ(Promote(a, a), a);
    EXPECT_EQ(Promote(kBool, a), a);
    for (DType b : kAll) {
      const DType p = Promote(a, b);
      EXPECT_EQ(p, Promote(b, a)) << a.ToString() << " " << b.ToString();
      // The result holds both, so meeting either again changes nothing.
      EXPECT_EQ(Promote(p, a), p) << a.ToString() << " " << b.ToString();
      EXPECT_EQ(Promote(p, b), p) << a.ToString() << " " << b.ToString();
      if (p.IsInt() && a.IsInt() && b.IsInt()) {
        EXPECT_LE(MinInt(p), std::min(MinInt(a), MinInt(b)));
        EXPECT_GE(MaxInt(p), std::max(MaxInt(a), MaxInt(b)));
      }
    }
  }
}

// The order of operands does not matter, but for two joins that pass over a narrower float: i64
// with u64 is f32, and the two fp8 kinds are f16.
TEST(DType, PromotionIsAssociative) {
  const auto has = [](std::initializer_list<DType> types, auto is) {
    return std::any_of(types.begin(), types.end(), is);
  };
  for (DType a : kAll) {
    for (DType b : kAll) {
      for (DType c : kAll) {
        const auto any = [&](DType t) { return has({a, b, c}, [t](DType x) { return x == t; }); };
        const bool any_signed =
            has({a, b, c}, [](DType x) { return x.kind_class() == KindClass::kInt; });
        const bool any_float = has({a, b, c}, [](DType x) { return x.IsFloat(); });
        if (any(kUInt64) && any_signed && any_float) continue;
        if (any(kFloat8E4M3) && any(kFloat8E5M2) && any(kBFloat16)) continue;
        EXPECT_EQ(Promote(Promote(a, b), c), Promote(a, Promote(b, c)))
            << a.ToString() << " " << b.ToString() << " " << c.ToString();
      }
    }
  }
}

TEST(DType, PromotionTable) {
  const struct {
    DType a, b, result;
  } rows[] = {
      {kInt8, kUInt8, kInt16},
      {kInt16, kUInt8, kInt16},
      {kInt32, kUInt32, kInt64},
      {kInt64, kUInt32, kInt64},
      {kInt64, kUInt64, kFloat32},
      {kInt64, kFloat16, kFloat16},
      {kFloat16, kBFloat16, kFloat32},
      {kFloat8E4M3, kFloat8E5M2, kFloat16},
      {kFloat8E4M3, kBFloat16, kBFloat16},
      {kBool, kUInt8, kUInt8},
      {kFloat32, kFloat64, kFloat64},
  };
  for (const auto& row : rows) EXPECT_EQ(Promote(row.a, row.b), row.result);
}

TEST(DType, WeakScalars) {
  EXPECT_EQ(PromoteWeak(kFloat16, KindClass::kInt), kFloat16);
  EXPECT_EQ(PromoteWeak(kFloat16, KindClass::kFloat), kFloat16);
  EXPECT_EQ(PromoteWeak(kInt8, KindClass::kInt), kInt8);
  EXPECT_EQ(PromoteWeak(kInt64, KindClass::kFloat), kFloat32);
  EXPECT_EQ(PromoteWeak(kBool, KindClass::kInt), kInt32);
  EXPECT_EQ(PromoteWeak(kBool, KindClass::kFloat), kFloat32);
  EXPECT_EQ(PromoteWeak(kBool, KindClass::kBool), kBool);
  EXPECT_EQ(PromoteWeak(kUInt8, KindClass::kBool), kUInt8);
}

TEST(DType, ParseNamesTheKnownOnes) {
  for (DType t : kAll) EXPECT_THAT(DType::Parse(t.ToString()), IsOkAndHolds(t));
  EXPECT_THAT(DType::Parse("f32x8"), IsOkAndHolds(kFloat32.WithLanes(8)));
  EXPECT_THAT(DType::Parse("f31"), StatusIs(absl::StatusCode::kInvalidArgument, "bf16"));
  EXPECT_FALSE(DType::Parse("f32x1").ok());
}

TEST(DType, ScalarTextParsesBack) {
  for (double v : {0.0, -0.0, 1.5, 0.1, 1e300, -kInf, kNan, 5e-324}) {
    const Scalar s = Scalar::Float(v);
    EXPECT_THAT(ParseScalar(ScalarToString(s, kFloat64), kFloat64), IsOkAndHolds(s));
  }
  for (DType t : {kInt8, kUInt8, kInt64, kUInt64}) {
    for (Scalar s : {LowestScalar(t), HighestScalar(t)}) {
      EXPECT_THAT(ParseScalar(ScalarToString(s, t), t), IsOkAndHolds(s));
    }
  }
}

TEST(DType, IntegersOfTheSameWidth) {
  for (DType t : kAll) {
    EXPECT_EQ(UnsignedOf(t).bits(), t.bits());
    EXPECT_TRUE(UnsignedOf(t).IsUnsigned());
    EXPECT_EQ(SignedOf(t).bits(), t.bits());
    EXPECT_EQ(SignedOf(t).kind_class(), KindClass::kInt);
  }
}

}  // namespace
}  // namespace tessera
