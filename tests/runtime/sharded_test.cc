// Tensors on several virtual devices, against the reference, which knows of none.
#include "graph/box.h"
#include "graph/flags.h"
#include "graph/visualize.h"
#include "runtime/capture.h"
#include "runtime/mesh.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

int CountOps(const Tensor& t, Op op) {
  int n = 0;
  for (const UOp& u : TopoSort({&t.uop(), 1})) n += u.is(op);
  return n;
}

TEST(Sharded, TheSeedsExample) {
  const Tensor x = Tensor::Ones({256}).Contiguous().To("CPU");
  const Tensor s = x.Shard({"CPU:0", "CPU:1"}, 0);
  EXPECT_EQ(s.device().ToString(), "CPU:0-1{S0}");
  const Tensor y = s.Reshape({128, 2});
  EXPECT_EQ(y.device(), s.device());
  const Tensor z = (y + 1).Sum({0});
  EXPECT_EQ(CountOps(z, Op::kAllReduce), 1);
  EXPECT_EQ(z.device().ToString(), "CPU:0-1{R}");
  EXPECT_EQ(z.ToVector<float>(), (std::vector<float>{256, 256}));
}

TEST(Sharded, EvenPieces) {
  const Tensor x = Count({8, 6}).Shard(Line(4));
  EXPECT_REFERENCE(x + 1, x * x, x.Sum(), x.Sum({0}), x.Sum({1}), x.Max({0}), x.T(),
                   x.Reshape({4, 2, 6}), x.Reshape({48}), x.Softmax(), x.Softmax(0));
}

TEST(Sharded, UnevenAndEmptyPieces) {
  for (int places : {2, 3, 4, 6}) {
    for (int64_t n : {1, 2, 5, 7}) {
      const Tensor x = Count({n, 3}).Shard(Line(places));
      EXPECT_REFERENCE(x + 1, x.Sum({0}), x.Sum({1}), x.Max({0}), x.Prod({0}), x.T(), x.Softmax(0),
                       x.Reshape({n * 3}), x.ArgMax(0),
                       x + Tensor::Arange(n, kFloat32).Unsqueeze(1));
    }
  }
}

TEST(Sharded, Movement) {
  for (int places : {1, 2, 3, 5}) {
    const Tensor x = Count({7, 4}).Shard(Line(places));
    EXPECT_REFERENCE(x.Flip(0), x.Flip({0, 1}), x.Shrink({{2, 6}, {0, 3}}) * 2,
                     x.Pad({{1, 2}, {0, 1}}) + 1, x.Shrink({{2, 6}, {0, 4}}).Pad({{2, 1}, {0, 0}}),
                     x.Slice({{1, 7, 2}}), x.Slice({{{}, {}, -1}}), x.Slice({{{}, {}, -3}}),
                     x.Window(0, {3}), x.Window(0, {2}, {2}), x.Window(0, {3}, {1}, {2}),
                     x.Pad({{1, 1}, {0, 0}}).Window(0, {3}),
                     x.Pad({{3, 3}, {0, 0}}).Window(0, {7}).Sum(-1), x.Reshape({7, 2, 2}));
    EXPECT_REFERENCE(Cat({x, x + 1}, 0), Cat({x, x * 2}, 1),
                     Cat({x, Count({2, 4}).To("CPU").Shard(Line(places, std::nullopt))}, 0),
                     Stack({x, x}, 0), Stack({x, x}, 2), x.Repeat({2, 1}), x.RepeatInterleave(3, 0),
                     x.Roll(2, 0), x.CumSum(0), x.Tril(), x.Unsqueeze(0), x.Flatten(),
                     x.Unsqueeze(1).Expand({7, 3, 4}));
  }
}

// The layout of one piece does not nest with the cut of another.
TEST(Sharded, PiecesWhoseLayoutsDoNotNest) {
  const Mesh mesh({"CPU:0", "CPU:1", "CPU:2"}, {{3}, {1}});
  const auto on = [&](Placement a, Placement b) { return Sharding(mesh, {a, b}); };
  const Tensor x = Count({3, 3}).To(on(Placement::Shard(1), Placement::Shard(0))),
               y = Count({3, 3}).To(
                   on(Placement::Shard(0), Placement::Shard(1, Layout::Sizes({3}))));
  EXPECT_REFERENCE(Cat({x, y}, 1), Cat({y, x}, 1), Cat({x, y}, 0), x + y);
}

