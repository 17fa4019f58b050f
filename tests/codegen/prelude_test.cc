// The CPU prelude against the reference evaluator: every elementwise op on every dtype, and casts.
#include "codegen/prelude.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "graph/fold.h"
#include "graph/ops.h"
#include "tests/codegen/prelude_harness.h"

namespace tessera {
namespace {

constexpr DType kNative[] = {kBool,   kInt8,   kInt16,  kInt32,   kInt64,   kUInt8,
                             kUInt16, kUInt32, kUInt64, kFloat16, kFloat32, kFloat64};
constexpr PreludeMode kModes[] = {{1}, {4}, {16}, {8, /*avx2=*/true}};

// Values at the edges of the dtype, small ones, and some at random.
std::vector<uint64_t> Samples(DType t, int random) {
  std::vector<uint64_t> raw;
  const auto add = [&](Scalar s) {
    uint64_t bits = 0;
    StoreScalar(&bits, t, s);
    raw.push_back(bits);
  };
  std::mt19937_64 rng(t.bits());
  if (t.IsBool()) return {0, 1};
  for (int i = -9; i <= 9; ++i) add(Convert(Scalar::Int(i), kInt64, t));
  if (t.IsFloat()) {
    const double inf = std::numeric_limits<double>::infinity();
    for (double v : {-0.0,
                     0.5,
                     1.5,
                     2.5,
                     0.1,
                     1e-3,
                     100.7,
                     255.0,
                     256.0,
                     32767.5,
                     65504.0,
                     65536.0,
                     2147483520.0,
                     2147483647.0,
                     2147483648.0,
                     4294967040.0,
                     4294967296.0,
                     9.2233714e18,
                     9.223372036854775807e18,
                     1.8446743e19,
                     1.8446744073709552e19,
                     1e30,
                     1e300,
                     1e-30,
                     1e-40,
                     1e-45,
                     1e-310,
                     inf}) {
      add(Convert(Scalar::Float(v), kFloat64, t));
      add(Convert(Scalar::Float(-v), kFloat64, t));
    }
    add(Scalar::Float(std::numeric_limits<double>::quiet_NaN()));
  } else {
    for (int64_t d = 0; d < 3; ++d) {
      raw.push_back(MinInt(t) + d);
      raw.push_back(t.kind() == Kind::kU64 ? ~uint64_t{0} - d : MaxInt(t) - d);
    }
    for (int shift = 4; shift < t.bits(); shift *= 2) raw.push_back(uint64_t{1} << shift);
  }
  for (int i = 0; i < random; ++i) raw.push_back(rng());
  return raw;
}

// All tuples of samples, padded to a multiple of 64 elements.
std::vector<Elements> Tuples(const std::vector<DType>& dtypes) {
  const int random = dtypes.size() == 1 ? 3000 : dtypes.size() == 2 ? 40 : 6;
  std::vector<std::vector<uint64_t>> samples;
  int64_t n = 1;
  for (DType t : dtypes) {
    samples.push_back(Samples(t, random));
    if (dtypes.size() == 3 && samples.back().size() > 60) samples.back().resize(60);
    n *= samples.back().size();
  }
  std::vector<Elements> out;
  for (DType t : dtypes) out.push_back({t, {}});
  for (int64_t i = 0; i < (n + 63) / 64 * 64; ++i) {
    int64_t rest = i % n;
    for (size_t k = 0; k < dtypes.size(); ++k) {
      out[k].Push(samples[k][rest % samples[k].size()]);
      rest /= samples[k].size();
    }
  }
  return out;
}

bool Takes(TypeRule rule, DType t) {
  switch (rule) {
    case TypeRule::kNumber:
    case TypeRule::kCompare:
    case TypeRule::kWhere:
      return true;
    case TypeRule::kArith:
      return !t.IsBool();
    case TypeRule::kFloat:
      return t.IsFloat();
    case TypeRule::kInt:
      return t.IsInt();
    case TypeRule::kBits:
      return !t.IsFloat();
    case TypeRule::kRandom:
      return t == kUInt64;
    default:
      return false;
  }
}

// In units of the last place; the evaluator's value is the right one, rounded.
int64_t Tolerance(Op op, DType t) {
  if (!t.IsFloat() || !(HasProperty(op, kExpensive) || op == Op::kPow)) return 0;
  if (t == kFloat16 || op == Op::kPow) return 1;
  switch (op) {
    case Op::kExp:
    case Op::kExp2:
    case Op::kLog:
    case Op::kErf:
      return 1;
    case Op::kTan:
      return 3;
    default:
      return 2;
  }
}

struct OpCase {
  Op op;
  PreludeCase test;
};

// What EvaluateElementwise gives.
Elements Want(const OpCase& c, const std::vector<Elements>& operands) {
  const int64_t n = operands[0].size();
  std::vector<std::vector<Scalar>> args(operands.size());
  std::vector<ScalarSource> sources;
  for (size_t k = 0; k < operands.size(); ++k) {
    for (int64_t i = 0; i < n; ++i) args[k].push_back(operands[k].at(i));
    sources.push_back({args[k].data(), 1});
  }
  std::vector<Scalar> out(n);
  EvaluateElementwise(c.op, c.test.result, c.test.operands.back(), sources, absl::MakeSpan(out));
  Elements want{c.test.result, {}};
  for (Scalar s : out) {
    uint64_t raw = 0;
    StoreScalar(&raw, want.dtype, s);
    want.Push(raw);
  }
  return want;
}

class PreludeOps : public testing::TestWithParam<DType> {};

TEST_P(PreludeOps, AgreeWithTheEvaluatorSlow) {
  const DType t = GetParam();
  std::vector<OpCase> cases;
  std::vector<PreludeCase> tests;
  std::vector<std::vector<Elements>> operands;
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const OpInfo& info = Info(op);
    if (!IsElementwise(op) || info.ctext[0] == 0 || !Takes(info.type, t)) continue;
    std::vector<DType> dtypes(info.arity, t);
    if (info.type == TypeRule::kWhere) dtypes[0] = kBool;
    const DType result = info.type == TypeRule::kCompare ? kBool : t;
    cases.push_back({op, {info.ctext, dtypes, result}});
    tests.push_back(cases.back().test);
    operands.push_back(Tuples(dtypes));
  }
  std::vector<Elements> first;
  for (PreludeMode mode : kModes) {
    const auto got = RunPrelude(tests, mode, operands);
    ASSERT_EQ(got.size(), cases.size());
    for (size_t c = 0; c < cases.size(); ++c) {
      ExpectNear(tests[c], mode, operands[c], got[c], Want(cases[c], operands[c]),
                 Tolerance(cases[c].op, t));
      if (mode.lanes > 1) ExpectNear(tests[c], mode, operands[c], got[c], first[c], 0);
    }
    if (mode.lanes == 1) first = got;
  }
}

std::string DTypeName(const testing::TestParamInfo<DType>& info) { return info.param.ToString(); }
INSTANTIATE_TEST_SUITE_P(, PreludeOps, testing::ValuesIn(kNative), DTypeName);

// ---- casts

class PreludeCasts : public testing::TestWithParam<DType> {};

// Every value of 8 and 16 bits, samples of others.
Elements CastInputs(DType t) {
  if (t.bits() > 16 || t.IsBool()) return Tuples({t})[0];
  Elements all{t, {}};
  for (uint64_t raw = 0; raw < uint64_t{1} << t.bits(); ++raw) all.Push(raw);
  return all;
}

void CheckConversions(const std::vector<PreludeCase>& tests) {
  std::vector<std::vector<Elements>> operands;
  for (const PreludeCase& test : tests) operands.push_back({CastInputs(test.operands[0])});
  for (PreludeMode mode : kModes) {
    const auto got = RunPrelude(tests, mode, operands);
    ASSERT_EQ(got.size(), tests.size());
    for (size_t c = 0; c < tests.size(); ++c) {
      Elements want{tests[c].result, {}};
      for (int64_t i = 0; i < operands[c][0].size(); ++i) {
        uint64_t raw = 0;
        StoreScalar(&raw, want.dtype,
                    Convert(operands[c][0].at(i), tests[c].operands[0], want.dtype));
        want.Push(raw);
      }
      ExpectNear(tests[c], mode, operands[c], got[c], want, 0);
    }
  }
}

TEST_P(PreludeCasts, AgreeWithConvertSlow) {
  std::vector<PreludeCase> tests;
  for (DType to : kNative) {
    tests.push_back({absl::StrCat("rt_cast<", PreludeType(to), ">($0)"), {GetParam()}, to});
  }
  CheckConversions(tests);
}
INSTANTIATE_TEST_SUITE_P(, PreludeCasts, testing::ValuesIn(kNative), DTypeName);

TEST(Prelude, NarrowFloatsAgreeWithConvert) {
  std::vector<PreludeCase> tests;
  for (DType t : {kBFloat16, kFloat8E4M3, kFloat8E5M2}) {
    tests.push_back({absl::StrCat(PreludeType(t), "_to_f32($0)"), {t}, kFloat32});
    tests.push_back({absl::StrCat("rt_f32_to_", t.ToString(), "($0)"), {kFloat32}, t});
  }
  CheckConversions(tests);
}

// Every f32 that an f16 can name, moved a little, so that all ties are met from both sides.
TEST(Prelude, NarrowFloatsRoundToEven) {
  std::vector<PreludeCase> tests;
  Elements in{kFloat32, {}};
  for (uint64_t high = 0; high < 65536; ++high) {
    for (uint64_t low : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff}) in.Push(high << 16 | low);
  }
  for (DType t : {kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat16}) {
    tests.push_back(
        {t == kFloat16 ? "rt_cast<rt_f16>($0)" : absl::StrCat("rt_f32_to_", t.ToString(), "($0)"),
         {kFloat32},
         t});
  }
  const std::vector<std::vector<Elements>> operands(tests.size(), {in});
  const auto got = RunPrelude(tests, {16}, operands);
  ASSERT_EQ(got.size(), tests.size());
  for (size_t c = 0; c < tests.size(); ++c) {
    Elements want{tests[c].result, {}};
    for (int64_t i = 0; i < in.size(); ++i) {
      uint64_t raw = 0;
      StoreScalar(&raw, want.dtype, Convert(in.at(i), kFloat32, want.dtype));
      want.Push(raw);
    }
    ExpectNear(tests[c], {16}, operands[c], got[c], want, 0);
  }
}

