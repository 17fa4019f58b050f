// Per-place programs: what each collective gives, nesting over two mesh dims, borders and adjoints.
#include <cmath>
#include <numeric>

#include "graph/grad.h"
#include "graph/infer_device.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/runtime/shard_map_testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(ShardMap, SeesItsOwnPart) {
  const Tensor x = Tensor::From(Numbers(12), {6, 2}).Shard(Along(Line(3), 0));
  Shape inside;
  const Tensor y = ShardMap(
      {"d"}, {Placement::Shard(0)},
      [&](const Tensor& part) {
        inside = part.shape();
        return part * 2 + 1;
      },
      x);
  EXPECT_EQ(inside, Shape({2, 2}));
  EXPECT_EQ(y.device(), x.device());
  EXPECT_EQ(Read(y), Read(x * 2 + 1));
  // The sum of each place's own part, side by side.
  const Tensor sums = ShardMap(
      {0}, {Placement::Shard(0)}, [](const Tensor& part) { return part.Sum({0}, true); }, x);
  const Values v = Numbers(12);
  EXPECT_EQ(Read(sums), (Values{v[0] + v[2], v[1] + v[3], v[4] + v[6], v[5] + v[7], v[8] + v[10],
                                v[9] + v[11]}));
}

TEST(ShardMap, AllReduceByEveryOp) {
  const Values v = Numbers(12);
  const Tensor x = Tensor::From(v, {4, 3}).Shard(Along(Line(4), 0));
  const auto by = [&](Op op, auto combine) {
    const Tensor y = ShardMap(
        {"d"}, {kWhole}, [op](const Tensor& p) { return AllReduce(p, "d", op); }, x);
    Values expected(v.begin(), v.begin() + 3);
    for (int i = 3; i < 12; ++i) expected[i % 3] = combine(expected[i % 3], v[i]);
    EXPECT_EQ(Read(y), expected);
  };
  by(Op::kAdd, [](float a, float b) { return a + b; });
  by(Op::kMul, [](float a, float b) { return a * b; });
  by(Op::kMax, [](float a, float b) { return std::max(a, b); });
  by(Op::kMin, [](float a, float b) { return std::min(a, b); });
}

TEST(ShardMap, AllGather) {
  const Values v = Numbers(24);
  for (int axis : {0, 1}) {
    const Tensor x = Tensor::From(v, {4, 6}).Shard(Along(Line(2), axis));
    const Tensor y = ShardMap(
        {"d"}, {kWhole}, [axis](const Tensor& p) { return AllGather(p, "d", axis); }, x);
    EXPECT_EQ(Read(y), v);
    // Along the other axis the parts stand in another order.
    const Tensor z = ShardMap(
        {"d"}, {kWhole}, [axis](const Tensor& p) { return AllGather(p, "d", 1 - axis); }, x);
    EXPECT_EQ(Read(z), Read(Cat(Tensor::From(v, {4, 6}).Chunk(2, axis), 1 - axis)));
  }
}

TEST(ShardMap, ReduceScatterIsOneStep) {
  const Values v = Numbers(6 * 6);
  const Tensor x = Tensor::From(v, {6, 6}).Shard(Along(Line(3), 0)).Realize();
  const Tensor y = ShardMap(
      {"d"}, {Placement::Shard(0)}, [](const Tensor& p) { return ReduceScatter(p, "d", 1); }, x);
  EXPECT_THAT(Explain(y), HasSubstr("0 all-reduces, 1 reduce-scatter, 96 B between places"));
  // Columns 2d, 2d+1 of the sum of the three parts of two rows.
  Values expected;
  for (int d = 0; d < 3; ++d) {
    for (int r = 0; r < 2; ++r) {
      for (int c = 2 * d; c < 2 * d + 2; ++c) {
        expected.push_back(v[r * 6 + c] + v[(2 + r) * 6 + c] + v[(4 + r) * 6 + c]);
      }
    }
  }
  EXPECT_EQ(Read(y), expected);
}

TEST(ShardMap, AllToAll) {
  const Values v = Numbers(24);
  const Tensor x = Tensor::From(v, {4, 6}).Shard(Along(Line(2), 0));
  const Tensor y = ShardMap(
      {"d"}, {Placement::Shard(1)}, [](const Tensor& p) { return AllToAll(p, "d", 1, 0); }, x);
  EXPECT_EQ(Read(y), v);  // the same tensor, cut along the other axis
  const Tensor z = ShardMap(
      {"d"}, {Placement::Shard(0)}, [](const Tensor& p) { return AllToAll(p, "d", 0, 0); }, x);
  Values expected;
  for (int row : {0, 2, 1, 3}) expected.insert(expected.end(), &v[row * 6], &v[row * 6] + 6);
  EXPECT_EQ(Read(z), expected);
}

