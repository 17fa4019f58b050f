// Gradients in captured steps: made, added to and cleared at each call, as without capture.
#include "graph/grad.h"
#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<double> Read(const Tensor& t) { return t.ToVector<double>(); }
Tensor Weights() { return Tensor::From({0.0f, 1.0f, 2.0f}).RequireGrad(); }
Tensor Row(float value) { return Tensor::Full({3}, value).Contiguous(); }

TEST(CaptureGrad, AStepThatFailsLeavesThemAsTheyWere) {
  Tensor w = Weights();
  (w * w).Sum().Backward();
  Jit fails([&](const Tensor& x) {
    (w * x).Sum().Backward();
    w.ClearGrad();
    return x.MatMul(Tensor::Zeros({7, 7}));
  });
  EXPECT_ERROR(fails.One({Row(1)}), "MatMul", "differ: 3 and 7");
  EXPECT_THAT(Read(w.grad()), ElementsAre(0, 2, 4));
  (w * w).Sum().Backward();
  EXPECT_THAT(Read(w.grad()), ElementsAre(0, 4, 8));
}

TEST(CaptureGrad, ClearedFirstAndLeft) {
  Tensor w = Weights();
  Jit step([&](const Tensor& x) {
    w.ClearGrad();
    (w * x).Sum().Backward();
    return w.grad();
  });
  for (int i = 1; i <= 3; ++i) {
    const float v = static_cast<float>(i);
    EXPECT_THAT(Read(step.One({Row(v)})), ElementsAre(v, v, v));
    EXPECT_THAT(Read(w.grad()), ElementsAre(v, v, v));
  }
  EXPECT_EQ(step.captures(), 1);
}

TEST(CaptureGrad, AddedUpOverCalls) {
  Tensor w = Weights();
  Jit step([&](const Tensor& x) {
    (w * x).Sum().Backward();
    return x;
  });
  double sum = 0;
  for (int i = 1; i <= 4; ++i) {
    step.One({Row(static_cast<float>(i))});
    sum += i;
    EXPECT_THAT(Read(w.grad()), ElementsAre(sum, sum, sum));
  }
  w.ClearGrad();
  step.One({Row(5)});
  EXPECT_THAT(Read(w.grad()), ElementsAre(5, 5, 5));
}

TEST(CaptureGrad, UsedAndCleared) {
  Tensor w = Weights();
  (w * w).Sum().Backward();  // is added to in the first call, which leaves none
  Jit step([&](const Tensor& x) {
    (w * x).Sum().Backward();
    w -= w.grad() * 0.5;
    w.ClearGrad();
    return w.Sum();
  });
  EXPECT_EQ(step.One({Row(2)}).Item(), 0 - 1 + (1 - 2) + (2 - 3));
  EXPECT_FALSE(w.grad());
  EXPECT_EQ(step.One({Row(2)}).Item(), -3 - 3);
  EXPECT_EQ(step.One({Row(2)}).Item(), -3 - 6);
}

TEST(CaptureGrad, OneTensorReturnedTwiceIsOne) {
  Jit step([](const Tensor& x) {
    const Tensor y = x * 2;
    return std::vector<Tensor>{y, y};
  });
  const std::vector<Tensor> out = step({Row(1)});
  Tensor(out[0]).Assign(7);
  EXPECT_THAT(Read(out[1]), ElementsAre(7, 7, 7));
}

}  // namespace
}  // namespace tessera
