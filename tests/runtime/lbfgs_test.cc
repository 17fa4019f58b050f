// Limited-memory BFGS: PyTorch's ways, several parameters and places, and errors.
#include "runtime/lbfgs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

Tensor Start() { return Tensor::From(Values{-1.2, 1, 0.5, -0.3}).Realize(); }
Tensor Rosenbrock(const Tensor& w) {
  const Tensor before = w.SliceAxis(0, {0, 3}), after = w.SliceAxis(0, {1, 4});
  return ((1 - before).Square() + (after - before.Square()).Square() * 100).Sum();
}

void ExpectWay(const LbfgsOptions& options, const Values& losses, const Values& end) {
  Tensor w = Start();
  Lbfgs lbfgs({w}, options);
  Values got;
  for (size_t i = 0; i < losses.size(); ++i) {
    got.push_back(lbfgs.Step([&] { return Rosenbrock(w); }));
  }
  ExpectNear(got, losses, 1e-9);
  ExpectNear(w.ToVector<double>(), end, 1e-9);
  EXPECT_FALSE(w.grad());
}

// torch.optim.LBFGS of w = [-1.2, 1, .5, -.3] in f64; what each step() returns, and w after them.
TEST(Lbfgs, GoesAsPyTorchDoes) {
  ExpectWay({.rate = 0.5, .iterations = 4, .history = 3},
            {79.7, 4.47470687409116, 3.703561463922926},
            {-0.7888082667221062, 0.6334550583635671, 0.40720842692182224, 0.16564603074341266});
  ExpectWay({.iterations = 6, .history = 5, .strong_wolfe = true},
            {79.7, 3.7017531277894977, 3.701669078176416, 3.701428682457167},
            {-0.7756591860389803, 0.6130932985549883, 0.38206282649349627, 0.14597202799256845});
}

TEST(Lbfgs, FindsTheMinimum) {
  // Of a sum of squares, over two parameters in two dtypes, one of which lies spread.
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)});
  Tensor w = Tensor::Zeros({3}, kFloat64).Contiguous().Shard(places, 0).Realize();
  Tensor b = Tensor::Zeros({2}).Contiguous().Realize(), idle = Tensor::Ones({1}).Realize();
  Lbfgs lbfgs({w, b, idle}, {.strong_wolfe = true});
  const auto loss = [&] {
    const Tensor of_w = ((w - Tensor::Arange(3, kFloat64)).Square() * 3).Sum();
    return of_w.To(Place("CPU", 0)) + (b + 0.5).Square().Sum();
  };
  EXPECT_NEAR(lbfgs.Step(loss), 15.5, 1e-6);
  ExpectNear(w.ToVector<double>(), {0, 1, 2}, 1e-6);
  ExpectNear(b.Cast(kFloat64).ToVector<double>(), {-0.5, -0.5}, 1e-6);
  EXPECT_EQ(idle.Item(), 1);
  EXPECT_NEAR(lbfgs.Step(loss), 0, 1e-10);
}

TEST(Lbfgs, BeginsWithoutGradients) {
  Tensor w = Tensor::From(Values{1, 2}).Realize();
  Lbfgs lbfgs({w}, {.iterations = 1});
  (w * Tensor::From(Values{1000, 0})).Sum().Backward();
  EXPECT_EQ(lbfgs.Step([&] { return w.Square().Sum(); }), 5);
  ExpectNear(w.ToVector<double>(), {2. / 3, 4. / 3}, 1e-12);
}

// The first step goes beyond 5, where the logarithm ends.
TEST(Lbfgs, NanIsNoFall) {
  Tensor w = Tensor::From(Values{1, 2}).Realize();
  Lbfgs lbfgs({w}, {.rate = 4, .strong_wolfe = true});
  const auto loss = [&] { return (w - 4).Square().Sum() * 2 - (1.5 - w * 0.3).Log().Sum(); };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isfinite(lbfgs.Step(loss))) << i;
  const double least = 4.5 - std::sqrt(0.5);
  ExpectNear(w.ToVector<double>(), {least, least}, 1e-6);
}

TEST(Lbfgs, NanIsNoMinimum) {
  Tensor w = Tensor::From(Values{-1, 2}).Realize();
  Lbfgs lbfgs({w});
  EXPECT_ERROR(lbfgs.Step([&] { return w.Log().Sum() + w.Sqrt().Sum(); }), "Step",
               "the gradient holds nan");
  EXPECT_EQ(w.ToVector<double>(), (Values{-1, 2}));
}

TEST(Lbfgs, Refuses) {
  const Tensor w = Start();
  EXPECT_ERROR(Lbfgs({}), "Lbfgs", "no parameters");
  EXPECT_ERROR(Lbfgs({Tensor::Arange(3)}), "Lbfgs", "takes floats");
  EXPECT_ERROR(Lbfgs({w, w}), "Lbfgs", "is given twice");
  EXPECT_ERROR(Lbfgs({w, Tensor()}), "Lbfgs", "parameter 1 is empty");
  EXPECT_ERROR(Lbfgs({w}, {.history = 0}), "Lbfgs", "a history of one or more");
  EXPECT_ERROR(Lbfgs({w}, {.rate = 0}), "Lbfgs", "rate must be above 0");
  Lbfgs lbfgs({w});
  EXPECT_ERROR(lbfgs.Step({}), "Step", "not an empty one");
  Jit step([&](const std::vector<Tensor>&) { lbfgs.Step([&] { return Rosenbrock(w); }); });
  EXPECT_ERROR(step({}), "Step", "no part of a captured step");
}

}  // namespace
}  // namespace tessera