TEST(ShardMap, Permute) {
  const Values v = Numbers(8);
  const Tensor x = Tensor::From(v, {8}).Shard(Along(Line(4), 0));
  const auto moved = [&](const std::vector<int>& sources) {
    return Read(ShardMap(
        {"d"}, {Placement::Shard(0)}, [&](const Tensor& p) { return Permute(p, "d", sources); },
        x));
  };
  const auto expected = [&](const std::vector<int>& sources) {
    Values out;
    for (int s : sources) {
      out.push_back(s < 0 ? 0 : v[2 * s]);
      out.push_back(s < 0 ? 0 : v[2 * s + 1]);
    }
    return out;
  };
  for (const std::vector<int>& sources : std::vector<std::vector<int>>{
           {3, 0, 1, 2}, {-1, 0, 1, 2}, {0, 1, 2, 3}, {2, 2, 2, 2}, {-1, -1, 3, -1}}) {
    EXPECT_EQ(moved(sources), expected(sources));
    EXPECT_REFERENCE(ShardMap(
        {"d"}, {Placement::Shard(0)}, [&](const Tensor& p) { return Permute(p, "d", sources); },
        x));
  }
}

TEST(ShardMap, PlaceIndex) {
  const Tensor x = Tensor::From(Numbers(6), {6}).Shard(Along(Line(3), 0));
  const Tensor y = ShardMap(
      {"d"}, {Placement::Shard(0)},
      [](const Tensor& p) { return p * 0 + PlaceIndex(p, "d").Cast(kFloat32); }, x);
  EXPECT_EQ(Read(y), (Values{0, 0, 1, 1, 2, 2}));
}

// A tensor from outside that is whole on every place may be used inside.
TEST(ShardMap, TensorsFromOutside) {
  const Tensor x = Tensor::From(Numbers(6), {6}).Shard(Along(Line(3), 0));
  const Tensor whole = Tensor::From(Numbers(2, 1), {2}).To(Sharding(Line(3)));
  const Tensor y = ShardMap(
      {"d"}, {Placement::Shard(0)}, [&](const Tensor& p) { return p + whole; }, x);
  EXPECT_EQ(Read(y), Read(x + Cat({whole, whole, whole})));
  EXPECT_THROW(ShardMap(
                   {"d"}, {Placement::Shard(0)},
                   [&](const Tensor& p) {
                     return p + x.Slice({{0, 2}});
                   },
                   x),
               Error);
}

// The layer that is everybody's example: tensor parallel inside, data parallel outside, in either
// order of nesting, and without any of it.
// An inner program reads what the outer one has as its own, on either side of an op.
TEST(ShardMap, InnerProgramsReadOuterValues) {
  const Values v = Numbers(8 * 6);
  const Tensor plain = Tensor::From(v, {8, 6});
  const Tensor x = plain.To(Sharding(Grid(), {Placement::Shard(0), Placement::Shard(1)}));
  const Tensor rows = plain.Sum({1}, true).To(Sharding(Grid(), {Placement::Shard(0), kWhole}));
  const auto both = [&](bool first) {
    return ShardMap(
        {"dp"}, {Placement::Shard(0)},
        [&](const Tensor& a, const Tensor& outer) {
          const auto inner = [&](const Tensor& b) { return first ? outer * b : b * outer; };
          return ShardMap({"tp"}, {Placement::Shard(1)}, inner, a);
        },
        x, rows);
  };
  const Values want = (plain * plain.Sum({1}, true)).ToVector<float>();
  EXPECT_EQ(both(true).ToVector<float>(), want);
  EXPECT_EQ(both(false).ToVector<float>(), want);
}

