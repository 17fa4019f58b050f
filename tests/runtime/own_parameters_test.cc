// A parameter is a tensor, whatever expressions are equal to it; and what only stands for a value.
#include <cmath>

#include "graph/grad.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using Values = std::vector<float>;
using Maker = std::function<Tensor()>;

Tensor F(const Values& v) { return Tensor::From(v); }

const std::vector<std::pair<const char*, Maker>>& Makers() {
  static const Tensor& data = *new Tensor(F({1, 2}));
  static const auto& makers = *new std::vector<std::pair<const char*, Maker>>{
      {"zeros", [] { return Tensor::Zeros({2}); }},
      {"ones on a place", [] { return Tensor::Ones({2}, kFloat32, "CPU"); }},
      {"ones on a mesh",
       [] {
         return Tensor::Ones({2}).Shard({"CPU:0", "CPU:1"}, 0);
       }},
      {"a range", [] { return Tensor::Arange(2, kFloat32); }},
      {"an expression", [] { return data * 3; }},
      {"draws", [] {
         Tensor::ManualSeed(7);
         return Tensor::RandN({2});
       }}};
  return makers;
}

TEST(OwnParameters, EqualOnesHaveTheirOwnGradients) {
  const Values a = {1, 2}, b = {5, 7};
  for (const auto& [name, make] : Makers()) {
    for (const bool realised : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, realised ? ", realised" : ""));
      Tensor p = make(), q = make(), other = make();
      if (realised) {
        p.Realize();
        q.Realize();
        other.Realize();
      }
      p.RequireGrad();
      q.RequireGrad();
      const Device on = p.device();
      const auto at = [&](const Values& v) { return on ? F(v).To(on) : F(v); };
      (p * at(a) + q * at(b) + other * at({100, 100})).Sum().Backward();
      EXPECT_EQ(p.grad().ToVector<float>(), a);
      EXPECT_EQ(q.grad().ToVector<float>(), b);
      EXPECT_FALSE(static_cast<bool>(other.grad()));
      p.ClearGrad();
      q.ClearGrad();
      // And once their values are there.
      std::vector<Tensor> both = {p, q};
      Tensor::Realize(absl::MakeSpan(both));
      (p * at(a) - q * at(b)).Sum().Backward();
      EXPECT_EQ(p.grad().ToVector<float>(), a);
      EXPECT_EQ(q.grad().ToVector<float>(), (Values{-5, -7}));
    }
  }
}

// Numbers in expressions, and constants within functions, are no parameters.
TEST(OwnParameters, NumbersAreNone) {
  const Tensor x = F({1, 2, 3});
  const auto gradient = [](double value, const std::function<Tensor(const Tensor&)>& loss) {
    Tensor s = Tensor::Scalar(static_cast<float>(value)).RequireGrad();
    loss(s).Backward();
    return s.grad().Item();
  };
  EXPECT_EQ(gradient(2, [&](const Tensor& s) { return (x * s).Sum() * 2.0f; }), 12);
  EXPECT_EQ(gradient(3, [&](const Tensor& s) { return x.Mean() * s; }), 2);
  EXPECT_NEAR(gradient(0.5, [&](const Tensor& s) { return (x.Gelu() * s).Sum(); }),
              x.Gelu().Sum().Item(), 1e-5);
}

TEST(OwnParameters, AMatrixAndItsBiasesOfOneKind) {
  Tensor w1 = Tensor::Ones({2, 2}), b1 = Tensor::Zeros({2}), w2 = Tensor::Ones({2, 2}),
         b2 = Tensor::Zeros({2});
  for (Tensor* t : {&w1, &b1, &w2, &b2}) t->RequireGrad();
  const Tensor x = F({1, -2, 0.5f, 3}).Reshape({2, 2});
  (x.MatMul(w1) + b1).Tanh().MatMul(w2).Add(b2).Sum().Backward();
  const Tensor d = x.MatMul(Tensor::Ones({2, 2})).Tanh();
  const Tensor slope = (1 - d * d) * 2;
  const auto expect = [](const Tensor& got, const Tensor& want) {
    EXPECT_TRUE(got.AllClose(want, 1e-5, 1e-6).Item<bool>()) << got << "\n" << want;
  };
  expect(b2.grad(), F({2, 2}));
  expect(w2.grad(), d.Transpose().MatMul(Tensor::Ones({2, 2})));
  expect(b1.grad(), slope.Sum({0}));
  expect(w1.grad(), x.Transpose().MatMul(slope));
}

