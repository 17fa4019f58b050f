// Kernels that differ in where they read and write, or in a constant, are generated once.
#include "schedule/share_kernels.h"

#include <functional>
#include <random>

#include "graph/flags.h"
#include "graph/grad.h"
#include "runtime/capture.h"
#include "runtime/jit.h"
#include "runtime/realize.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

Tensor Ramp(const Extents& shape) {
  int64_t n = 1;
  for (const Extent& e : shape) n *= e.value();
  Tensor t = (Tensor::Arange(n).Cast(kFloat32) * 0.37).Sin().Reshape(shape).Contiguous();
  t.Realize();
  return t;
}

Plan PlanOf(const Tensor& t) {
  const UOp root = t.uop();
  return *PlanOnly({&root, 1}, MakePlanKey({&root, 1}));
}

// How many kernels the plan of a tensor has that do not stand for other steps.
size_t Kernels(const Tensor& t) { return PlanOf(t).kernels.size(); }

Tensor EachRow(const Tensor& x, const std::function<Tensor(const Tensor&, int)>& fn) {
  std::vector<Tensor> rows = x.Unbind(0);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = fn(rows[i], static_cast<int>(i));
  return Stack(rows, 0);
}

void ExpectNear(const Tensor& got, const std::vector<float>& want) {
  const std::vector<float> values = got.ToVector<float>();
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(values[i], want[i], 1e-5) << i;
}

TEST(ShareKernels, ManySumsSideBySide) {
  const Tensor x = Ramp({40, 16});
  for (int n : {64, 256}) {
    std::vector<Tensor> sums;
    for (int i = 0; i < n; ++i) sums.push_back((x * (i + 0.5)).Sum(1));
    const Tensor t = Stack(sums);
    EXPECT_LE(Kernels(t), 2) << n;  // of 16 sums, and what joins them
    EXPECT_REFERENCE(t);
  }
}

// Steps over time of which a sequence has more or fewer are the same kernels, back as well.
TEST(ShareKernels, CtcOfManySteps) {
  const auto kernels = [](int64_t steps) {
    const Tensor logits = Ramp({steps, 2, 5}), target = Tensor::From({{1, 2, 3}, {2, 2, 1}});
    const auto loss = [&] {
      return logits.LogSoftmax(2).CtcLoss(target, Tensor::FromExtent(steps).Expand({2}),
                                          Tensor::From({3, 2}));
    };
    return std::pair(Kernels(loss()), Kernels(Grad(loss(), {logits})[0]));
  };
  const auto few = kernels(12), many = kernels(60);
  EXPECT_EQ(few.first, many.first);
  EXPECT_LE(many.second, few.second + 4);  // many slices are joined in stages
  EXPECT_LT(many.second, 40u);
}

TEST(ShareKernels, RowsOneByOne) {
  const Tensor x = Ramp({20, 24});
  const auto soft = [](const Tensor& row, int) { return row.Softmax(); };
  const Tensor y = EachRow(x, soft);
  EXPECT_EQ(Kernels(y), 2u);
  EXPECT_REFERENCE(y);
  SetFlagForTest never(Flag::kVary, "0");
  EXPECT_EQ(Kernels(EachRow(x, soft)), 21u);
}

TEST(ShareKernels, TwoAlikeStayTwo) {
  const Tensor y = EachRow(Ramp({2, 24}), [](const Tensor& row, int) { return row.Softmax(); });
  EXPECT_EQ(Kernels(y), 3u);
  SetFlagForTest at_once(Flag::kVary, "2");
  EXPECT_EQ(Kernels(y), 2u);
  EXPECT_REFERENCE(y);
}

TEST(ShareKernels, Constants) {
  for (DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    Tensor y = Ramp({40}).Cast(dtype).Realize();
    for (int i = 0; i < 6; ++i) y = (y * (1.5 + i) - 0.25).Softmax();
    EXPECT_EQ(Kernels(y), 1u) << dtype.ToString();
    EXPECT_REFERENCE(y);
  }
}

// Steps of a loop that draw random numbers, each after those before it.
TEST(ShareKernels, RandomNumbersBesidesOthers) {
  const Tensor w = Ramp({16, 16}), in = Ramp({9, 12, 16}), x = Ramp({12, 16});
  const auto steps = [&](const Tensor& first) {
    Tensor h = first;
    for (int t = 0; t < 9; ++t) {
      h = h.MatMul(w) + in[t];
      h = (h.Dropout(0.25) + (0.1 + 0.01 * t) * Tensor::RandN({12, 16})).Contiguous();
    }
    return h;
  };
  const auto again = [&] {
    Tensor::ManualSeed(3);
    return steps(x);
  };
  ClearKernels();
  const JitStats before = GetJitStats();
  const Tensor h = again();
  const std::vector<float> want = h.ToVector<float>();
  const JitStats after = GetJitStats();
  EXPECT_LE(after.compiles + after.disk_hits - before.compiles - before.disk_hits, 3);
  EXPECT_REFERENCE(h);
  Jit captured(steps);
  for (int i = 0; i < 3; ++i) {
    Tensor::ManualSeed(3);
    EXPECT_EQ(captured.One({x}).ToVector<float>(), want) << i;
  }
}

