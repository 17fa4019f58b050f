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
    const bool same =
        std::isnan(want[i]) ? std::isnan(got[i]) : std::fabs(got[i] - want[i]) <= tolerance;
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
  if (c.dtype == kBFloat16) {
    // Both products.
    EXPECT_NE(kernels.text.find("= rt_mma_bf16("), std::string::npos);
    EXPECT_EQ(kernels.text.find("= rt_fma("), std::string::npos);
  }
  const double tolerance = c.dtype == kFloat32 ? 1e-5 : c.dtype == kFloat16 ? 4e-3 : 3e-2;
  ExpectNear(Values(y), Values(attention(q.To("CPU"), k.To("CPU"), v.To("CPU"))), tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BlockChain,
    testing::Values(Case{1, 16, 32, 8, 16}, Case{2, 33, 70, 24, 40}, Case{5, 40, 33, 16, 64},
                    Case{4, 64, 96, 32, 128, kFloat32, true}, Case{1, 50, 129, 80, 20},
                    Case{2, 20, 64, 64, 200}, Case{4, 65, 70, 64, 64, kBFloat16, true},
                    Case{1, 17, 100, 32, 32, kFloat16}, Case{6, 34, 40, 48, 72, kBFloat16}));

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

// Other reductions of rows than softmax's.
TEST(BlockChainValues, AnyReductionOfRows) {
  const auto compute = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor s = q.MatMul(k.Transpose());
    const Tensor spread = (s - s.Mean({-1}, true)) / (s.Max({-1}, true) - s.Min({-1}, true));
    return spread.MatMul(v).Relu() + 1;
  };
  const Tensor q = Given({2, 48, 16}, 1), k = Given({2, 77, 16}, 2), v = Given({2, 77, 24}, 3);
  const Tensor y = compute(q, k, v);
  EXPECT_EQ(KernelsFor(y).count, 1u);
  ExpectNear(Values(y), Values(compute(q.To("CPU"), k.To("CPU"), v.To("CPU"))), 1e-4);
}

TEST(BlockChainValues, VariableExtents) {
  Variable n("n", 32, 150), m("m", 0, 40);
  const Tensor q = Given({2, 40, 16}, 1), k = Given({2, 150, 16}, 2), v = Given({2, 150, 32}, 3);
  const auto attention = [](const Tensor& a, const Tensor& b, const Tensor& d) {
    return a.ScaledDotProductAttention(b, d).Contiguous();
  };
  Jit keys([&] { return attention(q, k.SliceAxis(1, {0, n}), v.SliceAxis(1, {0, n})); });
  Jit rows([&] { return attention(q.SliceAxis(1, {0, m}), k, v); });
  const Tensor cq = q.To("CPU"), ck = k.To("CPU"), cv = v.To("CPU");
  for (const int64_t x : {150, 32, 64, 97}) {
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
