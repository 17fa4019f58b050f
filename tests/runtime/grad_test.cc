// Adjoints: every primitive against differences, and every data movement by the dot product
// <Fx, y> = <x, F*y>, on one device and spread over several.
#include "graph/grad.h"

#include <cmath>

#include "runtime/realize.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Fn = std::function<Tensor(const Tensor&)>;

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The derivative along a direction, by the adjoint and by differences of second order.
void ExpectDerivative(const Fn& f, const std::vector<int64_t>& shape, Device device, double scale,
                      double shift, const std::string& what) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> x = Fractions(n, 1), v = Fractions(n, 2);
  for (double& e : x) e = e * scale + shift;
  const auto at = [&](double h) {
    std::vector<double> moved = x;
    for (int64_t i = 0; i < n; ++i) moved[i] += h * v[i];
    return Tensor::From(moved, shape).To("CPU").To(device);
  };
  const Tensor leaf = at(0);
  const Tensor y = f(leaf);
  const Tensor weights = Tensor::From(Fractions(y.elements(), 3), y.shape())
                             .To("CPU")
                             .To(y.device() ? y.device() : device);
  const auto loss = [&](const Tensor& t) { return (f(t) * weights).Sum(); };
  const double h = 1e-5;
  const double difference = (loss(at(h)).Item() - loss(at(-h)).Item()) / (2 * h);
  const Tensor grad = Grad(loss(leaf), {leaf})[0];
  EXPECT_EQ(grad.shape(), leaf.shape());
  EXPECT_EQ(grad.device(), leaf.device()) << what;
  const double derivative = Dot(grad.ToVector<double>(), v);
  EXPECT_NEAR(derivative, difference, 1e-6 * (1 + std::fabs(difference))) << what;
}

std::vector<Device> Places() {
  const Mesh grid({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2}, {2}});
  return {Place("CPU", 0), Line(3, 0), Line(2, 1), Line(2, std::nullopt),
          Sharding(grid, {Placement::Shard(0), Placement::Shard(1)})};
}

TEST(Grad, Elementwise) {
  const std::vector<std::pair<const char*, Fn>> positive = {
      {"log", [](const Tensor& x) { return x.Log(); }},
      {"log2", [](const Tensor& x) { return x.Log2(); }},
      {"sqrt", [](const Tensor& x) { return x.Sqrt(); }},
      {"pow", [](const Tensor& x) { return x.Pow(x * 0.7); }},
      {"div", [](const Tensor& x) { return (x + 1) / (x * x); }},
      {"fmod", [](const Tensor& x) { return (x * 5).Fmod(x + 0.37); }}};
  for (const auto& [name, f] : positive) {
    ExpectDerivative(f, {4, 3}, Place("CPU", 0), 0.3, 1.3, name);
  }
  const std::vector<std::pair<const char*, Fn>> any = {
      {"exp", [](const Tensor& x) { return x.Exp() + x.Exp2() + x.Expm1(); }},
      {"log1p", [](const Tensor& x) { return x.Log1p(); }},
      {"trig", [](const Tensor& x) { return x.Sin() * x.Cos() + x.Tan(); }},
      {"arcs", [](const Tensor& x) { return x.Asin() + x.Acos() * x.Atan(); }},
      {"hyperbolic", [](const Tensor& x) { return x.Sinh() * x.Cosh() - x.Tanh(); }},
      {"erf", [](const Tensor& x) { return x.Erf() * x.Erfc() - x.Neg() + x.Abs(); }},
      {"extremes", [](const Tensor& x) { return x.Maximum(0.1) * x.Minimum(x * x); }},
      {"where", [](const Tensor& x) { return Where(x > 0.05, x * x, 3 * x); }},
      {"rounding", [](const Tensor& x) { return x.Floor() + x * x.Round() + x.Ceil(); }},
      {"scalar", [](const Tensor& x) { return x * x.Sum() + x.Mean(); }}};
  for (const auto& [name, f] : any) ExpectDerivative(f, {4, 3}, Place("CPU", 0), 0.8, 0, name);
}

// Indices on the places of a tensor, whole on each.
Tensor Beside(const std::vector<int>& index, const Tensor& x) {
  const Tensor t = Tensor::From(index).To("CPU");
  return x.device().is_sharding() ? t.To(Sharding(x.device().sharding().mesh())) : t;
}

