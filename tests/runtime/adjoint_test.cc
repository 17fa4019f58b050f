// The dot product test of every linear primitive and data movement: <Fx, y> = <x, F*y>, on one
// place and on several.
#include <cmath>

#include "graph/grad.h"
#include "graph/infer_device.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using Fn = std::function<Tensor(const Tensor&)>;

double Dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToVector<double>(), y = b.ToVector<double>();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

std::vector<Device> Places() {
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2}, {2}});
  return {Place("CPU", 0),
          Line(2, std::nullopt),
          Line(3, 0),
          Line(4, 0, Layout::Ceil()),
          Line(3, 0, Layout::Sizes({1, 0, 5})),
          Line(2, 1),
          Sharding(grid, {Placement::Shard(0), Placement::Shard(1)}),
          Sharding(grid, {Placement::Shard(0), Placement::Shard(0)})};
}

void ExpectAdjoint(const std::string& name, const Fn& f, Device device) {
  SCOPED_TRACE(name + " on " + device.ToString());
  const Tensor x = Tensor::From(Fractions(24, 1), {6, 4})
                       .Cast(kFloat32)
                       .To(Place("CPU", 0))
                       .To(device)
                       .Realize();
  const Tensor fx = f(x);
  Tensor y =
      Tensor::From(Fractions(fx.elements(), 2), fx.shape()).Cast(kFloat32).To(Place("CPU", 0));
  if (fx.device()) y = y.To(fx.device());
  const Tensor back = Grad((fx * y).Sum(), {&x, 1})[0];
  EXPECT_EQ(back.shape(), x.shape());
  EXPECT_TRUE(SamePlacement(x.shape(), back.device(), x.device())) << back.device().ToString();
  const double forward = Dot(fx, y), backward = Dot(x, back);
  const double scale =
      std::max(std::sqrt(Dot(fx, fx) * Dot(y, y)), std::sqrt(Dot(x, x) * Dot(back, back)));
  EXPECT_LE(std::fabs(forward - backward), 1e-6 * scale);
  EXPECT_GT(Dot(back, back), 0);
}

Tensor Whole(const Tensor& t, const Tensor& like) {
  const Tensor here = t.To(Place("CPU", 0));
  const Device d = like.device();
  return d.is_sharding() ? here.To(Sharding(d.sharding().mesh())) : here.To(d);
}

