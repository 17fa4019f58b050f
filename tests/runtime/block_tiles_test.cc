// Tiles of contractions on the simulated GPU: every remainder, order and dtype, what is computed
// while staging and storing, and planted faults.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/plan_key.h"
#include "runtime/runtime.h"
#include "runtime/sim/sim.h"
#include "tests/support/check.h"
#include "tests/testing.h"

namespace tessera {
namespace {

class BlockTiles : public testing::Test {
 protected:
  void TearDown() override { sim::ClearFaults(); }
};

// Small integers: any order of summation gives the same bits.
Tensor Given(const Dims& dims, DType dtype = kFloat32) {
  return Tensor::RandInt(-4, 5, dims).Cast(dtype).To("SIM").Realize();
}

std::vector<float> Values(const Tensor& t) { return t.To("CPU").Cast(kFloat32).ToVector<float>(); }

// The bodies of the kernels that compute a tensor.
std::string TextOf(const Tensor& t) {
  const std::vector<UOp> roots = {t.uop()};
  const auto plan = PreparePlan(roots, MakePlanKey(roots));
  EXPECT_OK(plan);
  if (!plan.ok()) return "";
  std::string all;
  for (const Program& p : (*plan)->programs) all += p.text.substr(p.text.rfind("RT_GLOBAL"));
  return all;
}

struct Shape3 {
  int64_t m, k, n;
};

// Each operand in order or turned, against plain loops.
void ExpectProduct(const Shape3& s, DType dtype, bool turn_a, bool turn_b, const char* uses) {
  const Tensor a = turn_a ? Given({s.k, s.m}, dtype).T() : Given({s.m, s.k}, dtype);
  const Tensor b = turn_b ? Given({s.n, s.k}, dtype).T() : Given({s.k, s.n}, dtype);
  const Tensor c = dtype.IsInt() ? a.MatMul(b) : a.Cast(kFloat32).MatMul(b.Cast(kFloat32));
  EXPECT_THAT(TextOf(c), testing::HasSubstr(uses));
  const std::vector<float> x = Values(a), y = Values(b), got = Values(c);
  int wrong = 0;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      float want = 0;
      for (int64_t l = 0; l < s.k; ++l) want += x[i * s.k + l] * y[l * s.n + j];
      wrong += got[i * s.n + j] != want;
    }
  }
  EXPECT_EQ(wrong, 0) << s.m << "x" << s.k << "x" << s.n << " of " << dtype.ToString()
                      << (turn_a ? ", a turned" : "") << (turn_b ? ", b turned" : "");
}

constexpr Shape3 kShapes[] = {{128, 64, 128}, {130, 33, 70}, {17, 9, 16}, {40, 100, 36}};

TEST_F(BlockTiles, ProductsOfF32) {
  for (const Shape3& s : kShapes) {
    for (int turn = 0; turn < 4; ++turn) {
      ExpectProduct(s, kFloat32, turn & 1, turn & 2, "rt_barrier()");
    }
  }
}

TEST_F(BlockTiles, ProductsOf16BitsUseMatrixUnits) {
  for (int turn = 0; turn < 4; ++turn) {
    ExpectProduct({130, 72, 40}, kFloat16, turn & 1, turn & 2, "= rt_mma_f16(");
    ExpectProduct({33, 50, 35}, kBFloat16, turn & 1, turn & 2, "= rt_mma_bf16(");
  }
  ExpectProduct({96, 130, 120}, kBFloat16, false, false, "= rt_fragment_turned(");
}

// Both of a unit's widths, ends that tiles reach over, and what is computed while it is staged.
TEST_F(BlockTiles, LargeProductsUseUnitsOfFourWarpsSlow) {
  const std::string arch = TextFlag(Flag::kCudaArch);
  if (!arch.empty() && arch != "sm_90") GTEST_SKIP() << arch << " has none";
  for (int turn = 0; turn < 4; ++turn) {
    ExpectProduct({300, 200, 530}, kBFloat16, turn & 1, turn & 2, "= rt_wgmma_bf16(");
    ExpectProduct({200, 128, 180}, kFloat16, turn & 1, turn & 2, "= rt_wgmma_f16(");
  }
  const Tensor several = Given({2, 150, 130}, kBFloat16), others = Given({2, 130, 170}, kBFloat16);
  const Tensor each = several.Cast(kFloat32).MatMul(others.Cast(kFloat32));
  EXPECT_THAT(TextOf(each), testing::HasSubstr("= rt_wgmma_bf16("));
  EXPECT_EQ(
      Values(each),
      several.To("CPU").Cast(kFloat32).MatMul(others.To("CPU").Cast(kFloat32)).ToVector<float>());
  const Tensor a = Given({200, 140}, kBFloat16), b = Given({260, 140}, kInt8);
  const Tensor c = (a + 1).Cast(kFloat32).MatMul(b.Cast(kBFloat16).Cast(kFloat32).T()).Relu();
  EXPECT_THAT(TextOf(c), testing::HasSubstr("= rt_wgmma_bf16("));
  EXPECT_EQ(Values(c), Values((a + 1).Cast(kFloat32).MatMul(b.Cast(kFloat32).T()).Relu()));
}

