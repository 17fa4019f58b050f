// Schedules of rates: PyTorch's values, steps that are captured, what is saved, and errors.
#include "runtime/learning_rate.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/capture.h"
#include "runtime/optimizer.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

std::vector<double> Rates(const RateSchedule& schedule, int64_t n) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(RateAt(schedule, i));
  return out;
}

void Expect(const RateSchedule& schedule, const std::vector<double>& torch) {
  ExpectNear(Rates(schedule, static_cast<int64_t>(torch.size())), torch, 1e-14);
}

// The values of torch.optim.lr_scheduler.
TEST(LearningRate, Schedules) {
  Expect(ConstantRate(0.5), {0.5, 0.5, 0.5});
  Expect(StepRate(0.5, 3), {0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005});
  Expect(StepRate(0.5, {2, 5}), {0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005});
  Expect(ExponentialRate(0.5, 0.9),
         {0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205, 0.23914845});
  Expect(CosineRate(0.5, 5, 0.1), {0.5, 0.46180339887499, 0.36180339887499, 0.238196601125011,
                                   0.138196601125011, 0.1, 0.1, 0.1});
  Expect(CosineRestartsRate(0.5, 3, 2, 0.1),
         {0.5, 0.4, 0.2, 0.5, 0.473205080756888, 0.4, 0.3, 0.2, 0.126794919243112, 0.5,
          0.493185165257814, 0.473205080756888, 0.441421356237309, 0.4});
  Expect(PolynomialRate(0.5, 0, 5, 2), {0.5, 0.32, 0.18, 0.08, 0.02, 0, 0, 0});
  Expect(LinearRate(0.5, 0.1, 5), {0.5, 0.42, 0.34, 0.26, 0.18, 0.1, 0.1, 0.1});
}

TEST(LearningRate, OthersByTheirDefinition) {
  Expect(CosineRestartsRate(1, 2), {1, 0.5, 1, 0.5, 1});
  Expect(InverseRootRate(0.5, 4), {0.125, 0.25, 0.375, 0.5, 0.5 / std::sqrt(1.25)});
  Expect(WarmUp(4, LinearRate(0.8, 0, 4)), {0, 0.2, 0.4, 0.6, 0.8, 0.6, 0.4, 0.2, 0, 0});
  Expect(WarmUp(2, ConstantRate(0.5), 0.2), {0.1, 0.3, 0.5, 0.5});
  Expect(JoinedRates({ConstantRate(0.3), LinearRate(1, 0, 4), ConstantRate(0.1)}, {2, 5}),
         {0.3, 0.3, 1, 0.75, 0.5, 0.1, 0.1});
  Expect(RateSchedule([](const Tensor& step) { return 1 / (step + 1); }), {1, 0.5, 1.0 / 3});
}

// At each step a parameter falls by the step's rate.
TEST(LearningRate, OfStepsCapturedOrNot) {
  const RateSchedule schedule = WarmUp(2, CosineRate(0.5, 6));
  const std::vector<double> rates = Rates(schedule, 9);
  for (const bool captured : {false, true}) {
    for (const bool spread : {false, true}) {
      SCOPED_TRACE(testing::Message() << captured << spread);
      Tensor w = Tensor::Zeros({4}, kFloat64).Realize();
      if (spread) {
        w = w.Shard(PlaceList(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)}), 0).Realize();
      }
      Optimizer optimizer({w}, SgdOptions{});
      optimizer.SetRate(schedule);
      const auto once = [&] {
        w.Sum().Backward();
        optimizer.Step();
      };
      Jit step([&](const std::vector<Tensor>&) { once(); });
      double sum = 0;
      for (const double rate : rates) {
        EXPECT_NEAR(optimizer.rate(), rate, 1e-15);
        captured ? static_cast<void>(step({})) : once();
        sum += rate;
        ExpectNear(w.ToVector<double>(), std::vector<double>(4, -sum), 1e-14);
      }
      if (captured) {
        EXPECT_EQ(step.captures(), 1);
      }
      optimizer.SetRate(schedule);  // begins anew
      EXPECT_NEAR(optimizer.rate(), rates[0], 1e-15);
    }
  }
}

TEST(LearningRate, GoesOnWhereItWas) {
  const RateSchedule schedule = LinearRate(0.8, 0, 8);
  Tensor w = Tensor::Zeros({2}, kFloat64).Realize(), copy = Tensor::Zeros({2}, kFloat64).Realize();
  Optimizer first({w}, AdamOptions{}), second({copy}, AdamOptions{});
  const size_t alone = first.State().size();
  first.SetRate(schedule);
  second.SetRate(schedule);
  for (int i = 0; i < 3; ++i) {
    w.Square().Sum().Backward();
    first.Step();
  }
  std::vector<Tensor> from = first.State(), to = second.State();
  ASSERT_EQ(from.size(), alone + 1);
  for (size_t i = 0; i < from.size(); ++i) to[i].Assign(from[i]).Realize();
  EXPECT_EQ(second.rate(), first.rate());
  EXPECT_NEAR(second.rate(), 0.5, 1e-15);
  first.SetRate(0.25);  // a number again
  EXPECT_EQ(first.rate(), 0.25);
  EXPECT_EQ(first.State().size(), alone);
}

TEST(LearningRate, Refuses) {
  EXPECT_ERROR(ConstantRate(-1), "ConstantRate", "from 0 on");
  EXPECT_ERROR(StepRate(1, 0), "StepRate", "one step or more");
  EXPECT_ERROR(StepRate(1, {3, 3}), "StepRate", "ascend");
  EXPECT_ERROR(ExponentialRate(1, kNan), "ExponentialRate", "factor");
  EXPECT_ERROR(PolynomialRate(1, 0, 5, 0), "PolynomialRate", "power above 0");
  EXPECT_ERROR(CosineRestartsRate(1, 5, 0), "CosineRestartsRate", "as long as");
  EXPECT_ERROR(WarmUp(3, {}), "WarmUp", "empty");
  EXPECT_ERROR(JoinedRates({ConstantRate(1)}, {3}), "JoinedRates", "an end for each");
  EXPECT_ERROR(RateAt({}, 0), "RateAt", "empty");
}

}  // namespace
}  // namespace tessera
