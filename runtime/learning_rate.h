// Rates that change with the steps.
//
//   adam.SetRate(WarmUp(100, CosineRate(1e-3, 10000)));
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// The rate of a step as a function of how many there were before it: of an f64 tensor of rank 0, as
// which captured steps have it.
using RateSchedule = std::function<Tensor(const Tensor& step)>;

RateSchedule ConstantRate(double rate);
// Times the factor after every so many steps; or when each of the milestones, ascending, is
// reached.
RateSchedule StepRate(double rate, int64_t every, double factor = 0.1);
RateSchedule StepRate(double rate, std::vector<int64_t> milestones, double factor = 0.1);
RateSchedule ExponentialRate(double rate, double factor);  // times the factor after each step
// From the first rate to the last one in so many steps, and then that one: by equal differences; by
// a power of the steps that are left; or by half a wave of the cosine.
RateSchedule LinearRate(double rate, double last, int64_t steps);
RateSchedule PolynomialRate(double rate, double last, int64_t steps, double power);
RateSchedule CosineRate(double rate, int64_t steps, double last = 0);
// Half a wave of the cosine, again and again, each so many times as long as the one before.
RateSchedule CosineRestartsRate(double rate, int64_t steps, int64_t longer = 1, double last = 0);
// Growing by equal differences for so many steps, then as the inverse root of their number.
RateSchedule InverseRootRate(double rate, int64_t warm_up_steps);

// For so many steps by equal differences from `from` times the first rate of `then` to that; then
// that schedule, from its beginning.
RateSchedule WarmUp(int64_t steps, RateSchedule then, double from = 0);
// One schedule after another: each of the ends, ascending, is how many steps there have been when
// the next one begins anew.
RateSchedule JoinedRates(std::vector<RateSchedule> parts, std::vector<int64_t> ends);

// The rate after so many steps, as a number.
double RateAt(const RateSchedule& schedule, int64_t step);

}  // namespace tessera
