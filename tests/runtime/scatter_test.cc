// SCATTER and GATHER compiled, on every division of their loops, against plain loops; their cost;
// and over places.
#include "graph/grad.h"
#include "runtime/counters.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

std::vector<float> Draw(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(n);
  for (float& v : out) v = static_cast<float>(static_cast<int>(random() % 17)) - 8;
  return out;
}

// Some of them are outside.
std::vector<int32_t> DrawIndex(int64_t n, int64_t below, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> out(n);
  for (int32_t& v : out) v = static_cast<int32_t>(random() % (below + 2)) - 1;
  return out;
}

// Rows of a table [outer, n, inner] by an index [m], the same in every outer one.
std::vector<float> RowsAdded(std::vector<float> x, const std::vector<int32_t>& index,
                             const std::vector<float>& updates, int64_t outer, int64_t n,
                             int64_t inner) {
  const auto m = static_cast<int64_t>(index.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t j = 0; j < m; ++j) {
      if (index[j] < 0 || index[j] >= n) continue;
      for (int64_t k = 0; k < inner; ++k) {
        x[(o * n + index[j]) * inner + k] += updates[(o * m + j) * inner + k];
      }
    }
  }
  return x;
}

struct Case {
  int64_t outer, n, inner, m;
};

// On a CPU the cores share the outer axis, pieces of rows or parts of the axis; on a GPU its
// threads do.
TEST(Scatter, AddsRowsHoweverTheLoopsAreDivided) {
  for (const char* place : {"CPU", "SIM:0"}) {
    for (const Case& c :
         {Case{1, 7, 1, 20}, Case{1, 1, 1, 5}, Case{1, 12, 1, 1}, Case{1, 1000, 1, 70000},
          Case{1, 300, 64, 2000}, Case{1, 40, 33, 1500}, Case{16, 50, 3, 900}, Case{3, 5, 4, 1},
          Case{70, 64, 1, 700}, Case{2, 9, 2, 0}, Case{1, 70000, 2, 70000}}) {
      const auto x = Draw(c.outer * c.n * c.inner, 1), u = Draw(c.outer * c.m * c.inner, 2);
      const auto index = DrawIndex(c.m, c.n, 3);
      const Tensor table = Tensor::From(x, {c.outer, c.n, c.inner}).To(place);
      const Tensor updates = Tensor::From(u, {c.outer, c.m, c.inner}).To(place);
      const Tensor i = Tensor::From(index, {c.m}).To(place);
      EXPECT_EQ(table.IndexAdd(1, i, updates).ToVector<float>(),
                RowsAdded(x, index, u, c.outer, c.n, c.inner))
          << place << " " << c.outer << " " << c.n << " " << c.inner << " " << c.m;
    }
  }
}

// Of special values: what no update names stays as it was, bit for bit.
TEST(Scatter, KeepsWhatItDoesNotTouch) {
  const float inf = INFINITY, nan = NAN, least = 1e-45f;
  const Tensor x = Tensor::From(std::vector<float>{-0.0f, inf, nan, least, -inf, -0.0f}).To("CPU");
  const Tensor i = Tensor::From(std::vector<int>{4, 5, 4, 9, -1}).To("CPU");
  const Tensor u = Tensor::From(std::vector<float>{inf, -0.0f, 1, nan, nan}).To("CPU");
  const std::vector<float> got = x.ScatterAdd(0, i, u).ToVector<float>();
  EXPECT_TRUE(got[0] == 0 && std::signbit(got[0]));
  EXPECT_EQ(got[1], inf);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], least);
  EXPECT_TRUE(std::isnan(got[4]));  // inf - inf
  EXPECT_TRUE(got[5] == 0 && std::signbit(got[5]));
  const std::vector<float> most = x.Scatter(0, i, u, ScatterMode::kMax).ToVector<float>();
  EXPECT_EQ(most[4], inf);
  EXPECT_TRUE(std::isnan(most[2]));
  const std::vector<float> set = x.Scatter(0, i, u).ToVector<float>();
  EXPECT_EQ(set[4], 1);  // the last of two
  EXPECT_TRUE(std::signbit(set[5]));
}

