// Assignment through views of sharded tensors whose elements lie on other places, and through the
// part of one place: the values of a plain tensor, bit for bit.
#include <cmath>
#include <functional>
#include <limits>

#include "graph/box.h"
#include "graph/shard_map.h"
#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Zeros of both signs, infinities and NaN among numbers.
Tensor Odd(const std::vector<int64_t>& shape, float scale = 1) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {-0.0f, 0.0f, inf, -inf, std::nanf(""), 1e-42f};
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) {
    v[i] = i % 3 == 0 ? special[i / 3 % 6] : scale * static_cast<float>(i);
  }
  return Tensor::From(v, shape);
}

std::vector<uint32_t> Bits(const Tensor& t) { return t.Bitcast(kUInt32).ToVector<uint32_t>(); }

using View = std::function<Tensor(const Tensor&)>;

// Assigns through the view of a sharded and of a plain tensor.
void ExpectAssigned(const Sharding& s, const std::vector<int64_t>& shape, const View& view,
                    bool realized) {
  Tensor plain = Odd(shape).To("CPU"), x = Odd(shape).To(s);
  if (realized) x.Realize();
  const Tensor before = x * 2;
  Tensor to = view(plain);
  const Shape extents = to.shape();
  const auto value = [&] {
    std::vector<int64_t> dims;
    for (const Extent& e : extents) dims.push_back(e.value());
    return Odd(dims, -100);
  };
  to.Assign(value().To("CPU"));
  Tensor part = view(x);
  // From everywhere, and from where the view has its own.
  part.Assign(value().To(realized ? Device(Sharding(s.mesh())) : part.device()));
  EXPECT_EQ(Bits(x), Bits(plain)) << s.ToString();
  EXPECT_EQ(Bits(part), Bits(to)) << s.ToString();
  EXPECT_EQ(x.device(), Device(s));
  EXPECT_EQ(Bits(before), Bits(Odd(shape) * 2)) << "what was read before";
  EXPECT_REFERENCE(x, part);
}

TEST(ShardedAssign, ThroughFlipsAndSteps) {
  const std::vector<View> views = {
      [](const Tensor& t) { return t.Flip(0); },
      [](const Tensor& t) {
        return t.Flip({0, 1});
      },
      [](const Tensor& t) {
        return t.Slice({{0, 7, 2}});
      },
      [](const Tensor& t) {
        return t.Slice({{1, 7, 3}, {3, 0, -2}});
      },
      [](const Tensor& t) {
        return t.Slice({{6, 1, -1}});
      },
      [](const Tensor& t) {
        return t.Slice({{1, 6}}).Flip(0).T();
      },
      [](const Tensor& t) {
        return t.T().Flip({0, 1}).Slice({{1, 3}, {2, 6}});
      },
      [](const Tensor& t) { return t.Flip(0).Select(0, 2); },
      [](const Tensor& t) {
        return t.Flip(1).Unsqueeze(0).Slice({{}, {0, 7, 5}});
      },
      [](const Tensor& t) { return t.Window(0, {2}, {3}); },
      [](const Tensor& t) {
        return t.Window({0, 1}, {2, 2}, {4, 2}, {2, 1});
      },
      [](const Tensor& t) {
        return t.Slice({{3, 3}}).Flip(0);
      },
      [](const Tensor& t) { return t.Flatten(); },
      [](const Tensor& t) {
        return t.Flatten().Slice({{3, 25, 2}}).Reshape({1, 11});
      },
      [](const Tensor& t) {
        return t.T().Reshape({2, 14}).Slice({{1, 2}});
      },
  };
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2, "a"}, {2, "b"}});
  const Sharding all[] = {Line(2),
                          Line(3, 1),
                          Line(9),  // some have nothing
                          Line(3, 0, Layout::Sizes({1, 0, 6})),
                          Line(2, std::nullopt),
                          Sharding(grid, {Placement::Shard(0), Placement::Shard(1)}),
                          Sharding(grid, {Placement::Shard(0), Placement::Shard(0)}),
                          Sharding(grid, {Placement::Replicate(), Placement::Shard(1)})};
  int tries = 0;
  for (const Sharding& s : all) {
    for (size_t i = 0; i < views.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectAssigned(s, {7, 4}, views[i], ++tries % 2 == 0);
    }
  }
}

// Layouts that cut alike are compared by their cuts, and stay in the form that was asked for.
TEST(ShardedAssign, FormsOfLayoutsStay) {
  for (const Layout& layout : {Layout::Ceil(), Layout::Sizes({3, 3, 3, 1})}) {
    const Sharding s = Line(4, 0, layout);
    for (bool realized : {false, true}) {
      Tensor x = Count({10, 4}).Shard(s);
      if (realized) x.Realize();
      x += 1;
      x *= Tensor::Arange(4, kFloat32);
      EXPECT_EQ(x.device(), Device(s));
      x.ShardAt(1) += 1;
      x.Slice({{2, 8}}) += 1;
      EXPECT_EQ(x.device(), Device(s));
      EXPECT_REFERENCE(x);
      EXPECT_EQ(x.Realize().device(), Device(s));
    }
  }
}