// What is the same tensor under another handle was read before the loss was written.
TEST(OwnParameters, ViewsOfAllThatWereRead) {
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> views = {
      {"Reshape", [](const Tensor& x) { return x.Reshape({2}); }},
      {"Cast", [](const Tensor& x) { return x.Cast(kFloat32); }},
      {"Squeeze", [](const Tensor& x) { return x.Squeeze(); }},
      {"To", [](const Tensor& x) { return x.To(x.device()); }},
      {"Slice", [](const Tensor& x) {
         return x.SliceAxis(0, {0, 2});
       }}};
  for (const auto& [name, view] : views) {
    SCOPED_TRACE(name);
    for (const bool itself : {false, true}) {
      Tensor x = F({1, 2}) * 3;
      x.RequireGrad();
      Tensor y = view(x);
      y.Realize();
      (itself ? y * y : x * y).Sum().Backward();
      EXPECT_EQ(x.grad().ToVector<float>(), (Values{6, 12}));
      // And once more, when the parameter's own value is there too.
      x.ClearGrad();
      x.Realize();
      (itself ? y * y : x * y).Sum().Backward();
      EXPECT_EQ(x.grad().ToVector<float>(), (Values{6, 12}));
    }
  }
}

TEST(OwnParameters, OneMayDependOnAnother) {
  Tensor p = F({1, 2}).RequireGrad();
  Tensor q = (p * 3).RequireGrad();
  (q * q).Sum().Backward();
  EXPECT_EQ(q.grad().ToVector<float>(), (Values{6, 12}));
  EXPECT_EQ(p.grad().ToVector<float>(), (Values{18, 36}));
}

// What was computed from a parameter depends on it still when it is marked once more.
TEST(OwnParameters, MarkedAgain) {
  for (const bool realised : {false, true}) {
    Tensor w = F({1, 1}) * 2;
    w.RequireGrad();
    const Tensor y = w * 3;
    if (realised) w.Realize();
    w.RequireGrad(false);
    w.RequireGrad();
    y.Sum().Backward();
    EXPECT_EQ(w.grad().ToVector<float>(), (Values{3, 3}));
  }
}

TEST(OwnParameters, InAStepUnderCapture) {
  Jit step([](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor a = Tensor::Zeros({2}).RequireGrad(), b = Tensor::Zeros({2}).RequireGrad();
    (a * in[0] + b * in[1]).Sum().Backward();
    return {a.grad(), b.grad()};
  });
  for (int i = 0; i < 3; ++i) {
    const Values x = {1.0f + i, 2}, y = {5, 7.0f + i};
    const std::vector<Tensor> got = step({F(x).Realize(), F(y).Realize()});
    EXPECT_EQ(got[0].ToVector<float>(), x);
    EXPECT_EQ(got[1].ToVector<float>(), y);
  }
}

TEST(OwnParameters, AssignedToInSteps) {
  Tensor w = Tensor::Zeros({2}).RequireGrad();
  const Tensor target = F({1, -1});
  for (int i = 0; i < 20; ++i) {
    (w - target).Square().Sum().Backward();
    const Tensor g = w.grad();
    w.ClearGrad();
    w.Assign(w - 0.25 * g);
    w.Realize();
  }
  EXPECT_NEAR(w.ToVector<float>()[0], 1, 1e-5);
  EXPECT_NEAR(w.ToVector<float>()[1], -1, 1e-5);
}

// Equal inputs of a step are two tensors, one of which it may change.
TEST(OwnParameters, EqualInputsOfAStep) {
  for (const DType type : {kFloat32, kInt32}) {
    Tensor a = Tensor::Zeros({4}, type, "CPU"), b = Tensor::Zeros({4}, type, "CPU");
    Jit step([](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      Tensor out = in[0];
      out += in[1] + 1;
      return {};
    });
    for (int i = 0; i < 3; ++i) step({a, b});
    EXPECT_EQ(a.ToVector<int>(), std::vector<int>(4, 3));
    EXPECT_EQ(b.ToVector<int>(), std::vector<int>(4, 0));
  }
}

// What is written to one is not seen in the others.
TEST(OwnParameters, HaveTheirOwnMemory) {
  for (const auto& [name, make] : Makers()) {
    SCOPED_TRACE(name);
    std::vector<Tensor> all = {make(), make(), make(), make()};
    for (size_t i = 0; i < 3; ++i) all[i].RequireGrad();
    const Values before = make().ToVector<float>();
    Tensor::Realize(absl::MakeSpan(all));
    for (int i = 0; i < 3; ++i) {
      all[i].Assign(all[i] + (i + 1));
      all[i].Realize();
    }
    for (int i = 0; i < 4; ++i) {
      const Values v = all[i].ToVector<float>();
      const float more = i < 3 ? i + 1 : 0;
      for (int k = 0; k < 2; ++k) EXPECT_NEAR(v[k], before[k] + more, 1e-5) << i;
    }
  }
}