TEST(ShardMap, NestsInBothOrders) {
  const Values xv = Numbers(8 * 6), wv = Numbers(6 * 4, 1), uv = Numbers(4 * 6, 2);
  const Tensor plain = Tensor::From(xv, {8, 6})
                           .MatMul(Tensor::From(wv, {6, 4}))
                           .Relu()
                           .MatMul(Tensor::From(uv, {4, 6}));
  const Mesh mesh = Grid();
  const Tensor x = Tensor::From(xv, {8, 6}).To(Sharding(mesh, {Placement::Shard(0), kWhole}));
  const Tensor w = Tensor::From(wv, {6, 4}).To(Sharding(mesh, {kWhole, Placement::Shard(1)}));
  const Tensor u = Tensor::From(uv, {4, 6}).To(Sharding(mesh, {kWhole, Placement::Shard(0)}));
  for (Tensor t : {x, w, u}) t.Realize();
  const auto layer = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return AllReduce(a.MatMul(b).Relu().MatMul(c), "tp");
  };
  const Tensor data_outside = ShardMap(
      {"dp"}, {Placement::Shard(0)},
      [&](const Tensor& a, const Tensor& b, const Tensor& c) {
        EXPECT_EQ(a.shape(), Shape({4, 6}));
        EXPECT_EQ(b.shape(), Shape({6, 4}));
        return ShardMap({"tp"}, {kWhole}, layer, a, b, c);
      },
      x, w, u);
  const Tensor tensor_outside = ShardMap(
      {"tp"}, {kWhole},
      [&](const Tensor& a, const Tensor& b, const Tensor& c) {
        EXPECT_EQ(a.shape(), Shape({8, 6}));
        EXPECT_EQ(b.shape(), Shape({6, 2}));
        return ShardMap(
            {"dp"}, {Placement::Shard(0)},
            [&](const Tensor& d, const Tensor& e, const Tensor& f) { return layer(d, e, f); }, a, b,
            c);
      },
      x, w, u);
  const Tensor at_once = ShardMap({"dp", "tp"}, {Placement::Shard(0), kWhole}, layer, x, w, u);
  // Half in the program, half by propagation.
  const Tensor half = ShardMap(
      {"dp"}, {Placement::Shard(0)},
      [](const Tensor& a, const Tensor& b, const Tensor& c) {
        return a.MatMul(b).Relu().MatMul(c);
      },
      x, w, u);
  for (const Tensor& y : {data_outside, tensor_outside, at_once, half}) {
    EXPECT_THAT(Explain(y), HasSubstr("0 exchanges, 1 all-reduce, "));
    EXPECT_EQ(Read(y), Read(plain));
    EXPECT_REFERENCE(y);
  }
}

// A tree of devices is a mesh with a dim for each depth.
TEST(ShardMap, OverATree) {
  const Mesh tree = Mesh::OfTree({{"CPU:1", "CPU:3"}, {"CPU:2", "CPU:4"}}, {"node", "chip"});
  const Values v = Numbers(8);
  const Tensor x =
      Tensor::From(v, {8}).To(Sharding(tree, {Placement::Shard(0), Placement::Shard(0)}));
  const Tensor y = ShardMap(
      {"node"}, {kWhole},
      [](const Tensor& part) {
        const Tensor sum = ShardMap(
            {"chip"}, {kWhole}, [](const Tensor& p) { return AllReduce(p.Sum(), "chip"); }, part);
        return AllReduce(sum, "node", Op::kMax);
      },
      x);
  const float first = v[0] + v[1] + v[2] + v[3], second = v[4] + v[5] + v[6] + v[7];
  EXPECT_EQ(y.Item(), std::max(first, second));
  EXPECT_REFERENCE(y);
}

TEST(ShardMap, InACapturedStep) {
  const Mesh mesh = Line(3);
  Jit step([](const Tensor& x) {
    return ShardMap(
        {"d"}, {kWhole}, [](const Tensor& p) { return AllReduce(p.Square().Sum(), "d"); }, x);
  });
  for (int seed : {0, 1, 2}) {
    const Values v = Numbers(9, seed);
    float sum = 0;
    for (float e : v) sum += e * e;
    EXPECT_EQ(step.One({Tensor::From(v).Shard(Along(mesh, 0))}).Item(), sum);
  }
  EXPECT_EQ(step.captures(), 1);
}

// ---- adjoints: |<F x, y> - <x, F* y>| for each collective and border

double Dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToVector<double>(), y = b.ToVector<double>();
  EXPECT_EQ(x.size(), y.size());
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}
double Length(const Tensor& a) { return std::sqrt(Dot(a, a)); }

void ExpectAdjoint(const std::function<Tensor(const Tensor&)>& linear, const Tensor& x,
                   int seed = 5) {
  Tensor in = x;
  in.Realize();
  const Tensor out = linear(in);
  const Tensor y = Tensor::From(Numbers(out.elements(), seed), Dims(out.shape().ToExtents()));
  const Tensor back = Grad((out * y.To(out.device())).Sum(), {&in, 1})[0];
  const double forward = Dot(out, y), backward = Dot(in, back);
  EXPECT_LE(std::fabs(forward - backward),
            1e-5 * std::max(Length(out) * Length(y), Length(in) * Length(back)));
  EXPECT_GT(Length(back), 0);
}