// A loop whose steps are masked: by where an element lies, and by what was loaded.
TEST(ShareKernels, NumbersThatIntegersAreComparedWith) {
  const Tensor x = Ramp({12, 16}), w = Ramp({16, 16});
  for (DType dtype : {kInt8, kUInt8, kInt32, kUInt32, kInt64}) {
    const Tensor lengths = Tensor::Arange(12).Cast(dtype).Contiguous().Realize();
    Tensor h = x;
    for (int t = 0; t < 9; ++t) {
      const Tensor before = Tensor::Arange(16) < 16 - t;
      h = Where(lengths.Reshape({12, 1}) > t, Where(before, h.MatMul(w).Tanh(), h - 1), h);
    }
    EXPECT_EQ(Kernels(h), 2u) << dtype.ToString();  // the first, the others
    EXPECT_REFERENCE(h);
  }
}

TEST(ShareKernels, FarthestIntegersComparedWith) {
  const Tensor x = Cat({Tensor::Full({4}, INT64_MIN, kInt64), Tensor::Arange(4),
                        Tensor::Full({4}, INT64_MAX, kInt64)})
                       .Realize();
  std::vector<Tensor> all;
  for (int64_t bound : {INT64_MIN, INT64_MIN + 1, int64_t{0}, int64_t{2}, INT64_MAX}) {
    all.push_back((x <= bound).Cast(kFloat32).Softmax());
  }
  EXPECT_REFERENCE(Stack(all));
}

TEST(ShareKernels, OffsetsAndConstantsTogether) {
  const Tensor x = Ramp({6, 5, 16}), w = Ramp({16, 16});
  const Tensor y = EachRow(x, [&](const Tensor& row, int i) {
    return (row.MatMul(w) * (0.5 + i) + x[5 - i]).Softmax();
  });
  EXPECT_EQ(Kernels(y), 3u);  // one puts the rows together
  EXPECT_REFERENCE(y);
}

// The VAR goes over what the sharers have, in the greatest units.
TEST(ShareKernels, UnitsAndBounds) {
  const Plan plan =
      PlanOf(EachRow(Ramp({8, 24}), [](const Tensor& r, int) { return r.Softmax(); }));
  int vars = 0;
  for (const UOp& u : TopoSort({&plan.kernels[0].graph, 1})) {
    if (!u.is(Op::kVar)) continue;
    ++vars;
    EXPECT_EQ(u.vmin(), 0);
    EXPECT_EQ(u.vmax(), 7);
  }
  EXPECT_EQ(vars, 1);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(plan.steps[i].numbers, (std::map<std::string, int64_t>{{"@step0", i}}));
  }
}

// Rows of one tensor written one by one, each from what was there.
TEST(ShareKernels, WrittenInPlace) {
  Tensor x = Ramp({6, 16});
  const std::vector<float> was = x.ToVector<float>();
  for (int i = 0; i < 6; ++i) x.SliceAxis(0, {i, i + 1}).Assign(x.SliceAxis(0, {i, i + 1}).Exp());
  EXPECT_EQ(Kernels(x), 1u);
  ExpectNear(x, Tensor::From(was).Exp().ToVector<float>());
}

// A loop over time, each step of which needs the one before.
TEST(ShareKernels, StepsOfALoop) {
  const Tensor x = Ramp({9, 3, 8}), w = Ramp({8, 8});
  Tensor h = Tensor::Zeros({3, 8});
  std::vector<Tensor> all;
  for (int i = 0; i < 9; ++i) {
    h = (x[i].MatMul(w) + h.MatMul(w)).Tanh();
    all.push_back(h);
  }
  const Tensor y = Stack(all, 0);
  EXPECT_LE(Kernels(y), 6u);
  EXPECT_REFERENCE(y);
}

// Windows of one tensor at places that follow no rule, of all kinds of kernels.
TEST(ShareKernels, PiecesAnywhere) {
  SetFlagForTest at_once(Flag::kVary, "2");
  const std::function<Tensor(const Tensor&)> kinds[] = {
      [](const Tensor& t) { return t.Exp() / 3; },
      [](const Tensor& t) { return t.Sum({0}); },
      [](const Tensor& t) { return t.CumSum(1); },
      [](const Tensor& t) { return t.MatMul(t.Transpose(0, 1)).Softmax(); },
      [](const Tensor& t) {
        return t.Flip({1}).Pad({{1, 0}, {0, 2}});
      },
      [](const Tensor& t) {
        return t.Permute({1, 0}) * t.ArgMax(1).Cast(kFloat32).Mean();
      },
      [](const Tensor& t) { return t.Gather(0, (t * 3).Abs().Cast(kInt32)); },
  };
  const Tensor x = Ramp({23, 29});
  for (const auto& kind : kinds) {
    std::vector<Tensor> pieces;
    for (int i = 0; i < 5; ++i) {
      const int row = i * i * 7 % 15, column = i * 11 % 18;
      pieces.push_back(kind(x.Slice({{row, row + 8}, {column, column + 11}}) * (i + 0.5)));
    }
    const Tensor y = Stack(pieces, 0);
    EXPECT_LT(Kernels(y), 6u) << &kind - kinds;
    EXPECT_REFERENCE(y);
  }
}