// ---- lanes, constants, text

double RunOnce(const std::string& statements) {
  const std::string body = absl::StrCat(
      "RT_KERNEL(test) {\n  rt_f64* out = (rt_f64*)rt_buffers[0];\n", statements, "\n}\n");
  double out = -12345;
  auto kernel = GetKernel(absl::StrCat(PreludeFor(body), body), "test", HostTarget());
  EXPECT_OK(kernel);
  if (!kernel.ok()) return out;
  void* buffers[1] = {&out};
  const int64_t vars[2] = {7, -7};
  (*kernel)->fn(buffers, vars, nullptr, 0, 1);
  return out;
}

TEST(Prelude, Lanes) {
  EXPECT_EQ(RunOnce("*out = rt_fold_add(rt_ramp<rt_i32, 8>(3, 2));"), 80);
  EXPECT_EQ(RunOnce("*out = rt_fold_mul(rt_ramp<rt_f32, 4>(1.0f, 1.0f));"), 24);
  EXPECT_EQ(RunOnce("*out = rt_fold_max(rt_lanes<4>(1.0, 9.0, -3.0, 4.0));"), 9);
  EXPECT_EQ(RunOnce("*out = rt_fold_min(rt_ramp<rt_i8, 16>((rt_i8)5, (rt_i8)-1));"), -10);
  EXPECT_EQ(RunOnce("*out = rt_fold_and(rt_lanes<2>(12, 10));"), 8);
  EXPECT_EQ(RunOnce("*out = rt_fold_or(rt_lanes<2>(12, 10));"), 14);
  EXPECT_EQ(RunOnce("*out = rt_fold_xor(rt_lanes<2>(12, 10));"), 6);
  EXPECT_EQ(RunOnce("*out = rt_lane<3>(rt_ramp<rt_i64, 4>((rt_i64)1 << 40, (rt_i64)5));"),
            1099511627791.0);
  EXPECT_EQ(RunOnce("*out = rt_fold_add(rt_splat<64>((rt_f16)0.5f));"), 32);
  EXPECT_EQ(RunOnce("*out = rt_bitcast<rt_i32>(rt_lane<1>(rt_splat<2>(1.0f)));"), 0x3f800000);
  EXPECT_TRUE(std::isnan(
      RunOnce("*out = rt_fold_max(rt_lanes<4>(1.0f, __builtin_nanf(\"\"), 3.0f, 4.0f));")));
}