TEST(ShardedAssign, OfEveryWidth) {
  for (DType t : {kBool, kInt8, kUInt16, kFloat16, kInt32, kFloat64}) {
    Tensor x = Count({7, 4}, t).Shard(Line(3)), plain = Count({7, 4}, t).To("CPU");
    const Tensor value = Count({3, 4}, t) == Count({3, 4}, t);
    x.Slice({{1, 7, 2}}).Assign(value.Cast(t).To(Line(3)));
    plain.Slice({{1, 7, 2}}).Assign(value.Cast(t));
    EXPECT_EQ(x.Cast(kFloat64).ToVector<double>(), plain.Cast(kFloat64).ToVector<double>());
  }
}

TEST(ShardedAssign, ThePartOfAPlace) {
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2, "a"}, {2, "b"}});
  for (const Sharding& s :
       {Line(3), Line(2, 1), Line(2, std::nullopt), Line(3, 0, Layout::Sizes({2, 0, 3})),
        Sharding(grid, {Placement::Replicate(), Placement::Shard(1)}),
        Sharding(grid, {Placement::Shard(0), Placement::Shard(1)})}) {
    for (int i = 0; i < s.size(); ++i) {
      Tensor x = Count({5, 4}).To(s), plain = Count({5, 4}).To("CPU");
      x.Realize();
      const Tensor before = x + 0;
      const Box box = BoxesOf(x.shape(), s).At(i);
      Tensor part = x.ShardAt(i);
      part.Assign((part * -1).Realize());
      const auto in_plain = [&] {
        return plain.Slice({{box[0].begin, box[0].end}, {box[1].begin, box[1].end}});
      };
      in_plain().Assign(in_plain() * -1);
      EXPECT_EQ(x.ToVector<float>(), plain.ToVector<float>()) << s.ToString() << " " << i;
      EXPECT_EQ(part.ToVector<float>(), in_plain().ToVector<float>());
      EXPECT_EQ(part.device(), Device(s[i]));
      EXPECT_EQ(before.ToVector<float>(), Count({5, 4}).ToVector<float>());
      for (int j = 0; j < s.size(); ++j) {  // every replica has it
        const Box own = BoxesOf(x.shape(), s).At(j);
        EXPECT_EQ(x.ShardAt(j).ToVector<float>(),
                  plain.Slice({{own[0].begin, own[0].end}, {own[1].begin, own[1].end}})
                      .ToVector<float>());
      }
      EXPECT_EQ(x.device(), Device(s));
      EXPECT_REFERENCE(x, part);
    }
  }
}

TEST(ShardedAssign, NodesOfAPartDoNotGrowWithTheMesh) {
  std::vector<size_t> nodes;
  for (int places : {2, 4, 8}) {
    Tensor x = Tensor::Empty({16, 4}, kFloat32, Line(places));
    x.ShardAt(1).Assign(1);
    nodes.push_back(TopoSort({&x.uop(), 1}).size());
  }
  EXPECT_EQ(nodes[1], nodes[0]);
  EXPECT_EQ(nodes[2], nodes[0]);
}

TEST(ShardedAssign, SlicesOfAPartAndPartsOfASlice) {
  Tensor x = Count({6, 4}).Shard(Line(2)), plain = Count({6, 4}).To("CPU");
  x.ShardAt(1).Slice({{1, 3}, {0, 4, 3}}).Assign(7);
  plain.Slice({{4, 6}, {0, 4, 3}}).Assign(7);
  EXPECT_EQ(x.ToVector<float>(), plain.ToVector<float>());
  x.Slice({{2, 6}}).ShardAt(0).Assign(8);  // has row 2 alone
  plain.Slice({{2, 3}}).Assign(8);
  EXPECT_EQ(x.ToVector<float>(), plain.ToVector<float>());
  x.Flip(0).ShardAt(0).Assign(9);  // the last three rows
  plain.Slice({{3, 6}}).Assign(9);
  EXPECT_EQ(x.ToVector<float>(), plain.ToVector<float>());
  EXPECT_REFERENCE(x);
}

TEST(ShardedAssign, PartsPutTogetherStayTheirOwn) {
  const Sharding s = Line(2);
  Tensor a = Count({3, 2}).To("CPU:0"), b = (Count({3, 2}) + 50).To("CPU:1");
  Tensor x = Tensor::FromShards({a, b}, s);
  Tensor part = x.ShardAt(1);
  EXPECT_EQ(part.ToVector<float>(), b.ToVector<float>());
  part.Assign(1);
  EXPECT_EQ(x.Slice({{3, 6}}).ToVector<float>(), std::vector<float>(6, 1));
  EXPECT_EQ(x.Slice({{0, 3}}).ToVector<float>(), a.ToVector<float>());
  EXPECT_EQ(b.ToVector<float>(), (Count({3, 2}) + 50).ToVector<float>());
}

