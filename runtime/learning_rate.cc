// Schedules as expressions of the step, so that captured steps compute them.
#include "runtime/learning_rate.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;

namespace {

void CheckRate(double rate) {
  if (!(rate >= 0) || std::isinf(rate)) Fail("takes rates from 0 on, not ", rate);
}

void CheckSteps(int64_t steps) {
  if (steps < 1) Fail("takes one step or more, not ", steps);
}

void CheckFactor(double factor) {
  if (!(factor >= 0) || std::isinf(factor)) Fail("takes a finite factor from 0 on, not ", factor);
}

void CheckAscending(const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] <= (i == 0 ? 0 : steps[i - 1])) {
      Fail("takes numbers of steps that ascend from 1, not ", steps[i], " as number ", i);
    }
  }
}

Tensor AsTensor(double x) { return Tensor::Full({}, x, kFloat64); }

// base^n, of n that are whole.
Tensor PowerOf(double base, const Tensor& n) { return AsTensor(base).Pow(n); }

// From 0 to 1 in so many steps, and 1 from then on.
Tensor Progress(const Tensor& step, int64_t steps) {
  return (step / static_cast<double>(steps)).Minimum(1);
}

Tensor HalfWave(const Tensor& progress, double rate, double last) {
  return ((progress * std::numbers::pi).Cos() + 1) * ((rate - last) / 2) + last;
}

}  // namespace

RateSchedule ConstantRate(double rate) {
  Call call("ConstantRate", CallSite::Here());
  CheckRate(rate);
  return [=](const Tensor&) { return AsTensor(rate); };
}

RateSchedule StepRate(double rate, int64_t every, double factor) {
  Call call("StepRate", CallSite::Here());
  CheckRate(rate);
  CheckSteps(every);
  CheckFactor(factor);
  return [=](const Tensor& step) {
    return PowerOf(factor, (step / static_cast<double>(every)).Floor()) * rate;
  };
}

RateSchedule StepRate(double rate, std::vector<int64_t> milestones, double factor) {
  Call call("StepRate", CallSite::Here());
  CheckRate(rate);
  CheckAscending(milestones);
  CheckFactor(factor);
  return [=, milestones = std::move(milestones)](const Tensor& step) {
    Tensor reached = AsTensor(0);
    for (const int64_t m : milestones) {
      reached = reached + (step >= static_cast<double>(m)).Cast(kFloat64);
    }
    return PowerOf(factor, reached) * rate;
  };
}

RateSchedule ExponentialRate(double rate, double factor) {
  Call call("ExponentialRate", CallSite::Here());
  CheckRate(rate);
  CheckFactor(factor);
  return [=](const Tensor& step) { return PowerOf(factor, step) * rate; };
}

RateSchedule LinearRate(double rate, double last, int64_t steps) {
  Call call("LinearRate", CallSite::Here());
  CheckRate(rate);
  CheckRate(last);
  CheckSteps(steps);
  return [=](const Tensor& step) { return Progress(step, steps) * (last - rate) + rate; };
}

RateSchedule PolynomialRate(double rate, double last, int64_t steps, double power) {
  Call call("PolynomialRate", CallSite::Here());
  CheckRate(rate);
  CheckRate(last);
  CheckSteps(steps);
  if (!(power > 0)) Fail("takes a power above 0, not ", power);
  return [=](const Tensor& step) {
    return (1 - Progress(step, steps)).Pow(power) * (rate - last) + last;
  };
}

RateSchedule CosineRate(double rate, int64_t steps, double last) {
  Call call("CosineRate", CallSite::Here());
  CheckRate(rate);
  CheckRate(last);
  CheckSteps(steps);
  return [=](const Tensor& step) { return HalfWave(Progress(step, steps), rate, last); };
}

// Of waves that grow, the n-th begins at steps (longer^n - 1) / (longer - 1).
RateSchedule CosineRestartsRate(double rate, int64_t steps, int64_t longer, double last) {
  Call call("CosineRestartsRate", CallSite::Here());
  CheckRate(rate);
  CheckRate(last);
  CheckSteps(steps);
  if (longer < 1) Fail("takes waves at least as long as the one before, not ", longer, " times");
  return [=](const Tensor& step) {
    const Tensor t = step / static_cast<double>(steps);
    if (longer == 1) return HalfWave(t - t.Floor(), rate, last);
    const auto by = static_cast<double>(longer);
    // A little more than whole, where the logarithm is to be.
    const Tensor wave = ((t * (by - 1) + 1).Log() * (1 / std::log(by)) + 1e-9).Floor();
    const Tensor length = PowerOf(by, wave), begin = (length - 1) / (by - 1);
    return HalfWave((t - begin) / length, rate, last);
  };
}

RateSchedule InverseRootRate(double rate, int64_t warm_up_steps) {
  Call call("InverseRootRate", CallSite::Here());
  CheckRate(rate);
  CheckSteps(warm_up_steps);
  const auto n = static_cast<double>(warm_up_steps);
  return [=](const Tensor& step) {
    const Tensor t = step + 1;  // so that the first one is not 0
    return (t / n).Minimum((t / n).Rsqrt()) * rate;
  };
}

RateSchedule WarmUp(int64_t steps, RateSchedule then, double from) {
  Call call("WarmUp", CallSite::Here());
  CheckSteps(steps);
  CheckFactor(from);
  if (!then) Fail("takes a schedule to go on with, not an empty one");
  return [=, then = std::move(then)](const Tensor& step) {
    const auto n = static_cast<double>(steps);
    const Tensor share = (step / n).Minimum(1) * (1 - from) + from;
    return then((step - n).Maximum(0)) * share;
  };
}

RateSchedule JoinedRates(std::vector<RateSchedule> parts, std::vector<int64_t> ends) {
  Call call("JoinedRates", CallSite::Here());
  if (parts.size() != ends.size() + 1) {
    Fail("takes an end for each of the ", parts.size(), " schedules but the last, not ",
         ends.size());
  }
  CheckAscending(ends);
  for (const RateSchedule& part : parts) {
    if (!part) Fail("takes schedules, one of which is empty");
  }
  return [parts = std::move(parts), ends = std::move(ends)](const Tensor& step) {
    Tensor rate = parts[0](step);
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto end = static_cast<double>(ends[i]);
      rate = Where(step >= end, parts[i + 1]((step - end).Maximum(0)), rate);
    }
    return rate;
  };
}

double RateAt(const RateSchedule& schedule, int64_t step) {
  Call call("RateAt", CallSite::Here());
  if (!schedule) Fail("takes a schedule, not an empty one");
  return schedule(AsTensor(static_cast<double>(step))).Item();
}

}  // namespace tessera