// A constant divisor takes another path than one that is not.
TEST(Prelude, DivisionByConstants) {
  for (const char* fn : {"rt_truncdiv", "rt_truncmod", "rt_floordiv", "rt_floormod"}) {
    const Op op = fn[3] == 't' ? (fn[8] == 'd' ? Op::kTruncDiv : Op::kTruncMod)
                               : (fn[8] == 'd' ? Op::kFloorDiv : Op::kFloorMod);
    for (DType t : {kInt8, kInt32, kInt64, kUInt16, kUInt32}) {
      std::vector<PreludeCase> scalars, vectors;
      std::vector<std::vector<Elements>> operands;
      std::vector<int> divisors;
      for (int d : {-9, -8, -1, 0, 1, 2, 3, 7, 8, 64, 100}) {
        if (d < 0 && t.IsUnsigned()) continue;
        const std::string literal = absl::StrCat("(", PreludeType(t), ")", d);
        scalars.push_back({absl::StrCat(fn, "($0, ", literal, ")"), {t}, t});
        vectors.push_back({absl::StrCat(fn, "($0, rt_splat<16>(", literal, "))"), {t}, t});
        operands.push_back({Tuples({t})});
        divisors.push_back(d);
      }
      for (PreludeMode mode : {PreludeMode{1}, PreludeMode{16}}) {
        const auto& tests = mode.lanes == 1 ? scalars : vectors;
        const auto got = RunPrelude(tests, mode, operands);
        ASSERT_EQ(got.size(), tests.size());
        for (size_t c = 0; c < tests.size(); ++c) {
          Elements want{t, {}};
          for (int64_t i = 0; i < operands[c][0].size(); ++i) {
            uint64_t raw = 0;
            StoreScalar(
                &raw, t,
                EvaluateScalarOp(op, t, t, {operands[c][0].at(i), Scalar::Int(divisors[c])}));
            want.Push(raw);
          }
          ExpectNear(tests[c], mode, operands[c], got[c], want, 0);
        }
      }
    }
  }
}

