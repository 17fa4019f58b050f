// Extents that depend on variables along sharded axes: laid out by their bounds, compiled once, and
// equal to the same of that extent on one place.
#include "graph/box.h"
#include "graph/flags.h"
#include "graph/grad.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/runtime/symbolic_rows.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Fn = std::function<Tensor(const Tensor&)>;

// Of [n, 4], n from 1 to 7.
const std::vector<std::pair<std::string, Fn>>& Functions() {
  static const std::vector<std::pair<std::string, Fn>> all = {
      {"Add", [](const Tensor& x) { return x + 1; }},
      {"Square", [](const Tensor& x) { return x * x - x; }},
      {"Positions",
       [](const Tensor& x) { return x + Tensor::Arange(x.shape()[0], kFloat32).Unsqueeze(1); }},
      {"Where", [](const Tensor& x) { return Where(x > 0, x, x.Sum({1}, true)); }},
      {"Sum", [](const Tensor& x) { return x.Sum(); }},
      {"SumRows", [](const Tensor& x) { return x.Sum({0}); }},
      {"SumColumns", [](const Tensor& x) { return x.Sum({1}); }},
      {"Max", [](const Tensor& x) { return x.Max({0}); }},
      {"Min",
       [](const Tensor& x) {
         return x.Min({0, 1});
       }},
      {"Mean", [](const Tensor& x) { return x.Mean({0}); }},
      {"ArgMax", [](const Tensor& x) { return x.ArgMax(0); }},
      {"Softmax", [](const Tensor& x) { return x.Softmax(0); }},
      {"SoftmaxColumns", [](const Tensor& x) { return x.Softmax(1); }},
      {"LayerNorm", [](const Tensor& x) { return x.LayerNorm(); }},
      {"MatMul",
       [](const Tensor& x) {
         return x.MatMul(Beside(x, Count({4, 3})));
       }},
      {"MatMulOver", [](const Tensor& x) { return x.T().MatMul(x); }},
      {"Scores", [](const Tensor& x) { return x.MatMul(x.T()); }},
      {"Attention",
       [](const Tensor& x) {
         return Beside(x, Count({2, 4})).MatMul(x.T()).Softmax().MatMul(x);
       }},
      {"Transpose", [](const Tensor& x) { return x.T() * 2; }},
      {"Split",
       [](const Tensor& x) {
         return x.Reshape({x.shape()[0], 2, 2}).Sum({1});
       }},
      {"Merge", [](const Tensor& x) { return x.Reshape({x.shape()[0] * Extent(4)}) + 1; }},
      {"Unsqueeze", [](const Tensor& x) { return x.Unsqueeze(0).Unsqueeze(2); }},
      {"Expand",
       [](const Tensor& x) {
         return x.Unsqueeze(1).Expand({x.shape()[0], 3, 4}).Sum({0});
       }},
      {"CatColumns",
       [](const Tensor& x) {
         return Cat({x, x * 2}, 1);
       }},
      {"CatRows",
       [](const Tensor& x) {
         return Cat({x, x.SliceAxis(0, {0, 1})}, 0);
       }},
      {"CatBeforeRows",
       [](const Tensor& x) {
         return Cat({Beside(x, Count({3, 4})), Tensor::Ones({1, 4}), x}, 0) * 2;
       }},
      {"CatAfterPadding",
       [](const Tensor& x) {
         return Cat({x.Pad({{0, Extent(kMost) - x.shape()[0]}, {0, 0}}), x}, 0).Sum({0});
       }},
      {"CatThree",
       [](const Tensor& x) {
         return Cat({x, x * 2, Tensor::Ones({2, 4}), x + 1}, 0) - 3;
       }},
      {"FlipBoth",
       [](const Tensor& x) {
         return x.Flip({0, 1}) * 2;
       }},
      {"LastRow",
       [](const Tensor& x) {
         return x.Shrink({{x.shape()[0] - 1, x.shape()[0]}, {1, 3}}) * 2;
       }},
      {"PadBeforeRest",
       [](const Tensor& x) {
         return x.Pad({{Extent(kMost) - x.shape()[0], 1}, {0, 2}}) + 1;
       }},
      {"PadBeforeAsMuch",
       [](const Tensor& x) {
         return x.Pad({{x.shape()[0], 0}, {0, 0}}).Sum({1});
       }},
      {"FlipColumns", [](const Tensor& x) { return x.Flip(1); }},
      {"FlipRows", [](const Tensor& x) { return x.Flip(0); }},
      {"ShrinkColumns",
       [](const Tensor& x) {
         return x.Shrink({{0, x.shape()[0]}, {1, 3}}) + 1;
       }},
      {"ShrinkRows",
       [](const Tensor& x) {
         return x.Shrink({{1, x.shape()[0]}, {0, 4}}).Sum({0});
       }},
      {"PadAfter",
       [](const Tensor& x) {
         return x.Pad({{0, 2}, {0, 1}}) + 1;
       }},
      {"PadBefore",
       [](const Tensor& x) {
         return x.Pad({{3, 1}, {0, 0}}).CumSum(1);
       }},
      {"PadToBound",
       [](const Tensor& x) {
         return x.Pad({{0, Extent(kMost) - x.shape()[0]}, {0, 0}}).Max({1});
       }},
      {"WindowOfPadding",
       [](const Tensor& x) {
         return x.Pad({{0, Extent(kMost) - x.shape()[0]}, {0, 0}}).Window(0, {3}).Max({2});
       }},
      {"WindowOfRows", [](const Tensor& x) { return x.Window(0, {1}).Max({2}) + 1; }},
      {"WindowAfterPadding",
       [](const Tensor& x) {
         return x.Pad({{2, 3}, {0, 1}}).Window({0, 1}, {4, 2}, {2, 3}, {1, 2}).Max({2, 3});
       }},
      {"MaxPool",
       [](const Tensor& x) {
         return x.T().Unsqueeze(0).MaxPool({.size = {3}, .stride = {2}, .padding = {1}});
       }},
      {"TakeFrom",
       [](const Tensor& x) {
         return x.Take(Beside(x, Tensor::From({0, 1, 6, 3, -1})));
       }},
      {"TakeBy",
       [](const Tensor& x) {
         return Beside(x, Count({9, 2})).Take(x.Sum({1}).Cast(kInt32) % 9);
       }},
      {"IndexAdd",
       [](const Tensor& x) {
         return Tensor::Zeros({5, 4}).IndexAdd(0, Tensor::Arange(x.shape()[0]) % 3, x);
       }},
      {"IndexAddInto",
       [](const Tensor& x) {
         return x.IndexAdd(0, Beside(x, Tensor::From({0, 0})), Tensor::Ones({2, 4}));
       }},
      {"CumSum", [](const Tensor& x) { return x.CumSum(0); }},
      {"Sort", [](const Tensor& x) { return x.Sort(0).values; }},
      {"Conv",
       [](const Tensor& x) {
         return x.Unsqueeze(1).Conv1d(Tensor::Arange(6, kFloat32).Reshape({2, 1, 3}),
                                      {.padding = {1}});
       }},
      {"ToOne", [](const Tensor& x) { return (x + 1).To("CPU:1"); }},
      {"ToColumns", [](const Tensor& x) { return x.To(Line(3, 1)) + 1; }},
      {"ToAll", [](const Tensor& x) { return (x * 2).To(Line(2, std::nullopt)).Sum({0}); }},
      {"ToOthers", [](const Tensor& x) { return (x * 2).To(Line(4, 0, Layout::Ceil())) - 1; }},
      {"Contiguous", [](const Tensor& x) { return (x * 2).Contiguous().T() + 1; }},
      {"Half", [](const Tensor& x) { return (x.Cast(kFloat16) * 2).Sum({0}); }},
      {"Whole", [](const Tensor& x) { return x.Cast(kInt32).Prod({0}); }},
  };
  return all;
}