TEST(Sharded, OperandsThatDiffer) {
  for (int places : {2, 3}) {
    const Tensor a = Count({6, 5}), b = Count({6, 5}) * 2, row = Count({5}), column = Count({6, 1});
    for (const Sharding& s : {Line(places, 0), Line(places, 1), Line(places, 0, Layout::Ceil()),
                              Line(places, std::nullopt)}) {
      for (const Sharding& t : {Line(places, 0), Line(places, 1), Line(places, std::nullopt)}) {
        const Tensor x = a.Shard(s), y = b.Shard(t);
        EXPECT_REFERENCE(x + y, y + x, Where(x > y, x, y + 1), (x + y).Sum({1}));
        EXPECT_REFERENCE(x.MatMul(y.T()), x.T().MatMul(y), Cat({x, y}, 0), Cat({x, y}, 1));
      }
      const Tensor x = a.Shard(s);
      EXPECT_REFERENCE(x + row.To(Line(places, std::nullopt)), x + row.To(Line(places, 0)),
                       x * column.To(Line(places, 0)), x * column.To(Line(places, std::nullopt)));
    }
  }
}

TEST(Sharded, Repartition) {
  const Tensor a = Count({7, 6});
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2, "a"}, {2, "b"}});
  const auto S = [](int axis, Layout l = {}) { return Placement::Shard(axis, l); };
  const std::vector<Device> all = {Line(4),
                                   Line(4, 1),
                                   Line(2),
                                   Line(4, std::nullopt),
                                   Line(4, 0, Layout::Aligned(2)),
                                   Line(3, 0, Layout::Sizes({0, 5, 2})),
                                   Sharding(grid, {S(0), S(1)}),
                                   Sharding(grid, {S(1), S(0)}),
                                   Sharding(grid, {S(0), S(0)}),
                                   Sharding(grid, {Placement::Replicate(), S(0)}),
                                   Place("CPU", 1),
                                   Place("CPU", 5),
                                   Sharding({"CPU:5", "CPU:3", "CPU:0"}, 1)};
  for (const Device& from : all) {
    const Tensor x = a.To(from);
    for (const Device& to : all) EXPECT_REFERENCE(x.To(to), (x + 1).To(to) * 2);
  }
}

TEST(Sharded, Lookups) {
  const Tensor table = Count({9, 4}), index = Tensor::From(std::vector<int>{0, 8, -1, 3, 9, 4, 4});
  for (int places : {2, 4}) {
    for (const std::optional<int> t :
         {std::optional<int>(), std::optional<int>(0), std::optional<int>(1)}) {
      for (const std::optional<int> i : {std::optional<int>(), std::optional<int>(0)}) {
        const Tensor x = table.To(Line(places, t)), at = index.To(Line(places, i));
        EXPECT_REFERENCE(x.Take(at), x.Embedding(at) + 1, x.T().Take(at, 1),
                         x.Take(at.Unsqueeze(1)));
      }
    }
  }
}

TEST(Sharded, Assignment) {
  for (const std::optional<int> axis :
       {std::optional<int>(), std::optional<int>(0), std::optional<int>(1)}) {
    const Sharding s = Line(3, axis);
    Tensor x = Count({5, 4}).To(s);
    x.Realize();
    const Tensor before = x * 1;
    x.Assign(Count({5, 4}).To(Line(3, 0)) + 7);
    EXPECT_EQ(x.device(), Device(s));
    EXPECT_REFERENCE(x, before);
    Tensor y = Count({5, 4}).To(s);
    y.Slice({{1, 4}, {0, 3}}).Assign(Count({3, 3}).To(Line(3, std::nullopt)) * 2);
    EXPECT_REFERENCE(y, y.T());
    Tensor z = Count({5, 4}).To(s);
    z.Realize();
    z.Slice({{2, 3}}).Assign(5);
    z.Slice({{}, {1, 2}}).Assign(z.Slice({{}, {2, 3}}));
    EXPECT_REFERENCE(z);
    EXPECT_EQ(z.device(), Device(s));
  }
}

