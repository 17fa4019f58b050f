// Which steps of a plan run once where some of its leaves last, and what is kept of them; panels.
#include <algorithm>

#include "graph/tensor.h"
#include "runtime/plan_key.h"
#include "schedule/schedule.h"
#include "tests/testing.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = 1 << 20;

Tensor Input(const Dims& shape, DType dtype = kFloat32) { return Tensor::Empty(shape, dtype); }

// The plan of a tensor where these leaves last.
Plan PlanOf(const Tensor& tensor, const std::vector<Tensor>& lasting, int64_t most_bytes = kMiB,
            bool wide = false) {
  const std::vector<UOp> roots = {tensor.uop()};
  const PlanKey key = MakePlanKey(roots);
  Lasting lasts{std::vector<bool>(key.leaves.size(), false), most_bytes};
  for (size_t slot = 0; slot < key.leaves.size(); ++slot) {
    for (const Tensor& t : lasting)
      lasts.slots[slot] = lasts.slots[slot] || key.leaves[slot] == t.uop();
  }
  Target target;
  target.cores = 2;
  target.cache_bytes = 8 << 20;
  if (wide) {  // panels of two vectors of 16 floats
    target.vector_bytes = 64;
    target.vector_registers = 32;
    target.l2_bytes = 1 << 20;
  }
  absl::StatusOr<Plan> plan =
      Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)), /*on_meshes=*/false, lasts);
  EXPECT_OK(plan);
  return plan.ok() ? *std::move(plan) : Plan();
}

int64_t Once(const Plan& p) {
  return std::count_if(p.steps.begin(), p.steps.end(), [](const PlanStep& s) { return s.once; });
}
int64_t KeptBytes(const Plan& p) {
  int64_t bytes = 0;
  for (const PlanBuffer& b : p.buffers) bytes += b.kept ? b.bytes : 0;
  return bytes;
}
int64_t ArenaBytes(const Plan& p) {
  int64_t bytes = 0;
  for (const auto& [device, n] : p.arenas) bytes += n;
  return bytes;
}

TEST(Lasting, AStepThatReadsNothingElseRunsOnce) {
  const Tensor w = Input({64, 64}), x = Input({64, 64});
  const Tensor y = x + w.Exp().Contiguous();
  const Plan p = PlanOf(y, {w});
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_TRUE(p.steps[0].once);
  EXPECT_FALSE(p.steps[1].once);
  EXPECT_EQ(KeptBytes(p), 64 * 64 * 4);
  EXPECT_EQ(ArenaBytes(p), 0);
  EXPECT_EQ(Once(PlanOf(y, {x})), 0);
  EXPECT_EQ(Once(PlanOf(y, {})), 0);
}

TEST(Lasting, ResultsAndWhatVariesAreComputedEachTime) {
  const Tensor w = Input({64, 64});
  EXPECT_EQ(Once(PlanOf(w.Exp(), {w})), 0);
  const Variable n("lasting_n", 1, 64);
  EXPECT_EQ(Once(PlanOf(w.SliceAxis(0, {0, n}).Exp().Contiguous() + 1, {w})), 0);
  Tensor v = Input({64, 64});
  const Tensor before = v.Exp().Contiguous();
  v.Assign(before + 1);
  EXPECT_EQ(Once(PlanOf(v, {v})), 0);  // the step writes it itself
}

// A chain: what only kept things are made of takes no room.
TEST(Lasting, RoomIsTakenByWhatOthersRead) {
  const Tensor w = Input({256, 64}), x = Input({256, 64, 4});  // 64 KiB and 256 KiB
  const Tensor y = x + (w.Exp().Contiguous().Unsqueeze(2).Expand({256, 64, 4}) * 2).Contiguous();
  const Plan all = PlanOf(y, {w}, 256 << 10), less = PlanOf(y, {w}, (256 << 10) - 1);
  EXPECT_EQ(Once(all), 2);
  EXPECT_EQ(Once(less), 1);
  EXPECT_EQ(KeptBytes(less), 64 << 10);
  EXPECT_EQ(Once(PlanOf(y, {w}, 0)), 0);
}

TEST(Lasting, PanelsOfProducts) {
  const Tensor w = Input({64, 128}), v = Input({128, 64});
  const auto product = [&](int64_t rows) { return Input({rows, 64}).MatMul(w).Relu(); };
  const Plan p = PlanOf(product(16), {w});
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_TRUE(p.steps[0].once);
  EXPECT_EQ(KeptBytes(p), 64 * 128 * 4);
  EXPECT_THAT(p.kernels[p.steps[1].kernel].name, ::testing::EndsWith("_panels"));
  EXPECT_EQ(p.buffers[p.steps[0].buffers[0]].shape.rank(), 3);
  EXPECT_EQ(Once(PlanOf(product(1), {w})), 0) << "rows are too few";
  EXPECT_EQ(Once(PlanOf(product(16), {w}, 64 * 128 * 4 - 1)), 0) << "no room";
  EXPECT_EQ(Once(PlanOf(Input({16, 64}).MatMul(v.Transpose()), {v})), 1) << "across the grain";
  EXPECT_EQ(Once(PlanOf(Input({16, 64}).MatMul(Input({64, 100})), {w})), 0) << "does not last";
  const Tensor deep = Input({8192, 64});  // its sum is in parts, each with panels
  EXPECT_EQ(Once(PlanOf(Input({16, 8192}).MatMul(deep), {deep}, 4 * kMiB)), 1);
  const Tensor odd = Input({64, 100});
  EXPECT_EQ(Once(PlanOf(Input({16, 64}).MatMul(odd), {odd})), 0) << "no whole vectors";
}

