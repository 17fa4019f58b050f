// Gradients through values that were read, printed or realised before the loss was written.
#include <sstream>

#include "graph/grad.h"
#include "graph/history.h"
#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<float> Floats(const Tensor& t) { return t.ToVector<float>(); }

TEST(History, ReadingAValueLosesNoGradient) {
  Tensor x = Tensor::From({1.f, 2.f});
  x.RequireGrad();
  const Tensor y = x * 3;
  std::ostringstream printed;
  printed << y;
  EXPECT_THAT(Floats(Grad((y * y).Sum(), {x})[0]), ElementsAre(18, 36));
  // Through several, one of them read twice.
  const Tensor s = y.Sum();
  EXPECT_EQ(s.Item(), 9);
  const Tensor z = s * s;
  EXPECT_EQ(z.Item(), 81);
  (z + x.Sum()).Backward();
  EXPECT_THAT(Floats(x.grad()), ElementsAre(55, 55));
}

TEST(History, WhatIsLostIsAnError) {
  const Tensor x = Tensor::From({1.f, 2.f});
  Tensor y = x * 3;
  Tensor::Realize({&y, 1});
  EXPECT_ERROR(Grad((y * y).Sum(), {x}), "Grad", "RequireGrad");
  EXPECT_THAT(Floats(Grad((y * y).Sum(), {y})[0]), ElementsAre(6, 12));
  // Nothing was lost where nothing was computed.
  const Tensor other = Tensor::From({5.f});
  EXPECT_THAT(Floats(Grad((x * x).Sum(), {other})[0]), ElementsAre(0));
  // Nor where what was computed has no derivative.
  Tensor marked = Tensor::From({1.f, -2.f});
  marked.RequireGrad();
  const Tensor mask = (marked > 0).Cast(kFloat32);
  EXPECT_THAT(Floats(mask), ElementsAre(1, 0));
  EXPECT_THAT(Floats(Grad((x * mask).Sum(), {marked})[0]), ElementsAre(0, 0));
}

TEST(History, AParameterMayDependOnAnother) {
  Tensor x = Tensor::From({1.f, 2.f});
  Tensor y = x * 3;
  const std::vector<Tensor> both = Grad((y * y).Sum(), {x, y});
  EXPECT_THAT(Floats(both[0]), ElementsAre(18, 36));
  EXPECT_THAT(Floats(both[1]), ElementsAre(6, 12));
  x.RequireGrad();
  y.RequireGrad();
  (y * y).Sum().Backward();
  EXPECT_THAT(Floats(x.grad()), ElementsAre(18, 36));
  EXPECT_THAT(Floats(y.grad()), ElementsAre(6, 12));
}

// Updates begin anew, so that steps do not pile up.
TEST(History, UpdatedParametersHaveNone) {
  Tensor w = Tensor::From({1.f}), m = Tensor::From({0.f});
  w.RequireGrad();
  int64_t nodes = 0;
  for (int i = 0; i < 40; ++i) {
    const Tensor loss = (w * w).Sum();
    EXPECT_GT(loss.Item(), 0);
    const Tensor g = Grad(loss, {w})[0];
    m.Assign(m * 0.5 + g);
    w.Assign(w - m * 0.01);
    std::vector<Tensor> state = {w, m};
    Tensor::Realize(absl::MakeSpan(state));
    if (i == 10) nodes = LiveNodes();
  }
  EXPECT_LT(LiveNodes(), nodes + 50);
  EXPECT_LT(w.Item(), 1);
}