// On a device that is first asked for with TF32=1, beside one that was without.
TEST_F(BlockTiles, ProductsOfF32RoundedToTf32) {
  Values(Given({2, 2}));
  const SetFlagForTest tf32(Flag::kTf32, "1");
  const auto on = [](const std::vector<float>& x, const Dims& dims) {
    return Tensor::FromBytes(x.data(), dims, kFloat32, "CPU").To("SIM:15").Realize();
  };
  // Each product is that of numbers of 10 bits, ties away from zero.
  const auto rounded = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(&x, &bits, 4);
    return x;
  };
  for (const Shape3& s : {Shape3{64, 64, 64}, {33, 41, 70}}) {
    for (const bool turned : {false, true}) {
      const std::vector<float> x = Tensor::Uniform(-2, 2, {s.m, s.k}).ToVector<float>();
      const std::vector<float> y = Tensor::Uniform(-2, 2, {s.k, s.n}).ToVector<float>();
      const Tensor b = turned ? on(y, {s.n, s.k}).T() : on(y, {s.k, s.n});
      const Tensor c = on(x, {s.m, s.k}).MatMul(b);
      EXPECT_THAT(TextOf(c), testing::HasSubstr("= rt_mma_tf32("));
      const std::vector<float> got = Values(c);
      int far = 0, plain = 0;
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          double want = 0, exact = 0;
          for (int64_t l = 0; l < s.k; ++l) {
            const float u = x[i * s.k + l], v = turned ? y[j * s.k + l] : y[l * s.n + j];
            want += static_cast<double>(rounded(u)) * rounded(v);
            exact += static_cast<double>(u) * v;
          }
          far += std::fabs(got[i * s.n + j] - want) > 1e-4;
          plain += std::fabs(got[i * s.n + j] - exact) > 1e-4;
        }
      }
      EXPECT_EQ(far, 0) << s.m << "x" << s.k << "x" << s.n;
      EXPECT_GT(plain, 0);  // it was rounded
    }
  }
  EXPECT_THAT(TextOf(Given({64, 64}).MatMul(Given({64, 64}))),
              testing::Not(testing::HasSubstr("rt_mma_tf32")));
}

TEST_F(BlockTiles, ProductsOfBytesUseMatrixUnits) {
  for (int turn = 0; turn < 4; ++turn) {
    ExpectProduct({66, 80, 48}, kInt8, turn & 1, turn & 2, "= rt_mma_i8(");
  }
  ExpectProduct({33, 39, 17}, kInt8, false, false, "= rt_mma_i8(");
}

// Of one block after the other, each scaled in f32; all in one kernel.
TEST_F(BlockTiles, ProductsOfBytesInScaledBlocks) {
  const auto check = [](int64_t m, int64_t n, int64_t blocks, int64_t length, const char* uses) {
    const Tensor x = Tensor::RandInt(-128, 128, {m, blocks, length}).Cast(kInt8).Realize();
    const Tensor w = Tensor::RandInt(-128, 128, {n, blocks, length}).Cast(kInt8).Realize();
    const Tensor s = Tensor::Uniform(-1, 1, {m, blocks}).Cast(kFloat16).Realize();
    const Tensor t = Tensor::Uniform(-1, 1, {n, blocks}).Realize();
    const auto compute = [&](const char* place) {
      const Tensor products = x.To(place).Unsqueeze(1).Cast(kInt32) * w.To(place).Cast(kInt32);
      const Tensor scales = s.To(place).Cast(kFloat32).Unsqueeze(1) * t.To(place);
      return (products.Sum({-1}).Cast(kFloat32) * scales).Sum({-1}) + 1;
    };
    const Tensor y = compute("SIM");
    const std::string text = TextOf(y);
    EXPECT_THAT(text, testing::HasSubstr(uses)) << m << "x" << n << ", " << blocks;
    EXPECT_EQ(text.find("RT_ENTRY", text.find("RT_ENTRY") + 1), std::string::npos);
    const std::vector<float> got = Values(y), want = Values(compute("CPU"));
    ASSERT_EQ(got.size(), want.size());
    int wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double size = 128.0 * 128 * static_cast<double>(length * blocks);
      wrong += !(std::fabs(got[i] - want[i]) <= 1e-6 * size);
    }
    EXPECT_EQ(wrong, 0) << m << "x" << n << ", " << blocks << " blocks of " << length;
  };
  check(64, 64, 8, 32, "= rt_mma_i8(");
  check(33, 70, 6, 32, "= rt_mma_i8(");
  check(17, 40, 3, 64, "= rt_mma_i8(");
  check(20, 33, 2, 128, "= rt_mma_i8(");
  check(40, 40, 5, 16, "RT_GLOBAL");  // too short for units
  check(1, 300, 8, 32, "RT_GLOBAL");
}

