// What is written under NoGrad has no derivative and keeps nothing; loops keep one step's worth.
#include "graph/no_grad.h"

#include <thread>

#include "graph/grad.h"
#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<float> Floats(const Tensor& t) { return t.ToVector<float>(); }
Tensor Weights() { return Tensor::From({1.f, 2.f}).RequireGrad(); }

// Derivatives that go beside a value are not written where nothing has one.
TEST(NoGrad, NoDerivativesBesideValues) {
  const Tensor x = Tensor::From({{4.f, 1.f}, {1.f, 3.f}});
  const auto stand_ins = [&](const Tensor& t) {
    const std::vector<UOp> nodes = TopoSort({&t.uop(), 1});
    return std::count_if(nodes.begin(), nodes.end(), [](auto& u) { return u.is(Op::kStandIn); });
  };
  const std::function<Tensor()> functions[] = {
      [&] { return x.CumProd(0); }, [&] { return x.CumMax(1).values; },
      [&] { return x.Qr().first; }, [&] { return x.Eigh().second; }};
  for (const auto& f : functions) {
    const Tensor with = f();
    NoGrad scope;
    const Tensor without = f();
    EXPECT_GT(stand_ins(with), 0);
    EXPECT_EQ(stand_ins(without), 0);
    EXPECT_EQ(Floats(without), Floats(with));
  }
}

TEST(NoGrad, ResultsAreConstants) {
  Tensor w = Weights();
  const Tensor outside = w * 3;
  Tensor scaled, view, laid_out;
  {
    NoGrad scope;
    {
      NoGrad again;
      scaled = w * 3;  // the same expression as outside
    }
    view = w[1];
    laid_out = w.Softmax().Contiguous();
    EXPECT_EQ(scaled.ToVector<float>(), Floats(outside));
    bool elsewhere = true;
    std::thread([&] { elsewhere = NoGrad::Active(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(NoGrad::Active());
  EXPECT_THAT(Floats(Grad((outside * w).Sum(), {w})[0]), ElementsAre(6, 12));
  EXPECT_THAT(Floats(Grad((scaled * w).Sum(), {w})[0]), ElementsAre(3, 6));
  EXPECT_THAT(Floats(Grad((view * w).Sum(), {w})[0]), ElementsAre(2, 2));
  EXPECT_THAT(Floats(Grad((laid_out + w).Sum(), {w})[0]), ElementsAre(1, 1));
  EXPECT_ERROR(scaled.Sum().Backward(), "Backward", "RequireGrad");
}

TEST(NoGrad, WritesAsAlways) {
  Tensor w = Weights();
  w.Realize();
  const Tensor loss = (w * w).Sum();
  {
    NoGrad scope;
    loss.Backward();  // it was written before
    w -= w.grad() * 0.25;
    w[0] = 7;
    Tensor v = w[1];
    v += 1;
  }
  EXPECT_THAT(Floats(w), ElementsAre(7, 2));
  (w * w).Sum().Backward();
  EXPECT_THAT(Floats(w.grad()), ElementsAre(2 + 14, 4 + 4));
}

// Until then a view made under one is a constant; then it is a part of what its tensor has become.
TEST(NoGrad, AViewWrittenToLaterShowsItsTensor) {
  Tensor w = Weights(), view;
  {
    NoGrad scope;
    view = w[1];
  }
  EXPECT_THAT(Floats(Grad((view * w).Sum(), {w})[0]), ElementsAre(2, 2));
  view.Assign(5);
  EXPECT_THAT(Floats(w), ElementsAre(1, 5));
  EXPECT_THAT(Floats(Grad((view * w).Sum(), {w})[0]), ElementsAre(5, 11));
}

TEST(NoGrad, OverPlaces) {
  const Sharding both({"CPU:0", "CPU:1"}, 0);
  Tensor w = Tensor::From({1.f, 2.f, 3.f}).Shard(both).Contiguous().Realize().RequireGrad();
  NoGrad scope;
  const Tensor sum = w.Flip(0).CumSum(0);
  EXPECT_EQ(sum.device(), w.device());
  EXPECT_THAT(Floats(sum), ElementsAre(3, 5, 6));
  EXPECT_ERROR(sum.Sum().Backward(), "Backward", "RequireGrad");
}

TEST(NoGrad, AStepIsCapturedForEach) {
  Tensor w = Weights(), total = Tensor::Zeros({}).Contiguous().Realize();
  Jit step([&](const Tensor& x) {
    const Tensor y = (w * x).Sum();
    {
      NoGrad scope;
      total += y;
    }
    if (!NoGrad::Active()) y.Backward();
    return y;
  });
  const Tensor x = Tensor::From({1.f, 1.f}).Realize();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step.One({x}).Item(), 3);
  EXPECT_THAT(Floats(w.grad()), ElementsAre(3, 3));
  {
    NoGrad scope;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(step.One({x}).Item(), 3);
  }
  EXPECT_THAT(Floats(w.grad()), ElementsAre(3, 3));
  EXPECT_EQ(step.captures(), 2);
  EXPECT_EQ(total.Item(), 18);
}

// Nodes alive after 30 steps, less those after 10.
int64_t Growth(const std::function<void()>& step) {
  int64_t after_ten = 0;
  for (int i = 0; i < 30; ++i) {
    if (i == 10) after_ten = LiveNodes();
    step();
  }
  return LiveNodes() - after_ten;
}

TEST(NoGrad, SumsOfLossesKeepNothing) {
  Tensor w = Weights();
  Tensor under = Tensor::Scalar(0.0), detached = Tensor::Scalar(0.0), whole = Tensor::Scalar(0.0);
  // The weights stay as they are: only the scope and Detach cut.
  const auto add = [&](Tensor& sum, bool detach) {
    const Tensor loss = (w * w).Tanh().Sum();
    sum = sum + (detach ? loss.Detach() : loss);
    sum.Realize();
  };
  EXPECT_LT(Growth([&] {
              NoGrad scope;
              add(under, false);
            }),
            10);
  EXPECT_LT(Growth([&] { add(detached, true); }), 10);
  EXPECT_GT(Growth([&] { add(whole, false); }), 15);
  whole.Backward();
  EXPECT_NEAR(w.grad().ToVector<double>()[0], 30 * 2 * 0.41997434, 1e-3);
}

// Of weights that have changed since no gradient can be asked for: what led to them goes.
TEST(NoGrad, SumsUnderOldWeightsAreForgotten) {
  Tensor w = Weights(), total = Tensor::Scalar(0.0);
  EXPECT_LT(Growth([&] {
              const Tensor loss = (w * w).Tanh().Sum();
              total = total + loss;
              total.Realize();
              loss.Backward();
              w.Assign(w - w.grad() * 0.01);
              w.ClearGrad();
              w.Realize();
            }),
            10);
  // Weights that are new tensors at each step, and their running mean.
  Tensor v = Weights(), mean = v * 1;
  EXPECT_LT(Growth([&] {
              const Tensor g = Grad((v * v).Tanh().Sum(), {v})[0];
              v = v - g * 0.01;
              v.RequireGrad();
              mean = mean * 0.9 + v * 0.1;
              std::vector<Tensor> all = {v, mean};
              Tensor::Realize(absl::MakeSpan(all));
            }),
            10);
  // The last loss still has its derivative.
  total = total + (w * w).Sum();
  total.Backward();
  const std::vector<float> now = Floats(w);
  EXPECT_THAT(Floats(w.grad()), ElementsAre(2 * now[0], 2 * now[1]));
}

}  // namespace
}  // namespace tessera