TEST(OwnParameters, WhatAStepMakesHasItsOwnMemory) {
  Jit step([](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = in[0] * 2;
    Tensor z = in[0] * 2;
    return {y, z.RequireGrad(), y.WithDerivativeOf(y * 3)};
  });
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> got = step({F({1, 2}).Realize()});
    for (size_t k = 0; k < got.size(); ++k) {
      got[k].Assign(got[k] + static_cast<double>(k));
      got[k].Realize();
    }
    for (size_t k = 0; k < got.size(); ++k) {
      EXPECT_EQ(got[k].ToVector<float>()[0], 2 + static_cast<float>(k)) << k;
    }
  }
}

// ---- values with another's derivative

TEST(StandIn, HasTheValueOfOneAndTheDerivativeOfTheOther) {
  Tensor x = F({0.2f, 1.7f, -0.6f}).RequireGrad();
  const Tensor rounded = x.Round().WithDerivativeOf(x * x);
  EXPECT_EQ(rounded.ToVector<float>(), (Values{0, 2, -1}));
  (rounded * F({1, 10, 100})).Sum().Backward();
  EXPECT_TRUE(x.grad().AllClose(x * 2 * F({1, 10, 100})).Item<bool>());
  // Of the second order as well.
  const Tensor first = Grad(x.Round().WithDerivativeOf(x * x * x).Sum(), {x})[0];
  const Tensor second = Grad(first.Sum(), {x})[0];
  EXPECT_TRUE(second.AllClose(x * 6, 1e-5, 1e-6).Item<bool>());
}

// A derivative that is written with the result is differentiated by it.
TEST(StandIn, InItsOwnDerivative) {
  const Tensor x = F({0.2f, 1.7f, -0.6f}), e = x.Exp();
  Tensor y = e.WithDerivativeOf(x * e.Detach());
  for (int order = 1; order <= 3; ++order) {
    y = Grad((y * 2).Sum(), {x})[0];
    EXPECT_TRUE(y.AllClose(e * std::pow(2, order)).Item<bool>()) << order;
  }
  // Beside others: x^2 e^x.
  const Tensor product = x * x * e.WithDerivativeOf(x * e.Detach());
  const Tensor second = Grad(Grad(product.Sum(), {x})[0].Sum(), {x})[0];
  EXPECT_TRUE(second.AllClose((x * x + x * 4 + 2) * e).Item<bool>());
}

// The other is computed for the derivative alone.
TEST(StandIn, IsNothingToAPlan) {
  const Tensor x = Tensor::Rand({64, 64}).Realize(), y = Tensor::Rand({64, 64}).Realize();
  std::vector<std::string> plans;
  for (const bool stands : {false, true}) {
    const Tensor z = x + 1;
    plans.push_back(Explain(stands ? z.WithDerivativeOf(x.MatMul(y)) : z));
  }
  EXPECT_EQ(plans[0], plans[1]);
}

TEST(StandIn, OverPlacesAndInSteps) {
  const Sharding both({"CPU:0", "CPU:1"}, 0);
  Tensor x = F({1, 2, 3, 4}).Shard(both).Realize().RequireGrad();
  x.Floor().WithDerivativeOf(x * 5).Sum().Backward();
  EXPECT_EQ(x.grad().ToVector<float>(), Values(4, 5));
  EXPECT_EQ(x.grad().device(), x.device());
  Jit step([](const Tensor& t) { return Grad(t.Floor().WithDerivativeOf(t * t).Sum(), {t})[0]; });
  for (int i = 1; i < 4; ++i) {
    const float v = static_cast<float>(i);
    EXPECT_EQ(step.One({F({v}).Realize()}).Item(), 2 * v);
  }
}

// As memory is concerned it is a copy.
TEST(StandIn, OfATensorItself) {
  Tensor x = F({1, 2}).Contiguous().Realize();
  Tensor y = x.WithDerivativeOf(x * 2);
  y.Realize();
  x.Assign(x + 10);
  x.Realize();
  EXPECT_EQ(y.ToVector<float>(), (Values{1, 2}));
  y.Assign(y * 3);
  y.Realize();
  EXPECT_EQ(x.ToVector<float>(), (Values{11, 12}));
  Jit step([](const Tensor& t) { return t.WithDerivativeOf(t * 2); });
  for (int i = 0; i < 3; ++i) {
    Tensor in = F({5, 6}).Contiguous().Realize();
    Tensor out = step.One({in});
    in.Assign(in * 0);
    in.Realize();
    EXPECT_EQ(out.ToVector<float>(), (Values{5, 6}));
  }
}

TEST(StandIn, WhatItRefuses) {
  const Tensor x = F({1, 2});
  EXPECT_THROW(x.WithDerivativeOf(F({1})), Error);
  EXPECT_THROW(x.WithDerivativeOf(x.Cast(kFloat64)), Error);
  EXPECT_THROW(x.Cast(kInt32).WithDerivativeOf(x.Cast(kInt32)), Error);
}