TEST_F(BlockTiles, ProductsOfOtherTypes) {
  ExpectProduct({50, 37, 20}, kFloat64, false, true, "rt_barrier()");
  ExpectProduct({50, 37, 20}, kInt32, true, false, "rt_barrier()");
  ExpectProduct({20, 32, 40}, kInt16, false, false, "rt_barrier()");
}

// What is too small for tiles is computed as before.
// Nothing is fetched into shared memory, where few columns have what the warps of a block sum.
TEST_F(BlockTiles, SmallProductsHaveNone) {
  const auto product = [](const Shape3& s) { return Given({s.m, s.k}).MatMul(Given({s.k, s.n})); };
  EXPECT_THAT(TextOf(product({64, 64, 64})), testing::HasSubstr("rt_fetch"));
  for (const Shape3& s : {Shape3{1, 64, 64}, {8, 64, 64}, {64, 64, 1}, {64, 4, 64}}) {
    const Tensor c = product(s);
    EXPECT_THAT(TextOf(c), testing::Not(testing::HasSubstr("rt_fetch")));
    EXPECT_EQ(Values(c).size(), static_cast<size_t>(s.m * s.n));
  }
}

TEST_F(BlockTiles, BatchesAndBroadcasts) {
  const Tensor a = Given({3, 1, 40, 24}), b = Given({2, 24, 36});
  EXPECT_EQ(Values(a.MatMul(b)), Values(a.To("CPU").MatMul(b.To("CPU"))));
  const Tensor h = Given({4, 33, 64}, kFloat16), w = Given({4, 48, 64}, kFloat16);
  EXPECT_EQ(Values(h.MatMul(w.Transpose())), Values(h.To("CPU").MatMul(w.To("CPU").Transpose())));
}

TEST_F(BlockTiles, VariableExtents) {
  Variable n("n", 0, 70);
  const Tensor x = Given({70, 48}, kFloat16), w = Given({40, 48}, kFloat16);
  const std::vector<float> all = Values(x.To("CPU").MatMul(w.To("CPU").T()));
  Jit rows([&] { return x.Slice({{0, n}}).MatMul(w.T()).Contiguous(); });
  Jit sum([&] { return x.Slice({{0, n}}).T().MatMul(x.Slice({{0, n}})).Contiguous(); });
  for (const int64_t v : {70, 0, 33, 64}) {
    const std::vector<float> got = Values(rows.One({}, {{"n", v}}));
    EXPECT_TRUE(got.size() == static_cast<size_t>(v * 40) &&
                std::equal(got.begin(), got.end(), all.begin()))
        << v;
    const Tensor part = x.To("CPU").Slice({{0, v}});
    EXPECT_EQ(Values(sum.One({}, {{"n", v}})), Values(part.T().MatMul(part))) << v;
  }
}

// What lies in memory past the end of a sum must not reach it: 0 * inf is no 0.
TEST_F(BlockTiles, WhatLiesPastTheSumIsNotRead) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {kFloat32, kFloat16}) {
    const Tensor wide_a = Tensor::Full({40, 64}, kInfinity),
                 wide_b = Tensor::Full({64, 40}, kInfinity);
    const Tensor a = Cat({Tensor::Ones({40, 37}), wide_a}, 1).Cast(dtype).To("SIM").Realize();
    const Tensor b = Cat({Tensor::Ones({37, 40}), wide_b}, 0).Cast(dtype).To("SIM").Realize();
    const Tensor x = a.Slice({Slice(), Slice(0, 37)}), y = b.Slice({Slice(0, 37)});
    EXPECT_EQ(Values(x.MatMul(y)), std::vector<float>(1600, 37));
    // And where the factors are computed: 1 / 0 there.
    EXPECT_EQ(Values((1 / x).MatMul(1 / y)), std::vector<float>(1600, 37));
  }
}