TEST(Sharded, RandomBitsAreThoseOfTheGlobalIndex) {
  std::vector<std::vector<float>> all;
  for (int places : {1, 2, 5}) {
    Tensor::ManualSeed(7);
    all.push_back(Tensor::Rand({7, 3}).Shard(Line(places)).ToVector<float>());
    Tensor::ManualSeed(7);
    all.push_back((Tensor::Rand({7, 3}).To(Line(places, 1)) * 1).ToVector<float>());
  }
  Tensor::ManualSeed(7);
  all.push_back(Tensor::Rand({7, 3}).ToVector<float>());
  for (const auto& v : all) EXPECT_EQ(v, all.back());
}

TEST(Sharded, ShardsAndBack) {
  const Tensor x = Count({5, 2}).Shard(Line(3));
  EXPECT_EQ(x.ShardAt(1).device().ToString(), "CPU:1");
  EXPECT_EQ(x.ShardAt(2).size(0), 1);
  EXPECT_REFERENCE(x.ShardAt(0), x.ShardAt(1) + 1, x.ShardAt(2));
  const std::vector<Tensor> parts = {x.ShardAt(0), x.ShardAt(1), x.ShardAt(2)};
  EXPECT_EQ(Tensor::FromShards(parts, Line(3)).uop(), x.uop());
  const std::vector<Tensor> own = {parts[0] * 2, parts[1] + 1, parts[2] * 0};
  const Tensor y = Tensor::FromShards(own, Line(3));
  EXPECT_EQ(y.ShardAt(1).uop(), own[1].uop());
  EXPECT_REFERENCE(y, y + x);
  EXPECT_THROW(Tensor::FromShards({parts[1], parts[0], parts[2]}, Line(3)), Error);
}

// ShardedFuzz 5000..5809: what a fuzz run found.
TEST(Sharded, ValuesWithoutADeviceAreKeptWhereTheyAreRead) {
  const Tensor x = Count({6, 4}).Shard(Line(3));
  const Tensor counted = Tensor::Arange(64, kFloat32).Reshape({16, 4}).Exp().Sum({0});
  EXPECT_REFERENCE(x * counted, (x + counted).Sum({1}), x.T().MatMul(x) + counted);
  Tensor own = Tensor::Arange(5).Sum();
  own.Realize();
  EXPECT_REFERENCE(Count({3}).To("CPU:1") + Tensor::Arange(5).Sum());
}

TEST(Sharded, ExtremesOfNothingAreNoNans) {
  const Tensor x = Count({2, 3}).Cast(kFloat8E4M3).Shard(Line(4));
  EXPECT_REFERENCE(x.Max({0}), x.Min({0}), x.Max());
}

TEST(Sharded, ReshapesOfTwoUnevenAxes) {
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2}, {2}});
  const Sharding s(grid, {Placement::Shard(0), Placement::Shard(1)});
  const Tensor x = Count({3, 5, 1, 8}).To(s);
  EXPECT_REFERENCE(x.Reshape({3, 1, 1, 1, 40}), x.Reshape({3, 40}).Reshape({3, 5, 2, 4}),
                   x.Reshape({3, 5, 8}).Permute({1, 0, 2}).Sum({1}));
}