TEST(Grad, MovementAndReductionsOnAnyPlaces) {
  const std::vector<std::pair<const char*, Fn>> all = {
      {"reshape",
       [](const Tensor& x) {
         return x.Reshape({15, 2}) + x.Reshape({15, 2}).Exp();
       }},
      {"permute", [](const Tensor& x) { return x.T() * x.T(); }},
      {"expand",
       [](const Tensor& x) {
         return x.Unsqueeze(1).Expand({5, 3, 6}) * 2;
       }},
      {"pad",
       [](const Tensor& x) {
         return x.Pad({{1, 2}, {0, 3}}).Square();
       }},
      {"shrink",
       [](const Tensor& x) {
         return x.Shrink({{1, 4}, {2, 6}}).Square();
       }},
      {"flip",
       [](const Tensor& x) {
         return x.Flip({0, 1}) * x;
       }},
      {"slices",
       [](const Tensor& x) {
         return x.Slice({{{}, {}, 2}, {{}, {}, -3}});
       }},
      {"window",
       [](const Tensor& x) {
         return x.Window({0, 1}, {2, 3});
       }},
      {"stride", [](const Tensor& x) { return x.Window({1}, {2}, {3}, {2}).Square(); }},
      {"halo",
       [](const Tensor& x) {
         return x.Pad({{2, 2}, {1, 1}}).Window({0, 1}, {5, 3}).Sum({2, 3});
       }},
      {"sum", [](const Tensor& x) { return x.Sum({0}) * x.Sum({1}).Sum(); }},
      {"max", [](const Tensor& x) { return x.Max({0}) + x.Min({1}).Sum(); }},
      {"prod", [](const Tensor& x) { return x.Prod({0}) + x.Prod({1}).Sum(); }},
      {"softmax", [](const Tensor& x) { return x.Softmax() * x.LogSoftmax(0); }},
      {"cat",
       [](const Tensor& x) {
         return Cat({x, x * x, x.Flip(0)}, 0);
       }},
      {"cat1",
       [](const Tensor& x) {
         return Cat({x, x * x}, 1);
       }},
      {"matmul", [](const Tensor& x) { return x.MatMul(x.T()).MatMul(x); }},
      {"cumsum", [](const Tensor& x) { return x.CumSum(0) + x.CumSum(1); }},
      {"norms", [](const Tensor& x) { return x.LayerNorm() + x.RmsNorm(); }},
      {"take",
       [](const Tensor& x) {
         return x.Take(Beside({4, 0, 4, 9, -1}, x)).Square();
       }},
      {"take1", [](const Tensor& x) {
         return x.Take(Beside({1, 1}, x), 1);
       }}};
  for (const Device& d : Places()) {
    for (const auto& [name, f] : all) {
      ExpectDerivative(f, {5, 6}, d, 0.8, 0.1, absl::StrCat(name, " on ", d.ToString()));
    }
  }
}

TEST(Grad, MovesBetweenPlaces) {
  for (const Device& to : Places()) {
    for (const Device& d : Places()) {
      ExpectDerivative([&](const Tensor& x) { return x.To(to) * 3; }, {5, 6}, d, 1, 0,
                       absl::StrCat(d.ToString(), " to ", to.ToString()));
    }
  }
  ExpectDerivative([](const Tensor& x) { return x.ShardAt(1).Square(); }, {5, 2}, Line(3, 0), 1, 0,
                   "MSELECT");
  ExpectDerivative(
      [](const Tensor& x) {
        return Tensor::FromShards({x.ShardAt(0) * 2, x.ShardAt(1), x.ShardAt(2).Square()},
                                  Line(3, 0));
      },
      {5, 2}, Line(3, 0), 1, 0, "MSTACK");
}

TEST(Grad, TiesShareAndZeroFactorsAreKept) {
  const Tensor x = Tensor::From(std::vector<float>{2, 5, 5, 1}).To("CPU").Shard(Line(4, 0));
  EXPECT_EQ(Grad(x.Max(), {x})[0].ToVector<float>(), (std::vector<float>{0, 0.5, 0.5, 0}));
  const Tensor z = Tensor::From(std::vector<float>{2, 0, 3}).To("CPU").Shard(Line(2, 0));
  EXPECT_EQ(Grad(z.Prod(), {z})[0].ToVector<float>(), (std::vector<float>{0, 6, 0}));
  const Tensor y = z * z.Flip(0) * 0;
  EXPECT_EQ(Grad(y.Sum(), {x, z})[0].ToVector<float>(), (std::vector<float>{0, 0, 0, 0}));
}

