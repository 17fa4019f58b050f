// Groups of parameters, rates that fall on a plateau, and averages of weights: PyTorch's values.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/capture.h"
#include "runtime/optimizer.h"
#include "runtime/plateau.h"
#include "runtime/weight_average.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

Tensor Start() {
  return Tensor::From({{0.5, -1., 2.}, {0.25, -0.125, 1.5}}).Cast(kFloat64).Realize();
}

Tensor LossOf(const Tensor& w) {
  const Tensor c = Tensor::From({{1., 2., -1.}, {0.5, 0., 3.}}).To(w.device());
  return ((w - c).Square() * Tensor::Arange(1, 7).Reshape({2, 3})).Sum();
}

// torch.optim.AdamW([{'params': [w], 'weight_decay': .3}, {'params': [b], 'lr': .05}], lr=.02,
// weight_decay=0), four steps.
TEST(ParameterGroups, FollowTheirOwnRules) {
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    Tensor w = Start(), b = Start();
    Optimizer adam(
        {{{w}, AdamOptions{.rate = 0.02, .weight_decay = 0.3}}, {{b}, AdamOptions{.rate = 0.05}}});
    const auto once = [&] {
      (LossOf(w) + LossOf(b)).Backward();
      adam.Step();
    };
    Jit step([&](const std::vector<Tensor>&) { once(); });
    for (int i = 0; i < 4; ++i) captured ? static_cast<void>(step({})) : once();
    ExpectNear(w.ToVector<double>(),
               {0.5672049921455649, -0.8969731079988515, 1.8731982693992688, 0.3228335760404859,
                -0.04454864975211885, 1.5435712970633684},
               1e-13);
    ExpectNear(b.ToVector<double>(),
               {0.698030468658946, -0.8002074630456488, 1.8002074629895115, 0.4435423019674357,
                0.04656906401249422, 1.699543234698896},
               1e-13);
    EXPECT_EQ(adam.groups(), 2u);
  }
}

TEST(ParameterGroups, HaveTheirOwnRates) {
  Tensor w = Tensor::Zeros({2}, kFloat64).Realize(), b = Tensor::Zeros({1}, kFloat64).Realize();
  Optimizer sgd({{{w}, SgdOptions{.rate = 1}}, {{b}, LionOptions{.rate = 2}}});
  Jit step([&](const std::vector<Tensor>&) {
    (w.Sum() + b.Sum()).Backward();
    sgd.Step();
  });
  step({});
  EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{-1, -1}));
  EXPECT_EQ(b.Item(), -2);
  sgd.SetRate(1, 0.5);
  step({});
  EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{-2, -2}));
  EXPECT_EQ(b.Item(), -2.5);
  sgd.SetRate(0.25);
  EXPECT_EQ(sgd.rate(0), 0.25);
  EXPECT_EQ(sgd.rate(1), 0.25);
  // A schedule of one group alone, whose steps are remembered.
  const size_t before = sgd.State().size();
  sgd.SetRate(1, LinearRate(4, 0, 4));
  EXPECT_EQ(sgd.State().size(), before + 1);
  Jit scheduled([&](const std::vector<Tensor>&) {
    (w.Sum() + b.Sum()).Backward();
    sgd.Step();
  });
  scheduled({});
  scheduled({});
  EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{-2.5, -2.5}));
  EXPECT_EQ(b.Item(), -2.5 - 4 - 3);
  EXPECT_EQ(sgd.rate(1), 2);
}

TEST(ParameterGroups, Refuse) {
  const Tensor w = Start(), b = Start();
  EXPECT_ERROR(Optimizer(std::vector<ParameterGroup>()), "Optimizer", "no parameters");
  EXPECT_ERROR(Optimizer({{{w}, SgdOptions{}}, {{}, SgdOptions{}}}), "Optimizer",
               "no parameters in group 1");
  EXPECT_ERROR(Optimizer({{{w}, SgdOptions{}}, {{w}, AdamOptions{}}}), "Optimizer",
               "is given twice");
  Optimizer sgd({{{w}, SgdOptions{}}, {{b}, SgdOptions{}}});
  EXPECT_ERROR(sgd.SetRate(2, 0.5), "SetRate", "there is no group 2 of 2");
  EXPECT_ERROR(sgd.rate(2), "rate", "there is no group 2 of 2");
}

// torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=.5, patience=1, cooldown=1, min_lr=.004)
TEST(Plateau, LowersRates) {
  Tensor w = Start(), b = Start();
  Optimizer adam({{{w}, AdamOptions{.rate = 0.02}}, {{b}, AdamOptions{.rate = 0.05}}});
  Plateau plateau(adam, {.factor = 0.5, .patience = 1, .cooldown = 1, .least = 0.004});
  const std::vector<double> watched = {3, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, kNan, 1, 0.5};
  const std::vector<double> first = {0.02,  0.02,  0.02,  0.01,  0.01,  0.01,  0.005, 0.005, 0.005,
                                     0.005, 0.004, 0.004, 0.004, 0.004, 0.004, 0.004, 0.004, 0.004};
  for (size_t i = 0; i < watched.size(); ++i) {
    const double before = adam.rate(1);
    EXPECT_EQ(plateau.Step(watched[i]), i == 3 || i == 6 || i == 10 || i == 13) << i;
    EXPECT_NEAR(adam.rate(0), first[i], 1e-15) << i;
    EXPECT_NEAR(adam.rate(1),
                i == 3 || i == 6 || i == 10 ? before / 2
                : i == 13                   ? 0.004
                                            : before,
                1e-15);
  }
  EXPECT_EQ(plateau.best(), 0.5);
}

TEST(Plateau, WhatIsBetter) {
  Tensor w = Start();
  const auto rates = [&](bool rising, bool relative) {
    Optimizer sgd({w}, SgdOptions{.rate = 1});
    Plateau plateau(sgd, {.rising = rising, .patience = 0, .threshold = 0.1, .relative = relative});
    std::vector<double> out;
    for (const double x : {1., 1.05, 1.15, 1.3, 1.2, 1.0, 0.95, 0.85}) {
      plateau.Step(x);
      out.push_back(sgd.rate());
    }
    return out;
  };
  ExpectNear(rates(true, false), {1, 0.1, 0.1, 0.1, 1e-2, 1e-3, 1e-4, 1e-5}, 1e-15);
  ExpectNear(rates(true, true), {1, 0.1, 0.1, 0.1, 1e-2, 1e-3, 1e-4, 1e-5}, 1e-15);
  ExpectNear(rates(false, false), {1, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-6}, 1e-15);
  Optimizer sgd({w}, SgdOptions{});
  EXPECT_ERROR(Plateau(sgd, {.factor = 1}), "Plateau", "factor must be");
  EXPECT_ERROR(Plateau(sgd, {.patience = -1}), "Plateau", "patience and cooldown");
}

// A share of infinity may be NaN: the first number is the best whatever is asked for.
TEST(Plateau, BeginsWithAnyNumber) {
  Tensor w = Start();
  for (const double threshold : {0., 1., 2., kInf}) {
    for (const bool rising : {false, true}) {
      Optimizer sgd({w}, SgdOptions{.rate = 1});
      Plateau plateau(sgd, {.rising = rising, .patience = 0, .threshold = threshold});
      EXPECT_FALSE(plateau.Step(3)) << threshold;
      EXPECT_EQ(plateau.best(), 3);
    }
  }
}

TEST(Plateau, GoesOnFromItsState) {
  Tensor w = Start();
  Optimizer sgd({w}, SgdOptions{.rate = 1}), other({w}, SgdOptions{.rate = 1});
  const PlateauOptions options = {.patience = 2, .cooldown = 1};
  Plateau first(sgd, options), second(other, options);
  for (const double x : {2., 3., 3.}) EXPECT_FALSE(first.Step(x));
  second.State()[0].Assign(first.State()[0]).Realize();
  EXPECT_EQ(second.best(), 2);
  for (Plateau* p : {&first, &second}) {
    EXPECT_TRUE(p->Step(2.5));
    for (const double x : {3., 3., 3.}) EXPECT_FALSE(p->Step(x));
    EXPECT_TRUE(p->Step(3));
  }
  EXPECT_NEAR(other.rate(), 0.01, 1e-15);
}

