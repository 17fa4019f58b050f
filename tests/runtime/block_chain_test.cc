// Attention on the simulated GPU: one kernel that keeps no scores, against the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/plan_key.h"
#include "runtime/runtime.h"
#include "tests/testing.h"

namespace tessera {
namespace {

struct Case {
  int64_t heads, queries, keys, width, columns;
  DType dtype = kFloat32;
  bool causal = false;
};

std::vector<float> Draw(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> out(n);
  for (float& x : out) x = uniform(random);
  return out;
}

Tensor Given(const Dims& dims, uint32_t seed, DType dtype = kFloat32) {
  Tensor::ManualSeed(seed);
  return Tensor::Uniform(-2, 2, dims).Cast(dtype).To("SIM").Realize();
}

std::vector<float> Values(const Tensor& t) { return t.To("CPU").Cast(kFloat32).ToVector<float>(); }

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  int wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::isnan(want[i])
                          ? std::isnan(got[i])
                          : got[i] == want[i] || std::fabs(got[i] - want[i]) <= tolerance;
    if (!same && ++wrong < 4) ADD_FAILURE() << i << ": " << got[i] << " for " << want[i];
  }
  EXPECT_EQ(wrong, 0);
}

struct Kernels {
  size_t count = 0;
  int64_t temporary = 0;  // bytes
  std::string text;
};

Kernels KernelsFor(const Tensor& t) {
  const std::vector<UOp> roots = {t.uop()};
  const auto plan = PreparePlan(roots, MakePlanKey(roots));
  EXPECT_OK(plan);
  Kernels out;
  if (!plan.ok()) return out;
  out.count = (*plan)->programs.size();
  for (const auto& [device, bytes] : (*plan)->plan.arenas) out.temporary += bytes;
  for (const Program& p : (*plan)->programs) out.text += p.text.substr(p.text.rfind("RT_GLOBAL"));
  return out;
}

// Loops that a text's function has outside of others.
int OuterLoops(const std::string& text) {
  int n = 0;
  for (size_t at = 0; (at = text.find("\n  for (", at)) != std::string::npos; ++at) ++n;
  return n;
}

class BlockChain : public testing::TestWithParam<Case> {};

TEST_P(BlockChain, AgreesWithTheCpu) {
  const Case& c = GetParam();
  const Tensor q = Given({c.heads, c.queries, c.width}, 1, c.dtype);
  const Tensor k = Given({c.heads, c.keys, c.width}, 2, c.dtype);
  const Tensor v = Given({c.heads, c.keys, c.columns}, 3, c.dtype);
  AttentionOptions options;
  options.causal = c.causal;
  const auto attention = [&](const Tensor& a, const Tensor& b, const Tensor& d) {
    return a.ScaledDotProductAttention(b, d, options).Cast(kFloat32);
  };
  const Tensor y = attention(q, k, v);
  const Kernels kernels = KernelsFor(y);
  EXPECT_EQ(kernels.count, 1u);
  EXPECT_EQ(kernels.temporary, 0);
  if (c.keys > 64) {
    EXPECT_EQ(OuterLoops(kernels.text), 1);  // each tile of keys is read once
  }
  // Scores of many rows stay in registers: four threads have what they know of a row.
  const bool in_registers = kernels.text.find("= rt_warp_max(RT_SELF 4, ") != std::string::npos;
  EXPECT_EQ(in_registers, c.dtype == kBFloat16 && c.queries > 32 && c.width <= 128);
  if (c.dtype == kBFloat16) {
    // Both products.
    EXPECT_NE(kernels.text.find("= rt_mma_bf16("), std::string::npos);
    EXPECT_EQ(kernels.text.find("= rt_fma("), std::string::npos);
    // The queries' fragments are read once, before the tiles of keys.
    const size_t tiles = kernels.text.find("\n  for (");
    if (c.keys > 64) {
      EXPECT_LT(kernels.text.find("= rt_fragment("), tiles);
    }
  }
  const double tolerance = c.dtype == kFloat32 ? 1e-5 : c.dtype == kFloat16 ? 4e-3 : 3e-2;
  ExpectNear(Values(y), Values(attention(q.To("CPU"), k.To("CPU"), v.To("CPU"))), tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BlockChain,
    testing::Values(Case{1, 16, 32, 8, 16}, Case{2, 33, 70, 24, 40}, Case{5, 40, 33, 16, 64},
                    Case{4, 64, 96, 32, 128, kFloat32, true}, Case{1, 50, 129, 80, 20},
                    Case{2, 20, 64, 64, 200}, Case{4, 65, 70, 64, 64, kBFloat16, true},
                    Case{1, 17, 100, 32, 32, kFloat16}, Case{6, 34, 40, 48, 72, kBFloat16},
                    // Wide heads, which blocks of little shared memory hold as well.
                    Case{4, 65, 70, 128, 128, kBFloat16}, Case{4, 64, 70, 128, 128},
                    Case{1, 32, 70, 128, 128, kFloat16}));

// Where scores stay in registers: masks of memory, and tiles that reach over the keys or columns.
TEST(BlockChainValues, MasksOfHalves) {
  for (const auto& [keys, columns] : {std::pair<int64_t, int64_t>{100, 64}, {128, 36}, {90, 34}}) {
    for (const DType dtype : {kFloat32, kBool}) {
      const Tensor q = Given({2, 70, 64}, 1, kBFloat16), k = Given({2, keys, 64}, 2, kBFloat16);
      const Tensor v = Given({2, keys, columns}, 3, kBFloat16);
      Tensor mask = Given({70, keys}, 4, kFloat32);
      if (dtype.IsBool()) mask = (mask > -0.5).Contiguous().Realize();
      AttentionOptions options;
      options.mask = mask;
      const Tensor y = q.ScaledDotProductAttention(k, v, options).Cast(kFloat32);
      const std::string text = KernelsFor(y).text;
      int maxima = 0;
      for (size_t at = 0;
           (at = text.find("= rt_warp_max(RT_SELF 4, ", at + 1)) != std::string::npos;)
        ++maxima;
      EXPECT_EQ(maxima, 2) << "one for each of a thread's two rows";
      options.mask = mask.To("CPU");
      const auto of = [](const Tensor& t) { return t.To("CPU").Cast(kFloat32); };
      const std::vector<float> want =
          of(q).ScaledDotProductAttention(of(k), of(v), options).ToVector<float>();
      const std::vector<float> got = y.ToVector<float>();
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 0.02) << keys << " keys, " << columns << " columns, " << i;
      }
    }
  }
}

