// Per-place programs at their edges: parts of unequal size, tensors from elsewhere, mistakes.
#include "graph/grad.h"
#include "graph/infer_device.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/runtime/shard_map_testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Parts of different sizes have extents of their own inside.
TEST(ShardMap, UnevenParts) {
  const Mesh grid = Grid();
  for (const auto& [s, n] :
       {std::pair<Sharding, int64_t>{Along(Line(3), 0), 7},
        {Along(Line(3), 0), 2},
        {Sharding(Line(3), {Placement::Shard(0, Layout::Sizes({1, 5, 0}))}), 6},
        {Sharding(Line(4), {Placement::Shard(0, Layout::Ceil())}), 9},
        {Sharding(Line(2), {Placement::Shard(0, Layout::Aligned(4))}), 12}}) {
    SCOPED_TRACE(s.ToString());
    const Tensor plain = Tensor::From(Numbers(n * 4), {n, 4}).To("CPU").Realize();
    const Tensor w = Tensor::From(Numbers(12, 3), {4, 3});
    const Tensor x = plain.To(s).Realize(), weight = w.To(Sharding(s.mesh())).Realize();
    const Placement rows = Placement::Shard(0);
    const auto mapped = [&](const Placement& out, auto fn) {
      return ShardMap({"d"}, {out}, fn, x, weight);
    };
    const auto expect = [&](const Tensor& got, const Tensor& want) {
      EXPECT_EQ(got.shape(), want.shape());
      EXPECT_REFERENCE(got);
      EXPECT_EQ(Read(got), Read(want));
    };
    const Tensor same = mapped(rows, [](const Tensor& a, const Tensor&) { return a * 2 + 1; });
    EXPECT_TRUE(SamePlacement(same.shape(), same.device(), x.device()));
    expect(same, plain * 2 + 1);
    expect(mapped(rows, [](const Tensor& a, const Tensor& b) { return a.MatMul(b).Relu(); }),
           plain.MatMul(w).Relu());
    expect(
        mapped(kWhole, [](const Tensor& a, const Tensor&) { return AllReduce(a.Sum({0}), "d"); }),
        plain.Sum({0}));
    expect(mapped(kWhole, [](const Tensor& a, const Tensor&) { return AllGather(a, "d") + 1; }),
           plain + 1);
    expect(mapped(rows,
                  [](const Tensor& a, const Tensor& b) {
                    return AllGather(a, "d").T().MatMul(AllGather(a, "d")).MatMul(b).Sum() + a;
                  }),
           plain.T().MatMul(plain).MatMul(w).Sum() + plain);
    expect(mapped(Placement::Shard(1),
                  [](const Tensor& a, const Tensor&) { return AllToAll(a, "d", 1, 0) * 3; }),
           plain * 3);
    expect(mapped(rows,
                  [](const Tensor& a, const Tensor&) {
                    return ReduceScatter(AllGather(a, "d"), "d", 0, Op::kMax) - 1;
                  }),
           plain - 1);
    expect(
        mapped(rows,
               [](const Tensor& a, const Tensor&) {
                 return a.Reshape({a.shape()[0], 2, 2}).Flip(2).Reshape({a.shape()[0] * Extent(4)});
               }),
        plain.Reshape({n, 2, 2}).Flip(2).Reshape({n * 4}));
    expect(mapped(rows,
                  [](const Tensor& a, const Tensor&) {
                    return Cat({a, a + 1}, 1).Max({1});
                  }),
           Cat({plain, plain + 1}, 1).Max({1}));
    // Positions within each part, and zeros as long as it.
    const Tensor positions = mapped(rows, [](const Tensor& a, const Tensor&) {
      return Tensor::Arange(a.shape()[0], kFloat32).Unsqueeze(1) + a.ZerosLike();
    });
    EXPECT_REFERENCE(positions);
    EXPECT_EQ(Read(mapped(rows,
                          [](const Tensor& a, const Tensor&) {
                            return Tensor::Ones({a.shape()[0], 4}) * 3;
                          })),
              Values(n * 4, 3));
    // Round: each part comes to each place, whatever its size.
    const int places = s.size();
    std::vector<int> next, none(places, -1);
    for (int i = 0; i < places; ++i) next.push_back((i + 1) % places);
    const auto round = [&](const Tensor& a, const Tensor&) { return Permute(a, "d", next); };
    std::vector<Tensor> turned;
    for (int i = 0; i < places; ++i) turned.push_back(x.ShardAt(next[i]).To("CPU"));
    expect(mapped(rows, round), Cat(turned, 0));
    const auto sum = [&](const Tensor& a, const Tensor& b) {
      Tensor at = a, all = a.Sum({0}, true);
      for (int i = 1; i < places; ++i) {
        at = round(at, b);
        all = all + at.Sum({0}, true);
      }
      return all;
    };
    expect(mapped(rows, sum), plain.Sum({0}, true).Expand({places, 4}));
    none[0] = 0;
    expect(mapped(rows, [&](const Tensor& a, const Tensor&) { return Permute(a, "d", none); }),
           Where(Tensor::Arange(n).Unsqueeze(1) < x.ShardAt(0).shape()[0], plain, 0));
  }
  // One dim of two.
  const Tensor x = Tensor::From(Numbers(20), {5, 4})
                       .To(Sharding(grid, {Placement::Shard(0), Placement::Shard(1)}));
  const Tensor y = ShardMap(
      {"dp"}, {Placement::Shard(0)}, [](const Tensor& a) { return a * 2 + a.Sum({1}, true); }, x);
  EXPECT_REFERENCE(y);
  const auto own = [](const Tensor& a) { return a * 2 + AllReduce(a.Sum({1}, true), "tp"); };
  EXPECT_EQ(Read(ShardMap({"dp", "tp"}, {Placement::Shard(0), Placement::Shard(1)}, own, x)),
            Read(y));
}