// An axis of one element is cut as well: one place has it, and it is no part of the axis after it.
TEST(Sharded, AxesOfOneElementStayThemselves) {
  const Tensor x = Count({1, 6}).To(Line(3)), w = Count({6, 4}).To(Line(3, std::nullopt));
  EXPECT_EQ(x.Reshape({1, 1, 6}).device().ToString(), "CPU:0-2{S1}");
  EXPECT_EQ(x.Reshape({1, 2, 3}).device().ToString(), "CPU:0-2{S0}");
  EXPECT_EQ(x.Reshape({1, 1, 6}).Reshape({1, 6}).device(), x.device());
  const Tensor y = x.MatMul(w);
  EXPECT_EQ(y.device(), x.device());
  EXPECT_EQ(CountOps(y, Op::kAllReduce), 0);
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2}, {2}});
  const Tensor both =
      Count({1, 1, 5}).To(Sharding(grid, {Placement::Shard(0), Placement::Shard(1)}));
  EXPECT_EQ(both.Reshape({1, 1, 1, 5}).device(),
            Device(Sharding(grid, {Placement::Shard(1), Placement::Shard(2)})));
  const Tensor batch = Count({1, 1, 6}).To(Line(2, 0));
  const Tensor v = Count({6, 3}).To(Line(2, std::nullopt));
  EXPECT_EQ(CountOps(batch.MatMul(v), Op::kAllReduce), 0);
  EXPECT_REFERENCE(x.Reshape({1, 1, 6}), x.Reshape({6}), x.Reshape({2, 3}), y, y + 1,
                   both.Reshape({1, 1, 1, 5}), both.Reshape({5}), both.Reshape({5, 1, 1}));
  EXPECT_REFERENCE(batch.MatMul(v), batch.Sum({2}), batch.Softmax());
}

TEST(Sharded, ConvolutionsAndNorms) {
  const Tensor x = Count({3, 4, 6, 5}) * 0.01, w = Count({2, 4, 3, 3}) * 0.02;
  for (int axis = 0; axis < 4; ++axis) {
    const Tensor s = x.Shard(Line(3, axis)), k = w.To(Line(3, std::nullopt));
    EXPECT_REFERENCE(s.Conv2d(k), s.Conv2d(k, {.padding = {1, 1}}),
                     s.Conv2d(k, {.stride = {2, 2}, .padding = {2, 1}}), s.MaxPool2d({}),
                     s.AvgPool2d({.size = {3, 2}, .stride = {1, 1}, .padding = {1, 0}}));
    EXPECT_REFERENCE(s.LayerNorm(), s.RmsNorm(), s.Var({axis}), s.LogSoftmax(axis));
  }
}

TEST(Sharded, CapturedSteps) {
  for (const Sharding& s : {Line(2), Line(3, 1), Line(2, std::nullopt)}) {
    Tensor state = Count({5, 4}).To(s);
    state.Realize();
    Jit step([&](const Tensor& x) {
      const Tensor seen = state + x;
      state.Assign(seen * 2);
      return seen.Sum({0});
    });
    Tensor plain = Count({5, 4});
    plain.Realize();
    for (int i = 0; i < 5; ++i) {
      const Tensor x = Count({5, 4}) + i;
      const Tensor got = step.One({x.To("CPU").To(s)});
      const Tensor want = plain + x;
      plain.Assign(want * 2);
      EXPECT_EQ(got.ToVector<float>(), want.Sum({0}).ToVector<float>()) << i;
      EXPECT_EQ(got.device().sharding().mesh(), s.mesh());
    }
    EXPECT_EQ(state.ToVector<float>(), plain.ToVector<float>());
    EXPECT_EQ(state.device(), Device(s));
    EXPECT_EQ(step.captures(), 1);
  }
}

TEST(Sharded, StrictRefusesToMoveWhatNobodyMoved) {
  SetFlagForTest strict(Flag::kStrict, "1");
  const Tensor x = Count({8, 4}).Shard(Line(4)), y = Count({8, 4}).Shard(Line(4, 1));
  const Tensor whole = Count({8, 4}).To(Line(4, std::nullopt));
  EXPECT_REFERENCE(x + whole, x + whole.Sum({0}), x.Reshape({32}));
  for (const auto& wrong :
       {std::function<void()>([&] { x + y; }), std::function<void()>([&] { y.Reshape({32}); })}) {
    try {
      wrong();
      ADD_FAILURE() << "was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("STRICT=1 forbids implicit moves"));
      EXPECT_THAT(e.what(), HasSubstr("f32[8"));
      EXPECT_THAT(e.what(), HasSubstr(".To("));
    }
  }
}

