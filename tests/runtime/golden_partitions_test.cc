// Published facts about partitions: who sends to whom when one is broadcast to another, the groups
// of a sum, halos of unequal and negative width, and a tree of places.
#include "graph/box.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

std::vector<Place> Workers(const std::vector<int>& numbers) {
  std::vector<Place> out;
  for (int n : numbers) out.emplace_back("CPU", n);
  return out;
}
std::vector<Place> FirstWorkers(int n) {
  std::vector<int> numbers;
  for (int i = 0; i < n; ++i) numbers.push_back(i);
  return Workers(numbers);
}

// 1x3x1 on workers 1, 2, 3 to 2x3x2 on workers 0 to 11: a worker may root one group and be served
// by another root.
TEST(GoldenPartitions, BroadcastOfAPartition) {
  const Placement whole = Placement::Replicate();
  const Sharding from(Mesh(Workers({1, 2, 3}), {{1}, {3}, {1}}),
                      {whole, Placement::Shard(0), whole});
  const Sharding to(Mesh(FirstWorkers(12), {{2}, {3}, {2}}), {whole, Placement::Shard(0), whole});
  const Shape shape({6, 2});
  const Boxes source = BoxesOf(shape, from), target = BoxesOf(shape, to);
  std::map<std::string, std::vector<int>> groups;
  for (int i = 0; i < 12; ++i) {
    const std::vector<Move> moves = MovesTo(source, target, i);
    ASSERT_EQ(moves.size(), 1u);
    groups[from[moves[0].from].ToString()].push_back(to[i].index());
  }
  EXPECT_EQ(groups, (std::map<std::string, std::vector<int>>{{"CPU:1", {0, 1, 6, 7}},
                                                            {"CPU:2", {2, 3, 8, 9}},
                                                            {"CPU:3", {4, 5, 10, 11}}}));
  std::vector<float> v(12);
  for (int i = 0; i < 12; ++i) v[i] = static_cast<float>(i);
  const Tensor x = Tensor::From(v, {6, 2}).To("CPU").To(from);
  EXPECT_EQ(x.To(to).ToVector<float>(), v);
}

TEST(GoldenPartitions, GroupsOfASum) {
  const Mesh mesh(FirstWorkers(12), {{2}, {3}, {2}});
  EXPECT_EQ(mesh.Groups({0, 2}), (std::vector<std::vector<int>>{
                                     {0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}}));
  EXPECT_EQ(mesh.Groups({}).size(), 12u);
}

// What each place reads beyond its part, to the left and right; negative: not all of its own.
struct Halo {
  int64_t n;
  int places;
  int64_t kernel, stride, pad, dilation;
  std::vector<std::pair<int64_t, int64_t>> widths;
};

TEST(GoldenPartitions, Halos) {
  const std::vector<Halo> all = {
      {10, 4, 2, 2, 0, 1, {{0, 1}, {-1, 0}, {0, 0}, {0, 0}}},
      {10, 4, 5, 1, 2, 1, {{0, 2}, {2, 2}, {2, 2}, {2, 0}}},
      {8, 4, 7, 1, 3, 1, {{0, 3}, {2, 3}, {3, 2}, {3, 0}}},
  };
  for (const Halo& h : all) {
    std::vector<float> v(h.n);
    for (int64_t i = 0; i < h.n; ++i) v[i] = static_cast<float>(i + 1);
    const Tensor x = Tensor::From(v).To("CPU").Shard(Sharding(FirstWorkers(h.places), 0)).Realize();
    const auto windows = [&h](const Tensor& t) {
      return t.Pad({{h.pad, h.pad}}).Window({0}, {h.kernel}, {h.stride}, {h.dilation}).Sum({1});
    };
    const Tensor y = windows(x);
    const std::vector<UOp> roots = {y.uop()};
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOnly(roots, MakePlanKey(roots)));
    int exchanges = 0;
    for (const PlanStep& s : plan.steps) {
      if (s.kind != PlanStep::kExchange) continue;
      ++exchanges;
      for (int i = 0; i < h.places; ++i) {
        const Interval own = s.from->At(i)[0], needed = s.to->At(i)[0];
        EXPECT_EQ(std::make_pair(own.begin - needed.begin, needed.end - own.end), h.widths[i])
            << h.n << " over " << h.places << ", place " << i;
      }
    }
    EXPECT_EQ(exchanges, 1);
    EXPECT_EQ(y.ToVector<float>(), windows(Tensor::From(v)).ToVector<float>());
  }
}

// {1: [1, 3], 2: [2, 4]}: x cut over the outer dim, w over the inner one.
TEST(GoldenPartitions, ATreeOfPlaces) {
  const Mesh tree = Mesh::OfTree({{"CPU:1", "CPU:3"}, {"CPU:2", "CPU:4"}});
  const Tensor x = Tensor::Ones({6, 8}).Contiguous().To("CPU").To(
      Sharding(tree, {Placement::Shard(0), Placement::Replicate()}));
  const Tensor w = Tensor::Ones({8, 10}).Contiguous().To("CPU").To(
      Sharding(tree, {Placement::Replicate(), Placement::Shard(1)}));
  const Tensor y = x.MatMul(w);
  const Boxes boxes = BoxesOf(y.shape(), y.device());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(boxes.At(i)[0].size(), 3);
    EXPECT_EQ(boxes.At(i)[1].size(), 5);
  }
  // A contraction over the inner dim sums within each pair.
  const Tensor u = Tensor::Ones({10, 8}).Contiguous().To("CPU").To(
      Sharding(tree, {Placement::Replicate(), Placement::Shard(0)}));
  const Tensor z = y.MatMul(u);
  const std::vector<UOp> roots = {z.uop()};
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOnly(roots, MakePlanKey(roots)));
  int sums = 0;
  for (const PlanStep& s : plan.steps) {
    if (s.kind != PlanStep::kAllReduce) continue;
    ++sums;
    EXPECT_EQ(tree.Groups(s.dims), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  }
  EXPECT_EQ(sums, 1);
  EXPECT_EQ(z.ToVector<float>(), std::vector<float>(48, 80));
}

}  // namespace
}  // namespace tessera