TEST(ShardMap, AdjointsOfCollectives) {
  const Mesh mesh = Line(3);
  const auto inside = [&](Placement leaves, std::function<Tensor(const Tensor&)> program) {
    return [=](const Tensor& x) {
      return ShardMap(
          {"d"}, std::vector<Placement>{leaves}, [&](const Tensor& p) { return program(p); }, x);
    };
  };
  const Tensor cut = Tensor::From(Numbers(36), {6, 6}).Shard(Along(mesh, 0));
  const Tensor whole = Tensor::From(Numbers(36), {6, 6}).To(Sharding(mesh));
  for (const Tensor& x : {cut, whole}) {
    ExpectAdjoint(inside(Placement::Shard(0), [](const Tensor& p) { return p * 3; }), x);
    ExpectAdjoint(inside(kWhole, [](const Tensor& p) { return AllReduce(p, "d"); }), x);
    ExpectAdjoint(inside(Placement::Shard(0), [](const Tensor& p) { return AllReduce(p, "d"); }),
                  x);
    ExpectAdjoint(inside(kWhole, [](const Tensor& p) { return AllGather(p, "d", 1); }), x);
    ExpectAdjoint(inside(Placement::Shard(1), [](const Tensor& p) { return AllGather(p, "d"); }),
                  x);
    ExpectAdjoint(
        inside(Placement::Shard(0), [](const Tensor& p) { return ReduceScatter(p, "d", 1); }), x);
    ExpectAdjoint(
        inside(Placement::Shard(1), [](const Tensor& p) { return AllToAll(p, "d", 1, 0); }), x);
    ExpectAdjoint(inside(Placement::Shard(0),
                         [](const Tensor& p) {
                           return Permute(p, "d", {2, 0, 1});
                         }),
                  x);
    ExpectAdjoint(inside(Placement::Shard(0),
                         [](const Tensor& p) {
                           return Permute(p, "d", {1, 1, -1});
                         }),
                  x);
    ExpectAdjoint(inside(Placement::Shard(0),
                         [](const Tensor& p) { return p * PlaceIndex(p, "d").Cast(kFloat32) + p; }),
                  x);
  }
  ExpectAdjoint(inside(kWhole, [](const Tensor& p) { return p * 2; }), whole);
}

TEST(ShardMap, GradientsAreThoseOfThePlainProgram) {
  const Values xv = Numbers(8 * 6), wv = Numbers(6 * 4, 1);
  Tensor px = Tensor::From(xv, {8, 6}), pw = Tensor::From(wv, {6, 4});
  const std::vector<Tensor> plain = Grad(px.MatMul(pw).Square().Sum(), std::vector{px, pw});
  const Mesh mesh = Grid();
  const Tensor x = Tensor::From(xv, {8, 6}).To(Sharding(mesh, {Placement::Shard(0), kWhole}));
  const Tensor w = Tensor::From(wv, {6, 4}).To(Sharding(mesh, {kWhole, Placement::Shard(1)}));
  const Tensor loss = ShardMap(
      {"dp", "tp"}, {kWhole, kWhole},
      [](const Tensor& a, const Tensor& b) {
        return AllReduce(AllReduce(a.MatMul(b).Square().Sum(), "dp"), "tp");
      },
      x, w);
  const std::vector<Tensor> got = Grad(loss, std::vector{x, w});
  EXPECT_EQ(Read(got[0]), Read(plain[0]));
  EXPECT_EQ(Read(got[1]), Read(plain[1]));
}

// Each element counts once, whichever of the places that hold it is read or was given.
TEST(ShardMap, GradientsThroughReplicas) {
  const Tensor z = Tensor::From({1.f, 2.f, 3.f}).To(Sharding(Line(2))).Realize();
  const auto grad = [](const Tensor& loss, const Tensor& p) { return Read(Grad(loss, {p})[0]); };
  EXPECT_EQ(grad((z.ShardAt(1) * 3).Sum(), z), Values({3, 3, 3}));
  const Tensor both = (z.ShardAt(0) * 2).Sum() + (z.ShardAt(1) * 3).Sum().To(z.ShardAt(0).device());
  EXPECT_EQ(grad(both, z), Values({5, 5, 5}));
  const Tensor w = Tensor::From({0.f, 1.f, 2.f}).To("CPU:0").Realize();
  const Tensor f = Tensor::FromShards({w, w.To("CPU:1")}, Sharding(Line(2)));
  EXPECT_EQ(grad((f * f).Sum(), w), Values({0, 2, 4}));
  // Over a grid, cut along one dim and whole along the other.
  const Sharding half(Grid(), {Placement::Replicate(), Placement::Shard(0)});
  const Tensor v = Tensor::From(Numbers(4), {4}).Shard(half).Realize();
  for (int i = 0; i < 4; ++i) {
    const Values expected = i % 2 == 0 ? Values({7, 7, 0, 0}) : Values({0, 0, 7, 7});
    const Tensor got = Grad((v.ShardAt(i) * 7).Sum(), {v})[0];
    EXPECT_EQ(Read(got), expected) << i;
    for (int r = 0; r < 4; ++r) {  // every replica says the same
      EXPECT_EQ(Read(got.ShardAt(r)),
                Values(expected.begin() + r % 2 * 2, expected.begin() + r % 2 * 2 + 2));
    }
  }
}

}  // namespace
}  // namespace tessera