TEST(Sharded, Mistakes) {
  const Tensor x = Count({8, 4});
  EXPECT_THAT(ErrorOf([&] { x.Shard(Line(2, 2)); }),
              HasSubstr("Shard: there is no axis 2 to shard in [8, 4]"));
  EXPECT_THAT(ErrorOf([&] {
                x.Shard(Line(2, 0, Layout::Sizes({3, 4})));
              }),
              HasSubstr("adds up to 7 elements of 8"));
  EXPECT_THAT(ErrorOf([&] { x.Shard({"CPU:0", "CPU:0"}, 0); }), HasSubstr("is repeated"));
  EXPECT_THAT(ErrorOf([&] { x.Shard({"CPU:0", "CPU:1"}, 2); }), HasSubstr("there is no axis 2"));
  EXPECT_THAT(
      ErrorOf([&] { x.Shard(Line(2)) + x.Shard(Line(3)); }),
      HasSubstr("different devices, CPU:0-1 and CPU:0-2; move one of them with .To(...); got "
                "f32[8/2, 4] on CPU:0-1, f32[8/3, 4] on CPU:0-2"));
  EXPECT_THAT(ErrorOf([&] { x.Shard(Line(2)) + x.To("CPU:5"); }), HasSubstr(".To(...)"));
  EXPECT_THAT(ErrorOf([&] { x.ShardAt(0); }), HasSubstr("not on a Sharding"));
  EXPECT_THAT(ErrorOf([&] { x.Shard(Line(2)).ShardAt(2); }), HasSubstr("there is no shard 2"));
  EXPECT_THAT(ErrorOf([&] { x.Shard(Line(2)).Data<float>(); }), HasSubstr("in parts on"));
}

Plan PlanOf(const std::vector<Tensor>& tensors) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  absl::StatusOr<Plan> plan = PlanOnly(roots, MakePlanKey(roots));
  EXPECT_OK(plan);
  return plan.ok() ? *std::move(plan) : Plan();
}

// One graph and one kernel for all places of a mesh, however many there are.
TEST(Sharded, PlansDoNotGrowWithTheMesh) {
  std::optional<size_t> steps, kernels;
  for (int places : {2, 8, 64}) {
    std::vector<Place> list;
    for (int i = 0; i < places; ++i) list.emplace_back("NULL", i);
    const Mesh mesh(list, {{places / 2, "dp"}, {2, "tp"}});
    const auto on = [&](Placement dp, Placement tp) { return Sharding(mesh, {dp, tp}); };
    const Placement whole = Placement::Replicate();
    const Tensor x = Tensor::Empty({128, 64}, kFloat32, on(Placement::Shard(0), whole));
    const Tensor up = Tensor::Empty({64, 256}, kFloat32, on(whole, Placement::Shard(1)));
    const Tensor down = Tensor::Empty({256, 64}, kFloat32, on(whole, Placement::Shard(0)));
    const Tensor y = x + x.RmsNorm().MatMul(up).Silu().MatMul(down);
    const Plan plan = PlanOf({y});
    int reductions = 0;
    for (const PlanStep& s : plan.steps) {
      reductions += s.kind == PlanStep::kAllReduce;
      EXPECT_NE(s.kind, PlanStep::kExchange);
    }
    EXPECT_EQ(reductions, 1);
    if (!steps) steps = plan.steps.size(), kernels = plan.kernels.size();
    EXPECT_EQ(plan.steps.size(), *steps);
    EXPECT_EQ(plan.kernels.size(), *kernels);
    // The all-reduce of the rows of each group of two.
    EXPECT_EQ(BytesMoved(plan), 2 * 128 * 64 * 4);
    EXPECT_LT(TopoSort({&y.uop(), 1}).size(), 80u);
  }
}

