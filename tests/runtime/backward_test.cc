// Backward: gradients that stay with the tensors they belong to.
#include "graph/grad.h"
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

}  // namespace
}  // namespace tessera
