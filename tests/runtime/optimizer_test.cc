// Optimisers: PyTorch's values, steps that are captured, spread or in narrow floats, and errors.
#include "runtime/optimizer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

const std::vector<double> kStart = {0.5, -1, 2, 0.25, -0.125, 1.5};

Tensor Start(DType dtype = kFloat64) { return Tensor::From(kStart, {2, 3}).Cast(dtype).Realize(); }

// Whose gradient is 2 n (w - c), n from 1 to 6.
Tensor LossOf(const Tensor& w) {
  const Tensor c = Tensor::From({{1., 2., -1.}, {0.5, 0., 3.}}).To(w.device());
  const Tensor n = Tensor::Arange(1, 7).Reshape({2, 3});
  return ((w - c).Square() * n).Sum();
}

// Four steps, the last two of half the rate.
template <typename Options>
std::vector<double> Steps(Tensor w, const Options& options, bool captured) {
  Optimizer optimizer({w}, options);
  Jit step([&](const std::vector<Tensor>&) {
    LossOf(w).Backward();
    optimizer.Step();
  });
  for (int i = 0; i < 4; ++i) {
    if (i == 2) optimizer.SetRate(options.rate / 2);
    if (captured) {
      step({});
    } else {
      LossOf(w).Backward();
      optimizer.Step();
    }
    EXPECT_FALSE(w.grad());
  }
  return w.Cast(kFloat64).ToVector<double>();
}

// torch.optim's SGD, Adam and AdamW gave these for the same steps in f64.
template <typename Options>
void ExpectSteps(const Options& options, const std::vector<double>& torch) {
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    ExpectNear(Steps(Start(), options, captured), torch, 1e-13);
    ExpectNear(Steps(Start(kFloat32), options, captured), torch, 1e-6);
    ExpectNear(Steps(Start(kBFloat16), options, captured), torch, 2e-2);
  }
}

TEST(Optimizer, Sgd) {
  ExpectSteps(SgdOptions{.rate = 0.02},
              {0.55744768, -0.34012672, 1.05277952, 0.35069504, -0.0648, 2.32905984});
}

TEST(Optimizer, SgdWithMomentumAndDecay) {
  SgdOptions options{.rate = 0.02, .momentum = 0.9, .weight_decay = 0.1};
  ExpectSteps(options, {0.608219061482, 0.31600199143599994, 0.11164347976799986, 0.445325434861,
                        -0.006087801550500004, 3.099729665646});
  options.nesterov = true;
  ExpectSteps(options, {0.6457715605210322, 0.7043822602045756, -0.3490128517200071,
                        0.4831379522755681, 0.011055451404163957, 3.2530146336176164});
}

TEST(Optimizer, Adam) {
  ExpectSteps(AdamOptions{.rate = 0.02, .weight_decay = 0.1, .coupled = true},
              {0.5598703936175558, -0.9400162808172838, 1.9400160975681082, 0.309709228153988,
               -0.06581751897538397, 1.5599662016475695});
  ExpectSteps(
      AdamOptions{.rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
      {0.5567120626515399, -0.9341711207808102, 1.9281867543695963, 0.30798072259681686,
       -0.06549627377956467, 1.550845273652659});
}

TEST(Optimizer, ParametersStayWhereTheyAre) {
  const AdamOptions options{.rate = 0.02};
  const std::vector<double> alone = Steps(Start(), options, false);
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)});
  for (const int axis : {0, 1}) {  // of which 3 are uneven
    const Tensor spread = Start().Shard(places, axis).Realize();
    const Device device = spread.device();
    ExpectNear(Steps(spread, options, true), alone, 1e-13);
    EXPECT_EQ(spread.device(), device);
  }
  // A device each.
  Tensor a = Start(), b = Start().To(Place("CPU", 1)).Realize();
  Optimizer optimizer({a, b}, options);
  (LossOf(a) + LossOf(b).To(Place("CPU", 0))).Backward();
  optimizer.Step();
  ExpectNear(b.ToVector<double>(), a.ToVector<double>(), 1e-15);
}