// Seed 2015241: a cut that the outermost dim holds cannot stay behind when that dim enters, and
// uneven parts that other dims cut on are an error.
TEST(ShardMap, ClippedAxesOfTwoDims) {
  const Mesh mesh({"CPU:0", "CPU:1"}, {{1, "a"}, {2, "b"}});
  const Tensor x = Tensor::From(Numbers(64), {64})
                       .Shard(Sharding(mesh, {Placement::Shard(0), Placement::Shard(0)}))
                       .SliceAxis(0, {16, 50});
  const auto twice = [](const Tensor& t) { return t * 2; };
  const auto mapped = [&](const Tensor& t) {
    return ShardMap({"a"}, {Placement::Shard(0)}, twice, t);
  };
  EXPECT_THAT(ErrorOf([&] { mapped(x); }), HasSubstr("is not cut into equal parts"));
  const Tensor even = x.To(Sharding(mesh, {Placement::Shard(0), Placement::Shard(0)}));
  EXPECT_EQ(Read(mapped(even)), Read(x * 2));
}

// The same numbers on every place, side by side.
TEST(ShardMap, NumbersAloneAreEachPlacesOwn) {
  const Tensor x = Tensor::From(Numbers(8), {4, 2}).Shard(Along(Line(2), 0)).Realize();
  const auto program = [](const Tensor&) { return Tensor::Arange(3, kFloat32) * 2; };
  EXPECT_EQ(Read(ShardMap({"d"}, {Placement::Shard(0)}, program, x)), Values({0, 2, 4, 0, 2, 4}));
  EXPECT_EQ(Read(ShardMap({"d"}, {kWhole}, program, x)), Values({0, 2, 4}));
}

TEST(ShardMap, UnevenPartsInACapturedStepAndTheirGradients) {
  const Sharding s = Along(Line(3), 0);
  const auto program = [](const Tensor& a) {
    return AllReduce((a * a).Sum({0}), "d") + AllReduce(a.Max({1}).Sum(), "d");
  };
  Jit step([&](const Tensor& a) { return ShardMap({"d"}, {kWhole}, program, a); });
  for (int i = 0; i < 3; ++i) {
    const Tensor plain = Tensor::From(Numbers(14, i), {7, 2}).To("CPU").Realize();
    const Tensor want = (plain * plain).Sum({0}) + plain.Max({1}).Sum();
    EXPECT_EQ(Read(step.One({plain.To(s).Realize()})), Read(want)) << i;
  }
  EXPECT_EQ(step.captures(), 1);
  const Tensor plain = Tensor::From(Numbers(14), {7, 2}).To("CPU").Realize();
  const Tensor x = plain.To(s).Realize();
  const Tensor loss = ShardMap(
      {"d"}, {kWhole}, [](const Tensor& a) { return AllReduce((a * a * a).Sum(), "d"); }, x);
  EXPECT_EQ(Read(Grad(loss, {x})[0]), Read(plain * plain * 3));
}

// What lies on one place does not go to all places by itself, whatever op it meets.
TEST(ShardMap, TensorsOfOnePlaceAreErrors) {
  const Tensor x = Tensor::From(Numbers(8), {4, 2}).Shard(Along(Line(2), 0)).Realize();
  const Tensor one = Tensor::From({1.f, 0.f}).To("CPU:0").Realize();
  const std::vector<std::function<Tensor(const Tensor&)>> bodies = {
      [&](const Tensor& t) { return t + one; },
      [&](const Tensor& t) { return Where(t > 0, t, one); },
      [&](const Tensor& t) { return t.MatMul(one); },
      [&](const Tensor& t) {
        return Cat({t, one.Reshape({1, 2})});
      },
      [&](const Tensor& t) { return t.Take(one.Cast(kInt32)); },
      [&](const Tensor& t) { return one.Take(t.Cast(kInt32)); },
      [&](const Tensor& t) { return t.Clamp(one, 5); },
      [&](const Tensor& t) {
        return t + Tensor::From({1.f, 2.f});
      },
      [&](const Tensor& t) {
        Tensor u = t + 0;
        u[0] = one;
        return u;
      },
  };
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_THAT(ErrorOf([&] { ShardMap({"d"}, {Placement::Shard(0)}, bodies[i], x); }),
                testing::Not(testing::IsEmpty()));
  }
  const Sharding manual(Line(2), {Placement::Manual()});
  EXPECT_THAT(ErrorOf([&] { Tensor::Rand({4}).Shard(manual); }), HasSubstr("Shard: "));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {Placement::Shard(0)}, [](const Tensor& t) { return t.ShardAt(0); }, x);
              }),
              testing::StartsWith("ShardAt: "));
}