// ---- derivatives of what runs along an axis: each element counts once or a few times, not once
// for each window that it is in

TEST(RunningGradients, OfLongAxes) {
  constexpr int64_t kLength = 3000;
  Tensor::ManualSeed(3);
  const Tensor x = (Tensor::RandN({kLength}, kFloat64) * 0.05 + 1).Realize();
  const Tensor by = Tensor::RandN({kLength}, kFloat64).Realize();
  const std::vector<double> v = x.ToVector<double>(), g = by.ToVector<double>();
  const auto expect = [&](const Tensor& y, const std::vector<double>& want) {
    const std::vector<double> got = Grad((y * by).Sum(), {x})[0].ToVector<double>();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-9 * (1 + std::fabs(want[i]))) << i;
    }
  };
  std::vector<double> sums(kLength), products(kLength), extremes(kLength, 0.0);
  double sum = 0, product = 0, running = 1;
  std::vector<double> so_far(kLength);
  size_t most = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    so_far[i] = running *= v[i];
    if (v[i] >= v[most]) most = i;
    extremes[most] += g[i];
  }
  for (size_t i = v.size(); i-- > 0;) {
    sums[i] = sum += g[i];
    product += g[i] * so_far[i];
    products[i] = product / v[i];
  }
  expect(x.CumSum(0), sums);
  expect(x.CumProd(0), products);
  expect(x.CumMax(0).values, extremes);
  std::vector<double> reversed(kLength);
  sum = 0;
  for (size_t i = 0; i < v.size(); ++i) reversed[i] = sum += g[i];
  expect(x.CumSum(0, {.exclusive = false, .reverse = true}), reversed);
}

// Whatever else the cotangent varies over, or does not.
TEST(RunningGradients, OfRowsAndColumns) {
  const Tensor x = Tensor::Rand({3, 5}).Realize(), by = Tensor::Rand({3, 5}).Realize();
  const std::vector<Tensor> weights = {by, Tensor::Ones({3, 5}),
                                       by.Select(0, 1).BroadcastTo({3, 5}),
                                       by.SliceAxis(1, {0, 1}).BroadcastTo({3, 5})};
  for (const int axis : {0, 1}) {
    for (const Tensor& w : weights) {
      const Tensor want = w.CumSum(axis, {.exclusive = false, .reverse = true});
      EXPECT_TRUE(Grad((x.CumSum(axis) * w).Sum(), {x})[0].AllClose(want, 1e-5, 1e-6).Item<bool>());
      // Sums over windows that overlap, with strides too.
      for (const int64_t stride : {1, 2}) {
        const Tensor windows = x.Window(1, {3}, {stride});
        const int64_t count = windows.size(1);
        const Tensor v = w.SliceAxis(1, {0, count});
        Tensor sum = Tensor::Zeros({3, 5});
        for (int64_t k = 0; k < count; ++k) {
          sum = sum +
                v.SliceAxis(1, {k, k + 1})
                    .PadBy(PadMode::kConstant, {{0, 0}, {k * stride, 4 - k * stride}}) +
                v.SliceAxis(1, {k, k + 1})
                    .PadBy(PadMode::kConstant, {{0, 0}, {k * stride + 1, 3 - k * stride}}) +
                v.SliceAxis(1, {k, k + 1})
                    .PadBy(PadMode::kConstant, {{0, 0}, {k * stride + 2, 2 - k * stride}});
        }
        const Tensor got = Grad((windows.Sum({-1}) * v).Sum(), {x})[0];
        EXPECT_TRUE(got.AllClose(sum, 1e-5, 1e-6).Item<bool>()) << got << sum;
      }
    }
  }
}

TEST(RunningGradients, TakeAsManyOperationsAsTheAxisIsLong) {
  const Tensor x = Tensor::Rand({1 << 15}).Realize(), by = Tensor::Rand({1 << 15}).Realize();
  for (const auto& y : {x.CumSum(0), x.CumProd(0), x.CumMax(0).values, x.CumMin(0).values}) {
    const UOp g = Grad((y * by).Sum(), {x})[0].uop();
    const PlanKey key = MakePlanKey({&g, 1});
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOnly({&g, 1}, key));
    int64_t flops = 0;
    for (const PlanStep& s : plan.steps) {
      if (s.kind == PlanStep::kKernel) flops += plan.kernels[s.kernel].flops.max();
    }
    EXPECT_LE(flops, 100 << 15);
  }
}

TEST(RunningGradients, OfProductsWithZeros) {
  const Tensor x = F({2, 0, 3, 0, 5}).Realize();
  const Tensor g = Grad((x.CumProd(0) * F({1, 10, 100, 1000, 10000})).Sum(), {x})[0];
  EXPECT_EQ(g.ToVector<float>(), (Values{1, 620, 0, 0, 0}));
}

}  // namespace
}  // namespace tessera