// So does a constant bound of max and min.
TEST(Prelude, ExtremesWithConstants) {
  for (DType t : {kFloat16, kFloat32, kFloat64}) {
    for (Op op : {Op::kMax, Op::kMin}) {
      const std::vector<std::pair<const char*, double>> bounds = {{"0.0", 0.0},
                                                                  {"-0.0", -0.0},
                                                                  {"6.0", 6.0},
                                                                  {"-1.0", -1.0},
                                                                  {"__builtin_inf()", INFINITY},
                                                                  {"__builtin_nan(\"\")", NAN}};
      for (PreludeMode mode : kModes) {
        std::vector<PreludeCase> tests;
        std::vector<std::vector<Elements>> operands;
        for (const auto& [text, value] : bounds) {
          const std::string scalar = absl::StrCat("(", PreludeType(t), ")", text);
          const std::string b =
              mode.lanes == 1 ? scalar : absl::StrCat("rt_splat<", mode.lanes, ">(", scalar, ")");
          tests.push_back(
              {absl::StrCat(op == Op::kMax ? "rt_max($0, " : "rt_min($0, ", b, ")"), {t}, t});
          operands.push_back({Tuples({t})});
        }
        const auto got = RunPrelude(tests, mode, operands);
        ASSERT_EQ(got.size(), tests.size());
        for (size_t c = 0; c < tests.size(); ++c) {
          Elements want{t, {}};
          for (int64_t i = 0; i < operands[c][0].size(); ++i) {
            uint64_t raw = 0;
            StoreScalar(&raw, t,
                        EvaluateScalarOp(op, t, t,
                                         {operands[c][0].at(i), Scalar::Float(bounds[c].second)}));
            want.Push(raw);
          }
          ExpectNear(tests[c], mode, operands[c], got[c], want, 0);
        }
      }
    }
  }
}

// Streamed and prefetched accesses at every alignment write what plain ones would, and only that.
TEST(Prelude, StreamedStoresAtAnyAlignment) {
  for (PreludeMode mode : kModes) {
    if (mode.lanes == 1) continue;
    const std::string body =
        absl::StrCat("RT_KERNEL(test) {\n  const rt_f32* a = (const rt_f32*)rt_buffers[0];\n",
                     "  rt_f32* b = (rt_f32*)rt_buffers[1];\n  rt_prefetch<1>(a, 1 << 30);\n",
                     "  rt_stream<", mode.lanes, ">(b, rt_vars[0], rt_load<rt_f32, ", mode.lanes,
                     ">(a, 0));\n", "  rt_stream_end();\n}\n");
    auto kernel = GetKernel(absl::StrCat(PreludeFor(body), body), "test", TargetOf(mode));
    ASSERT_OK(kernel);
    alignas(64) float a[16], b[64];
    for (int i = 0; i < 16; ++i) a[i] = static_cast<float>(i + 1);
    for (int64_t at = 0; at < 32; ++at) {
      std::fill(std::begin(b), std::end(b), -1.0f);
      void* buffers[2] = {a, b};
      (*kernel)->fn(buffers, &at, nullptr, 0, 1);
      for (int64_t i = 0; i < 64; ++i) {
        const bool inside = i >= at && i < at + mode.lanes;
        ASSERT_EQ(b[i], inside ? a[i - at] : -1.0f) << "at " << at << ", element " << i;
      }
    }
  }
}