TEST(BlockChainValues, MasksAndInfinities) {
  const Tensor q = Given({2, 40, 16}, 1), k = Given({2, 90, 16}, 2), v = Given({2, 90, 32}, 3);
  const std::vector<float> masks = Draw(40 * 90, 4);
  AttentionOptions hidden, added;
  Tensor mask = Tensor::FromBytes(masks.data(), {40, 90}, kFloat32, "CPU");
  // One row sees nothing, one only the last tile of keys.
  const Tensor row = Tensor::Arange(40, kInt64).Unsqueeze(1), column = Tensor::Arange(90, kInt64);
  mask = Where(row == 3, -1, Where(row == 4, Where(column > 80, 1, -1), mask)).Realize();
  const auto attention = [&](const char* place, bool add) {
    AttentionOptions options;
    options.mask = add ? mask.To(place) : mask.To(place) > 0;
    return Values(q.To(place).ScaledDotProductAttention(k.To(place), v.To(place), options));
  };
  AttentionOptions seen;
  seen.mask = mask.To("SIM") > 0;
  EXPECT_EQ(OuterLoops(KernelsFor(q.ScaledDotProductAttention(k, v, seen)).text), 1);
  const std::vector<float> got = attention("SIM", false);
  EXPECT_EQ(got[3 * 32], 0);
  EXPECT_NE(got[4 * 32], 0);
  ExpectNear(got, attention("CPU", false), 1e-5);
  ExpectNear(attention("SIM", true), attention("CPU", true), 1e-5);

  std::vector<float> keys = Values(k);
  keys[5 * 16] = std::numeric_limits<float>::infinity();
  keys[(90 + 7) * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor special = Tensor::FromBytes(keys.data(), {2, 90, 16}, kFloat32, "CPU");
  ExpectNear(Values(q.ScaledDotProductAttention(special.To("SIM"), v)),
             Values(q.To("CPU").ScaledDotProductAttention(special, v.To("CPU"))), 1e-5);
}

// Maxima that grow from tile to tile, by little or past what any exponential can bridge, and fall;
// rows that begin with nothing, and that are nothing.
TEST(BlockChainValues, MaximaThatGrow) {
  const int64_t rows = 20, keys = 300;
  std::vector<float> added(rows * keys);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < keys; ++k) {
      const float by[] = {0,
                          0.01f * k,
                          3.0f * k,
                          -3.0f * k,
                          40.0f * k,
                          -40.0f * k,
                          1e30f * k,
                          -1e36f * k,
                          k < 200 ? -kInfinity : 0,
                          -kInfinity,
                          k == 299 ? 0 : -kInfinity,
                          k % 70 == 3 ? 90.0f : -90.0f};
      added[r * keys + k] = by[r % std::size(by)];
    }
  }
  added[18 * keys + 40] = kInfinity;
  added[19 * keys + 250] = std::numeric_limits<float>::quiet_NaN();
  const Tensor more = Tensor::FromBytes(added.data(), {rows, keys}, kFloat32, "CPU");
  const Tensor q = Given({2, rows, 16}, 1), k = Given({2, keys, 16}, 2),
               v = Given({2, keys, 32}, 3);
  // As it is composed, in powers of two and of a scaled difference, and where nothing counts as 0.
  const auto compute = [&](const char* place, int form) {
    const Tensor x = q.To(place).MatMul(k.To(place).Transpose()) + more.To(place);
    const Tensor max = x.Max({-1}, true);
    const Tensor zeroed = Where(max == -kInfinity, 0, max);
    const Tensor e = form == 0   ? (x - max).Exp()
                     : form == 1 ? (x - max).Exp2()
                     : form == 2 ? ((x - max) * 0.125).Exp2()
                                 : (x - zeroed).Exp();
    const Tensor sum = e.Sum({-1}, true);
    if (form == 1) return (e / sum).MatMul(v.To(place)).Relu() + 1;
    if (form == 2) return (e * (sum + 2).Reciprocal()).MatMul(v.To(place));
    return (e * (form == 0 ? sum : Where(sum == 0, 1, sum)).Reciprocal()).MatMul(v.To(place));
  };
  for (int form = 0; form < 4; ++form) {
    SCOPED_TRACE(form);
    const Kernels kernels = KernelsFor(compute("SIM", form));
    EXPECT_EQ(kernels.count, 1u);
    EXPECT_EQ(OuterLoops(kernels.text), 1);
    ExpectNear(Values(compute("SIM", form)), Values(compute("CPU", form)), 2e-5);
  }
}