std::vector<Sharding> Shardings() {
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2, "a"}, {2, "b"}});
  const auto S = [](int axis, Layout l = {}) { return Placement::Shard(axis, std::move(l)); };
  return {Line(1),
          Line(2),
          Line(3),
          Line(5, 0, Layout::Ceil()),
          Line(3, 0, Layout::Aligned(2)),
          Line(3, 0, Layout::Sizes({0, 5, 2})),
          Line(8),
          Sharding(grid, {S(0), S(0)}),
          Sharding(grid, {S(1), S(0)}),
          Sharding(grid, {Placement::Replicate(), S(0)})};
}

TEST(ShardedSymbolic, EveryValueOfTheExtentSlow) {
  const Tensor data = Rows();
  const Variable n("sharded_n", 1, kMost);
  for (const Sharding& s : Shardings()) {
    const Tensor spread = data.To(s).Realize();
    for (const auto& [name, fn] : Functions()) {
      const std::string what = name + " on " + s.ToString();
      Tensor symbolic;
      try {
        symbolic = fn(spread.SliceAxis(0, {0, n}));
      } catch (const Error& e) {
        ADD_FAILURE() << what << ": " << e.what();
        continue;
      }
      int64_t plans = 0;
      for (int64_t value : {4, 1, 7, 5, 2}) {
        const Tensor want = fn(data.SliceAxis(0, {0, value})).To("CPU");
        want.ToVector<double>();
        const int64_t made = GetRuntimeStats().plans_made;
        const Tensor got = Realize({symbolic}, {{"sharded_n", value}})[0];
        plans += GetRuntimeStats().plans_made - made;
        ExpectNear(got, want, what + ", n = " + std::to_string(value));
      }
      EXPECT_LE(plans, 1) << what;
    }
  }
}