// Loads and stores of which each lane has a gate, of every width: loads give 0 where it is closed,
// and what lies there is not touched, as on a page that is not ours.
TEST(Prelude, WhatIsMaskedTouchesNothingElse) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  void* memory =
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  char* own = static_cast<char*>(memory) + page;
  ASSERT_EQ(mprotect(memory, page, PROT_NONE), 0);
  ASSERT_EQ(mprotect(own + page, page, PROT_NONE), 0);
  for (int64_t i = 0; i < page; ++i) own[i] = static_cast<char>(i % 251 + 1);
  for (const bool avx2 : {false, true}) {
    for (const DType t : {kInt8, kUInt16, kBFloat16, kFloat16, kFloat32, kInt32, kFloat64}) {
      for (const int lanes : {2, 4, 8, 16, 32, 64}) {
        const std::string type = PreludeType(t), of = absl::StrCat(type, ", ", lanes);
        const std::string body = absl::StrCat(
            "RT_KERNEL(test) {\n  const rt_vec<rt_bool, ", lanes, "> m = rt_load<rt_bool, ", lanes,
            ">((const rt_bool*)rt_buffers[1], 0);\n  rt_store<", lanes, ">((", type,
            "*)rt_buffers[2], 0, rt_load_where<", of, ">((const ", type,
            "*)rt_buffers[0], rt_vars[0], m));\n  rt_store_where<", lanes, ">((", type,
            "*)rt_buffers[0], rt_vars[0], rt_load<", of, ">((const ", type,
            "*)rt_buffers[3], 0), m);\n}\n");
        auto kernel =
            GetKernel(absl::StrCat(PreludeFor(body), body), "test", TargetOf({lanes, avx2}));
        ASSERT_OK(kernel);
        // From before the page, from within it, over its end, and nothing at all from far away.
        const int64_t over = page / t.bytes() - lanes / 2;
        for (const int64_t first : {int64_t{-lanes / 2}, int64_t{3}, over, int64_t{1} << 40}) {
          char mask[64], out[64 * 8], want[64 * 8] = {}, in[64 * 8];
          std::vector<char> after(own, own + page);
          for (int64_t i = 0; i < 64 * 8; ++i) in[i] = static_cast<char>(i % 239 + 9);
          for (int64_t l = 0; l < lanes; ++l) {
            const int64_t at = (first + l) * t.bytes();
            mask[l] = at >= 0 && at < page && l % 5 != 2;
            if (!mask[l]) continue;
            std::memcpy(want + l * t.bytes(), own + at, t.bytes());
            std::memcpy(after.data() + at, in + l * t.bytes(), t.bytes());
          }
          void* buffers[4] = {own, mask, out, in};
          (*kernel)->fn(buffers, &first, nullptr, 0, 1);
          EXPECT_EQ(std::memcmp(out, want, lanes * t.bytes()), 0) << of << " at " << first;
          EXPECT_EQ(std::memcmp(own, after.data(), page), 0) << of << " at " << first;
        }
      }
    }
  }
  munmap(memory, 3 * page);
}

// Each op by itself, on scalars: its paragraphs bring all that they need.
TEST(Prelude, EachOpCompilesAlone) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& info = Info(static_cast<Op>(i));
    for (DType t : {kFloat32, kUInt64}) {
      if (!IsElementwise(static_cast<Op>(i)) || !info.ctext[0] || !Takes(info.type, t)) continue;
      std::vector<DType> dtypes(info.arity, t);
      if (info.type == TypeRule::kWhere) dtypes[0] = kBool;
      const DType result = info.type == TypeRule::kCompare ? kBool : t;
      for (int lanes : {1, 8}) {
        EXPECT_OK(
            GetKernel(PreludeKernel({{info.ctext, dtypes, result}}, lanes), "test", HostTarget()));
      }
    }
  }
}

TEST(Prelude, HoldsOnlyWhatIsUsed) {
  EXPECT_EQ(PreludeFor("void f() {}"), "");
  EXPECT_EQ(PreludeFor("my_rt_exp(x); rt_exponential(x)"), "");
  const std::string text = PreludeFor("RT_KERNEL(f) { rt_exp2(x); }");
  EXPECT_THAT(text, testing::HasSubstr("rt_math_("));
  EXPECT_THAT(text, testing::HasSubstr("define RT_KERNEL"));
  for (const char* absent : {"rt_load", "rt_expm1", "//", "#include", "#pragma once"}) {
    EXPECT_THAT(text, testing::Not(testing::HasSubstr(absent)));
  }
}

}  // namespace
}  // namespace tessera
