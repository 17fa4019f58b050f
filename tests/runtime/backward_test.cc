// Backward: gradients that stay with the tensors they belong to.
#include "graph/grad.h"
#include "runtime/capture.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

TEST(Backward, AddsUpAtMarkedTensors) {
  Tensor w = Tensor::From(Values{1, 2, 3}).RequireGrad(), x = Tensor::From(Values{4, 5, 6});
  EXPECT_FALSE(static_cast<bool>(w.grad()));
  (w * x).Sum().Backward();
  EXPECT_EQ(w.grad().ToVector<float>(), (Values{4, 5, 6}));
  EXPECT_FALSE(static_cast<bool>(x.grad()));
  (w * w).Sum().Backward();
  EXPECT_EQ(w.grad().ToVector<float>(), (Values{6, 9, 12}));
  w.ClearGrad();
  EXPECT_FALSE(static_cast<bool>(w.grad()));
}

// A gradient is where its parameter is, in the form in which that was asked for.
TEST(Backward, GradientsHaveTheFormOfTheirParametersLayout) {
  const Sharding halves({"CPU:0", "CPU:1"}, 0, Layout::Ceil());
  Tensor x = Tensor::From(Values{1, 2, 3, 4}).Shard(halves);
  x.RequireGrad();
  x.Square().Sum().Backward();
  EXPECT_EQ(x.grad().device(), x.device());
  EXPECT_EQ(x.grad().ToVector<float>(), (Values{2, 4, 6, 8}));
  EXPECT_EQ(Grad(x.Sum(), {x})[0].device(), x.device());
}

TEST(Backward, OnlyWhatTheLossDependsOn) {
  Tensor a = Tensor::From(Values{1}).RequireGrad(), b = Tensor::From(Values{2}).RequireGrad();
  a.Sum().Backward();
  EXPECT_EQ(a.grad().Item(), 1);
  EXPECT_FALSE(static_cast<bool>(b.grad()));
  b.RequireGrad(false);
  EXPECT_THROW(b.Sum().Backward(), Error);
  EXPECT_THROW((Tensor::Ones({2}) * a).Backward(), Error);  // not one number
}

TEST(Backward, AStepOfDescent) {
  const Sharding both({"CPU:0", "CPU:1"}, 0);
  Tensor w = Tensor::From(Values{1, 2, 3, 4}).Shard(both).Contiguous().Realize();
  w.RequireGrad();
  for (int i = 0; i < 3; ++i) {
    (w * w).Sum().Backward();
    EXPECT_EQ(w.grad().device(), w.device());
    const Tensor g = w.grad();
    w.ClearGrad();
    w.Assign(w - 0.25 * g);
    w.Realize();
  }
  EXPECT_EQ(w.ToVector<float>(), (Values{0.125, 0.25, 0.375, 0.5}));
}

// Replays take the same steps as calls without capture, and touch no tensor but their own.
TEST(Backward, InACapturedStep) {
  for (const Device& on : {Device("CPU"), Device(Sharding({"CPU:0", "CPU:1"}, 0))}) {
    Tensor w = Tensor::From(Values{1, 2, 3, 4, 5}).To(on).Contiguous().Realize();
    Tensor plain = Tensor::From(Values{1, 2, 3, 4, 5}).To("CPU").Contiguous().Realize();
    w.RequireGrad();
    plain.RequireGrad();
    auto unrelated = std::make_unique<Tensor>(Tensor::From(Values{7}).Realize().RequireGrad());
    const auto descend = [](Tensor& p, const Tensor& x) {
      const Tensor loss = ((p * p - x).Tanh() * p).Sum();
      loss.Backward();
      const Tensor g = p.grad();
      p.ClearGrad();
      p.Assign(p - 0.125 * g);
      return loss;
    };
    Jit step([&](const Tensor& x) { return descend(w, x); });
    for (int i = 0; i < 5; ++i) {
      const Tensor x = Tensor::From(Values{0.5f * i, 1, -2, 3, 0.25f});
      const Tensor got = step.One({x.To(on).Realize()});
      const Tensor want = descend(plain, x.To("CPU"));
      EXPECT_NEAR(got.Item(), want.Item(), 1e-4) << i;
      const Values a = w.ToVector<float>(), b = plain.ToVector<float>();
      for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-4) << i << " " << k;
      EXPECT_FALSE(static_cast<bool>(w.grad()));
      if (i == 1) unrelated.reset();  // a step that had captured it could not go on
    }
    EXPECT_EQ(step.captures(), 1);
    EXPECT_EQ(w.device(), on);
  }
}

}  // namespace
}  // namespace tessera