TEST(ShardedSymbolic, Gradients) {
  const Tensor data = Rows();
  const Variable n("graded_n", 1, kMost);
  const std::vector<std::string> smooth = {
      "Square",        "Sum",      "Softmax",       "MatMulOver",
      "Attention",     "Merge",    "Expand",        "CatRows",
      "CatBeforeRows", "FlipRows", "Max",           "PadToBound",
      "ToColumns",     "Conv",     "MaxPool",       "WindowAfterPadding",
      "CatThree",      "LastRow",  "PadBeforeRest", "CatAfterPadding",
      "FlipBoth"};
  for (const Sharding& s : {Line(1), Line(3), Line(3, 0, Layout::Sizes({0, 5, 2}))}) {
    const Tensor spread = data.To(s).Realize();
    for (const auto& [name, fn] : Functions()) {
      if (std::find(smooth.begin(), smooth.end(), name) == smooth.end()) continue;
      const auto gradient = [fn = fn](const Tensor& x, const Extent& rows) {
        return Grad(fn(x.SliceAxis(0, {0, rows})).Square().Sum(), {x})[0];
      };
      const Tensor symbolic = gradient(spread, n);
      EXPECT_EQ(symbolic.device(), spread.device()) << name;
      for (int64_t value : {1, 4, 7}) {
        ExpectNear(Realize({symbolic}, {{"graded_n", value}})[0], gradient(data, value),
                   name + " on " + s.ToString() + ", n = " + std::to_string(value));
      }
    }
  }
}

// Of bounds whose order only their values show, on one place as on several.
TEST(ShardedSymbolic, GradientsOfSlicesThatMayBeEmpty) {
  const Variable n("sliced_n", 0, kMost), at("sliced_at", 0, 4);
  const auto gradient = [](const Tensor& x, const Extent& rows, const Extent& begin) {
    const Tensor part = x.SliceAxis(0, {0, rows});
    const Tensor twice = Cat({part.SliceAxis(0, {0, 1}), part.SliceAxis(0, {begin, rows})}, 0);
    return Grad(twice.Square().Sum(), {x})[0];
  };
  for (const Device& d : {Device(Place("CPU", 0)), Device(Line(3))}) {
    const Tensor x = Rows().To(d).Realize(), symbolic = gradient(x, n, at);
    for (const auto& [rows, begin] : {std::pair(0, 2), {1, 0}, {3, 4}, {7, 2}, {7, 0}}) {
      ExpectNear(Realize({symbolic}, {{"sliced_n", rows}, {"sliced_at", begin}})[0],
                 gradient(Rows(), rows, begin), d.ToString());
    }
  }
}

