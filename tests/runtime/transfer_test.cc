// Reductions between places: scattered where only parts are read, in one order whichever way they
// go, and counted.
#include "runtime/mesh.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

Values Numbers(int64_t n) {
  Values v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7) % 31) / 3 - 5;
  return v;
}

struct Steps {
  int reductions = 0, scatters = 0, exchanges = 0;
  int64_t bytes = 0;
};
Steps StepsOf(const std::vector<Tensor>& results) {
  std::vector<UOp> roots;
  for (const Tensor& t : results) roots.push_back(t.uop());
  const absl::StatusOr<Plan> plan = PlanOnly(roots, MakePlanKey(roots));
  EXPECT_OK(plan);
  Steps out;
  for (const PlanStep& s : plan->steps) {
    out.reductions += s.kind == PlanStep::kAllReduce;
    out.scatters += s.kind == PlanStep::kReduceScatter;
    out.exchanges += s.kind == PlanStep::kExchange;
    out.bytes += BytesMoved(*plan, s);
  }
  return out;
}

TEST(ReduceScatter, WhereEachPlaceReadsItsPart) {
  for (int places : {2, 3, 5}) {
    for (const Layout& layout :
         {Layout(), Layout::Aligned(2), Layout::Ceil(), Layout::Sizes({7, 0})}) {
      if (layout.kind() == Layout::Kind::kSizes && places != 2) continue;
      const Tensor plain = Tensor::From(Numbers(4 * 7), {4, 7});
      const Tensor x = plain.To("CPU").Shard(Line(places)).Realize();
      const Sharding parts = Line(places, 0, layout);
      const auto on = [&](const Tensor& t) { return t.To(parts); };
      for (const Tensor& y : {on(x.Sum({0})), on(x.Max({0})), on(x.Min({0})), on(x.Prod({0})),
                              on(x.Cast(kInt32).Sum({0})), on(x.Cast(kFloat16).Sum({0}))}) {
        const Steps steps = StepsOf({y});
        EXPECT_EQ(steps.reductions, 0);
        EXPECT_EQ(steps.scatters, 1);
        const int64_t wire = y.dtype() == kFloat16 ? 4 : y.dtype().bytes();
        EXPECT_EQ(steps.bytes, (places - 1) * 7 * wire);
        EXPECT_REFERENCE(y);
      }
    }
  }
}

TEST(ReduceScatter, UnderElementwiseOps) {
  const Tensor x = Tensor::From(Numbers(24), {4, 6}).To("CPU").Shard(Line(3)).Realize();
  const Tensor w = Tensor::From(Numbers(6), {6}).To("CPU").Shard(Line(3)).Realize();
  const Tensor y = -x.Sum({0}) * w + 1;  // the sum is cut for the product
  EXPECT_EQ(StepsOf({y}).scatters, 1);
  EXPECT_EQ(StepsOf({y}).reductions, 0);
  EXPECT_REFERENCE(y);
  // Two sums that are added up are scattered once.
  const Tensor z = x.Sum({0}) * w + (x * x).Sum({0}) * w;
  EXPECT_LE(StepsOf({z}).scatters, 2);
  EXPECT_REFERENCE(z);
}

TEST(ReduceScatter, NotWhereTheWholeIsReadToo) {
  const Tensor x = Tensor::From(Numbers(24), {4, 6}).To("CPU").Shard(Line(3)).Realize();
  const Tensor sum = x.Sum({0});
  const Tensor part = sum.To(Line(3)) * 2;
  const Steps steps = StepsOf({sum, part});
  EXPECT_EQ(steps.reductions, 1);
  EXPECT_EQ(steps.scatters, 0);
  EXPECT_EQ(steps.bytes, 2 * 2 * 6 * 4);
  EXPECT_REFERENCE(sum, part);
}

TEST(ReduceScatter, OverOneDimOfAGrid) {
  const Mesh mesh({"CPU:0", "CPU:1", "CPU:2", "CPU:3", "CPU:4", "CPU:5"}, {{2}, {3}});
  const Placement whole = Placement::Replicate();
  const Tensor x = Tensor::From(Numbers(8 * 9), {8, 9})
                       .To("CPU")
                       .To(Sharding(mesh, {Placement::Shard(0), Placement::Shard(1)}))
                       .Realize();
  for (const Sharding& to : {Sharding(mesh, {Placement::Shard(0), whole}),
                             Sharding(mesh, {Placement::Shard(0), Placement::Shard(0)})}) {
    for (const Tensor& y : {x.Sum({0}).To(to), x.Sum({1}).To(to)}) EXPECT_REFERENCE(y);
  }
  const Tensor rows = x.Sum({1}).To(Sharding(mesh, {Placement::Shard(0), Placement::Shard(0)}));
  EXPECT_EQ(StepsOf({rows}).reductions, 0);
}