TEST(Plateau, EndsNoSchedule) {
  Tensor w = Start(), b = Start();
  Optimizer sgd({{{w}, SgdOptions{.rate = 1}}, {{b}, SgdOptions{.rate = 1}}});
  Plateau before(sgd);
  sgd.SetRate(1, [](const Tensor& step) { return 1 / (step + 1); });
  EXPECT_FALSE(sgd.scheduled(0));
  EXPECT_TRUE(sgd.scheduled(1));
  EXPECT_ERROR(Plateau(sgd, {}), "Plateau", "group 1 of the optimizer has a schedule");
  EXPECT_ERROR(before.Step(1), "Step", "give it a rate by SetRate(1, rate)");
  sgd.SetRate(1, 0.5);
  EXPECT_FALSE(Plateau(sgd).Step(1));
  Jit step([&](const std::vector<Tensor>&) { before.Step(1); });
  EXPECT_ERROR(step({}), "Step", "no part of a captured step");
}

// AveragedModel's: the first update copies.
TEST(WeightAverage, OfAllAndOfTheLast) {
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    Tensor w = Tensor::Full({2}, 1, kFloat64).Contiguous().Realize();
    Tensor narrow = Tensor::Full({3}, 1, kBFloat16).Contiguous().Realize();
    WeightAverage even({w, narrow}), fading({w}, 0.7);
    const auto once = [&] {
      w.Assign(w * 2);
      narrow.Assign(narrow + 1);
      even.Update();
      fading.Update();
    };
    Jit step([&](const std::vector<Tensor>&) { once(); });
    for (int i = 0; i < 4; ++i) captured ? static_cast<void>(step({})) : once();
    ExpectNear(even.values()[0].ToVector<double>(), {7.5, 7.5}, 1e-15);  // of 2, 4, 8 and 16
    ExpectNear(even.values()[1].ToVector<double>(), {3.5, 3.5, 3.5}, 1e-6);
    EXPECT_EQ(even.values()[1].dtype(), kFloat32);
    const double faded = ((2 * 0.7 + 4 * 0.3) * 0.7 + 8 * 0.3) * 0.7 + 16 * 0.3;
    ExpectNear(fading.values()[0].ToVector<double>(), {faded, faded}, 1e-14);
    even.Use();
    EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{7.5, 7.5}));
    EXPECT_EQ(narrow.ToVector<double>(), (std::vector<double>{3.5, 3.5, 3.5}));
    EXPECT_ERROR(even.Update(), "Update", "Restore them first");
    EXPECT_ERROR(even.Use(), "Use", "already");
    even.Restore();
    EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{16, 16}));
    EXPECT_ERROR(even.Restore(), "Restore", "are not in place");
    EXPECT_EQ(even.State().size(), 4u);
  }
  EXPECT_ERROR(WeightAverage({Start()}, 1.5), "WeightAverage", "decay must be");
  EXPECT_ERROR(WeightAverage({Tensor::Arange(3)}), "WeightAverage", "takes floats");
  const Tensor w = Start();
  EXPECT_ERROR(WeightAverage({w, w}), "WeightAverage", "is given twice");
  EXPECT_ERROR(WeightAverage({Tensor()}), "WeightAverage", "parameter 0 is empty");
}

TEST(WeightAverage, LiesWhereItsParametersDo) {
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)});
  Tensor w = Start().Shard(places, 1).Realize();
  WeightAverage average({w}, 0.5);
  for (int i = 0; i < 2; ++i) average.Update();
  EXPECT_EQ(average.values()[0].device(), w.device());
  ExpectNear(average.values()[0].ToVector<double>(), w.ToVector<double>(), 1e-15);
}

}  // namespace
}  // namespace tessera