// The extents of a gradient are its tensor's, in whatever form an adjoint has found them.
TEST(ShardedSymbolic, GradientsByVariablesOfOneValue) {
  const Variable n("one_n", 2, 2), at("one_at", 0, 0), m("one_m", 1, 2);
  for (const Device& d : {Device(Place("CPU", 0)), Device(Line(2))}) {
    const Tensor x = Tensor::Arange(6, kFloat32).Reshape({2, 3}).To("CPU").To(d).Realize();
    const Tensor y = x.SliceAxis(0, {0, n}), z = x.SliceAxis(0, {0, m}).Pad({{at, 1}, {0, 0}});
    const Tensor by_n = Grad(Cat({y, y * 3}, 0).Square().Sum(), {x})[0];
    EXPECT_THAT(Realize({by_n}, {{"one_n", 2}})[0].ToVector<float>(),
                testing::ElementsAre(0, 20, 40, 60, 80, 100));
    const Tensor by_m = Grad(Cat({z, z * 2}, 0).Square().Sum(), {x})[0];
    EXPECT_THAT(Realize({by_m}, {{"one_m", 1}, {"one_at", 0}})[0].ToVector<float>(),
                testing::ElementsAre(0, 10, 20, 0, 0, 0));
  }
}

TEST(ShardedSymbolic, LaidOutByTheBound) {
  const Variable n("laid_n", 1, kMost);
  const Tensor x = Rows().Shard(Line(3)).SliceAxis(0, {0, n}) * 2;  // bounds at 3 and 5
  EXPECT_EQ(x.device(), Device(Line(3)));
  for (int64_t value : {1, 4, 6, 7}) {
    const Tensor y = Realize({x}, {{"laid_n", value}})[0];
    const Boxes boxes = BoxesOf(y.shape(), y.device());
    int64_t begin = 0;
    for (int i = 0; i < 3; ++i) {
      const int64_t most[] = {3, 5, 7};
      const int64_t end = std::min(value, most[i]);
      EXPECT_EQ(boxes.At(i)[0], (Interval{begin, end})) << value << " " << i;
      const Tensor part = Rows().SliceAxis(0, {begin, end}) * 2;
      EXPECT_EQ(y.ShardAt(i).ToVector<float>(), part.ToVector<float>());
      begin = end;
    }
    // What was computed goes on as any other tensor.
    const Tensor plain = Rows().SliceAxis(0, {0, value}) * 2;
    EXPECT_EQ((y + y.Flip(0)).ToVector<float>(), (plain + plain.Flip(0)).ToVector<float>());
    EXPECT_REFERENCE(y.Sum({0}), y.To(Line(2)), y.To("CPU:4"));
  }
}

// What stands as far along as a variable says: each place gets the rows that its own may be, for
// any value, and the plan is one for all.
TEST(ShardedSymbolic, ShiftsMoveWhatMayBeRead) {
  const Variable n("shifted_n", 1, kMost), at("shifted_at", 0, 3);
  const Tensor first = Rows().Shard(Line(3)).Realize(), x = first.SliceAxis(0, {0, n});
  const SetFlagForTest strict(Flag::kStrict, "1");
  const auto shrink = [&](const Tensor& t, const Extent& begin) {
    return t.SliceAxis(0, {begin, begin + 4}) + 1;
  };
  const auto flip = [](const Tensor& t) { return t.Flip(0) + 1; };
  const auto pad = [&](const Tensor& t, const Extent& before) {
    return t.Pad({{before, 0}, {0, 0}}) + 1;
  };
  // Of 7 rows the places have 0-2, 3-4 and 5-6.
  // - 4 rows from row 0 to 3 on are 2, 1 and 1 a place: among rows 0-4, 2-5 and 3-6.
  // - Turned over they are among all rows, 0-3 and 0-1.
  // - After 0 to 3 rows they are 4, 3 and 3 of 10: among rows 0-3, 1-6 and 4-6.
  // - Before and after the variable's rows, of 14 rows 5, 5 and 4 a place: of those before rows 0-4
  //   and 5-6, of those after rows 0-3, 0-6 and 3-6.
  const std::vector<std::pair<Tensor, int64_t>> all = {{shrink(first, at), 2 + 2 + 2},
                                                       {flip(x), 4 + 3 + 2},
                                                       {pad(first, at), 1 + 4 + 1},
                                                       {Cat({first, x}, 0), 2 + 2 + 0 + 3 + 2},
                                                       {Cat({x, first}, 0), 2 + 2 + 1 + 5 + 2}};
  for (const int64_t value : {1, 2, 4, 7}) {
    const Tensor rows = Rows().SliceAxis(0, {0, value});
    const int64_t begin = value % 4;
    const std::vector<Tensor> want = {shrink(Rows(), begin), flip(rows), pad(Rows(), begin),
                                      Cat({Rows(), rows}, 0), Cat({rows, Rows()}, 0)};
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_FALSE(all[i].first.device() == Device(Line(3, std::nullopt))) << i;
      const int64_t before = GetRuntimeStats().bytes_moved;
      const bool begins = i == 0 || i == 2;
      const Tensor got = Realize({all[i].first}, {begins ? std::pair("shifted_at", begin)
                                                         : std::pair("shifted_n", value)})[0];
      EXPECT_EQ(GetRuntimeStats().bytes_moved - before, all[i].second * 4 * 4) << i;
      EXPECT_EQ(got.ToVector<float>(), want[i].ToVector<float>()) << value << " " << i;
    }
  }
}

