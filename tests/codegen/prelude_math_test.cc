// Accuracy of the prelude's functions over all exponents, against the C library: of f32 in double,
// of f64 in long double.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/codegen/prelude_harness.h"

namespace tessera {
namespace {

struct MathCase {
  const char* name;
  double (*reference)(double);
  double ulp;  // the bound that we keep to, in units of the last place of the exact value
};

const MathCase kMath[] = {
    {"exp", std::exp, 0.95},  {"exp2", std::exp2, 0.9},  {"expm1", std::expm1, 1.5},
    {"log", std::log, 1.0},   {"log2", std::log2, 1.4},  {"log1p", std::log1p, 1.6},
    {"sin", std::sin, 1.55},  {"cos", std::cos, 1.55},   {"tan", std::tan, 3.0},
    {"asin", std::asin, 2.1}, {"acos", std::acos, 1.35}, {"atan", std::atan, 1.35},
    {"sinh", std::sinh, 1.7}, {"cosh", std::cosh, 1.45}, {"tanh", std::tanh, 1.5},
    {"erf", std::erf, 1.1},   {"erfc", std::erfc, 4.0},
};

// How far `got` is from the exact value, in units of the last place of the float nearest to it.
double Ulps(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(rounded) || std::isnan(got))
    return std::isnan(rounded) == std::isnan(got) ? 0 : 1e9;
  if (std::signbit(rounded) != std::signbit(got)) return 1e8;
  if (got == rounded)
    return std::isinf(got)
               ? 0
               : std::fabs(got - exact) / std::ldexp(1.0, std::max(std::ilogb(rounded), -126) - 23);
  if (std::isinf(got) || std::isinf(rounded)) return 1e7;
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::fabs(got - exact) / std::ldexp(1.0, exponent - 23);
}

void CheckAccuracy(uint64_t step) {
  std::vector<PreludeCase> tests;
  for (const MathCase& c : kMath) {
    tests.push_back({absl::StrCat("rt_", c.name, "($0)"), {kFloat32}, kFloat32});
  }
  constexpr uint64_t kBlock = 1 << 20;
  std::vector<double> worst(tests.size());
  std::vector<float> worst_at(tests.size());
  for (uint64_t begin = 0; begin < uint64_t{1} << 32; begin += kBlock * step) {
    Elements in{kFloat32, {}};
    for (uint64_t i = 0; i < kBlock; ++i) in.Push(static_cast<uint32_t>(begin + i * step));
    const auto got =
        RunPrelude(tests, {16}, std::vector<std::vector<Elements>>(tests.size(), {in}));
    ASSERT_EQ(got.size(), tests.size());
    for (size_t c = 0; c < tests.size(); ++c) {
      for (uint64_t i = 0; i < kBlock; ++i) {
        float x, y;
        std::memcpy(&x, in.bytes.data() + 4 * i, 4);
        std::memcpy(&y, got[c].bytes.data() + 4 * i, 4);
        const double ulps = Ulps(y, kMath[c].reference(x));
        if (ulps > worst[c]) worst[c] = ulps, worst_at[c] = x;
      }
    }
  }
  for (size_t c = 0; c < tests.size(); ++c) {
    EXPECT_LE(worst[c], kMath[c].ulp) << tests[c].expression << " at " << worst_at[c];
  }
}

TEST(PreludeMath, AccurateOnSamples) { CheckAccuracy(8191); }

TEST(PreludeMath, AccurateOnEveryFloatLong) { CheckAccuracy(1); }

// The values that a polynomial gets wrong unless told.
TEST(PreludeMath, Edges) {
  const float inf = INFINITY, tiny = 1e-45f;
  std::vector<PreludeCase> tests;
  std::vector<std::vector<Elements>> operands;
  Elements in{kFloat32, {}};
  for (float x : {0.0f,    -0.0f,      inf,         -inf,     NAN,     tiny,     -tiny,    1e-40f,
                  -1e-40f, 1e-38f,     88.72284f,   88.7229f, 89.0f,   -87.4f,   -103.97f, -103.98f,
                  -104.0f, 128.0f,     127.9999f,   -149.0f,  -149.5f, -150.0f,  -151.0f,  1.0f,
                  -1.0f,   1.0000001f, -1.0000001f, 89.4159f, 89.416f, 59999.9f, 60001.0f, 1e30f,
                  3.4e38f, -3.4e38f,   10.0f,       4.0f,     -17.4f,  0.5f,     -0.5f,    2.0f}) {
    uint32_t raw;
    std::memcpy(&raw, &x, 4);
    in.Push(raw);
  }
  for (const MathCase& c : kMath) {
    tests.push_back({absl::StrCat("rt_", c.name, "($0)"), {kFloat32}, kFloat32});
    operands.push_back({in});
  }
  for (int lanes : {1, 8}) {
    const auto got = RunPrelude(tests, {lanes}, operands);
    ASSERT_EQ(got.size(), tests.size());
    for (size_t c = 0; c < tests.size(); ++c) {
      for (int64_t i = 0; i < in.size(); ++i) {
        const double x = in.at(i).AsFloat();
        const double want = kMath[c].reference(x);
        EXPECT_LE(Ulps(static_cast<float>(got[c].at(i).AsFloat()), want), kMath[c].ulp)
            << tests[c].expression << " of " << x << " with lanes " << lanes << ": got "
            << got[c].at(i).AsFloat() << ", want " << want;
      }
    }
  }
}

// Large arguments leave the vector code for the C library and come back: what else is in registers
// must live through that, and lanes that are not large keep their bits.
TEST(PreludeMath, LargeArgumentsBesideSmallOnes) {
  Elements x{kFloat32, {}}, y{kFloat32, {}};
  for (int i = 0; i < 4096; ++i) {
    const float vx = i % 37 == 5 ? 1e9f * i : 0.01f * i, vy = 1.0f / (i + 1);
    uint32_t raw;
    std::memcpy(&raw, &vx, 4);
    x.Push(raw);
    std::memcpy(&raw, &vy, 4);
    y.Push(raw);
  }
  const std::vector<DType> two = {kFloat32, kFloat32};
  const std::vector<PreludeCase> tests = {
      {"rt_exp($1) * rt_sin($0) + rt_cos($0) * $1 + rt_exp2($1)", two, kFloat32},
      {"rt_truncmod($0, $1) * rt_tanh($1) + rt_tan($0 * $1)", two, kFloat32}};
  const std::vector<std::vector<Elements>> operands(tests.size(), {x, y});
  const auto scalar = RunPrelude(tests, {1}, operands);
  ASSERT_EQ(scalar.size(), tests.size());
  for (int lanes : {4, 8, 16, 32}) {
    const auto got = RunPrelude(tests, {lanes}, operands);
    ASSERT_EQ(got.size(), tests.size());
    for (size_t c = 0; c < tests.size(); ++c) {
      ExpectNear(tests[c], {lanes}, operands[c], got[c], scalar[c], 0);
    }
  }
}

struct WideCase {
  const char* name;
  long double (*reference)(long double);
  double ulp;
};

const WideCase kWide[] = {
    {"exp", std::exp, 0.95},  {"exp2", std::exp2, 1.0}, {"expm1", std::expm1, 1.8},
    {"log", std::log, 1.0},   {"log2", std::log2, 1.0}, {"log1p", std::log1p, 1.5},
    {"sin", std::sin, 1.5},   {"cos", std::cos, 1.5},   {"tan", std::tan, 3.0},
    {"asin", std::asin, 2.0}, {"acos", std::acos, 1.5}, {"atan", std::atan, 2.0},
    {"sinh", std::sinh, 2.5}, {"cosh", std::cosh, 2.0}, {"tanh", std::tanh, 2.5},
    {"erf", std::erf, 1.5},   {"erfc", std::erfc, 3.0},
};

double WideUlps(double got, long double exact) {
  const auto rounded = static_cast<double>(exact);
  if (std::isnan(rounded) || std::isnan(got)) {
    return std::isnan(rounded) == std::isnan(got) ? 0 : 1e9;
  }
  if (std::signbit(rounded) != std::signbit(got)) return 1e8;
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : 1e7;
  const int exponent = exact == 0 ? -1022 : std::max(std::ilogb(exact), -1022);
  return static_cast<double>(std::fabs(got - exact) / std::ldexp(1.0L, exponent - 52));
}

Elements Doubles(const std::vector<double>& values) {
  Elements out{kFloat64, {}};
  for (double v : values) {
    uint64_t raw;
    std::memcpy(&raw, &v, 8);
    out.Push(raw);
  }
  return out;
}

// All exponents, more of those near 1, what lies beside multiples of pi/2, and the edges.
std::vector<double> WideSamples() {
  const double inf = INFINITY;
  std::vector<double> x = {0.0,    -0.0,     inf,     -inf,    NAN,      5e-324,   -5e-324,
                           1e-310, 709.782,  709.783, 710.475, 710.4759, -745.133, -745.14,
                           1024,   1023.999, -1074.5, -1075,   1,        -1,       1.5,
                           -1.5,   0x1p30,   1e22,    -1e300,  22,       6,        -6,
                           0.5,    -0.5,     2,       1e308};
  std::mt19937_64 rng(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t raw = rng();
    double v;
    std::memcpy(&v, &raw, 8);
    const double unit = static_cast<double>(rng() >> 11) * 0x1p-53;
    x.push_back(v);
    x.push_back((i % 2 ? -1 : 1) * std::ldexp(1 + unit, i % 50 - 40));
    x.push_back(1 + (unit - 0.5) * std::ldexp(1.0, -(i % 50)));
    x.push_back((i % 2 ? -1 : 1) * i * M_PI_2 * (1 + (i % 5 - 2) * 0x1p-52));
  }
  x.resize(x.size() / 32 * 32);
  return x;
}

TEST(PreludeMath, AccurateInF64) {
  if constexpr (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "no wider numbers";
  const std::vector<double> x = WideSamples();
  std::vector<PreludeCase> tests;
  for (const WideCase& c : kWide) {
    tests.push_back({absl::StrCat("rt_", c.name, "($0)"), {kFloat64}, kFloat64});
  }
  const std::vector<std::vector<Elements>> operands(tests.size(), {Doubles(x)});
  const auto scalar = RunPrelude(tests, {1}, operands);
  ASSERT_EQ(scalar.size(), tests.size());
  for (PreludeMode mode : {PreludeMode{8}, PreludeMode{32}, PreludeMode{4, /*avx2=*/true}}) {
    const auto got = RunPrelude(tests, mode, operands);
    ASSERT_EQ(got.size(), tests.size());
    for (size_t c = 0; c < tests.size(); ++c) {
      ExpectNear(tests[c], mode, operands[c], got[c], scalar[c], 0);
    }
  }
  for (size_t c = 0; c < tests.size(); ++c) {
    double worst = 0, worst_at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double ulps = WideUlps(scalar[c].at(i).AsFloat(), kWide[c].reference(x[i]));
      if (ulps > worst) worst = ulps, worst_at = x[i];
    }
    EXPECT_LE(worst, kWide[c].ulp) << tests[c].expression << " at " << worst_at;
  }
}

TEST(PreludeMath, PowersAccurateInF64) {
  if constexpr (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "no wider numbers";
  std::vector<double> x, y;
  std::mt19937_64 rng(11);
  const auto unit = [&] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
  for (int i = 0; i < 64000; ++i) {
    x.push_back(std::ldexp(1 + unit(), i % 3 ? i % 2000 - 1000 : i % 7 - 3));
    const double most = 1080 / std::max(0.01, std::fabs(std::log2(x.back())));
    y.push_back(i % 5 ? (unit() - 0.5) * 2 * most : std::round(unit() * 9));
  }
  const PreludeCase test{"rt_pow($0, $1)", {kFloat64, kFloat64}, kFloat64};
  const auto got = RunPrelude({test}, {8}, {{Doubles(x), Doubles(y)}});
  ASSERT_EQ(got.size(), 1u);
  for (size_t i = 0; i < x.size(); ++i) {
    const double ulps = WideUlps(got[0].at(i).AsFloat(), std::pow<long double>(x[i], y[i]));
    EXPECT_LE(ulps, 1.25) << x[i] << " to the " << y[i];
  }
}

}  // namespace
}  // namespace tessera
