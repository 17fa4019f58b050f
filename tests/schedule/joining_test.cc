// Which groups become one kernel with several results.
#include <gtest/gtest.h>

#include "graph/tensor.h"
#include "runtime/plan_key.h"
#include "schedule/schedule.h"
#include "tests/testing.h"

namespace tessera {
namespace {

Tensor Input(const Dims& shape) { return Tensor::Empty(shape, kFloat32); }

// Of what is computed on two cores; the leaves of `lasting` stay as they are.
Plan PlanOf(const std::vector<Tensor>& tensors, const std::vector<Tensor>& lasting = {}) {
  Target target;
  target.cores = 2;
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  const PlanKey key = MakePlanKey(roots);
  Lasting lasts{std::vector<bool>(key.leaves.size()), int64_t{1} << 30};
  for (size_t i = 0; i < key.leaves.size(); ++i) {
    for (const Tensor& t : lasting) lasts.slots[i] = lasts.slots[i] || t.uop() == key.leaves[i];
  }
  absl::StatusOr<Plan> plan = Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)),
                                       /*on_meshes=*/false, lasts);
  EXPECT_OK(plan);
  return plan.ok() ? *std::move(plan) : Plan();
}

size_t Steps(const std::vector<Tensor>& tensors) { return PlanOf(tensors).steps.size(); }

int Temps(const std::vector<Tensor>& tensors) {
  int n = 0;
  for (const PlanBuffer& b : PlanOf(tensors).buffers) n += b.kind == PlanBuffer::kTemp;
  return n;
}

TEST(Joining, WhatIsKeptIsWrittenByTheKernelThatGoesOn) {
  const Tensor x = Input({64, 64}), y = Input({64, 64});
  const Tensor kept = x.Exp() + y.Exp(), gate = kept.Tanh();
  EXPECT_EQ(Steps({kept, gate, kept * gate}), 1u);
  // Also where another kernel reads it.
  EXPECT_EQ(Steps({gate, kept.Sum({0})}), 2u);
  // A new shape of the same loops.
  EXPECT_EQ(Steps({kept, kept.Reshape({4096}).Tanh()}), 2u);
  EXPECT_EQ(Steps({kept, kept.Tanh().Reshape({4096})}), 1u);
}

TEST(Joining, WhatOnlyTheKernelReadsIsNotWritten) {
  const Tensor x = Input({64, 64}), y = Input({64, 64});
  const Tensor inner = x.Exp() + y.Exp();  // costs more than to be computed twice
  const std::vector<Tensor> both = {inner.Tanh(), inner * y};
  EXPECT_EQ(Steps(both), 1u);
  EXPECT_EQ(Temps(both), 0);
}

TEST(Joining, WhatIsReadElsewhereIsThereBefore) {
  const Tensor x = Input({64, 64}), y = Input({64, 64});
  const Tensor kept = x.Exp() + y.Exp();
  for (const Tensor& other : {kept.Flip({0}), kept.T(), kept.Roll(1, 1), kept + kept.T()}) {
    EXPECT_EQ(Steps({kept, other.Tanh() * kept}), 2u);
  }
  EXPECT_EQ(Steps({kept, kept[Slice{0, 8}].Tanh()}), 2u);  // other loops
}

TEST(Joining, BuffersThatWereAskedForStayApart) {
  const Tensor x = Input({64, 64});
  const Tensor kept = x.Exp().Contiguous();
  EXPECT_EQ(Steps({kept.Tanh(), kept.Sin()}), 2u);
}

TEST(Joining, WhatLeadsBackThroughAnotherKernelWaits) {
  const Tensor x = Input({64, 64});
  const Tensor kept = x.Exp(), sum = kept.Sum().Contiguous();
  const Tensor scaled = kept.Tanh() / sum;
  const Plan p = PlanOf({kept, scaled});
  EXPECT_EQ(p.steps.size(), 3u);
}

TEST(Joining, LargeKernelsStayApart) {
  const auto chain = [](Tensor t, int ops) {
    for (int i = 0; i < ops; ++i) t = t.Sin();
    return t;
  };
  const Tensor half = chain(Input({64}), 20), end = chain(half, 20);
  const size_t small = Steps({half, end});
  EXPECT_EQ(small, 1u);
  const Tensor long_half = chain(Input({64}), 500), long_end = chain(long_half, 500);
  EXPECT_GE(Steps({long_half, long_end}), 2u);
}

// Moments and weights, as optimizers have them: each is read and written once.
TEST(Joining, AssignmentsThatGoOnAreOneKernel) {
  Tensor w = Input({64, 64}), m = Input({64, 64}), v = Input({64, 64});
  const Tensor g = Input({64, 64}), rate = Input({1});
  m.Assign(m * 0.9 + g * 0.1);
  v.Assign(v * 0.99 + g * g * 0.01);
  w.Assign(w - rate * m / (v.Sqrt() + 1e-8));
  const Plan p = PlanOf({m, v, w});
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_EQ(p.steps[0].buffers.size(), 5u);  // the three, the gradient and the rate
}

TEST(Joining, WhatReadsTheOldVersionIsNotJoinedToWhatOverwritesIt) {
  Tensor m = Input({64, 64});
  const Tensor g = Input({64, 64}), old = (m * g).Exp();
  m.Assign(m + g);
  EXPECT_EQ(Steps({m, old}), 2u);
  EXPECT_EQ(Steps({m, old * m}), 2u);
  Tensor twice = Input({64, 64});
  twice.Assign(twice + g);
  twice.Assign(twice * g);
  EXPECT_EQ(Steps({twice}), 2u);
}

TEST(Joining, WhatLastsIsKeptApartFromWhatChanges) {
  const Tensor w = Input({64, 64}), x = Input({64, 64});
  const Tensor table = w.Exp() + w.Sin();
  const std::vector<Tensor> one = {table.Sin() * x, table.Cos() * x};
  EXPECT_EQ(PlanOf(one).steps.size(), 1u);
  const Plan p = PlanOf(one, {w});
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_TRUE(p.steps[0].once);
  // Nor to a result, which is made each time, of the same.
  const Plan results = PlanOf({table * 2, table.Sin() * x}, {w});
  ASSERT_EQ(results.steps.size(), 3u);
  EXPECT_TRUE(results.steps[0].once);
}

}  // namespace
}  // namespace tessera