TEST(Optimizer, GradientsAddUpAndMissingOnesChangeNothing) {
  Tensor once = Start(), twice = Start(), idle = Start();
  Optimizer of_once({once}, SgdOptions{.rate = 0.02}),
      of_twice({twice, idle}, SgdOptions{.rate = 0.01});
  LossOf(once).Backward();
  of_once.Step();
  LossOf(twice).Backward();
  LossOf(twice).Backward();
  of_twice.Step();
  ExpectNear(twice.ToVector<double>(), once.ToVector<double>(), 1e-14);
  EXPECT_EQ(idle.ToVector<double>(), kStart);
}

// Adam's means have begun at 0 when a parameter first had a gradient, not with the first step.
TEST(Optimizer, EachParameterCountsItsOwnSteps) {
  Tensor w = Tensor::Ones({1}).Realize(), late = Tensor::Ones({1}).Realize();
  Optimizer optimizer({w, late}, AdamOptions{.rate = 0.1});
  for (int i = 0; i < 20; ++i) {
    w.Sum().Backward();
    optimizer.Step();
  }
  (w.Sum() + late.Sum()).Backward();
  optimizer.Step();
  EXPECT_NEAR(late.Item<float>(), 0.9, 1e-6);
}

TEST(Optimizer, GoesOnFromWhatItRemembered) {
  const AdamOptions options{.rate = 0.02};
  Tensor w = Start();
  Optimizer first({w}, options);
  const auto step = [&](Optimizer& by, const Tensor& of) {
    LossOf(of).Backward();
    by.Step();
  };
  step(first, w);
  Tensor copy = Tensor::From(w.ToVector<double>(), {2, 3}).Realize();
  Optimizer second({copy}, options);
  std::vector<Tensor> from = first.State(), to = second.State();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i].Assign(from[i]).Realize();
  step(first, w);
  step(second, copy);
  EXPECT_EQ(copy.ToVector<double>(), w.ToVector<double>());
}

// A step that is replayed schedules nothing, and what it remembers is no history that grows.
TEST(Optimizer, KeepsNoHistory) {
  Tensor w = Start();
  Optimizer optimizer({w}, AdamOptions{});
  for (int i = 0; i < 3; ++i) {
    LossOf(w).Backward();
    optimizer.Step();
    EXPECT_TRUE(w.uop().is(Op::kBuffer));
    for (const Tensor& t : optimizer.State()) EXPECT_TRUE(t.uop().is(Op::kBuffer));
  }
}

// Whatever is realised looks at all marked tensors; tools/sanitize --thread sees whether it may.
TEST(Optimizer, ThreadsTrainTheirOwn) {
  const AdamOptions options{.rate = 0.02};
  const std::vector<double> alone = Steps(Start(), options, false);
  std::vector<std::vector<double>> by(3);
  std::vector<std::thread> threads;
  for (auto& values : by) {
    threads.emplace_back([&] { values = Steps(Start(), options, false); });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& values : by) EXPECT_EQ(values, alone);
}

TEST(Optimizer, Refuses) {
  const Tensor w = Start();
  EXPECT_ERROR(Optimizer({w, w}, SgdOptions{}), "Optimizer", "is given twice");
  EXPECT_ERROR(Optimizer({Tensor()}, SgdOptions{}), "Optimizer", "parameter 0 is empty");
  EXPECT_ERROR(Optimizer({Tensor::Arange(3)}, SgdOptions{}), "Optimizer", "not of a float dtype");
  EXPECT_ERROR(Optimizer({w}, SgdOptions{.rate = -1}), "Optimizer", "rate must be 0 or more");
  EXPECT_ERROR(Optimizer({w}, SgdOptions{.momentum = 1}), "Optimizer", "less than 1, not 1");
  EXPECT_ERROR(Optimizer({w}, SgdOptions{.nesterov = true}), "Optimizer", "needs a momentum");
  EXPECT_ERROR(Optimizer({w}, AdamOptions{.beta2 = kNan}), "Optimizer", "beta2 must be");
  Optimizer optimizer({w}, SgdOptions{});
  EXPECT_ERROR(optimizer.Step(), "Step", "none of the 1 parameters has a gradient");
  EXPECT_ERROR(optimizer.SetRate(kInf), "SetRate", "finite");
}

}  // namespace
}  // namespace tessera