// Three operations an update and a copy of the base: nothing grows with their product.
TEST(Scatter, CostsItsBaseAndItsUpdates) {
  const Tensor table = Tensor::Empty({100000, 16}, kFloat32, "CPU");
  const Tensor index = Tensor::Empty({5000}, kInt32, "CPU");
  const Tensor loss = table.Take(index).Sum();
  for (const Tensor& t :
       {table.IndexAdd(0, index, Tensor::Ones({5000, 16})), Grad(loss, {table})[0],
        index.BinCount(100000),
        Tensor::Zeros({100000}).Scatter(0, index, Tensor::Ones({5000}), ScatterMode::kMean)}) {
    const std::vector<UOp> roots = {t.uop()};
    const absl::StatusOr<Plan> plan = PlanOnly(roots, MakePlanKey(roots));
    ASSERT_OK(plan);
    int64_t flops = 0;
    for (const PlanKernel& k : plan->kernels) flops += k.flops.max();
    EXPECT_LT(flops, 4 * (100000 + 5000) * 16);
  }
}

TEST(Scatter, OverPlacesOnEveryAxis) {
  const int64_t outer = 4, n = 7, inner = 3, m = 10;
  const auto x = Draw(outer * n * inner, 1), u = Draw(outer * m * inner, 2);
  const auto index = DrawIndex(m, n, 3);
  const std::vector<float> want = RowsAdded(x, index, u, outer, n, inner);
  const std::vector<Place> places = {{"CPU", 0}, {"CPU", 1}, {"CPU", 2}};
  std::vector<Device> of_index = {Sharding(Mesh(places)), Sharding(places, 0)};
  std::vector<Device> of_table = {Sharding(Mesh(places)), Sharding(places, 0), Sharding(places, 1),
                                  Sharding(places, 2)};
  for (Device a : of_table) {
    for (Device b : of_index) {
      for (Device c : of_table) {
        const Tensor base = Tensor::From(x, {outer, n, inner}).To(a);
        const Tensor i = Tensor::From(index).To(b);
        const Tensor updates = Tensor::From(u, {outer, m, inner}).To(c);
        const std::string name = absl::StrCat(a.ToString(), " ", b.ToString(), " ", c.ToString());
        EXPECT_EQ(base.IndexAdd(1, i, updates).ToVector<float>(), want) << name;
        for (ScatterMode mode : {ScatterMode::kSet, ScatterMode::kMul, ScatterMode::kMax,
                                 ScatterMode::kMin, ScatterMode::kMean}) {
          const auto f = [mode](const Tensor& base, const Tensor& i, const Tensor& updates) {
            return base.Scatter(1, i.Unsqueeze(-1).Expand({10, 3}).Unsqueeze(0).Expand({4, 10, 3}),
                                updates, mode);
          };
          const Tensor one =
              f(Tensor::From(x, {outer, n, inner}).To("CPU"), Tensor::From(index).To("CPU"),
                Tensor::From(u, {outer, m, inner}).To("CPU"));
          EXPECT_EQ(f(base, i, updates).ToVector<float>(), one.ToVector<float>())
              << name << " mode " << static_cast<int>(mode);
        }
      }
    }
  }
}

// Axes that table and index share stay where they lie.
TEST(Gather, MovesNothingAlongSharedAxes) {
  const Sharding rows({"CPU:0", "CPU:1", "CPU:2"}, 0);
  const Tensor x = Tensor::Empty({9, 5, 4}, kFloat32, rows);
  const Tensor along = Tensor::Empty({9, 2, 4}, kInt32, rows);
  const Tensor nd = Tensor::Empty({9, 3, 2}, kInt32, rows);
  for (const Tensor& t : {x.Gather(1, along), x.GatherND(nd, 1), x.Gather(2, along),
                          x.Scatter(1, along, Tensor::Empty({9, 2, 4}, kFloat32, rows)),
                          x.ScatterAdd(1, along, Tensor::Empty({9, 2, 4}, kFloat32, rows)),
                          Grad(x.Gather(1, along).Sum(), {x})[0]}) {
    const std::vector<UOp> roots = {t.uop()};
    const absl::StatusOr<Plan> plan = PlanOnly(roots, MakePlanKey(roots));
    ASSERT_OK(plan);
    EXPECT_EQ(BytesMoved(*plan), 0) << plan->ToString();
  }
}

}  // namespace
}  // namespace tessera