// Nor do they where each update is a tensor of its own, which is marked once the one before is
// gone.
TEST(History, MarkedResultsOfTensorsThatAreGoneHaveNone) {
  const Tensor x = Tensor::From({{1.f, 2.f}, {3.f, 4.f}});
  Tensor w = Tensor::From({1.f, 1.f}).Realize(), kept;
  w.RequireGrad();
  std::vector<float> by_hand = {1, 1};
  for (int i = 0; i < 30; ++i) {
    const Tensor loss = (x * w).Square().Sum(), g = Grad(loss, {w})[0];
    if (i >= 2) {
      const UOp whole = WithHistory(loss.uop());
      EXPECT_LT(TopoSort({&whole, 1}).size(), 40u) << i;
    }
    w = (w - 0.01 * g).Realize();
    w.RequireGrad();
    by_hand = {by_hand[0] * (1 - 0.02F * 10), by_hand[1] * (1 - 0.02F * 20)};
    EXPECT_NEAR(w.ToVector<float>()[0], by_hand[0], 1e-5);
  }
  // What is there still has a gradient through the update.
  kept = w;
  const Tensor after = (w * 3).Realize();
  w = after;
  w.RequireGrad();
  EXPECT_THAT(Floats(Grad((w * 2).Sum(), {kept})[0]), ElementsAre(6, 6));
  EXPECT_EQ(w.Sum().Item(), w.Sum().Item());  // realising something in between
  EXPECT_THAT(Floats(Grad((w * 2).Sum(), {kept})[0]), ElementsAre(6, 6));
}

TEST(History, ManyParametersAreCheap) {
  std::vector<Tensor> parameters;
  Tensor sum = Tensor::Scalar(0.0, kFloat32);
  for (int i = 0; i < 3000; ++i) {
    parameters.push_back(Tensor::Full({1}, i, kFloat32));
    parameters.back().RequireGrad();
    if (i < 300) sum = sum + parameters.back().Sum() * i;
  }
  const std::vector<Tensor> grads = Grad(sum, parameters);
  EXPECT_THAT(Floats(grads[7]), ElementsAre(7));
  EXPECT_THAT(Floats(grads[2999]), ElementsAre(0));
}

TEST(History, ResultsAreTensorsOfTheirOwn) {
  const Tensor x = Tensor::From(std::vector<float>{5}), i = Tensor::From({1, 2});
  for (Tensor t : {x.CumSum(0), x.Roll(1, 0), Cat({x}, 0), x.Cast(kFloat32), x.Contiguous(),
                   x.Bitcast(kFloat32), x.Diff(0)}) {
    t.Assign(9);
    EXPECT_EQ(t.Item(), 9);
    EXPECT_EQ(x.Item(), 5);
  }
  for (Tensor t : {i.Round(), i.Floor(), i.NanToNum(0)}) {
    t.Assign(0);
    EXPECT_THAT(i.ToVector<int32_t>(), ElementsAre(1, 2));
  }
}

// Who frees a tensor's memory may compute with others, and ask for gradients.
TEST(History, WhatItHeldIsFreedByAFunctionThatComputes) {
  int freed = 0;
  const auto free = [&freed](void*) {
    Tensor w = Tensor::From({2.f}).RequireGrad();
    const Tensor y = w * w;
    EXPECT_EQ(y.Item(), 4);
    y.Sum().Backward();
    EXPECT_THAT(Floats(w.grad()), ElementsAre(4));
    ++freed;
  };
  Tensor other = Tensor::From({1.f}).RequireGrad();
  std::vector<int32_t> index = {1, 0};
  Tensor y;
  {
    Tensor x = Tensor::From({1.f, 2.f}).RequireGrad();
    y = (x * 3).Take(Tensor::FromBlob(index.data(), {2}, kInt32, free));
    EXPECT_THAT(Floats(y), ElementsAre(6, 3));
  }
  EXPECT_EQ(freed, 0);
  EXPECT_THAT(Floats(y * 2), ElementsAre(12, 6));  // finds that the history leads nowhere
  EXPECT_EQ(freed, 1);

  std::vector<float> factor = {5};
  (other * Tensor::FromBlob(factor.data(), {1}, kFloat32, free)).Sum().Backward();
  EXPECT_EQ(freed, 1);
  other.RequireGrad();  // begins anew
  EXPECT_EQ(freed, 2);
}

}  // namespace
}  // namespace tessera
