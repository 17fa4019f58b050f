// Graphs that come again with other numbers: right for each of them, and no plan after the third.
#include "runtime/numbers.h"

#include <cmath>
#include <functional>
#include <limits>

#include "graph/grad.h"
#include "runtime/jit.h"
#include "runtime/realize.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

// Realises graph(0), graph(1), ... and gives how many plans each took.
std::vector<int64_t> PlansMade(int n, const std::function<Tensor(int)>& graph) {
  ClearPlans();
  std::vector<int64_t> out;
  for (int i = 0; i < n; ++i) {
    const Tensor t = graph(i);
    const int64_t before = GetRuntimeStats().plans_made;
    EXPECT_REFERENCE(t);
    out.push_back(GetRuntimeStats().plans_made - before);
  }
  return out;
}

const std::vector<int64_t> kThree = {1, 1, 1, 0, 0, 0, 0, 0};

Tensor Ramp(const Extents& shape, DType dtype) {
  int64_t n = 1;
  for (const Extent& e : shape) n *= e.value();
  Tensor t = Tensor::Arange(n).Cast(dtype).Reshape(shape);
  t.Realize();
  return t;
}

TEST(Numbers, FloatsOfEveryDtype) {
  const double numbers[] = {0.5, -3, 0, -0.0, INFINITY, NAN, 1e-40, 7};
  for (DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = Ramp({5, 7}, dtype);
    EXPECT_EQ(PlansMade(8, [&](int i) { return x * numbers[i] + x; }), kThree) << dtype.ToString();
  }
}

TEST(Numbers, IntegersOfEveryDtype) {
  for (DType dtype : {kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64}) {
    const Tensor x = Ramp({5, 7}, dtype);
    const Scalar highest = HighestScalar(dtype), lowest = LowestScalar(dtype);
    EXPECT_EQ(PlansMade(8,
                        [&](int i) {
                          const Scalar v = i == 5 ? highest : i == 6 ? lowest : Scalar::Int(i + 2);
                          return x * Tensor(UOp::Const(dtype, v)) + x;
                        }),
              kThree)
        << dtype.ToString();
  }
}

TEST(Numbers, WhereSlicesAndPadsBegin) {
  const Tensor x = Ramp({9, 20}, kFloat32);
  EXPECT_EQ(PlansMade(8, [&](int i) { return x.SliceAxis(0, {i, i + 2}).Sum({1}); }), kThree);
  EXPECT_EQ(PlansMade(8,
                      [&](int i) {
                        return x.Shrink({{7 - i, 9 - i}, {2 * i, 2 * i + 6}}) * 2;
                      }),
            kThree);
  EXPECT_EQ(PlansMade(8, [&](int i) { return x.Pad({{i, 7 - i}, {0, 0}}) + 1; }), kThree);
}

TEST(Numbers, AssignmentsToOneRowAfterAnother) {
  ClearPlans();
  for (const char* place : {"CPU", "SIM:0"}) {
    Tensor x = Tensor::Zeros({8, 5}).To(place);
    x.Realize();
    const Tensor row = Ramp({1, 5}, kFloat32).To(place);
    int64_t late = 0;
    for (int i = 0; i < 8; ++i) {
      const int64_t before = GetRuntimeStats().plans_made;
      x.SliceAxis(0, {i, i + 1}).Assign(row * (i + 1.5));
      x.Realize();
      if (i > 2) late += GetRuntimeStats().plans_made - before;
    }
    EXPECT_EQ(late, 0) << place;
    const std::vector<float> got = x.ToVector<float>();
    for (int i = 0; i < 40; ++i) EXPECT_EQ(got[i], (i % 5) * (i / 5 + 1.5f)) << place << " " << i;
  }
}

TEST(Numbers, OnShardingsAndGpus) {
  const Sharding two({"CPU:0", "CPU:1"}, 0);
  const Tensor x = Ramp({6, 4}, kFloat32);
  Tensor on_two = x.Shard(two), on_gpu = x.To("SIM:0");
  on_two.Realize(), on_gpu.Realize();
  EXPECT_EQ(PlansMade(8, [&](int i) { return (on_two * (i + 0.5)).Sum({0}); }), kThree);
  EXPECT_EQ(PlansMade(8, [&](int i) { return (on_gpu * (i + 0.5)).Sum({0}); }), kThree);
  EXPECT_EQ(PlansMade(4,
                      [&](int i) {
                        return on_gpu.SliceAxis(1, {i, i + 1}).Exp();
                      }),
            (std::vector<int64_t>{1, 1, 1, 0}));
  // Where a sharded tensor is cut decides who holds what.
  EXPECT_EQ(PlansMade(4,
                      [&](int i) {
                        return on_two.SliceAxis(0, {i, i + 2}).Exp();
                      }),
            (std::vector<int64_t>{1, 1, 1, 1}));
}

TEST(Numbers, OnlyThoseThatDiffer) {
  ClearPlans();
  const Tensor x = Ramp({6}, kFloat32);
  for (int i = 0; i < 5; ++i) {
    const Tensor t = (x * 3 + (i + 10)) * (i > 3 ? 2.5 : 1.5);
    PlanKey key = MakePlanKey({&t.uop(), 1});
    ASSERT_OK(PrepareVarying({&t.uop(), 1}, key));
    EXPECT_EQ(key.numbers.size(), i < 2 ? 0 : i < 4 ? 1 : 2) << i;
    EXPECT_REFERENCE(t);
  }
}