TEST_F(BlockTiles, InfinitiesAndNansArrive) {
  for (const DType dtype : {kFloat32, kFloat16, kBFloat16}) {
    std::vector<float> values(64 * 64, 1);
    values[5 * 64 + 63] = std::numeric_limits<float>::infinity();
    values[7 * 64 + 1] = std::numeric_limits<float>::quiet_NaN();
    values[9 * 64] = -0.0f;
    const Tensor a = Tensor::FromBytes(values.data(), {64, 64}, kFloat32, "SIM").Cast(dtype);
    const Tensor b = Tensor::Full({64, 64}, 2.0, kFloat32, "SIM").Cast(dtype);
    const std::vector<float> got = Values(a.Contiguous().MatMul(b.Contiguous()));
    for (int64_t i = 0; i < 64; ++i) {
      const float g = got[i * 64 + i];
      if (i == 7) {
        EXPECT_TRUE(std::isnan(g));
      } else {
        EXPECT_EQ(g, i == 5 ? std::numeric_limits<float>::infinity() : i == 9 ? 126 : 128);
      }
    }
  }
}

// A sum of f16 products is rounded once, at the end, as on the CPU.
TEST_F(BlockTiles, NarrowProductsAreSummedInF32) {
  const Tensor a = Tensor::Full({32, 4096}, 1.0, kFloat16, "SIM").Contiguous().Realize();
  const Tensor b = Tensor::Full({4096, 32}, 0.25, kFloat16, "SIM").Contiguous().Realize();
  const Tensor c = a.MatMul(b);
  EXPECT_EQ(c.dtype(), kFloat16);
  EXPECT_EQ(Values(c), std::vector<float>(1024, 1024));
}