// What windows read beyond a place's own rows is exchanged as if the axis were as long as it may
// be, and a convolution over rows gathers none.
TEST(ShardedSymbolic, WindowsExchangeTheirEdges) {
  const Variable n("windowed_n", 3, 9);
  const Tensor data = Tensor::Arange(36, kFloat32).Reshape({9, 4}).To("CPU").Realize();
  const Tensor whole = data.Shard(Line(3)).Realize(), x = whole.SliceAxis(0, {0, n});
  const Tensor kernel = Count({2, 4, 3}).To(Line(3, std::nullopt)).Realize();
  const auto rows = [&](const Tensor& t) {
    return t.T().Unsqueeze(0).Conv1d(Beside(t, kernel), {.padding = {1}}) * 2;
  };
  const SetFlagForTest strict(Flag::kStrict, "1");
  for (const Tensor& y : {x.Window(0, {3}).Sum({2}), rows(x)}) {
    EXPECT_THAT(Explain(y), ::testing::Not(HasSubstr("of a symbolic axis")));
    EXPECT_FALSE(y.device() == Device(Line(3, std::nullopt)));
  }
  EXPECT_EQ(x.Window(0, {3}).shape()[0], Extent(n) - 2);
  for (const int64_t value : {3, 4, 7, 9}) {
    const Tensor part = data.SliceAxis(0, {0, value});
    const int64_t before = GetRuntimeStats().bytes_moved;
    const Tensor window = Realize({x.Window(0, {3}).Sum({2})}, {{"windowed_n", value}})[0];
    // Of at most 7 windows the places have 3, 2 and 2, of rows 0-4, 3-6 and 5-8; they have 3 each.
    EXPECT_EQ(GetRuntimeStats().bytes_moved - before, 4 * 4 * (2 + 1 + 1)) << value;
    ExpectNear(window, part.Window(0, {3}).Sum({2}), "window");
    ExpectNear(Realize({rows(x)}, {{"windowed_n", value}})[0], rows(part), "convolution");
  }
}