// Weights that are dropped, infinite values, and two sums of the exponentials.
TEST(BlockChainValues, WeightsOfOnePass) {
  const int64_t rows = 34, keys = 100;
  const std::vector<float> drawn = Draw(rows * keys, 7);
  const Tensor keep =
      (Tensor::FromBytes(drawn.data(), {rows, keys}, kFloat32, "CPU") > 0).Realize();
  std::vector<float> values = Draw(keys * 24, 8);
  values[3 * 24 + 5] = std::numeric_limits<float>::infinity();
  values[70 * 24 + 6] = -std::numeric_limits<float>::infinity();
  values[99 * 24 + 7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor v = Tensor::FromBytes(values.data(), {keys, 24}, kFloat32, "CPU");
  const Tensor q = Given({rows, 16}, 1), k = Given({keys, 16}, 2);
  const auto compute = [&](const char* place, bool drop) {
    const Tensor x = q.To(place).MatMul(k.To(place).Transpose()) * 0.3;
    const Tensor e = (x - x.Max({-1}, true)).Exp();
    const Tensor sum = e.Sum({-1}, true);
    if (drop) return (Where(keep.To(place), e, 0) / sum * 1.25).MatMul(v.To(place));
    const Tensor kept = (e * keep.To(place).Cast(kFloat32)).Sum({-1}, true);
    return (e / (sum + kept)).MatMul(v.To(place));
  };
  for (const bool drop : {false, true}) {
    SCOPED_TRACE(drop);
    const Kernels kernels = KernelsFor(compute("SIM", drop));
    EXPECT_EQ(kernels.count, 1u);
    EXPECT_EQ(OuterLoops(kernels.text), 1);
    ExpectNear(Values(compute("SIM", drop)), Values(compute("CPU", drop)), 2e-5);
  }
}

// Several heads of queries to one of keys.
TEST(BlockChainValues, GroupsOfHeads) {
  const Tensor q = Given({2, 3, 40, 32}, 1, kFloat16), k = Given({2, 1, 70, 32}, 2, kFloat16);
  const Tensor v = Given({2, 1, 70, 32}, 3, kFloat16);
  const auto attention = [&](const char* place) {
    const Tensor keys = k.To(place).Expand({2, 3, 70, 32});
    return q.To(place).ScaledDotProductAttention(keys, v.To(place).Expand({2, 3, 70, 32}));
  };
  const Kernels kernels = KernelsFor(attention("SIM"));
  EXPECT_EQ(kernels.count, 1u);
  EXPECT_EQ(OuterLoops(kernels.text), 1);
  ExpectNear(Values(attention("SIM")), Values(attention("CPU")), 4e-3);
}

// Scores by matrix units, shares in f32: a language model's, with a mask that follows a position.
TEST(BlockChainValues, SharesThatAreNotRounded) {
  Variable position("position", 0, 40);
  const Tensor q = Given({2, 50, 64}, 1, kFloat16), k = Given({2, 90, 64}, 2, kFloat16);
  const Tensor v = Given({2, 90, 64}, 3, kFloat16);
  const auto attention = [&](const char* place, const Extent& at) {
    const Tensor keys = k.To(place).SliceAxis(1, {0, at + 50}).Cast(kFloat32);
    const Tensor values = v.To(place).SliceAxis(1, {0, at + 50}).Cast(kFloat32);
    const Tensor scores = q.To(place).Cast(kFloat32).MatMul(keys.Transpose()) * 0.1;
    const Tensor row = Tensor::Arange(50, kInt64).Unsqueeze(1),
                 key = Tensor::Arange(at + 50, kInt64);
    const float infinity = std::numeric_limits<float>::infinity();
    return Where(key <= row + at, scores, -infinity).Softmax().MatMul(values).Contiguous();
  };
  const Kernels kernels = KernelsFor(attention("SIM", Extent(position)));
  EXPECT_EQ(kernels.count, 1u);
  EXPECT_EQ(OuterLoops(kernels.text), 1);
  EXPECT_NE(kernels.text.find("= rt_mma_f16("), std::string::npos);
  Jit step([&] { return attention("SIM", Extent(position)); });
  for (const int64_t at : {0, 40, 17}) {
    ExpectNear(Values(step.One({}, {{"position", at}})), Values(attention("CPU", at)), 1e-4);
  }
}

// Other reductions of rows than softmax's: a pass for each.
TEST(BlockChainValues, AnyReductionOfRows) {
  const auto compute = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor s = q.MatMul(k.Transpose());
    const Tensor spread = (s - s.Mean({-1}, true)) / (s.Max({-1}, true) - s.Min({-1}, true));
    return spread.MatMul(v).Relu() + 1;
  };
  const Tensor q = Given({2, 48, 16}, 1), k = Given({2, 77, 16}, 2), v = Given({2, 77, 24}, 3);
  const Tensor y = compute(q, k, v);
  EXPECT_EQ(KernelsFor(y).count, 1u);
  EXPECT_GT(OuterLoops(KernelsFor(y).text), 1);
  ExpectNear(Values(y), Values(compute(q.To("CPU"), k.To("CPU"), v.To("CPU"))), 1e-4);
}