// Panels that do not last are laid out before each product whose rows go by in many blocks, but not
// where that would take more than the product itself.
TEST(Lasting, PanelsOfOneCall) {
  const Tensor w = Input({1024, 1024});  // 4 MiB
  const Plan p = PlanOf(Input({2048, 1024}).MatMul(w).MatMul(w).Relu(), {});
  ASSERT_EQ(p.steps.size(), 4u);
  EXPECT_EQ(Once(p), 0);
  EXPECT_EQ(KeptBytes(p), 0);
  EXPECT_EQ(p.steps[0].kernel, p.steps[2].kernel);
  EXPECT_EQ(p.steps[0].buffers[1], p.steps[2].buffers[1]);
  EXPECT_THAT(p.kernels[p.steps[3].kernel].name, ::testing::EndsWith("_panels"));
  const auto steps = [](int64_t rows, int64_t inner, int64_t columns) {
    return PlanOf(Input({rows, inner}).MatMul(Input({inner, columns})), {}).steps.size();
  };
  EXPECT_EQ(steps(2048, 1024, 1024), 2u);
  EXPECT_EQ(steps(1024, 1024, 1024), 1u) << "few blocks";
  const Variable n("panels_n", 1, 2048);
  const Tensor rows = Input({2048, 1024}).SliceAxis(0, {0, n});
  EXPECT_EQ(PlanOf(rows.MatMul(w), {}).steps.size(), 1u) << "rows that may be few";
  EXPECT_EQ(steps(2048, 1024, 64), 1u) << "columns that stay in a core's cache";
  EXPECT_EQ(steps(512, 1024, 1 << 16), 1u) << "too many bytes";
}

// Cores share panels, not the columns of one, which are one tile; nor rows, by which each core
// would read all panels.
TEST(Lasting, CoresSharePanels) {
  for (int64_t rows : {8, 16, 24}) {
    const Tensor w = Input({256, 256});
    const Plan p = PlanOf(Input({rows, 256}).MatMul(w), {w}, kMiB, /*wide=*/true);
    ASSERT_EQ(p.steps.size(), 2u);
    const PlanKernel& product = p.kernels[p.steps[1].kernel];
    EXPECT_EQ(product.workers, 2);
    for (const UOp& u : TopoSort({&product.graph, 1})) {
      if (!u.is(Op::kRange) || u.arg<RangeArg>().kind != RangeKind::kGrid) continue;
      EXPECT_EQ(u.src(0).vmax(), p.buffers[p.steps[0].buffers[0]].shape[0].value()) << rows;
    }
  }
}

// What is computed once reads nothing that is laid out at each run.
TEST(Lasting, StepsThatRunOnceGetNoPanelsOfOneCall) {
  const Tensor a = Input({2048, 1024}), b = Input({1024, 1024});
  const Tensor x = Input({2048, 1024}), w = Input({1024, 1024});
  const auto check = [](const Plan& p, int64_t once) {
    EXPECT_EQ(Once(p), once);
    for (const PlanStep& s : p.steps) {
      if (!s.once) continue;
      for (const int buffer : s.buffers) {
        const PlanBuffer& made = p.buffers[buffer];
        EXPECT_TRUE(made.kind != PlanBuffer::kTemp || made.kept);
      }
    }
  };
  const Tensor lasting = a.MatMul(b).Contiguous();
  check(PlanOf(lasting + x.MatMul(w).Contiguous(), {a, b}, 64 * kMiB), 1);
  check(PlanOf(lasting + x, {a, b}, 10 * kMiB), 1);  // no room for panels
  check(PlanOf(lasting + x, {a, b}, 64 * kMiB), 2);
}

TEST(Lasting, NoPanelsOfWhatVariablesSay) {
  const Variable n("panels_from", 0, 1024);
  const Tensor stack = Input({2048, 1024});
  const Tensor w = stack.SliceAxis(0, {n, n + Extent(1024)});
  EXPECT_EQ(PlanOf(Input({2048, 1024}).MatMul(w), {stack}, 64 * kMiB).steps.size(), 1u);
}

// Layers of one shape share kernels, and each weight its panels.
TEST(Lasting, ProductsOfOneWeightShareItsPanels) {
  const Tensor w = Input({64, 64}), v = Input({64, 64});
  Tensor x = Input({16, 64});
  for (const Tensor& t : {w, v, w}) x = x.MatMul(t).Relu();
  const Plan p = PlanOf(x, {w, v});
  EXPECT_EQ(Once(p), 2);
  EXPECT_EQ(p.steps.size(), 5u);
  EXPECT_EQ(p.kernels.size(), 2u);
  EXPECT_EQ(KeptBytes(p), 2 * 64 * 64 * 4);
}

}  // namespace
}  // namespace tessera