// Random numbers that several kernels read are kept, on each place those of its part.
TEST(Sharded, PlacesComputeTheirOwnRandomNumbers) {
  for (int axis : {0, 1}) {
    Tensor::ManualSeed(11);
    const Tensor r = Tensor::RandN({64, 256}, kFloat32, Line(4, axis));
    const Tensor y = r * 2 + r.Sum({0}, true) - r.Contiguous().Max({1}, true);
    for (const PlanBuffer& b : PlanOf({y}).buffers) EXPECT_LE(b.bytes, 64 * 256 * 4 / 4);
    Tensor::ManualSeed(11);
    const Tensor whole = Tensor::RandN({64, 256}, kFloat32, "CPU");
    EXPECT_EQ(r.ToVector<float>(), whole.ToVector<float>());
    EXPECT_EQ((r * 2).ToVector<float>(), (whole * 2).ToVector<float>());
  }
}

// Seed 1000610: what lies alike on both shardings has one reduction, though a reshape of one of
// them is read.
TEST(Sharded, AReductionReadThroughCopiesIsDoneOnce) {
  const Mesh mesh({"CPU:0", "CPU:1"}, {{2, "a"}, {1, "b"}});
  const auto on = [&](Placement a, Placement b) { return Sharding(mesh, {a, b}); };
  const Placement whole = Placement::Replicate();
  const Tensor x = Tensor::Empty({2, 6, 4}, kFloat32, on(Placement::Shard(0), Placement::Shard(2)));
  const Tensor y = x.Min({0}).Reshape({6, 4});
  const Tensor z = y.To(on(whole, Placement::Shard(0))).Reshape({24});
  EXPECT_EQ(BytesMoved(PlanOf({y, z})), 2 * 24 * 4);
  EXPECT_EQ(BytesMoved(PlanOf({y, z.Reshape({6, 4}).T()})), 2 * 24 * 4);
}

// Seed 1019415: where no place wants an element there is no part to cut out of another.
TEST(Sharded, RepartitionsOfNothing) {
  const Tensor x = Count({4, 1, 4, 1}).Shard(Line(4)).Realize();
  const Tensor none = x.Expand({4, 1, 4, 0});
  EXPECT_EQ(none.To(Line(4, 3)).To(Line(4, 2)).Sum({2}).ToVector<float>(), std::vector<float>());
  EXPECT_EQ(none.To(Line(4, 3)).Sum().Item(), 0);
}

TEST(Sharded, ExplainNamesWhatMovesAndWhy) {
  const Tensor x = Count({8, 4}).To("CPU").Shard(Line(4)),
               y = Count({8, 4}).To("CPU").Shard(Line(4, 1));
  const std::string text = Explain((x + y).Sum());
  EXPECT_THAT(text, HasSubstr("operands of ADD are sharded differently"));
  EXPECT_THAT(text, HasSubstr("all-reduce ADD of groups of 4"));
  EXPECT_THAT(text, HasSubstr("(REDUCE along axis 0 of [8, 4], which is sharded)"));
  EXPECT_THAT(Explain(x.Take(Tensor::Arange(2) * 5)),
              HasSubstr("(each place looks up what it has of the table)"));
  EXPECT_THAT(Explain(x.Sum({0}) + (x * 2).Sum({0})),
              HasSubstr("(sums that are added up before they are reduced)"));
  EXPECT_THAT(Explain({x.Sum({0}).Exp(), (x * x).Sum({0})}),
              HasSubstr("(2 small reductions in one)"));
  EXPECT_THAT(text, HasSubstr("sharded_test.cc:"));
  EXPECT_EQ(VisualizeSharding(Count({5, 4}).Shard(Line(3))),
            "f32[5/3, 4] on CPU:0-2\n  CPU    [0:2, 0:4]  2x4\n  CPU:1  [2:4, 0:4]  2x4\n"
            "  CPU:2  [4:5, 0:4]  1x4\n");
}

// Seed 44: of 2 rows over 5 places 3 hold none, and their kernels must not read one.
TEST(Sharded, PlacesWithoutRowsReadNone) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  const Sharding five({"CPU:0", "CPU:1", "CPU:2", "CPU:3", "CPU:4"}, 0);
  const Tensor whole = Tensor::RandInt(0, 1000, {2, 67200}).Realize();
  Tensor parts = whole.Shard(five).Realize();
  EXPECT_EQ((parts & parts.Max()).ToVector<int32_t>(), (whole & whole.Max()).ToVector<int32_t>());
}

}  // namespace
}  // namespace tessera