// What kernels are recognised by, and divisors: the first few are known.
TEST(Numbers, MasksShiftsAndDivisorsFromTheFifthOn) {
  const Tensor i = Ramp({6}, kInt32), f = Ramp({6}, kFloat32), x = (i - 3).Realize();
  const std::vector<int64_t> five = {1, 1, 1, 1, 1, 0, 0, 0, 0, 0};
  EXPECT_EQ(PlansMade(10, [&](int i) { return x.Shr(i + 1) & 15; }), five);
  EXPECT_EQ(PlansMade(10, [&](int i) { return x & (i * 7); }), five);
  EXPECT_EQ(PlansMade(10, [&](int i) { return x.FloorDiv(4 - i); }), five);  // also 0 and -1
  EXPECT_EQ(PlansMade(10, [&](int i) { return x.TruncDiv(4 - i); }), five);
  EXPECT_EQ(PlansMade(10, [&](int i) { return x % (4 - i); }), five);
  EXPECT_EQ(PlansMade(10, [&](int i) { return x.Fmod(4 - i); }), five);
  EXPECT_EQ(PlansMade(10, [&](int d) { return f.Take(i.FloorDiv(d + 2)); }), five);
}

// A number that goes with one that decides the way varies as others do, and one way does not make
// others of it.
TEST(Numbers, WaysAreCountedByThemselves) {
  const Tensor x = Ramp({6}, kInt32);
  EXPECT_EQ(PlansMade(9, [&](int i) { return x.FloorDiv(i < 7 ? 3 : 5) * (i + 6); }),
            (std::vector<int64_t>{1, 1, 1, 0, 0, 0, 0, 1, 0}));
}

// Of ten numbers, how many kernels are made.
TEST(Numbers, KernelsOfEverydayLoops) {
  const Tensor x = Ramp({4, 6}, kInt32), f = Ramp({4, 6}, kFloat32);
  const Tensor mask = (x > 5).Realize();
  struct Loop {
    const char* name;
    int64_t most;
    std::function<Tensor(int)> of;
  };
  const Loop loops[] = {
      {"Full", 3, [](int i) { return Tensor::Full({2}, i).Contiguous(); }},
      {"ArangeFrom", 4, [](int i) { return Tensor::Arange(i, i + 5).Contiguous(); }},
      {"RandInt", 4, [](int i) { return Tensor::RandInt(0, i + 1, {5}); }},
      {"Seed", 5,
       [](int i) {
         Tensor::ManualSeed(i);
         return Tensor::Rand({5});
       }},
      {"FloorDiv", 5, [&](int i) { return x.FloorDiv(i + 1); }},
      {"Gcd", 4, [&](int i) { return x.Gcd(i); }},
      {"LdExp", 4, [&](int i) { return f.LdExp(i); }},
      {"Mul", 3, [&](int i) { return x * static_cast<float>(i); }},
      {"Add", 3, [&](int i) { return x + i; }},
      {"Pow", 6, [&](int i) { return x.Pow(i); }},  // small ones are products
      {"Where", 3, [&](int i) { return Where(mask, x, i); }},
      {"Clip", 4, [&](int i) { return x.Clip(0, i); }},
      {"Shift", 5, [&](int i) { return x << i; }},
  };
  const auto kernels = [] {
    const JitStats s = GetJitStats();
    return s.compiles + s.disk_hits;
  };
  for (const Loop& loop : loops) {
    ClearPlans();
    ClearKernels();
    const int64_t before = kernels();
    for (int i = 0; i < 10; ++i) EXPECT_REFERENCE(loop.of(i)) << loop.name << " " << i;
    EXPECT_LE(kernels() - before, loop.most) << loop.name;
  }
}

TEST(Numbers, BesideVariablesAndDraws) {
  ClearPlans();
  const Variable v("rows", 1, 6);
  const Tensor x = Ramp({6, 4}, kFloat32);
  for (int i = 0; i < 6; ++i) {
    const Tensor part = x.SliceAxis(0, {0, v}) * (i + 0.25);
    const std::vector<float> got = Realize({part.Sum()}, {{"rows", i + 1}})[0].ToVector<float>();
    float want = 0;
    for (int k = 0; k < 4 * (i + 1); ++k) want += k * (i + 0.25f);
    EXPECT_EQ(got[0], want);
  }
  const auto drawn = [&](int i) {
    Tensor::ManualSeed(7);
    return (Tensor::Rand({50}) * (i + 0.5)).ToVector<float>();
  };
  std::vector<float> one = drawn(0);
  for (int i = 1; i < 6; ++i) {
    const std::vector<float> now = drawn(i);
    for (int k = 0; k < 50; ++k) EXPECT_NEAR(now[k], one[k] / 0.5f * (i + 0.5f), 1e-5) << i;
  }
}

TEST(Numbers, ATrainingStepWithAnotherRateEachTime) {
  ClearPlans();
  Tensor w = Ramp({4, 3}, kFloat32) * 0.01;
  w.Realize();
  w.RequireGrad();
  const Tensor x = Ramp({5, 4}, kFloat32) * 0.1;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = GetRuntimeStats().plans_made;
    const Tensor loss = (x.MatMul(w) - 1).Square().Mean();
    const Tensor grad = Grad(loss, {w})[0];
    w.Assign(w - grad * (0.1 / (i + 1)));
    w.Realize();
    if (i > 3) {  // the first step has no history yet
      EXPECT_EQ(GetRuntimeStats().plans_made, before) << i;
    }
  }
}

}  // namespace
}  // namespace tessera