// A result of few tiles: its sum is done in parts, by blocks of their own, where they divide it.
TEST_F(BlockTiles, LongSumsAreSplitWhereTilesAreFew) {
  const auto kernels = [](const Tensor& t) {
    const std::string text = TextOf(t);
    size_t n = 0;
    for (size_t at = 0; (at = text.find("RT_ENTRY(", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  for (const DType dtype : {kFloat32, kFloat16}) {
    const Tensor a = Given({33, 2048}, dtype), b = Given({2048, 20}, dtype), bias = Given({20});
    const Tensor wide_a = a.Cast(kFloat32), wide_b = b.Cast(kFloat32);
    const Tensor c = (wide_a.MatMul(wide_b) + bias).Relu();
    EXPECT_EQ(kernels(c), 2u);
    EXPECT_EQ(Values(c), Values((a.To("CPU").Cast(kFloat32).MatMul(b.To("CPU").Cast(kFloat32)) +
                                 bias.To("CPU"))
                                    .Relu()));
  }
  const Tensor x = Given({2, 16, 2048}), y = Given({2, 17, 2048});
  EXPECT_EQ(kernels(x.MatMul(y.Transpose())), 2u);
  EXPECT_EQ(Values(x.MatMul(y.Transpose())), Values(x.To("CPU").MatMul(y.To("CPU").Transpose())));
  // The last part is shorter: zeros fill its tiles.
  const Tensor odd = Given({32, 4099}), other = Given({4099, 32});
  EXPECT_EQ(kernels(odd.MatMul(other)), 2u);
  EXPECT_EQ(Values(odd.MatMul(other)), Values(odd.To("CPU").MatMul(other.To("CPU"))));
  // Not where tiles are many, or there are none.
  EXPECT_EQ(kernels(Given({256, 2048}).MatMul(Given({2048, 256}))), 1u);
  EXPECT_EQ(kernels(Given({8, 4096}).MatMul(Given({4096, 64}))), 1u);
}

// ---- computed while staging, and while storing

TEST_F(BlockTiles, PrologueAndEpilogue) {
  for (const DType dtype : {kFloat32, kFloat16}) {
    const Tensor a = Given({50, 70}, dtype), b = Given({70, 44}, dtype), bias = Given({44}, dtype);
    const Tensor more = Given({50, 44}, dtype), mask = Given({50, 1}, dtype);
    const auto compute = [](const Tensor& x, const Tensor& w, const Tensor& add, const Tensor& rest,
                            const Tensor& gate) {
      const Tensor in = Where(x > 0, x, x * 2) + 1;
      return (in.MatMul(w * gate.Slice({Slice(0, 1)})) + add).Relu() * 0.5 + rest;
    };
    const Tensor c = compute(a, b, bias, more, mask);
    EXPECT_THAT(TextOf(c), testing::HasSubstr("rt_barrier()"));
    EXPECT_EQ(Values(c), Values(compute(a.To("CPU"), b.To("CPU"), bias.To("CPU"), more.To("CPU"),
                                        mask.To("CPU"))));
  }
}

// Weights in blocks of 32 bytes under a scale in f16, as files hold them.
TEST_F(BlockTiles, QuantisedWeights) {
  const Tensor quants = Given({48, 3, 32}, kInt8).To("CPU").Bitcast(kUInt8);
  const Tensor scale = Tensor::RandInt(1, 5, {48, 3, 1}).Cast(kFloat16).Bitcast(kUInt16);
  const Tensor bytes =
      Cat({scale.Cast(kUInt8), (scale >> 8).Cast(kUInt8), quants}, 2).To("SIM").Realize();
  const auto weights = [](const Tensor& blocks, DType dtype) {
    const auto part = [&](int64_t from, int64_t to) {
      return blocks.Slice({Slice(), Slice(), Slice(from, to)});
    };
    const Tensor high = part(1, 2).Cast(kUInt16) << 8;
    const Tensor s = (part(0, 1).Cast(kUInt16) | high).Bitcast(kFloat16).Cast(kFloat32);
    return (part(2, 34).Bitcast(kInt8).Cast(kFloat32) * s).Reshape({48, 96}).Cast(dtype);
  };
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const Tensor x = Given({37, 96}, dtype);
    const Tensor y = x.Linear(weights(bytes, dtype)).Cast(kFloat32);
    EXPECT_THAT(TextOf(y), testing::HasSubstr(dtype == kFloat32 ? "rt_fma(" : "rt_mma_bf16("));
    EXPECT_EQ(Values(y),
              Values(x.To("CPU").Linear(weights(bytes.To("CPU"), dtype)).Cast(kFloat32)));
  }
}

TEST_F(BlockTiles, Convolutions) {
  for (const DType dtype : {kFloat32, kFloat16}) {
    const Tensor x = Given({2, 6, 9, 13}, dtype), w = Given({20, 3, 3, 3}, dtype);
    const ConvOptions options = {.stride = {1, 2}, .padding = {1, 1}, .groups = 2};
    const Tensor y = x.Conv2d(w, options);
    EXPECT_EQ(Values(y), Values(x.To("CPU").Conv2d(w.To("CPU"), options)));
    const Tensor plain = Given({1, 8, 10, 10}, dtype), v = Given({32, 8, 3, 3}, dtype);
    EXPECT_EQ(Values(plain.Conv2d(v)), Values(plain.To("CPU").Conv2d(v.To("CPU"))));
  }
}

// ---- planted faults: some order of threads shows them

bool SomeOrderShows(const std::vector<float>& want, const std::function<Tensor()>& run) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    sim::Seed(seed);
    if (Values(run()) != want) return true;
  }
  return false;
}

TEST_F(BlockTiles, AMissingBarrierOrWaitIsSeen) {
  const SetFlagForTest no_cache(Flag::kCache, "0");
  const Tensor a = Given({40, 320}), b = Given({320, 44});
  const std::vector<float> want = Values(a.To("CPU").MatMul(b.To("CPU")));
  int64_t other = 0;  // another kernel each time: what has been compiled is kept
  const auto run = [&](double add) { return a.MatMul(b) + add; };
  for (const sim::Fault fault : {sim::Fault::kDropBarrier, sim::Fault::kDropFetchWait}) {
    const double by = static_cast<double>(++other);
    sim::Plant(fault);
    const Tensor first = run(by);
    EXPECT_FALSE(Values(first).empty());
    std::vector<float> moved = want;
    for (float& v : moved) v += static_cast<float>(by);
    EXPECT_TRUE(SomeOrderShows(moved, [&] { return run(by); })) << other;
  }
  EXPECT_FALSE(SomeOrderShows(want, [&] { return run(0.0); }));
}

}  // namespace
}  // namespace tessera