// Errors and call sites are those of the lines inside; a lost assignment is an error.
TEST(ShardMap, TheBodyIsTheUsers) {
  const Tensor x = Tensor::From(Numbers(8), {4, 2}).Shard(Along(Line(2), 0)).Realize();
  const auto error = [&](const std::function<Tensor(const Tensor&)>& body) {
    return ErrorOf([&] { ShardMap({"d"}, {Placement::Shard(0)}, body, x); });
  };
  EXPECT_THAT(error([](const Tensor& t) { return AllGather(t, "d", 5); }),
              testing::StartsWith("AllGather: "));
  EXPECT_THAT(error([](const Tensor& t) { return t + Tensor::Ones({3}); }),
              testing::StartsWith("Add: "));
  EXPECT_THAT(error([](const Tensor& t) {
                Tensor(t).Assign(t * 2);
                return t + 0;
              }),
              HasSubstr("assigns to its argument 0"));
  int line = 0;
  const Tensor y = ShardMap(
      {"d"}, {Placement::Replicate()},
      [&](const Tensor& t) {
        line = __LINE__ + 1;
        return AllReduce(t.Sum({0}), "d");
      },
      x);
  EXPECT_THAT(Explain(y), HasSubstr(absl::StrCat("shard_map_edges_test.cc:", line)));
}

TEST(ShardMap, Mistakes) {
  const Tensor x = Tensor::From(Numbers(6), {6}).Shard(Along(Line(3), 0));
  const Tensor uneven = Tensor::From(Numbers(5), {5}).Shard(Along(Line(3), 0));
  // Halves of 12 rows, of which the places of one half keep 6 and those of the other 2.
  const Tensor rows =
      Tensor::From(Numbers(24), {12, 2}).To(Sharding(Grid(), {Placement::Shard(0), kWhole}));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"tp"}, {Placement::Shard(0)},
                    [](const Tensor& p) {
                      return p.Slice({{0, 8}});
                    },
                    rows);
              }),
              HasSubstr("is not cut into equal parts"));
  const auto same = [](const Tensor& p) { return p; };
  EXPECT_THAT(ErrorOf([&] { ShardMap({"d"}, {kWhole}, same, x); }),
              HasSubstr("may differ, so it cannot be one value on all of them"));
  EXPECT_THAT(ErrorOf([&] { ShardMap({"d"}, {kWhole}, same, uneven); }),
              HasSubstr("have parts of different sizes of axis 0"));
  EXPECT_THAT(ErrorOf([&] { ShardMap({"d"}, {Placement::Shard(1)}, same, uneven.Unsqueeze(1)); }),
              HasSubstr("have parts of different sizes of axis 0"));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {kWhole}, [](const Tensor& p) { return AllReduce(p, "d"); }, uneven);
              }),
              HasSubstr("reduce the axis that differs first"));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {kWhole},
                    [](const Tensor& p) {
                      return Permute(p, "d", {1, 2, 0});
                    },
                    uneven);
              }),
              HasSubstr("give the result a Shard placement of that axis"));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {Placement::Shard(0)},
                    [](const Tensor& p) {
                      return p.Shrink({{0, 2}});
                    },
                    uneven);
              }),
              HasSubstr("past what some place has"));
  // An axis is shown as what each place has of it.
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {Placement::Shard(0)},
                    [](const Tensor& p) { return p + Tensor::Ones({4}); }, uneven);
              }),
              ::testing::AllOf(HasSubstr("[{2|2|1}] and [4]"), ::testing::Not(HasSubstr("@pd"))));
  EXPECT_THAT(ErrorOf([&] { ShardMap({"e"}, {kWhole}, same, x); }),
              HasSubstr("there is no dim 'e' in the mesh CPU:0-2[d=3]"));
  EXPECT_THAT(ErrorOf([&] { ShardMap({"d"}, {kWhole}, same, Tensor::Ones({2}).To("CPU")); }),
              HasSubstr("is on one place"));
  EXPECT_THAT(ErrorOf([&] { AllReduce(x, "d"); }), HasSubstr("is no place's own along mesh dim d"));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {Placement::Shard(0)},
                    [](const Tensor& p) { return AllToAll(p, "d", 0, 0); }, x);
              }),
              HasSubstr("is not 3 equal parts"));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {Placement::Shard(0)}, [](const Tensor& p) { return p.To("CPU"); }, x);
              }),
              HasSubstr("each place's own"));
  EXPECT_THAT(ErrorOf([&] {
                ShardMap(
                    {"d"}, {Placement::Shard(0)},
                    [](const Tensor& p) {
                      p.ToVector<float>();
                      return p;
                    },
                    x);
              }),
              HasSubstr("no one value"));
}

}  // namespace
}  // namespace tessera