// Floats are added in the order of the places, whatever the size and the way.
TEST(AllReduce, AddsInTheOrderOfThePlaces) {
  for (const int64_t n : {1, 3, 200, 5000, 70000}) {
    const int places = 4;
    const Values v = Numbers(places * n);
    const Tensor x = (Tensor::From(v, {places, n}) * 1.1f).To("CPU").Shard(Line(places)).Realize();
    Values expected(n);
    for (int64_t i = 0; i < n; ++i) {
      expected[i] = v[i] * 1.1f;
      for (int p = 1; p < places; ++p) expected[i] += v[p * n + i] * 1.1f;
    }
    EXPECT_EQ(x.Sum({0}).ToVector<float>(), expected) << n;
    EXPECT_EQ(x.Sum({0}).To(Line(places)).ToVector<float>(), expected) << n;
  }
}

TEST(Transfers, AreCounted) {
  const Tensor small = Tensor::From(Numbers(8), {4, 2}).To("CPU").Shard(Line(4)).Realize();
  const Tensor large =
      Tensor::From(Numbers(4 * 4096), {4, 4096}).To("CPU").Shard(Line(4)).Realize();
  RuntimeStats before = GetRuntimeStats();
  const auto since = [&before] {
    const RuntimeStats now = GetRuntimeStats();
    const std::vector<int64_t> out = {now.transfers_run - before.transfers_run,
                                      now.bytes_moved - before.bytes_moved,
                                      now.bytes_sent - before.bytes_sent};
    before = now;
    return out;
  };
  small.Sum({0}).Realize();
  EXPECT_EQ(since(), (std::vector<int64_t>{1, 2 * 3 * 8, 4 * 3 * 8}));  // each to each at once
  large.Sum({0}).Realize();
  EXPECT_EQ(since(), (std::vector<int64_t>{1, 2 * 3 * 16384, 2 * 3 * 16384}));
  large.Sum({0}).To(Line(4)).Realize();
  EXPECT_EQ(since(), (std::vector<int64_t>{1, 3 * 16384, 3 * 16384}));
  small.To(Line(4, std::nullopt)).Realize();
  EXPECT_EQ(since(), (std::vector<int64_t>{1, 3 * 32, 3 * 32}));
  (small + 1).Realize();
  EXPECT_EQ(since(), (std::vector<int64_t>{0, 0, 0}));
}

// Source, target and, where places are not of the host, one block: a move makes nothing else.
TEST(Transfers, TakeNoMoreMemoryThanTheirEnds) {
  for (const char* kind : {"CPU", "SIM"}) {
    const auto on = [kind](std::optional<int> axis) { return Line(3, axis, {}, kind); };
    const Tensor plain = Tensor::From(Numbers(6 * 4096), {6, 4096}).To("CPU");
    for (const Sharding& to : {on(1), on(std::nullopt), Line(2, 0, {}, kind)}) {
      const Tensor x = plain.To(on(0)).Realize();
      const auto places = [kind] {
        std::vector<MemoryStats> out;
        for (int i = 0; i < 3; ++i) out.push_back((*GetDevice(Place(kind, i)))->Memory());
        return out;
      };
      for (int i = 0; i < 3; ++i) (*GetDevice(Place(kind, i)))->Trim();
      const std::vector<MemoryStats> before = places();
      const Tensor y = Tensor(x).To(to).Realize();
      const std::vector<MemoryStats> after = places();
      for (int i = 0; i < 3; ++i) {
        // To whole pages.
        const int64_t own = i < to.size() ? Volume(BoxesOf(y.shape(), y.device()).At(i)) * 4 : 0;
        EXPECT_LE(after[i].live_bytes - before[i].live_bytes, own + 4096) << kind;
        EXPECT_LE(after[i].peak_bytes,
                  std::max(before[i].peak_bytes, before[i].live_bytes + own + 4096))
            << kind;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