// A variable of one value is still one.
TEST(ShardedSymbolic, AVariableThatCannotVary) {
  const Mesh mesh({"CPU:0", "CPU:1"}, {{2}, {1}});
  const Placement whole = Placement::Replicate();
  const Variable n("fixed_n", 1, 1);
  for (const auto& [a, b] : {std::pair{Placement::Shard(0), whole},
                             {Placement::Shard(1), whole},
                             {whole, Placement::Shard(0)},
                             {Placement::Shard(1), Placement::Shard(0)}}) {
    const Tensor data = Count({3, 4}).To("CPU").Realize();
    const Tensor x = data.To(Sharding(mesh, {a, b})).Realize().SliceAxis(0, {0, n});
    const Tensor y = data.SliceAxis(0, {0, 1});
    const auto fn = [](const Tensor& t) {
      return Where(t > 0, t.Sum({0}, true), t.MatMul(t.T()).Sum()) + t.T().Reshape({1, -1}).Sum();
    };
    ExpectNear(Realize({fn(x)}, {{"fixed_n", 1}})[0], fn(y), x.device().ToString());
    ExpectNear(Realize({x.To(Sharding(mesh)) * x}, {{"fixed_n", 1}})[0], y * y,
               x.device().ToString());
  }
  // Seeds 2004820, 2009308: cut by a mesh dim of one place, by one of two, by none.
  const Tensor data = Count({3, 4}).To("CPU").Realize();
  for (const Placement& b : {Placement::Shard(1), whole}) {
    const Tensor x = data.To(Sharding(mesh, {Placement::Shard(0), b})).SliceAxis(1, {0, n});
    ExpectNear(Realize({(x * 2).Reshape({3, n, 1, 1})}, {{"fixed_n", 1}})[0],
               (data * 2).SliceAxis(1, {0, 1}).Reshape({3, 1, 1, 1}), x.device().ToString());
    const Tensor rows = data.To(Sharding(mesh, {Placement::Shard(0), b})).SliceAxis(0, {0, n});
    ExpectNear(Realize({(rows + 1).Reshape({n * 4})}, {{"fixed_n", 1}})[0],
               (data + 1).SliceAxis(0, {0, 1}).Reshape({4}), rows.device().ToString());
  }
}

TEST(ShardedSymbolic, SpecialValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = HUGE_VALF;
  const std::vector<float> v = {-0.0f, 1e-45f, -inf, nan, inf, -1};
  const Tensor data = Tensor::From(v, {6}, "CPU").Realize();
  const Variable n("special_n", 0, 6);
  for (int places : {1, 2, 4, 7}) {
    const Tensor x = data.Shard(Line(places)).Realize().SliceAxis(0, {0, n});
    const std::vector<Tensor> all = {
        x.Sum(),       x.Contiguous(), x.To(Line(2, std::nullopt)), x.Pad({{1, 1}}),
        (x * 0).Sum(), x.Flip(0),      Cat({x, x.Flip(0), x}, 0)};
    for (int64_t value = 0; value <= 6; ++value) {
      const Tensor y = data.SliceAxis(0, {0, value});
      const std::vector<Tensor> want = {
          y.Sum(), y, y, y.Pad({{1, 1}}), (y * 0).Sum(), y.Flip(0), Cat({y, y.Flip(0), y}, 0)};
      const std::vector<Tensor> got = Realize(all, {{"special_n", value}});
      for (size_t i = 0; i < all.size(); ++i) {
        const std::vector<float> a = got[i].ToVector<float>(), b = want[i].ToVector<float>();
        ASSERT_EQ(a.size(), b.size()) << value << " " << i;
        for (size_t k = 0; k < a.size(); ++k) {
          EXPECT_TRUE((std::isnan(a[k]) && std::isnan(b[k])) ||
                      (a[k] == b[k] && std::signbit(a[k]) == std::signbit(b[k])))
              << a[k] << " is not " << b[k] << ", " << places << " places, n = " << value
              << ", result " << i;
        }
      }
    }
  }
}

TEST(ShardedSymbolic, PartsOfPlaces) {
  const Variable n("part_n", 1, kMost);
  const Tensor x = Rows().Shard(Line(3)).Realize().SliceAxis(0, {0, n});
  for (int i = 0; i < 3; ++i) {
    const Tensor sum = x.ShardAt(i).Sum({0});
    for (int64_t value : {1, 3, 4, 7}) {
      const int64_t begin[] = {0, 3, 5, 7};
      const Tensor part =
          Rows().SliceAxis(0, {std::min(begin[i], value), std::min(begin[i + 1], value)});
      EXPECT_EQ(Realize({sum}, {{"part_n", value}})[0].ToVector<float>(),
                part.Sum({0}).ToVector<float>());
    }
  }
}

}  // namespace
}  // namespace tessera