TEST(Adjoint, OfEveryLinearPrimitiveSlow) {
  const std::vector<std::pair<const char*, Fn>> all = {
      {"ADD", [](const Tensor& x) { return x + x; }},
      {"SUB", [](const Tensor& x) { return x - 3 * x; }},
      {"MUL", [](const Tensor& x) { return x * Whole(Tensor::From(Fractions(4, 7)), x); }},
      {"DIV", [](const Tensor& x) { return x / 7; }},
      {"NEG", [](const Tensor& x) { return -x; }},
      {"CAST", [](const Tensor& x) { return x.Cast(kFloat64).Cast(kFloat32); }},
      {"WHERE", [](const Tensor& x) { return Where(Tensor::Arange(4) < 2, x, 2 * x); }},
      {"RESHAPE, merged", [](const Tensor& x) { return x.Reshape({24}); }},
      {"RESHAPE, split",
       [](const Tensor& x) {
         return x.Reshape({2, 3, 4});
       }},
      {"RESHAPE, across",
       [](const Tensor& x) {
         return x.Reshape({8, 3});
       }},
      {"PERMUTE", [](const Tensor& x) { return x.T(); }},
      {"EXPAND",
       [](const Tensor& x) {
         return x.Unsqueeze(1).Expand({6, 3, 4});
       }},
      {"PAD",
       [](const Tensor& x) {
         return x.Pad({{2, 1}, {0, 3}});
       }},
      {"SHRINK",
       [](const Tensor& x) {
         return x.Shrink({{1, 4}, {1, 3}});
       }},
      {"FLIP",
       [](const Tensor& x) {
         return x.Flip({0, 1});
       }},
      {"steps",
       [](const Tensor& x) {
         return x.Slice({{{}, {}, -2}, {1, {}, 2}});
       }},
      {"WINDOW", [](const Tensor& x) { return x.Window({0}, {3}); }},
      {"WINDOW, strided",
       [](const Tensor& x) {
         return x.Window({0, 1}, {2, 2}, {2, 1}, {3, 2});
       }},
      {"WINDOW, padded",
       [](const Tensor& x) {
         return x.Pad({{3, 3}, {0, 0}}).Window({0}, {7});
       }},
      {"REDUCE, axis 0", [](const Tensor& x) { return x.Sum({0}); }},
      {"REDUCE, axis 1", [](const Tensor& x) { return x.Sum({1}); }},
      {"REDUCE, all", [](const Tensor& x) { return x.Sum(); }},
      {"CAT",
       [](const Tensor& x) {
         return Cat({x, 2 * x, x.Flip(0)}, 0);
       }},
      {"CAT, axis 1",
       [](const Tensor& x) {
         return Cat({x, x * 3}, 1);
       }},
      {"GATHER",
       [](const Tensor& x) {
         return x.Take(Whole(Tensor::From(std::vector<int>{5, 0, 5, -1, 9, 2}), x));
       }},
      {"GATHER, axis 1",
       [](const Tensor& x) {
         return x.Take(Whole(Tensor::From(std::vector<int>{3, 3}), x), 1);
       }},
      {"GATHER, shared axes",
       [](const Tensor& x) {
         const Tensor i = Tensor::From(std::vector<int>{5, 0, 5, -1, 9, 2, 2, 1}, {2, 4});
         return x.Gather(0, Whole(i, x));
       }},
      {"SCATTER, of updates",
       [](const Tensor& x) {
         const Tensor i = Whole(Tensor::From(std::vector<int>{1, 0, 1, -1, 7, 2}), x);
         return Whole(Tensor::Zeros({3, 4}), x).IndexAdd(0, i, x);
       }},
      {"SCATTER, of a base",
       [](const Tensor& x) {
         const Tensor i = Whole(Tensor::From(std::vector<int>{1, 3, 1}), x);
         return x.IndexCopy(0, i, Whole(Tensor::Zeros({3, 4}), x));
       }},
      {"SCATTER, of what overwrites",
       [](const Tensor& x) {
         const Tensor i = Whole(Tensor::From(std::vector<int>{1, 0, 1, -1, 7, 2}), x);
         return Whole(Tensor::Zeros({3, 4}), x).IndexCopy(0, i, x);
       }},
      {"CONTIGUOUS", [](const Tensor& x) { return (x * 2).Contiguous() * 3; }},
      {"a product of matrices", [](const Tensor& x) {
         return x.MatMul(Whole(Tensor::From(Fractions(8, 4), {4, 2}), x));
       }}};
  for (const Device& d : Places()) {
    for (const auto& [name, f] : all) ExpectAdjoint(name, f, d);
  }
}

TEST(Adjoint, OfEveryMoveBetweenPlaces) {
  for (const Device& from : Places()) {
    for (const Device& to : Places()) {
      ExpectAdjoint(
          "COPY to " + to.ToString(), [&](const Tensor& x) { return x.To(to); }, from);
    }
    if (!from.is_sharding() || !from.sharding().Has(Placement::Kind::kShard)) continue;
    ExpectAdjoint(
        "MSELECT", [](const Tensor& x) { return x.ShardAt(0); }, from);
    ExpectAdjoint(
        "MSTACK",
        [&](const Tensor& x) {
          std::vector<Tensor> parts;
          for (int i = 0; i < from.sharding().size(); ++i) parts.push_back(x.ShardAt(i) * (i + 1));
          return Tensor::FromShards(parts, from.sharding());
        },
        from);
  }
}

}  // namespace
}  // namespace tessera