TEST(BlockChainValues, VariableExtents) {
  Variable n("n", 0, 150), m("m", 0, 40);
  const Tensor q = Given({2, 40, 16}, 1), k = Given({2, 150, 16}, 2), v = Given({2, 150, 32}, 3);
  const auto attention = [](const Tensor& a, const Tensor& b, const Tensor& d) {
    return a.ScaledDotProductAttention(b, d).Contiguous();
  };
  Jit keys([&] { return attention(q, k.SliceAxis(1, {0, n}), v.SliceAxis(1, {0, n})); });
  Jit rows([&] { return attention(q.SliceAxis(1, {0, m}), k, v); });
  const Tensor cq = q.To("CPU"), ck = k.To("CPU"), cv = v.To("CPU");
  for (const int64_t x : {150, 32, 1, 64, 0, 97}) {
    ExpectNear(Values(keys.One({}, {{"n", x}})),
               Values(attention(cq, ck.SliceAxis(1, {0, x}), cv.SliceAxis(1, {0, x}))), 1e-5);
  }
  for (const int64_t x : {40, 0, 1, 33}) {
    ExpectNear(Values(rows.One({}, {{"m", x}})), Values(attention(cq.SliceAxis(1, {0, x}), ck, cv)),
               1e-5);
  }
}

// Memory does not grow with the number of keys; what fits no block keeps its scores.
TEST(BlockChainValues, MemoryOfLongRows) {
  const auto of = [](int64_t keys, int64_t width) {
    const Tensor q = Tensor::Empty({8, 1024, width}, kBFloat16, "SIM");
    const Tensor k = Tensor::Empty({8, keys, width}, kBFloat16, "SIM");
    return KernelsFor(q.ScaledDotProductAttention(k, k * 2));
  };
  for (const int64_t keys : {1024, 8192, 65536}) {
    EXPECT_EQ(of(keys, 128).count, 1u) << keys;
    EXPECT_EQ(of(keys, 128).temporary, 0) << keys;
  }
  EXPECT_GT(of(1024, 512).count, 1u);
}

}  // namespace
}  // namespace tessera