// As elsewhere: those of activations are flat at the corner, so is a sign; a maximum shares.
TEST(Grad, AtCorners) {
  const Tensor x = Tensor::From(std::vector<float>{-1, 0, 6, 7});
  const auto grad = [&](const Tensor& y) { return Grad(y.Sum(), {x})[0].ToVector<float>(); };
  EXPECT_EQ(grad(x.Relu()), (std::vector<float>{0, 0, 1, 1}));
  EXPECT_EQ(grad(x.Relu6()), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(grad(x.Hardtanh(-1, 7)), (std::vector<float>{0, 1, 1, 0}));
  EXPECT_EQ(grad(x.Sign()), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(grad(x.Maximum(0)), (std::vector<float>{0, 0.5, 1, 1}));
}

TEST(Grad, DataParallelGradientsMeetInOneAllReduce) {
  const Tensor x = Tensor::From(Fractions(24, 1), {8, 3}).To("CPU").Shard(Line(4, 0));
  const Tensor w = Tensor::From(Fractions(6, 2), {3, 2}).To("CPU").To(Line(4, std::nullopt));
  const Tensor g = Grad(x.MatMul(w).Tanh().Sum(), {w})[0];
  int collectives = 0;
  for (const UOp& u : TopoSort({&g.uop(), 1})) collectives += u.is(Op::kAllReduce);
  EXPECT_EQ(collectives, 1);
  EXPECT_EQ(g.device(), w.device());
}

TEST(Grad, SmallGradientsShareACollective) {
  const auto gradients = [](const Device& data, const Device& weights) {
    const Tensor x = Tensor::From(Fractions(24, 1), {8, 3}).To("CPU").To(data).Realize();
    const auto weight = [&](const Dims& shape, int64_t n, uint64_t seed) {
      return Tensor::From(Fractions(n, seed), shape).To("CPU").To(weights).Realize();
    };
    const Tensor w1 = weight({3, 5}, 15, 2), b1 = weight({5}, 5, 3), w2 = weight({5, 2}, 10, 4),
                 b2 = weight({2}, 2, 5);
    const Tensor y = (x.MatMul(w1) + b1).Tanh().MatMul(w2) + b2;
    std::vector<Tensor> g = Grad((y * y).Sum(), {w1, b1, w2, b2});
    const int64_t before = GetRuntimeStats().transfers_run;
    Realize(g, {});
    g.push_back(Tensor::Full({}, GetRuntimeStats().transfers_run - before));
    return g;
  };
  const std::vector<Tensor> one = gradients(Place("CPU", 0), Place("CPU", 0)),
                            four = gradients(Line(4, 0), Line(4, std::nullopt));
  EXPECT_EQ(four.back().Item(), 1);
  for (size_t i = 0; i < 4; ++i) {
    const auto want = one[i].ToVector<double>(), got = four[i].ToVector<double>();
    ASSERT_EQ(want.size(), got.size());
    for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(got[j], want[j], 1e-12);
  }
}

TEST(Grad, WhatItRefuses) {
  Tensor x = Tensor::From(std::vector<float>{1, 2});
  EXPECT_THAT(ErrorOf([&] { Grad(x, {x}); }), HasSubstr("Grad: the loss f32[2]"));
  EXPECT_THAT(ErrorOf([&] { Grad(x.Sum(), {x.Cast(kInt32)}); }), HasSubstr("not of a float dtype"));
  Tensor y = Tensor::Zeros({2}).Contiguous();
  const Tensor p = x * 1;
  y.Assign(p * 2);
  EXPECT_THAT(ErrorOf([&] { Grad(y.Sum(), {p}); }),
              HasSubstr("cannot differentiate through ASSIGN"));
}

// An op whose rule was forgotten throws; it gives no zeros.
TEST(Grad, EveryElementwiseOpHasARule) {
  const std::vector<UOp> floats(3, Tensor::From({0.25f, 0.5f}).uop());
  int ops = 0;
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (Info(op).cls != OpClass::kElementwise) continue;
    std::vector<UOp> srcs(floats.begin(), floats.begin() + Info(op).arity);
    if (op == Op::kWhere) srcs[0] = Tensor::From({true, false}).uop();
    const absl::StatusOr<UOp> u = UOp::TryMake(op, srcs);
    if (!u.ok() || !u->dtype().IsFloat()) continue;
    EXPECT_NO_THROW(Grad(Tensor(*u).Sum(), {Tensor(srcs.back())})) << Info(op).text;
    ++ops;
  }
  EXPECT_GT(ops, 30);
}

}  // namespace
}  // namespace tessera