// Parts of one tensor that are moved within it: what is read is written by others.
TEST(ShareKernels, WrittenAndReadAtOtherDistances) {
  Tensor x = Ramp({12, 16});
  const std::vector<float> was = x.ToVector<float>();
  const int to[] = {0, 3, 7, 9}, from[] = {5, 4, 6, 10};
  for (int i = 0; i < 4; ++i) {
    const Tensor row = x.SliceAxis(0, {to[i], to[i] + 1});
    x.SliceAxis(0, {to[i], to[i] + 1}).Assign(row * 2 + x.SliceAxis(0, {from[i], from[i] + 1}));
  }
  const std::vector<float> is = x.ToVector<float>();
  for (int i = 0; i < 4; ++i) {
    for (int c = 0; c < 16; ++c) {
      EXPECT_EQ(is[to[i] * 16 + c], was[to[i] * 16 + c] * 2 + was[from[i] * 16 + c]) << i;
    }
  }
}

TEST(ShareKernels, CapturedSteps) {
  for (const char* place : {"CPU", "SIM:0"}) {
    Jit step([](const Tensor& x) {
      return EachRow(x, [](const Tensor& row, int i) { return row.Softmax() * (i + 0.5); });
    });
    for (int call = 0; call < 3; ++call) {
      const Tensor x = (Ramp({7, 24}) + call).To(place);
      const Tensor scale = (Tensor::Arange(7).Reshape({7, 1}) + 0.5).Cast(kFloat32);
      ExpectNear(step.One({x}), (x.Softmax(1) * scale).ToVector<float>());
    }
  }
}

TEST(ShareKernels, OverSeveralPlaces) {
  const Sharding places({"CPU:0", "CPU:1", "CPU:2"}, 1);
  const Tensor x = Ramp({6, 7, 24}), sharded = x.Shard(places);
  const auto each = [](const Tensor& row, int i) { return (row * (i + 0.5)).Softmax(); };
  const std::vector<float> want = EachRow(x, each).ToVector<float>();
  ExpectNear(EachRow(sharded, each), want);
  // The first row is at no multiple of what a place has.
  EXPECT_EQ(Kernels(EachRow(sharded, each)), 3u);
  Jit step([&](const Tensor& t) { return EachRow(t, each); });
  for (int call = 0; call < 3; ++call) ExpectNear(step.One({sharded}), want);
}

// Windows of random sizes at random places: as without sharing.
Tensor RandomPieces(int seed) {
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  const int rows = between(8, 30), columns = between(8, 40), h = between(1, 7), w = between(1, 7);
  const int kind = between(0, 7);
  Tensor x = Ramp({rows, columns}) * 5;
  if (between(0, 2) == 0) x = x.Shard(Sharding({"CPU:0", "CPU:1", "CPU:2"}, 0));
  const auto window = [&] {
    const int row = between(0, rows - h), column = between(0, columns - w);
    return x.Slice({{row, row + h}, {column, column + w}});
  };
  std::vector<Tensor> pieces;
  for (int i = between(3, 6); i > 0; --i) {
    const Tensor t = window(), u = window();
    const double c = between(1, 9) * 0.25;
    const Tensor of_kind[] = {t * c + u,
                              t.Sum({1}) - c,
                              (t * c).CumSum(0),
                              t.MatMul(u.Transpose(0, 1)),
                              t.Flip({1}).Pad({{1, 2}, {0, 1}}) * c,
                              t.Softmax(1) + u.Max({0}),
                              Cat({t, u * c}, 0),
                              t.Gather(0, u.Abs().Cast(kInt32))};
    pieces.push_back(of_kind[kind].Contiguous());
  }
  return Stack(pieces, 0);
}

TEST(ShareKernels, RandomPiecesSlow) {
  int shared = 0;
  for (int seed = 0; seed < 40; ++seed) {
    std::vector<float> want;
    size_t kernels = 0;
    {
      SetFlagForTest never(Flag::kVary, "0");
      const Tensor y = RandomPieces(seed);
      kernels = Kernels(y);
      want = y.ToVector<float>();
    }
    SetFlagForTest at_once(Flag::kVary, "2");
    ClearPlans();
    const Tensor y = RandomPieces(seed);
    shared += Kernels(y) < kernels;
    SCOPED_TRACE(seed);
    ExpectNear(y, want);
    ClearPlans();
  }
  EXPECT_GT(shared, 8);
}

}  // namespace
}  // namespace tessera