TEST(ShardedAssign, InACapturedStep) {
  const Sharding s = Line(3);
  Tensor x = Tensor::Zeros({7, 2}).To(s).Realize();
  Tensor plain = Tensor::Zeros({7, 2}).To("CPU").Realize();
  Jit step([&](const Tensor& t) {
    x.Slice({{6, 0, -2}}).Assign(x.Slice({{0, 3}}) + t);
    x.ShardAt(1).Assign(x.ShardAt(1) * 2);
    return x.Sum({0});
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor t = (Count({3, 2}) + i);
    const Tensor got = step.One({t.To("CPU").To(Sharding(s.mesh())).Realize()});
    plain.Slice({{6, 0, -2}}).Assign(plain.Slice({{0, 3}}) + t);
    plain.Slice({{3, 5}}).Assign(plain.Slice({{3, 5}}) * 2);
    EXPECT_EQ(got.ToVector<float>(), plain.Sum({0}).ToVector<float>()) << i;
    EXPECT_EQ(x.ToVector<float>(), plain.ToVector<float>()) << i;
  }
  EXPECT_EQ(step.captures(), 1);
}

// What needs no bytes moved to be made of another tensor is a tensor of its own once realised.
TEST(ShardedAssign, RealisedTensorsShareNothing) {
  const auto alone = [](const Placement& a, const Placement& b) {
    return Sharding(Mesh({"CPU:0"}, {{1, "a"}, {1, "b"}}), {a, b});
  };
  const Placement whole = Placement::Replicate(), cut = Placement::Shard(0);
  const auto same = [](const Tensor& x) {
    return ShardMap(
        {0}, {Placement::Shard(0)}, [](const Tensor& t) { return t; }, x);
  };
  const auto reshaped = [](const Tensor& x) {
    return ShardMap(
        {0}, {Placement::Shard(0)},
        [](const Tensor& t) {
          return t.Reshape({2, 3, 1});
        },
        x);
  };
  struct Case {
    Sharding from;
    std::function<Tensor(const Tensor&)> make;
  };
  const std::vector<Case> cases = {
      {alone(cut, whole), [&](const Tensor& x) { return x.To(alone(whole, whole)); }},
      {alone(whole, whole), [&](const Tensor& x) { return x.To(alone(cut, Placement::Shard(1))); }},
      {Line(2), same},
      {Line(2), reshaped},
      {Line(2),
       [](const Tensor& x) {
         return x[Slice{0, 3}].MatrixPower(1);
       }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const bool before : {false, true}) {  // whether the argument is written before it is read
      SCOPED_TRACE(absl::StrCat(i, before ? " written" : ""));
      Tensor x = Count({4, 3}).To(cases[i].from).Realize();
      if (before) x.Assign(x * 3);
      Tensor y = cases[i].make(x);
      const std::vector<float> expected = y.ToVector<float>(), held = x.ToVector<float>();
      std::vector<Tensor> both = {y, x};
      Tensor::Realize(absl::MakeSpan(both));
      y = both[0];
      y.Assign(-1);
      y.Realize();
      EXPECT_EQ(x.ToVector<float>(), held);
      Tensor z = cases[i].make(x).Realize();
      x.Assign(-2);
      x.Realize();
      EXPECT_EQ(z.ToVector<float>(), expected);
    }
  }
  // Two results of one value, and those of a captured step.
  const Tensor x = Count({4, 3}).To(Line(2)).Realize();
  std::vector<Tensor> twins = {x + 1, same(x + 1)};
  Tensor::Realize(absl::MakeSpan(twins));
  twins[0].Assign(0).Realize();
  EXPECT_EQ(twins[1].ToVector<float>(), (Count({4, 3}) + 1).ToVector<float>());
  Jit step([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{same(in[0])}; });
  for (int i = 0; i < 3; ++i) {
    Tensor in = (Count({4, 3}) + i).To(Line(2)).Realize();
    Tensor out = step({in})[0];
    out.Assign(-1).Realize();
    EXPECT_EQ(in.ToVector<float>(), (Count({4, 3}) + i).ToVector<float>()) << i;
  }
}

// Each version knows its buffer: a long chain takes time that grows with its length alone.
TEST(ShardedAssign, ManyVersions) {
  Tensor x = Tensor::Zeros({4}).Contiguous().Realize();
  for (int i = 0; i < 3000; ++i) x.Assign(x + 1);
  EXPECT_EQ(x.ToVector<float>(), std::vector<float>(4, 3000));
}

TEST(ShardedAssign, ARefusedOneChangesNothing) {
  Tensor x = Count({6, 2}).Shard(Line(2)) + 1;  // not realised
  const auto expect_refused = [&](const std::function<void()>& assign, const std::string& part) {
    try {
      assign();
      ADD_FAILURE() << "was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("Assign: "));
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
    EXPECT_EQ(x.ToVector<float>(), (Count({6, 2}) + 1).ToVector<float>());
  };
  expect_refused([&] { x.Assign(Count({6, 2}).To("CPU:5")); }, ".To(...)");
  expect_refused([&] { x.Flip(0).Assign(Count({6, 2}).To("CPU:5")); }, ".To(");
  expect_refused([&] { x.Slice({{0, 6, 2}}).Assign(Count({3, 2}).To("CPU:5")); }, ".To(");
  expect_refused([&] { x.Window(0, {2}, {1}).Assign(1); }, "repeats elements");
}

}  // namespace
}  // namespace tessera
